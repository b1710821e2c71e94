# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls whose programs visit few tiles have no kernels in front of the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from neptune_mlir.driver.compiler import pipeline_of
from neptune_mlir.driver.family import tiled
from neptune_mlir.pipelines import gpu
from neptune_mlir.pipelines.cases import Case
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.pipelines.short_calls import VISIT_ALL
from neptune_mlir.runtime.plan import evaluate
from support.chips.run_kernels import Simulated, Specialised

TARGET = "sm_90a"


def taken_by(program: Any, is_meant: Callable[[Case], bool]) -> tuple[Any, list[int]]:
    """Which calls take the first image that is meant, and how many kernels a call has by the
    program for any call and by that image."""
    raised = RaisedProgram(program.to_mlir(), "x", None, "")
    family = next(tiled(raised, pipeline_of(TARGET), TARGET, None))
    plan = gpu.sketch(family.lowering.module, TARGET, None)
    case = next(filter(is_meant, raised.cases(family.lowering)))
    variant = next(raised.variant(family.lowering, TARGET, case))
    sketched = gpu.sketch(variant.module, TARGET, None)
    when = Conditions(plan).of(case, sketched)
    return when, [len(p.launches) for p in (plan, sketched)]


@pytest.mark.first_of_each()
@pytest.mark.parametrize(
    ("window", "calls"),
    [
        # batch, length: one round of programs that visit three tiles of 128; eight; four rounds
        (None, {(2, 300): True, (2, 1000): False, (80, 300): False}),
        (123, {(2, 4096): True, (9, 4096): False}),  # three tiles, wherever a program is
        (1000, {(2, 4096): False, (2, 400): True}),
    ],
)
def test_few_tiles_are_not_looked_at_before(
    window: int | None, calls: dict[tuple[int, int], bool]
) -> None:
    masks = {"causal": True, "window": window} if window else {"causal": True}
    program = ops.attention(
        head_dim=64, dtype="f16", documents=True, heads=2, kv_heads=2, **masks
    )
    when, kernels = taken_by(program, lambda case: case.knob == VISIT_ALL)
    assert kernels == [4, 1]
    for (batch, length), taken in calls.items():
        array, ids = (batch, 2, length, 64), (batch, length)
        assert bool(evaluate(when, [array, array, array, ids, ids], (), 132)) == taken


def test_rows_are_not_merged_for_few_tiles() -> None:
    """A slope of each of many heads is spread over the rows of all by a kernel in front."""
    program = ops.attention(head_dim=64, dtype="f16", alibi=True, heads=20, kv_heads=1)
    when, kernels = taken_by(program, lambda case: case.merged and case.schedule == "private")
    assert kernels[0] == 1
    assert kernels[1] > 2
    for keys, taken in ((44, False), (500, False), (3000, True)):
        shapes = [(1, 20, 44, 64), (1, 1, keys, 64), (1, 1, keys, 64), (20,)]
        assert bool(evaluate(when, shapes, (), 132)) == taken


@pytest.mark.parametrize(
    ("head_dim", "window", "calls"),
    [
        (64, None, {(41, 41): True, (128, 128): False, (150, 150): True, (2000, 2000): False}),
        (176, 71, {(741, 8009): True}),  # five tiles of 64 points, or four of 96
        (256, None, {}),  # other calls have no larger ones
    ],
)
def test_streams_that_are_part_of_a_tile(
    head_dim: int, window: int | None, calls: dict[tuple[int, int], bool]
) -> None:
    """Tiles of 64 points, where those of other calls have more: for what the last one lacks."""
    masks: Any = {"causal": True, "window": window} if window else {}
    program = ops.attention(head_dim=head_dim, dtype="f16", heads=2, kv_heads=2, **masks)
    raised = RaisedProgram(program.to_mlir(), "x", None, "")
    family = next(tiled(raised, pipeline_of(TARGET), TARGET, None))
    cases = [case for case in raised.cases(family.lowering) if case.knob == "stream:64"]
    assert len(cases) == bool(calls)
    for (queries, keys), taken in calls.items():
        plan = gpu.sketch(family.lowering.module, TARGET, None)
        shapes = [(1, 2, queries, head_dim), (1, 2, keys, head_dim)]
        when = Conditions(plan).of(cases[0], plan)  # with as many programs
        assert bool(evaluate(when, shapes, (), 132)) == taken, (queries, keys)


def test_a_stream_that_is_part_of_a_tile() -> None:
    rng = np.random.default_rng(0)
    program = ops.attention(head_dim=64, dtype="f16", heads=1, kv_heads=1)
    q, k, v = (rng.standard_normal((1, 1, n, 64)).astype(np.float16) for n in (200, 41, 41))
    found = Specialised(program, knobs="stream:64")(q, k, v)
    np.testing.assert_allclose(found, program.reference(q, k, v), atol=3e-3)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_tiles_that_nobody_looked_at(target: str) -> None:
    """The kernel alone, on a simulated chip: documents that end inside of tiles, or begin there."""
    rng, dim = np.random.default_rng(0), 64 if target == "sm_90a" else 16
    program = ops.attention(head_dim=dim, dtype="f16", documents=True, heads=1, kv_heads=1)
    q, k, v = (rng.standard_normal((1, 1, 140, dim)).astype(np.float16) for _ in range(3))
    of = np.sort(rng.integers(0, 5, (1, 140))).astype(np.int32)
    if target == "sm_90a":
        kernel: Any = Specialised(program, knobs=VISIT_ALL)
    else:
        text = program.to_mlir()
        module, _ = compiler.lower_text(text, "x", target, None, "tile", VISIT_ALL)
        kernel = Simulated(module, target=target)
    wanted = program.reference(q, k, v, of, of)
    np.testing.assert_allclose(kernel(q, k, v, of, of), wanted, atol=3e-3)
