# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many programs read what a specialised kernel streams.

The copy engine asks the second-level cache for lines of 128 bytes, and the cache may fetch 256 for
each. Of a box of several panels it then has the next panel of a row when that is asked for, 8 KB
later. Where many programs read the same tiles that gains a little. Where each tile is read from
memory by one or two, memory gives 4.10 TB/s of 4.57 so (rows of 1152 bytes, copies alone, an H200):
those launches ask for 128 bytes (`runtime.plan`, `narrow`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import is_inside
from neptune_mlir.codegen.nvidia.producer import loaded_offsets
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.tiling.host_plan import fold

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

FEW = 2  # programs


def few_readers(kernel: SpecializedWriter) -> Any:
    """Where at most FEW programs read each tile that loops bring, as an expression of the plan."""
    variables = list(kernel.body.arguments)[: len(kernel.bounds)]
    conditions: list[Any] = []
    rows: set[Any] = set()
    for offsets in loaded_offsets(kernel.forall, kernel.producer, streamed=False):
        rows |= _variables(offsets, kernel.forall)
    for offsets in loaded_offsets(kernel.forall, kernel.producer, streamed=True):
        used = _variables(offsets, kernel.forall, rows)
        readers: Any = 1
        for variable, extent in zip(variables, kernel.signature.extents, strict=True):
            readers = readers if variable in used else fold("mul", extent, readers)
        few = int(readers <= FEW) if isinstance(readers, int) else ["lt", readers, FEW + 1]
        if not few:
            return 0
        if few not in conditions:
            conditions.append(few)
    return reduce(lambda a, b: ["and", a, b], conditions) if conditions else 0


def _variables(values: tuple[Any, ...], forall: Any, rows: Collection[Any] = ()) -> set[Any]:
    """The variables of the grid that numbers depend on: of a loop's variable those that say where
    it begins, but not those of its `rows`: a mask lets streams begin at the rows of a program, or
    a sum that programs share, and they overlap."""
    pending = [v for v in values if isinstance(v, ir.Value)]
    seen: set[Any] = set()
    while pending:
        value = pending.pop()
        if value in seen or not is_inside(value, forall):
            continue
        seen.add(value)
        if isinstance(value.owner, ir.Block):
            loop = value.owner.owner.operation
            if loop.name == "scf.for":
                seen |= _variables((loop.operands[0],), forall).difference(rows)
            continue
        made = value.owner.operation
        pending += made.operands
        if made.name == "scf.if":  # the order of programs
            blocks = [region.blocks[0] for region in made.regions if len(region.blocks)]
            for block in blocks:
                pending += list(block.operations)[-1].operation.operands
    return seen
