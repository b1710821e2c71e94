# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scalar ops mean, on NumPy arrays: what all simulators compute with.

Every operation gives a value of its type: f32 is rounded to f32 and bf16 (held in f32 arrays) to
bf16 each time. Integers are signed arrays that wrap around, i1 is bool, and `index` has 32 bits on
GPUs. Where upstream leaves the result open, this is what GPUs do: conversions of floats to integers
saturate and make 0 of NaN. `test_scalar_ops.py` compares all this with machine code.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

NUMPY = {"f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64,
         "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
         "index": np.int64, "f8E4M3FN": np.uint8}  # fmt: skip


def bf16_round(x: np.ndarray) -> np.ndarray:
    """f32 numbers rounded to bf16, to nearest even."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def is_float(kind: str) -> bool:
    return kind in ("f16", "bf16", "f32", "f64")


def holds(values: Any, kind: str) -> np.ndarray:
    """Values as the arrays that stand for `kind`: rounded or wrapped around. (Those that need
    neither may be the same array: no simulator writes into one.)"""
    values = np.asarray(values)
    if values.dtype == NUMPY[kind] and kind not in ("index", "bf16"):
        return values
    if kind == "index":
        return values.astype(np.int32).astype(np.int64)
    if kind == "i1":
        return values.astype(np.bool_)
    if kind == "bf16":
        return bf16_round(values) if values.dtype == np.float32 else _to_bf16(values)
    with np.errstate(all="ignore"):
        return values.astype(NUMPY[kind])


def _to_bf16(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.float16:
        return bf16_round(values.astype(np.float32))
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
        inexact = np.isfinite(single) & (single.astype(np.float64) != values)
        away = np.abs(values) > np.abs(single.astype(np.float64))
    return bf16_round(_odd(single, inexact, away))


def _odd(x: np.ndarray, inexact: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Numbers that were rounded to nearest, as rounding to odd would have them: another rounding to
    fewer bits is then as good as one. `away`: the exact number is farther from 0."""
    bits = x.view(f"i{x.itemsize}")
    step = np.where(away, 1, -1).astype(bits.dtype)
    moved = np.where(inexact & (bits & 1 == 0), bits + step, bits)
    return np.where(x == 0, x, moved.view(x.dtype))


# ---- floats


@functools.cache
def _fma_of_doubles() -> Callable[..., Any]:
    """C's: no type of NumPy's holds a product of two f64 numbers."""
    function = ctypes.CDLL(ctypes.util.find_library("m")).fma
    function.argtypes, function.restype = [ctypes.c_double] * 3, ctypes.c_double
    return np.frompyfunc(function, 3, 1)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: str) -> np.ndarray:
    """a * b + c, rounded once."""
    with np.errstate(all="ignore"):
        if kind == "f64":
            return np.asarray(_fma_of_doubles()(a, b, c), np.float64)
        product, c = a.astype(np.float64) * b, c.astype(np.float64)  # the product is exact
        total = product + c
        part = total - product
        lost = (product - (total - part)) + (c - part)
        inexact = np.isfinite(total) & (lost != 0)
        return holds(_odd(total, inexact, (lost > 0) == (total > 0)), kind)


def _extremum(pick: Callable[..., Any], of_zeros: Callable[..., Any]) -> Callable[..., Any]:
    """Of zeros, -0 is the smaller one."""

    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        zeros = (a == 0) & (b == 0)
        negative = of_zeros(np.signbit(a), np.signbit(b))
        zero = np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0))
        return np.where(zeros, zero, pick(a, b))

    return apply


def _fmod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.fmod(a.astype(np.float64), b.astype(np.float64))


_MAX = _extremum(np.maximum, np.logical_and), _extremum(np.fmax, np.logical_and)
_MIN = _extremum(np.minimum, np.logical_or), _extremum(np.fmin, np.logical_or)
FLOATS: dict[str, Callable[..., Any]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide,
    "negf": np.negative, "remf": _fmod, "maximumf": _MAX[0], "maxnumf": _MAX[1],
    "minimumf": _MIN[0], "minnumf": _MIN[1],
}  # fmt: skip


def compare_floats(code: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    nan = np.isnan(a) | np.isnan(b)
    ordered = (np.zeros_like(nan), a == b, a > b, a >= b, a < b, a <= b, (a != b) & ~nan, ~nan)
    if code < 8:
        return ordered[code]
    table = (ordered[1], ordered[2], ordered[3], ordered[4], ordered[5], ordered[6])
    return table[code - 8] | nan if code < 14 else nan if code == 14 else np.ones_like(nan)


# ---- integers


def unsigned(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "index":
        return x.astype(np.uint32)
    return x.view(f"u{x.itemsize}")


def _signed(x: np.ndarray) -> np.ndarray:
    return -x.astype(np.int8) if x.dtype == np.bool_ else x  # the only bit of i1 is its sign


def _safe(b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, b.dtype.type(1), b)  # division by 0 has no result


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient towards 0."""
    b = _safe(b)
    down = np.floor_divide(a, b)
    return down + ((a - down * b != 0) & ((a < 0) != (b < 0)))


def _ceil_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    b = _safe(b)
    down = np.floor_divide(a, b)
    return down + (a - down * b != 0)


SIGNED: dict[str, Callable[..., Any]] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "divsi": _divide,
    "remsi": lambda a, b: np.fmod(a, _safe(b)), "ceildivsi": _ceil_divide,
    "floordivsi": lambda a, b: np.floor_divide(a, _safe(b)),
    "maxsi": np.maximum, "minsi": np.minimum, "shli": np.left_shift, "shrsi": np.right_shift,
    "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
}  # fmt: skip
UNSIGNED: dict[str, Callable[..., Any]] = {
    "divui": lambda a, b: np.floor_divide(a, _safe(b)), "ceildivui": _ceil_divide,
    "remui": lambda a, b: np.remainder(a, _safe(b)), "maxui": np.maximum, "minui": np.minimum,
    "shrui": np.right_shift,
}  # fmt: skip


def compare_integers(code: int, a: np.ndarray, b: np.ndarray, kind: str) -> np.ndarray:
    if code > 5:
        a, b, code = unsigned(a, kind), unsigned(b, kind), code - 4
    else:
        a, b = _signed(a), _signed(b)
    return (a == b, a != b, a < b, a <= b, a > b, a >= b)[code]


def count(name: str, x: np.ndarray, kind: str) -> np.ndarray:
    """ctpop, ctlz, cttz."""
    u = unsigned(x, kind)
    width = 8 * u.itemsize
    bits = [(u >> np.array(k, u.dtype)) & np.array(1, u.dtype) for k in range(width)]
    if name == "ctpop":
        return sum(b.astype(np.int64) for b in bits)
    found = np.full(x.shape, width, np.int64)
    for k in range(width) if name == "ctlz" else reversed(range(width)):
        found = np.where(bits[k] == 1, width - 1 - k if name == "ctlz" else k, found)
    return found


# ---- casts


def _float_from_integer(x: np.ndarray, target: str) -> np.ndarray:
    if target in ("f32", "f64"):
        return x.astype(NUMPY[target])
    # f64 holds what has up to 53 bits; of more, the last one stands for those that are dropped
    x = x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)
    low = x & x.dtype.type(0x7FF)
    large = np.abs(x.astype(np.float64)) >= 2.0**52
    shortened = (x - low) | (low != 0).astype(x.dtype) << x.dtype.type(11)
    return holds(np.where(large, shortened, x).astype(np.float64), target)


def _integer_from_float(x: np.ndarray, target: str, low: int, high: int) -> np.ndarray:
    x = np.trunc(x.astype(np.float64))
    inside = (x >= low) & (x < high + 1)
    with np.errstate(invalid="ignore"):
        whole = np.where(inside & (x < 2.0**63), x, 0).astype(np.int64)
        upper = np.where(inside & (x >= 2.0**63), x - 2.0**63, 0).astype(np.int64)
    upper = np.where(inside & (x >= 2.0**63), upper + np.int64(-(2**63)), 0)
    signed_high = np.int64(high if high < 1 << 63 else -1)
    made = np.where(x > high, signed_high, np.where(x < low, np.int64(low), whole + upper))
    return holds(np.where(np.isnan(x), 0, made), target)


def _width(kind: str) -> int:
    return 32 if kind == "index" else int(kind[1:])


def cast(name: str, x: np.ndarray, source: str, target: str) -> np.ndarray:
    """What `arith.<name>` makes of values of `source`."""
    match name:
        case "extf" | "truncf":
            return holds(x, target)
        case "extsi" | "index_cast":
            x = _signed(x)
            return holds(x & 1, target) if target == "i1" else holds(x, target)
        case "extui" | "index_castui":
            x = unsigned(x, source)
            return holds(x & 1, target) if target == "i1" else holds(x, target)
        case "trunci":
            return holds(x & 1, target) if target == "i1" else holds(x, target)
        case "sitofp":
            return _float_from_integer(_signed(x), target)
        case "uitofp":
            return _float_from_integer(unsigned(x, source), target)
        case "fptosi":
            half = 1 << _width(target) - 1
            return _integer_from_float(x, target, -half, half - 1)
        case "fptoui":
            return _integer_from_float(x, target, 0, (1 << _width(target)) - 1)
    raise NotImplementedError(name)


CASTS = {"extf", "truncf", "extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui",
         "index_cast", "index_castui"}  # fmt: skip


def apply(
    name: str, operands: list[np.ndarray], kinds: list[str], target: str
) -> np.ndarray | None:
    """The value of `arith.<name>` on operands of `kinds` (of elements); None for other ops."""
    function = function_of(name, tuple(kinds), target)
    with np.errstate(all="ignore"):
        return None if function is None else function(*operands)


@functools.cache
def function_of(name: str, kinds: tuple[str, ...], target: str) -> Callable[..., Any] | None:
    """What computes `arith.<name>` on operands of `kinds`, looked up once for all steps. Whoever
    calls it has NumPy ignore what overflows."""
    if name in CASTS:
        return lambda x: cast(name, x, kinds[0], target)
    if name in FLOATS:
        of_floats = FLOATS[name]
        return lambda *given: holds(of_floats(*given), target)
    if name in SIGNED:
        signed = SIGNED[name]
        if target == "i1" and name not in ("andi", "ori", "xori"):
            return lambda *given: signed(*map(_signed, given)) & 1 != 0
        return lambda *given: holds(signed(*given), target)
    if name in UNSIGNED:
        plain = UNSIGNED[name]

        def of_unsigned(*given: np.ndarray) -> np.ndarray:
            made = plain(*map(unsigned, given, kinds))
            return holds(made & 1 if target == "i1" else made, target)

        return of_unsigned
    return None


# ---- what chips have


def flushed(x: np.ndarray) -> np.ndarray:
    """f32 numbers, denormal ones as 0."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def exp2(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return flushed(np.exp2(flushed(x).astype(np.float64)).astype(np.float32))


def reciprocal(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return flushed(np.float32(1) / flushed(x))


def _away(x: np.ndarray) -> np.ndarray:
    """The nearest integer, halves away from 0."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


INTRINSICS: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "fabs": np.abs, "roundeven": np.rint, "floor": np.floor, "ceil": np.ceil,
    "copysign": np.copysign, "trunc": np.trunc,
    "round": lambda x: np.copysign(_away(x), x),
}  # fmt: skip


def intrinsic(name: str, operands: list[np.ndarray], kind: str) -> np.ndarray:
    """An LLVM intrinsic that GPUs have instructions for."""
    if name == "fma":
        return fma(*operands, kind)
    if name in ("ctpop", "ctlz", "cttz"):
        return holds(count(name, operands[0], kind), kind)
    with np.errstate(all="ignore"):
        return holds(INTRINSICS[name](*operands), kind)
