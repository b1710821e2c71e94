# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lift-constants`: array constants become arguments that the runtime fills.

    func.func @f(%x: tensor<4x3xf32>) {           func.func @f(%x: tensor<4x3xf32>,
      %w = arith.constant dense<[...]>      ->        %constant0: tensor<3x2xf32>)
             : tensor<3x2xf32>                        attributes {neptune.constants = ["5f0c..."]}

The last arguments of a function are its constants; `neptune.constants` names the data of each by
its SHA-256, and the module's dictionary of that name holds the data once, as bytes. To the rest of
the compiler a weight is an array in memory like any other. A constant of equal elements is a number
and stays. What a program returns is memory of its own, so a constant that is returned is copied.
"""

from __future__ import annotations

import hashlib
from typing import Any

from neptune_mlir.dialects.attributes import CONSTANT_DATA, CONSTANTS
from neptune_mlir.dialects.constants import Elements, constants_of, repeated, take_data
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.regions import operations_named
from neptune_mlir.ir.bindings import ir, linalg, tensor
from neptune_mlir.transforms.registry import register

_MOVES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.reshape", "tensor.cast")


@register("lift-constants", "turn array constants into arguments, with their data in the module")
def lift_constants(module: Any) -> None:
    """Raises InputError for a constant whose data is not in the program."""
    data = take_data(module)
    elements = Elements(module)
    calls = operations_named(module.operation, "func.call")
    called = {op.attributes["callee"].value for op in calls}
    for function in functions(module):
        if function.name.value not in called:  # its caller passes every argument
            _lift(function, elements, data)
    if data:
        CONSTANT_DATA.set(module.operation, data)


def _lift(function: Any, elements: Elements, data: dict[str, bytes]) -> None:
    block, before = function.regions[0].blocks[0], constants_of(function)
    known = {(digest, argument.type): argument for argument, digest in before.items()}
    for op in list(operations_named(function.operation, "arith.constant")):
        kind = op.results[0].type
        raw = elements.of(op)
        if raw is None:
            continue
        if (number := repeated(raw, kind)) is not None:
            op.attributes["value"] = number
            continue
        digest = hashlib.sha256(raw).hexdigest()
        data[digest] = raw
        if (digest, kind) not in known:
            location = ir.Location.name(f"constant{len(known)}", op.location)
            known[digest, kind] = block.add_argument(kind, location)
        op.results[0].replace_all_uses_with(known[digest, kind])
        op.erase()
    if known:
        _declare(function, [digest for digest, _ in known])
        _copy_returned(block, set(known.values()))


def _declare(function: Any, digests: list[str]) -> None:
    """Let the type and attributes of a function say what its block takes."""
    arguments = function.regions[0].blocks[0].arguments
    kind = ir.FunctionType.get([a.type for a in arguments], function.type.results)
    function.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
    CONSTANTS.set(function.operation, digests)
    if "arg_attrs" in function.operation.attributes:
        given = list(function.arg_attrs)
        given += [ir.DictAttr.get({})] * (len(arguments) - len(given))
        function.arg_attrs = ir.ArrayAttr.get(given)


def _copy_returned(block: Any, constants: set[Any]) -> None:
    """Copies of the constants that a function returns, maybe under another shape."""
    end = block.operations[len(block.operations) - 1]
    for k, value in enumerate(end.operands):
        moves = []
        while not isinstance(value.owner, ir.Block) and value.owner.name in _MOVES:
            moves.append(value.owner)
            value = value.owner.operands[0]
        if value not in constants:
            continue
        with ir.InsertionPoint(end), end.location:
            kind = ir.RankedTensorType(value.type)
            value = linalg.copy(value, outs=[tensor.empty(kind.shape, kind.element_type)])
            for move in reversed(moves):
                again = move.clone()
                again.operands[0] = value
                value = again.results[0]
        end.operands[k] = value
