# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that join parts: those of several devices, or those so far with what comes now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Running, instead
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.proofs.proof import acc, new, old
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.program import Output, Program, ReductionStep, Tensor
from neptune_mlir.frontend.shard.partials import Partials
from neptune_mlir.runtime.shards.plan import FEW, MEETING

if TYPE_CHECKING:
    from neptune_mlir.frontend.shard.split import ShardSplit

CHUNK = "shard"  # the join's axis: one part each


class JoinBuilder:
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
            axes = [made.axis_list[a] for a in p.axes]
            if self.count <= FEW:
                for k in range(self.count):
                    made.input(_slot(p.name, k), *axes, dtype=p.running.dtype)
            else:
                made.input(p.name, self.chunk, *axes, dtype=p.running.dtype)
        steps = []
        for r in self.partials.solution.running:
            if self.count <= FEW:
                combine = lookup(r.combiner).combine
                places = (T.const(k, "index") for k in range(self.count))
                self.all[r.name] = reduce(combine, (self._rebased(r, at) for at in places))
            else:
                steps.append(self._step(r))
        later, ends = self._behind(outputs)
        made.steps = [*steps, *needed_of(later, ends)]
        self._take_inputs([*(s.body for s in made.steps), *(o.term for o in ends)])
        self._take_extents({a for s in made.steps for a in (*s.kept, *s.removed)}
                           | {a for o in ends for a in o.axes})  # fmt: skip
        made.outputs = ends
        return made

    def meeting(self, outputs: Sequence[Output]) -> Program:
        """The same of two parts, whose programs trade them with those of another device first; the
        arguments for that are the last ones."""
        made = self.program(outputs)
        for name, kind in MEETING.items():
            made.scalar(name, kind)
        parts = [_slot(p.name, k) for p in self.partials.parts for k in range(self.count)]
        made.meets = (*MEETING, *parts)
        return made

    def _behind(self, outputs: Sequence[Output]) -> tuple[list[ReductionStep], list[Output]]:
        """What follows the reductions in the program, of joined values."""
        later = [
            replace(s, body=self._final(s.body)) for s in self.whole.steps
            if s.key not in self.partials.keys
        ]  # fmt: skip
        return later, [replace(o, term=self._final(o.term)) for o in outputs]

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
            return self._part(name, at)
        # 1, of a part that saw something
        reference = next(n for n in self._references() if self.running[n].axes == r.axes)
        empty = T.const(-math.inf, self.running[reference].dtype)
        seen = T.make("eq", self._own(reference, at), empty)
        return T.make("select", seen, T.const(0.0, r.dtype), T.const(1.0, r.dtype))

    def _part(self, name: str, at: Term) -> Term:
        r, part = self.running[name], self.part_of[name].name
        place = tuple(map(T.index, r.axes))
        if self.count <= FEW:
            return T.read(_slot(part, int(at.value)), *place, dtype=r.dtype)
        return T.read(part, at, *place, dtype=r.dtype)

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


class CarriedBuilder(JoinBuilder):
    """Builds the local program whose running values begin with given parts.

    The stream's own parts and those are re-based to their joined reference and combined, once,
    behind the stream.
    """

    def __init__(self, made: ShardSplit, partials: Partials, finish: bool):
        self.split, self.partials, self.count = made, partials, 2
        self.whole, self.finish = made.whole, finish
        self.made = made.local.copy(f"{made.program.name}_{'finished' if finish else 'carried'}")
        self.part_of = {p.running.name: p for p in partials.parts}
        self.running = {r.name: r for r in partials.solution.running}
        self.all = {}

    def program(self, outputs: Sequence[Output]) -> Program:
        made = self.made
        for p in self.partials.parts:
            axes = (made.axis_list[a] for a in p.axes)
            made.input(_before(p.name), *axes, dtype=p.running.dtype)
        for r in self.partials.solution.running:
            combine = lookup(r.combiner).combine
            self.all[r.name] = combine(*(self._rebased(r, T.const(k, "index")) for k in (0, 1)))
        if self.finish:
            later, ends = self._behind(outputs)
        else:
            later, ends = [], [
                replace(o, term=T.rewrite(o.term, self._joined)) for o in self.split.local.outputs
                if o.name in {p.name for p in self.partials.parts}
            ]  # fmt: skip
        made.steps = needed_of([*made.steps, *later], ends)
        made.outputs = ends
        return made

    def _part(self, name: str, at: Term) -> Term:
        """A given part, or that of the stream: of these is known what no result depends on."""
        r, part = self.running[name], self.part_of[name]
        if at.value:
            return part.value
        return T.read(_before(part.name), *map(T.index, r.axes), dtype=r.dtype)

    def _joined(self, n: Term) -> Term | None:
        """The joined value in place of one of the stream's."""
        return self.all[n.attr] if n.op == "read" and n.attr in self.all else None


def _slot(part: str, number: int) -> str:
    return f"{part}_{number}"


def _before(part: str) -> str:
    return f"{part}_before"


def needed_of(steps: Sequence[ReductionStep], outputs: Sequence[Output]) -> list[ReductionStep]:
    """The steps that the outputs need."""
    needed = T.reached([o.term for o in outputs], {s.key: s.body for s in steps})
    return [s for s in steps if s.key in needed]
