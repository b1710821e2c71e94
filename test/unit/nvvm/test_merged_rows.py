# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Heads of a group and queries of a sequence as the rows of one product: right on the simulators,
with tiles of all sizes, whether or not warps are specialised."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.pipelines import common, nvvm, runner
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.targets.nvidia import nvidia
from neptune_mlir.transforms import registry
from support.chips.run_kernels import Simulated, Variant
from support.serving_cases import Paged, formula

DIM = 64


LAST = {}  # case of a program and a target


@cache
def program_of(name, target):
    raised = RaisedProgram(PROGRAMS[name]().to_mlir(), name)
    return raised, next(raised.lowerings(target, nvvm.ways(target)))


@cache
def variants(name, target="sm_90a"):
    """The tile programs for calls with few rows, by rows of a tile and schedule."""
    raised, base = program_of(name, target)
    found = {}
    for case, variant in raised.variants(base, "", target):
        LAST[name, target] = case
        if case.merged:
            found[case.rows, case.schedule] = variant
    return found


def is_special(variant):
    """Whether its warps are specialised."""
    return "neptune.consumers" in str(variant.module)


@cache
def variant_of(name, kind, target="sm_90a"):
    """One of them: many programs have a test of one."""
    if (name, target) in LAST:  # which are there was asked before
        return variants(name, target)[kind]
    (raised, base), found = program_of(name, target), None
    for case in raised.cases(base):
        if case.merged and (case.rows, case.schedule) == kind:
            found = next(raised.variant(base, target, case), found)
    return found


@cache
def kernel_of(name, kind, target="sm_90a"):
    lowering = variant_of(name, kind, target)
    module = lowering.copy().module
    return Variant(module) if is_special(lowering) else Simulated(module, target=target)


PROGRAMS = {
    "causal": lambda: ops.attention(head_dim=DIM, group=4, causal=True, dtype="f16"),
    "window": lambda: ops.attention(
        head_dim=DIM, group=2, causal=True, window=20, softcap=10.0, dtype="f16", return_lse=True
    ),
    "32 queries": lambda: ops.attention(
        head_dim=DIM, group=4, q_len=32, causal=True, dtype="f16"
    ),
    "three": lambda: ops.attention(head_dim=DIM, group=4, q_len=3, causal=True, dtype="f16"),
    "paged": lambda: ops.paged_attention(
        head_dim=DIM, page_size=16, group=4, q_len=None, dtype="f16"
    ),
    "heads of 128": lambda: ops.attention(head_dim=128, group=8, causal=True, dtype="f16"),
    "heads of 160": lambda: ops.attention(head_dim=160, group=4, dtype="f16"),
    "heads of 48": lambda: ops.attention(head_dim=48, group=4, causal=True, dtype="f16"),
    "latent": lambda: ops.latent_attention(
        latent_dim=64, rope_dim=16, page_size=16, scale=0.1, q_len=None, dtype="f16"
    ),
    "shared": lambda: ops.attention(head_dim=16, group=1, causal=True, dtype="f16"),
    "of heads": lambda: ops.attention(
        head_dim=DIM, heads=4, kv_heads=2, alibi=True, sink=True, causal=True, dtype="f16"
    ),
    "of many": lambda: ops.attention(head_dim=DIM, heads=17, kv_heads=1, sink=True, dtype="f16"),
}  # fmt: skip


def f16(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float16)


def close(found, wanted):
    assert np.linalg.norm(found - wanted) <= 2e-3 * np.linalg.norm(wanted)


CHUNKS = "private"
SHARED = [  # by groups of warps
    *((n, schedule) for n in (128, 192) for schedule in (CHUNKS, "streamed")), (64, "streamed")
]  # fmt: skip


def test_which_rows_have_kernels():
    small, short = [(16, CHUNKS), (16, "streamed")], [kind for kind in SHARED if kind[0] != 192]
    assert list(variants("causal")) == [*SHARED, (32, CHUNKS), *small]
    assert list(variants("paged")) == [*short, (32, CHUNKS), *small]
    assert list(variants("latent")) == [*short[:-1], (64, CHUNKS), short[-1], *small]
    wide = variants("heads of 160")  # 192 rows leave registers for tiles of 64 keys
    assert 192 not in {rows for rows, _ in wide}
    assert list(variants("three", "sm_80")) == [(16, CHUNKS), (16, "streamed")]
    assert not variants("shared", "sm_80")
    for name in ("causal", "paged"):
        for kind, variant in variants(name).items():
            assert is_special(variant) == (kind in SHARED)
    assert kernel_of("latent", (16, "streamed")).kernels()  # no other test has these tiles


def test_whole_tiles_have_no_mask():
    """Places of merged rows are remainders, which a map computes ahead: masks compare its result.
    Whole tiles, in the first of two loops, are below all of them."""
    text = str(variants("causal")[SHARED[0]].module)
    assert text.count("scf.for %") == 2
    whole, last = text.split("scf.for %")[1:]
    assert "arith.cmpi sle" not in whole and "arith.remsi" in whole  # for what follows
    assert "arith.cmpi sle" in last


@pytest.mark.first_of_each("kind")
@pytest.mark.parametrize("queries", [3, 1, 7])
@pytest.mark.parametrize("kind", [*SHARED, (32, CHUNKS), (16, CHUNKS)])
def test_causal(kind, queries):
    """Tiles that hold all rows, and not; rows that are no power of two."""
    kernel = kernel_of("causal", kind)
    q, k, v = f16(1, 8, queries, DIM), f16(2, 2, 150, DIM)[:1], f16(3, 2, 150, DIM)[:1]
    close(kernel(q, k, v)[0], formula(q[0], k[0], v[0])[0])


def test_parts_of_lines_are_left_to_warp_groups():
    """Their smallest tiles are cut into chunks, too; no tiles are between."""
    found = list(variants("heads of 48"))
    assert found == [*SHARED[:-1], (64, CHUNKS), SHARED[-1], (16, CHUNKS), (16, "streamed")]
    kernel = kernel_of("heads of 48", (64, CHUNKS))
    q, k, v = f16(1, 4, 5, 48), f16(2, 1, 150, 48)[:1], f16(3, 1, 150, 48)[:1]
    close(kernel(q, k, v)[0], formula(q[0], k[0], v[0])[0])


@pytest.mark.first_of_each()
@pytest.mark.parametrize("kind", [(16, CHUNKS), SHARED[0]])
def test_numbers_of_each_head(kind):
    """Slopes and sinks, among which each row chooses."""
    kernel = kernel_of("of heads", kind)
    q, k, v = f16(1, 4, 5, DIM), f16(2, 2, 150, DIM)[:1], f16(3, 2, 150, DIM)[:1]
    slope, sink = np.float32([0.5, 0.1, 0.02, 0.3]), np.float32([-np.inf, 3, 0, 40])
    wanted = PROGRAMS["of heads"]().reference(q, k, v, slope, sink)
    close(kernel(q, k, v, slope, sink).astype(np.float64), wanted)


def test_one_row_of_each_head_takes_no_kernel_more():
    """Where a kernel makes one for each row, of many heads; calls with one row need none."""
    variants("of many"), variants("of heads"), variants("causal")
    last = LAST["of many", "sm_90a"]
    assert (last.knob, last.merged) == ("rows:1", False)
    assert last.condition == ["le", ["dim", 0, 2], 1]
    assert LAST["causal", "sm_90a"].merged
    assert LAST["of heads", "sm_90a"].merged


def test_queries_that_see_no_key():
    """More queries than keys; no key at all."""
    kernel = kernel_of("causal", (16, CHUNKS))
    q, k, v = f16(1, 4, 5, DIM), f16(2, 1, 3, DIM)[:1], f16(3, 1, 3, DIM)[:1]
    found = kernel(q, k, v)
    assert (found[:, :, :2] == 0).all()
    close(found[0], formula(q[0], k[0], v[0])[0])
    assert (kernel(q, k[:, :, :0], v[:, :, :0]) == 0).all()


@pytest.mark.first_of_each()
@pytest.mark.parametrize("kind", [(16, CHUNKS), (128, CHUNKS)])
def test_masks_at_both_ends(kind):
    kernel = kernel_of("window", kind)
    q, k, v = f16(1, 4, 9, DIM), f16(2, 2, 70, DIM)[:1], f16(3, 2, 70, DIM)[:1]
    found, sums = kernel(q, k, v)
    wanted, sums_wanted = formula(q[0], k[0], v[0], window=20, softcap=10.0)
    close(found[0], wanted)
    np.testing.assert_allclose(sums[0], sums_wanted, atol=1e-3)


def test_rows_that_the_program_knows():
    """All rows of a group are one tile, as where a call says how many there are: views of known
    extents are no reads by quotients, within which a tile would lie. Tiles of half of them, of
    which a call has twice as many, have no kernels."""
    found = variants("32 queries")
    assert list(found) == [(128, CHUNKS), (128, "streamed")]
    assert LAST["32 queries", "sm_90a"].merged  # not what serves calls whose stream has one chunk
    assert all(map(is_special, found.values()))
    kernel = kernel_of("three", (16, CHUNKS), "sm_80")
    q, k, v = f16(1, 8, 3, DIM), f16(2, 2, 40, DIM)[:1], f16(3, 2, 40, DIM)[:1]
    close(kernel(q, k, v)[0], formula(q[0], k[0], v[0])[0])


@pytest.mark.first_of_each()
@pytest.mark.parametrize("kind", [(16, CHUNKS), (128, CHUNKS), (64, "streamed")])
def test_pages(kind):
    """Lengths at the edges of pages; what no sequence uses is NaN, infinity and garbage."""
    kernel = kernel_of("paged", kind)
    case = Paged([3, 15, 16, 17, 48, 3], 16, heads=8, group=4, dim=DIM, q_len=3, dtype=np.float16)
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


@pytest.mark.parametrize("kind", [(16, CHUNKS), (64, "streamed")])
def test_latents(kind):
    """All heads share the cache: they are rows with the queries, whatever their number is."""
    kernel = kernel_of("latent", kind)
    rng = np.random.default_rng(0)
    q, r, rows = f16(2, 3, 2, 64), f16(2, 3, 2, 16), f16(4, 16, 80)
    table, lengths = np.array([[2, 0], [1, 3]], np.int32), np.array([20, 16], np.int32)
    rows[0, 4:] = np.nan
    rows[3] = rng.choice([np.nan, np.inf], rows[3].shape)
    found = kernel(q, r, rows, table, lengths)
    for b, keys in enumerate((np.concatenate([rows[2], rows[0, :4]]), rows[1])):
        both = np.concatenate([q[b], r[b]], -1)
        wanted = formula(both, keys[None], keys[None, :, :64], scale=0.1)[0]
        np.testing.assert_allclose(found[b], wanted, atol=4e-3)


def test_what_is_streamed_has_the_room_of_a_second_tile_of_queries():
    """Few rows wait for memory: three slots of keys and of values, with heads of 128."""
    found = variant_of("heads of 128", (128, "streamed")).copy().module
    with found.context, registry.collect_remarks():
        steps = nvvm.to_kernels(nvidia("sm_90a"), "")
        common.run(found, runner.until(steps, "partition-warps"))
    slots = re.findall(r"aref_create.*tensor<128x128xf16>, (\d) ", str(found))
    assert slots == ["1", "3", "3"]
    kernel = kernel_of("heads of 128", (128, "streamed"))
    q, k, v = f16(1, 8, 5, 128), f16(2, 1, 700, 128)[:1], f16(3, 1, 700, 128)[:1]
    close(kernel(q, k, v)[0], formula(q[0], k[0], v[0])[0])
