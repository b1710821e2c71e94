# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of programs whose lengths differ, by running their queue in numbers."""

from __future__ import annotations

import pytest

from neptune_mlir.runtime.shards import order
from neptune_mlir.runtime.shards.layout import Call, Form, Masks

CAUSAL = Form(0, {"i": 1, "j": -1}, {"i": 1, "j": -1}, {})
WINDOW = Form(300, {"i": -1, "j": 1}, {"i": -1, "j": 1}, {})


def call(rows, columns, start=0):
    return Call({"i": (0, rows), "j": (0, columns)}, {"i": start, "j": 0})


@pytest.mark.parametrize("forms", [(CAUSAL,), (CAUSAL, WINDOW), ()])
@pytest.mark.parametrize("rows, columns, start", [(512, 1024, 512), (300, 700, 200), (128, 128, 0)])
def test_the_tiles_that_rows_meet(forms, rows, columns, start):
    made = order.tiles(Masks(forms, True), call(rows, columns, start), {})
    for k, count in enumerate(made):
        own = range(start + 128 * k, start + min(rows, 128 * k + 128))
        seen = {j // 128 for j in range(columns)
                if any(all(f.range({"i": 1, "j": 1}, {"i": i, "j": j}, {})[0] >= 0 for f in forms)
                       for i in own)}  # fmt: skip
        assert count == len(seen)


@pytest.mark.parametrize("lanes, most", [(8, 1.01), (16, 1.005), (32, 1.005)])
def test_a_queue_of_long_programs_is_empty_at_once(lanes, most):
    """The middle of a zigzag of 16384 on two devices: the kernel's own rule, two programs for each
    block, takes 2 to 9% more than what a multiprocessor has to do; the numbers that are found
    little."""
    lengths = order.tiles(Masks((CAUSAL,), True), call(8192, 12288, 4096), {})
    assert lengths == [*range(33, 97)]
    last = order.last_lanes(Masks((CAUSAL,), True), call(8192, 12288, 4096), {}, lanes, 132)
    taken = order.queued(order.order(lengths, lanes, last), 1.0, 132)
    rule = order.queued(order.order(lengths, lanes, min(lanes, -(-2 * 132 // 64))), 1.0, 132)
    assert taken < most < 1.02 < rule


def test_the_order_has_each_program_once():
    assert order.order([1, 2, 3], 3, 2) == [3, 2, 1, 3, 3, 2, 2, 1, 1]


def test_nothing_is_tried_for_very_many_programs():
    many = order.last_lanes(Masks((CAUSAL,), True), call(8192, 12288, 4096), {}, 64, 132)
    assert many == 0
