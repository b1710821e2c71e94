# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What groups that share rows give each other: factors that each makes a part of.

These go through places in shared memory of their own, so that a barrier stands only where nothing
else has kept the groups together since a place was last read. Loops have the places in turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import layout_of
from neptune_mlir.analysis.tiles import element_of, nested, read_contraction, read_generic, shape_of
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.tile_forms import Held
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.instructions import piece_offset, store_pieces
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.codegen.nvidia.staged_rows import recomputed
from neptune_mlir.dialects.gpu_attributes import HANDED, SWAPPED
from neptune_mlir.dialects.op_names import START, WAIT
from neptune_mlir.ir.values import defining_op
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

    def place(self) -> None:
        """Shared memory for all ops: those of a block have places of their own."""
        copies: dict[Any, list[Any]] = {}
        for op in nested(self.kernel.body):
            if op.name == "linalg.copy":
                copies.setdefault(op.parent, []).append(op)
        for ops in zip_all(list(copies.values())):
            sizes = (self._layout(op).bytes * places_of(op) for op in ops)
            offset = self.kernel.take_tiles(max(sizes))
            self.places.update(dict.fromkeys(ops, offset))
            if not any(map(HANDED.on, ops)):  # of these groups say when they may be written
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
            if self.places.get(op) in after:
                _meet(after)
            if op.name == WAIT and (place := self._read_by_wait(op)) is not None:
                after[place] = READ
        self.either(after)

    def either(self, other: State) -> None:
        """What was emitted last follows this, or something that leaves another state."""
        self.state = {place: max(n, other[place]) for place, n in self.state.items()}

    def _read_by_wait(self, wait: Any) -> int | None:
        start = defining_op(wait.operands[0])
        if start is None:
            return None
        found = map(self._place_of, start.operands)
        return next((place for place in found if place in self.state), None)

    def _place_of(self, value: Any) -> int | None:
        """Where a tile lies that groups make together, also one that a loop carries."""
        made = defining_op(value)
        if made is not None and made in self.places:
            return self.places[made]
        return getattr(self.kernel.tiles.get(value), "place", None)

    def started(self, start: Any) -> None:
        for value in start.operands:
            if (place := self._place_of(value)) in self.state:
                self.state[place] = UNDER_WAY

    def waited(self, wait: Any) -> None:
        place = self._read_by_wait(wait)
        if place is not None:
            self.state[place] = READ

    def follows(self, start: Any) -> bool:
        """Whether groups exchange a factor behind the start of a product, and before the next."""
        body = [op.operation for op in start.block.operations]
        for op in body[body.index(start) + 1 :]:
            if op.name in (START, "linalg.copy"):
                return op in self.places
        return False

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
        panel = self._panel(place, layout, dtype)
        if _one_below_another(tile.layout, layout.rows) and panel.size == 2 and _read_turned(op):
            rows, columns = layout.columns, layout.rows
            panel = PanelTile(panel.address, rows, columns, dtype, PANEL, place, turned=True)
        self._store(panel, tile, place, behind)
        self.kernel.issued.end()  # behind this groups wait for stores, and for each other
        hopper.publish_tile()
        memory.barrier()
        if behind is None:
            return panel
        moved = s.value(behind, s.i32)
        return replace(panel, address=s.op("arith.addi", [panel.address, moved], s.i32))

    def _store(self, panel: PanelTile, tile: Held, place: int, behind: Any = None) -> None:
        """Write a tile to a place, or so far behind it."""
        s, memory = self.kernel.s, self.kernel.memory
        for offset, values in self._pieces(panel, tile, place):
            offset = offset if behind is None else s.add(offset, behind)
            words = [memory.narrow(pair) for pair in values]
            if len(words) == 1:
                memory.store_element(words[0], memory.shared_pointer(offset), 4)
            else:
                store_pieces(memory, offset, words, panel.turned)

    def panel(self, op: Any) -> PanelTile:
        """Where a left factor lies that one group makes."""
        return self._panel(self.places[op], self._layout(op), element_of(op.results[0]))

    def store(self, op: Any, tile: Held) -> None:
        """Write what one group made to its place."""
        self._store(self.panel(op), tile, self.places[op])

    def _pieces(self, panel: PanelTile, tile: Held, place: int) -> Iterator[tuple[Any, list[Any]]]:
        """What a thread writes of a tile: where, and pairs of neighbours. Four pieces of 8x8 at
        once, if that is how its warp holds them: then a lane says where a row of one is."""
        # (addresses that stay in registers through the loop would spill others)
        memory, s, threads = self.kernel.memory, self.kernel.s, recomputed(self.kernel.threads)
        held, width = tile.layout, panel.width
        pairs = [[*tile.values[k : k + 2]] for k in range(0, len(tile.values), 2)]
        quads = L.four_pieces(held) if width % 16 == 0 and panel.size == 2 else None
        if quads is None:
            for k, (*row, column) in enumerate(threads.positions(held)[::2]):
                within = memory.shared_offset(panel.layout(), [*row, s.mod(column, width)])
                ahead = s.mul(s.div(column, width), panel.panel_bytes)
                yield s.add(s.add(within, ahead), place), pairs[k : k + 1]
            return
        low, high = s.mod(s.div(threads.lane, 8), 2), s.div(threads.lane, 16)
        if panel.turned:  # what is a row of a piece here is a column of it there
            (r1, c1), (r2, c2) = quads
            key = threads.digits(held.warp, threads.warp, 0)
            own = s.mul(s.div(key, width), panel.panel_bytes)
            key = s.add(s.mod(key, width), s.add(s.mul(low, r1), s.mul(high, r2)))
            at = s.add(s.mod(threads.lane, 8), s.add(s.mul(low, c1), s.mul(high, c2)))
            for k, (_, column) in enumerate(held.offsets(held.reg)[::8]):
                part = SharedTile(panel.layout(), place, panel.dtype)
                offset = piece_offset(memory, part, [at, key], [int(column), 0], 0)
                yield s.add(offset, own), pairs[4 * k : 4 * k + 4]
            return
        here: list[Any] = []
        for dim, (first, second) in enumerate(zip(*quads, strict=True)):
            mine = threads.digits(held.warp, threads.warp, dim)
            mine = s.add(mine, s.add(s.mul(low, first), s.mul(high, second)))
            here.append(mine if dim else s.add(mine, s.mod(threads.lane, 8)))
        for k, (row, column) in enumerate(held.offsets(held.reg)[::8]):
            number, within = divmod(int(column), width)
            part = SharedTile(panel.layout(), place + number * panel.panel_bytes, panel.dtype)
            yield piece_offset(memory, part, here, [int(row), within], 0), pairs[4 * k : 4 * k + 4]

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


def _one_below_another(layout: L.Layout, rows: int) -> bool:
    """Whether each warp has rows of its own, whole panels of them in all, in pieces of 8x8."""
    if not L.four_pieces(layout) or rows % PANEL:
        return False
    return all(row == 0 for row, _ in layout.offsets(layout.reg)[::8])


def _read_turned(op: Any) -> bool:
    """Whether all that reads a tile sums over its rows. A product takes such a tile as it is, or
    the other way round: then its lines are read as they lie, which takes fewer cycles."""
    for use in op.results[0].uses:
        start = use.owner.operation
        if start.name != START:
            return False
        g = read_generic(start)
        p = read_contraction(g)
        p = p.swapped() if SWAPPED.on(start) else p
        if use.operand_number != p.a or g.maps[p.a].index(p.k) != 0:
            return False
    return True


def _meet(state: State) -> None:
    for place, n in state.items():
        state[place] = FREE if n == READ else n
