# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`exp` as `exp2` with the scale folded in: one multiply-add where chips have exp2 only.

    exp(a*x*c - b)   becomes   exp2(x * (a*c*log2(e)) - b * log2(e))

Off by default: it is for targets whose native instruction is exp2. A reference that is
scaled at every use may instead be kept scaled; that is the target's choice.
"""

from __future__ import annotations

import math

from neptune_mlir.algebra.terms import Term, const, is_float, make, rewrite

LOG2E = math.log2(math.e)


def fold_exp2(t: Term) -> Term:
    """Rewrite every exp of f32 or wider into exp2, with constant factors folded into one."""

    def rule(n: Term) -> Term | None:
        if n.op == "exp" and n.dtype in ("f32", "f64"):
            return make("exp2", _scaled(n.args[0], LOG2E))
        return None

    return rewrite(t, rule)


def _scaled(t: Term, factor: float) -> Term:
    """`t * factor`, folded into the constants that multiply the addends of t."""
    if t.is_const and math.isfinite(t.value):
        return const(t.value * factor, t.dtype)
    if t.op in ("add", "sub"):
        return make(t.op, *(_scaled(a, factor) for a in t.args))
    if t.op == "neg":
        return make("neg", _scaled(t.args[0], factor))
    if t.op in ("mul", "div") and is_float(t.dtype):
        a, b = t.args
        if b.is_const and b.value != 0:
            folded = b.value * factor if t.op == "mul" else factor / b.value
            return _times(a, folded)
        if a.is_const and t.op == "mul":
            return _times(b, a.value * factor)
    if t.op == "select" and any(a.is_const for a in t.args[1:]):
        return make("select", t.args[0], *(_scaled(a, factor) for a in t.args[1:]))
    return _times(t, factor)


def _times(t: Term, factor: float) -> Term:
    if t.is_const and math.isinf(t.value):
        return const(math.copysign(math.inf, t.value * factor), t.dtype)
    return make("mul", t, const(factor, t.dtype))
