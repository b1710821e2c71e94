# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Control flow over whole tensors as straight code: no kernel holds it, and StableHLO's has no
conversion to linalg.

A loop with a few small steps is written out. Other loops are calls of functions without a body, and
become loops over tensors behind the conversion (`tensor_loops`). Of branches each is computed,
and the results are selected. Slices of no element, which recursions end with, start at 0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.dialects.context import load_dialects_of, make_context
from neptune_mlir.dialects.regions import clone_scalar_code
from neptune_mlir.driver.stablehlo import forms, lengths, loops, numbers, pairs, updates
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import diagnostic_lines, ir, lock, passmanager

SMALL = 120  # ops that a loop may become: each step of more is a kernel's compilation, or several
MOST = 20_000  # those of a loop that is no call
MOST_STEPS = 10**12  # of a loop that is counted
# first, for ops of torch-mlir's dialects cannot be inlined
_INLINE = "builtin.module(inline,symbol-dce)"
_GOES_ON: dict[str, Callable[[int, int], bool]] = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "NE": operator.ne,
}  # fmt: skip


def straightened(text: str, name: str, register: Callable[[Any], None] | None = None) -> str:
    """A program with its counted loops written out and its branches selected, and other ops in the
    place of those that are never converted.

    Args:
        register: makes more dialects known to a context.

    Raises InputError for a program that cannot be read.
    """
    with lock, make_context() as context:
        if register is not None:
            register(context)
        load_dialects_of(text, context)
        try:
            module = ir.Module.parse(text)
            changed = _call_composites(module)
            passmanager.PassManager.parse(_INLINE).run(module.operation)
        except ir.MLIRError as error:
            raise InputError("\n".join(diagnostic_lines(error, name))) from None
        for operation in list(module.body.operations):  # and no body of a loop
            changed |= _straighten(operation.operation)
            if operation.operation.name == "func.func":
                changed |= numbers.fold(operation.operation)
                changed |= updates.choose_by_position(operation.operation)
                changed |= pairs.take_apart(operation.operation)
            if "get_dimension_size" in text and operation.operation.name == "func.func":
                changed |= lengths.with_extents(operation.operation, name)
        return str(module.operation.get_asm(enable_debug_info=True)) if changed else text


def _straighten(op: Any) -> bool:
    """Whether anything inside of an op changed, from the inside out."""
    changed = False
    for region in op.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                changed |= _straighten(inner.operation)
    if op.name == "stablehlo.while":
        return _write_out(op) or changed
    if op.name in ("stablehlo.case", "stablehlo.if"):
        return _select(op) or changed
    if op.name == "stablehlo.slice" and 0 in list(op.results[0].type.shape):
        return _from_start(op)
    return forms.rewrite(op) or changed


def _call_composites(module: Any) -> bool:
    """Calls of their definitions for ops that are made of others; whether there were any."""
    found: list[Any] = []

    def look(op: Any) -> Any:
        if op.name == "stablehlo.composite":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    for op in found:
        given = {"callee": op.attributes["decomposition"]}
        with ir.InsertionPoint(op), op.location:
            kinds = [r.type for r in op.results]
            call = ir.Operation.create("func.call", kinds, list(op.operands), given)
        _replace(op, list(call.results))
    return bool(found)


def _from_start(op: Any) -> bool:
    sizes = list(op.results[0].type.shape)
    zeros, ones = [0] * len(sizes), [1] * len(sizes)
    given = {"start_indices": zeros, "limit_indices": sizes, "strides": ones}
    for attribute, value in given.items():
        op.attributes[attribute] = ir.DenseI64ArrayAttr.get(value)
    return True


# ---- loops ---------------------------------------------------------------------------------------


def _write_out(loop: Any) -> bool:
    body = loop.regions[1].blocks[0]
    counter, values = _counted(loop) or (None, range(0))
    size = len(values) * _size(body)
    if (counter is None or size > SMALL) and loops.outline(loop, counter, values):
        if counter is not None:
            last = values[-1] + values.step
            with ir.InsertionPoint(loop), loop.location:
                ended = numbers.constant(loop.results[counter].type, last)
            loop.results[counter].replace_all_uses_with(ended)
        loop.erase()
        return True
    if counter is None or size > MOST:
        return False
    carried = list(loop.operands)
    with ir.InsertionPoint(loop), loop.location:
        for value in values:
            carried[counter] = numbers.constant(carried[counter].type, value)
            carried = clone_scalar_code(body, dict(zip(body.arguments, carried, strict=True)))
    _replace(loop, carried)
    return True


def _counted(loop: Any) -> tuple[int, range] | None:
    """Which of the values that a loop carries counts its steps, and what it is in each."""
    condition, body = (region.blocks[0] for region in loop.regions)
    last = list(condition.operations)[-1].operation
    test = _owner(last.operands[0], "stablehlo.compare")
    if test is None:
        return None
    direction = str(test.attributes["comparison_direction"]).partition("<")[2]
    goes_on = _GOES_ON.get(direction.split()[-1].rstrip(">"))
    left = test.operands[0]
    if goes_on is None or not (isinstance(left.owner, ir.Block) and left.owner == condition):
        return None
    counter = ir.BlockArgument(left).arg_number
    given = list(list(body.operations)[-1].operation.operands)
    end, first = _known(test.operands[1], loop, given), numbers.number_of(loop.operands[counter])
    step = _owner(given[counter], "stablehlo.add")
    if step is None or end is None or first is None or step.operands[0] != body.arguments[counter]:
        return None
    by = _known(step.operands[1], loop, given)
    if not by:
        return None
    values = _steps(goes_on, first, end, by)
    return None if values is None else (counter, values)


def _steps(goes_on: Callable[[int, int], bool], first: int, end: int, by: int) -> range | None:
    """What a counter is in each step; None where it does not come to an end that is near."""
    if not goes_on(first, end):
        return range(first, first, by)
    near = (end - first) // by  # steps to the end, or to before it
    count = next((n for n in range(max(near - 1, 1), near + 3)
                  if not goes_on(first + n * by, end)), None)  # fmt: skip
    if count is None or count > MOST_STEPS or not goes_on(first + (count - 1) * by, end):
        return None
    return range(first, first + count * by, by)


def _known(value: Any, loop: Any, given: Sequence[Any]) -> int | None:
    """A constant, or one that a loop carries as it is."""
    if isinstance(value.owner, ir.Block):
        k = ir.BlockArgument(value).arg_number
        inside = [region.blocks[0] for region in loop.regions]
        carried = given[k] == inside[1].arguments[k] if value.owner in inside else False
        return numbers.number_of(loop.operands[k]) if carried else None
    return numbers.number_of(value)


def _owner(value: Any, name: str) -> Any:
    """The op of this name that makes a value, behind conversions to its own type."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return op if op.name == name else None


def _size(block: Any) -> int:
    return sum(
        1 + sum(_size(inner) for region in op.operation.regions for inner in region.blocks)
        for op in block.operations
    )


# ---- branches ------------------------------------------------------------------------------------


def _select(op: Any) -> bool:
    """Compute every branch of an op and select, if no branch holds what stays."""
    blocks = [region.blocks[0] for region in op.regions]
    if any(inner.operation.name == "stablehlo.while" for b in blocks for inner in b.operations):
        return False
    chosen = op.operands[0]
    with ir.InsertionPoint(op), op.location:
        results = [clone_scalar_code(block, {}) for block in blocks]
        if op.name == "stablehlo.if":
            tests = [chosen]
        else:  # an index out of range chooses the last
            tests = [_equals(chosen, k) for k in range(len(blocks) - 1)]
        last = results[-1]
        for test, taken in reversed(list(zip(tests, results, strict=False))):
            last = [
                ir.Operation.create(
                    "stablehlo.select", results=[a.type], operands=[test, a, b]
                ).results[0]
                for a, b in zip(taken, last, strict=True)
            ]
    _replace(op, last)
    return True


def _equals(value: Any, number: int) -> Any:
    truth = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
    attributes = {"comparison_direction": ir.Attribute.parse("#stablehlo<comparison_direction EQ>")}
    operands = [value, numbers.constant(value.type, number)]
    return ir.Operation.create(
        "stablehlo.compare", results=[truth], operands=operands, attributes=attributes
    ).results[0]


# ---- both ----------------------------------------------------------------------------------------


def _replace(op: Any, values: Sequence[Any]) -> None:
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()
