# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""First-order bounds of the rounding errors of a program, evaluated beside its values.

Each operator rounds its result by at most u relative to it, and passes on the errors of its
operands times its derivatives (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). The
stress test asks with it whether a definition in float64 is itself to be trusted: where a program
adds log l to -3e38, float64 has lost the logarithm too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.numerics.evaluation import (
    Array,
    Domain,
    evaluate,
    fold,
    folded_axes,
    in_common,
    keep_only,
)
from neptune_mlir.algebra.terms import Term, is_float, walk

U = 2.0**-53


def bounds(
    reductions: Sequence[Reduction], axis: int, domain: Domain, values: Mapping[str, Array],
    known: dict[Term, Array],
) -> dict[str, Array]:  # fmt: skip
    """A bound for the error of every reduction, whose values in float64 are given.

    `known`: values of terms so far; more are added."""
    found: dict[str, Array] = {}
    common, done = in_common(reductions), dict[Term, Array]()
    with np.errstate(all="ignore"):
        for r in reductions:
            if not is_float(r.body.dtype):
                found[r.name] = np.zeros(domain.unit)
                continue
            error = bound(r.body, domain, values, found, known, done)
            folded, length = folded_axes(r, axis), domain.extents[axis]
            body = known[r.body]
            keep_only(common, done)
            if r.combiner == "add":
                size = np.where(np.isfinite(body), np.abs(body), 0.0)
                error = error + U * np.log2(2 + length) * size
                found[r.name] = fold("add", error, domain, folded, length, axis)
            elif r.combiner in ("max", "min"):
                ends = (
                    fold(r.combiner, end, domain, folded, length, axis)
                    for end in (body - error, body + error)
                )
                found[r.name] = _reach(values[r.name], *ends)
            else:
                found[r.name] = fold("max", error, domain, folded, length, axis)
    return found


def _reach(value: Array, low: Array, high: Array) -> Array:
    """The error of the largest, or smallest, of several numbers, given that of their lower ends
    and that of their upper ends. One that is far behind passes no error on; infinities are exact.
    """
    error = np.maximum(np.abs(high - value), np.abs(value - low))
    error = np.where(np.isinf(value) & ((low == value) | (high == value)), 0.0, error)
    return np.nan_to_num(error, nan=np.inf, posinf=np.inf)


def bound(
    t: Term, domain: Domain, refs: Mapping[str, Array], errors: Mapping[str, Array],
    values: dict[Term, Array] | None = None, done: dict[Term, Array] | None = None,
) -> Array:  # fmt: skip
    """A bound for the error of a term, element by element; infinite where nothing is known.

    `values`, `done`: values and bounds of terms so far; more are added.
    """
    values = {} if values is None else values
    done = {} if done is None else done
    none = np.zeros(domain.unit)
    for n in walk(t):
        if n in done and n in values:
            continue
        if n not in values:
            values[n] = _value(n, values, domain, refs)
        v = values[n]
        if not is_float(n.dtype):
            done[n] = none
        elif n.op == "ref":
            done[n] = errors[n.attr]
        elif n.is_leaf:
            done[n] = none
        else:
            passed = _passed(n, [values[a] for a in n.args], [done[a] for a in n.args], v)
            own = np.where(np.isfinite(v), U * np.abs(v), 0.0)  # infinities are exact
            if n.op in ("exp", "exp2"):  # these may vanish
                own = own + np.finfo(np.float64).smallest_subnormal
            done[n] = np.nan_to_num(passed + own, nan=np.inf, posinf=np.inf)
    return done[t]


def _value(n: Term, values: dict[Term, Array], domain: Domain, refs: Mapping[str, Array]) -> Array:
    """The value of a node whose operands' are known."""
    if n.is_leaf:
        return evaluate(n, domain, refs)
    return evaluate(n, domain, refs, known=values)


def _passed(n: Term, v: list[Array], e: list[Array], out: Array) -> Any:
    """What the operands' errors become."""
    match n.op:
        case "add" | "sub":
            return e[0] + e[1]
        case "mul":
            return _times(v[0], e[1]) + _times(v[1], e[0])
        case "div":
            return (e[0] + _times(out, e[1])) / np.abs(v[1])
        case "neg" | "abs" | "cast" | "quantize" | "floor" | "ceil" | "roundeven":
            return e[0]
        case "tanh" | "erf" | "sin" | "cos":
            return e[0]
        case "max" | "min":
            pick = np.maximum if n.op == "max" else np.minimum
            low, high = (pick(v[0] + s * e[0], v[1] + s * e[1]) for s in (-1, 1))
            return _reach(out, low, high)
        case "select":
            return np.where(v[0], e[1], e[2])
        case "exp" | "exp2" | "expm1":
            return _times(np.abs(out) + (n.op == "expm1"), np.expm1(np.minimum(e[0], 700.0)))
        case "log" | "log2" | "log1p":
            return e[0] / np.abs(v[0] + (n.op == "log1p"))
        case "sqrt":
            return np.where(e[0] == 0, 0.0, e[0] / np.maximum(2 * np.abs(out), U))
        case "rsqrt":
            return _times(out, e[0] / np.abs(2 * v[0]))
        case "pow" if n.args[1].is_const:
            return _times(out, np.abs(n.args[1].value) * e[0] / np.abs(v[0]))
    return np.where(sum(e) == 0, 0.0, np.inf)


def _times(a: Array, b: Array) -> Array:
    """|a| b, where 0 times anything is 0: a number that has no error passes none on."""
    return np.where(b == 0, 0.0, np.where(a == 0, 0.0, np.abs(a) * b))
