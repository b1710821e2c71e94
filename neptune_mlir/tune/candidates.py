# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What there is to choose from for a stream on a chip, and why some of it is not worth a try.

The counts of registers and shared memory are those that the passes go by (`targets.group_tiles`),
rounded in favour of the candidate: what compiles to spills, or to something else, is found out by
compiling it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from neptune_mlir.errors import UsageError
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.targets.group_tiles import (
    GROUP_ROWS,
    columns,
    group_count,
    groups_at_once,
    is_plain,
    least_bytes,
    registers,
    slots,
)
from neptune_mlir.targets.tuned import ALL_LATE, Choice, Shape
from neptune_mlir.targets.warp_groups import PANEL, PRODUCT_REGISTERS, REGISTERS

TRUTHS = [f.name for f in fields(Choice) if isinstance(f.default, bool)]
KNOBS: dict[str, tuple[int, ...]] = {
    "rows": tuple(GROUP_ROWS * groups for groups in PRODUCT_REGISTERS),
    "stream": tuple(range(16, 257, 16)), "columns": (0, *range(64, 257, 64)),
    "slots": (0, 3, 4), "turns": (0,), "skew": (1,), "resident": (1,), "boxed": (1,), "keeps": (1,),
    "blocks": (1,), "early": (0,), "late": (ALL_LATE,), "lefts": (0,),
    "beside": (0,), "adder": (0,), "apart": (0,),
}  # fmt: skip


def parse_knobs(settings: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """KNOBS, but for what `NAME=NUMBER,FIRST:LAST:STEP,...` says otherwise. Raises UsageError."""
    found = dict(KNOBS)
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in found:
            raise UsageError(f"no knob '{name}'", hint=f"knobs: {', '.join(found)}")
        try:
            numbers = [n for part in text.split(",") for n in _numbers(part)]
        except ValueError:
            numbers = []
        sizes: dict[str, Sequence[int]] = {"rows": KNOBS["rows"], "stream": range(16, 257, 16),
                 "columns": range(0, 257, 16), "blocks": (1, 2)}  # fmt: skip
        allowed = sizes.get(name, range(2) if name in TRUTHS else range(17))
        if not numbers or any(n not in allowed for n in numbers):
            raise UsageError(
                f"knob '{name}' is '{text}'",
                hint=f"some of {', '.join(map(str, allowed))}; FIRST:LAST:STEP is a range",
            )
        found[name] = tuple(dict.fromkeys(numbers))
    return found


def _numbers(part: str) -> Sequence[int]:
    if ":" not in part:
        return [int(part)]
    first, last, step = (int(n) for n in part.split(":"))
    return range(first, last + 1, step)


def candidates(
    chip: GpuTarget, shape: Shape, knobs: Mapping[str, Sequence[int]] = KNOBS
) -> tuple[list[Choice], Counter[str]]:
    """Those worth a try, and how many are not for each reason."""
    pruned: Counter[str] = Counter()
    fitting = []
    for choice in _all(knobs if is_plain(shape) else {**knobs, "columns": (0,)}):
        reason = unfit(chip, shape, choice)
        if reason:
            pruned[reason] += 1
        else:
            fitting.append(choice)
    if is_plain(shape):  # the stream is what is summed over: any length of it does
        return fitting, pruned
    largest = {c.rows: max(d.stream for d in fitting if d.rows == c.rows) for c in fitting}
    worth = [c for c in fitting if 2 * c.stream >= largest[c.rows]]
    if len(fitting) > len(worth):
        pruned["less than half of the streamed tile that fits"] = len(fitting) - len(worth)
    return worth, pruned


def _all(knobs: Mapping[str, Sequence[int]]) -> Iterator[Choice]:
    for numbers in itertools.product(*(knobs[name] for name in KNOBS)):
        named: dict[str, Any] = dict(zip(KNOBS, numbers, strict=True))
        yield Choice(**{k: bool(n) if k in TRUTHS else n for k, n in named.items()})


def unfit(chip: GpuTarget, shape: Shape, choice: Choice) -> str:
    """Why a choice cannot be, or cannot be good; "" where nothing is against it."""
    groups = group_count(shape, choice.rows)
    if choice.turns and groups == 1:
        return "turns of one group"
    if is_plain(shape) and choice.stream % PANEL:
        return "rows that are not whole panels"
    if choice.columns and choice.columns == columns(shape):
        return "the columns that the rule gives"
    room = PRODUCT_REGISTERS.get(groups, 0)
    if registers(shape, choice.stream, choice.columns, groups, choice.late > 0) > room:
        return "registers"
    if (groups, choice.blocks) not in REGISTERS:
        return "registers of several blocks"
    if least_bytes(shape, choice) > chip.shared_for(choice.blocks):
        return "shared memory"
    if 0 < choice.slots <= slots(chip, shape, choice):
        return "no more slots than the rule gives"
    if groups_at_once(chip, shape, choice) < 2:
        return "occupancy: one group a multiprocessor, nothing runs beside its products' wait"
    return ""
