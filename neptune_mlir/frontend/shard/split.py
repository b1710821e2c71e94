# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program over devices: what each computes of its pieces, what travels, and the join.

    made = split(ops.attention(head_dim=64, causal=True), ["i", "j"])
    made.local          q, k, v of this device, i_start, j_start, ... -> parts over j
    made.join("j", 2)   two parts of each kind -> the result

Everything follows from the program: reductions over a sharded axis are parts (`partials`), the rest
of the program behind them is the join's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Running, instead
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.proof import acc, new, old
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.gradient import as_program, grad
from neptune_mlir.frontend.gradient.saved import vjp
from neptune_mlir.frontend.program import Output, Program, ReductionStep, Tensor
from neptune_mlir.frontend.shard.partials import Partials, RunningPart, partials_over, reading
from neptune_mlir.frontend.shard.positions import axis_numbers, localized
from neptune_mlir.runtime.shards.plan import ShardPosition

CHUNK = "shard"  # the join's axis: one part each
FEW = 8  # parts that are joined by an expression; more by a loop over them


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

    def join(self, axis: str, count: int) -> Program:
        """The join of `count` parts over an axis: the parts, each with a first dimension of that
        extent, then inputs and positions that it reads of the program -> results of that axis."""
        if axis not in self.partials:
            raise UsageError(f"nothing is reduced over '{axis}'", hint=", ".join(self.partials))
        return _Join(self, self.partials[axis], count).program(self.results[axis])

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
    whole.steps = _needed(whole.steps, whole.outputs)
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
    made = ShardSplit(program, tuple(axes), whole, local, positions, partials)
    local.outputs += made.here  # and what has no join is refused here
    local.steps = _needed(local.steps, local.outputs)
    return made


def split_vjp(program: Program, axes: Sequence[str]) -> tuple[ShardSplit, ShardSplit]:
    """The passes of `neptune.vjp`, each cut along `axes`. The forward pass saves what belongs
    together; that the gradient is the same whatever it is measured from is proved of the gradient.
    """
    program = as_program(program)
    forward, backward = vjp(program)
    return split(forward, axes, meaning=grad(program)), split(backward, axes)


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


class _Join:
    """Builds the join of the parts over one axis."""

    def __init__(self, made: ShardSplit, partials: Partials, count: int):
        self.split, self.partials, self.count = made, partials, count
        self.whole = made.whole
        self.made = Program(f"{made.program.name}_join")
        for axis in self.whole.axis_list:
            self.made.axis(axis.name, axis.static).made_of = axis.made_of
        name = CHUNK
        while any(a.name == name for a in self.whole.axis_list):
            name += "_"
        self.chunk = self.made.axis(name, count)
        self.part_of = {p.running.name: p for p in partials.parts}
        self.running = {r.name: r for r in partials.solution.running}
        self.all: dict[str, Term] = {}  # joined values, over the axes of the program

    def program(self, outputs: Sequence[Output]) -> Program:
        made = self.made
        for p in self.partials.parts:
            axes = (made.axis_list[a] for a in p.axes)
            made.input(p.name, self.chunk, *axes, dtype=p.running.dtype)
        steps = []
        for r in self.partials.solution.running:
            if self.count <= FEW:
                combine = lookup(r.combiner).combine
                places = (T.const(k, "index") for k in range(self.count))
                self.all[r.name] = reduce(combine, (self._rebased(r, at) for at in places))
            else:
                steps.append(self._step(r))
        later = [
            replace(s, body=self._final(s.body)) for s in self.whole.steps
            if s.key not in self.partials.keys
        ]  # fmt: skip
        ends = [replace(o, term=self._final(o.term)) for o in outputs]
        made.steps = [*steps, *_needed(later, ends)]
        self._take_inputs([*(s.body for s in made.steps), *(o.term for o in ends)])
        self._take_extents({a for s in made.steps for a in (*s.kept, *s.removed)}
                           | {a for o in ends for a in o.axes})  # fmt: skip
        made.outputs = ends
        return made

    def _step(self, r: Running) -> ReductionStep:
        """A joined value as a reduction over the parts."""
        key = f"joined.{r.name}"
        self.all[r.name] = T.read(key, *map(T.index, r.axes), dtype=r.dtype)
        place = next(s.place for s in self.partials.steps if s.key == r.source)
        body = self._rebased(r, self.chunk.term)
        return ReductionStep(key, r.combiner, body, r.axes, (self.chunk.number,), place)

    def _own(self, name: str, at: Term) -> Term:
        """A running value of the part `at`."""
        r = self.running[name]
        if name in self.part_of:
            place = (at, *map(T.index, r.axes))
            return T.read(self.part_of[name].name, *place, dtype=r.dtype)
        # 1, of a part that saw something
        reference = next(n for n in self._references() if self.running[n].axes == r.axes)
        empty = T.const(-math.inf, self.running[reference].dtype)
        seen = T.make("eq", self._own(reference, at), empty)
        return T.make("select", seen, T.const(0.0, r.dtype), T.const(1.0, r.dtype))

    def _references(self) -> list[str]:
        corrections = [r.correction for r in self.running.values()]
        return [n for c in corrections if c for n in c.references]

    def _rebased(self, r: Running, at: Term) -> Term:
        """A part measured from the joined references: the chain's own correction."""
        correction, own = r.correction, self._own(r.name, at)
        if correction is None:
            return own
        table = {}
        for name, other in self.running.items():
            table[acc(name, other.dtype)] = table[old(name, other.dtype)] = self._own(name, at)
            if name in correction.references:
                table[new(name, other.dtype)] = self.all[name]
        if correction.form != "exponential":
            h, same = T.substitute(correction.h, table), T.const(True, "i1")
            for name in correction.references:
                same = T.make("and", same, T.make("eq", self._own(name, at), self.all[name]))
            return T.make("select", same, own, h)
        # exp(old - new) with a regular number for a joined reference that saw nothing: of a part
        # that saw nothing it is 0 then, and so is what it scales
        for name in correction.references:
            other = self.running[name]
            empty = lookup(other.combiner).identity_on(other.dtype)
            if isinstance(empty, float) and math.isinf(empty):
                table[new(name, other.dtype)] = instead(self.all[name], empty)
        return T.substitute(correction.h, table)

    def _final(self, t: Term) -> Term:
        """What is behind the reductions, with their joined values."""
        steps = {s.key: s for s in self.partials.steps}

        def rule(n: Term) -> Term | None:
            if n.op != "read" or n.attr not in steps:
                return None
            places = dict(zip(steps[n.attr].kept, n.args, strict=True))

            def joined(ref: Term) -> Term | None:
                return T.rename_axes(self.all[ref.attr], places) if ref.op == "ref" else None

            return T.rewrite(self.partials.solution.finals[n.attr], joined)

        return T.rewrite(t, rule)

    def _take_inputs(self, terms: Sequence[Term]) -> None:
        """Arguments of the program that the join reads."""
        leaves = {n.attr for t in terms for n in T.walk(t) if n.op in ("read", "sym")}
        for name, argument in self.whole.inputs.items():
            if name not in leaves:
                continue
            if isinstance(argument, Tensor):
                axes = (self.made.axis_list[a.number] for a in argument.shape)
                self.made.input(name, *axes, dtype=argument.dtype)
            else:
                self.made.scalar(name, argument)

    def _take_extents(self, axes: set[int]) -> None:
        """Arguments of the program that have axes whose extent nothing else says."""
        for axis in sorted(axes):
            own = self.made.axis_list[axis]
            if own.static is not None or own.made_of is not None or self.made.dimension_of(own):
                continue
            for name, argument in self.whole.inputs.items():
                shape = argument.shape if isinstance(argument, Tensor) else ()
                if any(a.number == axis for a in shape):
                    alike = (self.made.axis_list[a.number] for a in shape)
                    self.made.input(name, *alike, dtype=argument.dtype)  # type: ignore[union-attr]
                    break


def _needed(steps: Sequence[ReductionStep], outputs: Sequence[Output]) -> list[ReductionStep]:
    """The steps that the outputs need."""
    names = {r.attr for o in outputs for r in T.reads(o.term)}
    found = []
    for s in reversed(steps):
        if s.key in names:
            found.append(s)
            names |= {r.attr for r in T.reads(s.body)}
    return found[::-1]
