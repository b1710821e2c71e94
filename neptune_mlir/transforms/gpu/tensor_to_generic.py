# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `tensor-to-generic`: pads, joins and slices outside of kernels become `linalg.generic`.

An op that moves elements of tensors, and that no nest models, becomes one that says for each
position of its result where the element is from. GPUs take all that way (`points-to-kernels` is
next), CPUs slices: others bufferize well.

    %r = linalg.generic ... outs(%new : tensor<?xf32>) {
      %i = linalg.index 0 : index
      ...
      %e = scf.if %inside -> (f32) { tensor.extract %x[%i - %low] } else { %padding }
      linalg.yield %e : f32
    }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from neptune_mlir.analysis.tiles import strided_slice_parts
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.regions import clone_scalar_code
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import arith, ir, linalg, scf, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register

Position = Sequence[ix.Index]
Element = Callable[[Position], Any]  # the element of a result at a position


@register("tensor-to-generic", "turn pads, joins and slices outside of kernels into linalg.generic")
def tensor_to_generic(module: Any, *, only: str = "") -> None:
    """`only`: the name of the one op to turn; none: every one that is known."""
    for function in functions(module):
        for op in list(function.regions[0].blocks[0].operations):
            rule = _RULES.get(op.operation.name)
            if rule is None or only not in ("", op.operation.name):
                continue
            with ir.InsertionPoint(op), op.location:
                sizes, element = rule(op.operation)
                made = _generic(op.operation.results[0].type, sizes, element)
            op.operation.results[0].replace_all_uses_with(made)
            op.operation.erase()


def _generic(kind: Any, sizes: Position, element: Element) -> Any:
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    sizes = [n if m == DYNAMIC else m for n, m in zip(sizes, kind.shape, strict=True)]
    generic = linalg.GenericOp(
        [kind], [], [tensor.empty(sizes, kind.element_type)],
        ir.ArrayAttr.get([identity]), ir.ArrayAttr.get([parallel] * kind.rank),
    )  # fmt: skip
    with ir.InsertionPoint(generic.regions[0].blocks.append(kind.element_type)):
        linalg.YieldOp([element([linalg.IndexOp(d).result for d in range(kind.rank)])])
    return generic.results[0]


def _kind(op: Any) -> Any:
    return ir.RankedTensorType(op.results[0].type).element_type


def _sizes(value: Any) -> list[ix.Index]:
    """The extents of a tensor, taken at the insertion point."""
    shape = ir.RankedTensorType(value.type).shape
    return [n if n != DYNAMIC else tensor.dim(value, ix.value(d)) for d, n in enumerate(shape)]


def zero(kind: Any) -> Any:
    """0 of a type of elements."""
    whole = isinstance(kind, (ir.IntegerType, ir.IndexType))
    return arith.constant(kind, ir.IntegerAttr.get(kind, 0) if whole else ir.FloatAttr.get(kind, 0))


def _extract(value: Any, position: Position) -> Any:
    """An element of a tensor; of one that nobody wrote, 0: any number is right."""
    made = defining_op(value)
    if made is not None and made.name == "tensor.empty":
        return zero(ir.RankedTensorType(value.type).element_type)
    return tensor.extract(value, [ix.value(i) for i in position])


def _pad(op: Any) -> tuple[Position, Element]:
    source, *dynamic = op.operands
    given = iter(dynamic)
    low, high = (_mixed(op.attributes[name], given) for name in ("static_low", "static_high"))
    extents = _sizes(source)
    sizes = [ix.add(ix.add(b, n), a) for b, n, a in zip(low, extents, high, strict=True)]

    def element(at: Position) -> Any:
        inner = [ix.sub(i, b) for i, b in zip(at, low, strict=True)]
        return _choose(
            _all_under(inner, extents), _kind(op),
            lambda: _extract(source, inner),
            lambda: _region(op, at),
        )  # fmt: skip

    return sizes, element


def _concat(op: Any) -> tuple[Position, Element]:
    along = ir.IntegerAttr(op.attributes["dim"]).value
    parts = list(op.operands)
    sizes = _sizes(parts[0])
    starts: list[ix.Index] = [0]
    for part in parts:
        starts.append(ix.add(starts[-1], _sizes(part)[along]))
    sizes[along] = starts[-1]

    def element(at: Position, first: int = 0) -> Any:
        def here() -> Any:
            inner = list(at)
            inner[along] = ix.sub(at[along], starts[first])
            return _extract(parts[first], inner)

        if first + 1 == len(parts):
            return here()
        before = _less(at[along], starts[first + 1])
        return _choose(before, _kind(op), here, lambda: element(at, first + 1))

    return sizes, element


def _extract_slice(op: Any) -> tuple[Position, Element]:
    offsets, sizes, strides, kept = strided_slice_parts(op)

    def element(at: Position) -> Any:
        place = list(offsets)
        for i, d in zip(at, kept, strict=True):
            place[d] = ix.add(offsets[d], ix.mul(i, strides[d]))
        return _extract(op.operands[0], place)

    return [sizes[d] for d in kept], element


def _insert_slice(op: Any) -> tuple[Position, Element]:
    source, target = op.operands[:2]
    offsets, sizes, strides, kept = strided_slice_parts(op)

    def element(at: Position) -> Any:
        moved = [ix.sub(i, o) for i, o in zip(at, offsets, strict=True)]
        spans = [ix.mul(n, s) for n, s in zip(sizes, strides, strict=True)]
        inside = _all_under(moved, spans)
        for i, stride in zip(moved, strides, strict=True):
            if stride != 1:
                rest = arith.remui(ix.value(i), ix.value(stride))
                hit = arith.cmpi(arith.CmpIPredicate.eq, rest, ix.value(0))
                inside = arith.andi(inside, hit)
        return _choose(
            inside, _kind(op),
            lambda: _extract(source, [_quotient(moved[d], strides[d]) for d in kept]),
            lambda: _extract(target, at),
        )  # fmt: skip

    return _sizes(target), element


def _insert(op: Any) -> tuple[Position, Element]:
    value, target, *place = op.operands

    def element(at: Position) -> Any:
        hit = arith.constant(ir.IntegerType.get_signless(1), 1)
        for i, p in zip(at, place, strict=True):
            hit = arith.andi(hit, arith.cmpi(arith.CmpIPredicate.eq, i, p))
        return arith.select(hit, value, _extract(target, at))

    return _sizes(target), element


def _generate(op: Any) -> tuple[Position, Element]:
    kind = ir.RankedTensorType(op.results[0].type)
    return _mixed(kind.shape, iter(op.operands)), lambda at: _region(op, at)


def _from_elements(op: Any) -> tuple[Position, Element]:
    shape = ir.RankedTensorType(op.results[0].type).shape

    def element(at: Position) -> Any:
        number: ix.Index = 0  # row-major
        for i, n in zip(at, shape, strict=True):
            number = ix.add(ix.scale(number, n), i)
        *others, found = op.operands
        for k, value in reversed(list(enumerate(others))):
            hit = arith.cmpi(arith.CmpIPredicate.eq, ix.value(number), ix.value(k))
            found = arith.select(hit, value, found)
        return found

    return shape, element


_RULES: dict[str, Callable[[Any], tuple[Position, Element]]] = {
    "tensor.pad": _pad,
    "tensor.concat": _concat,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.insert": _insert,
    "tensor.generate": _generate,
    "tensor.from_elements": _from_elements,
}


def _mixed(static: Any, dynamic: Iterator[Any]) -> list[ix.Index]:
    """A list of sizes where `?` stands for the next operand."""
    return [next(dynamic) if n == DYNAMIC else n for n in static]


def _region(op: Any, at: Position) -> Any:
    """What the body of an op gives at a position."""
    block = op.regions[0].blocks[0]
    arguments = dict(zip(block.arguments, map(ix.value, at), strict=True))
    return clone_scalar_code(block, arguments)[0]


def _choose(condition: Any, kind: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """One of two values of type `kind`, of which only that one is computed."""
    made = scf.IfOp(condition, [kind], has_else=True)
    for block, value in ((made.then_block, yes), (made.else_block, no)):
        with ir.InsertionPoint(block):
            scf.YieldOp([value()])
    return made.results[0]


def _less(a: ix.Index, b: ix.Index) -> Any:
    return arith.cmpi(arith.CmpIPredicate.slt, ix.value(a), ix.value(b))


def _all_under(position: Position, limits: Position) -> Any:
    """Whether every index is at least 0 and under its limit."""
    inside = arith.constant(ir.IntegerType.get_signless(1), 1)
    for i, limit in zip(position, limits, strict=True):
        here = arith.cmpi(arith.CmpIPredicate.ult, ix.value(i), ix.value(limit))
        inside = arith.andi(inside, here)
    return inside


def _quotient(a: ix.Index, b: ix.Index) -> ix.Index:
    return a if b == 1 else arith.divui(ix.value(a), ix.value(b))
