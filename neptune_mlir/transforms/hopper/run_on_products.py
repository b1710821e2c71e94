# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `run-on-products`: products that run on into the next iteration of their loop (sm_90a).

A loop that does nothing but multiply (tiles come through rings, and each product adds to the one
before) has nothing to run beside a product. A group that waits for it in its iteration leaves the
matrix units idle until the next one starts: a third of the time, where a group is alone. Such a
loop is marked `neptune.runs_on`. Its meaning does not change. Code generation has a wait of the
loop wait for the product of the iteration before, a release give back what that one read, and what
is left of both stands behind the loop:

    for i: a = get; t = start(a, acc); s = wait(t); release(a); yield s
->  for i: a = get; start(a); wait until one is left; release the tile before a
    wait; release the last tile

A loop that stands in no other one qualifies if its body has gets (one of a ring), products, their
waits and releases alone, all that a product loads comes from rings, and its result goes on to the
next iteration alone, as what is added to. A left factor that goes through registers does not: the
product reads these until it is waited for, and the next iteration would write them.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import foralls, read_contraction, read_generic
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, READER, RUNS_ON, SWAPPED
from neptune_mlir.dialects.op_names import GET, RELEASE, START, WAIT
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.gpu.layout_factors import through_registers
from neptune_mlir.transforms.hopper.loop_graph import LoopGraph
from neptune_mlir.transforms.registry import register


@register("run-on-products", "mark loops whose products run on into the next iteration")
def run_on_products(module: Any) -> None:
    for forall in foralls(module):
        if not CONSUMERS.on(forall):
            continue
        for op in forall.regions[0].blocks[0].operations:
            if op.operation.name == "scf.for" and _qualifies(op.operation):
                RUNS_ON.set(op.operation)


def _qualifies(loop: Any) -> bool:
    graph = LoopGraph(loop)
    starts = graph.starts()
    if not starts or any(op.name not in (GET, START, WAIT, RELEASE) for op in graph.nodes):
        return False
    gets = [op for op in graph.nodes if op.name == GET]
    rings = {get.operands[0] for get in gets}
    released = {graph.tile_of(op) for op in graph.nodes if op.name == RELEASE}
    if any(READER.on(get) for get in gets) or len(rings) < len(gets) or released != {*gets}:
        return False
    return all(_adds_up(graph, start) for start in starts)


def _adds_up(graph: LoopGraph, start: Any) -> bool:
    """Whether a product adds to what the iteration before handed on, and hands on the sum alone."""
    *factors, total = start.operands
    made = [defining_op(factor) for factor in factors]
    g = read_generic(start)
    p = read_contraction(g)
    if p is None or through_registers(g, p.swapped() if SWAPPED.on(start) else p):
        return False
    if any(get is None or get.name != GET or get.block != graph.body for get in made):
        return False
    (wait,) = (use.owner.operation for use in start.results[0].uses)
    uses = [use.owner.operation for use in wait.results[0].uses]
    if total not in graph.arguments or [op.name for op in uses] != ["scf.yield"]:
        return False
    return bool(graph.yielded[graph.arguments.index(total)] == wait.results[0])
