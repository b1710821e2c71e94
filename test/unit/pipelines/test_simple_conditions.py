# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conditions keep their values, and say nothing twice that they can leave out."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from neptune_mlir.pipelines.cases import ANY_CALL, Case
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.simple_conditions import TRUE, Simple
from neptune_mlir.runtime.plan import Launch, Plan, evaluate
from neptune_mlir.targets.tuned import Choice, Shape

A, B, C = (["le", ["dim", 0, k], 64] for k in range(3))
X, Y = ["dim", 0, 0], ["dim", 0, 1]
CHIP = ["multiprocessors"]


@pytest.mark.parametrize(("given", "wanted"), [
    (["and", TRUE, A], A),
    (["and", A, ["le", 1, CHIP]], A),
    (["or", A, TRUE], TRUE),
    (["and", A, ["le", ["dim", 0, 0], 64]], A),
    (["and", ["and", A, B], A], ["and", A, B]),
    (["or", A, ["and", B, A]], A),
    (["and", ["or", A, B], A], A),
    (["or", A, ["and", B, C]], ["or", A, ["and", B, C]]),
    (["select", TRUE, X, Y], X),
    (["select", A, X, ["dim", 0, 0]], X),
    (["min", ["min", X, Y], X], ["min", X, Y]),
    (["min", X, ["min", Y, X]], ["min", Y, X]),
    (["max", 3, 3], 3),
    (["max", X, ["min", X, Y]], ["max", X, ["min", X, Y]]),
    (["mul", 27, ["mul", 96, X]], ["mul", 2592, X]),
    (["add", ["add", 1, ["mul", -1, X]], ["mul", 1, Y]], ["add", ["sub", 1, X], Y]),
    (["ceildiv", 65, 64], 2),
    (["mul", 1.0, X], ["mul", 1.0, X]),  # a float stays one
    (7, 7),
    (None, None),
])  # fmt: skip
def test_what_says_nothing_is_left_out(given, wanted):
    assert Simple().of(given) == wanted


def test_parts_are_one_object():
    simple = Simple()
    first = simple.of(["and", ["le", ["ceildiv", X, 64], 8], A])
    second = simple.of(["lt", ["ceildiv", ["dim", 0, 0], 64], CHIP])
    assert first[1][1] is second[1]


def test_values_stay():
    random.seed(0)
    leaves = [X, Y, CHIP, 0, 1, 2, 3, 64, -1]

    def number(depth):
        if depth == 0 or random.random() < 0.2:
            return random.choice(leaves)
        head = random.choice(["add", "sub", "mul", "min", "max", "ceildiv", "select"])
        a, b = number(depth - 1), number(depth - 1)
        if head == "ceildiv":
            return [head, a, random.choice([1, 2, 64])]
        return [head, a, b] if head != "select" else [head, truth(depth - 1), a, b]

    def truth(depth):
        if depth == 0 or random.random() < 0.3:
            return random.choice([A, B, TRUE, ["lt", number(1), number(1)]])
        return [random.choice(["and", "or"]), truth(depth - 1), truth(depth - 1)]

    simple = Simple()
    for _ in range(300):
        given = truth(4)
        for shapes in ([(1, 1, 1)], [(64, 65, 3)], [(500, 2, 64)]):
            for chip in (1, 132):
                wanted = evaluate(given, shapes, (), chip)
                assert evaluate(simple.of(given), shapes, (), chip) == wanted


def test_each_case_adds_its_own_time():
    """Of cases that rounds decide, each is compared with the least time of all before it: the text
    of one more case grows by as much as the one before it did, where it was doubled."""
    choices = [Choice(rows, 64, 1) for rows in (64, 128, 192, 256, 320, 384)]
    shape = Shape(64, 64, False, True)
    plans = [Plan("f", (), (), (), (Launch("k", (["ceildiv", X, c.rows],), ()),), ())
             for c in choices]  # fmt: skip
    conditions = Conditions(plans[0])
    sizes = []
    for number, (choice, plan) in enumerate(zip(choices[1:], plans[1:], strict=True)):
        case = Case("few:1", ["le", number, Y], tiles=((shape, choice), (shape, choices[0])))
        sizes.append(len(json.dumps(conditions.of(case, plan))))
    steps = [b - a for a, b in itertools.pairwise(sizes)]
    assert max(steps) < 1.2 * min(steps)
    case = Case("few:1", ANY_CALL, tiles=((shape, choices[1]), (shape, choices[0])))
    assert json.dumps(TRUE) not in json.dumps(Conditions(plans[0]).of(case, plans[1]))
