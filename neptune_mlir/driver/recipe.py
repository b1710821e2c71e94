# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the images of a program are made, each by itself or all (`driver/on_demand.py` asks).

Which calls an image is for is known before it: from its case, or from the grid of its tile program
(`pipelines.gpu.sketch`). So a call takes the same image as of the whole bundle, whatever was called
before it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from neptune_mlir.algebra.numerics.remembered import Mistaken, settle, taken_for_granted
from neptune_mlir.analysis.tiles import foralls
from neptune_mlir.dialects.gpu_attributes import CONSUMERS
from neptune_mlir.driver import verdicts
from neptune_mlir.driver.compiler import bundle_of, finished, moves, pipeline_of
from neptune_mlir.driver.family import Best, Family, best, chunks_of, has_products, tiled
from neptune_mlir.driver.garbage import collected_rarely
from neptune_mlir.driver.on_demand import ANY, LATER, Asked, Coming, Later
from neptune_mlir.errors import NeptuneError, OutOfMemory, Refused
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import common, gpu
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.grids import blocks_of, programs_of
from neptune_mlir.pipelines.lowering import Lowering, RaisedProgram
from neptune_mlir.pipelines.simple_conditions import TRUE
from neptune_mlir.runtime import cache
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Expression, Plan
from neptune_mlir.targets import tuned
from neptune_mlir.targets.cpu import EFFORT
from neptune_mlir.transforms.fusion import defer


@dataclass(frozen=True)
class Tiled:
    """A program by one way: by number of a case which calls it is for, and its tile program where
    that had to be made to find out."""

    family: Family
    conditions: dict[int, Expression]
    programs: dict[int, Lowering]


@dataclass(frozen=True)
class Some:
    """A bundle with some of the images of a program, all of these in order (each as the place of
    its code or as a `Later`), and the numbers of the ways, for any rows and for whole chunks."""

    bundle: Bundle
    order: list[Any]
    ways: list[int]


class Recipe:
    """How the images of a program are made, each by itself or all; only when one is not in the
    cache is the program read at all. What was made is not made again for the whole bundle."""

    def __init__(self, asked: Asked):
        self._asked, self._target, self._entry = asked, asked.target, asked.entry
        self._begun: common.Begun = {}
        self._tiled: dict[bool, Tiled] = {}  # by whether rows are of whole chunks
        self._coming: Coming | None = None
        self._others: Iterable[Family] | None = None  # the ways for any rows, where they are begun
        self._sketched: Tiled | None = None  # the first of these, before its code is begun

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        with (
            bindings.lock, bindings.source_name(self._asked.source), tuned.using(self._asked.table),
            verdicts.kept(), common.once(self._begun), collected_rarely(),
        ):  # fmt: skip
            effort = EFFORT.set(self._asked.effort)
            try:
                yield
            finally:
                EFFORT.reset(effort)

    @cached_property
    def _program(self) -> RaisedProgram:
        asked = self._asked
        return RaisedProgram(
            asked.text, asked.source, asked.schedule, asked.knobs, asked.target
        )

    @cached_property
    def _chunked(self) -> tuple[RaisedProgram, Expression] | None:
        return chunks_of(self._program, pipeline_of(self._target), self._target)

    def whole(self) -> Bundle:
        """The bundle of all images. Raises NeptuneError as `compile_text`."""
        with self._at_work():
            bundle: Bundle = self._granted(
                lambda: bundle_of(self._program, self._target, self._entry)
            )
        return bundle

    def begun(self, coming: Coming | None = None) -> Bundle | None:
        """See `on_demand.Making`. Raises NeptuneError as `compile_text`."""
        if not hasattr(pipeline_of(self._target), "begin_tiles"):
            return None  # it has no images for some calls
        self._coming = coming
        with self._at_work():
            return self._granted(self._begin)

    def _granted(self, make: Callable[[], Any]) -> Any:
        """What `make` returns. That a program stays right when it is fused is taken for granted
        until code generators run, which takes them long enough to find out. Where it was wrong, all
        is made again."""
        try:
            with taken_for_granted():
                return make()
        except Mistaken:
            self._start_again()
        except BaseException:
            defer.forget()  # what was decided was perhaps not judged
            raise
        return make()

    def _start_again(self) -> None:
        defer.forget()
        self._begun.clear()
        self._tiled.clear()
        self._others = self._sketched = None
        for name in ("_program", "_chunked"):
            self.__dict__.pop(name, None)

    def _begin(self) -> Bundle | None:
        with tuned.questions() as asked:
            some = self._of_the_call() or self._of_any_call()
            if some is None:
                return None
            bundle = finished(some.bundle, self._program, [self._target], asked)
        order = [x if isinstance(x, int) else asdict(x) for x in some.order]
        later = {"ways": some.ways, "order": order}
        return replace(bundle, facts={**bundle.facts, LATER: later})

    def _of_the_call(self) -> Some | None:
        """The image that the call takes which comes, without that for any call: half of a first
        call's wait would be for that. None, where it takes that one, or where the code of that one
        decides which way is taken, or nobody said what comes."""
        if self._coming is None or self._target == "cpu" or self._chunked is not None:
            return None
        ways = self._ways(False)
        family = next(ways, None)
        if family is None:
            return None
        self._others = itertools.chain([family], ways)
        if not (family.lowering.has_variants and family.lowering.way.spills):
            return None
        plan = gpu.sketch(family.lowering.module, self._target, self._entry)
        tiles = self._sketched = self._cases(family, plan, False, begins=True)
        number = self._next(tiles, False)
        if number is None:
            return None
        cache.compiler_versions()  # reads all files of this compiler, while code generators run
        found = self._image(tiles, number)
        if found is None:
            return None
        self._tiled[False] = tiles
        order: list[Any] = [Later(TRUE, False, ANY), *self._later(False, None)]
        order[next(k for k, x in enumerate(order) if x.case == number)] = 0
        images = [{**image, "when": tiles.conditions[number]} for image in found.facts["images"]]
        return Some(replace(found, facts={**found.facts, "images": images}), order, [0, -1])

    def _of_any_call(self) -> Some | None:
        """The images for any call."""
        pipeline = pipeline_of(self._target)
        chunked = None if self._chunked is None else self._taken()
        moved = chunked is not None and moves(chunked.bundle)
        if chunked is not None and not moved and self._tiled[True].conditions:
            if has_products(self._program, pipeline, self._target):
                return None  # perhaps one of these moves chunks
        if chunked is not None and moved and self._comes_in_chunks():
            return self._of_chunks_alone(chunked)
        plain = self._best(False, cases=not moved)
        bundle: Bundle = plain.bundle
        order: list[Any] = [0, *self._later(False, None)]
        if chunked is not None and self._chunked is not None:
            order += [len(bundle.code), *self._later(True, self._chunked[1])]
            bundle = bundle.adding(chunked.bundle, self._chunked[1])
        return Some(bundle, order, [plain.way, -1 if chunked is None else chunked.way])

    def _of_chunks_alone(self, chunked: Best) -> Some:
        """The image for rows of whole chunks, where other rows have one for any call and no more:
        that is a whole compilation, for calls that perhaps never come."""
        assert self._chunked is not None
        calls = self._chunked[1]
        (image,) = chunked.bundle.facts["images"]
        facts = {**chunked.bundle.facts, "images": [{**image, "when": calls}]}
        order = [Later(TRUE, False, ANY), 0, *self._later(True, calls)]
        return Some(replace(chunked.bundle, facts=facts), order, [-1, chunked.way])

    def made(self, later: Later, ways: Sequence[int]) -> Bundle | None:
        """See `on_demand.Making`."""
        with self._at_work():
            if later.case == ANY:
                begun, self._others = self._others, None
                found = best(begun or self._ways(later.chunks), cases=False).bundle
            else:
                found = self._image(self._by(later.chunks, ways[later.chunks]), later.case)
        return None if found is None else found.with_data(self._program.constants)

    def _image(self, tiles: Tiled, number: int) -> Bundle | None:
        """The bundle of a case; None, where the target refuses it, or its code is none of its own.
        """
        family = tiles.family
        case = family.program.cases(family.lowering)[number]
        variant = tiles.programs.pop(number, None) or self._variant(family, number)
        if variant is None or str(variant.module) == family.tiles:
            return None
        found: Bundle | None = family.finished(case, variant, family.begin(variant))
        return found

    def _best(self, chunks: bool, cases: bool = True) -> Best:
        """The bundle for any call. While the code generator runs, it is found which calls take
        other images, where there may be such."""
        tried: list[Tiled] = []

        def meanwhile(family: Family, plan: Plan) -> None:
            if self._sketched is not None and self._sketched.family is family:
                tried.append(self._sketched)
            else:
                tried.append(self._cases(family, plan, chunks) if cases else Tiled(family, {}, {}))
            settle()
            moved = any(map(CONSUMERS.on, foralls(family.lowering.module)))
            if chunks and self._others is None and not (moved and self._comes_in_chunks()):
                self._others = self._begun_ways()
            cache.compiler_versions()  # reads all files of this compiler

        ways = self._ways(chunks) if chunks or self._others is None else self._others
        found = best(ways, cases=False, meanwhile=meanwhile)
        self._tiled[chunks] = next(tiles for tiles in tried if tiles.family is found.family)
        return found

    def _comes_in_chunks(self) -> bool:
        """Whether the call that comes has rows of whole chunks."""
        if self._coming is None or self._chunked is None:
            return False
        return self._coming.takes(self._chunked[1])

    def _begun_ways(self) -> Iterable[Family] | None:
        """The ways for any rows, with the image of the first one begun: it is waited for behind
        that for rows of whole chunks. None, where something is wrong with it, which is said then.
        """
        ways = self._ways(False)
        try:
            first = next(ways)
            first.begin(first.lowering)
        except NeptuneError:
            return None
        return itertools.chain([first], ways)

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
            family = next(itertools.islice(self._ways(chunks), way, None))
            self._tiled[chunks] = Tiled(family, {}, {})
        return self._tiled[chunks]

    def _ways(self, chunks: bool) -> Iterator[Family]:
        program = self._of(chunks)
        return tiled(program, pipeline_of(self._target), self._target, self._entry)

    def _later(self, chunks: bool, calls: Expression) -> list[Later]:
        """The images for some of these calls (None: any)."""
        return [
            Later(when if calls is None else ["and", calls, when], chunks, number)
            for number, when in self._tiled[chunks].conditions.items()
        ]

    def _cases(self, family: Family, plan: Plan, chunks: bool, begins: bool = False) -> Tiled:
        """The cases of a program by one way; `plan`: that for any call. (What
        `RaisedProgram.variants` leaves out is left out, but cases whose calls are known have no
        tile program yet: whether it is one of their own is found when they are asked for.) The
        image of the call that comes is begun; where it `begins`, that for any call, too, once it
        looks as if the call takes that."""
        made = Tiled(family, {}, {})
        if not family.lowering.has_variants:
            return made
        conditions, seen, widest = Conditions(plan), {family.tiles}, False
        cases = family.program.cases(family.lowering)
        known = conditions.known(cases)
        guessed = self._coming is not None and self._coming.leaves_idle(programs_of(plan))
        for number, case in enumerate(cases):
            if number in known:
                made.conditions[number] = known[number]
            elif not (widest and case.is_for_portable):
                variant = self._variant(family, number)
                text = "" if variant is None else str(variant.module)
                if variant is None or text in seen:
                    continue
                seen.add(text)
                widest |= case.merged
                sketched = gpu.sketch(variant.module, self._target, self._entry)
                when = conditions.of(replace(case, blocks=blocks_of(variant.module)), sketched)
                if when is not None:
                    made.conditions[number], made.programs[number] = when, variant
            behind = [when for n, when in known.items() if n > number]
            if not guessed and self._next(made, chunks, behind) == number:
                guessed = True  # few calls that fill a chip have several, and take not the first
                self._begin_case(made, number)
            elif begins and not (guessed or self._takes_one(behind)):
                begins = False
                with contextlib.suppress(NeptuneError):  # said where it is asked for
                    family.begin(family.lowering)
        last = self._next(made, chunks)
        if last is not None:
            self._begin_case(made, last)
        return made

    def _next(
        self, tiles: Tiled, chunks: bool, behind: Sequence[Expression] = ()
    ) -> int | None:
        """The case that the call which comes takes, of those so far: the last one. None, where it
        takes none, or one of those that are known `behind` them."""
        coming = self._coming
        if coming is None or self._takes_one(behind):
            return None
        if self._chunked is not None and coming.takes(self._chunked[1]) != chunks:
            return None
        taken = (n for n, when in reversed(tiles.conditions.items()) if coming.takes(when))
        return next(taken, None)

    def _takes_one(self, conditions: Sequence[Expression]) -> bool:
        """Whether the call that comes is one of these."""
        return self._coming is not None and any(map(self._coming.takes, conditions))

    def _begin_case(self, tiles: Tiled, number: int) -> None:
        """Begin an image, once; what is wrong with it is said when it is asked for."""
        variant = tiles.programs.get(number) or self._variant(tiles.family, number)
        if variant is not None:
            tiles.programs[number] = variant
            with contextlib.suppress(NeptuneError):
                tiles.family.begin(variant)

    def _variant(self, family: Family, number: int) -> Lowering | None:
        """The tile program of a case, by the first way that suits."""
        case = family.program.cases(family.lowering)[number]
        return next(family.program.variant(family.lowering, self._target, case), None)
