# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the GPU passes ask of a chip, whoever made it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

# what a program may allow operands of f32 products to be rounded to (`neptune.precision`)
PRECISIONS = ("tf32",)

# Multiprocessors (compute units) that schedules reckon with where a plan does not ask the device:
# those of an H100 and an H200. The order of magnitude decides.
MULTIPROCESSORS = 132

BLOCK_BYTES = 1024  # of shared memory, that the system takes a block


@dataclass(frozen=True)
class MatrixInstruction:
    """`D[m, n] = C[m, n] + A[m, k] * B[k, n]` of one wave.

    Attributes:
        name: the op that emits it, or part of its name.
        m, n, k: its shape.
        operand: element type of A and B; C and D are f32.
        a, b, c: which elements a thread holds, in the notation of `analysis/layouts.py` with the
            letters of dimensions: `reg[k:4*1] lane[m:32*1 k:2*4]` is m = lane % 32,
            k = 4 (lane / 32) + register.
        chain: the operand ("a" or "b") of the next product that an accumulator can become
            without changing threads.
        parts: how many of the chip's instructions this is, each with an equal part of k.
        words: whether 16-bit floats are passed as 16-bit integers.
        together: how many of the chip's instructions side by side along m this is (see `wide`).
        columns: of this many pieces along n, number t has the columns t, t + `columns`, ...
            (see `spread`).
        runs: of this many pieces along k, a thread has neighbours of A and B (see `along`).
        precision: what a program has to allow (`neptune.precision`) for its operands to be rounded
            so; "" where they are not.
        in_order: whether this is a form of another whose elements of k are in the order that the
            chip numbers them in, not in that of accumulators.
        neighbours: whether the two rows that a thread has of A and of C, half of m apart, are
            those of a tile that are neighbours.
    """

    name: str
    m: int
    n: int
    k: int
    operand: str
    a: str
    b: str
    c: str
    chain: str
    parts: int = 1
    words: bool = False
    together: int = 1
    precision: str = ""
    columns: int = 1
    runs: int = 1
    in_order: bool = False
    neighbours: bool = False

    @property
    def label(self) -> str:
        """What the IR calls it: no two instructions of a chip have the same."""
        side = f" x {self.together}" if self.together > 1 else ""
        side += f" / {self.columns}" if self.columns > 1 else ""
        order = (" in order" if self.in_order else "") + (" pairs" if self.neighbours else "")
        order += f" runs {self.runs}" if self.runs > 1 else ""
        return f"{self.m // self.together}x{self.n}x{self.k} {self.operand}{order}{side}"

    def wide(self, count: int) -> MatrixInstruction:
        """`count` of this instruction, their rows interleaved: row r of each is row
        `count` * r + number of all. So a thread's rows of A are neighbours, as many as `count`."""
        if count == 1:
            return self
        a, c = (
            re.sub(r"m:(\d+)\*(\d+)", lambda d: f"m:{d[1]}*{int(d[2]) * count}", text).replace(
                "reg[", f"reg[m:{count}*1 "
            )
            for text in (self.a, self.c)
        )
        return replace(self, m=self.m * count, a=a, c=c, together=count)

    def paired(self) -> MatrixInstruction:
        """This instruction with other rows of a tile as its own: 2 r and 2 r + 1 are what a thread
        has, where its rows r and r + m / 2 are. So what it reads of A along m are neighbours."""
        half = self.m // 2
        a, c = (
            re.sub(rf"m:2\*{half}\b", "m:2*1", re.sub(rf"m:{half}\*1\b", f"m:{half}*2", text))
            for text in (self.a, self.c)
        )
        return replace(self, a=a, c=c, neighbours=True)

    def spread(self, count: int) -> MatrixInstruction:
        """This instruction with its columns `count` apart: `count` pieces along n take turns with
        the columns. So what a thread has of B in these pieces are neighbours along n."""
        if count == 1:
            return self
        b, c = (
            re.sub(r"n:(\d+)\*(\d+)", lambda d: f"n:{d[1]}*{int(d[2]) * count}", text)
            for text in (self.b, self.c)
        )
        return replace(self, b=b, c=c, columns=count)

    def along(self, count: int) -> MatrixInstruction:
        """This instruction with other elements along k as its own: what a thread has of a row of A,
        or of a column of B, in `count` pieces are neighbours, `run` of them a piece. (The sum does
        not care.)"""
        if count == 1:
            return self
        a, b = (_in_runs(text, count) for text in (self.a, self.b))
        return replace(self, a=a, b=b, runs=count)

    @property
    def run(self) -> int:
        """Elements along k that a thread has of a row of A."""
        reg, _ = self.a.split(" lane")
        return math.prod(int(d[1]) for d in _ALONG_K.finditer(reg))

    def column(self, piece: int) -> int:
        """The first column of a piece."""
        rest = piece % self.columns
        return (piece - rest) * self.n + rest

    def depth(self, piece: int) -> int:
        """The first element along k that lane 0 has of a piece."""
        rest = piece % self.runs
        return (piece - rest) * self.k + rest * self.run


_ALONG_K = re.compile(r"k:(\d+)\*\d+")


def _in_runs(text: str, count: int) -> str:
    """A fragment whose registers along k are neighbours, in each of `count` pieces."""
    step = 1

    def moved(digit: re.Match[str]) -> str:
        nonlocal step
        made = f"k:{digit[1]}*{step}"
        step *= int(digit[1])
        return made

    reg, lane = text.split(" lane")
    reg = _ALONG_K.sub(moved, reg)
    step *= count
    return f"{reg} lane{_ALONG_K.sub(moved, lane)}"


@dataclass(frozen=True)
class GpuTarget:
    """One chip architecture.

    Attributes:
        name: as LLVM's `-mcpu` spells it.
        wave: threads that run together.
        shared_block: bytes of shared memory that one block can have.
        shared_sm: bytes of shared memory of one multiprocessor (compute unit).
        registers: 32-bit registers of one multiprocessor.
        threads: resident threads of one multiprocessor.
        matrix: matrix instructions that take registers and leave registers, preferred ones first.
        copies: kinds of asynchronous copy from global to shared memory.
        swizzle: whether addresses of operands in shared memory come so few (`ldmatrix`) that
            swizzled rows pay; else rows are padded.
        unroll: products that a thread sums one after the other, where no matrix instruction fits,
            before a loop is better.
        resident: registers of a thread that a factor which a loop multiplies each time may take;
            a larger one stays in shared memory.
        thread_registers: 32-bit registers that one thread can have.
    """

    name: str
    wave: int
    shared_block: int
    shared_sm: int
    registers: int
    threads: int
    matrix: tuple[MatrixInstruction, ...]
    copies: tuple[str, ...]
    swizzle: bool
    unroll: int
    resident: int
    thread_registers: int

    def matrix_for(
        self, dtype: str, precision: str = "", in_order: bool = False
    ) -> tuple[MatrixInstruction, ...]:
        """The matrix instructions whose operands have this element type, for a program that
        allows rounding to `precision`. `in_order`: of each the form that is, where there is one."""
        found = [m for m in self.matrix if m.operand == dtype and m.precision in ("", precision)]
        ordered = [m for m in found if m.in_order]
        return tuple(ordered if in_order and ordered else [m for m in found if not m.in_order])

    @property
    def overlaps_launches(self) -> bool:
        """Whether a kernel can start while the one before it runs, and wait for it by itself."""
        return False

    @property
    def dies(self) -> int:
        """Parts of the chip with caches of their own, to which blocks go in turns."""
        return 1

    def runs_on(self, architecture: str) -> bool:
        """Whether a device that its driver calls so runs code for this target."""
        return architecture == self.name

    @property
    def rank(self) -> tuple[int, ...]:
        """The larger, the better is code for this target on devices that run several."""
        return ()

    @property
    def row_warps(self) -> int:
        """Warps of a program without products, at most."""
        return 4

    def shared_for(self, blocks: int) -> int:
        """Bytes of shared memory of a block where so many share a multiprocessor."""
        return self.shared_block if blocks == 1 else self.shared_sm // blocks - BLOCK_BYTES

    def blocks_per_sm(self, threads: int, registers: int, shared: int) -> int:
        """Resident blocks of one multiprocessor, by what one block takes."""
        raise NotImplementedError

    def instruction(self, label: str) -> MatrixInstruction:
        """The matrix instruction with this label."""
        base, _, columns = label.partition(" / ")
        base, _, count = base.partition(" x ")
        base, _, runs = base.partition(" runs ")
        base, pairs, _ = base.partition(" pairs")
        found = next(m for m in self.matrix if m.label == base).wide(int(count or 1))
        found = found.paired() if pairs else found
        found = found.along(int(runs or 1))
        return found.spread(int(columns)) if columns else found
