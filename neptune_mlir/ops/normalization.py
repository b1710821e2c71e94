# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms over the columns of a matrix `[rows, cols]`, alone and in front of a matrix product.

Variances are written in two passes over the data, as numerically careful code does; that they
run in one is the compiler's doing.
"""

from __future__ import annotations

from neptune_mlir.frontend.notation import (
    Axis,
    Expr,
    Program,
    abs,
    exp,
    max,
    mean,
    rsqrt,
    sum,
    where,
)

Size = int | None


def _matrix(name: str, rows: Size, cols: Size, dtype: str) -> tuple[Program, Axis, Axis, Expr]:
    p = Program(name)
    i, j = p.axis("i", rows), p.axis("j", cols)
    x = p.input("x", i, j, dtype=dtype)[i, j]
    # 16-bit inputs compute in f32
    return p, i, j, x * 1.0 if dtype in ("f16", "bf16") else x


def variance(*, rows: Size = None, cols: Size = None, dtype: str = "f32") -> Program:
    """x [rows, cols] -> population variance of each row [rows]."""
    p, i, j, x = _matrix("variance", rows, cols, dtype)
    p.output(mean((x - mean(x, j)) ** 2, j), i, dtype=dtype)
    return p


def _standardized(x: Expr, j: Axis, eps: float) -> Expr:
    centred = x - mean(x, j)
    return centred * rsqrt(mean(centred**2, j) + eps)


def layer_norm(
    *, rows: Size = None, cols: Size = None, eps: float = 1e-5, dtype: str = "f32"
) -> Program:
    """x [rows, cols], weight and bias [cols]: (x - mean) / sqrt(var + eps) * weight + bias."""
    p, i, j, x = _matrix("layer_norm", rows, cols, dtype)
    weight, bias = p.input("weight", j, dtype=dtype), p.input("bias", j, dtype=dtype)
    p.output(_standardized(x, j, eps) * weight[j] + bias[j], i, j, dtype=dtype)
    return p


def rms_norm(
    *, rows: Size = None, cols: Size = None, eps: float = 1e-6, dtype: str = "f32"
) -> Program:
    """x [rows, cols], weight [cols] -> x / sqrt(mean(x²) + eps) * weight."""
    p, i, j, x = _matrix("rms_norm", rows, cols, dtype)
    weight = p.input("weight", j, dtype=dtype)
    p.output(x * rsqrt(mean(x * x, j) + eps) * weight[j], i, j, dtype=dtype)
    return p


def rms_norm_matmul(
    *, rows: Size = None, cols: Size = None, out: Size = None, eps: float = 1e-6,
    dtype: str = "f32",
) -> Program:  # fmt: skip
    """x [rows, cols], weight [cols], w [cols, out] -> rms_norm(x) @ w [rows, out]."""
    p, i, j, x = _matrix("rms_norm_matmul", rows, cols, dtype)
    n = p.axis("n", out)
    weight, w = p.input("weight", j, dtype=dtype), p.input("w", j, n, dtype=dtype)
    normed = x * rsqrt(mean(x * x, j) + eps) * weight[j]
    p.output(sum(normed * w[j, n], j), i, n, dtype=dtype)
    return p


def layer_norm_matmul(
    *, rows: Size = None, cols: Size = None, out: Size = None, eps: float = 1e-5,
    dtype: str = "f32",
) -> Program:  # fmt: skip
    """x [rows, cols], weight, bias [cols], w [cols, out] -> layer_norm(x) @ w [rows, out]."""
    p, i, j, x = _matrix("layer_norm_matmul", rows, cols, dtype)
    n = p.axis("n", out)
    weight, bias = p.input("weight", j, dtype=dtype), p.input("bias", j, dtype=dtype)
    w = p.input("w", j, n, dtype=dtype)
    normed = _standardized(x, j, eps) * weight[j] + bias[j]
    p.output(sum(normed * w[j, n], j), i, n, dtype=dtype)
    return p


def absmax_matmul(
    *, rows: Size = None, cols: Size = None, out: Size = None, dtype: str = "f32"
) -> Program:
    """x [rows, cols], w [cols, out] -> (x / max|x| of its row) @ w, and the row scales [rows].

    A row of zeros has scale 1.
    """
    p, i, j, x = _matrix("absmax_matmul", rows, cols, dtype)
    n = p.axis("n", out)
    w = p.input("w", j, n, dtype=dtype)
    largest = max(abs(x), j)
    scale = where(largest == 0, 1.0, largest)
    p.output(sum(x / scale * w[j, n], j), i, n, dtype=dtype)
    p.output(scale, i)
    return p


def standardized_norms(*, rows: Size = None, cols: Size = None, eps: float = 1e-5) -> Program:
    """x [rows, cols], f32 -> softmax-weighted variance over plain variance, per row [rows].

    A chain of five reductions: the mean; the variance around it; the maximum; the sum of
    exp(x - maximum); and the sum of squares around the mean with those weights, which reads
    both the mean and the maximum.
    """
    p, i, j, x = _matrix("standardized_norms", rows, cols, "f32")
    z = x - mean(x, j)
    spread = mean(z * z, j) + eps
    m = max(x, j)
    w = exp(x - m)
    p.output(sum(w * z * z, j) / (sum(w, j) * spread), i)
    return p
