# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What interval arithmetic says of a condition over a box, against all points of the box."""

from __future__ import annotations

import itertools
import random

import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.operators import evaluate
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.intervals import may_hold

LEAVES = [T.read("a", T.index(0), dtype="i32"), T.read("b", T.index(1), dtype="i32"), T.index(0)]
FLAG = T.read("f", T.index(1), dtype="i1")


def value_of(t: Term, point: dict[Term, int]) -> int:
    if t in point:
        return point[t]
    if t.is_const:
        return int(t.value)
    values = [value_of(a, point) for a in t.args]
    if t.op == "cast":
        return values[0]
    found = int(evaluate(t.op, values, False))
    if t.dtype == "i32":  # wraps around, as the program does
        return (found + (1 << 31)) % (1 << 32) - (1 << 31)
    return found & 1 if t.dtype == "i1" else found


def number(r: random.Random, depth: int) -> Term:
    if depth == 0 or r.random() < 0.2:
        leaf = r.choice([*LEAVES, T.const(r.randint(-3, 3), "i32")])
        return T.make("cast", leaf, dtype="i32")
    op = r.choice(["add", "sub", "mul", "min", "max", "floordiv", "neg", "select"])
    if op == "neg":
        return T.make(op, number(r, depth - 1))
    if op == "floordiv":
        return T.make(op, number(r, depth - 1), T.const(r.randint(1, 4), "i32"))
    if op == "select":
        return T.make(op, condition(r, depth - 1), number(r, depth - 1), number(r, depth - 1))
    return T.make(op, number(r, depth - 1), number(r, depth - 1))


def condition(r: random.Random, depth: int) -> Term:
    op = r.choice(["eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "flag"])
    if depth > 0 and op in ("and", "or", "xor"):
        return T.make(op, condition(r, depth - 1), condition(r, depth - 1))
    if depth > 0 and op == "not":
        return T.make(op, condition(r, depth - 1))
    if op in T.COMPARISONS:
        return T.make(op, number(r, depth), number(r, depth))
    return FLAG


def box(r: random.Random, wide: bool) -> dict[Term, tuple[int, int]]:
    ranges = {}
    for leaf in LEAVES:
        low = r.randint(0, 4)
        if leaf.op == "read":  # positions fit any type
            ends = [(1 << 31) - 3, -(1 << 31)] if wide else []
            low = r.choice([r.randint(-4, 4), *ends])
        ranges[leaf] = (low, min(low + r.randint(0, 2), (1 << 31) - 1))
    low = r.randint(0, 1)
    return {**ranges, FLAG: (low, r.randint(low, 1))}


def examine(seed: int, wide: bool) -> bool | None:
    """Whether the condition of a seed was ruled out for its box; None: for no box ever."""
    r = random.Random(seed)
    asked, ranges = condition(r, 2), box(r, wide)
    names = {leaf: (T.sym(("low", leaf), "index"), T.sym(("high", leaf), "index"))
             for leaf in ranges}  # fmt: skip
    may = may_hold(asked, lambda leaf: names[leaf])
    ends = {
        name: end for leaf in ranges
        for name, end in zip(names[leaf], ranges[leaf], strict=True)
    }  # fmt: skip
    holds = any(
        value_of(asked, dict(zip(ranges, point, strict=True)))
        for point in itertools.product(*(range(a, b + 1) for a, b in ranges.values()))
    )
    said = bool(value_of(may, ends))
    assert said or not holds, f"seed {seed}: {asked} holds in {ranges}"
    return None if may.is_const else not said


@pytest.mark.parametrize("wide", [False, True])
def test_what_is_ruled_out_holds_nowhere(wide: bool) -> None:
    found = [examine(seed, wide) for seed in range(600)]
    assert found.count(True) > 40, "hardly anything is ruled out"


def test_equal_documents() -> None:
    a, b = LEAVES[:2]
    bounds = {a: (T.sym("la", "index"), T.sym("ha", "index")),
              b: (T.sym("lb", "index"), T.sym("hb", "index"))}  # fmt: skip
    assert str(may_hold(T.make("eq", a, b), bounds.get)) == "((la <= hb) & (lb <= ha))"


def test_what_has_no_range_may_be_anything() -> None:
    a, b = LEAVES[:2]
    odd = T.make("eq", T.make("rem", a, b), T.const(0, "i32"))
    assert may_hold(odd, lambda leaf: (T.const(0, "index"),) * 2).value is True
    assert may_hold(T.make("eq", a, b), lambda leaf: None).value is True
    floats = T.make("lt", T.read("x", dtype="f32"), T.const(0.0))
    assert may_hold(floats, lambda leaf: None).value is True
