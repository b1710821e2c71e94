# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of StableHLO as calls that stand for them (`tensor_loops`): it has no conversion for
loops, and one that is written out takes compilation for each step.

What the body hands on as it is, and what regions read of outside, are further arguments of the
functions. A counter that is known before is no value that the loop carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.dialects.regions import clone_scalar_code
from neptune_mlir.driver.stablehlo import tensor_loops, updates
from neptune_mlir.ir.bindings import func, ir


def outline(loop: Any, counter: int | None, steps: Sequence[int]) -> bool:
    """A call in the place of a `stablehlo.while`; whether there is one now.

    Args:
        counter: which of the values that it carries counts its `steps`; None: they depend on data.
    """
    test, body = (region.blocks[0] for region in loop.regions)
    if any(not _is_plain(value.type) for value in body.arguments):
        return False
    returned = list(list(body.operations)[-1].operation.operands)
    kept = [k for k, value in enumerate(returned) if value == body.arguments[k]]
    varying = [k for k in range(len(returned)) if k not in kept and k != counter]
    outer = _captured(loop)
    if not varying or any(not _is_plain(value.type) for value in outer):
        return False
    held = [*(loop.operands[k] for k in kept), *outer]
    order = [*([] if counter is None else [counter]), *varying, *kept]
    module = _module_of(loop)
    spec: dict[str, Any] = {"carried": len(varying)}
    spec["body"] = _function(module, body, order, outer, varying, counter is not None)
    if counter is None:
        spec["test"] = _function(module, test, order, outer, None, False)
    else:
        first = steps[0] if steps else 0
        by = steps[1] - steps[0] if len(steps) > 1 else 1
        spec |= {"steps": len(steps), "first": first, "by": by}
    given = [*(loop.operands[k] for k in varying), *held]
    types = [loop.results[k].type for k in varying]
    name = tensor_loops.name_of({**spec, "name": spec["body"]})
    with loop.location:
        _declare(module, name, [value.type for value in given], types)
        with ir.InsertionPoint(loop):
            call = func.CallOp(types, ir.FlatSymbolRefAttr.get(name), given)
    for k, result in zip(varying, call.results, strict=True):
        loop.results[k].replace_all_uses_with(result)
    for k in kept:
        loop.results[k].replace_all_uses_with(loop.operands[k])
    return True


def _is_plain(kind: Any) -> bool:
    """Whether a value is a tensor of known extents whose elements `arith` has."""
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return False  # (of unknown extents no tile in a loop has a lowering)
    element = kind.element_type
    return not isinstance(element, ir.IntegerType) or element.is_signless


def _captured(loop: Any) -> list[Any]:
    """What the regions of an op read that is made outside of it, each once."""
    made: set[Any] = set()
    read: dict[Any, None] = {}

    def look(op: Any) -> None:
        for operand in op.operands:
            if operand not in made:
                read[operand] = None
        made.update(op.results)
        for block in (block for region in op.regions for block in region.blocks):
            made.update(block.arguments)
            for inner in block.operations:
                look(inner.operation)

    for block in (block for region in loop.regions for block in region.blocks):
        made.update(block.arguments)
        for inner in block.operations:
            look(inner.operation)
    return [value for value in read if value not in made]


def _module_of(op: Any) -> Any:
    while op.name != "builtin.module":
        op = op.parent.operation
    return op.opview


def _function(
    module: Any, block: Any, order: Sequence[int], outer: Sequence[Any],
    returned: Sequence[int] | None, counted: bool,
) -> str:  # fmt: skip
    """The name of a function of a block's arguments in an order and of what it reads of outside,
    that gives some of what it returns (None: all of it). `counted`: its first one is a counter
    that the host knows."""
    taken = {op.operation.attributes["sym_name"].value for op in module.body.operations
             if "sym_name" in op.operation.attributes}  # fmt: skip
    name = next(n for k in range(len(taken) + 1) if (n := f"loop_{k}") not in taken)
    given = [*(block.arguments[k] for k in order), *outer]
    last = list(block.operations)[-1].operation
    results = list(last.operands) if returned is None else [last.operands[k] for k in returned]
    with ir.InsertionPoint(module.body), last.location:
        kinds = [value.type for value in given], [value.type for value in results]
        function = func.FuncOp(name, kinds)
        entry = function.add_entry_block()
        table = dict(zip(given, entry.arguments, strict=True))
        with ir.InsertionPoint(entry):
            made = clone_scalar_code(block, table)
            func.ReturnOp(made if returned is None else [made[k] for k in returned])
    updates.within_loop(function.operation, counted)
    return name


def _declare(module: Any, name: str, given: Sequence[Any], results: Sequence[Any]) -> None:
    with ir.InsertionPoint(module.body):
        func.FuncOp(name, (list(given), list(results)), visibility="private")
