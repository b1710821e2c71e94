# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel whose programs trade parts with those of another device (`neptune.meets`).

A join reads parts of two devices. Each program writes what it reads of the own ones into the other
device's memory, and takes that device's from memory of its own, where the same program wrote them
there. A part travels in words of 64 bits, which are read and written as one: the upper half is a
flag, the number of the call. So nothing has to be said or asked beside the parts: who sees the flag
has the value.

Each program has memory of its own on each device: a word that counts its calls, then two slots that
calls take in turns. The other device's next call may write while this one reads, but the call
after that begins when the next one has ended, for which it needs parts that this device gives
behind this call. The count is in memory, so that graphs may be replayed in any order.

The function's arguments are the addresses of own and the other device's memory, which part of each
pair is this device's (0, 1), milliseconds after which the kernel ends in an error, and the
parts, in pairs: a call has its own one in the place of both. A launch tells how many words a slot
has. What the kernel reads was made by kernels that were launched just before, so where chips can
it starts while these still run, though they are of another plan, and waits for them (`overlap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import Layout, blocked, shared
from neptune_mlir.analysis.tiles import Window, element_bytes, load_window
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.tile_forms import Held, Tile
from neptune_mlir.dialects.attributes import MEETS
from neptune_mlir.ir.bindings import ir
from neptune_mlir.runtime.shards.plan import MEETING, TRADE_HEAD, TRADE_WORD

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter

PART = 4  # bytes of an element of a part
VECTOR = 4  # elements that are loaded at once


@dataclass(frozen=True)
class Pair:
    """The same window of both parts: the tiles that are read of it, and how threads hold it."""

    tiles: tuple[Any, Any]
    window: Window
    layout: Layout
    dtype: str


@dataclass
class Meeting:
    """What a kernel trades: the numbers of the arguments for that (none: nothing).

    Attributes:
        found: the tiles of parts, behind `write`.
    """

    arguments: tuple[int, ...] = ()
    pairs: Sequence[Pair] = ()
    threads: int = 0
    found: dict[Any, Tile] = field(default_factory=dict)

    @staticmethod
    def of(kernel: KernelWriter) -> Meeting:
        """That of a function's only kernel, on chips that can."""
        function = kernel.forall.parent
        told = MEETS.find(function, ()) if function.name == "func.func" else ()
        others = [op for op in function.regions[0].blocks[0].operations
                  if op.operation.name == kernel.forall.name]  # fmt: skip
        if not told or not kernel.chip.meets or len(others) > 1:
            return Meeting()
        pairs = _pairs(kernel, told[len(MEETING) :])
        if not pairs:
            return Meeting()
        threads = kernel.target.wave * kernel.warps
        made = Meeting(tuple(told[: len(MEETING)]), pairs, threads)
        if kernel.target.overlaps_launches:
            kernel.signature.follows = 2
        kernel.signature.operands = [
            ["value", str(kind), ["argument", k]]
            for kind, k in zip(made.types, made.arguments, strict=False)
        ]
        words = threads * sum(p.layout.registers for p in pairs)
        kernel.signature.operands.append(["value", str(made.types[-1]), words])
        return made

    @property
    def types(self) -> list[Any]:
        """Of the further arguments of the kernel."""
        i64, i32 = (ir.IntegerType.get_signless(n) for n in (64, 32))
        return [i64, i64, i32, i32, i64] if self.arguments else []

    def write(self, kernel: KernelWriter, arguments: Sequence[Any]) -> None:
        """All threads of a block come here first. `arguments`: those of `types`."""
        if not self.arguments:
            return
        s, chip, memory = kernel.s, kernel.chip, kernel.memory
        own, other, first, timeout, words = arguments

        def times(x: Any, number: int) -> Any:
            return s.op("arith.muli", [x, s.constant(number, s.i64)], s.i64)

        def plus(*terms: Any) -> Any:
            total = terms[0]
            for x in terms[1:]:
                total = s.op("arith.addi", [total, x], s.i64)
            return total

        dimension = ir.Attribute.parse("#gpu<dim x>")
        number = s.value(s.op("gpu.block_id", [], s.index, dimension=dimension), s.i64)
        size = times(words, TRADE_WORD)
        head = s.constant(TRADE_HEAD, s.i64)
        block = s.op("arith.muli", [number, plus(head, size, size)], s.i64)
        mine = plus(own, block)
        calls = chip.count(mine)
        flag = s.op("arith.addi", [calls, s.constant(1, s.i32)], s.i32)
        turn = s.op("arith.andi", [calls, s.constant(1, s.i32)], s.i32)
        slot = s.op("arith.muli", [s.op("arith.extui", [turn], s.i64), size], s.i64)
        thread = times(s.value(kernel.threads.id, s.i64), TRADE_WORD)
        slot = plus(head, slot, thread)
        given = [
            memory.load_global(kernel.arrays[p.window.tensor], kernel.window(p.window), p.layout)
            for p in self.pairs
        ]
        distance = TRADE_WORD * self.threads
        bits = [s.op("arith.bitcast", [x], s.i32) for some in given for x in some]
        chip.give(plus(other, block, slot), distance, bits, flag)
        taken = iter(chip.take(plus(mine, slot), distance, len(bits), flag, timeout))
        equal = ir.IntegerAttr.get(s.i64, 0)
        is_first = s.op("arith.cmpi", [first, s.constant(0, s.i32)], s.i1, predicate=equal)
        for pair, some in zip(self.pairs, given, strict=True):
            both = [(x, s.op("arith.bitcast", [next(taken)], x.type)) for x in some]
            for tile, here, there in zip(pair.tiles, (0, 1), (1, 0), strict=True):
                values = [s.op("arith.select", [is_first, x[here], x[there]], x[0].type)
                          for x in both]  # fmt: skip
                self.found[tile] = _tile(kernel, pair, values)
        memory.barrier()
        with under(s, s.less(kernel.threads.id, 1)):
            chip.give(mine, 0, [flag], s.constant(0, s.i32))


def _tile(kernel: KernelWriter, pair: Pair, values: list[Any]) -> Tile:
    """A tile whose elements the threads hold, for all of them, behind a barrier."""
    if not pair.window.shape:
        return Held(pair.layout, values)
    layout = shared(pair.window.shape, PART)
    tile = SharedTile(layout, kernel.memory.take(layout.bytes), pair.dtype)
    kernel.memory.store_shared(tile, pair.layout, values)
    return tile


def _pairs(kernel: KernelWriter, parts: Sequence[int]) -> list[Pair]:
    """What a kernel reads of pairs of arguments, if all of it is whole windows, the same of both
    of a pair; else nothing."""
    named = dict(zip(kernel.signature.places, kernel.signature.tensors, strict=True))
    found = []
    for k in range(0, len(parts), 2):
        both = [_reads(kernel, named.get(("argument", n))) for n in parts[k : k + 2]]
        if None in both:
            return []
        one, other = both
        assert one is not None and other is not None
        if [_place(w) for _, w in one] != [_place(w) for _, w in other]:
            return []
        for (a, window), (b, _) in zip(one, other, strict=True):
            dtype = str(ir.RankedTensorType(window.tensor.type).element_type)
            if element_bytes(dtype) != PART:
                return []
            lanes, warps = kernel.target.wave, kernel.warps
            many = math.prod(window.shape) >= VECTOR * lanes * warps
            layout = blocked(window.shape, lanes, warps, VECTOR if many else 1)
            found.append(Pair((a, b), window, layout, dtype))
    return found


def _place(window: Window) -> tuple[Any, ...]:
    return window.offsets, window.dims, window.shape


def _reads(kernel: KernelWriter, tensor: Any) -> list[tuple[Any, Window]] | None:
    """The tiles of a tensor in a kernel, in order, if each is a whole window that it reads once."""
    found: list[tuple[Any, Window]] = []
    for op in kernel.forall.regions[0].blocks[0].operations:
        if op.operation.name == "tensor.extract_slice" and op.operation.operands[0] == tensor:
            value = op.operation.results[0]
            window = load_window(value, kernel.forall)
            static = ir.RankedTensorType(value.type).has_static_shape
            if window is None or not static or window.pages or any(
                v is not None for v in window.valid
            ):  # fmt: skip
                return None
            found.append((value, window))
    uses = 0 if tensor is None else sum(
        use.owner.operation.name != "tensor.dim" for use in tensor.uses
    )  # fmt: skip
    return found if len(found) == uses else None
