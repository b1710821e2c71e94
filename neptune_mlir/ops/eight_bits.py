# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention whose factors have 8 bits in both products."""

from __future__ import annotations

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.frontend.notation import Program, inf, sum, where
from neptune_mlir.ops.attention import check_options, factors, heads_of, shaped, softmax_sum


def e4m3_attention(
    *, head_dim: int, v_dim: int | None = None, batch: int | None = None,
    heads: int | None = None, q_len: int | None = None, kv_len: int | None = None, group: int = 1,
    dtype: str = "f16", causal: bool = False, window: int | None = None,
    softcap: float | None = None, scale: float | None = None, scales: bool = False,
    return_lse: bool = False, name: str = "e4m3_attention",
) -> Program:  # fmt: skip
    """`attention` of q, k and v in e4m3; weights are rounded to e4m3 before the second product.

    That rounding costs an error of 2 to 3%. A weight under 2^-10 of a row's largest becomes 0.

    Args:
        head_dim, v_dim, batch, heads, q_len, kv_len, group, causal, window, softcap, scale,
            return_lse: as those of `attention`. `heads` is a multiple of `group`.
        dtype: of the result.
        scales: arguments `q_scales` [heads], `k_scales` and `v_scales` [kv_heads], f32, behind v:
            q, k and v are their numbers times these.

    Raises:
        UsageError: options that do not fit together.
    """
    check_options(head_dim, v_dim, dtype, window, softcap)
    p = Program(name)
    (b, h, hk, i, j, d, e), shared, (q, k, v) = factors(
        p, FLOAT8, (head_dim, v_dim or head_dim), batch, heads_of(heads, None, group),
        (q_len, kv_len),
    )  # fmt: skip
    position = i + (j.size - i.size)
    s = sum(q[b, h, i, d] * k[b, shared, j, d], d) * (head_dim**-0.5 if scale is None else scale)
    of_values = None
    if scales:
        of_q, of_k = p.input("q_scales", h), p.input("k_scales", hk)
        s, of_values = s * (of_q[h] * of_k[shared]), p.input("v_scales", hk)[shared]
    s = shaped(s, j - position, softcap, None)
    if causal:
        s = where(j <= position, s, -inf)
    if window is not None:
        s = where(position - j < window, s, -inf)
    out, lse = softmax_sum(s, j, v[b, shared, j, e], None)
    p.output(out if of_values is None else out * of_values, b, h, i, e, dtype=dtype)
    if return_lse:
        p.output(lse, b, h, i, dtype="f64" if dtype == "f64" else "f32")
    return p


__all__ = ["e4m3_attention"]
