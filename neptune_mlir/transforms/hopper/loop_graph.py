# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the ops in the body of a loop need of each other, for `schedule-loops`, `pipeline-loops`.

The nodes of the graph are the ops that are worth a place in an order: tile ops, matmuls, what waits
for rings. Index arithmetic and blank tiles are no nodes: they are made where they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neptune_mlir.dialects.gpu_attributes import LAYOUT, LAYOUTS
from neptune_mlir.dialects.op_names import RELEASE, START, WAIT
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.gpu.copies import captured_values, is_free


class LoopGraph:
    """The nodes of a loop's body, in order.

    Attributes:
        nodes: in the order of the loop.
        needs: of each node, those of its own iteration that come first: what it reads, and for a
            release the readers of the tile and their waits.
        reads: of each node, the results of other nodes and the arguments of the body.
        yielded: what the loop hands on.
    """

    def __init__(self, loop: Any):
        self.loop, self.body = loop, loop.regions[0].blocks[0]
        *inner, end = [op.operation for op in self.body.operations]
        self.nodes = [op for op in inner if not is_free(op)]
        self.yielded = list(end.operands)
        self.arguments = list(self.body.arguments)[1:]
        known = set(self.nodes)
        self.reads = {op: list(dict.fromkeys(self._roots(op))) for op in self.nodes}
        self.needs: dict[Any, set[Any]] = {
            op: {made for v in self.reads[op] if (made := defining_op(v)) in known}
            for op in self.nodes
        }
        self.users: dict[Any, list[Any]] = {op: [] for op in self.nodes}
        for op in self.nodes:
            for other in self.needs[op]:
                self.users[other].append(op)
        for op in self.nodes:
            if op.name == RELEASE:
                (source,) = self.needs[op]
                readers = [reader for reader in self.users[source] if reader != op]
                waits = [wait for r in readers if r.name == START for wait in self.users[r]]
                self.needs[op].update(readers, waits)

    def _roots(self, op: Any) -> Iterator[Any]:
        for value in captured_values(op):
            made = defining_op(value)
            if made is None or made.block != self.body:
                if value in self.arguments or value == self.body.arguments[0]:
                    yield value
            elif is_free(made):
                yield from self._roots(made)
            else:
                yield value

    def reads_position(self, op: Any) -> bool:
        """Whether an op depends on the number of the iteration."""
        return self.body.arguments[0] in self.reads[op]

    def maker(self, argument: Any) -> Any:
        """The node that makes what the next iteration finds in an argument, if one does."""
        made = defining_op(self.yielded[self.arguments.index(argument)])
        return made if made in self.needs else None

    def starts(self) -> list[Any]:
        return [op for op in self.nodes if op.name == START]

    def tile_of(self, release: Any) -> Any:
        """The get of a released tile."""
        return defining_op(release.operands[0])


class Stages:
    """A stage of each node of a loop: those of stage 1 run an iteration late.

    Attributes:
        late: the numbers of carried values that nodes of stage 1 make.
        read: those of them that nodes of stage 1 read as arguments; others need no registers.
        crossing: what nodes of stage 1 read of stage 0: results, and arguments that are not late
            (that of the loop's position as well).
    """

    def __init__(self, graph: LoopGraph, stage: dict[Any, int]):
        self.graph, self.stage = graph, stage
        makers = [graph.maker(argument) for argument in graph.arguments]
        self.late = [k for k, op in enumerate(makers) if op is not None and stage[op] == 1]
        reads = {v for op in graph.nodes if stage[op] == 1 for v in graph.reads[op]}
        self.read = [k for k in self.late if graph.arguments[k] in reads]
        arguments = {v for k, v in enumerate(graph.arguments) if k not in self.late}
        arguments.add(graph.body.arguments[0])
        crossing = (
            v for op in graph.nodes if stage[op] == 1 for v in graph.reads[op]
            if v in arguments or (defining_op(v) is not None and stage[defining_op(v)] == 0)
        )  # fmt: skip
        self.crossing = list(dict.fromkeys(crossing))

    def needs(self, op: Any) -> set[Any]:
        """The nodes that come before a node in the steady state, where nodes of stage 1 belong to
        the iteration before."""
        graph, stage = self.graph, self.stage
        found = {other for other in graph.needs[op] if stage[other] == stage[op]}
        if stage[op] == 0:
            late = (graph.arguments[k] for k in self.late)
            found.update(graph.maker(v) for v in late if v in graph.reads[op])
            found.update(self._readers_of_old(op))
        return found

    def _readers_of_old(self, op: Any) -> Iterator[Any]:
        """The waits of late matmuls that still read the registers of what `op` makes anew: a
        factor that nothing else reads is made in place."""
        for result in op.results:
            readers = self.graph.users[op]
            if result in self.crossing and readers and all(r.name == START for r in readers):
                for reader in readers:
                    yield from (w for w in self.graph.users[reader] if w.name == WAIT)


def layout_text(value: Any) -> str:
    """The layout of a tile in registers that a loop makes or carries; "" for a scalar."""
    made = defining_op(value)
    if made is None:
        loop = value.owner.owner.operation
        return LAYOUTS.of(loop)[value.arg_number - 1] if value.arg_number else ""
    if made.name == WAIT:
        made = defining_op(made.operands[0])  # the start says it
    if made.name in ("scf.for", "scf.if"):
        found = LAYOUTS.find(made)
        return found[list(made.results).index(value)] if found else ""
    return LAYOUT.find(made, "")


__all__ = ["LoopGraph", "Stages", "layout_text"]
