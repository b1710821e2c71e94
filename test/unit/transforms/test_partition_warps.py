# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `partition-warps` makes of a program of two loops, and what code generation refuses."""

from __future__ import annotations

import re

import pytest

from neptune_mlir.analysis.tiles import foralls, load_window, nested
from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import common, runner
from neptune_mlir.transforms.hopper.partition_warps import partition_warps, producer_of
from neptune_mlir.transforms.hopper.specialize_warps import loads_of
from neptune_mlir.transforms.hopper.split_matmuls import split_matmuls
from support.tile_programs import attention


def assigned():
    """Causal attention (a loop over whole tiles, one over masked ones) with layouts."""
    equal = "attributes {neptune.equal_dims = [array<i64: 1, 2, 1, 2, 2, 1>]} {"
    text = attention(64, 128, 128, causal=True, dtype="f16")
    text = re.sub(r"(func.func @attention.*?\) -> tensor<\S+) \{", rf"\1 {equal}", text, count=1,
                  flags=re.DOTALL)  # fmt: skip
    module = parse(text)
    steps = "canonicalize,cse,specialize-warps,assign-layouts{target=sm_90a}"
    common.run(module, runner.parse_pipeline(steps))
    return module


def ops(block, name):
    return [op for op in nested(block) if op.name == name]


def windows(values, forall):
    """Tensor and shape of each load."""
    found = [load_window(value, forall) for value in values]
    return [(w.tensor, w.shape) for w in found]


def test_every_load_is_put_once_and_in_order():
    module = assigned()
    (forall,) = foralls(module)
    loads = loads_of(forall)
    before = windows([load.value for load in loads], forall)
    loops = [load.loop for load in loads]
    with module.context:
        partition_warps(module)
        module.operation.verify()
    producer = producer_of(forall).regions[0].blocks[0]
    puts = ops(producer, "neptune.aref_put")
    assert windows([put.operands[1] for put in puts], forall) == before
    # q once, k and v in both loops, which share their rings
    rings = [put.operands[0] for put in puts]
    assert rings[1:3] == rings[3:5] and len(set(rings)) == 3
    body = forall.regions[0].blocks[0]
    gets = ops(body, "neptune.aref_get")
    assert [get.operands[0] for get in gets] == rings
    assert [None if g.block == body else g.parent for g in gets] == loops
    # the loops of the producer run as often as the consumers'
    feeding = ops(producer, "scf.for")
    assert [len(list(op.results)) for op in feeding] == [0, 0]
    assert loads_of(forall) == []


def test_a_second_run_changes_nothing():
    module = assigned()
    with module.context:
        partition_warps(module)
        once = str(module)
        partition_warps(module)
    assert str(module) == once


def test_a_producer_that_feeds_another_loop_is_refused():
    module = assigned()
    with module.context, ir.Location.unknown():
        partition_warps(module)
        (forall,) = foralls(module)
        producer = producer_of(forall).regions[0].blocks[0]
        first, second = ops(producer, "scf.for")
        moved = ops(second.regions[0].blocks[0], "neptune.aref_put")
        target = ops(first.regions[0].blocks[0], "neptune.aref_put")
        for put, here in zip(moved, target, strict=True):
            put.operands[1] = here.operands[1]
            put.move_after(here)
        module.operation.verify()
        with pytest.raises(LoweringError, match="not put and got in the same loops"):
            split_matmuls(module)
