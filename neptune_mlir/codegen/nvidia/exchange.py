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
    read_contraction,
    read_generic,
    shape_of,
)
from neptune_mlir.codegen.gpu.memory import Memory, SharedTile
from neptune_mlir.codegen.gpu.tile_forms import Held
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.instructions import piece_offset, store_pieces
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.codegen.nvidia.staged_rows import recomputed
from neptune_mlir.dialects.attributes import SWAPPED, VIA
from neptune_mlir.dialects.op_names import START, WAIT
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
        panel = self._panel(place, layout, dtype)
        if _one_below_another(tile.layout, layout.rows) and panel.size == 2 and _read_turned(op):
            rows, columns = layout.columns, layout.rows
            panel = PanelTile(panel.address, rows, columns, dtype, PANEL, place, turned=True)
        for offset, values in self._pieces(panel, tile, place):
            offset = offset if behind is None else s.add(offset, behind)
            words = [memory.narrow(pair) for pair in values]
            if len(words) == 1:
                memory.store_element(words[0], memory.shared_pointer(offset), 4)
            else:
                store_pieces(memory, offset, words, panel.turned)
        self.kernel.issued.end()  # behind this groups wait for stores, and for each other
        hopper.publish_tile()
        memory.barrier()
        if behind is None:
            return panel
        moved = s.value(behind, s.i32)
        return replace(panel, address=s.op("arith.addi", [panel.address, moved], s.i32))

    def _pieces(self, panel: PanelTile, tile: Held, place: int) -> Iterator[tuple[Any, list[Any]]]:
        """What a thread writes of a tile: where, and pairs of neighbours. Four pieces of 8x8 at
        once, if that is how its warp holds them: then a lane says where a row of one is."""
        # (addresses that stay in registers through the loop would spill others)
        memory, s, threads = self.kernel.memory, self.kernel.s, recomputed(self.kernel.threads)
        held, width = tile.layout, panel.width
        pairs = [[*tile.values[k : k + 2]] for k in range(0, len(tile.values), 2)]
        quads = four_pieces(held) if width % 16 == 0 and panel.size == 2 else None
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

    @contextmanager
    def joining(self) -> Iterator[int]:
        place = self.places[self.reducing]
        self._clear(place)
        yield place
        self.state[place] = READ


def four_pieces(layout: L.Layout) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Of tiles that warps hold in pieces of 8x8, a pair of neighbours a thread, as `stmatrix` takes
    them: how far the second and the third of four pieces are from the first one, and the fourth
    from the other; None for others."""
    if layout.lane != (L.digit(1, 4, 2), L.digit(0, 8, 1)) or layout.reg[:1] != (L.digit(1, 2, 1),):
        return None
    offsets = layout.offsets(layout.reg)
    along_rows = all(d.dim == 0 for d in layout.warp)
    if len(layout.shape) != 2 or len(offsets) % 8 or not along_rows or layout.padded:
        return None
    first, second, both = (offsets[k::8] - offsets[::8] for k in (2, 4, 6))
    alike = (first == first[0]).all() and (second == second[0]).all()
    if not alike or (both != first + second).any() or (offsets[::2] % 8).any():
        return None
    a, b = ((int(x[0, 0]), int(x[0, 1])) for x in (first, second))
    return (a, b) if {a, b} == {(8, 0), (0, 8)} else None


def _one_below_another(layout: L.Layout, rows: int) -> bool:
    """Whether each warp has rows of its own, whole panels of them in all, in pieces of 8x8."""
    if not four_pieces(layout) or rows % PANEL:
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
