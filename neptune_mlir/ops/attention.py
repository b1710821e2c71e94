# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention family, from plain math: scores, modifiers, mask, softmax, weighted sum.

Nothing here says how to run it. Tensors are `[batch, heads, length, head_dim]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.expr import convert, lift
from neptune_mlir.frontend.notation import (
    Axis,
    Expr,
    Program,
    cast,
    exp,
    inf,
    log,
    max,
    maximum,
    sum,
    tanh,
    where,
)

Mod = Callable[..., Expr]


@dataclass(frozen=True)
class Extra:
    """An input that a modifier reads: a tensor over axes of `"b h q kv"`, or a scalar (`""`).

    Modifiers take it by name: `def alibi(score, b, h, q, kv, slope): ...` with
    `inputs={"slope": Extra("h")}`.
    """

    axes: str = ""
    dtype: str = "f32"


def attention(
    *,
    head_dim: int,
    batch: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    group: int | None = None,
    q_len: int | None = None,
    kv_len: int | None = None,
    v_dim: int | None = None,
    dtype: str = "f32",
    scale: float | None = None,
    causal: bool = False,
    window: int | str | None = None,
    softcap: float | None = None,
    alibi: bool = False,
    sink: bool = False,
    documents: bool = False,
    score_mod: Mod | None = None,
    mask_mod: Mod | None = None,
    inputs: Mapping[str, Extra] | None = None,
    align: str = "end",
    return_lse: bool = False,
    rows_first: bool = False,
    name: str = "attention",
) -> Program:
    """softmax(scale * q kᵀ, modified and masked) v.

    Args:
        head_dim: of q and k; `v_dim` (default the same) of v and the result. Compiled in.
        batch, heads, q_len, kv_len: None means known at run time.
        kv_heads, group: grouped-query attention; `group` query heads share a key head (default
            1). Any two of `heads`, `kv_heads` and `group` give the third; give `group` alone
            where the numbers of heads are known at run time only.
        dtype: of q, k, v and the result: f16, bf16, f32 or f64. 16-bit types compute in f32,
            with the softmax weights rounded to `dtype` before the second product.
        scale: default 1 / sqrt(head_dim).
        causal: a query sees keys at its own position and before.
        window: a query also sees only keys fewer than this many positions back (an int, or
            the name of a scalar argument of type index). Bounds the past, not the future:
            combine it with `causal`.
        softcap: over 0; scores become softcap * tanh(score / softcap).
        alibi: adds slope[h] * (kv - q); an argument `slope` [heads], f32.
        sink: a learned logit per head (argument `sink` [heads], f32) that takes weight and
            gives nothing.
        documents: arguments `doc_q` [batch, q_len] and `doc_kv` [batch, kv_len], i32: a query
            sees keys of its own document.
        score_mod, mask_mod: FlexAttention's `score_mod(score, b, h, q, kv)` and
            `mask_mod(b, h, q, kv)`, traced; q and kv count from 0 as they do there; further
            parameters name `inputs`.
        align: for causal, window and alibi. "end": query i sits at position
            i + kv_len - q_len (a decode query is the last one); "start": at position i.
        return_lse: a second result [batch, heads, q_len], f32 (f64 of f64): log-sum-exp of the
            scores, a sink included.
        rows_first: the result is [batch, q_len, heads, v_dim]: a row's heads together, as the
            projection that mostly follows reads them.

    Returns:
        A program with arguments q [batch, heads, q_len, head_dim], k and v
        [batch, kv_heads, kv_len, ...], then those that the options above add, in the order
        of the options.
        A query that sees no key gives 0 (and a log-sum-exp of -inf).

    Raises:
        UsageError: options that do not fit together.
        InputError: a modifier that is not an expression of the right kind, at its line.
    """
    check_options(head_dim, v_dim, dtype, window, softcap, align)
    p = Program(name)
    (b, h, _, i, j, d, e), shared, (q, k, v) = factors(
        p, dtype, (head_dim, v_dim or head_dim), batch, heads_of(heads, kv_heads, group),
        (q_len, kv_len),
    )  # fmt: skip

    # The arguments that options add come in the order of the options.
    width = p.scalar(window, "index") if isinstance(window, str) else window
    slope = p.input("slope", h)[h] if alibi else None
    sink_logit = p.input("sink", h)[h] if sink else None
    same_document = _same_document(p, b, i, j) if documents else None
    extras = _extra_inputs(p, {"b": b, "h": h, "q": i, "kv": j}, inputs or {})

    position = i + (j.size - i.size) if align == "end" else i + 0
    s = sum(q[b, h, i, d] * k[b, shared, j, d], d) * (head_dim**-0.5 if scale is None else scale)
    s = shaped(s, j - position, softcap, slope)
    if score_mod:
        s = lift(_call("score_mod", score_mod, (s, b, h, i, j), extras), s)
    if causal:
        s = where(j <= position, s, -inf)
    if width is not None:
        s = where(position - j < width, s, -inf)
    if same_document is not None:
        s = where(same_document, s, -inf)
    if mask_mod:
        s = where(_call("mask_mod", mask_mod, (b, h, i, j), extras), s, -inf)

    out, lse = softmax_sum(s, j, v[b, shared, j, e], sink_logit)
    p.output(out, *((b, i, h, e) if rows_first else (b, h, i, e)), dtype=dtype)
    if return_lse:
        p.output(lse, b, h, i, dtype="f64" if dtype == "f64" else "f32")
    return p


def _same_document(p: Program, b: Axis, i: Axis, j: Axis) -> Expr:
    """Whether a query and a key are of one document."""
    of_q = p.input("doc_q", b, i, dtype="i32")
    of_kv = p.input("doc_kv", b, j, dtype="i32")
    return of_q[b, i] == of_kv[b, j]


def shaped(s: Expr, distance: Expr, softcap: float | None, slope: Expr | None) -> Expr:
    """Scores with a cap and a bias that grows with the distance of the key from the query."""
    if softcap:
        s = softcap * tanh(s / softcap)
    return s if slope is None else s + cast(slope, s.dtype) * distance


def softmax_sum(s: Expr, j: Axis, v: Expr, sink: Expr | None) -> tuple[Expr, Expr]:
    """The sum over `j` of `v` with the softmax of `s` as weights, and the log-sum-exp: 0 and -inf
    where all of `s` are -inf. Weights are rounded to the type of `v`; `sink` is one more score."""
    m = max(s, j)
    if sink is not None:
        m = maximum(m, sink)
    m = where(m == -inf, 0.0, m)
    w = exp(s - m)
    total = sum(w, j)
    if sink is not None:
        total = total + exp(sink - m)
    o = sum(convert(w, v.dtype) * v, j)  # to 8 bits before it is divided
    return where(total == 0, 0.0, o / total), m + log(total)


def check_options(
    head_dim: int, v_dim: int | None, dtype: str, window: int | str | None,
    softcap: float | None, align: str = "end",
) -> None:  # fmt: skip
    """Raises UsageError for options that mean nothing."""
    for name, dim in (("head_dim", head_dim), ("v_dim", v_dim)):
        if dim is not None and (not isinstance(dim, int) or dim < 1):
            raise UsageError(f"{name} is {dim!r}", hint="a positive int, known when compiling")
    if dtype not in ("f16", "bf16", "f32", "f64"):
        raise UsageError(f"attention on {dtype}", hint="dtype is f16, bf16, f32 or f64")
    if not isinstance(window, int | str | None):
        raise UsageError(f"window is {window!r}", hint="an int, or the name of an argument")
    if isinstance(window, int) and window < 0:
        raise UsageError(f"window is {window}", hint="0 or more; 1: a query sees itself")
    if softcap is not None and not (isinstance(softcap, int | float) and softcap > 0):
        raise UsageError(f"softcap is {softcap!r}", hint="over 0, or None for no cap")
    if align not in ("end", "start"):
        raise UsageError(f"align is '{align}'", hint="'end' or 'start'")


def factors(
    p: Program, dtype: str, dims: tuple[int, int], batch: int | None,
    heads: tuple[int | None, int | None, int], lengths: tuple[int | None, int | None],
) -> tuple[tuple[Axis, ...], Any, tuple[Any, ...]]:  # fmt: skip
    """The axes b, h, hk (h where no head is shared), i, j, d and e of a program, the key head of a
    query head h, and the arguments q [b, h, i, d], k [b, hk, j, d] and v [b, hk, j, e].

    Args:
        dims: of q and k, and of v.
        heads: query heads, key heads and the group, as `heads_of` gives them.
        lengths: of queries and keys.
    """
    h_size, hk_size, group = heads
    b, h = p.axis("b", batch), p.axis("h", h_size)
    hk = p.axis("hk", hk_size) if group > 1 else h
    i, j = p.axis("i", lengths[0]), p.axis("j", lengths[1])
    d, e = p.axis("d", dims[0]), p.axis("e", dims[1])
    q = p.input("q", b, h, i, d, dtype=dtype)
    k = p.input("k", b, hk, j, d, dtype=dtype)
    v = p.input("v", b, hk, j, e, dtype=dtype)
    return (b, h, hk, i, j, d, e), h // group if group > 1 else h, (q, k, v)


def heads_of(
    heads: int | None, kv_heads: int | None, group: int | None
) -> tuple[int | None, int | None, int]:
    """Query heads, key heads and the group, each from the other two where it is not given."""
    if group is not None and group < 1:
        raise UsageError(f"group is {group}", hint="the number of query heads per key head")
    if heads and kv_heads:
        group = heads // kv_heads if group is None else group
    elif group is None:
        group = 1
    if heads is None and kv_heads is not None:
        heads = kv_heads * group
    if kv_heads is None and heads is not None:
        kv_heads = heads // group
    if heads is not None and heads != (kv_heads or 0) * group:
        raise UsageError(
            f"{heads} query heads are not {kv_heads} key heads times a group of {group}",
            hint="heads = kv_heads * group",
        )
    return heads, kv_heads, group


def _extra_inputs(
    p: Program, axes: Mapping[str, Axis], inputs: Mapping[str, Extra]
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, extra in inputs.items():
        unknown = [a for a in extra.axes.split() if a not in axes]
        if unknown:
            raise UsageError(
                f"input '{name}' has an axis '{unknown[0]}'", hint="axes are b, h, q and kv"
            )
        made[name] = (
            p.input(name, *[axes[a] for a in extra.axes.split()], dtype=extra.dtype)
            if extra.axes
            else p.scalar(name, extra.dtype)
        )
    return made


def _call(
    option: str, mod: Mod, arguments: tuple[Any, ...], extras: Mapping[str, Any]
) -> Any:
    """The modifier on the traced arguments, and those extra inputs that it names."""
    if not callable(mod):
        raise UsageError(f"{option} is {mod!r}", hint="a function of expressions")
    signature = inspect.signature(mod)
    named = list(signature.parameters.values())[len(arguments) :]
    missing = [n.name for n in named if n.default is n.empty and n.name not in extras]
    if missing:
        raise UsageError(
            f"{option} takes '{missing[0]}', which inputs does not list",
            hint=f"inputs={{'{missing[0]}': Extra('h')}}",
        )
    given = {n.name: extras[n.name] for n in named if n.name in extras}
    try:
        signature.bind(*arguments, **given)
    except TypeError as error:
        wanted = "score, b, h, q, kv" if option == "score_mod" else "b, h, q, kv"
        raise UsageError(f"{option}: {error}", hint=f"it is called with ({wanted})") from None
    return mod(*arguments, **given)


def decode_attention(**options: Any) -> Program:
    """`attention` for one query per sequence, which sits at the last position."""
    return attention(q_len=1, **{"name": "decode", **options})


# The ten operators of the paper (section 6.1): head dim 128, scale 1 / sqrt(d), positions
# aligned at the end. So a decode query is the last position: causal, it sees every key, and
# needs no mask.
OPERATORS: dict[str, dict[str, Any]] = {
    "prefill_global": {"heads": 32, "kv_heads": 32},
    "prefill_causal": {"heads": 32, "kv_heads": 32, "causal": True},
    "prefill_gqa": {"heads": 64, "kv_heads": 8, "causal": True},
    "prefill_alibi": {"heads": 32, "kv_heads": 32, "causal": True, "alibi": True},
    "prefill_softcap": {"heads": 32, "kv_heads": 16, "causal": True, "softcap": 50.0},
    "prefill_windowed": {
        "heads": 32, "kv_heads": 8, "causal": True, "softcap": 50.0, "window": 4096,
    },
    "decode_causal": {"heads": 32, "kv_heads": 32, "q_len": 1},
    "decode_gqa": {"heads": 64, "kv_heads": 8, "q_len": 1},
    "decode_alibi": {"heads": 32, "kv_heads": 32, "q_len": 1, "alibi": True},
    "decode_softcap": {"heads": 32, "kv_heads": 16, "q_len": 1, "softcap": 50.0},
}  # fmt: skip


def operator(name: str, **options: Any) -> Program:
    """One of the paper's ten operators; `options` override (`dtype`, `batch`, lengths, ...).

    Raises:
        UsageError: no operator of that name.
    """
    if name not in OPERATORS:
        raise UsageError(f"no operator '{name}'", hint=", ".join(OPERATORS))
    settings: dict[str, Any] = {"head_dim": 128, "batch": 1, "dtype": "f16", "name": name}
    return attention(**{**settings, **OPERATORS[name], **options})
