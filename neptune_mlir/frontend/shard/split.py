# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program over devices: what each computes of its pieces, what travels, and the join.

    made = split(ops.attention(head_dim=64, causal=True), ["i", "j"])
    made.local          q, k, v of this device, i_start, j_start, ... -> parts over j
    made.join("j", 2)   two parts of each kind -> the result

Everything follows from the program: reductions over a sharded axis are parts (`partials`), the rest
of the program behind them is the join's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from neptune_mlir.algebra import terms as T
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.gradient import as_program, grad
from neptune_mlir.frontend.gradient.saved import vjp
from neptune_mlir.frontend.program import Output, Program, ReductionStep, Tensor
from neptune_mlir.frontend.shard.joins import CarriedBuilder, JoinBuilder, needed_of
from neptune_mlir.frontend.shard.partials import Partials, RunningPart, partials_over, reading
from neptune_mlir.frontend.shard.positions import axis_numbers, localized
from neptune_mlir.runtime.shards.plan import ShardPosition


@dataclass(frozen=True, eq=False)
class ShardSplit:
    """A program whose axes `axes` are in pieces.

    Attributes:
        whole: the program on pieces, with its results as they are: right for a device that has
            all of what a result reduces.
        local: as `whole`, with the parts as results, those over the first axis first, and then the
            results that need no other device.
        positions: the further arguments of both, in order.
        partials: what is reduced over each axis, by its name.
    """

    program: Program
    axes: tuple[str, ...]
    whole: Program
    local: Program
    positions: tuple[ShardPosition, ...]
    partials: dict[str, Partials]

    @property
    def parts(self) -> tuple[RunningPart, ...]:
        return tuple(p for found in self.partials.values() for p in found.parts)

    @cached_property
    def results(self) -> dict[str, list[Output]]:
        """The results of the program by the axis whose parts they are joined from."""
        over: dict[str, list[Output]] = {name: [] for name in self.partials}
        for output in self.whole.outputs:
            found = [n for n, p in self.partials.items() if _reaches(self.whole, output, p.keys)]
            if len(found) > 1:
                raise InputError(
                    f"result '{output.name}' needs sums over {' and '.join(found)}, which are "
                    "both sharded", loc=f"{output.place[0]}:{output.place[1]}:1",
                    hint="shard one of them",
                )  # fmt: skip
            if found:
                over[found[0]].append(output)
        return over

    @cached_property
    def here(self) -> list[Output]:
        """The results of the program that need no other device."""
        joined = {o.name for found in self.results.values() for o in found}
        return [o for o in self.whole.outputs if o.name not in joined]

    def axes_of(self, name: str) -> tuple[str, ...]:
        """The axes of an input, a part or a result."""
        for part in self.parts:
            if part.name == name:
                return self._named(part.axes)
        argument = self.program.inputs.get(name)
        if isinstance(argument, Tensor):
            return tuple(a.name for a in argument.shape)
        return self._named(next(o.axes for o in self.program.outputs if o.name == name))

    def _named(self, axes: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.program.axis_list[a].name for a in axes)

    def join(self, axis: str, count: int, meets: bool = False) -> Program:
        """The join of `count` parts over an axis: the parts (of more than FEW a stack, whose first
        dimension has that extent), then inputs and positions that it reads of the program ->
        results of that axis. `meets`: its programs trade parts with those of another device,
        by the last arguments (`MEETING`)."""
        if axis not in self.partials:
            raise UsageError(f"nothing is reduced over '{axis}'", hint=", ".join(self.partials))
        made = JoinBuilder(self, self.partials[axis], count)
        return (made.meeting if meets else made.program)(self.results[axis])

    def carried(self, axis: str, finish: bool) -> Program:
        """The local program that begins with parts over an axis, of other data: the arguments of
        the local program, then those parts -> the parts over both, or the results (`finish`)."""
        return CarriedBuilder(self, self.partials[axis], finish).program(self.results[axis])

    def explain(self) -> str:
        """What travels and why it may, for people."""
        lines = []
        for name, found in self.partials.items():
            for p in found.parts:
                r = p.running
                shape = ", ".join(self._named(p.axes))
                how = f", corrected ({r.correction.form})" if r.correction else ""
                lines.append(f"over {name}: {p.name}[{shape}] = {self.program.show(p.value)}, "
                             f"{r.combiner} of {self.program.show(r.body)}{how}")  # fmt: skip
            if found.total:
                lines.append(f"over {name}: {found.total} is 1 in every part")
            lines += [str(o) for o in (*found.solution.obligations, *found.obligations)]
        return "\n".join(lines)


def _reaches(program: Program, output: Output, keys: set[str]) -> bool:
    steps = {s.key: s for s in program.steps}
    pending, seen = [output.term], set()
    while pending:
        for read in T.reads(pending.pop()):
            if read.attr in steps and read.attr not in seen:
                seen.add(read.attr)
                pending.append(steps[read.attr].body)
    return bool(seen & keys)


def split(program: Program, axes: Sequence[str], meaning: Program | None = None) -> ShardSplit:
    """Cut a program over devices along `axes`, by their names.

    Args:
        program: in index notation, or what `neptune.grad` takes.
        meaning: the program whose results count, where it is not this one.

    Raises:
        UsageError: no such axis, or nothing is reduced over any of them.
        InputError, FusionError: the program cannot be cut there; says why.
    """
    program = as_program(program)
    numbers = axis_numbers(program, axes)
    whole, positions = localized(program, axes)
    whole.steps = needed_of(whole.steps, whole.outputs)
    _check_rounds(whole, numbers)
    partials: dict[str, Partials] = {}
    for number, name in numbers.items():
        first = sum(len(p.parts) for p in partials.values())
        found = partials_over(whole, number, meaning or program, first)
        if found is not None:
            partials[name] = found
    if not partials:
        raise UsageError(
            f"'{program.name}' reduces nothing over {', '.join(axes)}",
            hint="its devices need nothing of each other: compile it as it is",
        )
    local = _local(whole, partials)
    local.followed = len(axes) == 1  # by the join
    if len(axes) > 1:  # what travels may lie behind what is here
        whole.in_two = {
            name: k for name, x in whole.inputs.items() if isinstance(x, Tensor)
            for k, a in enumerate(x.shape) if a.name == axes[-1]
        }  # fmt: skip
    made = ShardSplit(program, tuple(axes), whole, local, positions, partials)
    local.outputs += made.here  # and what has no join is refused here
    local.steps = needed_of(local.steps, local.outputs)
    return made


def split_vjp(program: Program, axes: Sequence[str]) -> tuple[ShardSplit, ShardSplit]:
    """The passes of `neptune.vjp`, each cut along `axes`. The forward pass saves what belongs
    together; that the gradient is the same whatever it is measured from is proved of the gradient.
    """
    program = as_program(program)
    forward, backward = vjp(program)
    return split(forward, axes, meaning=grad(program)), split(backward, axes)


def apart(made: ShardSplit) -> list[ShardSplit]:
    """A split program as one for the results over each axis, whose data travel there: so all parts
    stay where they are made."""
    if len(made.partials) < 2 or made.here:
        return [made]
    found = []
    for over, outputs in made.results.items():
        program = _only(made.program, {o.name for o in outputs}, over)
        found.append(split(program, [*(a for a in made.axes if a != over), over]))
    return found


def _only(program: Program, names: set[str], over: str) -> Program:
    """A program with some of its results, and the inputs that these need."""
    made = program.copy(f"{program.name}_{over}")
    made.outputs = [o for o in program.outputs if o.name in names]
    made.steps = needed_of(made.steps, made.outputs)
    terms = [*(s.body for s in made.steps), *(o.term for o in made.outputs)]
    leaves = {n.attr for t in terms for n in T.walk(t) if n.op in ("read", "sym")}
    used = {a for s in made.steps for a in (*s.kept, *s.removed)}
    used |= {a for o in made.outputs for a in o.axes}
    for name in list(made.inputs):
        argument = made.inputs.pop(name)
        axes = [made.axis_list[a] for a in used]
        known = all(a.static is not None or a.made_of is not None or made.dimension_of(a)
                    for a in axes)  # fmt: skip
        if name in leaves or not known:
            made.inputs[name] = argument
    return made


def _check_rounds(program: Program, sharded: dict[int, str]) -> None:
    """Refuses reductions over sharded axes that need each other's totals on the way."""
    behind: dict[str, int] = {}  # reductions that a total over a sharded axis goes into
    for s in program.steps:
        over = [a for a in s.removed if a in sharded]
        needed = {behind[r.attr] for r in T.reads(s.body) if r.attr in behind}
        inner = {r.attr for r in T.reads(s.body) if r.attr in behind} - {
            t.key for t in program.steps if over and over[0] in t.removed
        }
        if len(over) > 1 or len({*needed, *over}) > 1 or (over and inner):
            names = ", ".join(sorted(sharded[a] for a in {*needed, *over}))
            raise InputError(
                f"the {s.combiner} of {program.show(s.body)} needs totals over {names} of all "
                "devices before it can begin, or over several sharded axes at once",
                loc=f"{s.place[0]}:{s.place[1]}:1",
                hint="shard one axis, or cut the program in two there",
            )
        if over or needed:
            behind[s.key] = next(iter({*needed, *over}))


def _local(whole: Program, partials: dict[str, Partials]) -> Program:
    made = whole.copy(whole.name)
    gone = {k for p in partials.values() for k in p.keys}
    kept = [s for s in whole.steps if s.key not in gone]
    place = {s.key: s.place for s in whole.steps}
    running = [r for p in partials.values() for r in p.solution.running]
    axes = {r.name: r.axes for r in running}
    made.steps = kept + [
        ReductionStep(
            r.name, r.combiner, reading(r.body, axes), r.axes, r.folded, place[r.source]
        ) for r in running
    ]  # fmt: skip
    for found in partials.values():
        for part in found.parts:
            value = Expr(part.value, made)
            made.output(value, *(made.axis_list[a] for a in part.axes), name=part.name)
    return made
