# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Register-blocked code for a contraction of tiles: `c[...] += a[...] * b[...]`.

One loop of the output becomes vector lanes (`v`); the operand that has it is read as vectors, the
other one as broadcast scalars. `rows x vectors` accumulators stay in registers over the summed
loops. The operand read as vectors should be contiguous along `v`: `wanted_layout` tells the
buffer planner, and where that failed the operand is packed first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.tile_bands import Band
from neptune_mlir.codegen.cpu.tile_ops import Allocate, TileGeneric, TileOperand
from neptune_mlir.ir.bindings import arith, ir, vector

_FEW_ROWS = 4  # with fewer rows than this, packing an operand costs more than it saves


@dataclass
class TileContraction:
    """`a` is broadcast, `b` is read as vectors along loop `v`; `kind` is what is summed in.
    `bands`: of its loops, outside of which no point is needed; and what `y - x` is there at most.
    """

    generic: TileGeneric
    a: TileOperand
    b: TileOperand
    c: TileOperand
    v: int
    kind: Any
    bands: tuple[tuple[Band, Index], ...] = ()

    @property
    def rows(self) -> list[int]:
        """Loops of the output that `a` alone has."""
        g = self.generic
        return [d for d in range(len(g.extents)) if not g.reduced[d] and not self.b.uses(d)]

    @property
    def many_rows(self) -> bool:
        """Whether b is read often enough to be packed first."""
        known = [n for n in (self.generic.extents[d] for d in self.rows) if isinstance(n, int)]
        return len(known) < len(self.rows) or math.prod(known) >= _FEW_ROWS

    def live_rows(self, em: VectorEmitter) -> Index:
        """How many rows there are of the one loop that has them."""
        g, (m,) = self.generic, self.rows
        if g.live and g.live[m] is not None:
            return em.sub(g.end(em, m, g.extents[m]), g.lows[m])
        return g.extents[m]

    @property
    def blocked_rows(self) -> list[int]:
        """That of these loops which goes by blocks, if there is any."""
        extents = [n if isinstance(n, int) else math.inf for n in self.generic.extents]
        return [max(self.rows, key=lambda d: extents[d])] if self.rows else []


_CASTS = ("arith.extf", "arith.truncf")


def product_operands(block: Any) -> list[tuple[int, tuple[Any, ...]]] | None:
    """Positions of a and b when the body is `yield acc + a * b`, and the types that each is cast
    to on the way."""
    ops = [op.operation for op in block.operations]
    if len(block.arguments) != 3 or any(
        op.name not in (*_CASTS, "arith.mulf", "arith.addf", "linalg.yield") for op in ops
    ):
        return None
    acc = block.arguments[2]
    total = ops[-1].operands[0]
    if isinstance(total, ir.BlockArgument) or total.owner.operation.name != "arith.addf":
        return None
    terms = list(total.owner.operation.operands)
    products = [t for t in terms if t != acc]
    if len(products) != 1 or isinstance(products[0], ir.BlockArgument):
        return None
    product = products[0].owner.operation
    if product.name != "arith.mulf":
        return None
    pair = [_cast_argument(value, block) for value in product.operands]
    factors = [found for found in pair if found is not None and found[0] < 2]
    return factors if len({k for k, _ in factors}) == 2 else None


def _cast_argument(value: Any, block: Any) -> tuple[int, tuple[Any, ...]] | None:
    """The argument that a value is, and what it is cast to, in order."""
    casts: list[Any] = []
    while not isinstance(value, ir.BlockArgument):
        op = value.owner.operation
        if op.name not in _CASTS or op.block != block:
            return None
        casts.insert(0, value.type)
        value = op.operands[0]
    return (int(value.arg_number), tuple(casts)) if value.owner == block else None


def match(generic: TileGeneric) -> TileContraction | None:
    """The contraction that this generic is, when vectors along a loop of `c` serve it well."""
    if len(generic.outputs) != 1 or generic.outputs[0].view is None:
        return None
    pair = product_operands(generic.body)
    plain = all(isinstance(e, ir.AffineDimExpr) for o in generic.operands for e in o.index)
    if pair is None or not plain:
        return None
    first, second = (replace(generic.inputs[k], casts=casts) for k, casts in pair)
    c = generic.outputs[0]
    assert c.view is not None
    if first.view is None or second.view is None or not any(generic.reduced):
        return None
    units = [e.position for e, s in zip(c.index, c.view.strides, strict=True) if s == 1]
    for v in reversed(units):
        for a, b in ((first, second), (second, first)):
            if b.uses(v) and not a.uses(v):
                return TileContraction(generic, a, b, c, v, c.view.kind)
    return None


def wanted_layout(c: TileContraction) -> int | None:
    """The dimension of b's buffer that should be contiguous (None: as it is)."""
    return c.b.position_of(c.v) if c.many_rows else None


def worthwhile(c: TileContraction) -> bool:
    """False when the plain reduction does better: few rows, and b lies the other way."""
    assert c.b.view is not None
    ready = c.b.view.strides[c.b.position_of(c.v)] == 1  # type: ignore[index]
    return ready or wanted_layout(c) is not None


def lower_contraction(
    em: VectorEmitter, c: TileContraction, allocate: Allocate, start: Any = None,
    seldom: bool = False,
) -> None:  # fmt: skip
    """Emit the loops at the current insertion point. With `start` (a scalar) the output begins
    as that everywhere; else it is added to. `seldom`: short code counts, and not its speed."""
    a, b = c.a, c.b
    assert a.view is not None and b.view is not None
    dim = b.position_of(c.v)
    assert dim is not None
    if a.view.kind != c.kind or len(a.casts) > 1:
        a = _pack(em, c, a, len(a.index) - 1, allocate)
    if b.view.strides[dim] != 1 or len(b.casts) > 1:
        b = _pack(em, c, b, dim, allocate)
    Blocks(em, replace(c, a=a, b=b), start, seldom).run()


def _pack(
    em: VectorEmitter, c: TileContraction, o: TileOperand, inner: int, allocate: Allocate
) -> TileOperand:
    """A copy of an operand in the type that is summed in, contiguous along `inner`."""
    assert o.view is not None
    g = c.generic
    loops = [e.position for e in o.index]
    shape = tuple(g.extents[d] for d in loops)
    origin = em.shifted(o.view, [g.lows[d] for d in loops])
    target = allocate(c.kind, shape, inner)
    # vectors go along the dimension that is contiguous in the source
    along = max(range(len(shape)), key=lambda k: (origin.strides[k] == 1, k == inner, k))
    others = [k for k in range(len(shape)) if k != along]

    def row(position: list[Index]) -> None:
        where: list[Index] = [0] * len(shape)
        for k, i in zip(others, position, strict=True):
            where[k] = i

        def move(i: Index, live: int | None) -> None:
            where[along] = i
            value = em.load_vector(origin, where, along, None if origin.padded == along else live)
            for kind in o.casts:
                value = _cast(em, value, kind)
            em.store_vector(target, where, along, value, None if target.padded == along else live)

        _each_vector(em, shape[along], move)

    em.nest([(0, shape[k], 1) for k in others], row)
    return TileOperand(
        replace(target, offset=em.sub(
            target.offset, em.address(replace(target, offset=0), [g.lows[d] for d in loops])
        )),
        None,
        o.index,
    )  # fmt: skip


def _cast(em: VectorEmitter, value: Any, kind: Any) -> Any:
    """A vector in another float type, if it is not in that type already."""
    held = value.type.element_type
    if held == kind:
        return value
    make = arith.truncf if held.width > kind.width else arith.extf
    return make(em.vector_type(kind), value)


def _each_vector(em: VectorEmitter, extent: int, body: Callable[[Index, int | None], None]) -> None:
    whole = extent // em.lanes * em.lanes

    def one(i: Index, _: list[Any]) -> list[Any]:
        body(i, None)
        return []

    em.loop(0, whole, em.lanes, one)
    if whole < extent:
        body(whole, extent - whole)


def choose_block(rows: int, vectors: int, registers: int) -> tuple[int, int]:
    """How many rows and vectors of accumulators to hold: least time per summed element.

    A core starts two multiply-adds and two loads a cycle, and a multiply-add takes four cycles.
    """

    def time(r: int, n: int) -> float:
        return max(r * n / 2, (r + n) / 2, 4.0) + 0.25

    best: tuple[float, int, int] | None = None
    for n in range(1, min(vectors, 6) + 1):
        for r in range(1, min(rows, 16) + 1):
            if r * n + n + 1 > registers:
                continue
            total = 0.0
            for row_count, row_size in ((rows // r, r), (1 if rows % r else 0, rows % r)):
                for count, size in ((vectors // n, n), (1 if vectors % n else 0, vectors % n)):
                    if row_count * count:
                        total += row_count * count * time(row_size, size)
            if best is None or (total, -r) < (best[0], -best[1]):
                best = (total, r, n)
    assert best is not None
    return best[1], best[2]


class Blocks:
    def __init__(
        self, em: VectorEmitter, c: TileContraction, start: Any, seldom: bool = False
    ):  # fmt: skip
        self.em, self.c, self.g, self.start = em, c, c.generic, start
        self.seldom = seldom
        g = self.g
        self.m = next(iter(c.blocked_rows), None)
        self.outer = [
            d for d in range(len(g.extents)) if not g.reduced[d] and d not in (self.m, c.v)
        ]
        self.summed = [d for d in range(len(g.extents)) if g.reduced[d]]
        self.position: list[Index] = list(g.lows)
        self.sizes = [1] * len(g.extents)  # how far a block goes from the position

    def run(self) -> None:
        em, g, c = self.em, self.g, self.c
        rows = 1 if self.m is None else g.extents[self.m]
        extent = g.extents[c.v]
        vectors = -(-extent // em.lanes)
        mr, nr = choose_block(rows, vectors, em.registers)
        if self.seldom:  # whole blocks alone, where there are such
            mr = math.gcd(rows, 4)
            nr = math.gcd(vectors, 2)
        live = None  # rows
        if self.m is not None and g.live and g.live[self.m] is not None:
            live = em.sub(g.end(em, self.m, rows), g.lows[self.m])

        def at(position: list[Index]) -> None:
            for d, i in zip(self.outer, position, strict=True):
                self.position[d] = i
            whole = extent // (nr * em.lanes) * nr  # vectors in whole blocks

            def columns(j: Index, size: int) -> None:
                self.position[c.v], self.sizes[c.v] = em.add(g.lows[c.v], j), size * em.lanes
                for low, high, step in ((0, rows // mr * mr, mr), (rows // mr * mr, rows, 0)):
                    size_m = step or high - low

                    def block(i: Index, _: list[Any], size_m: int = size_m) -> list[Any]:
                        if self.m is not None:
                            self.position[self.m] = em.add(g.lows[self.m], i)
                            self.sizes[self.m] = size_m
                        self._block(size_m, size, extent - j if isinstance(j, int) else None)
                        return []

                    end = high if live is None else em.minimum(high, live)
                    if size_m:
                        em.loop(*self._near(self.m, low, end, size_m, (c.v,)), size_m, block)

            def whole_columns(j: Index, _: list[Any]) -> list[Any]:
                columns(j, nr)
                return []

            em.loop(0, whole * em.lanes, nr * em.lanes, whole_columns)
            if whole < vectors:
                columns(whole * em.lanes, vectors - whole)

        em.nest([(g.lows[d], em.add(g.lows[d], g.extents[d]), 1) for d in self.outer], at)

    @property
    def _placed(self) -> tuple[int, ...]:
        """The loops along which a block has a place."""
        return (self.c.v,) if self.m is None else (self.c.v, self.m)

    def _near(
        self, d: int | None, low: Index, high: Index, step: int, known: tuple[int, ...]
    ) -> tuple[Index, Index]:
        """The part of a loop, from its start on, that bands leave of a block whose place along the
        loops `known` is known: whole steps."""
        em = self.em
        for band, most in self.c.bands:
            other = {band.x: band.y, band.y: band.x}.get(-1 if d is None else d)
            if d is None or other not in known:
                continue
            first = em.sub(self.position[other], self.g.lows[d])
            if d == band.y:
                high = em.minimum(high, em.add(em.add(first, self.sizes[other]), most))
            else:
                skipped = em.maximum(em.sub(em.sub(first, most), low), 0)
                whole = em.mul(em.floor(skipped, step), step)
                low = em.add(low, whole)
        return low, high

    def _at(self, o: TileOperand) -> MemoryView:
        assert o.view is not None
        return self.em.shifted(o.view, [self.position[e.position] for e in o.index])

    def _where(self, o: TileOperand, offsets: dict[int, int]) -> list[Index]:
        return [offsets.get(e.position, 0) for e in o.index]

    def _live(self, o: TileOperand, n: int, remaining: int | None) -> int | None:
        """Lanes of vector `n` of a block that may be touched."""
        assert o.view is not None
        if remaining is None or o.view.padded == o.position_of(self.c.v):
            return None
        live = remaining - n * self.em.lanes
        return live if live < self.em.lanes else None

    def _column(
        self, b: MemoryView, n: int, summed: dict[int, int], remaining: int | None
    ) -> Any:  # fmt: skip
        """The n-th vector of a row of B, at offsets of summed loops, in the type of C."""
        em, c = self.em, self.c
        dim = c.b.position_of(c.v)
        assert dim is not None
        where = self._where(c.b, {c.v: n * em.lanes, **summed})
        return self.column(b, where, dim, self._live(c.b, n, remaining))

    def column(self, b: MemoryView, where: list[Index], dim: int, live: int | None) -> Any:
        """A vector of B in the type that is multiplied."""
        em, c = self.em, self.c
        column = em.load_vector(b, where, dim, live)
        wide = column.type.element_type != c.kind
        return arith.extf(em.vector_type(c.kind), column) if wide else column

    def added(self, scalar: Any, column: Any, total: Any) -> Any:
        """A vector of sums and one product more."""
        return vector.fma(scalar, column, total)

    def _block(self, mr: int, nr: int, remaining: int | None) -> None:
        """Accumulate `mr x nr` vectors at the current position over all summed loops."""
        em, c, g = self.em, self.c, self.g
        for d in self.summed:
            self.position[d] = g.lows[d]
        lanes = [n * em.lanes for n in range(nr)]
        out = self._at(c.c)
        dim = c.c.position_of(c.v)
        assert dim is not None

        def corner(r: int, n: int) -> list[Index]:
            offsets = {c.v: lanes[n]}
            if self.m is not None:
                offsets[self.m] = r
            return self._where(c.c, offsets)

        cells = [(r, n) for r in range(mr) for n in range(nr)]
        if self.start is None:
            start = [
                em.load_vector(out, corner(r, n), dim, self._live(c.c, n, remaining))
                for r, n in cells
            ]
        else:
            start = [em.splat(self.start)] * len(cells)
        inner = self.summed[-1]
        unrolls = (1,) if self.seldom else (4, 2, 1)
        unroll = next(u for u in unrolls if g.extents[inner] % u == 0)

        def step(k: Index, values: list[Any]) -> list[Any]:
            self.position[inner] = k
            a, b = self._at(c.a), self._at(c.b)
            for u in range(unroll):
                columns = [self._column(b, n, {inner: u}, remaining) for n in range(nr)]
                for r in range(mr):
                    offsets = {inner: u}
                    if self.m is not None:
                        offsets[self.m] = r
                    scalar = em.splat(em.load(a, self._where(c.a, offsets)))
                    for n in range(nr):
                        values[r * nr + n] = self.added(scalar, columns[n], values[r * nr + n])
            return values

        def level(depth: int, values: list[Any]) -> list[Any]:
            d = self.summed[depth]
            low, high = g.lows[d], em.add(g.lows[d], g.extents[d])
            if d == inner:
                if isinstance(low, int):
                    first, end = self._near(d, 0, g.extents[d], unroll, self._placed)
                    low, high = em.add(low, first), em.add(low, end)
                return em.loop(low, high, unroll, step, values)

            def body(i: Index, carried: list[Any]) -> list[Any]:
                self.position[d] = i
                return level(depth + 1, carried)

            return em.loop(low, high, 1, body, values)

        final = level(0, start)
        for (r, n), value in zip(cells, final, strict=True):
            em.store_vector(out, corner(r, n), dim, value, self._live(c.c, n, remaining))
