# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores and rows that are hard on exponentials, and programs of them, for simulators and devices.

Masks that are added to scores, in the ways that models write them; rows far from 0; references
that jump. A fused program is right if it is NaN and infinite where the program in float64 is, and
its error is at most twice that of the program in float32, which nobody fused, and 4 units in the
last place."""

from __future__ import annotations

from typing import Any

import numpy as np

LOWEST = float(np.finfo(np.float32).min)
FILLS = {"lowest": LOWEST, "-1e9": -1e9, "-1e4": -1e4, "-inf": -np.inf}
UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23}
PLACES = ("left", "right", "all", "some rows", "every other tile")
STEPS = {
    "rising": lambda tile: 1e4 * tile, "falling": lambda tile: -1e4 * tile,
    "jumping": lambda tile: 1e4 * (tile % 2), "far": lambda tile: -1e5 + 0 * tile,
    "farther": lambda tile: 1e6 + 0 * tile, "on the edge": lambda tile: 3e5 * tile,
}  # fmt: skip


def masks(rows: int, keys: int, tile: int) -> dict[str, np.ndarray]:
    """What is added to scores [rows, keys] that are streamed in tiles, by what it is."""
    made = {}
    number = np.arange(keys) // tile
    for name, fill in FILLS.items():
        for place in PLACES:
            mask = np.zeros((rows, keys), np.float32)
            match place:
                case "left":
                    mask[:, : keys * 3 // 5] = fill
                case "right":
                    mask[:, keys // 3 :] = fill
                case "all":
                    mask[:] = fill
                case "some rows":
                    mask[::3], mask[:, : tile + 3] = fill, fill
                case "every other tile":
                    mask[:, number % 2 == 0] = fill
            made[f"{name} {place}"] = mask
    for name, step in STEPS.items():
        made[name] = np.broadcast_to(step(number), (rows, keys)).astype(np.float32)
    return made


FEW = ("lowest left", "lowest all", "-1e9 left", "-1e9 some rows", "-1e4 every other tile",
       "-inf some rows", "jumping", "on the edge")  # fmt: skip


def attention(head: int, dtype: str, **settings: Any) -> Any:
    """With a mask [batch, rows, keys] that is added, and log-sum-exp."""
    from neptune_mlir import ops

    return ops.attention(
        head_dim=head, dtype=dtype, return_lse=True, inputs={"mask": ops.Extra("b q kv")},
        score_mod=lambda score, b, h, q, kv, mask: score + mask[b, q, kv], **settings,
    )  # fmt: skip


def attention_unfused(
    q: Any, k: Any, v: Any, mask: Any, kind: Any, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """In arithmetic of one kind; float32 rounds weights and results as the program does."""
    given = q.dtype
    q, k, v, mask = (x.astype(kind) for x in (q, k, v, mask))
    scores = q @ k.swapaxes(-1, -2) * kind(q.shape[-1] ** -0.5) + mask
    if causal:
        rows, keys = scores.shape[-2:]
        scores = np.where(np.tri(rows, keys, keys - rows, dtype=bool), scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    most = np.where(most == -np.inf, 0, most).astype(kind)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    rounded = weights.astype(given).astype(kind) if kind == np.float32 else weights
    found = np.where(total == 0, 0, rounded @ v / total)
    sums = (most + np.log(total))[..., 0]
    return (found.astype(given) if kind == np.float32 else found), sums


def sum_of_exponentials() -> Any:
    """Of a row's distances from its maximum: a sum that nothing normalises."""
    from neptune_mlir.frontend import notation as n

    p = n.Program("sum_of_exponentials")
    i, j = p.axis("i", None), p.axis("j", None)
    x = p.input("x", i, j)[i, j]
    p.output(n.sum(n.exp(x - n.max(x, j)), j), i)
    return p


def _sum_of_exponentials(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max(1, keepdims=True)).sum(1)


def _softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _logsumexp(x: np.ndarray) -> np.ndarray:
    most = x.max(1, keepdims=True)
    most = np.where(most == -np.inf, 0, most).astype(x.dtype)
    return (most + np.log(np.exp(x - most).sum(1, keepdims=True)))[:, 0]


UNFUSED = {
    "softmax": _softmax, "logsumexp": _logsumexp, "sum_of_exponentials": _sum_of_exponentials
}  # fmt: skip


def row_program(name: str) -> Any:
    from neptune_mlir import ops

    made = {"softmax": ops.softmax, "logsumexp": ops.logsumexp}
    return made.get(name, sum_of_exponentials)()


def rows(count: int, columns: int, tile: int = 64) -> dict[str, np.ndarray]:
    """Some rows of each kind, float32 [count, columns]."""
    plain = np.random.default_rng(columns).standard_normal((count, columns)).astype(np.float32)
    made = {f"at {at:g}": plain + np.float32(at) for at in (0, 1e3, -1e4, 1e5, 1e6)}
    with np.errstate(over="ignore", invalid="ignore"):
        for name, mask in masks(count, columns, tile).items():
            made[name] = np.maximum(plain + mask, LOWEST) if "inf" not in name else plain + mask
    for value in (np.inf, np.nan):
        for at in (3, columns - 7):
            made[f"{value} at {at}"] = plain.copy()
            made[f"{value} at {at}"][-1, at] = value
    made["equal"], made["apart"] = np.full_like(plain, 1e30), 1e4 * plain
    return made


def check(found: Any, want: Any, unfused: Any, unit: float, name: str) -> None:
    """Compare what was found with what is wanted (float64)."""
    found, unfused = np.asarray(found, np.float64), np.asarray(unfused, np.float64)
    for is_so in (np.isnan, np.isposinf, np.isneginf):
        assert np.array_equal(is_so(found), is_so(want)), (name, is_so.__name__)
    finite = np.isfinite(want)
    size = np.linalg.norm(want[finite]) or 1.0
    error, other = (np.linalg.norm(x[finite] - want[finite]) / size for x in (found, unfused))
    assert error <= 2 * other + 4 * unit, (name, error, other)
