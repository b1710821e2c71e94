# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches as servers have them, hostile on purpose, and what attention on them means, in float64.

Every page that no sequence uses, and every slot behind a sequence's end, holds NaN or infinity;
table entries behind it are anything that 32 bits can be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neptune_mlir.algebra.numerics.float8 import float8_bits, float8_values

GARBAGE = (-(2**31), 2**31 - 1, -1, 10**6)


def formula(
    q, k, v, *, scale=None, causal=True, window=None, softcap=None, slope=None, sink=None,
):  # fmt: skip
    """Output and log-sum-exp of one sequence: q [heads, n, d], k and v [kv_heads, m, ...]."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    group = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
    at_k = np.arange(k.shape[1])
    at_q = (np.arange(q.shape[1]) + k.shape[1] - q.shape[1])[:, None]
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if slope is not None:
        s = s + slope[:, None, None] * (at_k - at_q)
    seen = np.ones(s.shape, bool)
    if causal:
        seen &= at_k <= at_q
    if window is not None:
        seen &= at_q - at_k < window
    w = np.where(seen, np.exp(s), 0.0)  # the tests' scores are small enough for that
    total = w.sum(-1) + (0 if sink is None else np.exp(sink)[:, None])
    with np.errstate(all="ignore"):
        return np.where((total == 0)[..., None], 0.0, (w @ v) / total[..., None]), np.log(total)


@dataclass
class Paged:
    """Sequences of these lengths in pages, in an order that means nothing."""

    lengths: list[int]
    page_size: int
    heads: int = 4
    group: int = 2
    dim: int = 8
    q_len: int = 1
    dtype: type = np.float32
    seed: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        batch, kv_heads, size = len(self.lengths), self.heads // self.group, self.page_size
        columns = max(1, -(-max(self.lengths) // size) + 1)
        pages = batch * columns + 2
        self.q = rng.standard_normal((batch, self.heads, self.q_len, self.dim)).astype(self.dtype)
        self.k = np.full((pages, size, kv_heads, self.dim), np.nan, self.dtype)
        self.v = np.full((pages, size, kv_heads, self.dim), np.inf, self.dtype)
        self.table = rng.choice(GARBAGE, (batch, columns)).astype(np.int32)
        free = list(rng.permutation(pages))
        self.sequences = []
        for b, length in enumerate(self.lengths):
            shape = (length, kv_heads, self.dim)
            k, v = (rng.standard_normal(shape).astype(self.dtype) for _ in range(2))
            for column in range(-(-length // size)):
                page = self.table[b, column] = free.pop()
                here = slice(column * size, min((column + 1) * size, length))
                self.k[page, : here.stop - here.start] = k[here]
                self.v[page, : here.stop - here.start] = v[here]
            self.sequences.append((k, v))

    @property
    def arguments(self):
        return self.q, self.k, self.v, self.table, np.array(self.lengths, np.int32)

    def expected(self, **options):
        results = [
            formula(self.q[b], k.swapaxes(0, 1), v.swapaxes(0, 1), **options)
            for b, (k, v) in enumerate(self.sequences)
        ]
        return np.stack([o for o, _ in results]), np.stack([lse for _, lse in results])


def ragged_sequences(q, k, v, q_starts, kv_starts, **options):
    """Of each sequence of a ragged batch: its rows, their output and log-sum-exp."""
    for b in range(len(q_starts) - 1):
        mine = slice(q_starts[b], q_starts[b + 1])
        its = slice(kv_starts[b], kv_starts[b + 1])
        parts = (a.swapaxes(0, 1) for a in (q[mine], k[its], v[its]))
        out, lse = formula(*parts, **options)
        yield mine, out.swapaxes(0, 1), lse.swapaxes(0, 1)


def in_bytes(case: Paged, kind: str, scales: str | None, seed: int = 0):
    """The arguments of a case with a cache of e4m3 or int8, and its output for a scale of 0.05.

    Numbers are drawn anew; unused slots, and scales of unused slots and pages, are NaN.
    """
    rng = np.random.default_rng(seed)
    pages, size, kv_heads, _ = case.k.shape
    used = np.isfinite(case.k[:, :, 0, 0])
    shape = {"head": (kv_heads,), "token": (pages, size, kv_heads), "page": (pages, kv_heads)}
    expand = {"head": (None, None, slice(None), None), "token": (..., None),
              "page": (slice(None), None, slice(None), None)}  # fmt: skip
    stored, wide, factors = [], [], []
    for old in (case.k, case.v):
        if kind == "int8":
            numbers = rng.integers(-127, 128, old.shape).astype(np.int8)
            values = numbers.astype(np.float64)
        else:
            numbers = float8_bits(rng.standard_normal(old.shape) * 50)
            values = float8_values(numbers)
            numbers[~used] = 0x7F
        stored.append(numbers)
        if scales:
            factor = (rng.uniform(0.5, 2, shape[scales]) * 0.02).astype(np.float32)
            values = values * factor.astype(np.float64)[expand[scales]]
            if scales == "token":
                factor[~used] = np.nan
            elif scales == "page":
                factor[~used.any(1)] = np.nan
            factors.append(factor)
        wide.append(values)
    wanted = []
    for b, length in enumerate(case.lengths):
        at = np.arange(length)
        place = (case.table[b, at // size], at % size)
        k, v = (x[place].swapaxes(0, 1) for x in wide)
        wanted.append(formula(case.q[b], k, v, scale=0.05)[0])
    q, _, _, table, lengths = case.arguments
    return (q, *stored, table, lengths, *factors), np.stack(wanted)


def of_tree(case: Paged, tree: np.ndarray):
    """The output where `tree` [batch, q_len, q_len] says what each query sees of the last keys."""
    found = []
    for b, (k, v) in enumerate(case.sequences):
        length, n = case.lengths[b], case.q_len
        k, v = (np.repeat(x.swapaxes(0, 1), case.group, axis=0).astype(np.float64) for x in (k, v))
        seen = np.ones((n, length), bool)
        kept = min(n, length)
        seen[:, length - kept :] = tree[b, :, n - kept :]
        s = case.q[b].astype(np.float64) @ k.swapaxes(1, 2) * case.dim**-0.5
        w = np.where(seen, np.exp(s), 0.0)
        with np.errstate(all="ignore"):
            total = w.sum(-1, keepdims=True)
            found.append(np.where(total == 0, 0.0, w @ v / total))
    return np.stack(found)
