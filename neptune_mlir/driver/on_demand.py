# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images of a program that are made when a call takes them.

A first call then waits for the image for any call and for its own, and not for those of other
calls. What was made is kept on disk, each image by itself, and from there it comes without the
compiler (`driver/recipe.py`).
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
ANY_CALL = -1  # in place of the number of a case


@dataclass(frozen=True)
class Later:
    """An image that is not made: `when` says for which calls (None: any), `case` is its number
    among those of the program, or with `chunks` of the program for rows of whole chunks."""

    when: Expression
    chunks: bool
    case: int


@dataclass(frozen=True)
class Coming:
    """A call that comes next: shapes and numbers of its arguments, and how many multiprocessors its
    device has. What it takes is begun beside the image for any call."""

    shapes: Sequence[Any]
    scalars: Sequence[Any]
    processors: int

    @functools.cached_property
    def _values(self) -> Evaluation:
        return Evaluation(self.shapes, self.scalars, self.processors)

    def takes(self, when: Expression) -> bool:
        """Whether it is one of these calls."""
        return bool(self._values.of(when))


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
        """The bundle of the images for any call, and what comes later as its fact `LATER`: the
        image for any call, too, where the call that comes takes none of its kind. None, where what
        other images there are depends on these."""

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
        entry, recipe = cache.key(name, "begun"), functools.cache(recipe)
        whole = cache.load(name)
        if whole is not None:
            return whole, True
        begun = cache.load(entry)
        if begun is not None:
            return OnDemand(name, begun, recipe), True
        begun = recipe().begun(coming)
        if begun is not None and any(isinstance(x, dict) for x in begun.facts[LATER]["order"]):
            cache.store(entry, begun)
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
            if code is None:
                if isinstance(self._order[0], Later):  # no other thread was faster
                    self._add(0, self._order[0])
                return
            for place in range(len(self._order) - 1, self._order.index(code), -1):
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
        bundle = self.bundle.adding(made, later.when)
        key = "images" if "images" in bundle.facts else "variants"
        *had, new = bundle.facts[key]
        if later.when is None:
            new = {what: of for what, of in new.items() if what != "when"}
        images = {image["offset"]: image for image in (*had, {**new, "offset": start})}
        ordered = [images[x] for x in self._order if isinstance(x, int) and x in images]
        self.bundle = replace(bundle, facts={**bundle.facts, key: ordered})
        return True


def _without_later(begun: Bundle) -> Bundle:
    return replace(begun, facts={k: v for k, v in begun.facts.items() if k != LATER})
