# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `reorder-sums`: scalar loops that add up floats go through their elements in another order.

For the program as written, with which fused ones are compared: nothing says in which order a sum
adds up its elements, and a program that is exact in one order only is so by luck
(`algebra/numerics/orders.py`). `order` is the number of one; 0 changes nothing. A loop adds up
where its only store is of a sum of floats, at a place that the loop's index does not choose.
Nor does anything say whether a product is rounded before it is added up: odd orders let it be a
part of one fused multiply-add. Other products are rounded as written, for y - b x is no sum. The
last orders add up in parts, as tiles and vectors do: a few elements first, or every other one, then
what these make; or what is above 0 beside what is below. One adds up in f64, and rounds once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.algebra.numerics.orders import EXACT, HALVES, PARTS, SIGNS, block_of, way_of
from neptune_mlir.ir.bindings import arith, ir, math, memref, scf
from neptune_mlir.ir.values import made_from
from neptune_mlir.transforms.registry import register


@register("reorder-sums", "let scalar loops that add up floats take another order")
def reorder_sums(module: Any, *, order: int = 0) -> None:
    loops: list[tuple[Any, Any]] = []

    def visit(op: Any) -> Any:
        if op.name == "scf.for" and (store := _sum_of(op)):
            loops.append((op, store))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    in_blocks: list[Any] = []
    for number, (loop, store) in enumerate(loops if order else ()):
        if order % 2:
            _contract(store)
        inner = store not in in_blocks  # of a sum's loops
        if order == SIGNS and inner:
            in_blocks.append(store)
            _part_signs(loop, store)
        if order == EXACT and inner:
            in_blocks.append(store)
            _add_exactly(loop, store)
        if order == HALVES and inner:
            in_blocks.append(store)
            _halve(loop)
            _add_blocks(loop, store, None)
            continue
        _turn(loop, *way_of(number, order))
        if block_of(order) > 1 and inner:
            in_blocks.append(store)
            _add_blocks(loop, store, block_of(order))


def _sum_of(loop: Any) -> Any:
    """The only store of a loop that adds up."""
    stores: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "memref.store":
            stores.append(op)
        return ir.WalkResult.ADVANCE

    loop.operation.walk(visit)
    if len(stores) != 1 or len(loop.operation.results):
        return None
    value, _, *places = stores[0].operands
    is_sum = isinstance(value.owner, ir.Operation | ir.OpView) and value.owner.name == "arith.addf"
    index = loop.regions[0].blocks[0].arguments[0]
    found = is_sum and index not in made_from(places)
    return stores[0] if found else None


def _contract(store: Any) -> None:
    """A sum and its product are rounded once, in f32 however little LLVM optimises: -inf plus a
    product that overflows is -inf then, not NaN. (In f64 `round-floats` may round both.)"""
    total = store.operands[0].owner
    if total.name != "arith.addf":  # of an outer loop, too
        return
    products = [
        v.owner for v in total.operands
        if not isinstance(v.owner, ir.Block) and v.owner.name == "arith.mulf"
    ]  # fmt: skip
    if products and isinstance(total.results[0].type, ir.F32Type):
        with ir.InsertionPoint(total), total.location:
            a, b = total.operands
            rest = a if b == products[-1].results[0] else b
            store.operands[0] = math.fma(*products[-1].operands, rest)
        return
    for op in (total, *products):
        op.attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<contract>", op.context)


def _turn(loop: Any, start: int, back: bool) -> None:
    """Element k of [low, high) is read where k was: behind `start` parts of the length, round the
    end, from there on forwards or backwards."""
    body = loop.regions[0].blocks[0]
    index, (low, high, step) = body.arguments[0], list(loop.operands)[:3]
    uses = [(use.owner, use.operand_number) for use in index.uses]
    with ir.InsertionPoint.at_block_begin(body), loop.location:
        kind = index.type
        length = arith.subi(high, low)
        parts, many = (arith.constant(kind, n) for n in (start, PARTS))
        steps = arith.divui(length, step)
        shift = arith.muli(arith.divui(arith.muli(steps, parts), many), step)
        at = arith.subi(arith.subi(high, step), index) if back else arith.subi(index, low)
        moved = arith.remui(arith.addi(at, shift), length)
        place = arith.addi(moved, low)
    for owner, number in uses:
        owner.operands[number] = place


def _halve(loop: Any) -> None:
    """Every other element comes first, then what is left."""
    body = loop.regions[0].blocks[0]
    index, (low, _, step) = body.arguments[0], list(loop.operands)[:3]
    uses = [(use.owner, use.operand_number) for use in index.uses]
    with ir.InsertionPoint.at_block_begin(body), loop.location:
        half = _half(loop)
        one, two = (arith.constant(index.type, n) for n in (1, 2))
        number = arith.divui(arith.subi(index, low), step)
        rest = arith.addi(arith.muli(arith.subi(number, half), two), one)
        early = arith.cmpi(arith.CmpIPredicate.ult, number, half)
        moved = arith.select(early, arith.muli(number, two), rest)
        place = arith.addi(low, arith.muli(moved, step))
    for owner, number in uses:
        owner.operands[number] = place


def _part_signs(loop: Any, store: Any) -> None:
    """What is below 0 is added up in numbers of its own, and these to the sums at the end."""
    kind = store.operands[0].type
    nothing = lambda: arith.constant(kind, 0.0)  # noqa: E731

    def parts(term: Any) -> tuple[Any, Any]:
        below = arith.cmpf(arith.CmpFPredicate.OLT, term, nothing())
        return arith.select(below, term, nothing()), arith.select(below, nothing(), term)

    _add_beside(loop, store, kind, parts, lambda found: found)


def _add_exactly(loop: Any, store: Any) -> None:
    """All is added up in f64, and rounded at the end."""
    kind, wide = store.operands[0].type, ir.F64Type.get(store.context)
    if kind == wide:
        return

    def parts(term: Any) -> tuple[Any, Any]:
        return arith.extf(wide, term), arith.constant(kind, 0.0)

    _add_beside(loop, store, wide, parts, lambda found: arith.truncf(kind, found))


def _add_beside(
    loop: Any, store: Any, kind: Any, parts: Callable[[Any], tuple[Any, Any]],
    ended: Callable[[Any], Any],
) -> None:  # fmt: skip
    """The first of two `parts` of a term is added up in numbers of their own, of this kind; they
    are added to the sums at the end."""
    total, sums, *places = store.operands
    read = _read_of(store)
    if read is None:
        return
    (at,) = (k for k, v in enumerate(total.owner.operands) if v != read.results[0])
    low, high, step = list(loop.operands)[:3]
    index = loop.regions[0].blocks[0].arguments[0]
    with ir.InsertionPoint(loop), loop.location:
        beside, nothing = _like(sums, kind), arith.constant(kind, 0.0)
    with ir.InsertionPoint(total.owner), loop.location:
        part, rest = parts(total.owner.operands[at])
        first = arith.cmpi(arith.CmpIPredicate.eq, index, low)
        before = arith.select(first, nothing, memref.load(beside, places))
        found = arith.addf(before, part)
        memref.store(found, beside, places)
        total.owner.operands[at] = rest
    with ir.InsertionPoint.after(store), loop.location:
        end = arith.cmpi(arith.CmpIPredicate.sge, arith.addi(index, step), high)
        branch = scf.IfOp(end)
        with ir.InsertionPoint(branch.then_block):
            memref.store(arith.addf(memref.load(sums, places), ended(found)), sums, places)
            scf.yield_([])
    with ir.InsertionPoint.after(loop), loop.location:
        memref.dealloc(beside)


def _read_of(store: Any) -> Any:
    """The load of what a store adds to, where there is one."""
    total, sums, *places = store.operands
    reads = [
        v.owner for v in total.owner.operands
        if not isinstance(v.owner, ir.Block) and v.owner.name == "memref.load"
        and list(v.owner.operands) == [sums, *places]
    ]  # fmt: skip
    return reads[0] if len(reads) == 1 else None


def _like(sums: Any, kind: Any) -> Any:
    """Memory of the shape of other memory."""
    shape = ir.MemRefType(sums.type).shape
    sizes = [
        memref.dim(sums, arith.constant(ir.IndexType.get(), k))
        for k, n in enumerate(shape) if n == ir.ShapedType.get_dynamic_size()
    ]  # fmt: skip
    return memref.alloc(ir.MemRefType.get(shape, kind), sizes, [])


def _half(loop: Any) -> Any:
    """How many steps the first half of a loop has, which is the larger one."""
    low, high, step = list(loop.operands)[:3]
    one, two = (arith.constant(low.type, n) for n in (1, 2))
    steps = arith.ceildivui(arith.subi(high, low), step)
    return arith.divui(arith.addi(steps, one), two)


def _add_blocks(loop: Any, store: Any, block: int | None) -> None:
    """Numbers of their own take so many elements each, and are then added to the sums.

    `block`: None for halves."""
    total, sums, *places = store.operands
    read = _read_of(store)
    if read is None:
        return
    kind, index = total.type, loop.regions[0].blocks[0].arguments[0]
    low, high, step = list(loop.operands)[:3]
    with ir.InsertionPoint(loop), loop.location:
        parts = _like(sums, kind)
        one, zero = (arith.constant(index.type, n) for n in (1, 0))
        many = arith.constant(index.type, block) if block else _half(loop)
        last = arith.subi(many, one)
        nothing = arith.constant(kind, 0.0)
    with ir.InsertionPoint(read), loop.location:
        place = arith.remui(arith.divui(arith.subi(index, low), step), many)
        first = arith.cmpi(arith.CmpIPredicate.eq, place, zero)
        before = arith.select(first, nothing, memref.load(parts, places))
    read.results[0].replace_all_uses_with(before)
    store.operation.operands[1] = parts
    with ir.InsertionPoint.after(store), loop.location:
        full = arith.cmpi(arith.CmpIPredicate.eq, place, last)
        end = arith.cmpi(arith.CmpIPredicate.sge, arith.addi(index, step), high)
        branch = scf.IfOp(arith.ori(full, end))
        with ir.InsertionPoint(branch.then_block):
            memref.store(arith.addf(memref.load(sums, places), total), sums, places)
            scf.yield_([])
    with ir.InsertionPoint.after(loop), loop.location:
        memref.dealloc(parts)
