# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `sink-reads`: a number that is read from a tensor is read in each kernel that uses it.

The host sizes and launches, from shapes and scalar arguments alone. What it would have to read
from memory (`tensor.extract`, and arithmetic on that) moves into the kernels, and into the
linalg ops that stand outside of kernels. Extents cannot be read from tensors.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import is_tensor
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import captured, nested

# ops that take what they compute on as operands, rather than sizes
_COMPUTING = ("linalg.", "tensor.insert", "tensor.splat", "tensor.from_elements")


@register("sink-reads", "read numbers from tensors in the kernels that use them")
def sink_reads(module: Any) -> None:
    for function in functions(module):
        reads: dict[Any, Any] = {}  # value that depends on an element -> the op that makes it
        for op in list(function.regions[0].blocks[0].operations):
            operation = op.operation
            if _is_read(operation, reads):
                reads[operation.results[0]] = operation
                continue
            _check(operation, reads)
            for region in operation.regions if reads else ():
                for block in region.blocks:
                    _copy_into(block, reads)
        for made in reversed(list(reads.values())):
            if not any(True for _ in made.results[0].uses):
                made.erase()


def _is_read(op: Any, reads: dict[Any, Any]) -> bool:
    if len(op.results) != 1 or len(op.regions) or is_tensor(op.results[0]):
        return False
    return op.name == "tensor.extract" or any(v in reads for v in op.operands)


def _check(op: Any, reads: dict[Any, Any]) -> None:
    if any(v in reads for v in op.operands) and not op.name.startswith(_COMPUTING):
        raise LoweringError(
            f"'{op.name}' takes a number that is read from a tensor: the host knows only shapes "
            "and scalar arguments",
            loc=location_text(op.location),
            hint="make it a constant of the program, or an argument that is a number",
        )


def _copy_into(block: Any, reads: dict[Any, Any]) -> None:
    """Make at the start of a block what is read in it."""
    operations = [op.operation for op in block.operations]
    used = [value for value in captured(operations) if value in reads]
    if not used:
        return
    here: dict[Any, Any] = {}
    with ir.InsertionPoint(operations[0]):
        for value in used:
            _copy(value, reads, here)
    for op in nested(block):
        for k, operand in enumerate(op.operands):
            if operand in here:
                op.operands[k] = here[operand]


def _copy(value: Any, reads: dict[Any, Any], here: dict[Any, Any]) -> Any:
    if value not in reads:
        return value
    if value not in here:
        operands = [_copy(v, reads, here) for v in reads[value].operands]
        made = reads[value].clone()
        for k, operand in enumerate(operands):
            made.operands[k] = operand
        here[value] = made.results[0]
    return here[value]
