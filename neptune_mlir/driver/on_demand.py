# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images of a program that are made when a call takes them.

A first call then waits for the image for any call and for its own, and not for those of other
calls; where the compiler was told of the call (`Coming`), for its own alone. What was made is kept
on disk, each image by itself, and from there it comes without the compiler (`driver/recipe.py`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from neptune_mlir.runtime import cache
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Evaluation, Expression
from neptune_mlir.targets.tuned import Table

# fact of a bundle that is begun: the images of the whole one in order, each as the place of its
# code or as a `Later`, and the numbers of the ways
LATER = "later"
ANY = -1  # the number of the case of the image for any call, where that comes later


@dataclass(frozen=True)
class Later:
    """An image that is not made: `when` says for which calls, `case` is its number among those of
    the program, or with `chunks` of the program for rows of whole chunks."""

    when: Expression
    chunks: bool
    case: int


@dataclass(frozen=True)
class Coming:
    """A call that comes next: shapes and numbers of its arguments, and how many multiprocessors its
    device has. What it takes is made first."""

    shapes: Sequence[Any]
    scalars: Sequence[Any]
    processors: int

    @functools.cached_property
    def _values(self) -> Evaluation:
        return Evaluation(self.shapes, self.scalars, self.processors)

    def takes(self, when: Expression) -> bool:
        """Whether it is one of these calls."""
        return bool(self._values.of(when))

    def leaves_idle(self, programs: Expression) -> bool:
        """Whether it has fewer programs than the device has multiprocessors. (Such a call has
        several images, and takes one of the last.)"""
        return int(self._values.of(programs)) < self.processors


@dataclass(frozen=True)
class Asked:
    """All that code depends on: what `compile` was given, the tuning table, and how much LLVM does
    for CPUs. The same for images that are made later."""

    text: str
    source: str
    target: str
    entry: str | None
    knobs: str
    schedule: str | None
    table: Table
    effort: int


class Making(Protocol):
    """What makes images (`driver/recipe.py`)."""

    def begun(self, coming: Coming | None) -> Bundle | None:
        """The bundle of the images for any call, or of that which a call takes that comes, and what
        comes later as its fact `LATER`; None, where what other images there are depends on the
        images for any call."""

    def made(self, later: Later, ways: Sequence[int]) -> Bundle | None:
        """The bundle of an image, by the numbers of the ways that were found; None, where the
        target refuses it, or its code is none of its own."""

    def whole(self) -> Bundle:
        """The bundle of all images."""


class OnDemand:
    """The bundle of a program as far as calls have asked for it (a `Growing` one). Safe from
    several threads."""

    def __init__(self, name: str, begun: Bundle, recipe: Callable[[], Making]):
        """`name`: of the whole bundle in the cache; `begun`: what the recipe began; `recipe` gives
        the same each time."""
        self._name, self._recipe = name, recipe
        later = begun.facts[LATER]
        self._ways: list[int] = later["ways"]
        self._order = [x if isinstance(x, int) else Later(**x) for x in later["order"]]
        self._lock = threading.Lock()
        self.bundle = _without_later(begun)

    @staticmethod
    def begin(
        name: str, recipe: Callable[[], Making], coming: Coming | None = None
    ) -> tuple[OnDemand | Bundle, bool]:  # fmt: skip
        """Begun now, or what is kept of that, and whether it was in the cache. The whole bundle,
        where that is kept, images cannot be made by themselves, or none is for some calls alone."""
        entry, of_a_call = cache.key(name, "begun"), cache.key(name, "begun", "coming")
        recipe = functools.cache(recipe)
        whole = cache.load(name)
        if whole is not None:
            return whole, True
        # (facts are to be those of the code for any call, where nobody said what comes)
        for kept in (entry,) if coming is None else (entry, of_a_call):
            begun = cache.load(kept)
            if begun is not None:
                return OnDemand(name, begun, recipe), True
        begun = recipe().begun(coming)
        order = [] if begun is None else begun.facts[LATER]["order"]
        if begun is not None and any(isinstance(x, dict) for x in order):
            cache.store(of_a_call if isinstance(order[0], dict) else entry, begun)
            return OnDemand(name, begun, recipe), False
        whole = recipe().whole() if begun is None else _without_later(begun)
        cache.store(name, whole)
        return whole, False

    def whole(self) -> Bundle:
        return cache.get_or_make(self._name, lambda: self._recipe().whole())[0]

    def grow(
        self, code: int | None, shapes: Sequence[Any], scalars: Sequence[Any], processors: int
    ) -> None:
        """The last one behind the image whose code begins at `code` (see `Growing`)."""
        call = Evaluation(shapes, scalars, processors)  # conditions have much in common
        with self._lock:
            first = -1 if code is None else self._order.index(code)
            for place in range(len(self._order) - 1, first, -1):
                later = self._order[place]
                if not isinstance(later, Later):
                    continue
                if call.of(later.when) and self._add(place, later):
                    break

    def _add(self, place: int, later: Later) -> bool:
        """Make an image and put it in its place; False where there is none of its own."""
        entry = cache.key(self._name, "chunks" if later.chunks else "rows", str(later.case))
        made = cache.load(entry)
        if made is None:
            made = self._recipe().made(later, self._ways)
            if made is None:
                del self._order[place]
                return False
            cache.store(entry, made)
        start = self._order[place] = len(self.bundle.code)
        bundle = self.bundle.adding(made, None if later.case == ANY else later.when)
        key = "images" if "images" in bundle.facts else "variants"
        *had, new = bundle.facts[key]
        images = {image["offset"]: image for image in (*had, {**new, "offset": start})}
        ordered = [images[x] for x in self._order if isinstance(x, int) and x in images]
        self.bundle = replace(bundle, facts={**bundle.facts, key: ordered})
        return True


def _without_later(begun: Bundle) -> Bundle:
    return replace(begun, facts={k: v for k, v in begun.facts.items() if k != LATER})
