# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs take that have whole rows: how many rows each, by how many warps, and where.

A multiprocessor has as many programs as registers, threads and shared memory leave room for. They
load at once, so what a program does between its loads (wait for other warps, go over the row once
more) is paid once a round of them. The time of a call is what starts it, and the most of what
memory, instructions and the beginnings of programs take, and its rounds.

The constants are microseconds of an H200, fitted to 975 times of 199 shapes (70 to 131072 rows of
512 to 32768 elements, bf16 and f32; RMS norm, LayerNorm, cross-entropy). What it chooses takes
1.011 of the least time that was measured, in the geometric mean, and 1.009 of it for 90 shapes
drawn later (docs/notebook/rows.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from neptune_mlir.targets.gpu import MULTIPROCESSORS, GpuTarget

START = 2.16  # of a call
BYTES = 4.48e6  # of memory, in a microsecond
CYCLES = 7000  # instructions of warps, of a multiprocessor
PROGRAM, WARP = 0.03, 0.0141  # to begin one, and for each of its warps
JOINED = 0.0141  # for each warp that a sum is joined from, and sum
CORRECTED = 0.0688  # sums beside the first, which are corrected as they run, or wait for it
INSTRUCTIONS = 12.5  # of such a sum, an element
HELD, HELD_ONCE = 0.00561, 0.004  # each element of a thread: of rows read again, and once
HELD_AGAIN = 0.736  # how much more where sums of such rows are corrected
LATE, LATE_FROM = 0.014, 16  # vectors beside a row that come late, where threads have more
COPIED, COPIED_ONCE, COPIED_WORD = 0.631, 0.4, 0.0114  # of rows kept in shared memory
WHOLE_ROUNDS = 0.959  # how far rounds are whole
POWER = 2.9  # how sharply the most decides
# Registers of a thread by its elements: of rows read once, again for one sum, again for several
ELEMENTS = (0, 8, 16, 24, 32, 48, 64, 128)
REGISTERS = (
    (20, 25, 32, 40, 48, 64, 80, 150),
    (20, 32, 48, 43, 50, 70, 104, 220),
    (28, 40, 64, 64, 80, 128, 168, 320),
)
LARGE, MORE = 16, (22, 8, 20)  # warps of programs from which on they have some more
MOST_ELEMENTS, MOST_ALONE = 64, 32  # of a thread that has them in registers, and of warps alone
MANY = 1 << 26  # bytes of a call with many rows
KEPT_ONCE, KEPT_AGAIN = 2048, 8192  # elements from which on rows may be kept in shared memory
SINGLE = 1, 2, 4, 8, 16, 32  # warps of a program with one row
SEVERAL = (2, 2), (2, 4), (4, 4)  # rows and warps of others


class RowWork(NamedTuple):
    """What programs do with rows.

    Attributes:
        size: bytes of an element, of all arrays.
        chunk: elements that a thread moves at once.
        again: whether a result has the elements of a row, which is read again for it.
        sums: reductions that read a row.
        keeps: whether it may be kept in shared memory.
    """

    size: int
    chunk: int
    again: bool
    sums: int
    keeps: bool

    @property
    def kind(self) -> int:
        return (1 if self.sums == 1 else 2) if self.again else 0


class RowForm(NamedTuple):
    """Rows and warps of a program, and whether it keeps a row in shared memory."""

    rows: int
    warps: int
    kept: bool = False


def held_elements(form: RowForm, chunk: int, elements: int) -> int:
    """Elements of a thread, by chunks of so many."""
    moved = 32 * (form.warps // form.rows) * chunk
    return -(-elements // moved) * chunk


def registers(row: RowWork, form: RowForm, held: int) -> float:
    """Registers of a thread, as the compiler was seen to take them."""
    if form.kept and row.again:
        return 32 if held > LATE_FROM else 48 if row.sums == 1 else 62
    if form.kept:
        return max(45 if held <= LATE_FROM else 40 if form.warps < LARGE else 64, 0.62 * held)
    table = REGISTERS[row.kind]
    at = next(n for n, most in enumerate(ELEMENTS[1:]) if held <= most)
    part = (held - ELEMENTS[at]) / (ELEMENTS[at + 1] - ELEMENTS[at])
    found = table[at] + part * (table[at + 1] - table[at])
    if form.warps >= LARGE and (held <= 32 or not row.again):
        found += MORE[row.kind]
    return found + (16 if form.rows > 1 and row.kind == 2 and held > LATE_FROM else 0)


def programs(target: GpuTarget, row: RowWork, form: RowForm, elements: int) -> int:
    """Programs of a multiprocessor; 0: there is no room for one."""
    shared = elements * row.size if form.kept else 0
    taken = -(-int(registers(row, form, held_elements(form, row.chunk, elements)) + 0.999) // 8) * 8
    if taken > 255 or shared > target.shared_block - 2048:
        return 0
    return min(target.blocks_per_sm(32 * form.warps, taken, shared), 32)


def microseconds(target: GpuTarget, row: RowWork, form: RowForm, elements: int, rows: int) -> float:
    """The time of a call with so many rows of so many elements; infinite without room."""
    beside = programs(target, row, form, elements)
    if not beside:
        return float("inf")
    each, held = -(-rows // form.rows) / MULTIPROCESSORS, held_elements(form, row.chunk, elements)
    whole, corrected = -int(-each // 1), min(row.sums, 2) - 1
    memory = rows * elements * row.size * (2 if row.again else 1) / BYTES
    instructions = whole * held * form.warps * INSTRUCTIONS * corrected / CYCLES
    begun = each * (PROGRAM + WARP * form.warps)
    part = CORRECTED * corrected
    part += (HELD if row.again else HELD_ONCE) * held * (1 + HELD_AGAIN * row.again * corrected)
    if form.warps > form.rows:
        part += JOINED * (corrected + 1) * form.warps
    if row.kind == 1:
        part += LATE * max(0, held - LATE_FROM)
    if form.kept:
        part += COPIED * corrected + COPIED_WORD * held if row.again else COPIED_ONCE
    rounds = (1 - WHOLE_ROUNDS) * max(1.0, each / beside) + WHOLE_ROUNDS * -(-whole // beside)
    most = sum(n**POWER for n in (memory, instructions, begun)) ** (1 / POWER)
    return START + most + rounds * part


def forms(row: RowWork, elements: int) -> Iterator[RowForm]:
    """Those that were measured."""
    for rows, warps in (*((1, warps) for warps in SINGLE), *SEVERAL):
        form = RowForm(rows, warps)
        most = MOST_ELEMENTS if warps > rows else MOST_ALONE
        filled = 2 * elements * rows > 32 * warps * row.chunk
        if filled and held_elements(form, row.chunk, elements) <= most:
            yield form
    if row.keeps and elements >= (KEPT_AGAIN if row.again else KEPT_ONCE):
        yield from (RowForm(1, warps, True) for warps in SINGLE[2 if row.again else 1 :])


@functools.lru_cache(maxsize=1024)
def best(target: GpuTarget, row: RowWork, elements: int, rows: int = 0) -> RowForm | None:
    """The form that takes the least time for so many rows (0: many); None without any."""
    rows = rows or MANY // (elements * row.size)
    found = [
        (microseconds(target, row, form, elements, rows), form) for form in forms(row, elements)
    ]
    time, form = min(found, default=(float("inf"), None))
    return form if time < float("inf") else None
