# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which reductions of the program as written the ops of a fused program come from.

Streams record what their derivation calls each running value. These names number the reductions of
the function, so they are the same for the program as written. This is for programs whose
operations all have one place in their source, as those built from a formula have.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.attributes import INNER, RUNNING
from neptune_mlir.dialects.op_names import ACCUMULATE, GLOBAL, NESTS, PRIVATE, REDUCE, STREAM
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.driver.explain import Listing
from neptune_mlir.ir.bindings import ir


def sources_of(written: Listing, fused: Listing) -> dict[Any, Any]:
    """By op of the fused program: the op of the program as written that it comes from, where that
    is known."""
    with written.function.operation.context:
        program = NestProgram(written.function)
    made = {key: nest.op.operation for key, nest in program.nests.items()}
    known = _Provenance(made)
    for stream in fused.running:
        known.stream(stream)
    known.rest(fused.function.regions[0].blocks[0])
    known.results(written.function, fused.function)
    return known.found


class _Provenance:
    """Goes from what streams record to the ops around it."""

    def __init__(self, made: dict[str, Any]):
        self._made = made
        self._values: dict[Any, Any] = {}  # of values outside of nests
        self.found: dict[Any, Any] = {}

    def _note(self, op: Any, source: Any) -> None:
        if source is not None:
            self.found[op] = source
            self._values |= dict.fromkeys(op.results, source)

    def stream(self, stream: Any) -> None:
        body = [op.operation for op in stream.regions[0].blocks[0].operations]
        produced = list(body[-1].operands)
        names = RUNNING.find(stream, [])
        if len(names) != len(produced):
            return
        for value, name in zip(produced, names, strict=True):
            source = self._made.get(name.split(".")[0])
            if not isinstance(value.owner, ir.Block):
                self._note(value.owner.operation, source)
        inner = [op for op in body if op.name == REDUCE]
        for op, name in zip(inner, INNER.find(stream, []), strict=False):
            self._note(op, self._made.get(name))
        for op in reversed(body[:-1]):  # the rest belongs to what uses it first
            if op not in self.found and op.name != ACCUMULATE:
                users = [_outermost(use.owner, op.block) for r in op.results for use in r.uses]
                users.sort(key=body.index)
                self._note(op, next((self.found[u] for u in users if u in self.found), None))
        for result, value in zip(stream.results, self._finished(stream), strict=True):
            source = self._values.get(value)
            if source is not None:
                self._values[result] = source

    def _finished(self, stream: Any) -> list[Any]:
        """What a stream gives, finish arguments being the running values."""
        produced = list(stream.regions[0].blocks[0].operations)[-1].operation.operands
        given = list(stream.regions[1].blocks[0].operations)[-1].operation.operands
        return [
            produced[v.arg_number] if isinstance(v.owner, ir.Block) else v for v in given
        ]

    def rest(self, block: Any) -> None:
        """Ops behind streams come from what they read first."""
        for op in block.operations:
            operation = op.operation
            if operation.name == PRIVATE:
                last = list(operation.regions[0].blocks[0].operations)[-1].operation
                for result, value in zip(operation.results, last.operands, strict=True):
                    if value in self._values:
                        self._values[result] = self._values[value]
                continue
            if operation.name in NESTS and operation not in self.found:
                read = [v for inner in operation.regions[0].blocks[0].operations
                        for v in inner.operation.operands]  # fmt: skip
                known = (self._values[v] for v in read if v in self._values)
                self._note(operation, next(known, None))
            elif operation.name != STREAM:
                for region in operation.regions:
                    for inner in region.blocks:
                        self.rest(inner)

    def results(self, written: Any, fused: Any) -> None:
        """What the functions return goes together."""
        ends = [list(f.regions[0].blocks[0].operations)[-1].operation for f in (written, fused)]
        for before, after in zip(ends[0].operands, ends[1].operands, strict=False):
            op, source = _maker(after), before.owner
            if op is not None and not isinstance(source, ir.Block):
                self.found[op] = source.operation


def _maker(value: Any) -> Any | None:
    """The nest that makes a value, in a fused op or alone."""
    while not isinstance(value.owner, ir.Block):
        op = value.owner.operation
        if op.name in NESTS:
            return op
        if op.name not in (STREAM, PRIVATE, GLOBAL):
            return None
        region = op.regions[1 if op.name == STREAM else 0]
        value = list(region.blocks[0].operations)[-1].operation.operands[
            list(op.results).index(value)
        ]
    return None


def _outermost(user: Any, block: Any) -> Any:
    operation = user.operation
    while operation.block != block:
        operation = operation.parent.operation
    return operation
