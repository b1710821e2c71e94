# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every program of the zoo fuses, is proved, and is as accurate as the unfused program."""

import importlib.util
from dataclasses import replace

import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.zoo import ULP, ZOO, GradientRow, examine, examine_gradient
from support.often import nightly_if

Z3 = importlib.util.find_spec("z3") is not None


# Their IR is verified after every pass (that of others where a level ends), which takes as long as
# a fifth of a compilation; so is that of all gradients.
VERIFIED = ("softmax", "attention_causal", "layer_norm", "linear_cross_entropy")
# So has their code, of each kind one, been optimised; nightly that of all.
SHIPPED = [(e, True) for e in ZOO]
USUAL = [(e, False) for e in ZOO if e.name not in VERIFIED]


@pytest.mark.parametrize("hard", [False, True], ids=["plain", "hard"])
@pytest.mark.parametrize(
    ("example", "optimised"),
    nightly_if(lambda case: case[1] and case[0].name not in VERIFIED, USUAL + SHIPPED),
    ids=lambda value: getattr(value, "name", {True: "shipped"}.get(value, "usual")),
)
def test_fuses_proved_and_accurate(example, optimised, hard, monkeypatch, request):
    if optimised:
        request.getfixturevalue("as_shipped")
    if hard and example.hard is None:
        pytest.skip("any inputs are alike to it")
    if example.name in VERIFIED:
        monkeypatch.setenv("NEPTUNE_VERIFY", "1")
    row = examine(example, hard=hard)
    assert row.proved
    assert row.kernels < row.reductions
    assert row.err <= 2 * row.err_unfused + ULP
    assert row.passes == 1 or row.note, "a second pass needs a reason"


# test_proof.py has the obligations of all, and each compilation the stress test
QUICK = ("softmax", "attention_causal", "layer_norm_matmul", "log_weighted_mean")


@pytest.mark.parametrize(
    "example", nightly_if(lambda e: e.name not in QUICK, ZOO), ids=lambda e: e.name
)
def test_fusions_survive_adversarial_inputs_and_z3(example):
    """(Z3 only where it is installed.)"""
    from neptune_mlir.algebra.numerics.stress import stress
    from neptune_mlir.algebra.proofs.smtlib import decide

    program = example.build()
    for fusion in compiler.planned_fusions(program.to_mlir(), program.name):
        report = stress(
            fusion.chain, fusion.solution, fusion.group.stream, outputs=fusion.outputs,
            nonneg=fusion.nonneg, length=12, seed=1,
        )  # fmt: skip
        assert report.ok, report.failure
        facts = fusion.solution.facts
        for obligation in fusion.solution.obligations if Z3 else ():
            # a second or less; the limit is for busy machines
            verdict = decide(obligation, facts, timeout_ms=30_000)
            assert verdict.status == "proved", str(obligation)


QUICK_GRADIENTS = ("logsumexp", "cross_entropy")  # the others take seconds each to compile


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("hard", [False, True], ids=["plain", "hard"])
@pytest.mark.parametrize("example", [
    pytest.param(e, marks=[] if e.name in QUICK_GRADIENTS else pytest.mark.nightly, id=e.name)
    for e in ZOO
])  # fmt: skip
def test_gradient_compiles_and_is_as_accurate_as_unfused(example, hard, monkeypatch):
    monkeypatch.setenv("NEPTUNE_VERIFY", "1")
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
