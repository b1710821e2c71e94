# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile ops as the code of one thread: matrix products, elementwise ops, reductions, loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from neptune_mlir.algebra.combiners import identity_of
from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.body_forms import (
    asks_for_ends,
    picked_of,
    prefix_of,
    results_along,
    rough_tangents,
    shared_quotients,
)
from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    element_bytes,
    element_of,
    reduction_of,
    shape_of,
)
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.chip import Operand
from neptune_mlir.codegen.gpu.functions import TOGETHER, share_reciprocal
from neptune_mlir.codegen.gpu.memory import Memory
from neptune_mlir.codegen.gpu.quotients import share_divisors
from neptune_mlir.codegen.gpu.reductions.across_warps import across_warps
from neptune_mlir.codegen.gpu.reductions.picked import Picker
from neptune_mlir.codegen.gpu.reductions.prefixes import PrefixWriter
from neptune_mlir.codegen.gpu.rows.stashed import is_stored_once, read_layouts
from neptune_mlir.codegen.gpu.scalars import ScalarOp, Scalars
from neptune_mlir.codegen.gpu.tile_forms import (
    Anew,
    Arriving,
    Held,
    Pending,
    Pieces,
    Point,
    Splat,
    Tile,
    words_of,
)
from neptune_mlir.dialects.attributes import NARROWS, WIDENS
from neptune_mlir.dialects.gpu_attributes import INSTRUCTION, PARTIAL, TRIED
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.gpu import MatrixInstruction


def _steps(
    block: Any, arguments: Sequence[Any], wanted: Any
) -> tuple[list[tuple[Any, list[int]]], dict[Any, int]]:
    """What makes a value of the body of a tile op, in order, and the slot of each value.

    The arguments have the first slots, then each step has one: an op of the body and the slots of
    its operands, the dimension of a `linalg.index`, or a value from outside.
    """
    slots = {value: k for k, value in enumerate(arguments)}
    steps: list[tuple[Any, list[int]]] = []
    pending = [wanted]
    while pending:
        value = pending[-1]
        if value in slots:
            pending.pop()
            continue
        op, step, operands = defining_op(value), value, []
        if op is not None and op.block == block:
            if op.name == "linalg.index":
                step = ir.IntegerAttr(op.attributes["dim"]).value
            else:
                missing = [o for o in op.operands if o not in slots]
                if missing:
                    pending += reversed(missing)
                    continue
                operands, step = [slots[o] for o in op.operands], ScalarOp.of(op)
        slots[value] = len(slots)
        steps.append((step, operands))
    return steps, slots


def _together(kind: Any, layout: Layout) -> int:
    """How many elements of a tile a register carries: two 16-bit floats, four bytes, else one."""
    floats = isinstance(kind, (ir.F16Type, ir.BF16Type))
    count = 2 if floats else 4 if kind == ir.IntegerType.get_signless(8) else 1
    return count if layout.registers % count == 0 else 1


# neighbours in a chunk, at least; elements that are combined before more are read anew
CHUNKED, RUN = 4, 8

Interleaved = Callable[[Iterable[Any], int], Iterable[Any]]  # values, and how many


class Compute:
    """Emits the generics of a kernel. `scalar` gives a value of the tile program."""

    def __init__(self, s: Scalars, threads: Threads, memory: Memory, scalar: Callable[..., Any]):
        self.s, self.threads, self.memory, self.scalar = s, threads, memory, scalar
        self.parts: dict[Any, Any] = {}  # elements that were unpacked -> the word
        self.interleaved: Interleaved = lambda values, _: values  # with other instructions
        self.in_turn = False  # whether elements are loaded where they are used: registers are short

    # ---- tiles as registers

    def registers(
        self, tile: Tile, layout: Layout, dims: Sequence[int] | None = None
    ) -> Sequence[Any]:
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
        assert not isinstance(tile, Pieces), "a factor that something else reads"
        needed = layout.project(dims)
        if isinstance(tile, Pending):
            values = self.arriving(tile, needed).all()
        else:
            values = tile.read(self.memory, needed)
        sources = layout.sources(needed, dims)
        assert sources is not None
        if isinstance(values, Arriving) and list(sources) == list(range(len(values))):
            return values
        return [values[k] for k in sources]

    def arriving(self, tile: Pending, needed: Layout) -> Arriving:
        """The elements of a tile that a layout needs; those that were asked for before, if so."""
        arrive = partial(Arriving, tile.load(needed), needed.registers)
        found: Arriving = self.s.remember((id(tile), needed), arrive)
        return found

    def _one_by_one(
        self, tile: Tile, layout: Layout, dims: Sequence[int], anew: bool
    ) -> Callable[[int], Any]:
        """A function from a register of `layout` to its element of a tile; of one that is loaded
        only then, and has fewer dimensions, that is where it is asked for. (A row of numbers for
        all columns of an accumulator would take as many registers.)"""
        in_turn = anew or (self.in_turn and len(dims) < len(layout.shape))
        if not in_turn or not isinstance(tile, Pending):
            return self.registers(tile, layout, dims).__getitem__
        needed = layout.project(dims)
        found, sources = self.arriving(tile, needed), layout.sources(needed, tuple(dims))
        assert sources is not None
        return lambda register: found[sources[register]]

    def convert(self, values: Sequence[Any], held: Layout, needed: Layout, dtype: str) -> list[Any]:
        """Move a tile between threads: lanes exchange elements, or shared memory does."""
        crossing = L.crossing(needed, held)
        if crossing is not None:
            return self._exchange(values, crossing)
        top = self.memory.top
        tile = self.to_shared(values, held, dtype)
        found = self.memory.load_shared(tile, self.threads.existing(needed))
        self.memory.release(top)
        return found

    def _exchange(self, values: Sequence[Any], crossing: L.Crossing) -> list[Any]:
        s = self.s
        bit = s.mod(s.div(self.threads.lane, crossing.distance), 2)
        first = s.less(bit, 1)
        others: dict[int, Any] = {}

        def value(register: int, crossed: bool) -> Any:
            if not crossed:
                return values[register]
            if register not in others:
                others[register] = self.shuffle(values[register], crossing.distance)
            return others[register]

        return [
            value(*low) if low == high else s.select(first, value(*low), value(*high))
            for low, high in crossing.sources
        ]

    def to_shared(self, values: Sequence[Any], held: Layout, dtype: str) -> SharedTile:
        layout = L.shared(held.shape, element_bytes(dtype))
        tile = SharedTile(layout, self.memory.take(layout.bytes), dtype)
        self.memory.barrier()
        self.memory.store_shared(tile, held, values)
        self.memory.barrier()
        return tile

    # ---- tiles as loops and branches carry them: narrow elements share a register

    def carry(self, tile: Tile, kind: Any, layout: Layout) -> list[Any]:
        """The registers of a tile; zeros where nothing was ever written."""
        values = self.registers(tile, layout)
        values = [self.memory.zero(kind) if v is None else v for v in values]
        count = _together(kind, layout)
        return values if count == 1 else self.words(values, count)

    def words(self, values: Sequence[Any], count: int = 2) -> list[Any]:
        """Pairs of 16-bit floats, or `count` bytes, as words."""
        found = []
        for k in range(0, len(values), count):
            some = tuple(values[k : k + count])
            word = self.parts.get(some)
            if word is None and count == 4:
                (word,) = words_of(self.memory, some)
            elif word is None:
                word = self.s.op("llvm.bitcast", [self.memory.narrow(some)], self.s.i32)
            found.append(word)
        return found

    def carried_types(self, kind: Any, layout: Layout) -> list[Any]:
        """Those of what `carry` gives."""
        count = _together(kind, layout)
        return [kind if count == 1 else self.s.i32] * (layout.registers // count)

    def carried(self, values: list[Any], kind: Any, layout: Layout) -> Held:
        """The inverse of `carry`: takes from the front of `values`."""
        held = [values.pop(0) for _ in self.carried_types(kind, layout)]
        count = _together(kind, layout)
        if count > 1:
            several = ir.VectorType.get([count], kind)
            vectors = [self.s.op("llvm.bitcast", [word], several) for word in held]
            parts = [self.memory.unpack(some, count, kind) for some in vectors]
            self.parts.update({tuple(some): word for some, word in zip(parts, held, strict=True)})
            held = [v for some in parts for v in some]
        return Held(layout, held)

    # ---- scalar bodies

    def evaluate(self, g: Generic, points: Iterable[Point], wanted: Any = None) -> Iterator[Any]:
        """The scalar code of points of a tile op, one after the other in one block; `wanted` is a
        value of the body (default: the yield)."""
        if wanted is None:
            wanted = g.block.operations[len(g.block.operations) - 1].operation.operands[0]
        arguments = list(g.block.arguments)
        steps, slots = _steps(g.block, arguments, wanted)
        outside: dict[int, Any] = {}  # by slot
        for elements, position in points:
            table = list(elements)
            for step, operands in steps:
                if isinstance(step, ScalarOp):
                    table.append(self.s.clone(step, [table[k] for k in operands]))
                elif isinstance(step, int):
                    table.append(self.s.value(position[step]))
                else:
                    slot = len(table)
                    if slot not in outside:
                        outside[slot] = self.scalar(step)
                    table.append(outside[slot])
            yield table[slots[wanted]]

    def generic(self, g: Generic, tiles: Sequence[Tile], iteration: Layout) -> Held | Anew:
        """An elementwise op or reduction on registers. `tiles`: the inputs, then the init."""
        out = iteration.project(results_along(g))
        if WIDENS.on(g.op):
            (values,) = self._operands(g, tiles, iteration)
            kind = ir.RankedTensorType(g.result.type).element_type
            made = self.s.chip.widened(self.memory, WIDENS.of(g.op), values, kind)
            if made is not None:
                return Held(out, made)
        if NARROWS.on(g.op):
            (values,) = self._operands(g, tiles, iteration)
            made = self.s.chip.narrowed(self.memory, NARROWS.of(g.op), values)
            if made is not None:
                return Held(out, made)
        if not g.reduced:
            each = partial(self._elementwise, g, tiles, iteration)
            if any(isinstance(t, Anew) for t in tiles):
                if is_stored_once(g.result):
                    return Held(out, Arriving(each(), iteration.registers))
                if {*read_layouts(g.result)} == {out}:
                    return Anew(out, each)
            return Held(out, list(each()))
        operands, positions = self._operands(g, tiles, iteration), self._positions(g, iteration)
        if prefix := prefix_of(g):
            made = PrefixWriter(self, g, prefix, iteration).write(operands)
            start = self.registers(tiles[-1], out)
            joined = zip(start, made, strict=True)
            return Held(out, [self.s.combine(prefix.name, a, b) for a, b in joined])
        return Held(out, self._reduce(g, tiles[-1], operands, positions, iteration, out))

    def _elementwise(self, g: Generic, tiles: Sequence[Tile], iteration: Layout) -> Iterator[Any]:
        if shared := shared_quotients(g):
            yield from self._quotients(g, shared, tiles, iteration)
            return
        left = self._left_alone(g, tiles, iteration)
        points = self._in_turn(g, tiles, iteration, set(left))
        tangents = rough_tangents(g) if TRIED.on(g.op) else []
        made = self._together(g, tangents, points) if tangents else self.evaluate(g, points)
        found = iter(self.interleaved(made, iteration.registers - len(left)))
        for r in range(iteration.registers):
            yield left[r] if r in left else next(found)

    def _quotients(
        self, g: Generic, shared: Sequence[Any], tiles: Sequence[Tile], iteration: Layout
    ) -> Iterator[Any]:
        """The values of an elementwise op whose quotients have divisors in common."""
        point = self.points(g, tiles, iteration)
        run = RUN if any(isinstance(t, Anew) for t in tiles) else iteration.registers
        for start in range(0, iteration.registers, run):
            points = list(map(point, range(start, min(start + run, iteration.registers))))
            for op in shared:
                both = (self.evaluate(g, points, v) for v in op.operands)
                share_divisors(self.s, zip(*both, strict=True))
            yield from self.evaluate(g, points)

    def _together(
        self, g: Generic, tangents: Sequence[Any], points: Iterator[Point]
    ) -> Iterator[Any]:
        """The values of an elementwise op whose tangents share reciprocals."""
        while some := list(itertools.islice(points, TOGETHER)):
            for op in tangents:
                share_reciprocal(self.s, list(self.evaluate(g, some, op.operands[0])))
            yield from self.evaluate(g, some)

    def _in_turn(
        self, g: Generic, tiles: Sequence[Tile], iteration: Layout, without: Collection[int]
    ) -> Iterator[Point]:
        """`points`, whose elements are loaded in turn, `without` some registers."""
        positions = self._positions(g, iteration)
        anew = [t for t in tiles if isinstance(t, Anew)]
        reads = [
            self._one_by_one(t, iteration, loops, bool(anew)) if g.is_read(k) else None
            for k, (t, loops) in enumerate(zip(tiles[:-1], g.maps[:-1], strict=True))
        ]  # fmt: skip
        init = self.registers(tiles[-1], iteration, g.maps[-1]) if g.reads_init else None
        for r in range(iteration.registers):
            if r not in without:
                yield [*(read and read(r) for read in reads), init and init[r]], positions[r]

    def _left_alone(
        self, g: Generic, tiles: Sequence[Tile], iteration: Layout
    ) -> dict[int, Any]:
        """What an elementwise op leaves in registers that hold no element in any thread, where
        something of its type is there: nobody reads it."""
        kind = ir.RankedTensorType(g.result.type).element_type
        for tile, loops in zip(tiles if iteration.missing else (), g.maps, strict=False):
            if isinstance(tile, Held) and len(loops) == len(g.extents):
                values = self.registers(tile, iteration, loops)
                if all(values[r] is not None and values[r].type == kind for r in iteration.missing):
                    return {r: values[r] for r in iteration.missing}
        return {}

    def points(
        self, g: Generic, tiles: Sequence[Tile], iteration: Layout
    ) -> Callable[[int], Point]:  # fmt: skip
        """The elements of an elementwise op that a thread has, by register."""
        operands, positions = self._operands(g, tiles, iteration), self._positions(g, iteration)
        init = self.registers(tiles[-1], iteration, g.maps[-1]) if g.reads_init else None

        def point(r: int) -> Point:
            return [*(o and o[r] for o in operands), init and init[r]], positions[r]

        return point

    def _positions(self, g: Generic, iteration: Layout) -> Sequence[Any]:
        """Of each register, the position that the body of a tile op is told: of neighbours in a
        chunk that have one answer to all it asks, that of the first."""
        positions, last = self.threads.positions(iteration), len(iteration.shape) - 1
        run = iteration.chunk_along(last)
        if run < CHUNKED or not asks_for_ends(g, last, run):
            return positions
        return [positions[r - r % run] for r in range(len(positions))]

    def _operands(self, g: Generic, tiles: Sequence[Tile], iteration: Layout) -> list[Any]:
        """Registers of each input, where the op reads it."""
        return [
            self.registers(t, iteration, loops) if g.is_read(k) else None
            for k, (t, loops) in enumerate(zip(tiles[:-1], g.maps[:-1], strict=True))
        ]

    def _reduce(
        self, g: Generic, init: Tile, operands: Sequence[Any], positions: Sequence[Any],
        iteration: Layout, out: Layout,
    ) -> list[Any]:  # fmt: skip
        found = reduction_of(g)
        assert found is not None, "assign-layouts sends other reductions to a loop"
        name, inner = found
        groups = iteration.members(g.maps[-1], out)
        start = self.registers(init, out)
        results: list[Any] = []
        partial, everywhere = iteration.partial_like(g.reduced), self.threads.positions(iteration)
        limits = [n if k in g.reduced else None for k, n in enumerate(iteration.shape)]
        pick = picked_of(g, name, inner)
        picker = pick and Picker(pick, self, g, iteration)
        if picker and picker.suits:
            results = [
                picker.write(inner, operands, positions, some) if some else None
                for some in groups
            ]
        else:
            points = (
                ([*(o and o[r] for o in operands), None], positions[r])
                for members in groups
                for r in members
            )
            values = self.evaluate(g, points, inner)
            run = RUN if any(isinstance(o, Arriving) for o in operands) else iteration.registers
            for members in groups:
                parts, runs = list[Any](), list[Any]()
                for r in members:
                    if len(parts) == run:
                        runs, parts = [*runs, self.s.reduce(name, parts)], []
                    value = next(values)
                    if r in partial:
                        inside = self.memory.in_bounds(everywhere[partial[r]], limits)
                        value = self._inside(inside, name, value)
                    parts.append(value)
                results.append(self.s.reduce(name, [*runs, *parts]) if members else None)
        if not PARTIAL.on(g.op):  # see `defer-joins`
            results = [v and self._across_lanes(name, v, iteration, g) for v in results]
            along = [(n, d.size) for n, d in iteration.digits_along(g.reduced, "warp")]
            results = across_warps(self, name, results, along, element_of(g.result), out)
        return [
            a if b is None else self.s.combine(name, a, b)
            for a, b in zip(start, results, strict=True)
        ]

    def join(
        self, tile: Tile, dtype: Any, distances: Sequence[int], warps: Sequence[tuple[int, int]]
    ) -> Tile:  # fmt: skip
        """The sums of what threads hold apart: lanes that differ by these distances, and warps
        along these digits."""
        if not isinstance(tile, Held):  # zero in all lanes
            return tile
        values = list(tile.values)
        for k, value in enumerate(values):
            for distance in distances:
                value = self.s.combine("arith.addf", value, self.shuffle(value, distance))
            values[k] = value
        values = across_warps(self, "arith.addf", values, warps, dtype, tile.layout)
        return Held(tile.layout, values)

    def _across_lanes(self, name: str, value: Any, iteration: Layout, g: Generic) -> Any:
        value, k = self.s.unscaled(name, value)
        for distance, d in iteration.digits_along(g.reduced, "lane"):
            step = 1
            while step < d.size:
                value = self.s.combine(name, value, self.shuffle(value, distance * step))
                step *= 2
        return value if k is None else self.s.rescaled(value, k)

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
        return self.s.chip.exchange(self.s, value, distance)

    def _inside(self, inside: Any, name: str, value: Any) -> Any:
        """A value where it exists, else what changes no result; a square stays one, to be added."""
        a, b = self.s.parts(value, "arith.mulf") or (None, None)
        if name == "arith.addf" and a is not None and a == b:
            root = self.s.select(inside, a, self._identity(name, value.type))
            return self.s.multiply(root, root)
        return self.s.select(inside, value, self._identity(name, value.type))

    def _identity(self, name: str, kind: Any) -> Any:
        width = kind.width if isinstance(kind, ir.IntegerType) else 32
        return self.s.constant(identity_of(name, width), kind)

    # ---- matrix products

    def matrix(self, g: Generic, p: Contraction, tiles: Sequence[Tile], layout: Layout) -> Held:
        """Matrix instructions, piece by piece; operands come from registers or shared memory."""
        chip, i = self.s.chip, self.instruction(g)
        grid = self.warp_grid(layout, g, p)
        m_count = -(-g.extents[p.m] // (i.m * grid.m))
        n_count = -(-g.extents[p.n] // (i.n * grid.n))
        load_a = self._operand(g, p.a, tiles[p.a], "a", p, grid, i)
        load_b = self._operand(g, p.b, tiles[p.b], "b", p, grid, i)
        values = self.registers(tiles[-1], layout)
        places = self._accumulator_places(layout, g.maps[-1], p, i, m_count, n_count)
        acc = {at: chip.accumulator(self.memory, [values[r] for r in where], i.together)
               for at, where in places.items()}  # fmt: skip
        for k in range(g.extents[p.k] // i.k):
            # fragments of the rows, which the program has few of, wait for those of the columns
            if i.chain == "a":
                a = [load_a(m, k, 1)[0] for m in range(m_count)]
                for n in range(0, n_count, chip.columns):
                    b = load_b(n, k, min(chip.columns, n_count - n))
                    for m in range(m_count):
                        for j, fragment in enumerate(b, n):
                            acc[m, j] = chip.multiply(self.s, i, a[m], fragment, acc[m, j])
            else:
                b = load_b(0, k, n_count)
                for m in range(m_count):
                    (fragment,) = load_a(m, k, 1)
                    for n in range(n_count):
                        acc[m, n] = chip.multiply(self.s, i, fragment, b[n], acc[m, n])
        result: list[Any] = [None] * layout.registers
        for at, where in places.items():
            elements = chip.elements(self.memory, acc[at], len(where))
            for r, value in zip(where, elements, strict=True):
                result[r] = value
        return Held(layout, result)

    def pieces(self, g: Generic, p: Contraction, k: int, tile: Tile, layout: Layout) -> Pieces:
        """Input k of a matrix product, as its instructions take it."""
        i, grid = self.instruction(g), self.warp_grid(layout, g, p)
        which, free, step = ("a", p.m, i.m * grid.m) if k == p.a else ("b", p.n, i.n * grid.n)
        load = self._operand(g, k, tile, which, p, grid, i)
        places = itertools.product(range(-(-g.extents[free] // step)), range(g.extents[p.k] // i.k))
        return Pieces({(row, depth): load(row, depth, 1)[0] for row, depth in places})

    def instruction(self, g: Generic) -> MatrixInstruction:
        """The matrix instruction that assign-layouts chose for a product."""
        return self.s.chip.target.instruction(INSTRUCTION.of(g.op))

    def warp_grid(self, layout: Layout, g: Generic, p: Contraction) -> L.WarpGrid:
        out = g.maps[-1]
        along = {d: 1 for d in (out.index(p.m), out.index(p.n))}
        for d in layout.warp:
            if d.dim is not None:
                along[d.dim] *= d.size
        return L.WarpGrid(along[out.index(p.m)], along[out.index(p.n)], layout.warps)

    def _accumulator_places(
        self, layout: Layout, out: Sequence[int], p: Contraction, i: MatrixInstruction,
        m_count: int, n_count: int,
    ) -> dict[tuple[int, int], list[int]]:  # fmt: skip
        """The registers of the piece at (m, n), in the order of the instruction."""
        m_dim, n_dim = out.index(p.m), out.index(p.n)
        where = {
            (int(o[m_dim]), int(o[n_dim])): r for r, o in enumerate(layout.offsets(layout.reg))
        }
        piece = L.fragment_offsets(i.c, "m", "n")
        return {
            (m, n): [where[i.m * m + row, i.column(n) + column] for row, column in piece]
            for m in range(m_count)
            for n in range(n_count)
        }

    def operand_of(
        self, g: Generic, k: int, which: str, p: Contraction, grid: L.WarpGrid,
        i: MatrixInstruction,
    ) -> Operand:  # fmt: skip
        loops, shape = g.maps[k], shape_of(g.inputs[k])
        free, deep = loops.index(p.m if which == "a" else p.n), loops.index(p.k)
        layout = (L.operand_a if which == "a" else L.operand_b)(shape, free, deep, grid, i)
        return Operand(which, free, deep, layout, grid, i)

    def _operand(
        self, g: Generic, k: int, tile: Tile, which: str, p: Contraction, grid: L.WarpGrid,
        i: MatrixInstruction,
    ) -> Callable[[int, int, int], list[Any]]:  # fmt: skip
        """A function from the place of pieces (along m or n, along k, how many) to fragments."""
        if isinstance(tile, Pieces):
            return lambda row, depth, count: [
                tile.pieces[at, depth] for at in range(row, row + count)
            ]
        chip, operand = self.s.chip, self.operand_of(g, k, which, p, grid, i)
        free, deep, layout = operand.free, operand.deep, operand.layout
        if not isinstance(tile, (Held, Splat, Pending)):
            return tile.operand(self.threads, self.memory, operand)
        values = self.registers(tile, layout)
        where = {(int(o[free]), int(o[deep])): r for r, o in enumerate(layout.offsets(layout.reg))}
        piece = L.fragment_offsets(*((i.a, "m", "k") if which == "a" else (i.b, "n", "k")))

        def start(at: int) -> int:
            return i.m * at if which == "a" else i.column(at)

        def fragments(row: int, depth: int, count: int) -> list[Any]:
            return [
                chip.fragment(
                    self.memory,
                    [values[where[start(at) + r, i.depth(depth) + c]] for r, c in piece],
                    i.together if which == "a" else 1,
                )
                for at in range(row, row + count)
            ]

        return fragments
