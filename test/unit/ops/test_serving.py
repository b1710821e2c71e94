# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Serving programs against float64, on caches whose unused parts are garbage."""

from __future__ import annotations

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.errors import UsageError
from support.serving_cases import Paged, formula, ragged_sequences

PAGE = 16
TILE = 128  # keys, of the CPU's schedule
LENGTHS = [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 4 * PAGE]
TOLERANCE = {np.float32: 2e-6, np.float16: 2e-3}
NAMES = {np.float32: "f32", np.float16: "f16"}


def close(got, wanted, dtype=np.float32):
    np.testing.assert_allclose(
        np.asarray(got, np.float64), wanted, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype]
    )


def kernel_for(case: Paged, **options):
    sizes = {"head_dim": case.dim, "page_size": case.page_size, "group": case.group}
    program = ops.paged_attention(**sizes, dtype=NAMES[case.dtype], **options)
    return neptune_mlir.compile(program)


def test_lengths_at_the_edges_of_pages():
    case = Paged(LENGTHS, PAGE)
    kernel = kernel_for(case)
    out = kernel(*case.arguments)
    close(out, case.expected()[0])
    assert not out[0].any()  # of the sequence without keys
    assert "live only where (j < index(arg3[b]))" in "".join(kernel.facts["remarks"])


def test_half_precision_in_pages_of_one_key():
    case = Paged(LENGTHS, 1, dtype=np.float16, heads=8, group=8, dim=32)
    close(kernel_for(case)(*case.arguments), case.expected()[0], np.float16)


def test_every_option():
    case = Paged(LENGTHS, PAGE, q_len=3)
    rng = np.random.default_rng(1)
    slope, sink = (rng.standard_normal(case.heads).astype(np.float32) for _ in range(2))
    options = {"softcap": 3.0, "scale": 0.2}
    kernel = kernel_for(case, q_len=3, window="width", alibi=True, sink=True, return_lse=True,
                        **options)  # fmt: skip
    out, lse = kernel(*case.arguments, 20, slope, sink)
    wanted = case.expected(window=20, slope=slope, sink=sink, **options)
    close(out, wanted[0])
    close(lse, wanted[1])


def test_queries_that_a_call_counts():
    """One kernel for any number of queries; those before a sequence's start see no key."""
    kernel = kernel_for(Paged([1], PAGE), q_len=None, return_lse=True)
    for count in (1, 5):
        case = Paged(LENGTHS, PAGE, q_len=count)
        for got, wanted in zip(kernel(*case.arguments), case.expected(), strict=True):
            close(got, wanted)


def test_all_queries_see_all_keys_without_a_causal_mask():
    case = Paged(LENGTHS[1:], PAGE, q_len=3)
    close(kernel_for(case, q_len=3, causal=False)(*case.arguments), case.expected(causal=False)[0])


def test_the_rest_of_the_batch_changes_no_bit():
    kernel = kernel_for(Paged([1], PAGE))
    case = Paged(LENGTHS, PAGE)
    whole = kernel(*case.arguments)
    for b in range(len(LENGTHS)):
        q, k, v, table, lengths = case.arguments
        alone = kernel(q[b : b + 1], k, v, table[b : b + 1], lengths[b : b + 1])
        np.testing.assert_array_equal(alone[0], whole[b])


def test_pages_are_a_contiguous_cache_bit_for_bit():
    """At the same tiles of keys; of the contiguous form the length is the extent."""
    case = Paged([3 * TILE + 5], TILE, group=1)
    ((k, v),) = case.sequences
    contiguous = neptune_mlir.compile(ops.attention(head_dim=case.dim, q_len=1))
    rows = (a.swapaxes(0, 1)[None].copy() for a in (k, v))
    np.testing.assert_array_equal(kernel_for(case)(*case.arguments), contiguous(case.q, *rows))


def test_latents_are_keys_and_values():
    rng = np.random.default_rng(0)
    latent, rope, heads, pages = 24, 8, 3, 12
    cache = np.full((pages, PAGE, latent + rope), np.nan, np.float32)
    table = rng.permutation(pages).reshape(4, 3).astype(np.int32)
    lengths = np.array([0, PAGE - 1, PAGE + 1, 3 * PAGE], np.int32)
    q = rng.standard_normal((4, heads, 2, latent + rope)).astype(np.float32)
    wanted = np.zeros((4, heads, 2, latent))
    for b, length in enumerate(lengths):
        rows = rng.standard_normal((length, latent + rope)).astype(np.float32)
        for at in range(length):
            cache[table[b, at // PAGE], at % PAGE] = rows[at]
        wanted[b] = formula(q[b], rows[None], rows[None, :, :latent], scale=0.3)[0]
        table[b, -(-length // PAGE) :] = -7
    program = ops.latent_attention(
        latent_dim=latent, rope_dim=rope, page_size=PAGE, scale=0.3, q_len=2
    )
    kernel = neptune_mlir.compile(program)
    q_latent, q_rope = np.split(q, [latent], axis=-1)
    close(kernel(q_latent.copy(), q_rope.copy(), cache, table, lengths), wanted)


def test_sequences_one_behind_the_other():
    rng = np.random.default_rng(0)
    queries, keys = [3, 0, 1, 17, 2], [3, 4, 0, 20, 40]
    q_starts, kv_starts = (np.cumsum([0, *n]).astype(np.int32) for n in (queries, keys))
    q = rng.standard_normal((sum(queries), 4, 8)).astype(np.float32)
    k, v = (rng.standard_normal((sum(keys), 2, 8)).astype(np.float32) for _ in range(2))
    kernel = neptune_mlir.compile(ops.ragged_attention(head_dim=8, group=2, return_lse=True))
    out, lse = kernel(q, k, v, q_starts, kv_starts)
    for mine, wanted, sums in ragged_sequences(q, k, v, q_starts, kv_starts):
        close(out[mine], wanted)
        close(lse[mine], sums)
    # The loop over keys begins and ends with the sequences of a tile of queries: values elsewhere
    # are not read. (In a tile that is read, 0 times NaN would be NaN.)
    starts = np.array([0, TILE, 2 * TILE], np.int32)
    q, k, v = (rng.standard_normal((2 * TILE, h, 8)).astype(np.float32) for h in (4, 2, 2))
    v[:TILE] = np.nan
    out, _ = kernel(q, k, v, starts, starts)
    (_, (mine, wanted, _)) = ragged_sequences(q, k, v, starts, starts)
    close(out[mine], wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"page_size": 0}, "page_size is 0"), ({"kv_dtype": "i8"}, "a cache of i8"),
     ({"group": 0}, "group is 0"), ({"dtype": "i32"}, "attention on i32"),
     ({"softcap": 0}, "softcap is 0")],
)  # fmt: skip
def test_options_that_mean_nothing(options, message):
    with pytest.raises(UsageError, match=message):
        ops.paged_attention(**{"head_dim": 8, "page_size": PAGE, **options})
