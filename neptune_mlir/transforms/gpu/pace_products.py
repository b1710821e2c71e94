# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `pace-products`: tell AMD's code generator and processors how to run matrix products.

    %c1 = rocdl.mfma ... %c0        ->    rocdl.iglp.opt 0
    ...                                   rocdl.s.setprio 1
    %c9 = rocdl.mfma ... %c8              %c1 = rocdl.mfma ... %c0
                                          ...
                                          %c9 = rocdl.mfma ... %c8
                                          rocdl.s.setprio 0

A wave issues in order, so a product waits for an operand that is loaded right before it. With
`rocdl.iglp.opt` LLVM loads operands from shared memory while earlier products run, as far as
registers allow. With a higher priority a wave that multiplies issues before the others of its
processor, and these do their vector work meanwhile; LLVM moves nothing across the change.

Both are choices of a kernel (`set-choices`), `interleave` and `priority`; the chip says what holds
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from neptune_mlir.analysis.tiles import tuned
from neptune_mlir.dialects.attributes import TUNED
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets.amd import amd
from neptune_mlir.transforms.registry import register

_PRODUCTS = ("rocdl.mfma.", "rocdl.wmma.")
_FEWEST = 2  # products in a row that are worth it


@register("pace-products", "how AMD's processors run matrix products: loads between, priority")
def pace_products(module: Any, *, target: str = "gfx942") -> None:
    """
    Args:
        target: the AMD architecture.

    Raises:
        UsageError: no AMD architecture has this name.
    """
    chip = amd(target)
    for function in _functions(module):
        alone = _threads(function) <= chip.wave  # such a program waits for memory, not for operands
        interleave = tuned(function, "interleave", 0 if alone else chip.interleave)
        priority = tuned(function, "priority", 0)
        if TUNED.on(function):
            TUNED.drop(function)
        for run in _runs(function):
            first, last = run[0], run[-1]
            with function.context, first.location:
                if interleave:
                    with ir.InsertionPoint(first):
                        _numbered("rocdl.iglp.opt", "variant", interleave - 1, 32)
                if priority:
                    with ir.InsertionPoint(first):
                        _numbered("rocdl.s.setprio", "priority", 1, 16)
                    with ir.InsertionPoint(_next(last)):
                        _numbered("rocdl.s.setprio", "priority", 0, 16)


def _functions(module: Any) -> Iterator[Any]:
    for op in module.body.operations:
        if op.operation.name == "gpu.module":
            for inner in op.regions[0].blocks[0].operations:
                if inner.operation.name == "gpu.func":
                    yield inner.operation


def _threads(function: Any) -> int:
    """Of a block; 0 where the kernel does not say."""
    sizes = function.attributes.get("known_block_size")
    return math.prod(sizes) if sizes is not None else 0


def _runs(op: Any) -> list[list[Any]]:
    """The products of each stretch of code without control flow or barriers, if there are some."""
    found: list[list[Any]] = []
    for region in op.regions:
        for block in region.blocks:
            run: list[Any] = []
            for inner in block.operations:
                operation = inner.operation
                if operation.name.startswith(_PRODUCTS):
                    run.append(operation)
                elif operation.regions or operation.name == "gpu.barrier":
                    found += [run, *_runs(operation)]
                    run = []
            found.append(run)
    return [run for run in found if len(run) >= _FEWEST]


def _next(op: Any) -> Any:
    operations = [other.operation for other in op.block.operations]
    return operations[operations.index(op) + 1]


def _numbered(name: str, attribute: str, number: int, bits: int) -> None:
    kind = ir.IntegerType.get_signless(bits)
    ir.Operation.create(name, attributes={attribute: ir.IntegerAttr.get(kind, number)})
