# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program may not be: one that keeps state, computes with complex numbers, or has arguments
or results that no call can pass."""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import InputError
from neptune_mlir.ir import bindings
from neptune_mlir.runtime.arrays import ELEMENT_TYPES

_NOT_SAID = ("tensor.empty", "arith.constant")  # no operation, and one that is refused when read
MOST_ELEMENTS = 1 << 60  # of 8 bytes: what 64-bit addresses reach


def check_operations(module: Any) -> None:
    """Raises InputError for a program that keeps state from call to call, or has complex numbers
    within."""
    for function in functions(module):
        for op in function.regions[0].blocks[0].operations:
            name = op.operation.name
            if name.startswith("ml_program.global_"):
                message = f"'{name}' keeps state between calls (random numbers do), a kernel not"
                hint = "draw the random numbers, or a dropout mask, before and pass them"
            elif name not in _NOT_SAID and any(map(_is_complex, op.operation.results)):
                message = f"'{name}' gives complex numbers, which kernels do not take"
                hint = "compute with real and imaginary parts"
            else:
                continue
            place = bindings.location_text(op.operation.location)
            raise InputError(message, loc=place, hint=hint)


def _is_complex(value: Any) -> bool:
    kind = value.type
    if not isinstance(kind, bindings.ir.RankedTensorType):
        return False
    return isinstance(kind.element_type, bindings.ir.ComplexType)


def check_signatures(module: Any) -> None:
    """Raises InputError for an argument or a result that no call can pass."""
    for function in functions(module):
        arguments = function.regions[0].blocks[0].arguments
        places = [(f"argument {k}", a.type, a.location) for k, a in enumerate(arguments)]
        places += [(f"result {k}", kind, function.location)
                   for k, kind in enumerate(function.type.results)]  # fmt: skip
        for name, kind, location in places:
            place = bindings.location_text(location)
            if isinstance(kind, bindings.ir.UnrankedTensorType):
                hint = "give the tensor a rank, with ? for unknown extents"
                raise InputError(f"{name} has no rank", loc=place, hint=hint)
            if isinstance(kind, bindings.ir.RankedTensorType):
                count = math.prod(n for n in kind.shape if n > 0)  # (a run-time extent is below)
                if count > MOST_ELEMENTS:
                    message = f"{name} has {count} elements, for which there are no addresses"
                    raise InputError(message, loc=place, hint="smaller extents, or ? for them")
            element = str(getattr(kind, "element_type", kind))
            known = [e for e in ELEMENT_TYPES
                     if e != FLOAT8 or isinstance(kind, bindings.ir.ShapedType)]  # fmt: skip
            if element not in known:
                message = f"{name} has elements of type {element}, which nothing here holds"
                raise InputError(message, loc=place, hint=f"use one of {', '.join(known)}")
