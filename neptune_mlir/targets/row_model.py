# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs take that have whole rows: how many rows each, by how many warps, and where.

A multiprocessor has as many programs as registers, threads and shared memory leave room for. They
load at once, so what a program does between its loads (wait for other warps, go over the row once
more) is paid once a round of them. The time of a call is what starts it, and the most of what
memory, instructions and the beginnings of programs take, and its rounds.

The constants are microseconds of an H200. Those of rows that are read again (norms) were fitted to
162 shapes of 70 to 148000 rows, with scales asked for first (`codegen/gpu/rows/early_loads.py`):
what is chosen takes 1.012 of the least time that was measured for one sum, 1.010 for two. Beside
functions (softmax) it takes 1.010 of 70 shapes. Those of rows that are read once (losses) were
fitted to 100 shapes, and take 1.010 of 30 that pass by the first-level cache
(docs/notebook/rows.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from neptune_mlir.targets.gpu import MULTIPROCESSORS, GpuTarget

CYCLES = 7000  # instructions of warps, of a multiprocessor


class Times(NamedTuple):
    """Of a call, in microseconds.

    Attributes:
        start: of a call.
        bytes: of memory, in a microsecond.
        program, warp: to begin a program, and for each of its warps.
        joined: for each warp that a sum is joined from, and sum.
        corrected: for a sum beside the first, which is corrected as it runs, or waits for it.
        instructions: of such a sum, an element.
        held, held_again: for each element of a thread, and how much more beside such a sum.
        late: for each element of a thread where vectors beside a row come behind its sum.
        copied, copied_word: of a row kept in shared memory, and for each element of a thread.
        beside: for each warp of a program with several rows, which end together.
        wait, under_way: where programs have less than so many bytes of rows under way.
        whole_rounds: how far rounds are whole.
        power: how sharply the most decides.
    """

    start: float
    bytes: float
    program: float
    warp: float
    joined: float
    corrected: float
    instructions: float
    held: float
    held_again: float
    late: float
    copied: float
    copied_word: float
    beside: float
    wait: float
    under_way: float
    whole_rounds: float
    power: float


ONCE = Times(
    start=2.16, bytes=4.48e6, program=0.03, warp=0.0141, joined=0.0141, corrected=0.0688,
    instructions=12.5, held=0.004, held_again=0.0, late=0.0, copied=0.4, copied_word=0.0,
    beside=0.04, wait=0.0, under_way=1.0, whole_rounds=0.959, power=2.9,
)  # fmt: skip
AGAIN = Times(
    start=1.87, bytes=4.75e6, program=0.0419, warp=0.0199, joined=0.0261, corrected=0.108,
    instructions=0.0, held=0.00913, held_again=0.0, late=0.0155, copied=0.0, copied_word=0.0383,
    beside=0.0449, wait=0.788, under_way=27200.0, whole_rounds=1.0, power=6.07,
)  # fmt: skip
FOR_ONE = Times(
    start=1.87, bytes=4.75e6, program=0.0419, warp=0.0199, joined=0.021, corrected=0.0,
    instructions=0.0, held=0.0105, held_again=0.0, late=0.0155, copied=0.0, copied_word=0.0383,
    beside=0.06, wait=0.788, under_way=27200.0, whole_rounds=1.0, power=6.07,
)  # fmt: skip
FUNCTIONS = Times(
    start=1.82, bytes=4.8e6, program=0.0544, warp=0.0, joined=0.024, corrected=0.0,
    instructions=13.8, held=0.00686, held_again=1.07, late=0.0, copied=0.248, copied_word=0.00082,
    beside=0.0178, wait=0.0, under_way=1.0, whole_rounds=1.0, power=3.87,
)  # fmt: skip
TIMES = ONCE, FOR_ONE, AGAIN, FUNCTIONS  # by kind
AHEAD = 0.4  # of a round where shared memory has a row, and registers its scales
# Registers of a thread by its elements: of rows read once, again for one sum, again for several,
# again beside functions
ELEMENTS = (0, 8, 16, 24, 32, 48, 64, 128)
REGISTERS = (
    (20, 25, 32, 40, 48, 64, 80, 150),
    (20, 28, 40, 52, 62, 66, 96, 220),
    (28, 32, 56, 56, 64, 76, 114, 320),
    (20, 26, 40, 56, 60, 72, 88, 160),
)
LARGE, MORE = 16, 22  # warps of programs from which on those of rows read once have some more
ALONE_MORE = 10  # registers of rows that are read again for one sum, one a program, of many each
EARLY = 128  # bytes of a thread's rows and their scales up to which these are asked for first
MOST_ELEMENTS, MOST_ALONE = 64, 32  # of a thread that has them in registers, and of warps alone
THREAD_REGISTERS = 1 << 16  # of a multiprocessor
MANY = 1 << 26  # bytes of a call with many rows
KEPT = 8193, 8193, 8193, 8192  # elements from which on rows may be kept in shared memory, by kind
SINGLE = 1, 2, 4, 8, 16, 32  # warps of a program with one row
SEVERAL = (2, 1), (2, 2), (4, 2), (2, 4), (4, 4)  # rows and warps of others


class RowWork(NamedTuple):
    """What programs do with rows.

    Attributes:
        size: bytes of an element, of all arrays.
        chunk: elements that a thread moves at once.
        again: whether a result has the elements of a row, which is read again for it.
        sums: reductions that read a row.
        keeps: whether it may be kept in shared memory.
        functions: whether each element is one of a function, when it is read again.
    """

    size: int
    chunk: int
    again: bool
    sums: int
    keeps: bool
    functions: bool = False

    @property
    def kind(self) -> int:
        return (3 if self.functions else 1 if self.sums == 1 else 2) if self.again else 0


class RowForm(NamedTuple):
    """Rows and warps of a program, and whether it keeps a row in shared memory."""

    rows: int
    warps: int
    kept: bool = False


def held_elements(form: RowForm, chunk: int, elements: int) -> int:
    """Elements of a thread, by chunks of so many."""
    moved = 32 * max(1, form.warps // form.rows) * chunk
    return -(-elements // moved) * chunk * max(1, form.rows // form.warps)


def asks_early(row: RowWork, form: RowForm, held: int) -> bool:
    """Whether programs ask for scales before rows are reduced (`early_loads.py`)."""
    room = form.warps >= LARGE if form.kept else form.warps <= LARGE
    vectors = (1 + (row.sums > 1)) * held // max(1, form.rows // form.warps)
    return row.again and room and (held + vectors) * row.size <= EARLY


def registers(row: RowWork, form: RowForm, held: int) -> float:
    """Registers of a thread, as the compiler was seen to take them."""
    if form.kept and row.functions:
        return 39
    if form.kept and row.again:
        return 58 if asks_early(row, form, held) else 32
    if form.kept:
        return max(45 if held <= 16 else 40 if form.warps < LARGE else 64, 0.62 * held)
    table = REGISTERS[row.kind]
    at = next(n for n, most in enumerate(ELEMENTS[1:]) if held <= most)
    part = (held - ELEMENTS[at]) / (ELEMENTS[at + 1] - ELEMENTS[at])
    found = table[at] + part * (table[at + 1] - table[at])
    if form.warps >= LARGE and not row.again:
        found += MORE
    if row.kind == 1 and form.rows == 1 and held > 24:
        found += ALONE_MORE
    return min(found, THREAD_REGISTERS / (32 * form.warps)) if row.again else found


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
    c, held = TIMES[row.kind], held_elements(form, row.chunk, elements)
    each = -(-rows // form.rows) / MULTIPROCESSORS
    whole, corrected = -int(-each // 1), min(row.sums, 2) - 1
    memory = rows * elements * row.size * (2 if row.again else 1) / c.bytes
    instructions = whole * held * form.warps * c.instructions * corrected / CYCLES
    begun = each * (c.program + c.warp * form.warps)
    early = asks_early(row, form, held)
    part = c.corrected * corrected + c.held * held * (1 + c.held_again * corrected)
    if form.warps > form.rows:
        part += c.joined * (corrected + 1) * form.warps
    if form.rows > 1:
        part += c.beside * form.warps
    if form.kept:
        part += c.copied + c.copied_word * held
    elif not early:
        part += c.late * held
    under_way = beside * form.rows * elements * row.size
    part += c.wait * max(0.0, 1 - under_way / c.under_way)
    if form.kept and early and corrected == 0:
        part *= AHEAD
    rounds = (1 - c.whole_rounds) * max(1.0, each / beside) + c.whole_rounds * -(-whole // beside)
    most = sum(n**c.power for n in (memory, instructions, begun)) ** (1 / c.power)
    return c.start + most + rounds * part


def forms(row: RowWork, elements: int) -> Iterator[RowForm]:
    """Those that were measured."""
    for rows, warps in (*((1, warps) for warps in SINGLE), *SEVERAL):
        form = RowForm(rows, warps)
        most = MOST_ELEMENTS if warps > rows else MOST_ALONE
        filled = 2 * elements * rows > 32 * warps * row.chunk
        if filled and held_elements(form, row.chunk, elements) <= most:
            yield form
    if row.keeps and elements >= KEPT[row.kind]:
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
