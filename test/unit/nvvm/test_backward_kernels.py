# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of backward passes on specialised warps: what they load, where, and what they store."""

from __future__ import annotations

import math
import re
from functools import cache

import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.dialects.attributes import PLAN
from neptune_mlir.driver import compiler
from neptune_mlir.driver.family import chunks_of
from neptune_mlir.pipelines import common, gpu, nvvm, runner
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import Evaluation, Plan
from neptune_mlir.targets.nvidia import TARGETS
from neptune_mlir.transforms.tiling.host_plan import nested_in

HEADS, LENGTH = 2, 256


def backward(head_dim=64, wrt=None, **options):
    program = ops.attention(head_dim=head_dim, dtype="f16", **options)
    return neptune.vjp(program, wrt=wrt)[1]


def biased(**options):
    return backward(
        inputs={"bias": ops.Extra("h q kv", "f16")},
        score_mod=lambda score, b, h, q, kv, bias: score + bias[h, q, kv], **options,
    )  # fmt: skip


@cache
def grids(name):
    """Of each launch of a program for sm_90a."""
    programs = {
        "sink": lambda: backward(causal=True, sink=True),
        "plain": backward,
        "one batch": lambda: biased(batch=1, heads=HEADS, q_len=LENGTH, kv_len=LENGTH),
    }
    raised = RaisedProgram(programs[name]().to_mlir(), name)
    lowering = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
    plan = gpu.sketch(lowering.module, "sm_90a", None)
    return plan, [launch.grid for launch in plan.launches]


def test_a_bias_comes_in_boxes():
    """In programs of several kernels too, for calls whose rows have whole chunks. (Those of one
    kernel have cases of their own for these.)"""
    raised = RaisedProgram(biased().to_mlir(), "biased")
    chunked, _ = chunks_of(raised, nvvm, "sm_90a")
    (base, whole) = (next(r.lowerings("sm_90a", nvvm.ways("sm_90a"))) for r in (raised, chunked))
    assert base.alignable and "boxes" not in str(base.module)
    assert str(whole.module).count("boxes = 1") == 3  # the gradient of the bias loads it once


def test_a_batch_of_one_stores_no_scores():
    plan, _ = grids("one batch")
    sizes = [math.prod(buffer.shape) for buffer in plan.buffers[: -len(plan.results)]]
    assert plan.launches and max(sizes, default=0) < HEADS * LENGTH * LENGTH


def test_row_sums_of_short_rows():
    """64 rows of 64 elements a program, not 4."""
    _, (_, sums, *_) = grids("plain")
    assert sums[-1] == ["ceildiv", ["dim", 0, 2], 64]


def test_a_sum_over_batches_and_queries():
    """A program for each head reads along the queries; not one for all heads."""
    _, (_, _, sums, *_) = grids("sink")
    assert sums == (["dim", 0, 1],) or sums == [["dim", 0, 1]]


@cache
def scheduled(early):
    module, _ = compiler.lower_text(
        backward(wrt=["k", "v"]).to_mlir(), "test", "sm_90a", None, "tile", ""
    )
    steps = nvvm.to_kernels(TARGETS["sm_90a"], "")
    with module.context:
        chosen = runner.Step("set-choices", {"early": early})
        common.run(module, [chosen, *runner.until(steps, "schedule-loops")])
    return str(module)


@pytest.mark.parametrize("early", [0, 1])
def test_vectors_in_front_of_products(early):
    """A log-sum-exp and a row sum are asked for before an iteration's first matmul, by choice."""
    loops = [part for part in scheduled(early).split("scf.for") if "mma_start" in part]
    assert len(loops) == 2
    for loop in loops:
        lines = [x for x in loop.splitlines() if "neptune.order" in x]
        loads, starts = (
            [int(re.search(r"neptune.order = (\d+)", x)[1]) for x in lines if kind in x]
            for kind in ("to tensor<64xf32>", "mma_start")
        )
        assert loads and (max(loads) < min(starts)) == bool(early)


def test_vectors_of_the_next_iteration():
    """Two vectors a loop, by copies to shared memory: of the next iteration, and of what is left
    over, behind whole tiles, what exists of it."""
    for early in (0, 1):
        module, _ = compiler.lower_text(
            backward(wrt=["k", "v"]).to_mlir(), "test", "sm_90a", None, "tile", ""
        )
        with module.context:
            common.run(module, [runner.Step("set-choices", {"early": early})])
        text = nvvm.emit_tiles(module, "target", target="sm_90a")
        copies = [line for line in text.splitlines() if "nvvm.cp.async.shared.global" in line]
        sized = [line for line in copies if line.count("%") == 3]  # bytes that exist
        assert (len(copies), len(sized)) == (8, 4)
        assert "prefetch.global.L1" not in text
    module, _ = compiler.lower_text(
        backward(128, ["k", "v"]).to_mlir(), "test", "sm_90a", None, "tile", ""
    )
    text = nvvm.emit_tiles(module, "target", target="sm_90a")  # tiles leave no room
    assert ("cp.async.shared" in text, text.count("prefetch.global.L1")) == (False, 4)


def test_groups_that_add_to_one_result_meet_once_an_iteration():
    """A tile that groups make together has two places, in turns: also the second loop of a chain,
    which begins while others may still read the first loop's last tile, waits for that once."""
    module, _ = compiler.lower_text(
        backward().to_mlir(), "test", "sm_90a", None, "tile",
        "joined:1;rows:128;stream:64;late:0",
    )  # fmt: skip
    nvvm.emit_tiles(module, "target", target="sm_90a")
    loops = (str(op) for op in nested_in(module.operation) if op.name == "scf.for")
    meetings = [loop.count("bar.sync 1,") for loop in loops if "wgmma" in loop]
    assert meetings == [1, 1]


def test_streams_that_begin_at_rows_of_programs_have_many_readers():
    """A causal mask lets a stream over queries begin at a program's keys. All programs of earlier
    keys read the same queries: the second-level cache fetches them as where there is no mask."""
    module, _ = compiler.lower_text(
        backward(wrt=["k", "v"], causal=True).to_mlir(), "test", "sm_90a", None, "tile", ""
    )
    nvvm.emit_tiles(module, "target", target="sm_90a")
    launch = Plan.from_json(PLAN.of(module.operation)).launches[-1]
    few = [Evaluation([[2, 3, n, 64]] * 6, []).of(launch.narrow) for n in (256, 257)]
    assert few == [True, False]


@pytest.mark.parametrize(("options", "one"), [
    ({"head_dim": 128, "causal": True}, True),
    ({"head_dim": 64, "alibi": True, "wrt": ["q", "k", "v"]}, True),
    ({"head_dim": 64, "causal": True, "q_len": 1024, "kv_len": 1024}, False),
    ({"head_dim": 64, "causal": True, "window": 512}, False),
    ({"head_dim": 96}, False),  # groups have no whole boxes of dQ
    ({"head_dim": 64, "dtype": "f32"}, False),
    ({"head_dim": 128, "causal": True, "knobs": "joined:0"}, False),
])  # fmt: skip
def test_streams_are_joined_where_that_is_faster(options, one):
    """Warps are specialised either way, in 16 bits."""
    options = {"dtype": "f16"} | options
    knobs, wrt = options.pop("knobs", ""), options.pop("wrt", None)
    program = neptune.vjp(ops.attention(**options), wrt=wrt)[1]
    raised = RaisedProgram(program.to_mlir(), "test", knobs=knobs)
    found = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
    text = str(found.module)
    assert ("neptune.add_slice" in text) == one
    assert ("neptune.consumers" in text) == (options["dtype"] == "f16")


def test_zeros_are_made_in_front():
    """What programs add to needs no kernel: with sinks, the stream runs beside the kernel that sums
    over all rows, which needs the row sums."""
    plan, _ = grids("sink")
    names = [launch.kernel for launch in plan.launches]
    assert "zeros" in names[0] and not any("zeros" in name for name in names[1:])


def test_a_bias_that_learns_keeps_two_streams():
    found = next(RaisedProgram(biased().to_mlir(), "test").lowerings("sm_90a", nvvm.ways("sm_90a")))
    assert "neptune.add_slice" not in str(found.module)


@pytest.mark.nightly
@pytest.mark.parametrize(("head_dim", "causal", "most"), [
    (128, True, 0), (128, False, 0), (64, False, 0), (64, True, 0), (256, True, 0), (256, False, 0),
])  # fmt: skip
def test_spills(head_dim, causal, most):
    """Words from the queue of programs, positions that masks compare and addresses of vectors take
    no registers through the loops of one stream."""
    _, program = neptune.vjp(ops.attention(head_dim=head_dim, causal=causal, dtype="f16"))
    facts = neptune.compile(program, target="sm_90a").facts
    found = [k["spills"] for image in facts["images"] for k in image["kernels"].values()]
    assert found and max(found) <= most
