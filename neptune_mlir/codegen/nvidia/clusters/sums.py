# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The sum of a program in several blocks.

Each block runs its part of the loop. Then its consumers write their accumulators to shared
memory, where the tiles of the loop were, and all blocks meet. Warp w goes on in block w modulo the
number of blocks: there it adds what the same warps of the others have written, and ends the program
for its rows. No block ends before all have read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import tuned
from neptune_mlir.codegen.gpu.tile_forms import Held
from neptune_mlir.codegen.nvidia.clusters import instructions
from neptune_mlir.codegen.nvidia.hopper import load_words_beside
from neptune_mlir.errors import OutOfMemory
from neptune_mlir.ir.bindings import location_text, scf

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

WORDS = 4  # of a vector


class SharedSums:
    """The blocks of one program, `blocks` of them; `rank`: the number of this one (i32)."""

    def __init__(self, kernel: SpecializedWriter, blocks: int):
        self.kernel, self.blocks = kernel, blocks
        self.rank = kernel.uniform(instructions.rank_in_cluster())

    @classmethod
    def of(cls, kernel: SpecializedWriter) -> SharedSums | None:
        blocks = tuned(kernel.forall, "sums", 0)
        return cls(kernel, blocks) if blocks else None

    def span(self, low: Any, high: Any, step: Any) -> tuple[Any, Any, Any]:
        """Of a loop, what this block runs."""
        s = self.kernel.s
        rank = s.op("arith.index_cast", [self.rank], s.index)
        steps = s.op("arith.ceildivui", [s.value(s.sub(high, low)), s.value(step)], s.index)
        each = s.op("arith.ceildivui", [steps, s.value(self.blocks)], s.index)
        part = s.value(s.mul(each, step))
        first = s.value(s.minimum(high, s.value(s.add(low, s.mul(rank, part)))))
        return first, s.value(s.minimum(high, s.value(s.add(first, part)))), step

    def join(self, loop: Any) -> Any:
        """Add up the result of the loop; the branch of the warps that go on."""
        kernel, s, (value,) = self.kernel, self.kernel.s, loop.results
        tile = kernel.tiles[value]
        assert isinstance(tile, Held) and not len(tile.values) % WORDS
        threads, rings = kernel.threads, list(kernel.rings.rings.values())
        start, end = min(r.offset for r in rings), max(r.offset + r.slot * r.stages for r in rings)
        row = threads.count * 4 * WORDS  # bytes of a vector of all threads
        if start + row * len(tile.values) // WORDS > end:
            place = location_text(loop.location)
            raise OutOfMemory("a sum is larger than the tiles that it is made of", loc=place)
        here = kernel.address(s.add(start, s.mul(threads.id, 4 * WORDS)))
        kernel.memory.barrier()  # nobody multiplies what lies there
        vectors = range(0, len(tile.values), WORDS)
        for k in vectors:
            instructions.store_words(here, tile.values[k : k + WORDS], k // WORDS * row)
        instructions.meet_in_cluster(writes=True)
        warp, rank = (
            s.op("arith.index_cast", [number], s.index)
            for number in (kernel.uniform(s.value(threads.warp, s.i32)), self.rank)
        )
        branch = scf.IfOp(s.equal(s.mod(warp, self.blocks), rank))
        with s.scope(branch.then_block):
            sums = list(tile.values)
            for far in range(1, self.blocks):
                moved = s.op("arith.addi", [self.rank, s.constant(far, s.i32)], s.i32)
                other = s.op("arith.remui", [moved, s.constant(self.blocks, s.i32)], s.i32)
                there = instructions.address_beside(here, other)
                read = [load_words_beside(there, k // WORDS * row) for k in vectors]
                for k, word in enumerate(word for words in read for word in words):
                    sums[k] = s.op("arith.addf", [sums[k], word], s.f32)
            kernel.tiles[value] = Held(tile.layout, sums)
        return branch
