# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads through tables on GPUs: right on the simulators of both makers, whatever unused pages and
table entries hold, with loads that run ahead of their iteration."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.analysis.tiles import Pages, Window, foralls, nested
from neptune_mlir.codegen.nvidia.instructions import moves_along
from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.dialects.gpu_attributes import CONSUMERS
from neptune_mlir.dialects.program import streams
from neptune_mlir.driver import compiler
from neptune_mlir.pipelines import common, gpu, nvvm, runner
from neptune_mlir.pipelines.cases import short_parts
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets.nvidia import nvidia
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.gpu import longest_first
from neptune_mlir.transforms.gpu.streams import chains_of
from support.chips import run_kernels
from support.chips.run_kernels import Simulated, Specialised
from support.serving_cases import Paged, in_bytes, of_tree, ragged_sequences

LENGTHS = [0, 1, 15, 16, 17, 48]


def simulated(program, target, knobs=""):
    if target == "sm_90a":
        return Specialised(program)
    module, _ = compiler.lower_text(program.to_mlir(), "test", target, None, "tile", knobs)
    return Simulated(module, target=target)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_decode_of_grouped_heads(target):
    case = Paged(LENGTHS, 16, heads=16, group=16, dim=32, dtype=np.float16)
    program = ops.paged_attention(head_dim=32, page_size=16, group=16, dtype="f16")
    kernel = simulated(program, target)
    assert not [r for r in kernel.remarks if "matrix instruction" in r.message]
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_several_queries_in_small_pages(target):
    case = Paged(LENGTHS[:4], 4, heads=2, group=1, dim=16, q_len=3)
    kernel = simulated(ops.paged_attention(head_dim=16, page_size=4, q_len=3), target)
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=1e-5)


@pytest.mark.first_of_each()
@pytest.mark.parametrize(("target", "page_size"), [("sm_80", 1), ("sm_80", 4), ("gfx942", 1)])
def test_tiles_that_lie_in_several_pages(target, page_size):
    """Rows are looked up one by one, and none behind a sequence's end."""
    case = Paged(LENGTHS, page_size, heads=16, group=16, dim=32, dtype=np.float16)
    program = ops.paged_attention(head_dim=32, page_size=page_size, group=16, dtype="f16")
    module, _ = compiler.lower_text(program.to_mlir(), "test", target, None, "tile", "")
    assert "neptune.paged" in str(module)
    kernel = Simulated(module, target=target)
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("target", ["gfx1100", "sm_80"])
def test_long_sequences_begin_first(target, monkeypatch):
    """The order of programs changes no bit; lengths that are equal or 0 have a place as well."""
    case = Paged([17, 0, 48, 16, 48, 33], 16, heads=2, group=1, dim=16, dtype=np.float16)
    program = ops.paged_attention(head_dim=16, page_size=16, dtype="f16")
    monkeypatch.setattr(run_kernels, "MULTIPROCESSORS", 10)
    before = simulated(program, target)(*case.arguments)
    monkeypatch.setattr(longest_first, "LONG", 0)
    kernel = simulated(program, target)
    np.testing.assert_array_equal(kernel(*case.arguments), before)
    ahead, *_ = kernel.plan.launches
    assert ahead.kernel.endswith("_order") and ahead.of_mask
    shapes = [a.shape for a in case.arguments]
    assert evaluate(ahead.grid[0], shapes, [None] * 5, 10) == 2  # a warp a sequence


def test_long_sequences_begin_first_on_specialised_warps(monkeypatch):
    case = Paged([70, 143, 71], 16, heads=2, group=2, dim=64, q_len=70, dtype=np.float16)
    monkeypatch.setattr(run_kernels, "MULTIPROCESSORS", 2)
    monkeypatch.setattr(longest_first, "LONG", 0)
    kernel = Specialised(
        ops.paged_attention(head_dim=64, page_size=16, group=2, q_len=None, dtype="f16")
    )
    assert not [r for r in kernel.remarks if "specialised" in r.message]
    assert kernel.plan.launches[0].kernel.endswith("_order")
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("page_size", [16, 128])
def test_pages_by_the_copy_engine(page_size):
    """Prefill on specialised warps: a box a page, and of a page that ends early boxes of 1, 2, 4,
    ... rows; what stands behind the end is NaN."""
    lengths = [71, 130, 143, 70]
    case = Paged(lengths, page_size, heads=2, group=2, dim=64, q_len=70, dtype=np.float16)
    kernel = Specialised(
        ops.paged_attention(head_dim=64, page_size=page_size, group=2, q_len=None, dtype="f16")
    )
    assert not [r for r in kernel.remarks if "specialised" in r.message]
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


def test_pages_of_a_tile_come_by_a_loop():
    """A producer has few registers: boxes stand once for all pages, not once for each, so that
    smaller pages make no more code."""

    def boxes(page_size):
        program = ops.paged_attention(head_dim=64, page_size=page_size, q_len=None, dtype="f16")
        module, _ = compiler.lower_text(program.to_mlir(), "test", "sm_90a", None, "tile")
        return nvvm.emit_tiles(module, "target", target="sm_90a").count("cp.async.bulk.tensor")

    assert boxes(16) < boxes(32)


def test_what_ends_a_stream_does_not_part_its_loops():
    """A length is read between the loop of whole tiles and the one with a mask: the first product
    of one still runs beside the last of the other."""
    program = ops.paged_attention(head_dim=64, page_size=64, q_len=None, dtype="f16")
    module, _ = compiler.lower_text(program.to_mlir(), "test", "sm_90a", None, "tile")
    with module.context, registry.collect_remarks():
        common.run(module, runner.until(nvvm.to_kernels(nvidia("sm_90a"), ""), "partition-warps"))
    (forall,) = [f for f in foralls(module) if CONSUMERS.on(f)]
    loops = [loop for loop in nested(forall.regions[0].blocks[0]) if loop.name == "scf.for"]
    starts = [loop for loop in loops if len(list(loop.results)) > 1]
    assert [len(chain) for chain in chains_of(forall, starts.__contains__)] == [2]


@pytest.mark.first_of_each()
@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_sequences_one_behind_the_other(target):
    """The loop over keys is bounded by numbers that the program finds in its tile of queries."""
    rng = np.random.default_rng(0)
    queries, keys = [3, 0, 1, 70], [3, 4, 0, 75]
    starts = [np.cumsum([0, *n]).astype(np.int32) for n in (queries, keys)]
    q, k, v = (rng.standard_normal((n, 1, 16)).astype(np.float16)
               for n in (sum(queries), sum(keys), sum(keys)))  # fmt: skip
    kernel = simulated(ops.ragged_attention(head_dim=16, dtype="f16"), target)
    out = kernel(q, k, v, *starts)
    for mine, wanted, _ in ragged_sequences(q, k, v, *starts):
        np.testing.assert_allclose(out[mine], wanted, atol=3e-3)


def test_a_thread_looks_up_what_its_token_needs():
    """Lanes that shared the table of starts would exchange it for each token: nothing that the sum
    reads has both of its axes."""
    text = str(simulated(ops.ragged_attention(head_dim=16, dtype="f16"), "sm_80").module)
    lookup = text[text.index("@ragged_attention_0(") : text.index("@ragged_attention_1(")]
    assert "llvm.load" in lookup and "nvvm.shfl" not in lookup


def test_lanes_have_the_parts_where_tiles_are_found():
    """The kernel that finds tiles runs once, so its code comes from memory: a lane has a part, and
    none has 32 of them one behind the other."""
    text = str(simulated(ops.ragged_attention(head_dim=16, dtype="f16"), "sm_80").module)
    found = text[text.index("_cuts(") :]
    found = found[: found.index("return")]
    assert 0 < found.count("llvm.load") <= 64


@pytest.mark.first_of_each()
@pytest.mark.parametrize("options", [{}, {"window": 40}])
def test_sequences_one_behind_the_other_on_specialised_warps(options, monkeypatch):
    """Where tiles of queries begin, and the bounds of their loops, come from kernels ahead: the
    producer reads these numbers for all. Warps with 16 rows of a sequence store them by the copy
    engine. Groups of warps without rows (of two tiles the second halves) multiply nothing.
    Tokens behind the last sequence (a batch that is padded) see nothing."""
    plain, read = SpecializedWriter.write_extract, []

    def write_extract(self, op, local=None):
        read.append(tuple(op.operands))
        return plain(self, op, local)

    monkeypatch.setattr(SpecializedWriter, "write_extract", write_extract)
    rng = np.random.default_rng(0)
    queries, keys = [70, 0, 1, 130, 70], [475, 4, 0, 200, 475]
    starts = [np.cumsum([0, *n]).astype(np.int32) for n in (queries, keys)]
    q = rng.standard_normal((sum(queries) + 3, 2, 64)).astype(np.float16)
    k, v = (rng.standard_normal((sum(keys), 1, 64)).astype(np.float16) for _ in range(2))
    q[70:90] *= 8  # of another sequence, in the first one's tile: its scores grow
    for a, number in ((q, 70), (k, 475), (v, 475)):
        a[starts[a is not q][4] :][:number] = a[:number]
    kernel = Specialised(ops.ragged_attention(head_dim=64, group=2, dtype="f16", **options))
    assert not [r for r in kernel.remarks if "specialised" in r.message]
    assert len(read) > 4 and len(read) == len(set(read))
    assert "global.shared::cta" in str(kernel.module)
    out = kernel(q, k, v, *starts)
    for mine, wanted, _ in ragged_sequences(q, k, v, *starts, **options):
        np.testing.assert_allclose(out[mine], wanted, atol=2e-3)
    assert not out[sum(queries) :].any()
    np.testing.assert_array_equal(out[:70], out[201:271])  # whatever stands behind a sequence
    assert sum(block.idle for block in kernel.blocks) > 4


@pytest.mark.first_of_each()
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_whole_tiles_of_pages(page_size):
    """Of whole tiles the rows of a page stand behind each other, wherever a tile begins in it."""
    case = Paged([300, 64, 95], page_size, heads=16, group=16, dim=32, dtype=np.float16)
    program = ops.paged_attention(head_dim=32, page_size=page_size, group=16, dtype="f16")
    kernel = simulated(program, "sm_80")
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


def test_addresses_of_a_page_are_sums():
    """So are those of the rows behind one that is looked up, as far as its page reaches, or what is
    known of it."""
    pages = Pages(None, (None,), 1, 16, None, 0, 1, start=None, multiple=32)
    window = Window(None, (0, 0), (0, 3), (32, 128), (None, None), 1, pages)
    rows = range(2, 32, 2)
    assert [r for r in rows if moves_along(window, r, 2) is None] == [16]
    ends = replace(window, valid=("some", None))  # rows that are not there are in a page that is
    assert [r for r in rows if moves_along(ends, r, 2) is None] == [16]
    other = replace(window, pages=replace(pages, size=64, multiple=8))
    assert [r for r in rows if moves_along(other, r, 2) is None] == [8, 16, 24]
    for changed in ({"multiple": 1}, {"slot": None}):
        bad = replace(window, pages=replace(pages, **changed))
        assert all(moves_along(bad, r, 2) is None for r in rows)


def test_a_last_tile_is_on_its_way_while_whole_ones_are_multiplied():
    """Its copies are started by the loop before, so that nobody waits for memory between the two;
    rows of a page are looked up once in it, too."""
    program = ops.paged_attention(head_dim=32, page_size=16, group=16, dtype="f16")
    module, _ = compiler.lower_text(program.to_mlir(), "test", "sm_80", None, "tile")
    kernels = nvvm.emit_tiles(module, "target", target="sm_80").split("gpu.func @")
    (text,) = [k for k in kernels if k.startswith("paged_attention_0(")]
    assert re.findall(r"cp\.async\.wait\.group (\d+)", text) == ["4", "4", "0"]
    assert len(re.findall(r"llvm\.load .* -> i32", text)) < 32  # a tile's rows


def ragged_arguments(queries, keys):
    rng = np.random.default_rng(0)
    starts = [np.cumsum([0, *n]).astype(np.int32) for n in (queries, keys)]
    rows = [sum(n) for n in (queries, keys, keys)]
    return *(rng.standard_normal((n, 1, 16)).astype(np.float16) for n in rows), *starts


def test_bits_of_a_sequence_do_not_depend_on_those_beside_it():
    """Tiles of queries begin with a sequence, and tiles of keys where its keys do."""
    queries, keys = [3, 0, 40, 70], [9, 4, 45, 75]
    q, k, v, q_starts, kv_starts = ragged_arguments(queries, keys)
    kernel = simulated(ops.ragged_attention(head_dim=16, dtype="f16"), "sm_80")
    whole = kernel(q, k, v, q_starts, kv_starts)
    for n in (0, 2, 3):
        mine, of_keys = (slice(*starts[n : n + 2]) for starts in (q_starts, kv_starts))
        ends = (np.array([0, count[n]], np.int32) for count in (queries, keys))
        alone = kernel(q[mine], k[of_keys], v[of_keys], *ends)
        np.testing.assert_array_equal(alone, whole[mine])


def test_each_row_has_a_tile_whatever_the_starts_are():
    """Numbers that fall are not those of sequences, but the program has a meaning for them."""
    q, k, v, *_ = ragged_arguments([90], [90])
    program = ops.ragged_attention(head_dim=16, dtype="f16")
    cut, plain = (simulated(program, "sm_80", knobs) for knobs in ("", "cut:0"))
    assert len(cut.plan.launches) > len(plain.plan.launches)
    for numbers in ([0, 70, 30, 90], [20, 50, 90], [0], [0, 200, 90]):
        starts = np.array(numbers, np.int32)
        wanted = plain(q, k, v, starts, starts)
        np.testing.assert_allclose(cut(q, k, v, starts, starts), wanted, atol=2e-3)


@functools.cache
def short_ragged():
    program = ops.ragged_attention(head_dim=16, group=4, dtype="f16").to_mlir()
    module, _ = compiler.lower_text(program, "test", "sm_90a", None, "fused")
    (case,) = short_parts(module)
    return case


@pytest.mark.parametrize(
    ("queries", "keys", "plain"),
    [([64] * 256, [64] * 256, True), ([256] * 64, [256] * 64, True), ([999], [999], True),
     ([2048] * 8, [2048] * 8, False), ([1] * 64, [4096] * 64, False),
     ([1] * 64 + [2048] * 2, [4096] * 64 + [2048] * 2, False)],
)  # fmt: skip
def test_short_sequences_share_tiles(queries, keys, plain):
    """And one has all, but not where those of few queries have many keys."""
    case = short_ragged()
    shapes = [(sum(queries), 8, 16), *[(sum(keys), 2, 16)] * 2, *[(len(queries) + 1,)] * 2]
    assert bool(evaluate(case.condition, shapes, (), 132)) == plain


@pytest.mark.first_of_each("target")
@pytest.mark.parametrize(
    ("target", "kind", "scales"),
    [("sm_80", "int8", "head"), ("sm_80", "e4m3", "page"), ("sm_90a", "e4m3", "token"),
     ("sm_90a", "int8", "token"), ("gfx942", "e4m3", "head"), ("gfx942", "int8", "token")],
)  # fmt: skip
def test_caches_in_8_bits(target, kind, scales):
    case = Paged(LENGTHS, 16, heads=16, group=8, dim=32, dtype=np.float16)
    arguments, wanted = in_bytes(case, kind, scales)
    program = ops.paged_attention(
        head_dim=32, page_size=16, group=8, dtype="f16", kv_dtype=kind, kv_scales=scales, scale=0.05
    )
    kernel = simulated(program, target)
    assert not [r for r in kernel.remarks if "matrix instruction" in r.message]
    error = np.abs(kernel(*arguments).astype(np.float64) - wanted).max()
    assert error < 2e-3 * max(1.0, np.abs(wanted).max())


def test_rows_of_bytes_are_read_16_at_once():
    """Keys of a cache in 8 bits lie along the sum of scores: each lane has neighbours there. And
    what 8 of 16 rows of an instruction do not have is not computed."""
    case = Paged([1, 17, 80], 16, heads=8, group=8, dim=64, dtype=np.float16)
    arguments, wanted = in_bytes(case, "e4m3", "head")
    program = ops.paged_attention(
        head_dim=64, page_size=16, group=8, dtype="f16", kv_dtype="e4m3", kv_scales="head",
        scale=0.05,
    )  # fmt: skip
    kernel = simulated(program, "sm_90a")
    text = str(kernel.module)
    assert "!llvm.ptr<3> -> vector<4xi32>" in text
    assert not re.search(r"!llvm.ptr<3> -> (vector<2x)?i(8|16)", text)
    stream, lanes, loops = 64, 32, 2
    exponentials = text.partition("_few")[0].count("nvvm.ex2")
    assert exponentials < loops * (stream * 8 // lanes + 4)
    error = np.abs(kernel(*arguments).astype(np.float64) - wanted).max()
    assert error < 2e-3 * max(1.0, np.abs(wanted).max())


@pytest.mark.first_of_each()
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_tree_of_guesses(target):
    case = Paged([3, 16, 37], 16, heads=4, group=2, dim=32, q_len=5, dtype=np.float16)
    tree = np.random.default_rng(1).random((3, 5, 5)) < 0.5
    program = ops.paged_attention(
        head_dim=32, page_size=16, group=2, dtype="f16", q_len=5, tree=True
    )
    got = simulated(program, target)(*case.arguments, tree)
    np.testing.assert_allclose(got, of_tree(case, tree), atol=3e-3)


def test_a_join_of_more_than_a_few_chunks():
    """It has a kernel of its own, of which the program for any number has none in that call."""
    case = Paged([700, 3, 0], 16, heads=4, group=4, dim=32, dtype=np.float16)
    program = ops.paged_attention(head_dim=32, page_size=16, group=4, dtype="f16")
    kernel = simulated(program, "sm_80")
    shapes = [a.shape for a in case.arguments]
    launches = [x for x in kernel.plan.launches if not x.of_mask]
    sizes = [[evaluate(n, shapes, (), 132) for n in x.grid] for x in launches]
    stream, *joins = [math.prod(grid) for grid in sizes]
    assert stream == 3 * sizes[0][0] and 8 < sizes[0][0] <= 32
    assert [bool(programs) for programs in joins] == [False, True, False]
    np.testing.assert_allclose(kernel(*case.arguments), case.expected()[0], atol=2e-3)


@pytest.mark.parametrize(
    ("kind", "scales", "stream"),
    [(None, None, 32), ("e4m3", "head", 64), ("int8", None, 64), ("e4m3", "token", 32)],
)
def test_narrow_keys_come_in_tiles_of_as_many_bytes(kind, scales, stream):
    """But for values that a program computes before it multiplies them: a scale for each."""
    program = ops.paged_attention(
        head_dim=32, page_size=16, group=4, dtype="f16", kv_dtype=kind, kv_scales=scales
    )
    module, _ = compiler.lower_text(program.to_mlir(), "test", "sm_80", None, "fused")
    (op,) = streams(module)
    assert TILE.of(op.operation)[op.axis.value] == stream


def test_bits_do_not_depend_on_the_batch_where_the_number_of_chunks_is_given():
    """The pieces of a sequence follow from its own length then, and are joined in their order."""
    lengths = [1, 17, 200, 400]
    case = Paged(lengths, 16, heads=8, group=8, dim=32, dtype=np.float16)
    program = ops.paged_attention(head_dim=32, page_size=16, group=8, dtype="f16")
    kernel = simulated(program, "sm_80", "chunks:4")
    assert next(x for x in kernel.plan.launches if not x.of_mask).grid[0] == 4
    q, k, v, table, counts = case.arguments
    whole = kernel(q, k, v, table, counts)
    for b, length in enumerate(lengths):
        columns = -(-length // 16)  # nor do they depend on the table's room
        own = np.ascontiguousarray(table[b : b + 1, :columns])
        alone = kernel(q[b : b + 1], k, v, own, counts[b : b + 1])
        np.testing.assert_array_equal(alone[0], whole[b])


def counted(program):
    """The lowerings of a program for any call and for others, and chunks by shapes."""
    raised = RaisedProgram(program.to_mlir(), "paged")
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
    plan = gpu.sketch(base.module, "sm_90a", None)
    launch = next(x for x in plan.launches if not x.of_mask)

    def chunks(batch, columns, heads=32):
        shapes = [(batch, heads, 1, 64), *[(0, 16, heads, 64)] * 2, (batch, columns), (batch,)]
        return evaluate(launch.grid[0], shapes, [None] * 5, 132)

    return raised, base, plan, chunks


def test_one_long_sequence_has_two_chunks_for_each_place():
    """Its programs are alike: pieces as small as those which even out what sequences differ by are
    for several of them. Twice as many as wait for memory have room, and 16 took 135.4 us on an
    H200 where 8 took 141.2."""
    *_, chunks = counted(ops.paged_attention(head_dim=64, page_size=16, dtype="f16"))
    assert chunks(1, 2048) == 16
    assert chunks(1, 256) == 8  # which have fewer than LONG_CHUNK tiles
    assert chunks(2, 2048) == 32


def test_sequences_have_as_many_chunks_as_have_room_at_once():
    """Some are over soon, and the others have the memory. 64 heads on 8, 16 sequences of up to 2048
    keys took 18 us on an H200 where lengths differ, 22 with two chunks, and 43.6 for 45.1 where
    they do not."""
    *_, chunks = counted(ops.paged_attention(head_dim=64, page_size=16, group=8, dtype="f16"))

    def of(batch, keys):
        return chunks(batch, keys // 16, heads=64)

    assert [of(16, 2048), of(8, 2048), of(32, 2048), of(64, 2048)] == [4, 8, 2, 2]


def test_chunks_are_as_few_as_a_small_join_takes_where_none_gets_longer():
    """Of 8 heads 33 chunks have a place, with at most 2 tiles each of 64: so have 32."""
    *_, chunks = counted(ops.paged_attention(head_dim=64, page_size=16, dtype="f16"))
    assert chunks(1, 128, heads=8) == 32
    assert chunks(1, 132, heads=8) == 33  # of 2 tiles each
    assert chunks(1, 2048, heads=8) == 33  # of 31 and 32 tiles: 32 of these took 2% longer
    assert chunks(1, 128, heads=4) == 64  # of a tile each


def test_programs_that_look_each_row_up_are_twice_as_many():
    """They wait for tables: with chunks of 4 tiles at least, 5 to 7% less time on an H100, and 14%
    at 16 sequences of 1024 keys on an H200."""
    *_, chunks = counted(ops.paged_attention(head_dim=64, page_size=1, dtype="f16"))
    assert chunks(16, 1024, heads=8) == 4
    assert chunks(4, 4096, heads=8) == 16
    assert chunks(1, 32768, heads=8) == 66
    assert chunks(1, 4096, heads=8) == 32  # of 4 tiles
    assert chunks(16, 256, heads=8) == 2


def test_caches_of_bytes_in_the_most_chunks_have_a_join_that_knows_them():
    """On an H200 8 sequences of 64 to 65536 keys took 20.3 us for 22.6."""
    program = ops.paged_attention(
        head_dim=64, page_size=16, group=8, dtype="f16", kv_dtype="e4m3"
    )  # fmt: skip
    raised, base, plan, chunks = counted(program)
    given = [(c, v) for c, v in raised.variants(base, str(base.module), "sm_90a") if c.given]
    ((case, variant),) = given
    known = gpu.sketch(variant.module, "sm_90a", None)
    assert next(x.grid[0] for x in known.launches if not x.of_mask) == case.given == 32
    rule = Conditions(plan).of(case, known)
    for call in ((8, 4096), (1, 4096), (64, 256), (4, 512)):
        shapes = [(call[0], 32, 1, 64), *[(0, 16, 4, 64)] * 2, call, call[:1]]
        assert bool(evaluate(rule, shapes, [None] * 5, 132)) == (chunks(*call) == 32)
    assert chunks(8, 4096) == 32


def test_calls_whose_stream_has_one_chunk_have_no_join():
    program = ops.paged_attention(head_dim=64, page_size=16, dtype="f16")
    raised, base, plan, chunks = counted(program)
    ((case, variant),) = raised.variants(base, str(base.module), "sm_90a")
    whole = gpu.sketch(variant.module, "sm_90a", None)
    assert len([x for x in whole.launches if not x.of_mask]) == 1
    rule = Conditions(plan).of(case, whole)

    def takes(batch, columns):
        shapes = [(batch, 32, 1, 64), *[(0, 16, 32, 64)] * 2, (batch, columns), (batch,)]
        return bool(evaluate(rule, shapes, [None] * 5, 132))

    for call in ((256, 32), (16, 64), (1, 2048), (2, 32)):
        assert takes(*call) == (chunks(*call) == 1)
    case = Paged([40, 3, 0], 16, heads=2, group=1, dim=64, dtype=np.float16)
    found = run_kernels.Variant(variant.copy().module)(*case.arguments)
    np.testing.assert_allclose(found, case.expected()[0], atol=2e-3)
