# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `interchange-reductions`: a contraction's last parallel loop becomes its innermost one.

For `linalg.generic` on memrefs, before they become scalar loops. Each element still sums in the
same order, but neighbours along the innermost loop are independent, so LLVM can use vectors.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.registry import register


@register("interchange-reductions", "put the last parallel loop of each contraction innermost")
def interchange_reductions(module: Any) -> None:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "linalg.generic":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        kinds = list(op.attributes["iterator_types"])
        parallel = [d for d, kind in enumerate(kinds) if "parallel" in str(kind)]
        indexed = any(o.operation.name == "linalg.index" for o in op.regions[0].blocks[0])
        if len(parallel) in (0, len(kinds)) or indexed or len(op.operands) < 3:
            continue
        last = parallel[-1]
        order = [d for d in range(len(kinds)) if d != last] + [last]
        # loop d is loop `place[d]` now
        place = {d: k for k, d in enumerate(order)}
        change = ir.AffineMap.get(
            len(kinds), 0, [ir.AffineExpr.get_dim(place[d]) for d in range(len(kinds))]
        )
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        op.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [
                ir.AffineMapAttr.get(
                    ir.AffineMap.get(len(kinds), 0, [e.compose(change) for e in m.results])
                )
                for m in maps
            ]
        )
        op.attributes["iterator_types"] = ir.ArrayAttr.get([kinds[d] for d in order])
