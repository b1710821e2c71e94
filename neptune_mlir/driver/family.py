# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program tiled one way, and its kernels for some calls, as images of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.dialects.program import streams
from neptune_mlir.errors import NeptuneError, OutOfMemory, Refused
from neptune_mlir.pipelines.cases import Case
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import Lowering, RaisedProgram
from neptune_mlir.pipelines.streamed_factors import streams_products
from neptune_mlir.pipelines.ways import ways_of
from neptune_mlir.runtime.plan import Expression, Plan
from neptune_mlir.targets.warp_groups import SPILLED
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.fast_paths import BEST
from neptune_mlir.transforms.registry import Miss, Remark


@dataclass(frozen=True)
class Family:
    """`lowering` is the tile program for any call and `tiles` its text, `pipeline` the module that
    compiles it."""

    program: RaisedProgram
    lowering: Lowering
    tiles: str
    pipeline: Any
    target: str
    entry: str | None = None

    def begin(self, lowering: Lowering) -> Any:
        """Begin the bundle of a case, or of any call, by its tile program."""
        return self.pipeline.begin_tiles(lowering.module, **self._options(lowering))

    def alone(self, meanwhile: Callable[[Family, Plan], None] | None = None) -> Any:
        """The bundle for any call, without images for some. (`meanwhile` as of `best`: not all
        pipelines begin.)"""
        if meanwhile is not None:
            begun = self.begin(self.lowering)
            meanwhile(self, begun.plan)
            return begun.finish()
        return self.pipeline.compile_tiles(self.lowering.module, **self._options(self.lowering))

    def _options(self, lowering: Lowering) -> dict[str, Any]:
        chip = {} if self.target == "cpu" else {"target": self.target}
        return {"entry": self.entry, "facts": lowering.facts, **chip}

    def with_cases(self) -> Any:
        """The bundle for any call with the images of all cases. All are begun before the first is
        waited for: their code generators run side by side."""
        any_call, variants = self.program.images(self.lowering, self.tiles, self.target)
        base = self.begin(any_call)
        begun = [(case, variant, self.begin(variant)) for case, variant in variants]
        bundle = base.finish()
        conditions = Conditions(base.plan)
        for case, variant, made in begun:
            found = self.finished(case, variant, made)
            condition = None if found is None else conditions.of(case, found.plan)
            bundle = bundle if condition is None else bundle.adding(found, condition)
        return bundle

    def finished(self, case: Case, variant: Lowering, begun: Any) -> Any:
        """The bundle of a case that was begun, with smaller tiles where its code spills; None where
        the target refuses it, or it still spills."""
        knobs = variant.way.smaller
        found = _finished(begun)
        while knobs and (found is None or spilled(found)):
            knob, *knobs = knobs
            smaller = [*self.program.variant(self.lowering, self.target, case, knob)][-1]
            found = _finished(self.begin(smaller))
        return found if found and spilled(found) <= self._may_spill(case) else None

    def _may_spill(self, case: Case) -> int:
        """Bytes that a thread of a variant may keep in memory: long streams are worth a few
        registers there, where the way takes such code."""
        long = case.condition is not None and not case.schedule
        return SPILLED if long and self.lowering.way.spills else 0


def _finished(begun: Any) -> Any:
    """The bundle, or None where the target refuses it."""
    try:
        return begun.finish()
    except (OutOfMemory, Refused):
        return None


def spilled(bundle: Any) -> int:
    """Bytes that the threads of a bundle's kernels keep in memory for want of registers."""
    images = bundle.facts.get("images", ())
    return sum(kernel["spills"] for image in images for kernel in image["kernels"].values())


def chunks_of(
    program: RaisedProgram, pipeline: Any, target: str
) -> tuple[RaisedProgram, Expression] | None:
    """The program for rows of whole chunks and the calls that have such, where a pipeline makes
    kernels for them. (Tensors of scores with aligned rows have cases of their own,
    `Lowering.alignable`.)"""
    made = getattr(pipeline, "CHUNKS", False) and not program.schedule
    chunked = program.of_chunks() if made else None
    return None if chunked is None or _is_alignable(program, pipeline, target) else chunked


def _is_alignable(program: RaisedProgram, pipeline: Any, target: str) -> bool:
    """Whether a program has kernels for aligned rows of tensors of scores: programs of several
    kernels have those for whole chunks alone."""
    fused = _fused(program, pipeline, target)
    return fused.alignable and fused.alone


def has_products(program: RaisedProgram, pipeline: Any, target: str) -> bool:
    """Whether a program multiplies matrices in a stream."""
    fused = _fused(program, pipeline, target)  # which owns the streams
    return any(map(streams_products, streams(fused.module)))


def _fused(program: RaisedProgram, pipeline: Any, target: str) -> Lowering:
    ways = program.ways(target, ways_of(pipeline, target.partition(",")[0]))
    return next(program.lowerings(target, ways, "fused"))


def tiled(
    program: RaisedProgram, pipeline: Any, target: str, entry: str | None
) -> Iterator[Family]:
    """A program tiled by each way that suits it, the best first; none of them twice."""
    tried = ""
    ways = program.ways(target, ways_of(pipeline, target.partition(",")[0]))
    for lowering in program.lowerings(target, ways):
        tiles = str(lowering.module)
        if tiles != tried:  # else this way changes nothing
            yield Family(program, lowering, tiles, pipeline, target, entry)
        tried = tiles


@dataclass(frozen=True)
class Best:
    """The bundle of the best way, which is number `way` of `tiled`."""

    bundle: Any
    family: Family
    way: int


def best(
    ways: Iterable[Family], cases: bool = True,
    meanwhile: Callable[[Family, Plan], None] | None = None,
) -> Best:  # fmt: skip
    """The bundle of a program by the first of its ways (`tiled`) that the target takes and that
    does not spill, else by the one that spills least; with or without `cases`.

    Args:
        meanwhile: without cases, what is done with the plan while the code generator runs.

    Raises:
        OutOfMemory, Refused: the target takes none.
    """
    found: Best | None = None
    refused: list[OutOfMemory | Refused] = []
    for number, family in enumerate(ways):
        alone = not (cases and family.lowering.has_variants)
        try:
            bundle = family.alone(meanwhile) if alone else family.with_cases()
        except (OutOfMemory, Refused) as error:
            refused.append(error)
            continue
        _note_refusals(bundle, refused)
        if found is None or spilled(bundle) < spilled(found.bundle):
            found = Best(bundle, family, number)
        if family.lowering.way.spills or not spilled(found.bundle):
            break
    if found is None:
        raise refused[-1]
    return found


def _note_refusals(bundle: Any, refused: Sequence[NeptuneError]) -> None:
    """Say in a bundle which ways before its own were refused."""
    found = [_refusal(error) for error in refused]
    bundle.facts["remarks"] = [*map(str, found), *bundle.facts["remarks"]]
    for image in bundle.facts.get("images", ()):
        image["missed"] = [*registry.misses(found), *image.get("missed", ())]


def _refusal(error: NeptuneError) -> Remark:
    """What is said of a way that was refused."""
    what = Miss(BEST.name, error.message, error.hint or BEST.change)
    return Remark("warning", error.loc or "unknown", error.message, what)
