# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of programs whose lengths differ, by running their queue in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neptune_mlir import ops
from neptune_mlir.frontend.shard import split
from neptune_mlir.frontend.shard.plan import plan_of
from neptune_mlir.runtime.shards.layout import Call, Form, Masks, ShardLayout
from neptune_mlir.runtime.shards.order import LeftOver, Queue, last_lanes, left_over, tiles
from neptune_mlir.runtime.shards.plan import ShardSchedule

CAUSAL = Form(0, {"i": 1, "j": -1}, {"i": 1, "j": -1}, {})
WINDOW = Form(300, {"i": -1, "j": 1}, {"i": -1, "j": 1}, {})
CHIP = 132


@pytest.mark.first_of_each("forms")
@pytest.mark.parametrize("forms", [(CAUSAL,), (CAUSAL, WINDOW), ()])
@pytest.mark.parametrize("rows, part, start", [
    (512, (0, 1024), 512), (300, (0, 700), 200), (128, (0, 128), 0), (512, (256, 900), 384),
])  # fmt: skip
def test_the_tiles_that_rows_meet(forms, rows, part, start):
    call = Call({"i": (0, rows), "j": (0, 1024)}, {"i": start, "j": 0})
    for k, count in enumerate(tiles(Masks(forms, True), call, {}, part)):
        own = range(start + 128 * k, start + min(rows, 128 * k + 128))
        seen = {j // 128 for j in range(*part)
                if any(all(f.range({"i": 1, "j": 1}, {"i": i, "j": j}, {})[0] >= 0 for f in forms)
                       for i in own)}  # fmt: skip
        assert count == len(seen)


@pytest.mark.parametrize("lanes, most", [(8, 1.01), (16, 1.005), (32, 1.005)])
def test_a_queue_of_long_programs_is_empty_at_once(lanes, most):
    """The middle of a zigzag of 16384 on two devices: the kernel's own rule, two programs for each
    block, takes 2 to 9% more than what a multiprocessor has to do; the numbers that are found
    little."""
    queue = Queue((*range(1, 65),), (32,) * 64, lanes)
    rule = min(lanes, -(-2 * CHIP // 64))
    ideal = sum(n + 33 for n in queue.own) * lanes / CHIP
    assert queue.time(last_lanes(queue, CHIP), 1.0, CHIP) < most * ideal
    assert queue.time(rule, 1.0, CHIP) > 1.02 * ideal


def test_lanes_that_come_late_come_last():
    """The ends of a zigzag of 8192: programs of all lanes at once would wait for the last one's
    data, and short programs follow, which fill the end."""
    fill = tuple(n for n in range(16, 0, -1) for _ in range(16))
    queue = Queue((*range(17, 33),), (32,) * 16, 16, 4, fill)
    found = last_lanes(queue, CHIP)
    assert found < 16 and queue.time(found, 1.0, CHIP) < 0.87 * queue.time(16, 1.0, CHIP)
    there = replace(queue, groups=0)
    assert abs(there.time(found, 1.0, CHIP) / there.time(16, 1.0, CHIP) - 1) < 0.01


def test_programs_that_are_left_over_are_chunks():
    """Half of 65536 rows by 65536 columns: 4096 programs are 31 turns and 4 programs."""
    found = left_over(32768, 128, 16, (32768, 32768), CHIP)
    assert found == LeftOver(32640, 8)
    whole, cut = (Queue((512,) * n, (0,) * n, 16).time(0, 1.0, CHIP) for n in (256, 255))
    assert whole / (cut + 2 * 512 / 16 + 20) > 1.02
    assert left_over(8192, 128, 16, (8192, 8192), CHIP) is None  # the last turn is nearly full
    assert left_over(128 * 132, 128, 1, (32768, 32768), CHIP) is None  # full
    assert left_over(128 * 4, 128, 1, (32768, 32768), CHIP) is None  # the only turn
    assert left_over(32768, 128, 16, (32768, 32896), CHIP) is None  # nothing divides both
    assert left_over(32768, 128, 16, (2048, 2048), CHIP) is None  # short programs


def test_a_schedule_says_what_its_devices_do():
    attention = ops.attention(head_dim=64, causal=True)
    layout = ShardLayout.zigzag(16384, 2)
    schedule = ShardSchedule(plan_of(split(attention, ["i", "j"])), dict.fromkeys("ij", layout))
    assert [schedule.last_lanes(rank, 16, 8, CHIP) for rank in (0, 1)] == [1, 2]
    even = ShardLayout.even(16384, 2)
    schedule = ShardSchedule(plan_of(split(attention, ["i", "j"])), dict.fromkeys("ij", even))
    assert schedule.last_lanes(0, 16, 8, CHIP) == 0  # no run has data of both


def test_the_order_has_each_program_once():
    queue = Queue((1, 2, 3), (0, 0, 0), 3)
    first, rest = [(0, 2), (0, 1), (0, 0)], [(1, 2), (2, 2), (1, 1), (2, 1), (1, 0), (2, 0)]
    assert queue.order(2) == [*first, *rest]


def test_nothing_is_tried_for_many_programs_or_equal_ones():
    assert last_lanes(Queue((*range(1, 65),), (32,) * 64, 64), CHIP) == 0
    assert last_lanes(Queue((8,) * 64, (32,) * 64, 16), CHIP) == 0
