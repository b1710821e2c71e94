# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the regions of StableHLO compute of numbers: for whole tensors at once, or as `arith`.

Such a region is of tensors without dimensions. What has none of these forms raises `NoForm`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neptune_mlir.ir.bindings import arith, ir


class NoForm(Exception):
    """A region, or an op, stays as it is."""


def made(
    name: str, operands: Sequence[Any], shape: Sequence[int], element: Any, **attributes: Any
) -> Any:  # fmt: skip
    """The result of a new op of StableHLO, at the insertion point."""
    kind = ir.RankedTensorType.get(list(shape), element)
    op = ir.Operation.create(
        f"stablehlo.{name}", results=[kind], operands=list(operands), attributes=attributes
    )
    return op.results[0]


def shape_of(value: Any) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def element_of(value: Any) -> Any:
    return ir.RankedTensorType(value.type).element_type


def spread(value: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    """A tensor whose dimensions are `dims` of a larger one."""
    if shape_of(value) == list(shape) and list(dims) == list(range(len(shape))):
        return value
    attribute = ir.DenseI64ArrayAttr.get(list(dims))
    return made(
        "broadcast_in_dim", [value], shape, element_of(value), broadcast_dimensions=attribute
    )  # fmt: skip


def of_tensors(block: Any, arguments: Sequence[Any], shape: Sequence[int]) -> Any:
    """What a block returns, its numbers being the elements of tensors of one shape."""
    known: dict[Any, Any] = dict(zip(block.arguments, arguments, strict=True))

    def value_of(value: Any) -> Any:
        if value not in known:  # of outside of the region
            known[value] = spread(value, shape, [])
        return known[value]

    *inner, last = [op.operation for op in block.operations]
    for op in inner:
        if op.name == "stablehlo.constant":
            known[op.results[0]] = spread(_copy(op), shape, [])
            continue
        if len(op.results) != 1 or op.regions:
            raise NoForm(op.name)
        given = [value_of(v) for v in op.operands]
        attributes = {name: op.attributes[name] for name in op.attributes}
        name = op.name.removeprefix("stablehlo.")
        known[op.results[0]] = made(name, given, shape, element_of(op.results[0]), **attributes)
    return value_of(last.operands[0])


def _copy(op: Any) -> Any:
    return op.clone(ip=ir.InsertionPoint.current).operation.results[0]


# ---- as arith ------------------------------------------------------------------------------------

_OF_TWO: Mapping[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    # of floats, of integers with a sign, of those without
    "add": (arith.addf, arith.addi, arith.addi),
    "subtract": (arith.subf, arith.subi, arith.subi),
    "multiply": (arith.mulf, arith.muli, arith.muli),
    "maximum": (arith.maximumf, arith.maxsi, arith.maxui),
    "minimum": (arith.minimumf, arith.minsi, arith.minui),
}
_OF_BITS = {"and": arith.andi, "or": arith.ori, "xor": arith.xori}
_PREDICATES = {  # of floats, of integers
    "EQ": ("oeq", "eq"), "NE": ("une", "ne"), "LT": ("olt", "slt"),
    "LE": ("ole", "sle"), "GT": ("ogt", "sgt"), "GE": ("oge", "sge"),
}  # fmt: skip


def signless(element: Any) -> Any:
    """The type of numbers that `arith` takes in place of another."""
    if isinstance(element, ir.IntegerType):
        return ir.IntegerType.get_signless(element.width)
    if not isinstance(element, ir.FloatType):
        raise NoForm(str(element))
    return element


def of_numbers(block: Any, arguments: Sequence[Any]) -> Any:
    """What a block returns for numbers, by `arith` at the insertion point."""
    known: dict[Any, Any] = dict(zip(block.arguments, arguments, strict=True))

    def value_of(value: Any) -> Any:
        if value not in known:  # constants may stand in front of the region
            if isinstance(value.owner, ir.Block) or value.owner.name != "stablehlo.constant":
                raise NoForm("a value of outside of the region")
            known[value] = _constant(value.owner)
        return known[value]

    *inner, last = [op.operation for op in block.operations]
    for op in inner:
        known[op.results[0]] = _number(op, [value_of(v) for v in op.operands])
    return value_of(last.operands[0])


def _constant(op: Any) -> Any:
    held = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    kind = signless(element_of(op.results[0]))
    if isinstance(kind, ir.IntegerType):
        held = ir.IntegerAttr.get(kind, ir.IntegerAttr(held).value)
    return arith.ConstantOp(kind, held).result


def _number(op: Any, given: list[Any]) -> Any:
    name = op.name.removeprefix("stablehlo.")
    if name == "constant":
        return _constant(op)
    if name == "select":
        return arith.select(*given)
    if name == "not" and given[0].type == _truth():
        return negated(given[0])
    if name in _OF_BITS:
        return _OF_BITS[name](*given)
    if name == "compare":
        return _compare(op, *given)
    if name in _OF_TWO:
        return _OF_TWO[name][_sort_of(op.operands[0])](*given)
    raise NoForm(op.name)


def _sort_of(value: Any) -> int:
    """Which of floats, integers with a sign, and those without."""
    element = element_of(value)
    if isinstance(element, ir.FloatType):
        return 0
    return 2 if element.is_unsigned or element.width == 1 else 1


def _least(kind: Any) -> Any:
    return arith.ConstantOp(kind, ir.IntegerAttr.get(kind, -(1 << (kind.width - 1)))).result


def _truth() -> Any:
    return ir.IntegerType.get_signless(1)


def negated(value: Any) -> Any:
    """The other truth value."""
    return arith.xori(value, arith.ConstantOp(_truth(), ir.IntegerAttr.get(_truth(), 1)).result)


def _compare(op: Any, left: Any, right: Any) -> Any:
    direction = word(op.attributes["comparison_direction"])
    sort = _sort_of(op.operands[0])
    predicate = _PREDICATES[direction][min(sort, 1)]
    if sort == 2 and direction not in ("EQ", "NE"):
        # no term has it: as the order of numbers with a sign that are half of all further down
        left, right = (arith.addi(v, _least(v.type)) for v in (left, right))
    if sort:
        return arith.cmpi(getattr(arith.CmpIPredicate, predicate), left, right)
    total = "compare_type" in op.attributes and word(op.attributes["compare_type"]) == "TOTALORDER"
    if total and direction not in ("LT", "GT", "EQ"):
        raise NoForm(f"{direction} of all floats in one order")
    less = arith.cmpf(getattr(arith.CmpFPredicate, predicate.upper()), left, right)
    if not total:
        return less
    if direction == "EQ":
        both = [arith.cmpf(arith.CmpFPredicate.UNO, v, v) for v in (left, right)]
        return arith.ori(less, arith.andi(*both))
    # NaN is the largest; both zeros count as one, as sorts of JAX make them before
    small, large = (left, right) if direction == "LT" else (right, left)
    is_nan = arith.cmpf(arith.CmpFPredicate.UNO, large, large)
    is_number = arith.cmpf(arith.CmpFPredicate.ORD, small, small)
    return arith.ori(less, arith.andi(is_nan, is_number))


def word(attribute: Any) -> str:
    """The word of an attribute like `#stablehlo<comparison_direction LT>`."""
    return str(attribute).rstrip(">").split()[-1]
