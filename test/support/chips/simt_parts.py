# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `simt_hopper` runs blocks with: tensor maps, barriers, the producer, and the launch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.chips import simt
from support.chips.simt_ops import Body, Op

ASM = "llvm.inline_asm"
ROW = 128  # bytes of a swizzled row: 8 chunks of 16 bytes


@dataclass(frozen=True)
class TensorMap:
    """What `Driver.tensor_map` encodes."""

    dtype: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def size(self) -> int:
        return {"tf32": 4, "f8E4M3FN": 1}.get(self.dtype) or simt.SIZES[self.dtype]

    @property
    def bytes(self) -> int:
        return int(np.prod(self.box)) * self.size

    @property
    def row(self) -> int:
        """Bytes of a row of a box."""
        return self.box[0] * self.size

    def rounded(self, rows: np.ndarray) -> np.ndarray:
        """Bytes as they arrive."""
        if self.dtype != "tf32":
            return rows
        words = np.ascontiguousarray(rows).view(np.int32)
        return ((words + 0x1000) & ~0x1FFF).view(np.uint8)

    def rows(self, where: list[int]) -> tuple[np.ndarray, np.ndarray, int]:
        """Addresses of the rows (128 or 64 bytes) of the box at `where`, which of them exist, and
        how many bytes of these do: a row ends where the innermost axis does."""
        size = self.size
        assert self.row in (ROW, ROW // 2) and where[0] >= 0
        there = max(0, min(self.box[0], self.extents[0] - where[0])) * size
        sizes = self.box[1:]
        inside = np.indices(sizes[::-1]).reshape(len(sizes), -1)[::-1]  # the first axis is fastest
        at = inside + np.array(where[1:], np.int64)[:, None]
        exists = ((at >= 0) & (at < np.array(self.extents[1:])[:, None])).all(0)
        start = self.address + where[0] * size
        return start + np.array(self.strides, np.int64) @ at, exists, there


def swizzled(start: int, rows: int, row: int = ROW) -> np.ndarray:
    """Where the bytes of rows of `row` bytes lie, [rows, row]: chunks of 16, swizzled by the line
    of 128 bytes."""
    return swizzle(start + np.arange(rows * row).reshape(rows, row), row)


def swizzle(place: np.ndarray, row: int = ROW) -> np.ndarray:
    return place ^ (place >> 7 & (row // 16 - 1)) << 4


class Maps:
    """Stands in for the driver: its tensor maps are kept, kernels get their numbers."""

    def __init__(self) -> None:
        self.made: list[TensorMap] = []

    def tensor_map(
        self, dtype: str, address: int, extents: Any, strides: Any, box: Any, *,
        narrow: bool = False,
    ) -> int:  # fmt: skip
        assert all(s % 16 == 0 and s > 0 for s in strides) and address % 16 == 0
        assert all(0 < n <= 256 for n in box) and 2 <= len(box) <= 5
        lists = (tuple(extents), tuple(strides), tuple(box))
        self.made.append(TensorMap(dtype, address, *lists))
        return len(self.made) - 1


@dataclass
class Barrier:
    """An mbarrier: `done` phases are complete; of this one, `arrived` of `count` are there, and
    `loads` are under way."""

    count: int
    done: int = 0
    arrived: int = 0
    expected: int = 0  # bytes
    told: int = 0  # bytes that another block has written
    loads: list[tuple[TensorMap, list[int], int]] = field(default_factory=list)

    def arrive(self, count: int = 1) -> None:
        self.arrived += count
        assert self.arrived <= self.count, "more arrivals than a barrier counts"

    def complete(self) -> bool:
        """Go on to the next phase, if all are there."""
        if self.arrived < self.count:
            return False
        come = self.told + sum(tensor_map.bytes for tensor_map, _, _ in self.loads)
        if come < self.expected:  # another block is to bring some
            return False
        assert come == self.expected
        self.done, self.arrived, self.expected, self.loads = self.done + 1, 0, 0, []
        self.told = 0
        return True


class Producer:
    """Runs `work` in turn with whoever made this: each goes on when the other passes the turn."""

    def __init__(self, work: Callable[[], None]):
        self.over = False
        self._error: BaseException | None = None
        self._theirs, self._ours = threading.Semaphore(0), threading.Semaphore(0)
        self._abandoned = False

        def run() -> None:
            self._ours.acquire()
            try:
                if not self._abandoned:
                    with np.errstate(all="ignore"):  # a thread has its own
                        work()
            except BaseException as error:  # for whoever made this
                self._error = error
            self.over = True
            self._theirs.release()

        threading.Thread(target=run, daemon=True).start()

    def go_on(self) -> None:
        """Let it run until it passes the turn, or is over. Raises what it raised."""
        if not self.over:
            self._ours.release()
            self._theirs.acquire()
        if self._error is not None:
            raise self._error

    def pass_turn(self) -> None:
        self._theirs.release()
        self._ours.acquire()
        assert not self._abandoned, "the producer waits for what never comes"

    def end(self) -> None:
        self._abandoned = True
        self.go_on()


def text_of(op: Op) -> str:
    return str(op.attributes["asm_string"])


def is_producer(body: Body | None) -> bool:
    if body is None or not body.ops:
        return False
    first = body.ops[0]
    return first.name == ASM and "setmaxnreg.dec" in text_of(first)


def takes(body: Body | None) -> bool:
    """Whether a region is of groups that take what the first one makes."""
    begin = () if body is None else [text_of(op) for op in body.ops[:4] if op.name == ASM]
    return any("bar.arrive $0" in text for text in begin)


def waits(body: Body | None) -> bool:
    """Whether something waits for a barrier in a region."""
    return body is not None and any(
        "try_wait" in text_of(op) if op.name == ASM else any(map(waits, op.regions))
        for op in body.ops
    )


@dataclass
class Launch:
    """What blocks of a launch share: how many there are, and how many programs were taken.

    `come`: called where a kernel waits for a lane, with the address of the word and the lane."""

    blocks: int = 1
    taken: int = 0
    come: Callable[[int, int], None] | None = None
