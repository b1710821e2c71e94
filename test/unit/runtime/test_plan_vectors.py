# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a plan says of a call: the vectors of test/vectors/plan.json, which the runtime in C reads
too (c/test/vectors.c)."""

import json
import math
from pathlib import Path

import pytest

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView, contiguous, reshaped_strides
from neptune_mlir.runtime.checks import check, check_equal
from neptune_mlir.runtime.plan import Plan, describe, evaluate

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "plan.json").read_text())
EXPRESSIONS, CALLS = VECTORS["expressions"], VECTORS["calls"]


def named(cases, key):
    return [pytest.param(case, id=json.dumps(case[key])) for case in cases]


@pytest.mark.parametrize("case", named(EXPRESSIONS["cases"], "expression"))
def test_values_of_expressions(case):
    given = EXPRESSIONS["shapes"], EXPRESSIONS["scalars"], case.get("multiprocessors")
    if "error" in case:
        if case["error"] == "device":
            assert evaluate(case["expression"], *given) is None
        else:
            with pytest.raises((ZeroDivisionError, ValueError)):
                evaluate(case["expression"], *given)
        return
    value = evaluate(case["expression"], *given)
    assert value == case["value"]
    assert isinstance(value, float) == isinstance(case["value"], float)


@pytest.mark.parametrize("case", named(VECTORS["descriptions"]["cases"], "expression"))
def test_text_of_expressions(case):
    assert describe(case["expression"], VECTORS["descriptions"]["names"]) == case["text"]


def take(value, name):
    shape = tuple(value["shape"])
    return ArrayView(64, value["dtype"], shape, contiguous(shape), False, None)


@pytest.mark.parametrize("case", named(CALLS["cases"], "arguments"))
def test_calls(case):
    plan = Plan.from_json(json.dumps(CALLS["plan"]))
    try:
        views, scalars = check(plan, case["arguments"], take)
        shapes = [v and v.shape for v in views]
        check_equal(plan, shapes, scalars)
    except ArgumentError as error:
        assert error.message == case["error"]
        return
    assert "error" not in case

    def whole(expression):
        return int(evaluate(expression, shapes, scalars, CALLS["multiprocessors"]))

    buffers = [[whole(e) for e in b.shape] for b in plan.buffers]
    grids = [[whole(e) for e in launch.grid] for launch in plan.launches]
    results = [buffers[n] if kind == "buffer" else list(shapes[n]) for kind, n in plan.results]
    assert buffers == case["buffers"] and results == case["results"]
    assert [math.prod(g) if min(g) > 0 else 0 for g in grids] == case["programs"]


@pytest.mark.parametrize("case", VECTORS["reshapes"], ids=str)
def test_strides_of_another_shape(case):
    found = reshaped_strides(tuple(case["shape"]), tuple(case["strides"]), tuple(case["new"]))
    assert (None if found is None else list(found)) == case["found"]
