# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `split-matmuls`: matmuls of warp groups become a start and a wait (sm_90a).

    %s = linalg.generic (contraction) ins(%a, %b) outs(%acc)
->  %t = neptune.mma_start %a, %b, %acc
    %s = neptune.mma_wait %t {pending = 0}

The two ops stand side by side, so the meaning does not change; passes behind this one may move ops
between them. Only contractions that `assign-layouts` gave to matrix instructions (`neptune.via`)
take part, and only those of consumers (`partition-warps`): a warp group starts its matmuls
together. A left factor that groups exchange for one of them is read there by others, too, where
these may run late. A contraction that stays is one that each warp does on its own
(`neptune.again`).
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import foralls, nested, tuned
from neptune_mlir.dialects.gpu_attributes import AGAIN, CONSUMERS
from neptune_mlir.dialects.matmul import PendingType
from neptune_mlir.dialects.op_names import START, WAIT
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.tuned import ALL_LATE
from neptune_mlir.transforms.gpu.streams import is_product
from neptune_mlir.transforms.hopper.partition_warps import check_rings
from neptune_mlir.transforms.registry import register

_BODY = ("iterator_types", "operandSegmentSizes")  # attributes of a linalg.generic alone


@register("split-matmuls", "turn matmuls of warp groups into a start and a wait")
def split_matmuls(module: Any) -> None:
    for forall in foralls(module):
        if not CONSUMERS.on(forall):
            continue
        matmuls = [
            op for op in nested(forall.regions[0].blocks[0])
            if is_product(op) and op.name != START and not AGAIN.on(op)
        ]  # fmt: skip
        if matmuls:
            check_rings(forall)  # passes behind this one give rings more places
        if tuned(forall, "late", ALL_LATE):
            for op in matmuls:
                _read_in_place(op)
        for op in matmuls:
            _split(op)


def _read_in_place(op: Any) -> None:
    """Let a matmul that may run late read its left factor where groups put it for another one.
    (Made anew in registers while a matmul runs, it lets the assembler run all one by one.)"""
    for k, value in enumerate(list(op.operands)[:2]):
        for copy in op.block.operations:
            copy = copy.operation
            if copy.name == "linalg.copy" and _is_same(copy.operands[0], value):
                op.operands[k] = copy.results[0]
                if op.is_before_in_block(copy):
                    op.move_after(copy)
                return


def _is_same(a: Any, b: Any) -> bool:
    """Whether two tiles are one, or the same one rounded."""
    if a == b:
        return True
    x, y = defining_op(a), defining_op(b)
    if x is None or y is None or x.block != y.block or {x.name, y.name} != {"linalg.generic"}:
        return False
    bodies = [[inner.operation.name for inner in m.regions[0].blocks[0].operations] for m in (x, y)]
    same = bodies[0] == bodies[1] == ["arith.truncf", "linalg.yield"]
    return same and x.operands[0] == y.operands[0]


def _split(op: Any) -> None:
    kept = {name: op.attributes[name] for name in op.attributes if name not in _BODY}
    (result,) = op.results
    with op.context, op.location, ir.InsertionPoint(op):
        pending = PendingType.get(ir.TypeAttr.get(result.type))
        begun = ir.Operation.create(
            START, results=[pending], operands=list(op.operands), attributes=kept
        )
        none = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
        done = ir.Operation.create(
            WAIT, results=[result.type], operands=list(begun.results),
            attributes={"pending": none},
        )  # fmt: skip
    result.replace_all_uses_with(done.results[0])
    op.erase()
