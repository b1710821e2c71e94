# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax and programs around it, over the rows of a matrix `[rows, cols]`."""

from __future__ import annotations

from neptune_mlir.frontend.notation import Axis, Expr, Program, exp, inf, log, max, sum, where


def finite_max(x: Expr, j: Axis) -> Expr:
    """The maximum over an axis; 0 where every x is -inf, so that it can be subtracted."""
    m = max(x, j)
    return where(m == -inf, 0.0, m)


def log_sum_exp(x: Expr, j: Axis) -> Expr:
    """log Σ exp x over an axis, safe from overflow; -inf where every x is -inf."""
    m = finite_max(x, j)
    return m + log(sum(exp(x - m), j))


def softmax(*, rows: int | None = None, cols: int | None = None, dtype: str = "f32") -> Program:
    """x [rows, cols] -> softmax of each row, same shape and dtype.

    A row of only -inf has no softmax: NaN, as in PyTorch.
    """
    p = Program("softmax")
    i, j = p.axis("i", rows), p.axis("j", cols)
    x = p.input("x", i, j, dtype=dtype)[i, j]
    w = exp(x - max(x, j))
    p.output(w / sum(w, j), i, j, dtype=dtype)
    return p


def logsumexp(*, rows: int | None = None, cols: int | None = None, dtype: str = "f32") -> Program:
    """x [rows, cols] -> log Σ exp of each row [rows], same dtype."""
    p = Program("logsumexp")
    i, j = p.axis("i", rows), p.axis("j", cols)
    x = p.input("x", i, j, dtype=dtype)[i, j]
    p.output(log_sum_exp(x, j), i, dtype=dtype)
    return p


def softmax_weighted_sum(
    *, rows: int | None = None, cols: int | None = None, width: int = 64, dtype: str = "f32"
) -> Program:
    """x [rows, cols], v [cols, width] -> softmax(x) v [rows, width]."""
    p = Program("softmax_weighted_sum")
    i, j, e = p.axis("i", rows), p.axis("j", cols), p.axis("e", width)
    x, v = p.input("x", i, j, dtype=dtype)[i, j], p.input("v", j, e, dtype=dtype)
    w = exp(x - max(x, j))
    p.output(sum(w / sum(w, j) * v[j, e], j), i, e, dtype=dtype)
    return p


def two_level_softmax(
    *, rows: int | None = None, groups: int | None = None, size: int | None = None
) -> Program:
    """x [rows, groups, size], f32 -> softmax over groups of each group's log-sum-exp."""
    p = Program("two_level_softmax")
    i, g, j = p.axis("i", rows), p.axis("g", groups), p.axis("j", size)
    x = p.input("x", i, g, j)[i, g, j]
    inner = log_sum_exp(x, j)
    w = exp(inner - max(inner, g))
    p.output(w / sum(w, g), i, g)
    return p


def performer(
    *, q_len: int | None = None, kv_len: int | None = None, head_dim: int = 32,
    features: int = 64, v_dim: int = 32,
) -> Program:  # fmt: skip
    """Linear attention with positive random features (FAVOR+; Choromanski et al., 2021).

    q [q_len, head_dim], k [kv_len, head_dim], v [kv_len, v_dim], w [features, head_dim], f32
    -> [q_len, v_dim]. phi(x)_r = exp(w_r x - |x|²/2), and the result is
    Σ_r phi(q)_r Σ_j phi(k_j)_r v_j / Σ_r phi(q)_r Σ_j phi(k_j)_r. Maxima taken out of the
    exponents (over the keys for each feature, then over the features for each query) cancel.
    """
    p = Program("performer")
    i, j, r = p.axis("i", q_len), p.axis("j", kv_len), p.axis("r", features)
    d, e = p.axis("d", head_dim), p.axis("e", v_dim)
    q, k, v = p.input("q", i, d), p.input("k", j, d), p.input("v", j, e)
    w = p.input("w", r, d)

    def exponent(x: Expr) -> Expr:
        return sum(x * w[r, d], d) - sum(x * x, d) / 2

    of_q, of_k = exponent(q[i, d]), exponent(k[j, d])
    m = max(of_k, j)  # per feature
    phi_k = exp(of_k - m)
    total, mixed = sum(phi_k, j), sum(phi_k * v[j, e], j)
    # The keys' maxima differ by feature: bring them to the query's common scale.
    scaled = of_q + m
    phi_q = exp(scaled - max(scaled, r))
    p.output(sum(phi_q * mixed, r) / sum(phi_q * total, r), i, e)
    return p
