# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`expand-calls`: calls of declared scalar functions that a package adds become what these are.

    func.func private @softplus(f32) -> f32
    %b = func.call @softplus(%a) : (f32) -> f32      ->      %0 = math.exp %a
                                                             %b = math.log1p %0

A function that is defined in the module is left alone, and so is a declaration that nobody
registered (docs/extending.md).
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import functions as scalar_functions
from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects.regions import operations_named
from neptune_mlir.dialects.scalars import Emitter
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.transforms.registry import register


@register("expand-calls", "write calls of scalar functions of packages as scalar code")
def expand_calls(module: Any) -> None:
    """Raises InputError for a call whose types do not fit the function."""
    declared = {
        function.name.value: function
        for function in module.body.operations
        if function.operation.name == "func.func" and not len(function.regions[0].blocks)
    }
    known = {name: f for name, f in declared.items() if scalar_functions.is_known(name)}
    if not known:
        return
    for call in operations_named(module.operation, "func.call"):
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if name in known:
            _expand(call, name)
    for function in known.values():
        function.operation.erase()


def _expand(call: Any, name: str) -> None:
    operands, results = list(call.operands), list(call.results)
    where = location_text(call.location)
    kinds = [str(value.type) for value in (*operands, *results)]
    if any(isinstance(value.type, ir.ShapedType) for value in (*operands, *results)):
        raise InputError(f"'{name}' is a function of scalars, called on {', '.join(kinds)}",
                         loc=where, hint="call it in the region of a linalg.generic")  # fmt: skip
    symbols = {T.sym(k, str(v.type)): v for k, v in enumerate(operands)}
    try:
        term = scalar_functions.named(name)(*symbols)
    except (UsageError, TypeError, ValueError) as error:
        raise InputError(f"'{name}' cannot be called on {', '.join(kinds[:-1])}: {error}",
                         loc=where) from None  # fmt: skip
    if len(results) != 1 or term.dtype != kinds[-1]:
        raise InputError(f"'{name}' gives {term.dtype}, and the call {kinds[-1]}", loc=where)
    with ir.InsertionPoint(call), call.location:
        results[0].replace_all_uses_with(Emitter(symbols.__getitem__).emit(term))
    call.erase()
