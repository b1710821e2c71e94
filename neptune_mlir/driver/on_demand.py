# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images of a program that are made when a call takes them.

A first call then waits for two images at most, the one for any call and its own, and not for those
of other calls. Which calls an image is for is known before it: from its case, or from the grid of
its tile program (`pipelines.gpu.sketch`). So a call takes the same image as of the whole bundle,
whatever was called before it. What was made is kept on disk, each image by itself.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from neptune_mlir.driver.compiler import pipeline_of
from neptune_mlir.driver.family import Best, Family, best, chunks_of, has_products, tiled
from neptune_mlir.errors import OutOfMemory, Refused
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import gpu
from neptune_mlir.pipelines.cases import Conditions, add, blocks_of
from neptune_mlir.pipelines.lowering import Lowering, RaisedProgram
from neptune_mlir.runtime import cache
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Expression, Plan, evaluate
from neptune_mlir.targets import tuned

# fact of a bundle that is begun: the images of the whole one in order, each as the place of its
# code or as a `Later`, and the numbers of the ways
LATER = "later"


@dataclass(frozen=True)
class Later:
    """An image that is not made: `when` says for which calls, `case` is its number among those of
    the program, or with `chunks` of the program for rows of whole chunks."""

    when: Expression
    chunks: bool
    case: int


@dataclass(frozen=True)
class Tiled:
    """A program by one way: by number of a case which calls it is for, and its tile program where
    that had to be made to find out."""

    family: Family
    conditions: dict[int, Expression]
    programs: dict[int, Lowering]


class Recipe:
    """How the images of a program are made, each by itself; only on demand is it read at all."""

    def __init__(self, text: str, source: str, target: str, entry: str | None, knobs: str):
        self._given = text, source, None, knobs
        self._target, self._entry = target, entry
        self._table = tuned.current()  # for images that are made later, too
        self._tiled: dict[bool, Tiled] = {}  # by whether rows are of whole chunks

    @cached_property
    def _program(self) -> RaisedProgram:
        return RaisedProgram(*self._given)

    @cached_property
    def _chunked(self) -> tuple[RaisedProgram, Expression] | None:
        return chunks_of(self._program, pipeline_of(self._target), self._target)

    @bindings.exclusive
    def begun(self) -> Bundle | None:
        """The bundle of the images for any call; None, where what other images there are depends on
        these.

        Raises:
            NeptuneError: as `compile_text`.
        """
        with bindings.source_name(self._given[1]), tuned.using(self._table):
            pipeline = pipeline_of(self._target)
            if self._chunked and has_products(self._program, pipeline, self._target):
                return None  # other rows have no cases where the copy engine moves whole chunks
            plain = self._best(False)
            bundle: Bundle = plain.bundle
            order: list[Any] = [0, *self._later(False, None)]
            chunked = None if self._chunked is None else self._taken()
            if chunked is not None and self._chunked is not None:
                order += [len(bundle.code), *self._later(True, self._chunked[1])]
                bundle = add(bundle, chunked.bundle, self._chunked[1])
            ways = [plain.way, -1 if chunked is None else chunked.way]
        order = [x if isinstance(x, int) else asdict(x) for x in order]
        bundle = replace(bundle, facts={**bundle.facts, LATER: {"ways": ways, "order": order}})
        return bundle.with_data(self._program.constants)

    @bindings.exclusive
    def made(self, later: Later, ways: Sequence[int]) -> Bundle | None:
        """The bundle of an image, by the numbers of the ways that were found; None, where the
        target refuses it, or its code is none of its own."""
        with bindings.source_name(self._given[1]), tuned.using(self._table):
            tiles = self._by(later.chunks, ways[later.chunks])
            family = tiles.family
            case = family.program.cases(family.lowering)[later.case]
            variant = tiles.programs.pop(later.case, None)
            if variant is None:
                made = family.program.variant(family.lowering, self._target, case)
                variant = next(made, None)
            if variant is None or str(variant.module) == str(family.lowering.module):
                return None
            found: Bundle | None = family.finished(case, variant, family.begin(variant))
        return None if found is None else found.with_data(self._program.constants)

    def _best(self, chunks: bool) -> Best:
        """The bundle for any call. While the code generator runs, it is found which calls take
        other images."""
        tried: list[Tiled] = []
        pipeline = pipeline_of(self._target)

        def meanwhile(family: Family, plan: Plan) -> None:
            tried.append(self._cases(family, plan))

        found = best(
            self._of(chunks), pipeline, self._target, self._entry, cases=False, meanwhile=meanwhile
        )
        self._tiled[chunks] = next(tiles for tiles in tried if tiles.family is found.family)
        return found

    def _taken(self) -> Best | None:
        """For rows of whole chunks, where the target takes that."""
        try:
            return self._best(True)
        except (OutOfMemory, Refused):
            return None

    def _of(self, chunks: bool) -> RaisedProgram:
        return self._chunked[0] if chunks and self._chunked else self._program

    def _by(self, chunks: bool, way: int) -> Tiled:
        """The program by the way of this number, where another process began the bundle."""
        if chunks not in self._tiled:
            ways = tiled(self._of(chunks), pipeline_of(self._target), self._target, self._entry)
            self._tiled[chunks] = Tiled(next(itertools.islice(ways, way, None))[0], {}, {})
        return self._tiled[chunks]

    def _later(self, chunks: bool, calls: Expression) -> list[Later]:
        """The images for some of these calls (None: any)."""
        return [
            Later(when if calls is None else ["and", calls, when], chunks, number)
            for number, when in self._tiled[chunks].conditions.items()
        ]

    def _cases(self, family: Family, plan: Plan) -> Tiled:
        """The cases of a program by one way; `plan`: that for any call. (What
        `RaisedProgram.variants` leaves out is left out, but cases whose calls are known have no
        tile program yet.)"""
        made = Tiled(family, {}, {})
        if not family.lowering.has_variants:
            return made
        conditions, seen, widest = Conditions(plan), {str(family.lowering.module)}, False
        for number, case in enumerate(family.program.cases(family.lowering)):
            if case.is_known:
                made.conditions[number] = case.condition
            if case.is_known or (widest and case.is_for_portable):
                continue
            variant = next(family.program.variant(family.lowering, self._target, case), None)
            text = "" if variant is None else str(variant.module)
            if variant is None or text in seen:
                continue
            seen.add(text)
            widest |= case.merged
            sketched = gpu.sketch(variant.module, self._target, self._entry)
            when = conditions.of(replace(case, blocks=blocks_of(variant.module)), sketched)
            if when is not None:
                made.conditions[number], made.programs[number] = when, variant
        return made


class OnDemand:
    """The bundle of a program as far as calls have asked for it. Safe from several threads."""

    def __init__(self, name: str, recipe: Recipe, bundle: Bundle, cached: bool):
        """`name`: of the whole bundle in the cache; `bundle`: what the recipe began."""
        self._name, self._recipe = name, recipe
        begun = bundle.facts[LATER]
        self._ways: list[int] = begun["ways"]
        self._order = [x if isinstance(x, int) else Later(**x) for x in begun["order"]]
        self._lock = threading.Lock()
        self.bundle, self.cached = bundle, cached

    @staticmethod
    def begin(name: str, recipe: Recipe) -> OnDemand | None:
        """Begun now, or what is kept of that; None, where images cannot be made by themselves."""
        entry = cache.key(name, "begun")
        found = cache.load(entry)
        bundle = found or recipe.begun()
        if bundle is None:
            return None
        if found is None:
            cache.store(entry, bundle)
        return OnDemand(name, recipe, bundle, found is not None)

    def grow(
        self, code: int, shapes: Sequence[Any], scalars: Sequence[Any], multiprocessors: int
    ) -> None:
        """Add an image for a call with these shapes and numbers, if there is one behind the image
        whose code begins at `code`: the last one."""
        with self._lock:
            for place in range(len(self._order) - 1, self._order.index(code), -1):
                later = self._order[place]
                if not isinstance(later, Later):
                    continue
                serves = evaluate(later.when, shapes, scalars, multiprocessors)
                if serves and self._add(place, later):
                    break

    def _add(self, place: int, later: Later) -> bool:
        """Make an image and put it in its place; False where there is none of its own."""
        entry = cache.key(self._name, "chunks" if later.chunks else "rows", str(later.case))
        made = cache.load(entry)
        if made is None:
            made = self._recipe.made(later, self._ways)
            if made is None:
                del self._order[place]
                return False
            cache.store(entry, made)
        self._order[place] = len(self.bundle.code)
        bundle = add(self.bundle, made, later.when)
        images = {image["offset"]: image for image in bundle.facts["images"]}
        ordered = [images[x] for x in self._order if isinstance(x, int)]
        facts = {**bundle.facts, "images": ordered}
        self.bundle = replace(bundle, facts=facts, data={**self.bundle.data, **made.data})
        return True
