# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A split program as data for those who run it."""

from __future__ import annotations

from neptune_mlir.frontend.program import Output, Tensor
from neptune_mlir.frontend.shard.masks import masks_of
from neptune_mlir.frontend.shard.split import ShardSplit
from neptune_mlir.runtime.shards.plan import Join, ShardArray, ShardPart, ShardPlan


def plan_of(split: ShardSplit) -> ShardPlan:
    """The plan of a split program. Raises UsageError where devices cannot run it."""
    program = split.program
    parts = tuple(
        ShardPart(p.name, p.running.dtype, split.axes_of(p.name), over, float(p.empty))
        for over, found in split.partials.items() for p in found.parts
    )  # fmt: skip
    joins = {}
    for over, found in split.partials.items():
        inputs = list(split.join(over, 1).inputs)[len(found.parts) :]
        results = tuple(_array(split, o) for o in split.results[over])
        joins[over] = Join(tuple(inputs), results)
    arguments = tuple(
        ShardArray(name, a.dtype, split.axes_of(name)) if isinstance(a, Tensor)
        else ShardArray(name, a, None)
        for name, a in program.inputs.items()
    )  # fmt: skip
    return ShardPlan(
        program.name, split.axes, arguments, split.positions, parts,
        tuple(_array(split, o) for o in split.here), joins,
        tuple(o.name for o in program.outputs), masks_of(split),
        {a.name: a.static for a in split.whole.axis_list if a.static is not None},
    )  # fmt: skip


def _array(split: ShardSplit, output: Output) -> ShardArray:
    return ShardArray(output.name, output.term.dtype, split.axes_of(output.name))
