# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that are a few plain operations on any type, scalars and vectors alike. Divisions of integers
are among them: those that have no result end a process on x86."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neptune_mlir.ir.bindings import arith, ir, scf
from neptune_mlir.ir.bindings import module as binding

_LEAST_NORMAL = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}


def expand(op: Any) -> list[Any] | None:
    """What the results of an op are, made at the insertion point; None for other ops."""
    if op.name in DIVISIONS:
        return _safe_division(op)
    rule = _RULES.get(op.name)
    return None if rule is None else rule(*op.operands)


def _element(kind: Any) -> Any:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


def _number(value: float, kind: Any) -> Any:
    element = _element(kind)
    floating = isinstance(element, ir.FloatType)
    attribute = (ir.FloatAttr if floating else ir.IntegerAttr).get(element, value)
    if isinstance(kind, ir.VectorType):
        attribute = ir.DenseElementsAttr.get_splat(kind, attribute)
    return arith.ConstantOp(kind, attribute).result


def _size(x: Any) -> Any:
    return binding("dialects.math").absf(x)


def _compare(predicate: str, a: Any, value: float) -> Any:
    return arith.cmpf(getattr(arith.CmpFPredicate, predicate), a, _number(value, a.type))


def _is_nan(x: Any) -> list[Any]:
    return [arith.cmpf(arith.CmpFPredicate.UNO, x, x)]


def _is_infinite(x: Any) -> list[Any]:
    return [_compare("OEQ", _size(x), math.inf)]


def _is_finite(x: Any) -> list[Any]:
    return [_compare("OLT", _size(x), math.inf)]


def _is_normal(x: Any) -> list[Any]:
    least = _LEAST_NORMAL[str(_element(x.type))]
    return [arith.andi(_compare("OGE", _size(x), least), *_is_finite(x))]


def _clamp(x: Any, low: Any, high: Any) -> list[Any]:
    return [arith.minimumf(arith.maximumf(x, low), high)]


def _sincos(x: Any) -> list[Any]:
    functions = binding("dialects.math")
    return [functions.sin(x), functions.cos(x)]


def _absolute(x: Any) -> list[Any]:
    return [arith.maxsi(x, arith.subi(_number(0, x.type), x))]


def _integer_power(x: Any, n: Any) -> list[Any]:
    """By squaring, bit after bit of n. A negative power is 0, but of 1 and -1."""
    one = _number(1, x.type)
    index = ir.IndexType.get()
    low, high, step = (arith.ConstantOp(index, ir.IntegerAttr.get(index, k)).result
                       for k in (0, _element(x.type).width, 1))  # fmt: skip
    loop = scf.ForOp(low, high, step, [one, x, n])
    with ir.InsertionPoint(loop.body):
        made, square, rest = loop.inner_iter_args
        odd = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(rest, one), one)
        made = arith.select(odd, arith.muli(made, square), made)
        scf.YieldOp([made, arith.muli(square, square), arith.shrui(rest, one)])
    made, zero = loop.results[0], _number(0, x.type)
    unit = arith.cmpi(arith.CmpIPredicate.ult, arith.addi(x, one), _number(3, x.type))
    unit = arith.andi(unit, arith.cmpi(arith.CmpIPredicate.ne, x, zero))
    negative = arith.cmpi(arith.CmpIPredicate.slt, n, zero)
    return [arith.select(negative, arith.select(unit, made, zero), made)]


def _safe_division(op: Any) -> list[Any] | None:
    """As XLA has it: by 0 the quotient is -1 and the rest x; the least number by -1 is itself. What
    is divided by another constant, or is an index of our own, needs none of it."""
    x, by = op.operands
    kind = x.type
    if not isinstance(_element(kind), ir.IntegerType) or _always_divides(by):
        return None
    one, minus_one = _number(1, kind), _number(-1, kind)
    none = arith.cmpi(arith.CmpIPredicate.eq, by, _number(0, kind))
    undefined = none
    if not op.name.endswith("ui"):
        least = _number(-(1 << (_element(kind).width - 1)), kind)
        at_least = arith.cmpi(arith.CmpIPredicate.eq, x, least)
        turned = arith.cmpi(arith.CmpIPredicate.eq, by, minus_one)
        undefined = arith.ori(none, arith.andi(at_least, turned))
    made = ir.Operation.create(
        op.name, results=[kind], operands=[x, arith.select(undefined, one, by)]
    ).results[0]
    instead = x if op.name.startswith("arith.rem") else minus_one
    return [arith.select(none, instead, made)]


def _always_divides(value: Any) -> bool:
    """Whether a value is known, and neither 0 nor -1 anywhere."""
    made = value.owner
    if isinstance(made, ir.Block) or made.name != "arith.constant":
        return False
    known = made.attributes["value"]
    if isinstance(known, ir.IntegerAttr):
        return known.value not in (0, -1)
    return not {0, -1} & {*ir.DenseIntElementsAttr(known)}


DIVISIONS = {"arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi",
             "arith.ceildivsi", "arith.ceildivui"}  # fmt: skip
_RULES: dict[str, Callable[..., list[Any]]] = {
    "math.isnan": _is_nan, "math.isinf": _is_infinite, "math.isfinite": _is_finite,
    "math.isnormal": _is_normal, "math.clampf": _clamp, "math.sincos": _sincos,
    "math.absi": _absolute, "math.ipowi": _integer_power,
}  # fmt: skip
