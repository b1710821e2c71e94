# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over rows in the benchmark: what peers compute is what ours is checked against."""

from __future__ import annotations

import pytest

from neptune_mlir import ops
from neptune_mlir.bench import build, figures
from neptune_mlir.bench.peers import PEERS
from neptune_mlir.bench.problem import from_json, problem_of
from neptune_mlir.driver.kernel import Source

torch = pytest.importorskip("torch")
SPECS = [
    {"kind": "rows", "operator": "small", "program": program, "dtype": "f16", "settings": extents}
    for program, extents in (
        ("rms_norm_matmul", {"cols": 64, "out": 48}),
        ("layer_norm_matmul", {"cols": 64, "out": 48}),
        ("linear_cross_entropy", {"width": 64, "classes": 100}),
    )
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["program"])
def test_peers_do_the_same_work(spec):
    problem = problem_of(spec, 80)
    assert from_json(problem.as_json()) == problem
    arrays = problem.inputs("cpu")
    out = problem.result(arrays)
    assert PEERS["eager"].can(problem) and not PEERS["cudnn"].can(problem)
    made = PEERS["eager"].make(problem, arrays)()
    assert made.shape == out.shape and made.dtype == out.dtype
    wanted = problem.expected(arrays)
    assert figures.errors(problem.picked(made).double(), wanted)["relative"] < 2e-3
    assert figures.errors(made.double(), problem.expected(arrays, whole=True))["relative"] < 2e-3


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["program"])
def test_our_program_takes_the_same_inputs(spec):
    module = Source.of(getattr(ops, spec["program"])(dtype="f16", **spec["settings"])).text
    shapes = [list(a.shape) for a in problem_of(spec, 80).inputs("cpu")]
    for shape in shapes:
        text = "x".join("?" if n == 80 else str(n) for n in shape)
        assert f"tensor<{text}x" in module


def test_costs():
    norm, other, loss = (problem_of(spec, 10) for spec in SPECS)
    assert norm.flops == other.flops == 2 * 10 * 64 * 48 and loss.flops == 2 * 10 * 64 * 100
    assert norm.bytes == 2 * (10 * 64 + 64 * 48 + 64 + 10 * 48)
    assert other.bytes == norm.bytes + 2 * 64
    assert loss.bytes == 2 * (10 * 64 + 64 * 100) + 12 * 10


def test_the_suite_names_each_shape(tmp_path):
    found = [(name, spec) for name, _, spec, _ in build.programs(["fused"], ["f16"], tmp_path)]
    assert len({name for name, _ in found}) == len(found) >= 4
    assert {spec["program"] for _, spec in found} == {s["program"] for s in SPECS}
