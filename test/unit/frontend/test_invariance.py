# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that no result depends on: what is proved, what is not, and that z3 agrees."""

import importlib.util

import pytest

from neptune_mlir import ops
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.proofs.proof import PROVED
from neptune_mlir.frontend import notation as N
from neptune_mlir.frontend.gradient.reverse import free_extrema
from neptune_mlir.zoo import ZOO

# Those whose maxima are a result, or are divided by.
NOT_FREE = {"absmax_matmul"}


@pytest.mark.parametrize("example", ZOO, ids=lambda e: e.name)
def test_maxima_of_softmaxes_are_free(example):
    program = example.build()
    extrema = [s.key for s in program.steps if s.combiner in ("max", "min")]
    found = [f.step for f in free_extrema(program)]
    assert found == ([] if example.name in NOT_FREE else extrema[::-1])


def rows(body):
    p = N.Program("p")
    i, j = p.axes("i j")
    x = p.input("x", i, j)[i, j]
    p.output(body(x, j), i)
    return p


@pytest.mark.parametrize("body", [
    lambda x, j: N.max(x, j),
    lambda x, j: N.sum(N.exp(x - N.max(x, j)), j),  # the sum alone moves with it
    lambda x, j: N.log(N.sum(N.exp(x - N.max(x, j)), j)) + 0.99 * N.max(x, j),  # planted: not 1
    lambda x, j: N.sum(N.exp(x - N.max(x, j)) * N.max(x, j), j) / N.sum(N.exp(x - N.max(x, j)), j),
    lambda x, j: N.sum(N.tanh(x - N.max(x, j)), j),
])  # fmt: skip
def test_what_depends_on_its_maximum_is_not_free(body):
    assert free_extrema(rows(body)) == []


def test_a_minimum_may_be_subtracted_too():
    program = rows(lambda x, j: N.log(N.sum(N.exp(x - N.min(x, j)), j)) + N.min(x, j))
    assert [f.step for f in free_extrema(program)] == ["%0"]


@pytest.mark.skipif(importlib.util.find_spec("z3") is None, reason="z3 is not installed")
@pytest.mark.parametrize("program", [ops.softmax(), ops.logsumexp()], ids=lambda p: p.name)
def test_z3_agrees(program):
    from neptune_mlir.algebra.proofs.smtlib import decide

    (free,) = free_extrema(program)
    for obligation in free.proof.obligations:
        assert obligation.status == PROVED
        verdict = decide(obligation, Facts(frozenset(), nonneg={"%1"}), timeout_ms=30_000)
        assert verdict.status == "proved", str(obligation)
