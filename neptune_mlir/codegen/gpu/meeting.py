# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel whose programs meet those of another device before they read anything
(`neptune.meets`).

What a join reads of another device is there when that device's join begins: its kernels run one
after the other. So each program adds 1 to a word of the same program there, and waits for its own,
from which it takes 1: the other device may have come to the next call by then, but no further. The
function's arguments are the addresses of both devices' words, own ones first, and milliseconds
after which the kernel ends in an error; addresses of 0: nobody is to be met.

What it reads, kernels made that were launched just before, so where chips can it starts while these
still run, though they are of another plan, and waits for them (`overlap.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.dialects.attributes import MEETS
from neptune_mlir.ir.bindings import ir

if TYPE_CHECKING:
    from neptune_mlir.codegen.gpu.kernels import KernelWriter

WORD = 4  # bytes


@dataclass
class Meeting:
    """The arguments of a kernel, by their numbers in the function; none: it meets nobody."""

    arguments: tuple[int, ...]

    @staticmethod
    def of(kernel: KernelWriter) -> Meeting:
        """That of a function's only kernel, on chips that can."""
        function = kernel.forall.parent
        told = MEETS.find(function, ()) if function.name == "func.func" else ()
        others = [op for op in function.regions[0].blocks[0].operations
                  if op.operation.name == kernel.forall.name]  # fmt: skip
        can = told and kernel.chip.meets and len(others) == 1
        made = Meeting(tuple(told) if can else ())
        if made.arguments and kernel.target.overlaps_launches:
            kernel.signature.follows = 2
        kernel.signature.operands = [
            ["value", str(kind), ["argument", k]]
            for kind, k in zip(made.types, made.arguments, strict=True)
        ]
        return made

    @property
    def types(self) -> list[Any]:
        """Of the further arguments of the kernel."""
        i64, i32 = (ir.IntegerType.get_signless(n) for n in (64, 32))
        return [i64, i64, i32] if self.arguments else []

    def write(self, kernel: KernelWriter, arguments: Sequence[Any]) -> None:
        """All threads of a block come here first. `arguments`: those of `types`."""
        if not arguments:
            return
        s, (own, other, timeout) = kernel.s, arguments
        dimension = ir.Attribute.parse("#gpu<dim x>")
        number = s.value(s.op("gpu.block_id", [], s.index, dimension=dimension), s.i64)
        behind = s.op("arith.muli", [number, s.constant(WORD, s.i64)], s.i64)
        own_word, other_word = (s.op("arith.addi", [x, behind], s.i64) for x in (own, other))
        thread = s.value(kernel.threads.id, s.i32)
        wanted = s.op(
            "arith.cmpi", [own, s.constant(0, s.i64)], s.i1, predicate=ir.IntegerAttr.get(s.i64, 1)
        )
        thread = s.op("arith.select", [wanted, thread, s.constant(1, s.i32)], s.i32)
        kernel.chip.meet(own_word, other_word, timeout, thread)
        kernel.chip.barrier()
