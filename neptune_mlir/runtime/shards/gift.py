# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel sends to another device while it runs (`codegen.nvidia.links.send`), as a launch
says it: a record of numbers by value."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

GIFT = "gift"  # an operand of a launch
MOST = 4  # tensors
LOADS = 8  # of a lane, under way at once
CHUNK = LOADS << 9  # bytes that a warp sends at once
BYTES = 128  # of the record


class _Record(ctypes.Structure):
    """Where kernels read the numbers of a `Gift`; `items`: lanes of all tensors."""

    _fields_ = (
        ("source", ctypes.c_uint64 * MOST), ("target", ctypes.c_uint64 * MOST),
        ("word", ctypes.c_uint64), ("counter", ctypes.c_uint64), ("forgotten", ctypes.c_uint64),
        ("source_lane", ctypes.c_uint32), ("target_lane", ctypes.c_uint32),
        ("items", ctypes.c_uint32), ("tensors", ctypes.c_uint32), ("row", ctypes.c_uint32),
        ("size", ctypes.c_uint32), ("step", ctypes.c_uint32), ("unused", ctypes.c_uint32 * 3),
    )  # fmt: skip


OFFSETS = {name: getattr(_Record, name).offset for name, *_ in _Record._fields_}


@dataclass(frozen=True)
class Gift:
    """Positions of all lanes of some tensors, from the last one down: `step`, then the rest.

    Attributes:
        pairs: of each tensor the addresses of its first byte here and there.
        lanes: how many, `source_lane` and `target_lane` bytes apart.
        size: positions of a lane, of `row` bytes each, one behind the other.
        word: the address of an i32 over there, which says how many positions have come.
        counter: of two i32 here, which are 0 before and after.
        forgotten: of an i32 here that is set to 0 before anything is said; 0: none.
    """

    pairs: tuple[tuple[int, int], ...]
    lanes: int
    source_lane: int
    target_lane: int
    size: int
    row: int
    step: int
    word: int
    counter: int
    forgotten: int = 0

    def is_possible(self) -> bool:
        """Whether a kernel can send it: whole chunks, at addresses of 16 bytes, offsets of 32
        bits."""
        places = [x for pair in self.pairs for x in pair]
        reach = (self.lanes - 1) * max(self.source_lane, self.target_lane) + self.size * self.row
        return (
            0 < len(self.pairs) <= MOST and self.lanes > 0 and 0 < self.step <= self.size
            and not any(x % 16 for x in (*places, self.source_lane, self.target_lane))
            and not any(x * self.row % CHUNK for x in (self.step, self.size))
            and reach < 1 << 32
        )  # fmt: skip


def record(gift: Gift | None) -> Any:
    """The parameter of a launch: zeros where nothing is to be sent."""
    made = _Record()
    assert ctypes.sizeof(made) == BYTES
    if gift is not None:
        for k, (source, target) in enumerate(gift.pairs):
            made.source[k], made.target[k] = source, target
        made.items, made.tensors = gift.lanes * len(gift.pairs), len(gift.pairs)
        for name in ("word", "counter", "forgotten", "source_lane", "target_lane", "row", "size",
                     "step"):  # fmt: skip
            setattr(made, name, getattr(gift, name))
    return made
