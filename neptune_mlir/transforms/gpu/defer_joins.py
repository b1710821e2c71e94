# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `defer-joins`: threads that share a row join their sums behind a loop, not in each turn.

    for i:  l = l * c + sum(p)        ->    for i:  l' = l' * c + (sum of this lane's part of p)
                                            l = sum of l' over the lanes

Between iterations only products with values that all threads agree on touch `l`, and a sum of
products is the product of the sum (privatization over threads; the loop's first value is zero, of
which every thread may have a copy). So do warps that share a row, where all that stands between the
loop's value and the sum lies as the sum does: nothing moves a part to another warp.

The reduction gets `neptune.partial`, and a `neptune.join_lanes` stands behind the last of the loops
that hand the value on. Layouts must have been assigned.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.layouts import iteration_of
from neptune_mlir.analysis.tiles import filled_with, foralls, nested, read_generic, reduction_of
from neptune_mlir.dialects.gpu_attributes import ITERATION, LAYOUTS, PARTIAL, VIA
from neptune_mlir.dialects.op_names import JOIN
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.gpu.streams import chain_of
from neptune_mlir.transforms.registry import register


@register("defer-joins", "join the sums of lanes behind a loop, not in each iteration")
def defer_joins(module: Any) -> None:
    for forall in foralls(module):
        seen: list[Any] = []
        for op in nested(forall.regions[0].blocks[0]):
            if op.name != "scf.for" or op in seen:
                continue
            chain = chain_of(op)
            seen += chain
            _defer(chain)


def _defer(chain: list[Any]) -> None:
    for k, start in enumerate(list(chain[0].operands)[3:]):
        sums = [_sum_carried(loop, k) for loop in chain]
        if filled_with(start) == 0 and all(op is not None for op in sums):
            for op in sums:
                PARTIAL.set(op)
            _join_behind(chain[-1], k, read_generic(sums[-1]))


def _join_behind(loop: Any, k: int, g: Any) -> None:
    """Join result k of a loop over the lanes that share a row of a reduction."""
    result, operations = loop.results[k], [op.operation for op in loop.block.operations]
    users = dict.fromkeys(use.owner.operation for use in result.uses)
    iteration = iteration_of(g.op, g.extents)
    distances = [
        distance << step
        for distance, d in iteration.digits_along(g.reduced, "lane")
        for step in range(d.size.bit_length() - 1)
    ]
    warps = [n for distance, d in iteration.digits_along(g.reduced, "warp")
             for n in (distance, d.size)]  # fmt: skip
    with loop.context, loop.location:
        with ir.InsertionPoint(operations[operations.index(loop) + 1]):
            joined = ir.Operation.create(
                JOIN, results=[result.type], operands=[result],
                attributes={
                    "distances": ir.DenseI64ArrayAttr.get(distances),
                    "warps": ir.DenseI64ArrayAttr.get(warps),
                },
            ).results[0]  # fmt: skip
    for user in users:
        for n, operand in enumerate(user.operands):
            if operand == result:
                user.operands[n] = joined


def _sum_carried(loop: Any, k: int) -> Any:
    """The reduction that a loop adds to carried value k, if nothing else reads that value but
    factors on its way there, and threads have parts of it."""
    body = loop.regions[0].blocks[0]
    end = body.operations[len(body.operations) - 1].operation
    op = defining_op(end.operands[k])
    if op is None or op.block != body or not _reads_once(op.results[0]) or not _adds_apart(op):
        return None
    g = read_generic(op)
    iteration = iteration_of(op, g.extents)
    across = bool(iteration.digits_along(g.reduced, "warp"))
    lies = str(iteration.project(g.maps[-1]))
    if across and LAYOUTS.of(loop)[k] != lies:
        return None
    value = g.init
    while value != body.arguments[1 + k]:
        before = _scaled(value)
        if before is None or (across and ITERATION.of(defining_op(value)) != lies):
            return None
        value = before
    return op if _reads_once(value) else None


def _reads_once(value: Any) -> bool:
    return len(list(value.uses)) == 1


def _adds_apart(op: Any) -> bool:
    """Whether an op adds up, in registers, what lanes or warps have parts of."""
    if op.name != "linalg.generic":
        return False
    if VIA.of(op) != "registers":
        return False
    g = read_generic(op)
    found = reduction_of(g) if g.reduced else None
    if found is None or found[0] != "arith.addf":
        return False
    layout = iteration_of(op, g.extents)
    lanes, warps = (layout.digits_along(g.reduced, part) for part in ("lane", "warp"))
    return bool(lanes or warps)


def _scaled(value: Any) -> Any:
    """What an elementwise op that only multiplies by something else made a value of."""
    op = defining_op(value)
    if op is None or op.name != "linalg.generic" or not _reads_once(value):
        return None
    g = read_generic(op)
    *_, product, end = [None, *(o.operation for o in g.block.operations)]
    if g.reduced or product is None or product.name != "arith.mulf":
        return None
    if list(end.operands) != [product.results[0]]:
        return None
    factors = list(product.operands)
    sources = [v for v, a in zip(g.inputs, g.block.arguments, strict=False)
               if a in factors and _reads_once(a)]  # fmt: skip
    carried = [v for v in sources if _is_carried(v)]
    return carried[0] if len(carried) == 1 else None


def _is_carried(value: Any) -> bool:
    """Whether a value is a loop's, or a product of such a value."""
    if isinstance(value, ir.BlockArgument):
        return True
    return _scaled(value) is not None
