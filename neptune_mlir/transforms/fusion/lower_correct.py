# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lower-correct`: a correction becomes a map.

    correct(acc; old, new) { h }   ->   map  where(all(old == new), acc, h)

Where no reference moved the accumulator passes through untouched, so an h that would be NaN
there (`-inf - -inf`) never shows.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.attributes import AXES
from neptune_mlir.dialects.op_names import CORRECT, MAP, NEW, OLD, READ, YIELD
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.regions import clone_scalar_code
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.transforms.registry import register

_ORDERED_EQUAL, _EQUAL = 1, 0  # predicates of arith.cmpf and arith.cmpi


@register("lower-correct", "turn corrections into maps: where(all(old == new), value, h)")
def lower_correct(module: Any) -> None:
    found: list[Any] = []

    def collect(operation: Any) -> Any:
        if operation.name == CORRECT:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    for function in functions(module):
        function.operation.walk(collect)
    for operation in found:
        _lower(operation)


def _lower(correct: Any) -> None:
    attributes = {
        name: correct.attributes[name]
        for name in ("domain", "result_axes", str(AXES))
        if name in correct.attributes
    }
    with correct.location:
        new = ir.Operation.create(
            MAP,
            results=[r.type for r in correct.results],
            operands=list(correct.operands),
            attributes=attributes,
            regions=1,
            ip=ir.InsertionPoint(correct),
        )
        with ir.InsertionPoint(new.regions[0].blocks.append()):
            _guarded(correct.regions[0].blocks[0])
    correct.results[0].replace_all_uses_with(new.results[0])
    correct.erase()


def _guarded(block: Any) -> None:
    """The code of h behind the comparison of its references, at the insertion point."""
    roles: dict[str, list[Any]] = {READ: [], OLD: [], NEW: []}

    def read(op: Any) -> Any:
        copy = ir.Operation.create(
            READ,
            results=[op.results[0].type],
            operands=[op.operands[0]],
            attributes={"map": op.attributes["map"]},
        )
        roles[op.name].append(copy.results[0])
        return copy.results[0]

    (moved,) = clone_scalar_code(block, {}, dict.fromkeys(roles, read))
    pairs = zip(roles[OLD], roles[NEW], strict=True)
    unmoved = [_equal(old, new) for old, new in pairs]
    same = unmoved[0]
    for other in unmoved[1:]:
        same = arith.AndIOp(same, other).result
    kept = arith.SelectOp(same, roles[READ][0], moved).result
    ir.Operation.create(YIELD, operands=[kept])


def _equal(old: Any, new: Any) -> Any:
    if isinstance(old.type, ir.IntegerType | ir.IndexType):
        return arith.CmpIOp(_EQUAL, old, new).result
    return arith.CmpFOp(_ORDERED_EQUAL, old, new).result
