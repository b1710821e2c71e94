# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a producer brings while the kernel before its own still runs.

    for k: put x, w              for k in the first slots: put w
                         ->      wait for the kernel before
                                 for k in the first slots: put x
                                 for the other k: put x, w

A specialised kernel that may start early (`overlap`) waits for what other kernels of the plan make.
A norm that is computed ahead of its product makes the product's rows, and not its weights: these
come from memory, and take longer on their way than the rows, which are in the second-level cache by
then. So consumers wait at their start, and the producer in front of the first tile that a kernel
before may write. Of the first loop that brings such tiles it asks for all others first, as far as
the ring has slots that nothing was put to. (That is so in the first program of a block alone; in
the next ones there is nothing to wait for, either.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from neptune_mlir.analysis.tiles import nested
from neptune_mlir.codegen.nvidia.producer import Producer, gives_numbers, source_of
from neptune_mlir.codegen.nvidia.rings import Cursor
from neptune_mlir.dialects.op_names import PUT
from neptune_mlir.ir.bindings import scf


def may_wait_late(forall: Any, block: Any, given: Collection[Any]) -> bool:
    """Whether a producer brings a tile of a tensor that is `given`, and asks for nothing but tiles:
    numbers that it reads may be what a kernel before has made."""
    ops = list(nested(block))
    puts = [op for op in ops if op.name == PUT]
    return not any(map(gives_numbers, ops)) and any(
        source_of(forall, put).tensor in given for put in puts
    )


class EarlyProducer(Producer):
    """Writes the producer of a kernel that waits for the one before."""

    waited = False

    def write(self, block: Any, written: Sequence[Any] = ()) -> None:
        super().write(block, written)
        if block == self.kernel.producer:
            self._wait()  # who waits for this kernel waits for those before

    def _wait(self) -> None:
        if not self.waited:
            self.kernel.chip.wait_for_last()
        self.waited = True

    def _is_early(self, put: Any) -> bool:
        return source_of(self.kernel.forall, put).tensor in self.kernel.signature.given

    def put(self, op: Any) -> None:
        if not self._is_early(op):
            self._wait()
        super().put(op)

    def iterate(
        self, op: Any, span: Sequence[Any], groups: Sequence[Any], begins: bool = True
    ) -> list[Any]:
        block = op.regions[0].blocks[0]
        puts = [o for o in nested(block) if o.name == PUT]
        early = [put for put in puts if self._is_early(put)]
        if self.waited or len(early) == len(puts):
            return super().iterate(op, span, groups, begins)
        if not early or any(put.block != block for put in puts):
            self._wait()
            return super().iterate(op, span, groups, begins)
        low, high, step = span
        rings = {put.operands[0] for put in early}
        first, others = (
            [found for group in groups if (found := [c for c in group if (c[0] in rings) == is_in])]
            for is_in in (True, False)
        )
        middle = self._free_until(span, first)
        self._some(op, (low, middle, step), first, early)
        self._wait()
        self._some(op, (low, middle, step), others, [put for put in puts if put not in early])
        return super().iterate(op, (middle, high, step), groups, begins=False)

    def _free_until(self, span: Sequence[Any], groups: Sequence[Sequence[Cursor]]) -> Any:
        """The end of the iterations of a loop whose tiles have slots that nothing was put to."""
        rings, s, (low, high, step) = self.kernel.rings, self.kernel.s, span
        for group, position in zip(groups, rings.values(groups), strict=True):
            slots = min(rings.rings[ring].stages for ring, _ in group)
            free = s.maximum(s.sub(slots, position), 0)
            high = s.minimum(high, s.add(low, s.mul(free, step)))
        return s.value(high)

    def _some(
        self, op: Any, span: Sequence[Any], groups: Sequence[Sequence[Cursor]], puts: Sequence[Any]
    ) -> None:
        """Iterations of a loop with some of its puts, which advance the rings of `groups`."""
        kernel, rings = self.kernel, self.kernel.rings
        loop = scf.ForOp(*span, rings.values(groups))
        with kernel.s.scope(loop.body):
            kernel.scalars[op.regions[0].blocks[0].arguments[0]] = loop.induction_variable
            rings.bind(groups, list(loop.inner_iter_args))
            for put in puts:
                self.put(put)
            scf.YieldOp(rings.values(groups))
        rings.bind(groups, list(loop.results))
