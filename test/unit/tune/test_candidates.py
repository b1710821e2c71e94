# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tuner tries, and what it does not."""

from __future__ import annotations

from dataclasses import fields

import pytest

from neptune_mlir.errors import UsageError
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.group_tiles import least_bytes
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.transforms.schedule import group_sizes
from neptune_mlir.tune.candidates import (
    KNOBS,
    candidates,
    parse_knobs,
    unfit,
)

CHIP = gpu_target("sm_90a")


@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize("head", [64, 128, 256])
def test_the_rules_choice_is_among_them(head: int, triangle: bool) -> None:
    shape = Shape(head, head, triangle, True)
    found, pruned = candidates(CHIP, shape)
    assert group_sizes.rule(shape) in found
    assert 4 <= len(found) <= 24 and len(set(found)) == len(found)
    every = 1
    for name, numbers in KNOBS.items():
        every *= 1 if name == "columns" else len(numbers)  # which nothing cuts here
    assert len(found) + sum(pruned.values()) == every


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (Choice(128, 128), ""),
        (Choice(192, 128), ""),
        (Choice(192, 144), "registers"),
        (Choice(128, 192, slots=5), "shared memory"),
        (Choice(128, 128, slots=4), "no more slots than the rule gives"),
        (Choice(64, 128), "occupancy"),
        (Choice(64, 128, turns=True), "turns of one group"),
        (Choice(128, 128, turns=True), ""),
    ],
)
def test_reasons(choice: Choice, reason: str) -> None:
    found = unfit(CHIP, Shape(64, 64, True, True), choice)
    assert found.startswith(reason) and bool(found) == bool(reason)


def test_products_that_are_no_attention() -> None:
    """Plain ones have columns to choose, and panels to stream; deep ones the streamed columns."""
    plain = Shape(1, 0, False, True)
    found, _ = candidates(CHIP, plain)
    assert {c.columns for c in found} == {0, 64, 128, 192}
    assert all(c.stream % 64 == 0 for c in found) and Choice(128, 64) in found
    assert group_sizes.rule(plain) in found
    assert unfit(CHIP, plain, Choice(128, 64, columns=256)).startswith("the columns")
    assert unfit(CHIP, plain, Choice(192, 64)) == "registers"
    deep = Shape(4096, 0, False, False)
    found, _ = candidates(CHIP, deep)
    assert {c.columns for c in found} == {0} and group_sizes.rule(deep) in found
    assert max(c.stream for c in found if c.rows == 192) == 192


def test_shared_memory() -> None:
    # 128 rows of 64, and two slots of 96 rows of 64 and of 128, in 16 bits
    shape = Shape(64, 128, False, True)
    assert least_bytes(shape, Choice(128, 96)) - 2048 == 2 * (128 * 64 + 2 * 96 * (64 + 128))
    assert least_bytes(shape, Choice(128, 96, slots=3)) - least_bytes(
        shape, Choice(128, 96)
    ) == 2 * 96 * (64 + 128)  # fmt: skip


def test_every_choice_is_a_knob() -> None:
    assert list(KNOBS) == [f.name for f in fields(Choice)]


def test_knobs() -> None:
    found = parse_knobs(["rows=128", "stream=64:128:32,176", "turns=0,1"])
    assert found["rows"] == (128,) and found["stream"] == (64, 96, 128, 176)
    assert found["turns"] == (0, 1) and found["slots"] == KNOBS["slots"]
    fitting, _ = candidates(CHIP, Shape(64, 64, False, True), found)
    assert {(c.stream, c.turns) for c in fitting} == {
        (n, t) for n in (96, 128, 176) for t in (False, True)
    }  # fmt: skip
    for wrong in ("speed=1", "rows", "rows=100", "stream=24", "turns=2", "slots=x", "stream=1:2"):
        with pytest.raises(UsageError, match="knob"):
            parse_knobs([wrong])
