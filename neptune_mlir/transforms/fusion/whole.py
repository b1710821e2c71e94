# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as `algebra.numerics.whole` judges them: nests, and streams to be, on small extents.

A program that is not modelled altogether, or is too large, is not judged as a whole: then the
stress test of each chain alone decides, and no factor moves out of a sum whose weights are made of
what it sums (`exponents`). Not modelled are combiners of the program's own and 64-bit floats beside
others. What ops between nests make (`moved`) is evaluated, too. Scans, sorts and the like are not,
nor other shapes where small extents are not those of one tensor: these results are inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import positions
from neptune_mlir.algebra.numerics.accept import SHORT
from neptune_mlir.algebra.numerics.alike import digest
from neptune_mlir.algebra.numerics.floats import EPSILON
from neptune_mlir.algebra.numerics.steps import NestStep, Step, StreamStep
from neptune_mlir.algebra.numerics.whole import WholeProgram, wrong_values
from neptune_mlir.analysis.moved import leaves_to, moved
from neptune_mlir.dialects.program import ExtentClasses, NestProgram
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.exponents import exponents_of, summed_with_own_weights
from neptune_mlir.transforms.fusion.plan import Fusion
from neptune_mlir.transforms.fusion.written import Written

# The extent of a stream. No number that many others divide: the mean of 24 equal numbers is exact,
# and what a program owes to that is luck.
LENGTH = 29
# Extents of loops that are not streamed, nor compared with positions of one that is, by their
# number: rows are judged one by one. A row of one element is small by luck, and there is no other
# beside it.
FEW = (8, 8, 4, 2, 2)
# Points of a nest with such extents: where there are more (attention of a small head dim that is
# known, with a mask: both lengths are long), these loops have fewer, two at least. A check took ten
# times as long there as with a head dim of 64, which is a loop of two.
POINTS = 1 << 14
NARROW = 8  # static extents that stay what they are, but along the stream
# Points of a nest along those of them that nothing reduces; where there are more (windows of images
# have five such loops), they have two each: everything else is evaluated for each of these points.
CROWDED = 64
MOST = 20  # reductions of a program that is judged as a whole


def is_small(program: NestProgram) -> bool:
    """Whether a program is judged as a whole."""
    reductions = [n for n in program.nests.values() if n.kind == "reduce"]
    wide = {n.dtype == "f64" for n in program.nests.values() if T.is_float(n.dtype)}
    custom = any(n.combiner == "custom" for n in reductions)
    return 0 < len(reductions) <= MOST and not custom and wide == {False}


class SmallProgram:
    """A program as written, on small extents.

    Args:
        streamed: loops that fused forms stream, as pairs of a nest and a loop of it.
    """

    def __init__(self, program: NestProgram, streamed: Iterable[tuple[str, int]]):
        self.program = program
        self.classes = ExtentClasses(program)
        self.moved = moved(program)
        for key, made in self.moved.items():
            for dim, other in made.equal:
                self.classes.join((key, dim), other)
        self._long = {self.classes.of_loop(key, loop) for key, loop in streamed}
        compared = [group for key, nest in program.nests.items() for group in self._compared(key)]
        for _ in compared:  # what is compared with something long is as long
            for group in compared:
                self._long |= group if group & self._long else set()
        others = {self.classes.of_loop(key, loop) for key, nest in program.nests.items()
                  for loop in range(len(nest.domain))} - self._long  # fmt: skip
        wide = sum(self.classes.static(c) not in range(1, NARROW + 1) for c in others)
        self._few = FEW[min(wide, len(FEW) - 1)]
        self._crowded = self._crowded_of(others)
        while self._few > FEW[-1] and self._most_points() > POINTS:
            self._few //= 2
        self.moved = {key: m for key, m in self.moved.items() if m.body is not None or
                      m.fits(self._shape(key), self._shape(m.source))}  # fmt: skip
        self.steps = [*map(self._nest_step, program.nests), *map(self._moved_step, self.moved)]

    def _most_points(self) -> int:
        return max((prod(self.extents(key)) for key in self.program.nests), default=0)

    def _crowded_of(self, others: set[Any]) -> set[Any]:
        """The classes of narrow loops that nothing reduces, where a nest has many points along
        them."""
        found: set[Any] = set()
        narrow = {c for c in others if self.classes.static(c) in range(2, NARROW + 1)}
        loops = {key: [self.classes.of_loop(key, k) for k in range(len(nest.domain))]
                 for key, nest in self.program.nests.items()}  # fmt: skip
        for key, nest in self.program.nests.items():
            narrow -= {c for k, c in enumerate(loops[key]) if k not in nest.result_axes}
        for of in loops.values():
            here = [c for c in of if c in narrow]
            if prod(self.classes.static(c) for c in here) > CROWDED:
                found |= set(here)
        return found

    def _compared(self, key: str) -> list[set[Any]]:
        """The classes of loops whose positions are compared with each other in a nest."""
        comparisons = [n for n in T.walk(self.program.nests[key].body) if n.op in T.COMPARISONS]
        found = [{self.classes.of_loop(key, k) for k in positions(n)} for n in comparisons]
        return [group for group in found if len(group) > 1]

    def size(self, of: Any) -> int:
        """A small extent for a class of them."""
        static = self.classes.static(of)
        if of in self._long:
            return static if static and static <= SHORT else LENGTH
        if of in self._crowded:
            return FEW[-1]
        return static if static and static <= NARROW else self._few

    def extents(self, key: str) -> tuple[int, ...]:
        loops = range(len(self.program.nests[key].domain))
        return tuple(self.size(self.classes.of_loop(key, loop)) for loop in loops)

    def _shape(self, key: str) -> tuple[int, ...]:
        rank = ir.RankedTensorType(self.program.values[key].type).rank
        return tuple(self.size(self.classes.of_dim(key, k)) for k in range(rank))

    def _nest_step(self, key: str) -> NestStep:
        nest = self.program.nests[key]
        return NestStep(key, nest.combiner, nest.body, self.extents(key), nest.result_axes)

    def _moved_step(self, key: str) -> NestStep:
        made, shape = self.moved[key], self._shape(key)
        body = made.term(shape, self._shape(made.source) if made.body is None else ())
        return NestStep(key, None, body, shape, tuple(range(made.rank)))

    def fused_steps(self, fusions: Sequence[Fusion]) -> list[Step]:
        """The program with these chains fused; what they took in is also there as it was."""
        streams = [self._stream_step(f) for f in fusions]
        made = {key for step in streams for key in step.makes}
        return [*streams, *(step for step in self.steps if step.key not in made)]

    def _stream_step(self, fusion: Fusion) -> StreamStep:
        group, nests = fusion.group, self.program.nests
        extents = [1] * len(group.axes)
        for key in (*group.running, *group.inner, *group.finish):
            for axis, extent in zip(group.loops(key), self.extents(key), strict=True):
                extents[axis] = extent
        outputs = tuple(
            (key, term, group.result_axes(nests[key], group.loops(key)))
            for key, term in fusion.outputs.items()
        )
        return StreamStep(fusion.solution, group.stream, tuple(extents), outputs)

    def whole(self) -> WholeProgram:
        """What the program reads and gives."""
        program, nests = self.program, self.program.nests
        made = nests.keys() | self.moved.keys()
        inputs: dict[str, tuple[tuple[int, ...], str]] = {}
        scalars: dict[Any, float] = {}
        for step in self.steps:
            for n in T.walk(step.body):
                if n.op == "read" and n.attr not in made:
                    inputs[n.attr] = self._shape(n.attr), n.dtype
                elif n.op == "sym":
                    scalars[n.attr] = self._number(program.values[n.attr], n.dtype)
        results = {
            key: nest.dtype for key, nest in nests.items()
            if leaves_to(program, program.values[key], self.moved)
        }  # fmt: skip
        through = self._rounded()
        rounded = {key: through[key] for key in results}
        exponents = exponents_of(program)
        exponents = exponents if exponents is None else exponents & inputs.keys()
        return WholeProgram(inputs, scalars, results, exponents, rounded)

    def _rounded(self) -> dict[str, str]:
        """Of each value the narrowest floats that it, or what it is made of, is rounded to."""
        bodies = {key: (nest.body, nest.dtype) for key, nest in self.program.nests.items()}
        bodies |= {step.key: (step.body, self.moved[step.key].dtype)
                   for step in self.steps if step.key in self.moved}  # fmt: skip
        found: dict[str, str] = {}

        def least(key: str) -> str:
            if key not in found:
                body, dtype = bodies[key]
                types = [dtype, *(n.dtype for n in T.walk(body) if n.op == "cast")]
                types += [least(r.attr) for r in T.reads(body) if r.attr in bodies]
                floats = [t for t in types if t in EPSILON]
                found[key] = max(floats, key=EPSILON.__getitem__, default=dtype)
            return found[key]

        for key in bodies:  # in the order of the program: no long way back
            least(key)
        return found

    def renamed(self, definition: WholeProgram, keys: Mapping[str, str]) -> WholeProgram | None:
        """What this program reads and gives, in the order of another one, by names of values that
        correspond; None where they do not."""
        own = self.whole()
        inputs = {keys.get(k, k): of for k, of in definition.inputs.items()}
        results = {keys.get(k, k): of for k, of in definition.results.items()}
        if not own.inputs.items() <= inputs.items() or own.results != results:
            return None
        return WholeProgram(inputs, own.scalars, results, own.exponents)

    def _number(self, value: Any, dtype: str) -> float:
        """A number for a scalar: an extent where it is one."""
        return float(self.size(self.classes.of_value(value, self.program))
                     if dtype == "index" else LENGTH)  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """What is to blame where a program is not as right as it was: factors that moved, or the
    reductions `apart`, which are not to be fused with those that they read."""

    text: str
    factors: frozenset[str] = frozenset()
    apart: tuple[str, ...] = ()


@dataclass
class RefusedForm:
    """What is refused is asked of in another form: what is known of the program as written, by its
    content, goes from one to the next."""

    content: Any = None
    trial: list[Any] = field(default_factory=list)  # one, or none

    def of(self, definition: WholeProgram, steps: Sequence[Step]) -> list[Any]:
        """Where the trial of this program is, or belongs."""
        tables = definition.inputs, definition.scalars, definition.results, definition.rounded
        rest = definition.exponents, [s.content for s in steps]
        content = [[*of.items()] for of in tables], rest
        if self.content != content:
            self.content, self.trial = content, []
        return self.trial


def wrong_in(
    program: NestProgram, now: NestProgram, plan: Sequence[Fusion], written: Written,
    last: RefusedForm,
) -> Wrong | None:  # fmt: skip
    """What is wrong with a program whose factors have moved and whose chains are to fuse.

    Args:
        program: as written; `written` has the names that its values have `now`.
        last: what was known of it when a form was refused.
    """
    corrected = [f for f in plan if any(r.body.has_ref for r in f.chain)]
    if not corrected and not written.rests:
        return None
    loops = [(key, k) for f in corrected for key, axes in f.group.running.items()
             for k, axis in enumerate(axes) if axis == f.group.stream]  # fmt: skip
    # So are loops that factors moved behind, fused or not: short rows leave less to a sum.
    rests = [written.keys[key] for key in written.rests.values() if key in written.keys]
    loops += [(key, min(now.nests[key].reduced_axes)) for key in rests]
    before = SmallProgram(program, [(written.was(key), k) for key, k in loops])
    after = SmallProgram(now, loops)
    definition = before.whole()
    whole = after.renamed(definition, written.keys)
    if whole is None or not whole.inputs:
        own = written.rests.keys() & summed_with_own_weights(program)
        return Wrong("it cannot be compared with the program", frozenset(own)) if own else None

    refused = last.of(definition, before.steps)

    def wrong(fusions: Sequence[Fusion]) -> str:
        now = after.fused_steps(fusions)
        return wrong_values(definition, before.steps, whole, now, refused=refused)

    text = wrong(corrected)
    if not text:
        return None
    if written.rests and (moved := wrong([])):
        return Wrong(moved, frozenset(written.rests))
    blamed = corrected[-1]
    for fusion in corrected if len(corrected) > 1 else ():
        if alone := wrong([fusion]):
            blamed, text = fusion, alone
            break
    factors = frozenset(written.moved_in(blamed.group).values())
    if factors:
        return Wrong(text, factors)
    return Wrong(text, apart=like_the_last(blamed))


def like_the_last(fusion: Fusion) -> tuple[str, ...]:
    """The last reduction that reads others, and those that are it but for names: what subtracts one
    from the other (two log-sum-exps) is 0 for equal data where both are added up alike."""
    readers = [r.name for r in fusion.chain if r.body.has_ref]

    def made_of(name: str) -> str:
        needed, found = {name}, []
        for r in reversed(fusion.chain):
            if r.name in needed:
                needed |= {n.attr for n in T.leaves(r.body, "ref")}
                found.insert(0, r)
        return digest(found, fusion.group.stream, {}, ())

    last = made_of(readers[-1])
    return tuple(name for name in readers if made_of(name) == last)
