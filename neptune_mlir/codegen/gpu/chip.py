# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What differs between the makers of GPUs in the code of one thread.

`distribute-tiles` is the same for all; where an instruction has to be named it asks the `Chip`
of its target (`codegen/nvidia/instructions.py`, `codegen/amd/instructions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import CHUNK, Layout, WarpGrid
from neptune_mlir.analysis.tiles import Window
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets.gpu import GpuTarget, MatrixInstruction

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.access.guarded import GuardedAccess
    from neptune_mlir.codegen.gpu.access.shared import SharedTile
    from neptune_mlir.codegen.gpu.access.threads import Threads
    from neptune_mlir.codegen.gpu.memory import Array, Memory
    from neptune_mlir.codegen.gpu.scalars import Index, Scalars


_ADD_FLOATS, _RELAXED = 11, 2  # of LLVM's atomic operations and orders


@dataclass(frozen=True)
class Operand:
    """A factor of a matrix product: `which` is "a" or "b"; dimension `free` of its tile runs
    along m (n), dimension `deep` along k."""

    which: str
    free: int
    deep: int
    layout: Layout
    grid: WarpGrid
    instruction: MatrixInstruction

    @property
    def step(self) -> int:
        """How far apart pieces are along the free dimension."""
        return self.instruction.m if self.which == "a" else self.instruction.n


class Chip:
    """Emits instructions of one target."""

    columns = 1  # pieces of operand B that are best brought at once
    packs = False  # whether a fragment is one vector
    sinks_loads = False  # whether loads are moved down to where what they bring is used
    brings_rows = False  # whether rows can be brought to the second-level cache (`bring`)
    copies_ahead = False  # whether tiles reach shared memory through no register (`start_copy`)
    adds = 1  # neighbouring floats in memory that are added to at once
    meets = False  # whether programs can trade with those of another device (`give`, `take`)
    guards = False  # whether single accesses have conditions (`load_guarded`)

    def __init__(self, target: GpuTarget):
        self.target = target

    # ---- the kernel

    def shared_symbol(self, kernel: str) -> str:
        """The symbol of a kernel's shared memory."""
        raise NotImplementedError

    def declare_module(self) -> None:
        """Declare what all kernels of a module share."""

    def declare_shared(self, kernel: str, size: int) -> None:
        """Declare the symbol of a kernel's shared memory, now that its size is known."""

    def annotate(self, function: Any, blocks: int) -> None:
        """Tell the code generator how many blocks are to share a multiprocessor (0: its choice)."""
        raise NotImplementedError

    def barrier(self) -> None:
        """All threads of the block; shared memory written before is seen after."""
        raise NotImplementedError

    def start_copy(self, memory: Memory, array: Array, window: Window, tile: SharedTile) -> None:
        """Start bringing a window to shared memory; only where the chip `copies_ahead`."""
        raise NotImplementedError

    def copy_chunk(self, memory: Memory, target: Index, source: Any, inside: Any) -> None:
        """Start copying 16 bytes, or write zeros where `inside` is false (None: it is true); only
        where the chip `copies_ahead`."""
        raise NotImplementedError

    def commit(self) -> None:
        """The copies started since the last call are one group."""
        raise NotImplementedError

    def wait(self, pending: int) -> None:
        """Wait until at most `pending` of this thread's groups are under way."""
        raise NotImplementedError

    def fetch(self, memory: Memory, array: Array, window: Window, tile: SharedTile) -> None:
        """Start bringing a window to shared memory (`arrive` and a barrier are to follow)."""
        raise NotImplementedError

    def arrive(self) -> None:
        """Wait for all that this thread has fetched."""

    def bring(self, s: Scalars, thread: Any, row: Any, pointer: Any, count: Any) -> None:
        """Thread 0 has `count` bytes (i32, whole chunks) brought to the second-level cache, if the
        number of their row (i32) is not negative; only where the chip `brings_rows`."""
        raise NotImplementedError

    def load_guarded(self, s: Scalars, access: GuardedAccess, size: int, vector: int) -> list[Any]:
        """`vector` elements of `size` bytes, 0 if they do not exist: a register of 16 bits, or as
        many as needed of 32; only where the chip `guards`."""
        raise NotImplementedError

    def store_guarded(
        self, s: Scalars, access: GuardedAccess, size: int, vector: int, words: Sequence[Any]
    ) -> None:
        """Write such registers, if what they hold exists; only where the chip `guards`."""
        raise NotImplementedError

    def count(self, address: Any) -> Any:
        """The lower half (i32) of the word at an address (i64), which earlier kernels wrote."""
        raise NotImplementedError

    def give(self, address: Any, distance: int, values: Sequence[Any], flag: Any) -> None:
        """Write words, `distance` bytes apart, perhaps into another device's memory: each a value
        in the lower half and the flag in the upper one (i32), at once."""
        raise NotImplementedError

    def take(self, address: Any, distance: int, count: int, flag: Any, timeout: Any) -> list[Any]:
        """The values of `count` such words, each once the flag is there: within `timeout`
        milliseconds."""
        raise NotImplementedError

    def let_next_start(self) -> None:
        """The next kernel may start once all blocks of this one have come here."""
        raise NotImplementedError

    def wait_for_last(self) -> None:
        """Wait until the kernels launched before have ended, and their results can be read."""
        raise NotImplementedError

    def await_told(self, address: Any, wanted: Any) -> None:
        """Wait until a word at an address (i64) is `wanted` (i32): then what a kernel that still
        runs made before it wrote that can be read."""
        raise NotImplementedError

    def see_what_is_over(self) -> None:
        """Read nothing from near caches that a kernel wrote which has ended."""
        raise NotImplementedError

    def add_in_memory(self, values: Sequence[Any], pointer: Any) -> None:
        """Add floats, `adds` at most, to those in global memory, while others may do the same."""
        (value,) = values
        i64 = ir.IntegerType.get_signless(64)
        ir.Operation.create(
            "llvm.atomicrmw", results=[value.type], operands=[pointer, value],
            attributes={
                "bin_op": ir.IntegerAttr.get(i64, _ADD_FLOATS),
                "ordering": ir.IntegerAttr.get(i64, _RELAXED),
            },
        )  # fmt: skip

    # ---- scalars

    def again(self, threads: Threads) -> Threads:
        """The same positions of a thread, of which the optimizer knows no more than bounds: what is
        computed from them is computed here. The positions as they are where this does not help."""
        return threads

    def exp2(self, s: Scalars, x: Any) -> Any:
        """2 to the power x (f32), results under the normal range flushed to 0."""
        raise NotImplementedError

    def log2(self, s: Scalars, x: Any) -> Any:
        """The binary logarithm (f32) to 2^-22, and to 2^-22 of itself where x is under 1/2 or over
        2; None where no instruction takes all numbers."""
        return None

    def inverse_root(self, s: Scalars, x: Any) -> Any:
        """1 / sqrt(x) (f32) to two units in the last place, of denormal numbers too; None where no
        instruction takes all numbers."""
        return None

    def reciprocal(self, s: Scalars, x: Any) -> Any:
        """1 / x (f32), right to about a unit in the last place."""
        raise NotImplementedError

    def widened(self, memory: Memory, kind: str, values: Sequence[Any], wanted: Any) -> Any:
        """Bytes that are numbers of type `kind` as floats of type `wanted`; None where the body of
        the tile op says it as well."""
        return None

    def narrowed(self, memory: Memory, kind: str, values: Sequence[Any]) -> Any:
        """Floats rounded to numbers of type `kind`, as bytes; None where the body of the tile op
        says it as well."""
        return None

    def exchange(self, s: Scalars, word: Any, distance: int) -> Any:
        """A 32-bit value of the lane whose number differs in the bit `distance`."""
        raise NotImplementedError

    def in_all_lanes(self, s: Scalars, condition: Any) -> Any:
        """Whether a condition (i1) holds for all lanes of the warp, which are all here."""
        raise NotImplementedError

    # ---- matrix products

    def fragment(self, memory: Memory, values: Sequence[Any], together: int = 1) -> Any:
        """Elements of an operand, in the order of its registers, as the instruction takes them;
        `together` instructions have them in turn."""
        raise NotImplementedError

    def operand_from_shared(
        self, threads: Threads, memory: Memory, tile: SharedTile, operand: Operand
    ) -> Callable[[int, int, int], list[Any]]:
        """A function from the place of pieces (along the free dimension, along k, how many) to
        their fragments, read from shared memory.

        Plain loads, as wide as neighbours in a fragment are neighbours in memory.
        """
        s, i = memory.s, operand.instruction
        if i.runs > 1:
            return self._in_runs(threads, memory, tile, operand)
        base = threads.base(operand.layout)
        piece = L.fragment_offsets(*((i.a, "m", "k") if operand.which == "a" else (i.b, "n", "k")))
        run = _run([offset[operand.deep == 1] for offset in piece], tile.layout.element)
        extent = tile.layout.shape[operand.free]
        element = ir.Type.parse(tile.dtype)
        kind = element if run == 1 else ir.VectorType.get([run], element)
        together = i.together if operand.which == "a" else 1

        def fragment(row: int, depth: int) -> Any:
            values: list[Any] = []
            for r, c in piece[::run]:
                position = list(base)
                position[operand.free] = s.add(position[operand.free], row * operand.step + r)
                if extent < operand.step:  # what is padding repeats something that exists
                    position[operand.free] = s.minimum(position[operand.free], extent - 1)
                position[operand.deep] = s.add(position[operand.deep], depth * i.k + c)
                offset = s.add(memory.shared_offset(tile.layout, position), tile.offset)
                pointer = memory.shared_pointer(offset)
                loaded = memory.load_element(pointer, kind, run * tile.layout.element)
                if self.packs and run == len(piece) and together == 1:
                    return [loaded]
                values += [loaded] if run == 1 else memory.unpack(loaded, run, element)
            return self.fragment(memory, values, together)

        def fragments(row: int, depth: int, count: int) -> list[Any]:
            return [fragment(at, depth) for at in range(row, row + count)]

        return fragments

    def _in_runs(
        self, threads: Threads, memory: Memory, tile: SharedTile, operand: Operand
    ) -> Callable[[int, int, int], list[Any]]:
        """The same where a thread has neighbours in several pieces along k, which it loads
        together."""
        s, i, size = memory.s, operand.instruction, tile.layout.element
        base = threads.base(operand.layout)
        piece = L.fragment_offsets(*((i.a, "m", "k") if operand.which == "a" else (i.b, "n", "k")))
        extent, count = tile.layout.shape[operand.free], i.runs * i.run
        width = math.gcd(count, CHUNK // size)
        element = ir.Type.parse(tile.dtype)
        loaded: dict[tuple[int, int], list[Any]] = {}  # by row, and first element along k

        def run(row: int, start: int) -> list[Any]:
            if (row, start) not in loaded:
                position = list(base)
                position[operand.free] = s.add(position[operand.free], row)
                if extent < operand.step:  # what is padding repeats something that exists
                    position[operand.free] = s.minimum(position[operand.free], extent - 1)
                loaded[row, start] = values = []
                for k in range(start, start + count, width):
                    at = list(position)
                    at[operand.deep] = s.add(position[operand.deep], k)
                    offset = s.add(memory.shared_offset(tile.layout, at), tile.offset)
                    kind = ir.VectorType.get([width], element)
                    pointer = memory.shared_pointer(offset)
                    vector = memory.load_element(pointer, kind, width * size)
                    values += memory.unpack(vector, width, element)
            return loaded[row, start]

        def fragment(row: int, depth: int) -> Any:
            turn = depth % i.runs
            start = i.depth(depth - turn)
            values = [run(row * operand.step + r, start)[turn * i.run + c] for r, c in piece]
            return self.fragment(memory, values, i.together if operand.which == "a" else 1)

        def fragments(row: int, depth: int, count: int) -> list[Any]:
            return [fragment(at, depth) for at in range(row, row + count)]

        return fragments

    def accumulator(self, memory: Memory, values: list[Any], together: int = 1) -> Any:
        """Elements of an accumulator as the instruction takes them."""
        raise NotImplementedError

    def elements(self, memory: Memory, accumulator: Any, count: int) -> list[Any]:
        """The inverse of `accumulator`."""
        raise NotImplementedError

    def multiply(self, s: Scalars, i: MatrixInstruction, a: Any, b: Any, c: Any) -> Any:
        raise NotImplementedError


def _run(offsets: Sequence[int], element: int) -> int:
    """How many neighbours one load takes: of registers at these offsets in a row, in elements."""
    run = 1
    while (
        len(offsets) % (2 * run) == 0
        and 2 * run * element <= CHUNK
        and all(
            offsets[j + 2 * run - 1] == offsets[j] + 2 * run - 1
            for j in range(0, len(offsets), 2 * run)
        )
    ):
        run *= 2
    return run
