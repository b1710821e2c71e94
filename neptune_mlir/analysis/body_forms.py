# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms of the bodies of tile ops: sums of which one position counts (of `where(j == v, f(j), 0)`,
which is `f(v)`), and quotients with divisors in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.tiles import Generic, owner
from neptune_mlir.dialects.attributes import ROUGH
from neptune_mlir.ir.bindings import ir

_EQUAL = 0  # predicate of `arith.cmpi`
_WIDENS = ("arith.extf", "arith.truncf", "arith.extsi", "arith.extui")  # of 0: 0


@dataclass(frozen=True)
class Pick:
    """The body is 0 unless `place`, which is a position along `loop` plus what is the same for all
    of these, equals `value`, which is so as well."""

    loop: int
    place: Any
    value: Any


def picked_of(g: Generic, name: str, inner: Any) -> Pick | None:
    """The position that a reduction by `name` of the values `inner` picks."""
    if name not in ("arith.addf", "arith.addi") or len(g.reduced) != 1:
        return None
    (loop,) = g.reduced
    varying = _varying(g, loop)
    for op in g.block.operations:
        condition = op.operation
        if condition.name != "arith.cmpi" or not _vanishes(inner, condition.results[0]):
            continue
        if ir.IntegerAttr(condition.attributes["predicate"]).value != _EQUAL:
            continue
        a, b = condition.operands
        for place, value in ((a, b), (b, a)):
            if value not in varying and _is_position(place, varying):
                return Pick(loop, place, value)
    return None


def _varying(g: Generic, loop: int) -> set[Any]:
    """What of a body differs between the positions along a loop."""
    inputs = zip(g.block.arguments, g.maps, strict=True)
    varying = {v for v, loops in inputs if loop in loops}
    for op in g.block.operations:
        operation = op.operation
        own = operation.name == "linalg.index"
        own = own and ir.IntegerAttr(operation.attributes["dim"]).value == loop
        if own or any(v in varying for v in operation.operands):
            varying |= set(operation.results)
    return varying


def _is_position(value: Any, varying: set[Any]) -> bool:
    """Whether an integer is a position along the loop, plus what is the same for all of these."""
    op = owner(value)
    if op is None or value not in varying:
        return False
    if op.name == "arith.index_cast":
        return _is_position(op.operands[0], varying)
    if op.name == "arith.addi":
        moved = [v for v in op.operands if v in varying]
        return len(moved) == 1 and _is_position(moved[0], varying)
    return op.name == "linalg.index"


def _vanishes(value: Any, condition: Any) -> bool:
    """Whether a value of a body is 0 where a condition does not hold."""
    op = owner(value)
    if op is not None and op.name in _WIDENS:
        return _vanishes(op.operands[0], condition)
    if op is None or op.name != "arith.select" or not _is_zero(op.operands[2]):
        return False
    return _implies(op.operands[0], condition) or _vanishes(op.operands[1], condition)


def _implies(value: Any, condition: Any) -> bool:
    op = owner(value)
    both = op is not None and op.name == "arith.andi"
    return value == condition or (both and any(_implies(v, condition) for v in op.operands))


def _is_zero(value: Any) -> bool:
    op = owner(value)
    return op is not None and op.name == "arith.constant" and op.attributes["value"].value == 0


def shared_quotients(g: Generic) -> list[Any]:
    """The rough quotients of an elementwise op of which elements have divisors in common: these
    need nothing that each element has of its own."""
    inputs = list(g.block.arguments)
    own = {v for v, loops in zip(inputs, g.maps, strict=True) if len(loops) == len(g.extents)}
    found = []
    for op in g.block.operations:
        operation = op.operation
        if operation.name == "arith.divf" and ROUGH.on(operation):
            if operation.operands[1] not in own:
                found.append(operation)
        if operation.name == "linalg.index" or any(v in own for v in operation.operands):
            own |= set(operation.results)
    return found
