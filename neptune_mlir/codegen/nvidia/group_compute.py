# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matmuls of the warp groups that consume, in a specialised kernel (wgmma)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout, layout_of
from neptune_mlir.analysis.tiles import Contraction, Generic, read_generic, shape_of, tuned
from neptune_mlir.codegen.gpu.compute import Compute
from neptune_mlir.codegen.gpu.tile_forms import Splat
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.panel_tiles import PanelTile
from neptune_mlir.dialects.gpu_attributes import INTERLEAVED
from neptune_mlir.dialects.op_names import START
from neptune_mlir.targets import warp_groups
from neptune_mlir.targets.tuned import ALL_AHEAD
from neptune_mlir.transforms.gpu.layout_factors import through_registers
from neptune_mlir.transforms.hopper.specialize_warps import ROWS

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.groups.consumers import ConsumerWriter


@dataclass(frozen=True)
class LeftFactor:
    """A left factor in registers as the words that instructions take."""

    words: Sequence[Any]


class GroupProducts:
    """Matmuls of warp groups by wgmma. (`Compute.matrix` is one that each warp does on its own.)

    Attributes:
        compute: the tiles of the consumers.
        group: which consumer group this thread belongs to, i32.
    """

    def __init__(self, compute: Compute, group: Any):
        self.s, self.compute, self.group = compute.s, compute, group

    def issue(
        self, g: Generic, p: Contraction, tiles: Any, layout: Layout, ahead: int
    ) -> tuple[Iterator[list[Any]], int]:
        """Start a product: pieces of it, and how many there are. The first one has so many eighths
        of the instructions (`ahead`), others have one. `hopper.wait_products` gives the values."""
        s = self.s
        n, k = g.extents[p.n], g.extents[p.k]
        a_tile, b_tile, start = tiles[p.a], tiles[p.b], tiles[-1]
        assert isinstance(b_tile, PanelTile)
        fresh = isinstance(start, Splat) and s.constant_of(start.value) == 0.0
        acc = None if fresh else self.compute.registers(start, layout)
        # whether rows run along m, and along n
        turned = g.maps[p.a].index(p.k) == 0, g.maps[p.b].index(p.k) == 0
        across = self.compute.warp_grid(layout, g, p).n  # groups that have a part of the columns
        assert across == 1 or g.extents[p.m] == ROWS
        n //= across
        b_address = b_tile.address
        if across > 1:
            # columns of a panel are rows of memory, unless these run along n
            panel, within = divmod(n, b_tile.width)
            own = n * b_tile.row_bytes
            if turned[1]:
                own = panel * b_tile.panel_bytes + within * b_tile.size
            b_address = self._own(b_address, own)
        b, b_steps = self._in_panels(b_tile, b_address, k, turned[1])
        a: Any
        kept = a_tile if isinstance(a_tile, LeftFactor) else None
        if isinstance(a_tile, PanelTile) and not through_registers(g, p):
            # a group's rows are so many rows of the tile, or a panel where these run along m
            turned = turned[0] != a_tile.turned, turned[1]
            own = a_tile.panel_bytes if turned[0] else ROWS * a_tile.row_bytes
            shared = g.extents[p.m] == ROWS  # by all groups, or there is one
            a_address = a_tile.address if shared else self._own(a_tile.address, own)
            a, a_steps = self._in_panels(a_tile, a_address, k, turned[0])
        else:
            a = self._fragments(g, p, a_tile, layout) if kept is None else list(kept.words)
            a_steps = [0] * len(b_steps)
        steps = list(zip(a_steps, b_steps, strict=True))
        dtype = self.compute.instruction(g).operand
        first = max(1, len(steps) * ahead // ALL_AHEAD)
        pieces = hopper.multiply(dtype, n, acc, a, b, steps, turned, first)
        return pieces, 1 + len(steps) - first

    def left_factor(
        self, g: Generic, p: Contraction, tile: PanelTile, layout: Layout
    ) -> LeftFactor:
        """A left factor from shared memory, for all products that read it."""
        compute, s = self.compute, self.s
        grid, instruction = compute.warp_grid(layout, g, p), compute.instruction(g)
        wanted = compute.operand_of(g, p.a, "a", p, grid, instruction)
        fragments = tile.operand(compute.threads, compute.memory, wanted)
        pieces = (fragments(0, k, 1)[0] for k in range(g.extents[p.k] // instruction.k))
        return LeftFactor([s.op("llvm.bitcast", [x], s.i32) for piece in pieces for x in piece])

    def _own(self, address: Any, size: int) -> Any:
        """Where the part of this group begins, of parts of so many bytes."""
        s = self.s
        moved = s.op("arith.muli", [self.group, s.constant(size, s.i32)], s.i32)
        return s.op("arith.addi", [address, moved], s.i32)

    def _in_panels(
        self, tile: PanelTile, address: Any, depth: int, turned: bool
    ) -> tuple[Any, list[int]]:
        """The descriptor of an operand, and what each 16 (of 32 bits, 8) of the summed axis add to
        it."""
        deep = warp_groups.of_size(warp_groups.DEEP, tile.size)
        count = depth // deep
        if turned:
            step = deep * tile.row_bytes >> 4
            steps = [step * j for j in range(count)]
            return self._descriptor(address, tile, tile.panel_bytes), steps
        return self._descriptor(address, tile), [self._along(j, tile) for j in range(count)]

    def _along(self, j: int, tile: PanelTile) -> int:
        """Of a descriptor, to the j-th 32 bytes of a tile's rows."""
        panel, inside = divmod(j, tile.row_bytes // hopper.STEP_BYTES)
        return (panel * tile.panel_bytes >> 4) + hopper.step_along_rows(inside)

    def _descriptor(self, address: Any, tile: PanelTile, leading: int = 16) -> Any:
        """`leading`: bytes from panel to panel, where these lie along the free axis."""
        s = self.s
        unit = s.op("arith.shrui", [address, s.constant(4, s.i32)], s.i32)
        unit = s.op("arith.andi", [unit, s.constant(0x3FFF, s.i32)], s.i32)
        wide = s.op("arith.extui", [unit], s.i64)
        bits = s.constant(hopper.descriptor_bits(leading, tile.row_bytes), s.i64)
        return s.op("arith.ori", [wide, bits], s.i64)

    def _fragments(self, g: Generic, p: Contraction, tile: Any, layout: Layout) -> list[Any]:
        """The words of operand A, as the accumulator's layout leaves them in this thread."""
        loops, shape = g.maps[p.a], [g.extents[d] for d in g.maps[p.a]]
        grid = self.compute.warp_grid(layout, g, p)
        instruction = self.compute.instruction(g)
        needed = L.operand_a(shape, loops.index(p.m), loops.index(p.k), grid, instruction)
        values = self.compute.registers(tile, needed)
        if instruction.operand == FLOAT8:
            words = self.compute.words(values, 4)
            return words if INTERLEAVED.on(g.op) else self._in_quads(words)
        if values[0].type != self.s.f32:
            return self.compute.words(values)
        if isinstance(tile, PanelTile):  # the copy engine has rounded it
            return [self.s.op("llvm.bitcast", [v], self.s.i32) for v in values]
        return list(self.s.chip.fragment(self.compute.memory, values))

    def _in_quads(self, words: Sequence[Any]) -> list[Any]:
        """Words of 4 bytes along the sum, as instructions number it, of those that the lanes of a
        quad have of accumulators: lane t has columns 2 t and 2 t + 1 of each 8, and is to have
        4 t to 4 t + 3 of each 16.

        Lane t takes the halves t // 2 of two lanes' words, 2 (t % 2) and the next one. Two words
        (of the same row, 16 columns apart) go together, in two exchanges: even lanes give first
        what lanes 0 and 1 take of them, odd lanes what 2 and 3 do.
        """
        s = self.s
        lane = self.compute.threads.lane
        quad, bit, half = s.mul(s.div(lane, 4), 4), s.mod(lane, 2), s.mod(s.div(lane, 2), 2)
        odd, upper = s.less(0, bit), s.less(0, half)
        sources = [  # of the first exchange and of the second
            s.value(s.add(s.add(quad, s.mul(bit, 2)), x), s.i32) for x in (half, s.xor(half, 1))
        ]
        made = list(words)
        for k in range(0, len(words), 4):
            for row in (0, 1):
                low, high = words[k + row], words[k + row + 2]
                halves = [hopper.bytes_of(low, high, chosen) for chosen in (0x5410, 0x7632)]
                given = [s.select(odd, halves[1], halves[0]), s.select(odd, halves[0], halves[1])]
                taken = [hopper.from_lane(w, x) for w, x in zip(given, sources, strict=True)]
                even = s.select(upper, taken[1], taken[0])
                other = s.select(upper, taken[0], taken[1])
                made[k + row] = hopper.bytes_of(even, other, 0x5410)
                made[k + row + 2] = hopper.bytes_of(even, other, 0x7632)
        return made


def kept_left(kernel: ConsumerWriter, value: Any, tile: PanelTile) -> LeftFactor | None:
    """A left factor that all iterations read, in registers, where that is asked for."""
    for use in value.uses if tuned(kernel.forall, "lefts", 0) else ():
        start = use.owner.operation
        if start.name == START and start.block != kernel.body:
            g = read_generic(start)
            p, layout = kernel.oriented(g), layout_of(start, shape_of(g.init))
            if kernel.compute.instruction(g).operand == FLOAT8:
                return None  # in registers they would be in the order of accumulators
            if use.operand_number == p.a and g.maps[p.a].index(p.k) == 1:
                return kernel.products.left_factor(g, p, tile, layout)
    return None


class IssuedProducts:
    """The products of a consumer, and the one of which not all instructions are issued yet.

    A warp issues in order, and an instruction of a product waits until the matrix unit has room for
    it. Behind the last one of a product nothing runs before nearly all of it is done, and so do the
    other warps that came to the same place. So a product whose start says so (`neptune.ahead`)
    issues some of its instructions there, and the others one by one between the elements of the
    arithmetic that follows. Of one that is held back these others wait for `end`, and all of it if
    it is one piece: stores stand in front of them then, and while they run the stores come to be
    seen by other groups, which would wait else.
    """

    def __init__(self) -> None:
        self.pieces: Iterator[list[Any]] = iter(())
        self.left = 0  # of them
        self.held = False
        self.done: Callable[[list[Any]], None] = lambda begun: None
        self.groups: list[int] = []  # that products wait by, of each, in the order of their starts

    def begin(
        self, pieces: Iterator[list[Any]], count: int, done: Callable[[list[Any]], None],
        held: bool = False,
    ) -> None:  # fmt: skip
        """Issue the first of `count` pieces of a product, of which the others are a second group;
        of one that is `held` back not the last one. `done` takes what that gives."""
        self.end()
        self.pieces, self.left, self.done, self.held = pieces, count, done, held
        self.groups.append(0)
        if not held or count > 1:
            self._issue()

    def _issue(self) -> None:
        begun = next(self.pieces)
        self.left -= 1
        if not self.groups[-1] or not self.left:
            self.groups[-1] += 1
        if not self.left:
            self.done(begun)

    def interleaved(self, values: Iterable[Any], count: int) -> Iterator[Any]:
        """`count` values as they are made, with instructions between them."""
        left, done = 0 if self.held else self.left, 0
        for n, value in enumerate(values, 1):
            while done < n * left // count:
                self._issue()
                done += 1
            yield value

    def end(self) -> None:
        """Issue what is left."""
        if self.held and self.left and self.groups[-1]:
            hopper.fence_products()  # registers have been written since the first piece began
        while self.left:
            self._issue()

    def later(self, products: int) -> int:
        """How many groups the last so many products have by now."""
        return sum(self.groups[-products:]) if products else 0

    @contextmanager
    def branch(self) -> Iterator[None]:
        """What a branch starts it waits for, and what may not run counts for nothing behind it."""
        self.end()
        before = list(self.groups)
        yield
        self.end()
        self.groups = before
