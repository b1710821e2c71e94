# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine conditions as linear forms: reading, deciding, writing back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.masks import (
    Linear,
    affine_part,
    condition_of,
    conjuncts,
    constraints,
    fold_conditions,
    implied,
    linear,
)

ROW, COLUMN = T.index(0), T.index(1)
N = T.sym("n", "index")


def number(n: int) -> T.Term:
    return T.const(n, "index")


def evaluate(t: T.Term, i: int, j: int, n: int) -> int | bool:
    done = {ROW: i, COLUMN: j, N: n}
    for node in T.walk(t):
        if node.is_const:
            done[node] = node.value
        elif node not in done:
            done[node] = T.evaluate(node.op, [done[a] for a in node.args], False)
    return done[t]


POINTS = list(itertools.product(range(-2, 3), range(-2, 3), range(-1, 3)))
affine_terms = st.recursive(
    st.sampled_from([ROW, COLUMN, N, number(2), number(-1)]),
    lambda t: st.one_of(
        st.builds(lambda a, b: T.make("add", a, b), t, t),
        st.builds(lambda a, b: T.make("sub", a, b), t, t),
        st.builds(lambda a: T.make("neg", a), t),
        st.builds(lambda a, c: T.make("mul", a, number(c)), t, st.integers(-3, 3)),
    ),
    max_leaves=5,
)
comparisons = st.builds(
    lambda op, a, b: T.make(op, a, b), st.sampled_from(sorted(T.COMPARISONS)), affine_terms,
    affine_terms,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(comparisons)
def test_constraints_hold_exactly_where_the_comparison_does(comparison: T.Term) -> None:
    if comparison.is_const:
        return
    forms = constraints(comparison)
    if comparison.op == "ne":
        assert forms is None
        return
    assert forms is not None
    written = condition_of(forms)
    for i, j, n in POINTS:
        assert bool(evaluate(written, i, j, n)) == bool(evaluate(comparison, i, j, n))


@settings(max_examples=60, deadline=None)
@given(st.lists(comparisons, min_size=1, max_size=3), comparisons)
def test_folding_agrees_wherever_the_known_conditions_hold(
    known: list[T.Term], comparison: T.Term
) -> None:
    condition = T.const(True, "i1")
    for k in known:
        condition = T.make("and", condition, k)
    folded = fold_conditions(comparison, affine_part(condition))
    for i, j, n in POINTS:
        if evaluate(condition, i, j, n):
            assert bool(evaluate(folded, i, j, n)) == bool(evaluate(comparison, i, j, n))


def test_known_conditions_decide_weaker_and_opposite_ones() -> None:
    known = affine_part(T.make("le", COLUMN, ROW))
    assert fold_conditions(T.make("lt", COLUMN, T.make("add", ROW, number(5))), known).value is True
    assert fold_conditions(T.make("gt", COLUMN, ROW), known).value is False
    kept = T.make("lt", COLUMN, ROW)
    assert fold_conditions(kept, known) is kept


@pytest.mark.parametrize(
    "term",
    [T.make("mul", ROW, COLUMN), T.make("floordiv", ROW, number(2)),
     T.make("cast", T.make("cast", ROW, dtype="f32"), dtype="index")],
)  # fmt: skip
def test_what_is_not_linear_in_the_axes(term: T.Term) -> None:
    assert linear(term) is None


def test_numbers_that_are_read_count_as_atoms() -> None:
    length = T.read("length", ROW, dtype="i32")
    (form,) = constraints(T.make("lt", COLUMN, T.make("cast", length, dtype="index"))) or ()
    assert form == Linear(frozenset([(length, 1), (COLUMN, -1)]), -1)
    assert form.reads == (length,)
    assert form.axes == {COLUMN.attr}


def test_scalars_of_any_form_count_as_atoms() -> None:
    half = T.make("floordiv", N, number(2))
    form = linear(T.make("add", T.make("mul", number(3), half), COLUMN))
    assert form == Linear(frozenset([(half, 3), (COLUMN, 1)]), 0)


def test_disjunctions_are_left_alone() -> None:
    either = T.make("or", T.make("le", COLUMN, ROW), T.make("lt", COLUMN, N))
    both = T.make("and", either, T.make("lt", ROW, N))
    assert conjuncts(both) == [either, T.make("lt", ROW, N)]
    assert affine_part(both) == constraints(T.make("lt", ROW, N))


def test_a_negated_comparison_is_one() -> None:
    inside = T.make("not", T.make("gt", COLUMN, ROW))
    (form,) = constraints(inside) or []
    assert implied(form, affine_part(T.make("le", COLUMN, ROW)))
