# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`split-streams`: a stream whose results do not fit side by side becomes several.

    dv, dk = stream over i: s = q k, p = f(s), t = g(p, d v)
             accumulate p d, accumulate t q
    ->
    dv = stream over i: s = q k, p = f(s), accumulate p d
    dk = stream over i: s = q k, p = f(s), t = g(p, d v), accumulate t q

Results of one stream share what the stream computes for each tile, and their accumulators stand in
registers side by side. Of wide ones (gradients of attention at head dim 256) that leaves room for
tiles of a few points, or none. Each stream with a part of the results computes what that part needs
again, over larger tiles. Running values that read each other, and those that a result is made of,
stay together.

Which is faster says a model of warp groups (`group_tiles.cycles`): how long the matrix units take
for the products, or shared memory for their factors. With `warp_groups=0` nothing is split.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import nests_of, read_live
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import AXES, DERIVATION, INNER, RUNNING
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.op_names import REDUCE, STREAM
from neptune_mlir.dialects.program import captured, erase_dead, functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets import group_tiles
from neptune_mlir.transforms.fusion.region import produce, write_live
from neptune_mlir.transforms.registry import register, remark
from neptune_mlir.transforms.schedule.stream_tiles import group_choice

Part = tuple[list[int], list[int]]  # running values, and results


@register("split-streams", "compute results that do not fit side by side in streams of their own")
def split_streams(module: Any, *, warp_groups: int = 0) -> None:
    """
    Args:
        warp_groups: 1 for programs of warp groups of 64 rows each (`specialize-warps`).
    """
    if not warp_groups:
        return
    for function in functions(module):
        for op in list(function.regions[0].blocks[0].operations):
            if isinstance(op, N.StreamOp):
                _split(op)


def _split(stream: Any) -> None:
    parts = _parts(stream)
    if len(parts) < 2:
        return
    whole = _cycles(stream)
    if whole is None:
        return
    with ir.InsertionPoint(stream.operation), stream.operation.location:
        made = [_stream_of(stream, part) for part in parts]
    cycles = [_cycles(one.opview) for one in made]
    if None in cycles or sum(filter(None, cycles)) >= whole:
        for one in made:
            one.erase()
        return
    for one, (_, results) in zip(made, parts, strict=True):
        for new, k in zip(one.results, results, strict=True):
            stream.operation.results[k].replace_all_uses_with(new)
    remark(
        stream.operation.location,
        f"{len(parts)} streams in place of one: its results do not fit side by side",
    )
    stream.operation.erase()


def _cycles(stream: Any) -> float | None:
    """What a point of a stream costs warp groups, where the model knows that."""
    found = group_choice(stream)
    return None if found is None else group_tiles.cycles(*found)


def _parts(stream: Any) -> list[Part]:
    """Running values and results that do not need each other's, in the order of the results."""
    body, finish = (stream.operation.regions[k].blocks[0] for k in (0, 1))
    together = [{k, *needed} for k, needed in enumerate(_needed(body))]
    together += _needed(finish)
    groups: list[set[int]] = []
    for some in together:
        joined = set(some).union(*(g for g in groups if g & some))
        groups = [g for g in groups if not g & some] + [joined]
    results = _needed(finish)
    if any(not needed for needed in results):
        return []  # a result of no running value
    parts = [
        (sorted(group), [k for k, needed in enumerate(results) if needed <= group])
        for group in groups
    ]
    return sorted((p for p in parts if p[1]), key=lambda p: p[1])


def _needed(block: Any) -> list[set[int]]:
    """The arguments of a region that each of the values needs that it produces."""
    arguments = list(block.arguments)
    known: dict[Any, set[int]] = {}

    def of(value: Any) -> set[int]:
        if isinstance(value.owner, ir.Block):
            return {arguments.index(value)} if value in arguments else set()
        return known.get(value.owner.operation, set())

    *rest, last = [op.operation for op in block.operations]
    for op in rest:
        used = [*captured(op, block), *_arguments_used(op, block)]
        known[op] = set().union(*map(of, used)) if used else set()
    return [of(value) for value in last.operands]


def _arguments_used(op: Any, block: Any) -> list[Any]:
    """The arguments of a block that an op uses, nested uses included."""
    found = [v for v in op.operands if isinstance(v.owner, ir.Block) and v.owner == block]
    for region in op.regions:
        for inner in region.blocks:
            for nested in inner.operations:
                found += _arguments_used(nested.operation, block)
    return found


def _stream_of(stream: Any, part: Part) -> Any:
    """A stream of a part of the results, before `stream`."""
    running, results = part
    operation = stream.operation
    copy = operation.clone()
    bodies = [copy.regions[k].blocks[0] for k in (0, 1)]
    inner = [op.operation for op in bodies[0].operations if op.operation.name == REDUCE]
    for block, kept in zip(bodies, (running, results), strict=True):
        _keep(block, kept, running)
    left = [op.operation for op in bodies[0].operations]
    named = zip(INNER.find(operation, ()), inner, strict=False)
    names = [name for name, op in named if op in left]
    values = Values()
    live = read_live(copy.opview, values)
    nests = nests_of(copy.opview, values)
    axis = stream.axis.value
    used = sorted({axis, *(a for nest in nests for a in nest.loops), *live.axes})
    made = ir.Operation.create(
        STREAM,
        results=[operation.results[k].type for k in results],
        operands=_extents(stream, used),
        attributes=_attributes(stream, running, names, used, len(results)),
        regions=3,
    )
    for k, block in enumerate(bodies):
        block.append_to(made.regions[k])
        for op in block.operations:
            if AXES.on(op.operation):
                AXES.set(op.operation, [used.index(a) for a in AXES.of(op.operation)])
    if not (live.is_const and live.value):
        moved = T.rename_axes(live, {a: T.index(k) for k, a in enumerate(used)})
        write_live(made.opview, moved, values)
    copy.erase()
    return made


def _keep(block: Any, produced: Sequence[int], arguments: Collection[int]) -> None:
    """Leave only some of what a region of a fused op produces, and of its arguments."""
    last = list(block.operations)[-1].operation
    values = [last.operands[k] for k in produced]
    with ir.InsertionPoint(last), last.location:
        produce(values)
    last.erase()
    erase_dead(block)
    for k in reversed(range(len(block.arguments))):
        if k not in arguments:
            block.erase_argument(k)


def _extents(stream: Any, used: Sequence[int]) -> list[Any]:
    domain = list(stream.domain)
    dynamic = [a for a, size in enumerate(domain) if size == DYNAMIC]
    extents = list(stream.operation.operands)
    return [extents[dynamic.index(a)] for a in used if domain[a] == DYNAMIC]


def _attributes(
    stream: Any, running: Sequence[int], inner: Sequence[str], used: Sequence[int], results: int
) -> dict[str, Any]:
    """The attributes of a stream with some of the running values, inner reductions and axes."""
    operation = stream.operation
    known = {name: operation.attributes[name] for name in operation.attributes}
    domain, names = list(stream.domain), list(stream.axis_names)
    known["domain"] = ir.DenseI64ArrayAttr.get([domain[a] for a in used])
    known["axis_names"] = ir.ArrayAttr.get([names[a] for a in used])
    kind = ir.IntegerType.get_signless(64)
    known["axis"] = ir.IntegerAttr.get(kind, used.index(stream.axis.value))
    known["resultSegmentSizes"] = ir.DenseI32ArrayAttr.get(N.segment_sizes(results))
    called = RUNNING.find(operation, [])
    if called:
        gone = tuple(f"{name}:" for k, name in enumerate(called) if k not in running)
        known |= RUNNING.entry([called[k] for k in running])
        lines = [x for x in DERIVATION.find(operation, []) if not x.startswith(gone)]
        known |= DERIVATION.entry(lines) if lines else {}
    if INNER.on(operation):
        known |= INNER.entry(list(inner))
    return known
