# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every program of the zoo fuses, is proved, and is as accurate as the unfused program."""

import importlib.util
from dataclasses import replace

import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.zoo import ULP, ZOO, GradientRow, examine, examine_gradient


def fusions(program):
    return compiler.planned_fusions(program.to_mlir(), program.name)


@pytest.mark.parametrize("hard", [False, True], ids=["plain", "hard"])
@pytest.mark.parametrize("example", ZOO, ids=lambda e: e.name)
def test_fuses_proved_and_accurate(example, hard):
    if hard and example.hard is None:
        pytest.skip("any inputs are alike to it")
    row = examine(example, hard=hard)
    assert row.proved
    assert row.kernels < row.reductions
    assert row.err <= 2 * row.err_unfused + ULP
    assert row.passes == 1 or row.note, "a second pass needs a reason"


@pytest.mark.skipif(importlib.util.find_spec("z3") is None, reason="z3 is not installed")
@pytest.mark.parametrize("example", ZOO, ids=lambda e: e.name)
def test_z3_agrees(example):
    from neptune_mlir.algebra.smtlib import decide

    for fusion in fusions(example.build()):
        facts = fusion.solution.facts
        for obligation in fusion.solution.obligations:
            # a second or less; the limit is for busy machines
            verdict = decide(obligation, facts, timeout_ms=30_000)
            assert verdict.status == "proved", str(obligation)


@pytest.mark.parametrize("example", ZOO, ids=lambda e: e.name)
def test_survives_adversarial_inputs(example):
    from neptune_mlir.algebra.numerics.stress import stress

    for fusion in fusions(example.build()):
        report = stress(
            fusion.chain, fusion.solution, fusion.group.stream, outputs=fusion.outputs,
            nonneg=fusion.nonneg, length=12, seed=1,
        )  # fmt: skip
        assert report.ok, report.failure


QUICK_GRADIENTS = ("logsumexp", "cross_entropy")  # the others take seconds each to compile


@pytest.mark.parametrize("hard", [False, True], ids=["plain", "hard"])
@pytest.mark.parametrize("example", [
    pytest.param(e, marks=[] if e.name in QUICK_GRADIENTS else pytest.mark.nightly, id=e.name)
    for e in ZOO
])  # fmt: skip
def test_gradient_compiles_and_is_as_accurate_as_unfused(example, hard):
    row = examine_gradient(example, hard=hard)
    assert row.right, row


def test_gradient_table():
    from neptune_mlir.cli.zoo import gradient_table

    row = GradientRow("name", 1, 2, 1, 1, 1e-9, 1e-7, 1e-7)
    assert "yes" in gradient_table([row]) and row.as_json()["right"]
    assert not replace(row, off=1e-3).right and not replace(row, err=1e-5).right


def test_table_and_json_rows():
    from neptune_mlir.cli.zoo import table

    row = examine(next(e for e in ZOO if e.name == "logsumexp"))
    assert "logsumexp" in table([row])
    wanted = {"name", "reductions", "kernels", "corrections", "auxiliaries", "proved", "err",
              "err_unfused"}  # fmt: skip
    assert wanted <= set(row.as_json())
