# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which programs have images in pairs, and which calls take them."""

from __future__ import annotations

import pytest

from neptune_mlir import ops
from neptune_mlir.driver.compiler import pipeline_of
from neptune_mlir.driver.family import tiled
from neptune_mlir.pipelines import gpu
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate

TARGET = "sm_90a"


def lowered(head: int, kv_heads: int, **settings: int):
    program = ops.attention(
        head_dim=head, dtype="bf16", heads=16, kv_heads=kv_heads, **settings
    )
    raised = RaisedProgram(program.to_mlir(), "x", None, "")
    base = next(tiled(raised, pipeline_of(TARGET), TARGET, None)).lowering
    return raised, base, [c for c in raised.cases(base) if c.pairs]


@pytest.mark.parametrize(
    ("head", "kv_heads", "settings", "variables"),
    [
        (88, 4, {}, [2]),  # two heads of a group of four
        (96, 4, {}, []),  # rows of whole sectors
        (88, 4, {"causal": True}, [2]),  # which end together
        (88, 16, {"causal": True}, [1]),
        (88, 4, {"causal": True, "window": 100}, []),
    ],
)
def test_programs_that_have_pairs(head, kv_heads, settings, variables):
    assert [case.pairs for case in lowered(head, kv_heads, **settings)[2]] == variables


@pytest.mark.parametrize("causal", [False, True])
def test_calls_that_take_pairs(causal):
    raised, base, (case,) = lowered(88, 16, causal=causal)
    assert case.pairs == 1
    variant = next(raised.variant(base, TARGET, case))
    plan, own = (gpu.sketch(one.module, TARGET, None) for one in (base, variant))
    when = Conditions(plan).of(case, own)
    for batch, length, taken in ((4, 2048, True), (4, 1129, True), (8, 100, False)):
        shape = (batch, 16, length, 88)
        assert bool(evaluate(when, [shape] * 3, (), 132)) == taken  # (100: one tile, made twice)
