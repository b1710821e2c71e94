# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`prune-masks`: say where a stream has nothing to do, as its `live` region.

    x = map where(j <= i, s, -inf)        ->        live(i, j):  j <= i

For each condition of a `where` in the body, assume that it is false and follow the nests: when
every accumulation over the streamed axis then receives its identity, a point where the condition
fails is not live. `lower-to-tiles` turns what is affine in `live` into loop bounds and into a full
loop without a mask. A length that is read from a tensor bounds the stream as any other
(`j < length[b]`). A disjunction, and a condition that reads integers or booleans along the stream
(`doc[i] == doc[j]`), stay as they are; `skip-dead-tiles` asks which tiles they leave.

A maximum that an earlier nest made is -inf where a row sees nothing, and exp(-inf - -inf) is no 0
but a NaN. Such a point is dead all the same, or no mask of a softmax could be pruned whose maximum
was made before: the row's sum is 0 then, and `finish` makes the NaN of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.op_names import REDUCE
from neptune_mlir.dialects.program import streams
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.groups import FusedAxis
from neptune_mlir.transforms.fusion.region import FusedRegion, write_live
from neptune_mlir.transforms.registry import register, remark

LARGEST = 256  # nodes of a condition that reads data


@register("prune-masks", "find where streams have no live point, and record it in `live`")
def prune_masks(module: Any) -> None:
    for stream in streams(module):
        prune_stream(stream)


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
    for nest, g in [*_undefined(found, nests, axis, values, made)]:
        _nan_where(stream, nest, g, values)
    names = [str(name.value) for name in stream.axis_names]
    text = " and ".join(
        T.show(c, lambda t: names[t.attr] if t.op == "index" else None) for c in found
    )
    remark(stream.operation.location, f"live only where {text}")


def _undefined(
    found: Sequence[Term], nests: Sequence[FusedNest], axis: int, values: Values, made: set[str]
) -> Iterator[tuple[FusedNest, Term]]:
    """Sums that a dead point makes a NaN of where a maximum of their row is -inf; the maximum."""
    reads = [r for n in nests if n.body is not None for r in _all_reads(n.body)]
    for g in dict.fromkeys(r for r in reads if r.attr not in made and _is_maximum(values[r.attr])):
        odd = OddValues(nests, made - {n.key for n in nests}, below={g.attr})
        alive = {n.key for condition in found for n in _alive(condition, nests, axis, odd)}
        for nest in (n for n in nests if n.key in alive and n.init is not None):
            adds = nest.combiner == "add" and T.is_float(nest.dtype)
            if adds and g.axes <= set(nest.result_axes):
                yield nest, g


def _is_maximum(value: Any) -> bool:
    if isinstance(value, ir.BlockArgument) or value.owner.operation.name != REDUCE:
        return False
    return bool(value.owner.operation.opview.combiner.value == "max")


def _nan_where(stream: N.StreamOp, nest: FusedNest, g: Term, values: Values) -> None:
    """Let the sum of a nest be a NaN, behind the loop, where `g` is -inf and it is 0."""
    body, finish = stream.body.blocks[0], stream.finish.blocks[0]
    produced = list(list(body.operations)[-1].operation.operands)
    place = [values.key(v) for v in produced].index(nest.key)
    total = finish.arguments[place]
    extents = iter(stream.extents)
    axes = [
        FusedAxis(size, next(extents) if size == DYNAMIC else None) for size in stream.domain
    ]
    users = list(total.uses)
    with ir.InsertionPoint.at_block_begin(finish), nest.op.operation.location:
        region = FusedRegion(values, axes)
        seen = region.read(total, nest.result_axes, nest.dtype)
        gone = T.make("and", T.make("eq", g, T.const(-math.inf, g.dtype)),
                      T.make("eq", seen, T.const(0.0, nest.dtype)))  # fmt: skip
        made = region.map(
            T.make("select", gone, T.const(math.nan, nest.dtype), seen), nest.result_axes
        )
    for use in users:
        use.owner.operation.operands[use.operand_number] = made


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
    return next(_alive(condition, nests, axis, odd), None) is None


def _alive(
    condition: Term, nests: Sequence[FusedNest], axis: int, odd: OddValues
) -> Iterator[FusedNest]:
    """The nests to which a point of the stream may contribute where `condition` is false."""
    axes = T.axes_of(condition)

    def carries(nest: FusedNest) -> bool:
        return axes <= set(nest.result_axes)

    bodies = {n.key: n.body for n in nests if n.body is not None}
    at_point = follow_nests(nests, bodies, {condition: T.const(False, "i1")}, carries, odd)
    for nest in nests:
        if axis not in nest.loops or axis in nest.result_axes:
            continue
        nothing = nest.key in at_point and is_identity(at_point[nest.key], nest)
        if not nothing or not axes <= set(nest.loops):  # (one element for several points)
            yield nest
