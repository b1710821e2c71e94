# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`prune-masks`: say where a stream has nothing to do, as its `live` region.

    x = map where(j <= i, s, -inf)        ->        live(i, j):  j <= i

For each affine condition of a `where` in the body, assume that it is false and follow the
nests: when every accumulation over the streamed axis then receives its identity, a point
where the condition fails is not live. `lower-to-tiles` turns `live` into loop bounds and into
a full loop without a mask. A length that is read from a tensor bounds the stream as any other
(`j < length[b]`). A disjunction, and a condition that reads a tensor along the stream, stay where
they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest, read_live, read_region
from neptune_mlir.analysis.masks import Linear, affine_part, condition_of, conjuncts, constraints
from neptune_mlir.analysis.neutral import OddValues, follow_nests, is_identity
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import Values, emit_read
from neptune_mlir.dialects.op_names import STREAM, YIELD
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.scalars import Emitter
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.registry import register, remark


@register("prune-masks", "find where streams have no live point, and record it in `live`")
def prune_masks(module: Any) -> None:
    streams: list[Any] = []

    def collect(operation: Any) -> Any:
        if operation.name == STREAM:
            streams.append(operation)
        return ir.WalkResult.ADVANCE

    for function in functions(module):
        function.operation.walk(collect)
    for stream in streams:
        prune_stream(stream.opview)


def prune_stream(stream: N.StreamOp) -> None:
    values = Values()
    body = stream.body.blocks[0]
    nests, _ = read_region(body, values, in_body=True, corrections=True)
    odd = OddValues(nests, [values.key(a) for a in body.arguments])
    axis = stream.axis.value
    live = affine_part(read_live(stream, values))
    made = {nest.key for nest in nests} | {values.key(a) for a in body.arguments}

    def bounds(form: Linear) -> bool:
        """Whether what a form reads is known before the stream begins."""
        return not any(axis in r.axes or r.attr in made for r in form.reads)

    found = [
        (condition, forms)
        for condition, forms in candidates(nests)
        if all(map(bounds, forms))
        and any(form not in live for form in forms)
        and is_dead(condition, nests, axis, odd)
    ]
    for _, forms in found:
        live += [form for form in forms if form not in live]
    if found:
        _write_live(stream, live, values)
        names = [str(name.value) for name in stream.axis_names]
        text = " and ".join(
            T.show(c, lambda t: names[t.attr] if t.op == "index" else None) for c, _ in found
        )
        remark(stream.operation.location, f"live only where {text}")


def candidates(nests: Sequence[FusedNest]) -> list[tuple[Term, list[Linear]]]:
    """The affine conjuncts of every `where` in the nests, with their linear forms."""
    found: dict[Term, list[Linear]] = {}
    for nest in nests:
        if nest.body is None:
            continue
        for select in T.leaves(nest.body, "select"):
            for condition in conjuncts(select.args[0]):
                forms = constraints(condition)
                if forms is not None and any(form.axes for form in forms):
                    found[condition] = forms
    return list(found.items())


def is_dead(condition: Term, nests: Sequence[FusedNest], axis: int, odd: OddValues) -> bool:
    """Whether a point of the stream contributes nothing where `condition` is false."""
    axes = T.axes_of(condition)

    def carries(nest: FusedNest) -> bool:
        return axes <= set(nest.result_axes)

    bodies = {n.key: n.body for n in nests if n.body is not None}
    at_point = follow_nests(nests, bodies, {condition: T.const(False, "i1")}, carries, odd)
    for nest in nests:
        if axis not in nest.loops or axis in nest.result_axes:
            continue
        if nest.key not in at_point or not is_identity(at_point[nest.key], nest):
            return False
        if not axes <= set(nest.loops):
            return False  # one element of this nest stands for several points
    return True


def _write_live(stream: N.StreamOp, live: Sequence[Linear], values: Values) -> None:
    """Replace the `live` region by the conjunction of `form >= 0`."""
    region = stream.operation.regions[2]
    count = len(list(stream.domain))
    location = stream.operation.location
    if len(region.blocks):
        block = region.blocks[0]
        for op in reversed(list(block.operations)):
            op.operation.erase()
    else:
        index = ir.IndexType.get(stream.operation.context)
        block = region.blocks.append(*[index] * count, arg_locs=[location] * count)

    def leaf(t: Term) -> Any:
        if t.op == "read":
            return emit_read(t, count, values)
        return block.arguments[t.attr] if t.op == "index" else values[t.attr]

    with ir.InsertionPoint(block), location:
        condition = Emitter(leaf).emit(condition_of(live))
        ir.Operation.create(YIELD, operands=[condition])
