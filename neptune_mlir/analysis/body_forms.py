# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms of the bodies of tile ops: sums of which one position counts (of `where(j == v, f(j), 0)`,
which is `f(v)`), reductions of what lies before each result (of `where(j <= i, f(j), identity)`),
and quotients with divisors in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra.combiners import identity_of
from neptune_mlir.analysis.tiles import Generic, is_multiple, reduction_of
from neptune_mlir.dialects.gpu_attributes import ROUGH
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

_EQUAL, _LESS = 0, 2  # predicates of `arith.cmpi`
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


@dataclass(frozen=True)
class Prefix:
    """A result at `own` is the reduction of what stands along the loop `other`: of positions up to
    its own (`upwards`) or from it on, without its own where it is `strict`."""

    own: int
    other: int
    upwards: bool
    strict: bool
    name: str  # of the op that combines
    inner: Any  # what it takes in


def prefix_of(g: Generic) -> Prefix | None:
    """A reduction as a prefix, if nothing but the comparison knows the loop of results."""
    found = reduction_of(g) if len(g.reduced) == 1 else None
    if found is None:
        return None
    (other,), (name, inner) = g.reduced, found
    choice = defining_op(inner)
    while choice is not None and choice.name in _WIDENS:
        choice = defining_op(choice.operands[0])
    if choice is None or choice.name != "arith.select" or not _is_identity(choice, name):
        return None
    compare = defining_op(choice.operands[0])
    places = [] if compare is None else [defining_op(v) for v in compare.operands]
    if not places or compare.name != "arith.cmpi" or not all(map(_is_index, places)):
        return None
    predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
    loops = [ir.IntegerAttr(place.attributes["dim"]).value for place in places]
    if loops[1] == other:
        loops, predicate = loops[::-1], _MIRRORED.get(predicate)
    own = loops[1]
    if predicate not in _MIRRORED or loops[0] != other or own == other:
        return None
    alone = all(own not in loops for loops in g.maps[:-1]) and own in g.maps[-1]
    if not alone or g.extents[own] != g.extents[other] or _asks(g, own) != 1:
        return None
    return Prefix(own, other, predicate in (2, 3), predicate in (2, 4), name, inner)


_MIRRORED = {2: 4, 3: 5, 4: 2, 5: 3}  # predicates of `arith.cmpi` for `b ? a` in place of `a ? b`


def _is_index(op: Any) -> bool:
    return op is not None and op.name == "linalg.index"


def _is_identity(choice: Any, name: str) -> bool:
    """Whether a choice is what changes nothing where its condition does not hold."""
    op = defining_op(choice.operands[2])
    if op is None or op.name != "arith.constant":
        return False
    kind = choice.operands[2].type
    width = kind.width if isinstance(kind, ir.IntegerType) else 32
    return bool(op.attributes["value"].value == identity_of(name, width))


def _asks(g: Generic, loop: int) -> int:
    """How often the body takes the position along a loop."""
    places = (op.operation for op in g.block.operations)
    found = [op for op in places if _is_index(op) and op.attributes["dim"].value == loop]
    return sum(1 for op in found for _ in op.results[0].uses)


def results_along(g: Generic) -> tuple[int, ...]:
    """The loops that a result runs along, of a prefix those along which it is computed."""
    prefix = prefix_of(g)
    out = g.maps[-1]
    return out if prefix is None else tuple(prefix.other if k == prefix.own else k for k in out)


def extents_held(g: Generic) -> tuple[int, ...]:
    """The extents of what threads go through: those of a prefix go through its elements once."""
    prefix = prefix_of(g)
    return tuple(n for k, n in enumerate(g.extents) if prefix is None or k != prefix.own)


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
    op = defining_op(value)
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
    op = defining_op(value)
    if op is not None and op.name in _WIDENS:
        return _vanishes(op.operands[0], condition)
    if op is None or op.name != "arith.select" or not _is_zero(op.operands[2]):
        return False
    return _implies(op.operands[0], condition) or _vanishes(op.operands[1], condition)


def _implies(value: Any, condition: Any) -> bool:
    op = defining_op(value)
    both = op is not None and op.name == "arith.andi"
    return value == condition or (both and any(_implies(v, condition) for v in op.operands))


def _is_zero(value: Any) -> bool:
    op = defining_op(value)
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


def rough_tangents(g: Generic) -> list[Any]:
    """The rough tangents in the body of an elementwise op."""
    body = [op.operation for op in g.block.operations]
    return [op for op in body if op.name == "math.tanh" and ROUGH.on(op)]


def asks_for_ends(g: Generic, loop: int, run: int) -> bool:
    """Whether a body asks of positions along a loop only whether they lie before a multiple of
    `run`: then `run` neighbours, of which the first is at a multiple, have one answer."""
    found = [
        op.operation.results[0] for op in g.block.operations
        if op.operation.name == "linalg.index"
        and ir.IntegerAttr(op.operation.attributes["dim"]).value == loop
    ]  # fmt: skip
    return bool(found) and all(_asks_for_ends(g, position, run) for position in found)


def _asks_for_ends(g: Generic, position: Any, run: int) -> bool:
    for use in position.uses:
        op = use.owner.operation
        other = op.operands[1 - use.operand_number] if len(op.operands) == 2 else None
        made = other and defining_op(other)
        if other is None or (made and made.block == g.block) or not is_multiple(other, run):
            return False
        if op.name == "arith.cmpi":
            predicate = ir.IntegerAttr(op.attributes["predicate"]).value
            if predicate != _LESS or use.operand_number != 0:
                return False
        elif op.name != "arith.addi" or not _asks_for_ends(g, op.results[0], run):
            return False
    return True
