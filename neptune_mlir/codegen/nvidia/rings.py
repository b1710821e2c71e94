# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rings of a specialised kernel: slots in shared memory, their barriers, positions in them.

Of a ring, each slot has a barrier that TMA completes ("full": a put does, a get waits) and one that
the consumers complete ("empty": releases do, a put waits). The number of tiles that were put (or
got) so far names slot and phase. Each ring has a number of its own, and so has each of its readers
where there are several; loops and branches carry one for all that advance together in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import (
    element_bytes,
    element_of,
    nested,
    read_generic,
    row_distance,
    shape_of,
)
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.clusters import instructions
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.codegen.nvidia.producer import source_of
from neptune_mlir.dialects.gpu_attributes import AGAIN, ONCE, READER, VIA
from neptune_mlir.dialects.op_names import CREATE, GET, PUT, RELEASE
from neptune_mlir.dialects.verify_aref import ring_type
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets import warp_groups
from neptune_mlir.transforms.gpu.layout_factors import through_registers
from neptune_mlir.transforms.hopper.clusters import PAIR
from neptune_mlir.transforms.hopper.specialize_warps import GROUP

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter


@dataclass(frozen=True)
class Ring:
    """The offset of slot 0, those of its barriers, the bytes of a tile and from slot to slot;
    `panel`: columns of a tile's panels, `row`: bytes of a row of these, `rounds`: whether
    f32 is rounded to TF32 on the way. `by_warps`: each warp releases a slot, for it reads the
    tile on its own, or nothing does; matmuls are over for a group at once. `readers`: each of them
    gets all tiles, and releases them (`neptune.reader`). `shared`: by both blocks of a pair."""

    offset: int
    full: int
    empty: int
    bytes: int
    slot: int
    stages: int
    panel: int
    row: int
    rounds: bool
    by_warps: bool
    readers: int
    shared: bool = False


Cursor = tuple[Any, int]  # a ring, and one of its readers; the producer is where reader 0 is


@dataclass(frozen=True)
class Position:
    """A number of tiles, `base` (an int or an index value) and `more`."""

    base: Any
    more: int = 0


class Rings:
    """The rings of one kernel, as its producer or its consumers see them."""

    def __init__(self, kernel: SpecializedWriter):
        self.kernel = kernel
        self.created = [
            op.operation.results[0] for op in kernel.body.operations if op.operation.name == CREATE
        ]
        self.uses: dict[Any, list[Any]] = {ring: [] for ring in self.created}
        self.puts: dict[Any, list[Any]] = {ring: [] for ring in self.created}
        for found, block in ((self.uses, kernel.body), (self.puts, kernel.producer)):
            for op in nested(block):
                if op.name in (GET, PUT):
                    found[op.operands[0]].append(op)
        self.cursors: list[Cursor] = [
            (ring, k) for ring in self.created for k in range(self._readers(ring))
        ]
        self.positions: dict[Cursor, Position] = {}  # of the next put or get
        self.got: dict[Any, Position] = {}  # of tiles that were not released
        self.rings: dict[Any, Ring] = {}

    # ---- places

    def place(self) -> None:
        """Shared memory for the slots."""
        pairs = self.kernel.pairs
        for ring in self.created:
            kind, slots = ring_type(ring.type)
            *rows, columns = kind.shape
            found = (self._panel(put, columns) for put in self.puts[ring])
            panel = max(found, default=warp_groups.PANEL)
            each = element_bytes(str(kind.element_type))
            size = warp_groups.tile_bytes(math.prod(rows), columns, panel, each)
            step = -(-size // warp_groups.ATOM) * warp_groups.ATOM
            self.rings[ring] = Ring(
                self.kernel.take_tiles(step * slots), 0, 0, size, step, slots, panel, panel * each,
                self._rounds(ring, each), self._is_read_by_warps(ring), self._readers(ring),
                pairs is not None and pairs.share(self.puts[ring]),
            )

    def _readers(self, ring: Any) -> int:
        return 1 + max((_reader(op) for op in self.uses[ring]), default=0)

    def _panel(self, put: Any, columns: int) -> int:
        """Columns of a panel of what a put takes."""
        tensor = source_of(self.kernel.forall, put).tensor
        size = element_bytes(str(ir.RankedTensorType(tensor.type).element_type))
        return warp_groups.panel_of(columns, row_distance(tensor), size)

    def _rounds(self, ring: Any, size: int) -> bool:
        """Whether the copy engine rounds a ring's elements: f32 that products alone read, which
        would drop the bits that they do not take."""
        readers = [use.owner.operation for get in self.uses[ring] for use in get.results[0].uses]
        products = [VIA.find(op, "mma") == "mma" for op in readers if op.name != RELEASE]
        return size == 4 and bool(products) and all(products)

    def place_barriers(self) -> None:
        """Shared memory for the barriers, behind all tiles."""
        for name, ring in self.rings.items():
            full = self.kernel.memory.take(2 * 8 * ring.stages)
            self.rings[name] = replace(ring, full=full, empty=full + 8 * ring.stages)

    def _is_read_by_warps(self, ring: Any) -> bool:
        """Whether each warp is to release the tiles of a ring: something else than matmuls of warp
        groups reads them, or perhaps nothing does, as they are read in a loop within alone. Where
        that loop has no iteration, no matmul keeps the warps of a group together, and the first of
        them would give away what another has not waited for: this one would find the phase that
        it waits for over, the next one begun, and wait for ever."""
        for get in self.uses[ring]:
            readers = [use.owner.operation for use in get.results[0].uses]
            readers = [op for op in readers if op.name != RELEASE]
            if any(AGAIN.on(op) or VIA.find(op, "mma") != "mma" for op in readers):
                return True
            if any(self._goes_through_registers(op, get.results[0]) for op in readers):
                return True
            if all(op.block != get.block for op in readers):
                return True
        return False

    def _goes_through_registers(self, product: Any, tile: Any) -> bool:
        """Whether warps read a factor of a product each on their own (`group_compute`)."""
        g = read_generic(product)
        p = self.kernel.oriented(g)
        return g.inputs[p.a] == tile and through_registers(g, p)

    def start_barriers(self, warps: int, groups: int) -> None:
        for name, ring in self.rings.items():
            for k in range(ring.stages):
                hopper.init_barrier(self.kernel.address(ring.full + 8 * k), 1)
                parts = (groups if group else 1 for group in self._by_all(name))
                arrivals = sum(parts) * (warps // groups if ring.by_warps else 1)
                arrivals *= PAIR if ring.shared else 1
                hopper.init_barrier(self.kernel.address(ring.empty + 8 * k), arrivals)

    def _by_all(self, ring: Any) -> list[bool]:
        """Of each reader of a ring, whether all groups release its tiles, not only the first."""
        return [
            any(not ONCE.on(get) for get in self.uses[ring] if _reader(get) == k)
            for k in range(self._readers(ring))
        ]

    # ---- positions

    def restart(self) -> None:
        """Producer and consumers each begin at the first slots."""
        self.positions = dict.fromkeys(self.cursors, Position(0))

    def together(self) -> list[list[Cursor]]:
        """Rings that are put in the same places: at the end of a program their positions are
        equal, those of all readers too, for these get what was put."""
        found: dict[Any, list[Cursor]] = {}
        for cursor in self.cursors:
            places = tuple(self._place(op) for op in self.puts[cursor[0]])
            found.setdefault(places, []).append(cursor)
        return list(found.values())

    def advancing(self, within: Any) -> list[list[Cursor]]:
        """What advances in a loop or branch, together that which does so in the same places and
        from the same position."""
        found: dict[Any, list[Cursor]] = {}
        for cursor in self.cursors:
            ring, reader = cursor
            ops = [op for op in self.uses[ring] if _reader(op) == reader]
            ops += self.puts[ring] if reader == 0 else []
            places = tuple(self._place(op) for op in ops if _is_within(op, within))
            if places:
                found.setdefault((self.positions[cursor], places), []).append(cursor)
        return list(found.values())

    def _place(self, op: Any) -> Any:
        """What an op stands in: an op and the number of its region."""
        parent = op.parent
        blocks = [region.blocks[0] for region in parent.regions if len(region.blocks)]
        return parent, blocks.index(op.block)

    def values(self, groups: Sequence[Sequence[Cursor]]) -> list[Any]:
        """The positions of groups of cursors, as index values."""
        s = self.kernel.s
        here = [self.positions[group[0]] for group in groups]
        return [s.value(s.add(p.base, p.more)) for p in here]

    def bind(self, groups: Sequence[Sequence[Cursor]], values: Sequence[Any]) -> None:
        """The inverse of `values`."""
        for group, value in zip(groups, values, strict=True):
            self.positions.update(dict.fromkeys(group, Position(value)))

    def take(self, cursor: Cursor) -> Position:
        """The position of the next tile, which the one behind it follows."""
        position = self.positions[cursor]
        self.positions[cursor] = Position(position.base, position.more + 1)
        return position

    def slot(self, ring: Ring, position: Position) -> tuple[Any, Any]:
        """Slot, and parity of the phase."""
        s = self.kernel.s
        count = s.add(position.base, position.more)
        slot, phase = s.mod(count, ring.stages), s.mod(s.div(count, ring.stages), 2)
        return slot, s.value(phase, s.i32)

    # ---- what consumers do

    def get(self, op: Any) -> PanelTile:
        """Wait for a tile."""
        kernel, s, tile = self.kernel, self.kernel.s, op.results[0]
        cursor = op.operands[0], _reader(op)
        ring, self.got[tile] = self.rings[cursor[0]], self.take(cursor)
        slot = self.await_tile(cursor[0], self.got[tile])
        address = kernel.address(s.add(s.mul(slot, ring.slot), ring.offset))
        *rows, columns = shape_of(tile)
        return PanelTile(address, math.prod(rows), columns, element_of(tile), ring.panel)

    def await_tile(self, name: Any, at: Position) -> Any:
        """Wait for a tile; its slot."""
        kernel, s, ring = self.kernel, self.kernel.s, self.rings[name]
        slot, parity = self.slot(ring, at)
        hopper.wait_barrier(kernel.address(s.add(s.mul(slot, 8), ring.full)), parity)
        return slot

    def pass_by(self, op: Any) -> None:
        """Leave a tile to others."""
        self.take((op.operands[0], _reader(op)))

    def release(self, op: Any) -> None:
        """Give a tile's slot back."""
        (tile,) = op.operands
        self.give_back(defining_op(tile).operands[0], self.got.pop(tile))

    def release_before(self, op: Any, there: Any) -> None:
        """Give back the slot of the tile before a tile; `there`: whether this loop got it (i1)."""
        (tile,) = op.operands
        name, at = defining_op(tile).operands[0], self.got.pop(tile)
        self.give_back(name, self._before(name, at), there)

    def release_last(self, get: Any, there: Any) -> None:
        """Give back the slot of the last tile that a get in a loop got; `there`: if it got one."""
        name = get.operands[0]
        self.give_back(name, self._before(name, self.positions[name, _reader(get)]), there)

    def _before(self, name: Any, at: Position) -> Position:
        """A position with the slot of the one before; not its phase, and never negative."""
        return Position(at.base, at.more + self.rings[name].stages - 1)

    def give_back(self, name: Any, at: Position, there: Any = None) -> None:
        """Give back the slot of a tile; `there`: if it was got (i1)."""
        kernel, s, ring = self.kernel, self.kernel.s, self.rings[name]
        slot, _ = self.slot(ring, at)
        together = kernel.target.wave * (1 if ring.by_warps else GROUP)
        if ring.by_warps:
            hopper.converge()
        thread = s.value(s.mod(kernel.threads.id, together), s.i32)
        if there is not None:  # no thread is the first where it is not
            none = s.constant(together, s.i32)
            thread = s.op("arith.select", [there, thread, none], s.i32)
        barrier = kernel.address(s.add(s.mul(slot, 8), ring.empty))
        hopper.arrive_if_first(barrier, thread)
        if ring.shared and kernel.pairs is not None:
            instructions.arrive_beside_if_first(barrier, thread, kernel.pairs.other)


def _reader(get: Any) -> int:
    return int(READER.find(get, 0))


def _is_within(op: Any, other: Any) -> bool:
    while op is not None and op != other:
        op = op.parent
    return op is not None
