# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The elementary functions, what they are in double precision, and how far from it each may be.

Tests on CPUs, simulators and devices take the same samples and bounds from here: docs/numerics.md
has the table. Needs NumPy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

DIGITS = {"f16": 10, "bf16": 7, "f32": 23}  # behind the leading bit
LEAST = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126}  # normal numbers
_LIMIT = {"f16": 2.0**16, "bf16": 2.0**128, "f32": 2.0**128}  # of what rounds to infinity


@dataclass(frozen=True)
class Function:
    """`body` defines %y from %a0 (and %a1), T being the type.

    Attributes:
        cpu, gpu: units in the last place of f32.
        flushes: kernels for GPUs may give 0 for a denormal result.
    """

    name: str
    exact: Callable[..., Any]
    gpu: float
    cpu: float
    body: str = ""
    operands: int = 1
    flushes: bool = False

    @property
    def text(self) -> str:
        if self.body:
            return self.body
        names = ", ".join(f"%a{k}" for k in range(self.operands))
        return f"%y = math.{self.name} {names} : T"


def _round_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.copysign(np.where(np.abs(x - whole) >= 0.5, np.abs(whole) + 1, whole), x)


def _whole_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.power(x, exponents(y))


def exponents(y: np.ndarray) -> np.ndarray:
    """What `_EXPONENT` makes of numbers: whole ones from -2^20 to 2^20, and 0 of NaN."""
    return np.trunc(np.clip(np.where(np.isnan(y), 0, y), -(2.0**20), 2.0**20))


_EXPONENT = """%w = arith.extf %a1 : T to f64
    %nan = arith.cmpf uno, %w, %w : f64
    %zero = arith.constant 0.0 : f64
    %high = arith.constant 1048576.0 : f64
    %low = arith.constant -1048576.0 : f64
    %n = arith.select %nan, %zero, %w : f64
    %below = arith.minimumf %n, %high : f64
    %inside = arith.maximumf %below, %low : f64
    %i = arith.fptosi %inside : f64 to i32
    %y = math.fpowi %a0, %i : T, i32"""

_CLAMP = """%low = arith.constant -1.5 : T
    %high = arith.constant 2.5 : T
    %y = math.clampf %a0 to [%low, %high] : T"""

FUNCTIONS = [
    Function("exp", np.exp, 4, 2, flushes=True),
    Function("exp2", np.exp2, 3, 2, flushes=True),
    Function("expm1", np.expm1, 2, 2),
    Function("log", np.log, 2, 2),
    Function("log2", np.log2, 2, 2),
    Function("log10", np.log10, 2, 2),
    Function("log1p", np.log1p, 2, 2),
    Function("tanh", np.tanh, 5, 2),
    Function("sinh", np.sinh, 2, 2),
    Function("cosh", np.cosh, 2, 2),
    Function("asinh", np.arcsinh, 2.5, 2.5),
    Function("acosh", np.arccosh, 3, 3),
    Function("atanh", np.arctanh, 3, 3),
    Function("sin", np.sin, 2, 2),
    Function("cos", np.cos, 2, 2),
    Function("tan", np.tan, 3.5, 3.5),
    Function("asin", np.arcsin, 2.5, 2.5),
    Function("acos", np.arccos, 2, 2),
    Function("atan", np.arctan, 2, 2),
    Function("atan2", np.arctan2, 2, 2, operands=2),
    Function("erf", np.vectorize(math.erf, otypes=[float]), 2, 2),
    Function("erfc", np.vectorize(math.erfc, otypes=[float]), 4.5, 4.5),
    Function("powf", np.power, 2, 2, operands=2),
    Function("fpowi", _whole_power, 2, 2, _EXPONENT, 2),
    Function("cbrt", np.cbrt, 1, 1),
    Function("divf", np.divide, 1.5, 0.5, "%y = arith.divf %a0, %a1 : T", 2),
    Function("sqrt", np.sqrt, 0.5, 0.5),
    Function("rsqrt", lambda x: 1 / np.sqrt(x), 2, 2),
    Function("floor", np.floor, 0, 0),
    Function("ceil", np.ceil, 0, 0),
    Function("trunc", np.trunc, 0, 0),
    Function("round", _round_away, 0, 0),
    Function("roundeven", np.rint, 0, 0),
    Function("absf", np.abs, 0, 0),
    Function("remf", np.fmod, 0, 0, "%y = arith.remf %a0, %a1 : T", 2),
    Function("copysign", np.copysign, 0, 0, operands=2),
    Function("clampf", lambda x: np.minimum(np.maximum(x, -1.5), 2.5), 0, 0, _CLAMP),
]


def program(kind: str, functions: list[Function] = FUNCTIONS) -> str:
    """A function of two vectors that returns what each of `functions` makes of their elements."""
    vector = f"tensor<?x{kind}>"
    ops = []
    for k, f in enumerate(functions):
        body = f.text.replace(" T", f" {kind}")
        if kind == "f64":
            body = body.replace("arith.extf %a1 : f64 to f64", "arith.addf %a1, %a1 : f64")
        maps = ", ".join(["affine_map<(i) -> (i)>"] * (f.operands + 1))
        inputs = ", ".join(["%x", "%z"][: f.operands])
        arguments = ", ".join(f"%a{j}: {kind}" for j in range(f.operands))
        ops.append(f"""
  %r{k} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}}
      ins({inputs} : {", ".join([vector] * f.operands)}) outs(%e : {vector}) {{
  ^bb0({arguments}, %u: {kind}):
    {body}
    linalg.yield %y : {kind}
  }} -> {vector}""")
    results = ", ".join(f"%r{k}" for k in range(len(functions)))
    types = ", ".join([vector] * len(functions))
    return f"""func.func @functions(%x: {vector}, %z: {vector}) -> ({types}) {{
  %c0 = arith.constant 0 : index
  %extent = tensor.dim %x, %c0 : {vector}
  %e = tensor.empty(%extent) : {vector}{"".join(ops)}
  return {results} : {types}
}}"""


def every_value(kind: str) -> np.ndarray:
    """All numbers of a 16-bit type, in f32."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    if kind == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(np.float32)
    return (bits << 16).view(np.float32)


EDGES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, -1e-40, 2.0**-126, 2.0**-149, 1, -1,
     0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 0.49999997, 8388609, 16777217, 105615, 105616, 3.4028235e38,
     -3.4028235e38, 88.722839, 88.72284, -87.33655, -103.97208, 128, 127.99999, -149, 89.415985,
     0.625, 2.0**30, 10.05, 0.99999994, 1.0000001], np.float32)  # fmt: skip


def samples(count: int) -> np.ndarray:
    """f32 numbers of every magnitude, and more where functions bend, turn or end."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    quarters = np.concatenate([np.arange(1, count // 8), rng.integers(1, 1 << 24, count // 8)])
    near = (quarters * (math.pi / 2)).astype(np.float32)
    spread = np.exp(rng.uniform(-20, 20, count)) * rng.choice([-1, 1], count)
    parts = [EDGES, bits, rng.uniform(-110, 110, count), rng.uniform(-2, 2, count), near,
             np.nextafter(near, np.float32(0)), -near, spread,
             1 + rng.standard_normal(count // 4) * 1e-3]  # fmt: skip
    return np.concatenate([np.asarray(p, np.float32) for p in parts])


def partners(x: np.ndarray) -> np.ndarray:
    """Second operands: any of the samples, exponents whose powers are in range, equal numbers and
    numbers a few bits smaller; and all pairs of edges at the start, if `x` begins with those."""
    rng = np.random.default_rng(1)
    y = rng.permutation(x)
    with np.errstate(all="ignore"):
        fitting = rng.uniform(-95, 95, len(x)) / np.log(np.abs(x.astype(np.float64)))
        y[::3] = np.where(np.isfinite(fitting), fitting, 1)[::3]
        y[1::9] = np.rint(y[1::9])
        y[2::9] = (x.astype(np.float64) * np.exp(rng.uniform(-12, 1, len(x))))[2::9]
        y[3::90] = x[3::90]
    return y


def operands(kind: str, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Vectors for `program`, as f32 numbers that are of the type: all of 16 bits, or samples."""
    if kind != "f32":
        x = every_value(kind)
        y = partners(np.where(np.isnan(x), 1, x))
        return x, _to(y, kind)
    pairs = [p.ravel() for p in np.meshgrid(EDGES, EDGES)]
    x = samples(count)
    return np.concatenate([pairs[0], x]), np.concatenate([pairs[1], partners(x)])


def _to(values: np.ndarray, kind: str) -> np.ndarray:
    """The nearest numbers of a type, as f32."""
    with np.errstate(all="ignore"):
        if kind == "f16":
            return values.astype(np.float16).astype(np.float32)
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))


def errors(f: Function, got: np.ndarray, x: np.ndarray, y: np.ndarray, kind: str,
           *, flushes: bool) -> np.ndarray:  # fmt: skip
    """How far each result is from the exact one, in units in the last place of `kind`; infinite
    where NaN, an infinity, or the sign of a zero is wrong."""
    with np.errstate(all="ignore"):
        given = [v.astype(np.float64) for v in (x, y)[: f.operands]]
        exact = np.asarray(f.exact(*given), np.float64)
        size = np.abs(exact)
        exponent = np.floor(np.log2(np.maximum(size, LEAST[kind])))
        exponent = np.where(np.isfinite(exponent), exponent, 0)
        unit = 2.0 ** (np.minimum(exponent, math.log2(_LIMIT[kind]) - 1) - DIGITS[kind])
        got = got.astype(np.float64)
        # infinity counts as the number that would follow the largest one
        limit = _LIMIT[kind]
        near = [np.where(np.isinf(v) | (np.abs(v) > limit), np.copysign(limit, v), v)
                for v in (got, exact)]  # fmt: skip
        error = np.abs(near[0] - near[1]) / unit
        if flushes:
            error = np.where((got == 0) & (size < LEAST[kind]), 0, error)
        error = np.where(np.isnan(exact), np.where(np.isnan(got), 0, np.inf), error)
        error = np.where(np.isnan(got) != np.isnan(exact), np.inf, error)
        zeros = (got == 0) & ~np.isnan(exact)
        return np.where(zeros & (np.signbit(got) != np.signbit(exact)), np.inf, error)


def bound(f: Function, kind: str, *, gpu: bool) -> float:
    """The largest error that a result may have: 16-bit results are rounded once more."""
    wide = f.gpu if gpu else f.cpu
    if kind == "f32" or wide == 0:
        return wide
    # f32 functions may be rough where results have 16 bits: 100 units of f32 and less
    return 0.5 + (wide + 100) * 2.0 ** (DIGITS[kind] - DIGITS["f32"])
