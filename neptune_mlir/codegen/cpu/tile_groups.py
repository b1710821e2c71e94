# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Consecutive tile ops that can run strip by strip, so that what passes between them stays in L1.

Ops join a group when each has a parallel loop (the *strip loop*) such that every tile that one
writes and another touches is indexed by it in the same place: then strip k of each op needs
strip k of the others only. A tile that lives only inside a group shrinks to one strip. Products are
not cut along the loop that their vectors run along: they compute several vectors side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from neptune_mlir.codegen.cpu.tile_ops import TileGeneric, copied_places


@dataclass
class StripGroup:
    """`strip[k]` is the strip loop of `members[k]`; `place` maps memory to the dimension that
    the strip loop indexes there (None: every strip sees all of it, and nobody writes it)."""

    members: list[TileGeneric]
    strip: list[int]
    extent: int
    place: dict[Any, int | None] = field(default_factory=dict)
    written: set[Any] = field(default_factory=set)
    whole: Callable[[TileGeneric], int | None] = lambda generic: None

    def join(self, generic: TileGeneric) -> bool:
        """Add an op if some loop of it can be its strip loop."""
        if copied_places(generic) is not None and not all(
            o.view.static for o in generic.operands if o.view
        ):
            return False  # picks its code by strides: once for the tile, not once for each strip
        whole = self.whole(generic)
        for d, extent in enumerate(generic.extents):
            if d == whole:
                continue
            if extent == self.extent and not generic.reduced[d] and self._fits(generic, d):
                self._add(generic, d)
                return True
        return False

    def _accesses(self, generic: TileGeneric, d: int) -> list[tuple[Any, int | None, bool]] | None:
        found: list[tuple[Any, int | None, bool]] = [
            (view.slot, None, False) for view in generic.loaded.values()
        ]
        for o in generic.operands:
            if o.view is None:
                continue
            place = o.position_of(d)
            if place is None and o.uses(d):
                return None
            found.append((o.view.slot, place, any(o is w for w in generic.outputs)))
        return found

    def _fits(self, generic: TileGeneric, d: int) -> bool:
        accesses = self._accesses(generic, d)
        if accesses is None:
            return False
        written = self.written | {slot for slot, _, writes in accesses if writes}
        place = dict(self.place)
        for slot, here, _ in accesses:
            if slot in written and (here is None or place.get(slot, here) != here):
                return False
            place.setdefault(slot, here)
        return all(where is not None for slot, where in place.items() if slot in written)

    def _add(self, generic: TileGeneric, d: int) -> None:
        self.members.append(generic)
        self.strip.append(d)
        for slot, here, writes in self._accesses(generic, d) or ():
            self.place.setdefault(slot, here)
            if writes:
                self.written.add(slot)


def group(
    run: list[TileGeneric], whole: Callable[[TileGeneric], int | None]
) -> list[StripGroup]:
    """Cut a run of ops into groups, each as long as possible from where it starts. Ops that do not
    fit come before a group that they do not touch. `whole`: the loop of an op that is not cut."""
    groups: list[StripGroup] = []
    rest = list(run)
    while rest:
        best = StripGroup([rest[0]], [-1], 0)
        skipped: list[TileGeneric] = []
        extents = [
            n
            for n, reduced in zip(rest[0].extents, rest[0].reduced, strict=True)
            if not reduced and isinstance(n, int)
        ]
        for extent in dict.fromkeys(extents):
            trial, before = StripGroup([], [], extent, whole=whole), []
            for generic in rest:
                if not trial.join(generic):
                    if not all(map(partial(_commute, generic), trial.members)):
                        break
                    before.append(generic)
            if len(trial.members) > len(best.members):
                best, skipped = trial, before
        groups += [StripGroup([generic], [-1], 0) for generic in skipped]
        groups.append(best)
        rest = rest[len(skipped) + len(best.members) :]
    return groups


def _commute(a: TileGeneric, b: TileGeneric) -> bool:
    """Whether two ops may change places: neither writes what the other touches."""
    (reads, writes), (others, theirs) = _touched(a), _touched(b)
    return not writes & (others | theirs) and not theirs & (reads | writes)


def _touched(generic: TileGeneric) -> tuple[set[Any], set[Any]]:
    """What an op reads, and what it writes."""
    reads = {o.view.slot for o in generic.inputs if o.view is not None}
    reads |= {view.slot for view in generic.loaded.values()}
    return reads, {o.view.slot for o in generic.outputs if o.view is not None}


def strip_size(extent: int, lanes: int, wanted: int) -> int:
    """Rows in a strip: whole vectors for the ops along the strip loop, few enough for L1."""
    for size in (wanted, max(16, lanes), lanes):
        if extent % size == 0:
            return size
    return extent
