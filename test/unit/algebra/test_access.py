# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions: every way to write one has one form, and means the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import (
    AccessIndex,
    elements,
    is_access,
    lookups,
    opaque,
    position_of,
)
from neptune_mlir.algebra.numerics.evaluation import Domain, evaluate

ROW, COLUMN = T.index(0), T.index(1)
EXTENT = 24


def number(n: int) -> T.Term:
    return T.const(n, "index")


def table(at: T.Term = COLUMN) -> T.Term:
    return T.read("table", at, dtype="i32")


def values(term: T.Term) -> np.ndarray:
    domain = Domain((3, EXTENT), {"table": np.arange(EXTENT) * 7 % 11}, {})
    return np.broadcast_to(evaluate(term, domain, {}), (3, EXTENT))


positions = st.builds(
    AccessIndex,
    axis=st.sampled_from([None, 0, 1]),
    divisor=st.integers(1, 5),
    modulus=st.sampled_from([None, 1, 2, 7]),
    constant=st.integers(0, 3),
    lookup=st.sampled_from([None, table(), table(T.make("floordiv", COLUMN, number(4)))]),
).map(lambda p: p if p.axis is not None else AccessIndex(constant=p.constant, lookup=p.lookup))


@given(positions)
def test_a_position_is_what_its_term_is(position):
    assert position_of(position.term()) == position
    last = position.last({None: None, 0: 3, 1: EXTENT}[position.axis])
    if position.is_affine and last is not None:
        assert values(position.term()).max() <= last


@given(st.integers(1, 6), st.integers(1, 6))
def test_remainders_as_programs_write_them(divisor, modulus):
    quotient = T.make("floordiv", COLUMN, number(divisor))
    rounded = T.make("mul", T.make("floordiv", quotient, number(modulus)), number(modulus))
    written = T.make("sub", quotient, rounded)
    found = position_of(written)
    assert found is not None
    np.testing.assert_array_equal(values(found.term()), values(written))


def test_sums_in_any_order_are_one_position():
    page = T.make("cast", table(), dtype="index")
    one = T.make("add", T.make("add", COLUMN, number(2)), page)
    other = T.make("add", T.make("add", number(1), page), T.make("add", number(1), COLUMN))
    assert position_of(one) == position_of(other) == AccessIndex(1, constant=2, lookup=table())


@pytest.mark.parametrize(
    "term",
    [T.make("add", ROW, COLUMN), T.make("mul", ROW, number(2)), T.make("add", table(), table(ROW)),
     T.make("floordiv", table(), number(2)), T.read("x", COLUMN), T.sym("n", "index"),
     T.make("rem", T.make("add", COLUMN, number(1)), number(4))],
)  # fmt: skip
def test_what_is_no_position(term):
    assert position_of(term) is None
    assert not is_access(T.read("x", term))


def test_reads_through_lookups_are_tensors_of_their_own_to_the_algebra():
    page = T.make("cast", table(), dtype="index")
    through = T.read("k", page, T.make("rem", COLUMN, number(4)), ROW)
    body = T.make("mul", through, T.read("q", ROW))
    assert lookups(body) == (table(),)
    assert [r.attr for r in elements(body)] == ["k", "q"]
    plain = opaque(body)
    assert not lookups(plain)
    assert [r.args for r in elements(plain)] == [(ROW, COLUMN), (ROW,)]
