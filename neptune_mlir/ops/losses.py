# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses and log-domain means over rows."""

from __future__ import annotations

from neptune_mlir.frontend.notation import Axis, Expr, Program, exp, log, max, sum, where
from neptune_mlir.ops.softmax import finite_max

Size = int | None


def _cross_entropy(logit: Expr, target: Expr, j: Axis) -> Expr:
    m = finite_max(logit, j)
    weights = sum(exp(logit - m), j)
    # the difference first: beside a large maximum the logarithm's digits are lost
    return (m - sum(where(j == target, logit, 0.0), j)) + log(weights)


def cross_entropy(*, rows: Size = None, classes: Size = None, dtype: str = "f32") -> Program:
    """x [rows, classes], target [rows] i64 -> softmax cross-entropy of each row [rows], f32."""
    p = Program("cross_entropy")
    i, j = p.axis("i", rows), p.axis("j", classes)
    x, target = p.input("x", i, j, dtype=dtype), p.input("target", i, dtype="i64")
    p.output(_cross_entropy(x[i, j], target[i], j), i, dtype="f32")
    return p


def linear_cross_entropy(
    *, rows: Size = None, width: int, classes: Size = None, dtype: str = "f32"
) -> Program:
    """x [rows, width], w [classes, width], target [rows] i64 -> cross-entropy of x wᵀ [rows], f32.

    The logits matrix is never stored.
    """
    p = Program("linear_cross_entropy")
    i, j, d = p.axis("i", rows), p.axis("j", classes), p.axis("d", width)
    x, w = p.input("x", i, d, dtype=dtype), p.input("w", j, d, dtype=dtype)
    target = p.input("target", i, dtype="i64")
    p.output(_cross_entropy(sum(x[i, d] * w[j, d], d), target[i], j), i, dtype="f32")
    return p


def log_weighted_mean(*, rows: Size = None, cols: Size = None) -> Program:
    """x, y [rows, cols], f32 -> log (Σ exp(x + y) / Σ exp(x)) of each row [rows]."""
    p = Program("log_weighted_mean")
    i, j = p.axis("i", rows), p.axis("j", cols)
    x, y = p.input("x", i, j)[i, j], p.input("y", i, j)[i, j]
    m, n = max(x, j), max(x + y, j)
    p.output(n + log(sum(exp(x + y - n), j)) - (m + log(sum(exp(x - m), j))), i)
    return p
