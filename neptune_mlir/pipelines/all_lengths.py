# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether the variants for some lengths of a stream take every call together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.pipelines.cases import Case


def leave_none(cases: Sequence[Case]) -> bool:
    """Whether the kernels of these cases, the first of which is for lengths from some number on,
    take every call: the kernel for any call has none left then, and the first may take its
    place."""
    if any(not case.is_known for case in cases) or not cases:
        return False
    ranges = [found for case in cases if (found := _lengths(case.condition)) is not None]
    start = _lengths(cases[0].condition)
    if start is None or start[2] is not None or len({what for what, *_ in ranges}) > 1:
        return False
    reached = 0  # every length below
    for _, low, high in sorted(ranges, key=lambda r: r[1]):
        if low <= reached and high is None:
            return True
        reached = max(reached, high + 1) if low <= reached and high is not None else reached
    return False


def _lengths(condition: Any) -> tuple[str, int, int | None] | None:
    """A condition as what has to be from one number to another (None: any length), or None."""
    match condition:
        case ["le", int(low), what] if not isinstance(what, int):
            return str(what), low, None
        case ["le", what, int(high)]:
            return str(what), 0, high
        case ["lt", int(least), what] if not isinstance(what, int):
            return str(what), least + 1, None
        case ["and", first, second]:
            found = _lengths(first), _lengths(second)
            if found[0] is not None and found[1] is not None and found[0][0] == found[1][0]:
                highs = [high for _, _, high in found if high is not None]
                return found[0][0], max(low for _, low, _ in found), min(highs, default=None)
    return None
