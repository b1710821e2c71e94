# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emitting loops and vector code over flat memory: views, index arithmetic, loads and stores.

Sizes, offsets and indices are Python ints where they are known, `ir.Value`s where they are not;
arithmetic on ints folds here, so static tiles give straight code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.ir.bindings import arith, ir, memref, scf, vector

Index = Any  # int | ir.Value
BIG = 1 << 62  # size of flat views whose length nobody asks for
SEQUENTIAL = 7  # LLVM's number of the ordering `seq_cst`


@dataclass(frozen=True)
class MemoryView:
    """An array inside the flat `base`: element `[i, ...]` is at `offset + sum(i * stride)`.

    `kind` is the element type that the program sees (`i1` is stored as bytes). `slot` tells
    memory apart: views of different slots never overlap. Along dimension `padded` (stride 1)
    whole vectors may be read and written past the end. `within`: of a tile that lies in an array,
    how many elements there are along each dimension (None: all); no other memory is touched.
    `ahead`: how far behind an element that is the same of the next tile lies, to be fetched early.
    `soon`: what is written next at the same positions, whose memory is fetched with a read.
    `past`: whether (i1) what is made there is stored past the caches, or (True) that it is: whole
    vectors are aligned, and fill lines.
    """

    base: Any
    kind: Any
    offset: Index
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    slot: Any
    padded: int | None = None
    within: tuple[Index | None, ...] = ()
    ahead: Any = None
    soon: MemoryView | None = None
    past: Any = None

    @property
    def static(self) -> bool:
        return all(isinstance(n, int) for n in (*self.sizes, *self.strides))


class VectorEmitter:
    """Builds ops at the current insertion point. `lanes` is the length of every vector, `fma`
    whether there are fused multiply-adds."""

    def __init__(self, lanes: int, registers: int, entry: Any, fma: bool = True):
        self.lanes = lanes
        self.registers = registers
        self.fma = fma
        self.entry = entry
        self._constants: dict[Any, Any] = {}
        self.index = ir.IndexType.get()
        self.i1 = ir.IntegerType.get_signless(1)

    def doubled(self) -> VectorEmitter:
        """One whose vectors have twice as many elements: of 16 bits, they fill a register."""
        found = copy(self)
        found.lanes = 2 * self.lanes
        return found

    # --- constants and index arithmetic

    def constant(self, value: Any, kind: Any | None = None) -> Any:
        kind = kind or self.index
        key = (repr(value), kind)
        if key not in self._constants:
            with ir.InsertionPoint.at_block_begin(self.entry):
                if isinstance(kind, ir.VectorType):
                    element = _attribute(value, kind.element_type)
                    attribute = ir.DenseElementsAttr.get_splat(kind, element)
                else:
                    attribute = _attribute(value, kind)
                self._constants[key] = arith.ConstantOp(kind, attribute).result
        return self._constants[key]

    def value(self, x: Index) -> Any:
        return self.constant(x) if isinstance(x, int) else x

    def add(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(a, int) and a == 0:
            return b
        if isinstance(b, int) and b == 0:
            return a
        return arith.addi(self.value(a), self.value(b))

    def sub(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if isinstance(b, int) and b == 0 else arith.subi(self.value(a), self.value(b))

    def mul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        for x, other in ((a, b), (b, a)):
            if isinstance(x, int) and x in (0, 1):
                return other if x else 0
        return arith.muli(self.value(a), self.value(b))

    def quotient(self, a: Index, b: int) -> Index:
        """Of one that b divides."""
        return a // b if isinstance(a, int) else arith.divsi(a, self.constant(b))

    def minimum(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return arith.minsi(self.value(a), self.value(b))

    def maximum(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return arith.maxsi(self.value(a), self.value(b))

    def floor(self, a: Index, b: int) -> Index:
        """The quotient of a number that is not negative, rounded down."""
        return a // b if isinstance(a, int) else arith.divui(a, self.constant(b))

    def equal(self, a: Index, b: Index) -> Any:
        """A bool when known, else an i1."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return arith.cmpi(arith.CmpIPredicate.eq, self.value(a), self.value(b))

    def select(self, condition: Any, a: Index, b: Index) -> Index:
        if isinstance(condition, bool):
            return a if condition else b
        if isinstance(a, int) and isinstance(b, int) and a == b:
            return a
        return arith.select(condition, self.value(a), self.value(b))

    def either(self, condition: Any, a: Any, b: Any) -> Any:
        """One of two flat memories."""
        if isinstance(condition, bool):
            return a if condition else b
        kind = a.type
        if b.type != kind:
            b = memref.reinterpret_cast(kind, b, [], [], [], [0], [BIG], [1])
        return arith.select(condition, a, b)

    def negation(self, condition: Any) -> Any:
        if isinstance(condition, bool):
            return not condition
        return arith.xori(condition, self.constant(True, self.i1))

    def both(self, a: Any, b: Any) -> Any:
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return arith.andi(a, b)

    def affine(self, expression: Any, dims: Sequence[Index]) -> Index:
        """An affine expression without symbols, at these loop positions."""
        if isinstance(expression, ir.AffineConstantExpr):
            return int(expression.value)
        if isinstance(expression, ir.AffineDimExpr):
            return dims[expression.position]
        left = self.affine(expression.lhs, dims)
        right = self.affine(expression.rhs, dims)
        if isinstance(expression, ir.AffineAddExpr):
            return self.add(left, right)
        if isinstance(expression, ir.AffineMulExpr):
            return self.mul(left, right)
        make = {
            ir.AffineFloorDivExpr: arith.floordivsi,
            ir.AffineCeilDivExpr: arith.ceildivsi,
            ir.AffineModExpr: arith.remui,
        }[type(expression)]
        return make(self.value(left), self.value(right))

    # --- control flow

    def loop(
        self,
        low: Index,
        high: Index,
        step: Index,
        body: Callable[[Index, list[Any]], Sequence[Any]],
        carried: Sequence[Any] = (),
    ) -> list[Any]:
        """`for i in range(low, high, step)`: `body(i, carried)` gives what is carried on."""
        if isinstance(low, int) and isinstance(high, int) and isinstance(step, int):
            trips = max(0, -(-(high - low) // step))
            if trips == 0:
                return list(carried)
            if trips == 1:
                return list(body(low, list(carried)))
        made = scf.ForOp(self.value(low), self.value(high), self.value(step), list(carried))
        with ir.InsertionPoint(made.body):
            after = body(made.induction_variable, list(made.inner_iter_args))
            scf.YieldOp(list(after))
        return list(made.results_)

    def nest(
        self, ranges: Sequence[tuple[Index, Index, int]], body: Callable[[list[Index]], None]
    ) -> None:
        """Nested loops over `(low, high, step)`, the first outermost."""

        def level(k: int, position: list[Index]) -> None:
            if k == len(ranges):
                body(position)
                return

            def inner(i: Index, _: list[Any]) -> list[Any]:
                level(k + 1, [*position, i])
                return []

            low, high, step = ranges[k]
            self.loop(low, high, step, inner)

        level(0, [])

    def branch(
        self, condition: Any, then: Callable[[], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        if isinstance(condition, bool):
            if condition:
                then()
            elif otherwise:
                otherwise()
            return
        made = scf.IfOp(condition, [], has_else=otherwise is not None)
        with ir.InsertionPoint(made.then_block):
            then()
            scf.YieldOp([])
        if otherwise:
            with ir.InsertionPoint(made.else_block):
                otherwise()
                scf.YieldOp([])

    def choose(
        self, condition: Any, then: Callable[[], list[Any]], otherwise: Callable[[], list[Any]]
    ) -> list[Any]:
        """The i1 values that one of two branches gives."""
        made = scf.IfOp(condition, [self.i1], has_else=True)
        for block, values in ((made.then_block, then), (made.else_block, otherwise)):
            with ir.InsertionPoint(block):
                scf.YieldOp(values())
        return list(made.results)

    def either_view(self, condition: Any, a: MemoryView, b: MemoryView) -> MemoryView:
        """One of two tiles of a size."""
        return replace(
            a,
            base=self.either(condition, a.base, b.base),
            offset=self.select(condition, a.offset, b.offset),
            strides=tuple(
                self.select(condition, x, y) for x, y in zip(a.strides, b.strides, strict=True)
            ),
        )

    def fence(self) -> None:
        """What was stored past the caches is there for other threads."""
        kind = ir.IntegerType.get_signless(64)
        order = ir.IntegerAttr.get(kind, SEQUENTIAL)
        ir.Operation.create("llvm.fence", attributes={"ordering": order})

    # --- vectors

    def vector_type(self, kind: Any, lanes: int | None = None) -> Any:
        return ir.VectorType.get([lanes or self.lanes], kind)

    def splat(self, scalar: Any, lanes: int | None = None) -> Any:
        return vector.broadcast(self.vector_type(scalar.type, lanes), scalar)

    def iota(self, lanes: int | None = None) -> Any:
        lanes = lanes or self.lanes
        return self.row(range(lanes), self.vector_type(self.index, lanes))

    def row(self, numbers: Sequence[int], kind: Any) -> Any:
        """A vector of integers."""
        key = (tuple(numbers), kind)
        if key not in self._constants:
            with ir.InsertionPoint.at_block_begin(self.entry):
                elements = ir.DenseElementsAttr.get(
                    [ir.IntegerAttr.get(kind.element_type, k) for k in numbers], kind
                )
                self._constants[key] = arith.ConstantOp(kind, elements).result
        return self._constants[key]

    def mask(self, live: Index) -> Any:
        """The first `live` lanes (a mask; None when all are)."""
        if isinstance(live, int) and live >= self.lanes:
            return None
        if isinstance(live, int):
            kind = self.vector_type(self.i1)
            return vector.constant_mask(kind, [live])
        return vector.create_mask(self.vector_type(self.i1), [live])

    # --- memory

    def address(self, view: MemoryView, position: Sequence[Index]) -> Index:
        fixed, moving = 0, []
        for term in [view.offset] + [
            self.mul(i, s) for i, s in zip(position, view.strides, strict=True)
        ]:
            if isinstance(term, int):
                fixed += term
            else:
                moving.append(term)
        total: Index = 0
        for term in moving:
            total = self.add(total, term)
        return self.add(total, fixed)

    def load(self, view: MemoryView, position: Sequence[Index]) -> Any:
        raw = memref.load(view.base, [self.value(self.address(view, position))])
        return self._seen(raw, view)

    def store(self, view: MemoryView, position: Sequence[Index], scalar: Any) -> None:
        where = [self.value(self.address(view, position))]
        memref.store(self._stored(scalar, view), view.base, where)

    def load_vector(
        self, view: MemoryView, position: Sequence[Index], dim: int, live: Index | None = None
    ) -> Any:
        """`lanes` elements along `dim`; lanes from `live` on are zero (not touched)."""
        where = self.value(self.address(view, position))
        stored = ir.MemRefType(view.base.type).element_type
        kind, stride = self.vector_type(stored), view.strides[dim]
        if view.ahead is not None:  # not into the nearest cache, which holds this tile
            memref.PrefetchOp(view.base, [arith.addi(where, view.ahead)], False, 2, True)
        if view.soon is not None:
            self._fetch(view.soon, self.value(self.address(view.soon, position)))
        mask = None if live is None else self.mask(live)
        if isinstance(stride, int) and stride == 1:
            if mask is None:
                return self._seen(vector.load(kind, view.base, [where]), view)
            zero = self.constant(0, kind)
            return self._seen(vector.maskedload(kind, view.base, [where], mask, zero), view)
        offsets = self._offsets(stride)
        zero = self.constant(0, kind)
        every = mask or self.constant(True, self.vector_type(self.i1))
        return self._seen(vector.gather(kind, view.base, [where], offsets, every, zero), view)

    def store_vector(
        self,
        view: MemoryView,
        position: Sequence[Index],
        dim: int,
        value: Any,
        live: Index | None = None,
    ) -> None:
        where = self.value(self.address(view, position))
        stride = view.strides[dim]
        mask = None if live is None else self.mask(live)
        value = self._stored(value, view)
        if isinstance(stride, int) and stride == 1:
            if mask is None:
                past = view.past is True
                size = self.lanes * value.type.element_type.width // 8 if past else None
                vector.store(value, view.base, [where], nontemporal=past, alignment=size)
            else:
                vector.maskedstore(view.base, [where], mask, value)
            return
        every = mask or self.constant(True, self.vector_type(self.i1))
        vector.scatter(None, view.base, [where], self._offsets(stride), every, value)

    def _fetch(self, view: MemoryView, place: Any) -> None:
        """Have memory in the nearest cache that is written next, unless that goes past it."""

        def fetch() -> None:
            memref.PrefetchOp(view.base, [place], True, 3, True)

        if view.past is None:
            fetch()
        else:
            self.branch(view.past, lambda: None, fetch)

    def _offsets(self, stride: Index) -> Any:
        if isinstance(stride, int):
            return arith.muli(self.iota(), self.constant(stride, self.vector_type(self.index)))
        return arith.muli(self.iota(), self.splat(stride))

    def _seen(self, raw: Any, view: MemoryView) -> Any:
        """Bytes as the booleans that the program sees."""
        if raw.type == view.kind or view.kind != self.i1:
            return raw
        return arith.cmpi(arith.CmpIPredicate.ne, raw, self.constant(0, raw.type))

    def _stored(self, value: Any, view: MemoryView) -> Any:
        """Booleans as bytes; numbers as wide as memory holds them."""
        if view.kind != self.i1:
            return self.widened(value, view.kind)
        byte = ir.MemRefType(view.base.type).element_type
        kind = (
            self.vector_type(byte, value.type.shape[0])
            if isinstance(value.type, ir.VectorType)
            else byte
        )
        return arith.extui(kind, value)

    def widened(self, value: Any, kind: Any) -> Any:
        """A number, or a vector of them, as f32 if `kind` is and it is narrower."""
        wide = isinstance(value.type, ir.VectorType)
        element = value.type.element_type if wide else value.type
        if not isinstance(kind, ir.F32Type) or not isinstance(element, (ir.BF16Type, ir.F16Type)):
            return value
        return arith.extf(self.vector_type(kind, value.type.shape[0]) if wide else kind, value)

    def shifted(self, view: MemoryView, position: Sequence[Index]) -> MemoryView:
        """The same view with its origin at `position`."""
        return replace(view, offset=self.address(view, position))


def _attribute(value: Any, kind: Any) -> Any:
    if isinstance(kind, (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)):
        return ir.FloatAttr.get(kind, float(value))
    return ir.IntegerAttr.get(kind, int(value))
