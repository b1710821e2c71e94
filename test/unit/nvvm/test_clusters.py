# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that run together, on the simulator: programs that share what they load, or a sum."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import rings, specialized
from neptune_mlir.codegen.nvidia.clusters import instructions, pairs
from neptune_mlir.frontend import notation
from support.chips.run_kernels import Specialised
from support.chips.simt_cluster import ClusterBlock

TILES = "product_rows:128;product_columns:128"


def run(rows: int, length: int, columns: int, knobs: str, blocks: int = 2):
    """What blocks make of a product, and what is right; the blocks."""
    p = notation.Program("product")
    i, j, k = p.axis("i", rows), p.axis("j", columns), p.axis("k", length)
    x, w = p.input("x", i, k, dtype="f16"), p.input("w", k, j, dtype="f16")
    p.output(notation.sum(x[i, k] * 1.0 * w[k, j], k), i, j, dtype="f16")
    program = Specialised(p, knobs=knobs, blocks=blocks)
    draw = np.random.default_rng(0).standard_normal
    left = draw((rows, length)).astype(np.float16)
    right = (draw((length, columns)) / np.sqrt(length)).astype(np.float16)
    made = np.asarray(program(left, right), np.float64)
    return made, left.astype(np.float64) @ right.astype(np.float64), program.blocks


@pytest.mark.parametrize(
    ("knobs", "rows", "blocks"),
    [
        (f"{TILES};pairs:2", 300, 2),  # three tiles of rows: one is made twice
        ("product_rows:64;product_columns:128;pairs:1", 70, 132),  # three of columns
    ],
)
def test_programs_in_pairs(knobs, rows, blocks):
    made, right, ran = run(rows, 200, 328, knobs, blocks)
    assert np.abs(made - right).max() < 5e-3
    assert all(isinstance(block, ClusterBlock) for block in ran)


def test_both_wait_for_both(monkeypatch):
    """A slot that the other block has not released is not filled."""
    monkeypatch.setattr(rings.instructions, "arrive_beside_if_first", lambda *_: None)
    with pytest.raises(AssertionError, match="blocks that wait for each other"):
        run(200, 1024, 256, f"{TILES};pairs:2")


@pytest.mark.parametrize("met", [(True, False), (False, True)])
def test_blocks_run_together(monkeypatch, met):
    """Neither writes to a block that has not begun, or is over."""
    meet, times = instructions.meet_in_cluster, iter(met)
    monkeypatch.setattr(specialized, "meet_in_cluster", lambda **_: next(times) and meet())
    with pytest.raises(AssertionError, match="a block that does not run"):
        run(200, 256, 256, f"{TILES};pairs:2")


@pytest.mark.parametrize(
    ("knobs", "rows", "length"),
    [
        ("product_rows:64;product_columns:128;sums:4", 70, 1000),
        ("product_rows:128;product_columns:64;sums:3", 130, 520),  # of eight warps
        (f"{TILES};sums:8", 130, 328),  # six steps: two blocks have none
    ],
)
def test_blocks_that_share_a_sum(knobs, rows, length):
    made, right, blocks = run(rows, length, 136, f"{knobs};resident:0")
    assert np.abs(made - right).max() < 5e-3
    assert all(isinstance(block, ClusterBlock) for block in blocks)


def test_blocks_that_stay_share_no_sum():
    _, _, blocks = run(70, 256, 128, "product_rows:64;product_columns:128;sums:4")
    assert not any(isinstance(block, ClusterBlock) for block in blocks)


def attend(
    knobs: str, heads: int, kv_heads: int, length: int, keys: int = 0, blocks: int = 2, **more
):
    """The error of attention in pairs, and the blocks."""
    program = ops.attention(head_dim=24, dtype="f16", heads=heads, kv_heads=kv_heads, **more)
    kernel = Specialised(program, knobs=knobs, blocks=blocks)
    draw, keys = np.random.default_rng(1).standard_normal, keys or length
    shapes = (1, heads, length, 24), *((1, kv_heads, keys, 24),) * 2
    given = [draw(shape).astype(np.float16) for shape in shapes]
    right = program.reference(*(x.astype(float) for x in given))
    return np.linalg.norm(kernel(*given) - right) / np.linalg.norm(right), kernel.blocks


@pytest.mark.parametrize(
    ("knobs", "heads", "kv_heads"),
    [
        ("pairs:1", 1, 1),  # three tiles of rows, one of which is made twice
        ("pairs:2", 4, 2),  # two heads of a group
    ],
)
def test_streams_in_pairs(knobs, heads, kv_heads):
    error, blocks = attend(knobs, heads, kv_heads, 300)
    assert error < 1e-3
    assert all(isinstance(block, ClusterBlock) for block in blocks)


@pytest.mark.parametrize(
    ("knobs", "heads", "kv_heads", "length", "keys"),
    [
        ("pairs:2", 4, 2, 300, 300),  # six pairs, one after the other
        ("pairs:1", 1, 1, 450, 200),  # the second pair's first program has nothing to stream
    ],
)
def test_pairs_whose_streams_a_mask_ends(knobs, heads, kv_heads, length, keys):
    """Blocks take them from a queue, and both of a pair end together."""
    error, blocks = attend(knobs, heads, kv_heads, length, keys, causal=True)
    assert error < 1e-3
    assert len(blocks) == 2 and all(isinstance(block, ClusterBlock) for block in blocks)


def test_a_pair_that_is_not_told_waits(monkeypatch):
    monkeypatch.setattr(pairs.instructions, "tell_beside", lambda *_: None)
    with pytest.raises(AssertionError, match="blocks that wait for each other"):
        attend("pairs:2", 4, 2, 130, causal=True)


def test_heads_of_two_groups_share_nothing():
    _, blocks = attend("pairs:2", 6, 2, 130)
    assert not any(isinstance(block, ClusterBlock) for block in blocks)
