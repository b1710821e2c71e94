# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile ops as the code of one thread: matrix products, elementwise ops, reductions, loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    element_bytes,
    element_of,
    reduction_of,
    shape_of,
)
from neptune_mlir.bindings import ir, scf
from neptune_mlir.transforms.distribute_memory import Memory, SharedTile, Threads
from neptune_mlir.transforms.distribute_scalars import Index, Scalars


@dataclass
class Held:
    """A tile in registers: one value per register of the layout."""

    layout: Layout
    values: list[Any]


@dataclass
class Splat:
    """A tile of one value (None: nothing was ever written)."""

    value: Any


@dataclass
class Pending:
    """A tile in global memory that nobody has read yet: loads it as a layout asks for."""

    load: Callable[[Layout], list[Any]]


Tile = Held | Splat | Pending | SharedTile


class Compute:
    """Emits the generics of a kernel. `scalar` gives a value of the tile program."""

    def __init__(self, s: Scalars, threads: Threads, memory: Memory, scalar: Callable[..., Any]):
        self.s, self.threads, self.memory, self.scalar = s, threads, memory, scalar

    # ---- tiles as registers

    def registers(self, tile: Tile, layout: Layout, dims: Sequence[int] | None = None) -> list[Any]:
        """The elements of `tile` that each register of `layout` needs.

        `dims`: which dimension of `layout` each dimension of the tile is (default: the same).
        """
        dims = tuple(range(len(layout.shape))) if dims is None else tuple(dims)
        if isinstance(tile, Splat):
            return [tile.value] * layout.registers
        if isinstance(tile, Held):
            sources = layout.sources(tile.layout, dims)
            assert sources is not None, "assign-layouts left a tile in another thread"
            return [tile.values[k] for k in sources]
        needed = layout.project(dims)
        if isinstance(tile, Pending):
            load = tile.load
            values = self.s.remember((id(tile), needed), lambda: load(needed))
        else:
            values = self.memory.load_shared(tile, self.threads.positions(needed))
        sources = layout.sources(needed, dims)
        assert sources is not None
        return [values[k] for k in sources]

    def convert(self, values: Sequence[Any], held: Layout, needed: Layout, dtype: str) -> list[Any]:
        """Move a tile between threads, through shared memory."""
        top = self.memory.top
        tile = self.to_shared(values, held, dtype)
        found = self.memory.load_shared(tile, self.threads.positions(needed))
        self.memory.release(top)
        return found

    def to_shared(self, values: Sequence[Any], held: Layout, dtype: str) -> SharedTile:
        layout = L.shared(held.shape, element_bytes(dtype))
        tile = SharedTile(layout, self.memory.take(layout.bytes), dtype)
        self.memory.barrier()
        self.memory.store_shared(tile, held, values)
        self.memory.barrier()
        return tile

    # ---- scalar bodies

    def evaluate(
        self, g: Generic, elements: Sequence[Any], position: Sequence[Index], wanted: Any = None
    ) -> Any:
        """The scalar code of one point; `wanted` is a value of the body (default: the yield)."""
        table = {a: e for a, e in zip(g.block.arguments, elements, strict=True) if e is not None}

        def value(v: Any) -> Any:
            if v in table:
                return table[v]
            op = v.owner.operation if not isinstance(v.owner, ir.Block) else None
            if op is None or op.block != g.block:
                return self.scalar(v)
            if op.name == "linalg.index":
                dim = ir.IntegerAttr(op.attributes["dim"]).value
                table[v] = self.s.value(position[dim])
            else:
                table[v] = self.s.clone(op, [value(o) for o in op.operands])
            return table[v]

        end = g.block.operations[len(g.block.operations) - 1].operation
        return value(end.operands[0] if wanted is None else wanted)

    def generic(self, g: Generic, tiles: Sequence[Tile], iteration: Layout) -> Held:
        """An elementwise op or reduction on registers. `tiles`: the inputs, then the init."""
        operands = [
            self.registers(t, iteration, loops) if g.is_read(k) else None
            for k, (t, loops) in enumerate(zip(tiles[:-1], g.maps[:-1], strict=True))
        ]
        positions = self.threads.positions(iteration)
        out = iteration.project(g.maps[-1])
        if not g.reduced:
            init = self.registers(tiles[-1], iteration, g.maps[-1]) if g.reads_init else None
            points = [
                self.evaluate(g, [*(o and o[r] for o in operands), init and init[r]], positions[r])
                for r in range(iteration.registers)
            ]
            return Held(out, points)
        return Held(out, self._reduce(g, tiles[-1], operands, positions, iteration, out))

    def _reduce(
        self, g: Generic, init: Tile, operands: Sequence[Any], positions: Sequence[Any],
        iteration: Layout, out: Layout,
    ) -> list[Any]:  # fmt: skip
        found = reduction_of(g)
        assert found is not None, "assign-layouts sends other reductions to a loop"
        name, inner = found
        groups = self._groups(iteration, g.maps[-1], out)
        results = []
        limits = [n if k in g.reduced else None for k, n in enumerate(iteration.shape)]
        padded = iteration.padded and any(
            (iteration.positions[..., k] >= iteration.shape[k]).any() for k in g.reduced
        )
        for members in groups:
            parts = []
            for r in members:
                value = self.evaluate(
                    g, [*(o and o[r] for o in operands), None], positions[r], inner
                )
                if padded:
                    inside = self.memory.in_bounds(positions[r], limits)
                    value = self.s.select(inside, value, self._identity(name, value.type))
                parts.append(value)
            results.append(self._across_lanes(name, self.s.reduce(name, parts), iteration, g))
        results = self._across_warps(name, results, iteration, g, out)
        start = self.registers(init, out)
        return [self.s.combine(name, a, b) for a, b in zip(start, results, strict=True)]

    def _groups(self, iteration: Layout, kept: Sequence[int], out: Layout) -> list[list[int]]:
        """The registers that go into each register of the result."""
        offsets = iteration.offsets(iteration.reg)[:, list(kept)]
        wanted = [tuple(o) for o in out.offsets(out.reg)]
        groups: dict[Any, list[int]] = {w: [] for w in wanted}
        for r, offset in enumerate(offsets):
            groups[tuple(offset)].append(r)
        return [groups[w] for w in wanted]

    def _across_lanes(self, name: str, value: Any, iteration: Layout, g: Generic) -> Any:
        for distance, d in iteration.digits_along(g.reduced, "lane"):
            step = 1
            while step < d.size:
                value = self.s.combine(name, value, self.shuffle(value, distance * step))
                step *= 2
        return value

    def shuffle(self, value: Any, distance: int) -> Any:
        """The value of the lane whose number differs in `distance`."""
        s = self.s
        kind = value.type
        if kind in (s.f32, s.i32):
            return self._shuffle_word(value, distance)
        if isinstance(kind, ir.IndexType):
            return s.value(self._shuffle_word(s.value(value, s.i32), distance))
        if isinstance(kind, ir.IntegerType) and kind.width < 32:
            wide = self._shuffle_word(s.op("arith.extui", [value], s.i32), distance)
            return s.op("arith.trunci", [wide], kind)
        if isinstance(kind, (ir.F16Type, ir.BF16Type)):
            wide = s.op("arith.extf", [value], s.f32)
            return s.op("arith.truncf", [self._shuffle_word(wide, distance)], kind)
        pair = s.op("llvm.bitcast", [value], ir.VectorType.get([2], s.i32))
        words = [self._shuffle_word(w, distance) for w in self.memory.unpack(pair, 2, s.i32)]
        return s.op("llvm.bitcast", [self.memory.pack(words)], kind)

    def _shuffle_word(self, value: Any, distance: int) -> Any:
        s = self.s
        everyone, width = s.constant(-1, s.i32), s.constant(31, s.i32)
        operands = [everyone, value, s.constant(distance, s.i32), width]
        return ir.Operation.create(
            "nvvm.shfl.sync", results=[value.type], operands=operands,
            attributes={"kind": ir.Attribute.parse("#nvvm<shfl_kind bfly>")},
        ).results[0]  # fmt: skip

    def _across_warps(
        self, name: str, values: list[Any], iteration: Layout, g: Generic, out: Layout
    ) -> list[Any]:
        """Combine what different warps reduced, through shared memory."""
        along = iteration.digits_along(g.reduced, "warp")
        if not along:
            return values
        s, memory = self.s, self.memory
        count = 1
        number: Index = 0
        for distance, d in along:
            digit = s.mod(s.div(self.threads.warp, distance), d.size)
            number = s.add(number, s.mul(digit, count))
            count *= d.size
        dtype = element_of(g.result)
        layout = L.shared((count, *out.shape), element_bytes(dtype))
        top = memory.top
        tile = SharedTile(layout, memory.take(layout.bytes), dtype)
        memory.barrier()
        positions = self.threads.positions(out)
        for value, position in zip(values, positions, strict=True):
            offset = s.add(memory.shared_offset(layout, [number, *position]), tile.offset)
            memory.store_element(
                memory.to_memory(value, dtype), memory.shared_pointer(offset), layout.element
            )
        memory.barrier()
        found = []
        for position in positions:
            parts = memory.load_shared(tile, [[k, *position] for k in range(count)])
            found.append(s.reduce(name, parts))
        memory.release(top)
        return found

    def _identity(self, name: str, kind: Any) -> Any:
        stem = name.removeprefix("arith.")
        if stem in ("addf", "mulf", "addi", "muli", "ori", "xori", "andi"):
            number = {"mulf": 1, "muli": 1, "andi": -1}.get(stem, 0)
            return self.s.constant(float(number) if stem.endswith("f") else number, kind)
        sign = -1 if stem.startswith("max") else 1
        if stem.endswith("f"):
            return self.s.constant(sign * float("inf"), kind)
        width = kind.width if isinstance(kind, ir.IntegerType) else 32
        return self.s.constant(-(1 << (width - 1)) if sign < 0 else (1 << (width - 1)) - 1, kind)

    # ---- loops over shared operands, for everything else

    def loop(self, g: Generic, tiles: Sequence[Tile], layout: Layout) -> Held:
        """A reduction in loops over its reduced axes; every input is read from shared memory."""
        s = self.s
        start = self.registers(tiles[-1], layout)
        positions = self.threads.positions(layout)
        body_of = g.maps[-1]

        def point(indices: dict[int, Index], r: int, accumulated: Any) -> Any:
            position: list[Index] = [0] * len(g.extents)
            for loop, p in zip(body_of, positions[r], strict=True):
                limit = g.extents[loop]
                position[loop] = s.minimum(p, limit - 1) if layout.padded else p
            for loop, p in indices.items():
                position[loop] = p
            elements: list[Any] = []
            for k, tile in enumerate(tiles[:-1]):
                if not g.is_read(k):
                    elements.append(None)
                elif isinstance(tile, SharedTile):
                    where = [position[loop] for loop in g.maps[k]]
                    elements.append(self.memory.load_shared(tile, [where])[0])
                else:
                    assert isinstance(tile, Splat)
                    elements.append(tile.value)
            return self.evaluate(g, [*elements, accumulated], position)

        def nest(
            remaining: Sequence[int], indices: dict[int, Index], carried: list[Any]
        ) -> list[Any]:
            if not remaining:
                return [point(indices, r, c) for r, c in enumerate(carried)]
            loop = scf.ForOp(s.value(0), s.value(g.extents[remaining[0]]), s.value(1), carried)
            with s.scope(loop.body):
                inner = {**indices, remaining[0]: loop.induction_variable}
                scf.YieldOp(nest(remaining[1:], inner, list(loop.inner_iter_args)))
            return list(loop.results)

        return Held(layout, nest(list(g.reduced), {}, start))

    # ---- matrix products

    def matrix(self, g: Generic, p: Contraction, tiles: Sequence[Tile], layout: Layout) -> Held:
        """`mma.sync` over 16x8x16 pieces; operands come from registers or by `ldmatrix`."""
        grid = self._grid(layout, g, p)
        dtype = element_of(g.inputs[p.a])
        m_count = -(-g.extents[p.m] // (16 * grid.m))
        n_count = g.extents[p.n] // grid.n // 8
        k_count = g.extents[p.k] // 16
        load_a = self._operand(g, p.a, tiles[p.a], "a", p, grid, dtype)
        load_b = self._operand(g, p.b, tiles[p.b], "b", p, grid, dtype)
        acc = list(self.registers(tiles[-1], layout))
        place = self._accumulator_places(layout, g.maps[-1], p, grid, g)
        for k in range(k_count):
            a = [load_a(m, k) for m in range(m_count)]
            for n in range(0, n_count, 2):
                width = min(2, n_count - n)
                b = load_b(n, k, width)
                for m in range(m_count):
                    for j in range(width):
                        where = place[m, n + j]
                        made = self._mma(a[m], b[2 * j : 2 * j + 2], [acc[r] for r in where], dtype)
                        for r, value in zip(where, made, strict=True):
                            acc[r] = value
        return Held(layout, acc)

    def _grid(self, layout: Layout, g: Generic, p: Contraction) -> L.WarpGrid:
        out = g.maps[-1]
        along = {d: 1 for d in (out.index(p.m), out.index(p.n))}
        for d in layout.warp:
            if d.dim is not None:
                along[d.dim] *= d.size
        return L.WarpGrid(along[out.index(p.m)], along[out.index(p.n)], layout.warps)

    def _accumulator_places(
        self, layout: Layout, out: Sequence[int], p: Contraction, grid: L.WarpGrid, g: Generic
    ) -> dict[tuple[int, int], list[int]]:
        """The 4 registers of the piece at (m, n), in the order of the instruction."""
        m_dim, n_dim = out.index(p.m), out.index(p.n)
        where = {
            (int(o[m_dim]), int(o[n_dim])): r for r, o in enumerate(layout.offsets(layout.reg))
        }
        found = {}
        for m in range(-(-g.extents[p.m] // (16 * grid.m))):
            for n in range(g.extents[p.n] // grid.n // 8):
                found[m, n] = [
                    where[16 * m + 8 * i, 8 * n + j] for i in range(2) for j in range(2)
                ]
        return found

    def _operand(
        self, g: Generic, k: int, tile: Tile, which: str, p: Contraction, grid: L.WarpGrid,
        dtype: str,
    ) -> Callable[..., list[Any]]:  # fmt: skip
        """A function from the place of a piece to its fragment, as vectors of 2."""
        loops, shape = g.maps[k], shape_of(g.inputs[k])
        free, deep = loops.index(p.m if which == "a" else p.n), loops.index(p.k)
        if isinstance(tile, SharedTile):
            steps = grid.m if which == "a" else grid.n
            return self._from_shared(tile, which, free, deep, shape[free] // steps, grid)
        make = L.operand_a if which == "a" else L.operand_b
        layout = make(shape, free, deep, grid)
        values = self.registers(tile, layout)
        where = {(int(o[free]), int(o[deep])): r for r, o in enumerate(layout.offsets(layout.reg))}

        def fragment(row: int, depth: int, width: int = 1) -> list[Any]:
            depths = [16 * depth, 16 * depth + 8]
            if which == "a":
                pairs = [(r, d) for d in depths for r in (16 * row, 16 * row + 8)]
            else:
                pairs = [(8 * (row + j), d) for j in range(width) for d in depths]
            return [
                self.memory.narrow([values[where[r, d]], values[where[r, d + 1]]]) for r, d in pairs
            ]

        return fragment

    def _from_shared(
        self, tile: SharedTile, which: str, free: int, deep: int, warp_step: int, grid: L.WarpGrid
    ) -> Callable[..., list[Any]]:
        """`ldmatrix` of 8x8 pieces; lanes 8i to 8i+7 give the rows of piece i."""
        s, threads = self.s, self.threads
        row_in_piece = s.mod(threads.lane, 8)
        low, high = s.mod(s.div(threads.lane, 8), 2), s.div(threads.lane, 16)
        # piece 1 and piece 2 stand 8 further along these dimensions
        first, second = (free, deep) if which == "a" else (deep, free)
        kind = ir.Type.parse(f"vector<2x{tile.dtype}>")
        number = threads.warp if which == "b" else s.mod(threads.warp, grid.m)
        if which == "b":
            number = s.mod(s.div(threads.warp, grid.m), grid.n)
        split = (grid.m if which == "a" else grid.n) > 1
        extent = tile.layout.shape[free]

        def fragment(row: int, depth: int, width: int = 2) -> list[Any]:
            lane_part: list[Index] = [0, 0]
            lane_part[0] = row_in_piece
            lane_part[first] = s.add(lane_part[first], s.mul(low, 8))
            if which == "a" and extent < 16:  # rows of padding repeat one that exists
                last = extent - 1 if free == 0 else (extent - 1) // 8 * 8
                lane_part[free] = s.minimum(lane_part[free], last)
            if width == 2:
                lane_part[second] = s.add(lane_part[second], s.mul(high, 8))
            constant = [0, 0]
            constant[free] = row * (16 if which == "a" else 8)
            constant[deep] = depth * 16
            if split:
                lane_part[free] = s.add(lane_part[free], s.mul(number, warp_step))
            step = warp_step if split and free == 1 else 0
            offset = self._piece_offset(tile, lane_part, constant, step)
            return self._ldmatrix(tile, offset, 2 * width, trans=deep == 0, kind=kind)

        return fragment

    def _piece_offset(
        self, tile: SharedTile, lane_part: Sequence[Index], constant: Sequence[int],
        column_step: int,
    ) -> Index:  # fmt: skip
        """Byte offset of the row that this lane gives, `constant` away from `lane_part`.

        Rows move by multiples of 8, so they keep their swizzle. Columns move by whole chunks: in
        the swizzled bits by exclusive or, where the lane's part leaves them free (but for the
        lowest, it does when warps stand whole swizzles, `column_step`, apart), above them by
        addition. So few addresses need a register; the rest is in the instruction.
        """
        s, layout = self.s, tile.layout
        start = self.memory.shared_offset
        chunk = constant[1] * layout.element // L.CHUNK
        swizzled = chunk & layout.mask
        apart = column_step * layout.element // L.CHUNK % (layout.mask + 1) == 0
        if layout.mask and (swizzled % 2 or not apart):
            moved = start(layout, [lane_part[0], s.add(lane_part[1], constant[1])])
            fixed = 0
        else:
            moved = s.xor(start(layout, list(lane_part)), swizzled * L.CHUNK)
            fixed = (chunk - swizzled) * L.CHUNK
        return s.add(s.add(moved, tile.offset), fixed + constant[0] * layout.pitch)

    def _ldmatrix(self, tile: SharedTile, offset: Index, count: int, trans: bool, kind: Any) -> Any:
        s = self.s
        order = "col" if trans else "row"
        words = ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * count)})>")
        loaded = ir.Operation.create(
            "nvvm.ldmatrix", results=[words], operands=[self.memory.shared_pointer(offset)],
            attributes={
                "num": ir.IntegerAttr.get(s.i32, count),
                "layout": ir.Attribute.parse(f"#nvvm.mma_layout<{order}>"),
                "eltType": ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
                "shape": ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
            },
        ).results[0]  # fmt: skip
        found = []
        for k in range(count):
            position = ir.DenseI64ArrayAttr.get([k])
            word = s.op("llvm.extractvalue", [loaded], s.i32, position=position)
            found.append(s.op("llvm.bitcast", [word], kind))
        return found

    def _mma(self, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any], dtype: str) -> list[Any]:
        s = self.s
        attributes = {
            "shape": ir.Attribute.parse("#nvvm.shape<m = 16, n = 8, k = 16>"),
            "layoutA": ir.Attribute.parse("#nvvm.mma_layout<row>"),
            "layoutB": ir.Attribute.parse("#nvvm.mma_layout<col>"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([4, 2, 4]),
        }
        for name in ("multiplicandAPtxType", "multiplicandBPtxType"):
            attributes[name] = ir.Attribute.parse(f"#nvvm.mma_type<{dtype}>")
        if dtype == "bf16":  # the op takes pairs of bfloats as words
            a, b = ([s.op("llvm.bitcast", [v], s.i32) for v in vs] for vs in (a, b))
        result = ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")
        made = ir.Operation.create(
            "nvvm.mma.sync", results=[result], operands=[*a, *b, *c], attributes=attributes
        ).results[0]
        return [
            s.op("llvm.extractvalue", [made], s.f32, position=ir.DenseI64ArrayAttr.get([k]))
            for k in range(4)
        ]
