# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Size expressions, and plans and bundles as bytes."""

from dataclasses import replace

import pytest

from neptune_mlir.errors import ArgumentError, ToolError
from neptune_mlir.runtime import plan as plans
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.cpu_entry import word
from neptune_mlir.runtime.parameters import c_scalar
from neptune_mlir.runtime.plan import (
    GPU_NUMBERS,
    NUMBERS,
    Argument,
    Buffer,
    Evaluation,
    Launch,
    Plan,
    describe,
    evaluate,
)

PLAN = Plan(
    "f",
    (Argument("tensor", "f32", (None, 4), "x"), Argument("scalar", "index", (), "n")),
    ((["dim", 0, 0], ["argument", 1]),),
    (Buffer("f32", (["dim", 0, 0], 4)),),
    (Launch("k", (["ceildiv", ["dim", 0, 0], 3],), (["argument", 0], ["value", "index", 7])),),
    (["buffer", 0],),
    64,
)  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (7, 7), (["dim", 0, 1], 5), (["argument", 1], 9), (["ceildiv", 7, 2], 4),
        (["floordiv", -7, 2], -4), (["mod", 7, 4], 3), (["min", ["add", 1, 2], 9], 3),
        (["select", ["lt", 1, 2], 10, 20], 10), (["max", ["mul", 2, 3], ["sub", 9, 1]], 8),
        (["div", 1.0, 4.0], 0.25), (["sqrt", 16.0], 4.0),
    ],
)  # fmt: skip
def test_evaluate(expression, value):
    assert evaluate(expression, [(3, 5), None], [None, 9]) == value


def test_a_launch_says_that_it_is_of_a_mask():
    of_mask = replace(PLAN, launches=(replace(PLAN.launches[0], of_mask=True), *PLAN.launches))
    assert Plan.from_json(of_mask.to_json()) == of_mask
    assert of_mask.to_json().count('"of_mask": true') == 1
    assert "of_mask" not in PLAN.to_json()


def test_what_expressions_share_is_written_and_computed_once(monkeypatch):
    """A number that doubles forty times by an addition to itself: a tree of 2^40 nodes."""
    grown = ["dim", 0, 0]
    for _ in range(40):
        grown = ["add", grown, grown]
    launch = replace(PLAN.launches[0], grid=(grown,), operands=(["value", "index", grown],))
    plan = replace(PLAN, buffers=(Buffer("f32", (grown,)),), launches=(launch,))
    text = plan.to_json()
    assert len(text) < 2500 and text.count('"add"') == 40
    again = Plan.from_json(text)
    assert again.to_json() == text
    (read,) = again.launches[0].grid
    assert read is again.buffers[0].shape[0] and read[1] is read[2]
    added, count = [], plans._OPERATIONS["add"]
    monkeypatch.setitem(plans._OPERATIONS, "add", lambda a, b: added.append(1) or count(a, b))
    value = Evaluation([(3, 4)], [None]).of
    assert value(read) == value(again.launches[0].operands[0][2]) == 3 << 40 and len(added) == 40


def test_multiprocessors_are_the_device_s():
    idle = ["le", ["mul", 2, ["dim", 0, 0]], ["multiprocessors"]]
    assert [evaluate(idle, [(66,)], [], chip) for chip in (132, 131)] == [True, False]
    assert describe(idle, ["q"]) == "((2 * q.shape[0]) <= multiprocessors)"
    with pytest.raises(TypeError):  # the CPU's plans do not ask
        evaluate(idle, [(66,)], [])


def test_describe():
    names = ["q", "n"]
    assert describe(["mul", ["dim", 0, 1], ["argument", 1]], names) == "(q.shape[1] * n)"
    assert describe(["min", 3, ["dim", 0, 0]], names) == "min(3, q.shape[0])"


def test_round_trip():
    bundle = Bundle("cpu", PLAN, b"\x00code\xff", {"nests": 3})
    assert Bundle.from_bytes(bundle.to_bytes()) == bundle
    again = Bundle.from_bytes(Bundle.from_bytes(bundle.to_bytes()).to_bytes())
    assert again.to_bytes() == bundle.to_bytes()


@pytest.mark.parametrize("damage", ["cut", "flip", "magic", "empty"])
def test_damaged_bundles_are_refused(damage):
    data = bytearray(Bundle("cpu", PLAN, b"code").to_bytes())
    if damage == "cut":
        del data[-1]
    elif damage == "flip":
        data[-2] ^= 1
    elif damage == "magic":
        data[0] ^= 1
    else:
        data.clear()
    with pytest.raises(ToolError):
        Bundle.from_bytes(bytes(data))


@pytest.mark.parametrize("dtype", ["bf16", *GPU_NUMBERS])
def test_every_type_of_number_is_passed_or_refused(dtype):
    for types, passed in ((NUMBERS, word), (GPU_NUMBERS, c_scalar)):
        if dtype in types:
            passed(dtype, 1)
        else:
            with pytest.raises(ArgumentError, match=f"scalars of type {dtype} cannot be passed"):
                passed(dtype, 1)


def test_numbers_beyond_a_type_are_infinite():
    """As in a kernel: a pool of floats begins at the least double."""
    least = -1.7976931348623157e308
    assert word("f32", least) == word("f32", float("-inf")) != word("f32", -3e38)
    assert word("f64", least) != word("f64", float("-inf"))
    for number, same in ((1e6, float("inf")), (-65520.0, float("-inf")), (65519.0, 65504.0)):
        assert c_scalar("f16", number).value == c_scalar("f16", same).value
    assert c_scalar("f32", least).value == float("-inf")
