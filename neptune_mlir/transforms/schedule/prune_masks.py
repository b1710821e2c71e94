# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`prune-masks`: say where a stream has nothing to do, as its `live` region.

    x = map where(j <= i, s, -inf)        ->        live(i, j):  j <= i

For each condition of a `where` in the body, assume that it is false and follow the nests: when
every accumulation over the streamed axis then receives its identity, a point where the condition
fails is not live. `lower-to-tiles` turns what is affine in `live` into loop bounds and into a full
loop without a mask. A length that is read from a tensor bounds the stream as any other
(`j < length[b]`). A disjunction, and a condition that reads integers or booleans along the stream
(`doc[i] == doc[j]`), stay as they are; `skip-dead-tiles` asks which tiles they leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest, read_live, read_region
from neptune_mlir.analysis.intervals import may_hold
from neptune_mlir.analysis.masks import (
    affine_part,
    begins_known,
    condition_of,
    conjuncts,
    constraints,
)
from neptune_mlir.analysis.neutral import OddValues, follow_nests, is_identity
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import Values
from neptune_mlir.dialects.op_names import STREAM
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.region import write_live
from neptune_mlir.transforms.registry import register, remark

LARGEST = 256  # nodes of a condition that reads data


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
    before = read_live(stream, values)
    made = {nest.key for nest in nests} | {values.key(a) for a in body.arguments}
    found = [
        condition
        for condition in candidates(nests)
        if not _stands_in(before, condition)
        and not any(read.attr in made for read in _all_reads(condition))
        and (_bounds(condition, axis) or _may_fail(condition))
        and is_dead(condition, nests, axis, odd)
    ]
    if not found:
        return
    live: dict[Term, None] = {}
    for condition in [*conjuncts(before), *found]:
        forms = constraints(condition) if _bounds(condition, axis) else None
        parts = [condition] if forms is None else conjuncts(condition_of(forms))
        live.update(dict.fromkeys(p for p in parts if not p.is_const))
    write_live(stream, T.conjunction(live), values)
    names = [str(name.value) for name in stream.axis_names]
    text = " and ".join(
        T.show(c, lambda t: names[t.attr] if t.op == "index" else None) for c in found
    )
    remark(stream.operation.location, f"live only where {text}")


def _all_reads(condition: Term) -> list[Term]:
    return T.leaves(condition, "read")


def _stands_in(live: Term, condition: Term) -> bool:
    forms, known = constraints(condition), affine_part(live)
    stands = forms is not None and all(form in known for form in forms)
    return stands or condition in conjuncts(live)


def _bounds(condition: Term, axis: int) -> bool:
    """Whether a condition is affine, and what it reads is known before the stream begins."""
    forms = constraints(condition)
    return forms is not None and begins_known(forms, axis)


def _may_fail(condition: Term) -> bool:
    """Whether ranges of what a condition is made of may show that it is false."""
    if condition.size > LARGEST:
        return False

    def leaf(t: Term) -> tuple[Term, Term]:
        kind = "index"
        return T.sym(("least", t), kind), T.sym(("greatest", t), kind)

    return not may_hold(condition, leaf).is_const


def candidates(nests: Sequence[FusedNest]) -> list[Term]:
    """The conjuncts of the conditions of every `where` in the nests that depend on positions."""
    found: dict[Term, None] = {}
    for nest in nests:
        if nest.body is None:
            continue
        for select in T.leaves(nest.body, "select"):
            for condition in conjuncts(select.args[0]):
                if condition.axes and not condition.has_ref:
                    found[condition] = None
    return list(found)


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
