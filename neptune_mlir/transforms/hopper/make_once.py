# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `make-once`: what groups of warps would all make, the first one makes for all (sm_90a).

Groups that share the columns of a wide result need the same left factor, all of it. Where
`assign-layouts` has one group make it (`neptune.handed` on the copy to shared memory), everything
that it is made of runs in the first group alone (`neptune.once`):

    first group                             others
    S = Q K', m, p, c, l                    take c, p
    give c, p                               acc = acc * c + p V[its columns]
    acc = acc * c + p V[its columns]

So the others multiply while the first one computes the next tile's factor, and no group waits for
what another reduced of a row. A tile that is made once and read by an op of all groups is handed
over too: all that a block hands is handed together, in front of its first reader.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout, parse
from neptune_mlir.analysis.tiles import (
    element_bytes,
    element_of,
    foralls,
    is_tensor,
    nested,
    shape_of,
)
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, HANDED, ITERATION, LAYOUT, ONCE
from neptune_mlir.dialects.op_names import GET, JOIN, RELEASE, START, WAIT
from neptune_mlir.ir.bindings import ir, linalg, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.hopper.loop_graph import layout_text
from neptune_mlir.transforms.registry import register

STORES = ("tensor.insert_slice", "tensor.parallel_insert_slice")
LOOPS = ("scf.for", "scf.if")


@register("make-once", "let one group of warps make what all of them read")
def make_once(module: Any) -> None:
    for forall in foralls(module):
        body = forall.regions[0].blocks[0]
        if CONSUMERS.on(forall) and any(HANDED.on(op) for op in nested(body)):
            with forall.context, forall.location:
                _Once(body).run()


class _Once:
    """One program."""

    def __init__(self, body: Any):
        self.ops = list(nested(body))
        self.made: set[Any] = set()  # tiles that the first group makes

    def run(self) -> None:
        size = -1
        while size != len(self.made):
            size = len(self.made)
            for op in self.ops:
                self._visit(op)
        for op in reversed(self.ops):
            if op.name == GET and self._is_read_once(op):
                ONCE.set(op)
                for use in op.results[0].uses:
                    if use.owner.operation.name == RELEASE:
                        ONCE.set(use.owner.operation)
        blocks: dict[Any, list[Any]] = {}
        for op in self.ops:
            if not ONCE.on(op) and op.name not in LOOPS and self._reads(op):
                blocks.setdefault(op.block, []).append(op)
        for block, readers in blocks.items():
            self._hand(block, readers)

    def _reads(self, op: Any) -> bool:
        """Whether an op of all groups reads what one makes."""
        if op.name in ("scf.yield", "tensor.extract_slice"):
            return False
        return any(v in self.made for v in op.operands)

    def _visit(self, op: Any) -> None:
        """Mark an op that is to run once, and note what it makes."""
        if op.name in LOOPS:
            self._visit_loop(op)
            return
        given = any(v in self.made for v in op.operands)
        if op.name == START:
            given = L.is_replicated(parse(LAYOUT.of(op), shape_of(list(op.operands)[-1])))
        elif op.name == "tensor.extract_slice" and given:  # the part of it that is stored
            self.made.add(op.results[0])
            return
        elif op.name == "linalg.generic":
            layout = parse(LAYOUT.of(op), shape_of(op.results[0]))
            given = given and isinstance(layout, Layout) and L.is_replicated(layout)
        if given and op.name in (START, WAIT, JOIN, "linalg.generic", *STORES):
            ONCE.set(op)
            self.made.update(v for v in op.results if op.name not in STORES)

    def _visit_loop(self, op: Any) -> None:
        """What a loop carries or a branch gives is made once where one of its values is."""
        ends = [list(region.blocks[0].operations)[-1].operation for region in op.regions
                if len(region.blocks)]  # fmt: skip
        for k, result in enumerate(op.results):
            values = [end.operands[k] for end in ends]
            values += [op.operands[3 + k]] if op.name == "scf.for" else []
            if is_tensor(result) and (result in self.made or any(v in self.made for v in values)):
                self.made.add(result)
                if op.name == "scf.for":
                    self.made.add(op.regions[0].blocks[0].arguments[1 + k])

    def _is_read_once(self, get: Any) -> bool:
        readers = [use.owner.operation for use in get.results[0].uses]
        readers = [op for op in readers if op.name != RELEASE]
        return bool(readers) and all(ONCE.on(op) for op in readers)

    # ---- what is handed over

    def _hand(self, block: Any, readers: list[Any]) -> None:
        """Copies of all that ops of all groups read in a block, in front of the first of them."""
        known = {op.operands[0]: op for op in readers if HANDED.on(op)}
        others = [op for op in readers if not HANDED.on(op)]
        for op in reversed(others):
            _sink(op)
        handed = {v for op in others for v in op.operands if v in self.made} | set(known)
        users = [*others, *(u.owner.operation for c in known.values() for u in c.results[0].uses)]
        order = [op.operation for op in block.operations]
        first = min(users, key=order.index)
        for value in sorted(handed, key=_order):
            copy = known.get(value) or self._copy(first, value)
            copy.move_before(first)
            ITERATION.set(copy, _layout_text(value))
            for op in others:
                for k, operand in enumerate(op.operands):
                    if operand == value:
                        op.operands[k] = copy.results[0]

    def _copy(self, at: Any, value: Any) -> Any:
        with ir.InsertionPoint(at), at.location:
            kind = ir.RankedTensorType(value.type)
            empty = tensor.empty(shape_of(value), kind.element_type)
            copy = defining_op(linalg.copy(value, outs=[empty]))
        size = element_bytes(element_of(value))
        LAYOUT.set(copy, str(L.shared(shape_of(value), size)))
        HANDED.set(copy)
        return copy


def _sink(op: Any) -> None:
    """Move an op in front of its first reader, so that less stands before what is handed."""
    uses = [use.owner.operation for v in op.results for use in v.uses]
    if op.name == "linalg.generic" and uses and all(use.block == op.block for use in uses):
        order = [other.operation for other in op.block.operations]
        op.move_before(min(uses, key=order.index))


def _layout_text(value: Any) -> str:
    made = defining_op(value)
    joined = made is not None and made.name == JOIN
    return layout_text(made.operands[0] if joined else value)


def _order(value: Any) -> tuple[int, int]:
    """Tiles of fewer dimensions first; the order is that of the program otherwise."""
    made = defining_op(value)
    if made is None:
        return len(shape_of(value)), value.arg_number
    order = [op.operation for op in made.block.operations]
    return len(shape_of(value)), order.index(made)
