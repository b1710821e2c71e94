# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments in two arrays, as kernels get them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView, contiguous
from neptune_mlir.runtime.memory import SizedLaunch
from neptune_mlir.runtime.parameters import in_memory, in_two, parameters
from neptune_mlir.runtime.plan import Argument, Buffer, Launch, Plan
from neptune_mlir.runtime.shards.gift import GIFT, Gift
from neptune_mlir.runtime.shards.in_two import BEHIND, OPERAND, ArraysInTwo, can_give, takes


def view(address, *shape, dtype="f16"):
    return ArrayView(address, dtype, shape, contiguous(shape), False, None, 0)


def plan(*operands, buffers=()):
    arguments = (Argument("tensor", "f16", (None,) * 4, "k"),)
    return Plan("p", arguments, (), buffers, (Launch("p_0", (1,), operands),), ())


FIRST, SECOND = view(4096, 2, 3, 128, 64), view(1 << 20, 2, 3, 40, 64)


def test_both_are_one_argument():
    whole = ArraysInTwo((None, None), 2, 1, 77, 900).view(FIRST, SECOND, "k")
    assert whole.shape == (2, 3, 168, 64)
    assert in_memory(whole, "map") == FIRST and in_memory(whole, BEHIND) == SECOND
    assert in_memory(FIRST, BEHIND) == FIRST
    assert whole.span() == FIRST.span()  # what is written may lie behind the first one
    # the word; begin, what is late, time; lanes of the dimensions in front
    assert [x.value for x in in_two(whole, 2)] == [77, 128, 128, 168, 900, 0, 0, 0, 3, 1]
    first = ArraysInTwo((None, None), 2, 0, 77, 900).view(FIRST, SECOND, "k")
    assert [x.value for x in in_two(first, 2)][2:4] == [0, 128]
    # all lanes at once, 32 positions first; programs of 5 lanes longest first
    first = ArraysInTwo((None, None), 2, 0, 77, 900, 32, 5).view(FIRST, SECOND, "k")
    assert [x.value or 0 for x in in_two(first, 2)] == [77, 128, 0, 128, 900, 32, 1, 5, 0, 0]


def test_what_is_sent_is_a_parameter():
    gift = Gift(((16, 32), (48, 64)), 3, 1 << 12, 1 << 13, 256, 128, 64, 77, 99, 11)
    kinds = [Launch("f", (1,), ([GIFT], [OPERAND, "argument", 0, 2, 64])), Launch("g", (1,), ())]
    made = replace(plan(["argument", 0]), launches=tuple(kinds))
    assert can_give(made) and can_give(plan(["argument", 0]))
    assert not can_give(plan([OPERAND, "argument", 0, 2, 64]))
    whole = ArraysInTwo((None, None), 2, gift=gift).view(FIRST, SECOND, "k")
    sized = SizedLaunch(replace(kinds[0], operands=([GIFT],)), 1, (None,))
    (found,) = parameters(sized, {("argument", 0): FIRST, ("argument", 1): whole}, None, None)
    assert [*found.source] == [16, 48, 0, 0] and [*found.target] == [32, 64, 0, 0]
    assert (found.items, found.tensors, found.row, found.step) == (6, 2, 128, 64)
    assert (found.word, found.counter, found.forgotten, found.size) == (77, 99, 11, 256)
    (found,) = parameters(sized, {("argument", 0): FIRST}, None, None)
    assert bytes(found) == bytes(128)


def test_an_array_that_is_one_is_the_first():
    assert [x.value or 0 for x in in_two(FIRST, 2)] == [0, 128, 0, 0, 0, 0, 0, 0, 3, 1]


@pytest.mark.parametrize(
    "second",
    [view(1 << 20, 2, 2, 40, 64), view(1 << 20, 2, 3, 40, 64, dtype="bf16"),
     replace(SECOND, address=4104), replace(SECOND, strides=(7684, 2562, 64, 1)),
     replace(SECOND, device=1)],
)  # fmt: skip
def test_arrays_that_are_not_one(second):
    with pytest.raises(ArgumentError, match=r"second array|differ"):
        ArraysInTwo((None, None), 2).view(FIRST, second, "k")


def test_what_a_plan_takes():
    whole = ArraysInTwo((None, None), 2).view(FIRST, SECOND, "k")
    place, told = ["argument", 0], [OPERAND, "argument", 0, 2, 64]
    assert takes(plan(place, told), [whole]) and takes(plan(place), [FIRST])
    assert not takes(plan(place), [whole])
    assert not takes(plan(place, [OPERAND, "argument", 0, 2, 96]), [whole])  # tiles of 96 rows
    assert not takes(plan(place, [OPERAND, "argument", 0, 1, 64]), [whole])
    shaped = Buffer("f16", (2, 3, 168, 64), ["argument", 0])
    assert not takes(plan(place, told, buffers=(shaped,)), [whole])
