# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of derivatives against central differences, and what it keeps out of gradients."""

import math

import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.facts import evaluate_scalar
from neptune_mlir.frontend.gradient import derivatives as D

A, B, ADJOINT = (T.sym(n, "f64") for n in ("a", "b", "d"))
POINTS = [(0.3, 1.7), (1.4, 0.6), (2.2, 2.9)]
SMOOTH = [op for op, backs in D.PULLBACKS.items() if any(backs) and op not in ("select", "cast")]


def numeric(node, leaf, at, step=1e-6):
    high, low = ({**at, leaf: at[leaf] + s} for s in (step, -step))
    return (evaluate_scalar(node, high) - evaluate_scalar(node, low)) / (2 * step)


def test_every_operator_has_a_row():
    assert set(D.PULLBACKS) == set(T.OPS)
    assert all(len(backs) == T.OPS[op] for op, backs in D.PULLBACKS.items())


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("op", SMOOTH)
def test_against_central_differences(op, point):
    operands = (A, B)[: T.OPS[op]]
    node = T.make(op, *operands)
    at = dict(zip((A, B), point, strict=True))
    for k, operand in enumerate(operands):
        found = evaluate_scalar(D.pull(node, k, ADJOINT), {**at, ADJOINT: 1.5})
        assert math.isclose(found, 1.5 * numeric(node, operand, at), rel_tol=1e-7, abs_tol=1e-9)


@pytest.mark.parametrize("op", SMOOTH)
def test_a_wrong_row_is_caught(op, monkeypatch):
    def wrong(d, *rest):
        return T.make("add", D.times(d, T.const(1.01, "f64")), T.const(0.01, "f64"))

    monkeypatch.setitem(D.PULLBACKS, op, (wrong,) * T.OPS[op])
    with pytest.raises(AssertionError):
        for point in POINTS:
            test_against_central_differences(op, point)


def test_ties_are_shared():
    for op in ("max", "min"):
        node = T.make(op, A, B)
        tied = {A: 2.0, B: 2.0, ADJOINT: 1.0}
        assert [evaluate_scalar(D.pull(node, k, ADJOINT), tied) for k in (0, 1)] == [0.5, 0.5]
    assert evaluate_scalar(D.pull(T.make("abs", A), 0, ADJOINT), {A: 0.0, ADJOINT: 1.0}) == 0


def test_select_gives_each_case_its_own():
    c = T.make("lt", A, B)
    node = T.make("select", c, A, B)
    assert D.pull(node, 0, ADJOINT) is None
    at = {A: 1.0, B: 2.0, ADJOINT: 3.0}
    assert [evaluate_scalar(D.pull(node, k, ADJOINT), at) for k in (1, 2)] == [3.0, 0.0]


def test_a_condition_stays_around_what_it_protects():
    c = T.make("eq", B, T.const(0.0, "f64"))
    masked = D.choose(c, D.zero(A), ADJOINT)
    for built in (D.over(masked, B), D.times(masked, T.make("log", B)), D.minus(masked)):
        assert built.op == "select" and D.is_zero(built.args[1])
    assert evaluate_scalar(D.over(masked, B), {A: 1.0, B: 0.0, ADJOINT: 1.0}) == 0


def test_adjoints_of_16_bits_are_f32():
    half = T.read("x", dtype="f16")
    node = T.make("mul", half, half)
    assert D.pull(node, 0, T.sym("d", "f32")).dtype == "f32"
    assert D.pull(T.make("cast", half, dtype="f32"), 0, T.sym("d", "f32")) is T.sym("d", "f32")


def test_nothing_is_added_or_multiplied_in_vain():
    zero, one = D.zero(A), T.const(1.0, "f64")
    assert D.plus(zero, A) is A and D.plus(A, zero) is A
    assert D.times(zero, A) is zero and D.times(one, A) is A and D.over(zero, A) is zero
    assert D.minus(D.minus(A)) is A
    assert D.plus(A, A) is D.times(T.const(2.0, "f64"), A)
