# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The patterns of this project: what exporters write in other words.

JAX writes functions of the dialect CHLO. torch-mlir squares by a power, compares with a literal in
f64 and chooses between tensors by one condition. Windows and bands of masks are written as the
absolute value of a distance.
"""

from __future__ import annotations

import functools
from typing import Any

from neptune_mlir.algebra import special_functions
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import arith, ir, location_text
from neptune_mlir.transforms.patterns.language import (
    Given,
    Named,
    OneOf,
    Op,
    Repeat,
    constant,
    register,
)
from neptune_mlir.transforms.patterns.numbers import Number, filled, spread, where
from neptune_mlir.transforms.patterns.to_pdl import Match

x = Given("x")


def _element(kind: Any) -> Any:
    return kind.element_type if isinstance(kind, ir.ShapedType) else kind


def _with_element(kind: Any, element: Any) -> Any:
    return ir.RankedTensorType.get(kind.shape, element) if _is_tensor(kind) else element


def _is_tensor(kind: Any) -> bool:
    return isinstance(kind, ir.RankedTensorType)


# ---- CHLO ----------------------------------------------------------------------------------------

# functions of `math` with the name and the types of their CHLO twin
_SAME = {
    f"chlo.{name}": f"math.{name}"
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "erfc", "sinh",
                 "tan")
}  # fmt: skip
_SAME["chlo.is_inf"] = "math.isinf"


@register("chlo-functions", OneOf(*(Op(name, x) for name in _SAME)))
def chlo_function(match: Match) -> Any:
    """The functions of CHLO that `math` has."""
    kinds = [result.type for result in match.root.results]
    return ir.Operation.create(_SAME[match.root.name], kinds, [match["x"]])


@register("chlo-square", Op("chlo.square", x))
def chlo_square(match: Match) -> Any:
    """chlo.square as a product."""
    return arith.MulFOp(match["x"], match["x"])


def _is_f32(kind: Any) -> bool:
    return str(_element(kind)) == "f32"


@register("chlo-erf-inv", Op("chlo.erf_inv", Given("x", _is_f32)))
def erf_inv(match: Match) -> Any:
    """The inverse of erf, f32, to 5 units in the last place; infinite at -1 and 1."""
    x = Number(match["x"])
    w = -(-(x * x)).log1p()
    factor = special_functions.inverse_of_erf_by_x(where, w)
    # at the ends w is infinite, and so are powers of it with either sign
    return (where(w > 1e30, float("inf"), factor) * x).value


_WIDTHS = {"f16": 16, "bf16": 16, "f32": 32}
_GAMMA = {
    "chlo.lgamma": special_functions.logarithm_of_gamma,
    "chlo.digamma": special_functions.digamma,
}
_FLOAT = Given("x", lambda kind: str(_element(kind)) in _WIDTHS)


@register("chlo-gamma", OneOf(*(Op(name, _FLOAT) for name in _GAMMA)))
def gamma_function(match: Match) -> Any:
    """The logarithm of the gamma function and its derivative, computed in f32; at 0 XLA's
    derivative is no number, as it is at the integers below."""
    given = match["x"]
    narrow = _WIDTHS[str(_element(given.type))] < 32
    x = Number(arith.extf(_with_element(given.type, ir.F32Type.get()), given) if narrow else given)
    made = _GAMMA[match.root.name](where, x)
    if match.root.name == "chlo.digamma":
        made = where(x == 0, float("nan"), made)
    return arith.truncf(given.type, made.value) if narrow else made.value


@register("chlo-others", Op("chlo.*", None, results=None), benefit=0)
def chlo_other(match: Match) -> Any:
    """Refuses what else CHLO has."""
    raise InputError(
        f"'{match.root.name}' has no lowering", loc=location_text(match.root.location),
        hint="keep it out of the program: compile what stands before and after it",
    )  # fmt: skip


# ---- conditions ----------------------------------------------------------------------------------

_CONDITION, _CHOSEN = Given("condition", "i1"), Given("chosen", _is_tensor)


@register("conditions-of-tensors", Op("arith.select", _CONDITION, _CHOSEN, Given("other")))
def spread_condition(match: Match) -> Any:
    """A choice between tensors by one number becomes an elementwise one."""
    chosen, other = match["chosen"], match["other"]
    return arith.SelectOp(spread(match["condition"], chosen), chosen, other)


_EXACT = (0.0, 1.0, 2.0, float("inf"))  # magnitudes that these types of floats have
_NARROW = ("bf16", "f16", "f32")  # (types of 8 bits are read, not computed with)


def _has_exact_literal(match: Match) -> bool:
    value = match.number("literal")
    narrow = str(_element(match["x"].type)) in _NARROW
    return narrow and value is not None and abs(value) in _EXACT


_WIDE = Repeat(lambda value: Op("arith.extf", value), Op("arith.extf", x), most=2)
_LITERAL = constant("literal")


def _compare(*operands: Any) -> Op:
    return Op("arith.cmpf", *operands, attributes={"predicate": Named("predicate")})


@register("wide-comparisons", OneOf(_compare(_WIDE, _LITERAL), _compare(_LITERAL, _WIDE)),
          guard=_has_exact_literal)  # fmt: skip
def narrow_comparison(match: Match) -> Any:
    """A comparison of widened numbers with a literal is one in the type of the data.

    Widening is exact and keeps the order, so this changes nothing where the literal has the
    narrow type too.
    """
    narrow = match["x"]
    both = [narrow, filled(narrow, match.number("literal"))]
    if match.root.operands[0].owner.name == "arith.constant":
        both.reverse()
    return arith.CmpFOp(match["predicate"], *both)


# ---- powers --------------------------------------------------------------------------------------

_LARGEST = 8  # exponents up to this one become products


def _is_small(match: Match) -> bool:
    """Whether an exponent is whole and small; one that is a float, only where a product is rounded
    no more often than PyTorch's own power is: squares, and cubes of what is no 16-bit float."""
    value = match.number("exponent")
    if value is None or match.root.name == "math.fpowi":
        return value is not None and abs(value) <= _LARGEST
    return bool(value == 2 or (value == 3 and str(_element(match["x"].type)) in ("f32", "f64")))


_POWERS = OneOf(*(Op(f"math.{name}", x, constant("exponent")) for name in ("fpowi", "powf")))


@register("whole-powers", _POWERS, guard=_is_small)
def power(match: Match) -> Any:
    """A power with a small whole exponent becomes a product."""
    base, exponent = match["x"], int(match.number("exponent"))
    one = functools.partial(filled, base, 1.0)
    factors = [base] * abs(exponent) or [one()]
    product = functools.reduce(lambda a, b: arith.MulFOp(a, b).result, factors)
    return product if exponent >= 0 else arith.DivFOp(one(), product).result


# ---- masks ---------------------------------------------------------------------------------------

_P = arith.CmpIPredicate
_MIRRORED = {_P.slt: _P.sgt, _P.sle: _P.sge, _P.sgt: _P.slt, _P.sge: _P.sle}
_OPPOSITE, _LIMIT = Op("arith.subi", constant("zero"), x), Given("limit")
_DISTANCE = OneOf(
    Op("math.absi", x, name="distance"),
    Op("arith.maxsi", x, _OPPOSITE, name="distance"),
    Op("arith.maxsi", _OPPOSITE, x, name="distance"),
)


def _near(predicate: int, *operands: Any) -> Op:
    return Op("arith.cmpi", *operands, attributes={"predicate": f"{int(predicate)} : i64"})


def _negative(value: Any) -> Any:
    owner = value.owner
    if not isinstance(owner, ir.Block) and owner.name == "arith.constant":
        number = Match(owner, {"value": owner.attributes["value"]}).number("value")
        kind = _element(value.type)
        bits = kind.width if isinstance(kind, ir.IntegerType) else 64
        if number is not None and number > -(1 << (bits - 1)):  # whose opposite there is not
            return filled(value, -number)
    return arith.SubIOp(filled(value, 0), value).result


@register("distances", OneOf(
    *(_near(p, _DISTANCE, _LIMIT) for p in _MIRRORED),
    *(_near(p, _LIMIT, _DISTANCE) for p in _MIRRORED),
), guard=lambda match: "zero" not in match or match.number("zero") == 0)  # fmt: skip
def distance(match: Match) -> Any:
    """|i - j| < w as two comparisons of positions, in which masks and windows are recognised.

    (The smallest integer is far from 0 then; the absolute value that wraps is not.)
    """
    inside, limit, root = match["x"], match["limit"], match.root
    predicate = _P(root.attributes["predicate"].value)
    if root.operands[0] != match["distance"].results[0]:
        predicate = _MIRRORED[predicate]
    negated = _negative(limit)
    ends = [arith.CmpIOp(predicate, inside, limit).result,
            arith.CmpIOp(_MIRRORED[predicate], inside, negated).result]  # fmt: skip
    return (arith.AndIOp if predicate in (_P.slt, _P.sle) else arith.OrIOp)(*ends)
