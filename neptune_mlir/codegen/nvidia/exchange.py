# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What groups that share rows give each other: factors that each makes a part of, and what each
reduced of a row.

Both go through places in shared memory of their own, so that a barrier stands only where nothing
else has kept the groups together since a place was last read. Loops have the places in turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import iteration_of, layout_of
from neptune_mlir.analysis.tiles import (
    element_bytes,
    element_of,
    nested,
    owner,
    read_generic,
    shape_of,
)
from neptune_mlir.codegen.gpu.memory import Memory
from neptune_mlir.codegen.gpu.tile_forms import Held
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.codegen.nvidia.staged_rows import recomputed
from neptune_mlir.dialects.attributes import VIA
from neptune_mlir.dialects.op_names import WAIT
from neptune_mlir.targets.warp_groups import PANEL
from neptune_mlir.transforms.gpu.layout_stages import places_of, step_of
from neptune_mlir.transforms.hopper.vector_loads import zip_all

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

FREE, READ, UNDER_WAY = range(3)  # others may still read; so may a product of this group
State = dict[int, int]  # by offset of a place


class SharedPlaces:
    """The places of one kernel, and which of them may still be read."""

    def __init__(self, kernel: SpecializedWriter):
        self.kernel = kernel
        self.places: dict[Any, int] = {}  # of an op: where its result, or parts of it, go
        self.state: State = {}
        self.reducing: Any = None  # the op that is being written

    def place(self) -> None:
        """Shared memory for all ops: those of a block have places of their own."""
        copies: dict[Any, list[Any]] = {}
        joins: dict[Any, list[Any]] = {}
        for op in nested(self.kernel.body):
            if op.name == "linalg.copy":
                copies.setdefault(op.parent, []).append(op)
            elif _parts(op) > 1:
                joins.setdefault(op.parent, []).append(op)
        if copies:
            self._take(list(copies.values()), lambda op: self._layout(op).bytes * places_of(op))
            self._take(list(joins.values()), _join_bytes)

    def _take(self, blocks: Sequence[Sequence[Any]], size: Any) -> None:
        for ops in zip_all(blocks):
            offset = self.kernel.take_tiles(max(map(size, ops)))
            self.places.update(dict.fromkeys(ops, offset))
            self.state[offset] = FREE

    def _layout(self, op: Any) -> L.Shared:
        found: L.Shared = layout_of(op, shape_of(op.results[0]))
        return found

    # ---- which places may be read

    def met(self) -> None:
        """All consumers have come to a barrier."""
        _meet(self.state)

    def meet_again(self) -> None:
        """Another program begins, while groups may still read what was exchanged in the last."""
        self.state = dict.fromkeys(self.state, FREE)
        if self.state:
            self.kernel.memory.barrier()

    def enter(self, loop: Any) -> None:
        """A loop is to follow: its first iteration writes where nobody reads any more, for later
        ones do not ask."""
        inside = list(nested(loop.regions[0].blocks[0]))
        for place in {self.places[op] for op in inside if places_of(op) > 1}:
            self._clear(place)

    def begin(self, loop: Any) -> None:
        """A loop begins: its body follows what stands before it, and itself."""
        if not self.state:
            return
        after = dict.fromkeys(self.state, FREE)
        for op in nested(loop.regions[0].blocks[0]):
            place = self._read_by_wait(op) if op.name == WAIT else self.places.get(op)
            if op.name != WAIT and place is not None:
                _meet(after)
            if op.name != "linalg.copy" and place is not None:
                after[place] = READ
        self.either(after)

    def either(self, other: State) -> None:
        """What was emitted last follows this, or something that leaves another state."""
        self.state = {place: max(n, other[place]) for place, n in self.state.items()}

    def _read_by_wait(self, wait: Any) -> int | None:
        start = owner(wait.operands[0])
        if start is None:
            return None
        found = map(self._place_of, start.operands)
        return next((place for place in found if place is not None), None)

    def _place_of(self, value: Any) -> int | None:
        """Where a tile lies that groups make together, also one that a loop carries."""
        made = owner(value)
        if made is not None and made in self.places:
            return self.places[made]
        return getattr(self.kernel.tiles.get(value), "place", None)

    def started(self, start: Any) -> None:
        for value in start.operands:
            if (place := self._place_of(value)) is not None:
                self.state[place] = UNDER_WAY

    def waited(self, wait: Any) -> None:
        place = self._read_by_wait(wait)
        if place is not None:
            self.state[place] = READ

    def _clear(self, place: int) -> None:
        """Nobody reads a place any more."""
        assert self.state[place] != UNDER_WAY, "a factor is made while a product reads the last one"
        if self.state[place] == READ:
            self.kernel.memory.barrier()

    # ---- writing to them

    def share(self, op: Any, tile: Held) -> PanelTile:
        """Each group's part of a left factor, where products of all groups read it."""
        s, memory, place = self.kernel.s, self.kernel.memory, self.places[op]
        layout, dtype = self._layout(op), element_of(op.results[0])
        behind = None
        if places_of(op) > 1:  # nobody reads this one: all have met behind the product that did
            behind = self._turn(op)
        else:
            self._clear(place)
        # (addresses that stay in registers through the loop would spill others)
        positions = recomputed(self.kernel.threads).positions(tile.layout)
        panel = self._panel(place, layout, dtype)
        for k in range(0, len(positions), 2):  # an accumulator has neighbours
            *row, column = positions[k]
            within = memory.shared_offset(panel.layout(), [*row, s.mod(column, panel.width)])
            ahead = s.mul(s.div(column, panel.width), panel.panel_bytes)
            offset = s.add(s.add(within, ahead), place)
            offset = offset if behind is None else s.add(offset, behind)
            pair = memory.narrow(tile.values[k : k + 2])
            memory.store_element(pair, memory.shared_pointer(offset), 4)
        hopper.publish_tile()
        memory.barrier()
        if behind is None:
            return panel
        moved = s.value(behind, s.i32)
        return replace(panel, address=s.op("arith.addi", [panel.address, moved], s.i32))

    def _turn(self, op: Any) -> Any:
        """Of two places, how far behind the first one that of this iteration is."""
        s, loop = self.kernel.s, op.parent
        variable = self.kernel.scalar(loop.regions[0].blocks[0].arguments[0])
        done = s.div(s.sub(variable, self.kernel.scalar(loop.operands[0])), step_of(loop))
        return s.mul(s.mod(done, places_of(op)), self._layout(op).bytes)

    def carried(self, value: Any, layout: L.Shared) -> PanelTile:
        """A tile that a loop carries: it lies where each iteration makes it, the only such tile."""
        place, *others = {self.places[op] for op in self.places if op.name == "linalg.copy"}
        assert not others, "tiles that loops carry in several places"
        return self._panel(place, layout, element_of(value))

    def _panel(self, place: int, layout: L.Shared, dtype: str) -> PanelTile:
        address = self.kernel.address(place)
        width = min(layout.columns, PANEL)
        return PanelTile(address, layout.rows, layout.columns, dtype, width, place)

    @contextmanager
    def joining(self) -> Iterator[int]:
        place = self.places[self.reducing]
        self._clear(place)
        yield place
        self.state[place] = READ


class GroupMemory(Memory):
    """That of groups: what is reduced of shared rows has places of an `SharedPlaces`."""

    exchange: SharedPlaces | None = None

    @contextmanager
    def scratch(self, size: int) -> Iterator[int]:
        exchange = self.exchange
        known = exchange is not None and exchange.reducing in exchange.places
        with exchange.joining() if exchange and known else super().scratch(size) as offset:
            yield offset


def _meet(state: State) -> None:
    for place, n in state.items():
        state[place] = FREE if n == READ else n


def _parts(op: Any) -> int:
    """In how many parts warps reduce a row."""
    if op.name != "linalg.generic" or VIA.find(op) != "registers":
        return 1
    g = read_generic(op)
    count = 1
    for _, d in iteration_of(op, g.extents).digits_along(g.reduced, "warp"):
        count *= d.size
    return count


def _join_bytes(op: Any) -> int:
    """What `Compute` takes for the parts of a reduction."""
    result = op.results[0]
    shape = (_parts(op), *shape_of(result))
    return L.shared(shape, element_bytes(element_of(result))).bytes
