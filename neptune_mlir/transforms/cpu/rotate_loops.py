# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `rotate-loops`: loops ask at their end whether they go on.

    %r = scf.for %i = %low to %high step %step iter_args(%c = %init) { ... scf.yield %d }
    ->
    %some = arith.cmpi slt, %low, %high
    %r = scf.if %some {
      %w:2 = scf.while (%i = %low, %c = %init) {
        ...
        %next = arith.addi %i, %step
        %more = arith.cmpi slt, %next, %high
        scf.condition(%more) %next, %d
      } do { yields what it is given }
      scf.yield %w#1
    } else { scf.yield %init }

The first question is left out where the answer is known. LLVM wants loops in this form and makes it
itself, one after the other, in a time that grows faster than a function does: for each block that
it copies it looks for the values that are used outside.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.regions import operations_named
from neptune_mlir.ir.bindings import arith, ir, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register


@register("rotate-loops", "let loops ask at their end whether they go on")
def rotate_loops(module: Any) -> None:
    for op in list(operations_named(module.operation, "scf.for")):
        with ir.InsertionPoint(op), op.location:
            results = _rotated(op)
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        op.operation.erase()


def _rotated(op: Any) -> list[Any]:
    low, high, step, *carried = op.operands
    known = [_number(value) for value in (low, high)]
    if None not in known:
        if known[0] >= known[1]:
            return carried
        return _loop(op, low, high, step, carried)
    some = arith.cmpi(arith.CmpIPredicate.slt, low, high)
    made = scf.IfOp(some, [value.type for value in carried], has_else=bool(carried))
    with ir.InsertionPoint(made.then_block):
        scf.YieldOp(_loop(op, low, high, step, carried))
    if carried:
        with ir.InsertionPoint(made.else_block):
            scf.YieldOp(carried)
    return list(made.results)


def _loop(op: Any, low: Any, high: Any, step: Any, carried: list[Any]) -> list[Any]:
    kinds = [low.type, *(value.type for value in carried)]
    loop = scf.WhileOp(kinds, [low, *carried])
    body = op.regions[0].blocks[0]
    body.append_to(loop.regions[0])
    end = body.operations[len(body.operations) - 1]
    with ir.InsertionPoint(end):
        after = arith.addi(body.arguments[0], step)
        more = arith.cmpi(arith.CmpIPredicate.slt, after, high)
        scf.ConditionOp(more, [after, *end.operands])
    end.operation.erase()
    again = loop.regions[1].blocks.append(*kinds, arg_locs=[op.location] * len(kinds))
    with ir.InsertionPoint(again):
        scf.YieldOp(list(again.arguments))
    return list(loop.results)[1:]


def _number(value: Any) -> int | None:
    made = defining_op(value)
    if made is None or made.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(made.attributes["value"]).value)
