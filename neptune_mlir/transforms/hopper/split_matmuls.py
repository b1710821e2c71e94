# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `split-matmuls`: matmuls of warp groups become a start and a wait (sm_90a).

    %s = linalg.generic (contraction) ins(%a, %b) outs(%acc)
->  %t = neptune.mma_start %a, %b, %acc
    %s = neptune.mma_wait %t {pending = 0}

The two ops stand side by side, so the meaning does not change; passes behind this one may move ops
between them. Only contractions that `assign-layouts` gave to matrix instructions (`neptune.via`)
take part, and only those of consumers (`partition-warps`): a warp group starts its matmuls
together. A contraction that stays is one that each warp does on its own (`neptune.again`).
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import foralls, nested
from neptune_mlir.dialects.attributes import AGAIN, CONSUMERS
from neptune_mlir.dialects.matmul import PendingType
from neptune_mlir.dialects.op_names import START, WAIT
from neptune_mlir.ir.bindings import ir
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
        for op in matmuls:
            _split(op)


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
