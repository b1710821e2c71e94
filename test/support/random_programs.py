# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of maps, reductions and products over up to three axes, and inputs for them."""

from hypothesis import strategies as st

from neptune_mlir.frontend import notation as N

INPUTS = {"x": "ij", "y": "ij", "u": "j", "r": "i", "v": "je", "w": "ie", "g": "e"}


class Grammar:
    """Builds one program; `draw` makes every choice, so that failures shrink."""

    def __init__(self, draw):
        self.draw = draw
        self.program = N.Program("random")
        self.axes = {}
        for name, sizes in {"i": (6, 1, 9), "j": (13, 1, 4, 21), "e": (5, 1, 8)}.items():
            self.axes[name] = self.program.axis(name, self.pick([None, *sizes]))
        self.tensors = {}
        for name in ("x", "v"):  # so that every axis has an extent
            self.input(name)
        self.values = []  # what later steps may read

    def pick(self, options):
        return self.draw(st.sampled_from(options))

    def element(self):
        return self.input(self.pick(sorted(INPUTS)))

    def input(self, name):
        """An element of an input, at the axes of its dimensions."""
        if name not in self.tensors:
            own = [self.axes[a] for a in INPUTS[name]]
            self.tensors[name] = self.program.input(name, *own, dtype="f64")[tuple(own)]
        return self.tensors[name]

    def leaf(self):
        made = [lambda v=v: v for v in self.values]
        return self.pick([self.element, self.element, *made, *made])()

    def map(self):
        a, b = self.leaf(), self.leaf()
        return self.pick([
            lambda: a * b,
            lambda: a - b,
            lambda: a + b * 0.5,
            lambda: N.maximum(a, b),
            lambda: a / (abs(b) + 1.0),
            lambda: N.tanh(a),
            lambda: N.exp(N.tanh(a) - N.tanh(b)),
            lambda: (a - b) * (a - b),
            lambda: N.log(abs(a) + 1.0),
            lambda: N.where(self.condition(), a, 0.0),
        ])()  # fmt: skip

    def condition(self):
        i, j, e = (self.axes[a] for a in "ije")
        return self.pick([j <= i, i - j < 3, (j <= i) & (i - j < 4), e < j, j != 2])

    def reduction(self):
        body = self.pick([self.leaf, self.map, self.map, self.weights])()
        if len(body.axes) == 0:
            return body
        over = self.draw(
            st.lists(st.sampled_from(body.axes), min_size=1, max_size=2, unique_by=lambda a: a.name)
        )
        if "j" in [a.name for a in body.axes]:  # mostly streams over j
            over = self.pick([[self.axes["j"]], [self.axes["j"]], over])
        return self.pick([N.sum, N.sum, N.sum, N.max, N.min])(body, *over)

    def weights(self):
        """exp(x - max x), a softmax's numerator, maybe masked, normalised and times a value."""
        a = self.leaf()
        if not a.axes:
            return a
        axis = self.axes["j"] if any(x.name == "j" for x in a.axes) else self.pick(a.axes)
        if self.draw(st.booleans()):
            a = N.where(self.condition(), a, -N.inf)
        weight = N.exp(a - N.max(a, axis))
        if self.draw(st.booleans()):
            weight = weight / N.sum(weight, axis)
        return self.pick([weight, weight * self.leaf()])

    def build(self):
        for _ in range(self.draw(st.integers(2, 5))):
            self.values.append(self.pick([self.reduction, self.reduction, self.map])())
        last = self.values[-1]
        self.program.output(last, *last.axes)
        if self.draw(st.booleans()):
            other = self.pick(self.values)
            self.program.output(other, *other.axes)
        return self.program


@st.composite
def programs(draw):
    return Grammar(draw).build()


def arrays(program, rng):
    sizes = {"i": 7, "j": 11, "e": 3}
    return [
        rng.standard_normal([sizes[a.name] if a.static is None else a.static for a in t.shape])
        for t in program.inputs.values()
    ]


def described(program):
    lines = [f"{a.name}: {a.static or '?'}" for a in program.axis_list]
    for s in program.steps:
        names = ", ".join(program.axis_list[k].name for k in s.removed)
        lines.append(f"{s.key} = {s.combiner} over {names} of {program.show(s.body)}")
    return "\n".join([*lines, *(f"return {program.show(o.term)}" for o in program.outputs)])
