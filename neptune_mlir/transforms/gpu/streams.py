# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What streamed loops of tile IR consist of, for passes that look for more than one op.

Loops that follow each other and carry on with the results of the one before form a chain: what one
leaves for later, the next one finishes. Passes that change what a loop carries change all of them.

Loops of one kind rescale what they sum (`read_accumulation`):

    for i:  s = A * K[i];  (m, l, c, p) = f(s, m, l);  acc = c(acc) + p * V[i]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.tiles import is_blank, is_inside, is_tensor, nested, shape_of
from neptune_mlir.dialects.gpu_attributes import LAYOUT, VIA
from neptune_mlir.dialects.op_names import GET, RELEASE
from neptune_mlir.ir.values import defining_op


class Unfit(Exception):
    """Why a loop does not qualify for a rewrite; a remark tells it."""


@dataclass(frozen=True)
class Accumulation:
    """The parts of a loop whose last matmul adds to a carried tile.

    Attributes:
        leading: the first matmul, if there are two.
        delayed: the last matmul.
        carried: the number of the carried tile that it is added to.
        late: the ops that make the last matmul's left factor, and nothing else.
        corrections: the ops that change this tile before the matmul adds to it.
        handed: tiles of the same iteration that the corrections read.
        scales: whether all that corrections do is to multiply by elements of those.
    """

    leading: Any
    delayed: Any
    carried: int
    late: tuple[Any, ...]
    corrections: tuple[Any, ...]
    handed: tuple[Any, ...]
    scales: bool

    @property
    def products(self) -> list[Any]:
        return [*([] if self.leading is None else [self.leading]), self.delayed]


def chain_of(loop: Any) -> list[Any]:
    """The loops from `loop` on that carry each other's results."""
    chain = [loop]
    while (found := _next(chain[-1])) is not None:
        chain.append(found)
    return chain


def chains_of(forall: Any, wanted: Callable[[Any], bool]) -> list[list[Any]]:
    """The chains of loops in a tile program, loops within loops too, whose first loop is wanted."""
    found: list[list[Any]] = []
    for loop in nested(forall.regions[0].blocks[0]):
        if loop.name == "scf.for" and not any(loop in chain for chain in found) and wanted(loop):
            found.append(chain_of(loop))
    return found


def _next(loop: Any) -> Any:
    """The loop that starts with all results of `loop`, when no tile is made between them. (A number
    is: what a tensor says of where the stream ends is read in front of the loop with a mask.)"""
    results = list(loop.results)
    uses = [use.owner.operation for value in results for use in value.uses]
    if not uses or any(use != uses[0] for use in uses):
        return None
    found = uses[0]
    if found.name != "scf.for" or list(found.operands)[3:] != results:
        return None
    operations = [op.operation for op in loop.block.operations if op.operation.name != RELEASE]
    between = operations[operations.index(loop) + 1 : operations.index(found)]
    if any(is_tensor(v) and shape_of(v) for op in between for v in op.results):
        return None
    return found


def read_accumulation(loop: Any) -> Accumulation:
    """Raises Unfit when the loop has another shape."""
    body = loop.regions[0].blocks[0]
    *inner, end = [op.operation for op in body.operations]
    products = [op for op in inner if is_product(op)]
    if not 1 <= len(products) <= 2:
        raise Unfit(f"{len(products)} products")
    delayed, leading = products[-1], products[0] if len(products) == 2 else None
    loads = [op.results[0] for op in inner if _is_load(op)]
    last = [v for v in loads if _read_only_by(v, delayed)]
    first = [] if leading is None else [v for v in loads if _read_only_by(v, leading)]
    if leading is None and all(v in loads for v in list(delayed.operands)[:-1]):
        raise Unfit("its product takes loaded tiles, so that nothing runs beside it")
    beside = [v for v in loads if v not in (*first, *last)]
    if leading is not None and any(
        defining_op(v).name != GET or _read_by(v, products) for v in beside
    ):
        raise Unfit("a loaded tile that both products read, or that no ring brings beside them")
    if len(last) != 1:
        raise Unfit("the last product has no loaded tile of its own")
    for value in [] if leading is None else list(leading.operands)[:-1]:
        source = defining_op(value)
        if source is None or not _is_load(source):
            raise Unfit("the first product has a computed factor")
    result = delayed.results[0]
    if not _read_only_by(result, end):
        raise Unfit("the last product is read in its own iteration")
    carried = list(end.operands).index(result)
    corrections = _corrections(inner, delayed, body.arguments[1 + carried], end)
    # the left factor takes registers that the delayed product still reads: it is made last
    factors = [op for op in inner if op.results and _read_only_by(op.results[0], delayed)]
    late = [op for op in factors if op not in corrections and not _is_load(op) and _is_tile_op(op)]
    made = [op.results[0] for op in corrections]
    if any(_reads_position(op, loop) for op in corrections):
        raise Unfit("a correction that depends on the iteration's number")
    handed = dict.fromkeys(
        v
        for op in corrections
        for v in op.operands
        if v not in made
        and v != body.arguments[1 + carried]
        and is_inside(v, loop)
        and not is_blank(v)
    )
    changed = {body.arguments[1 + carried], *made}
    scales = bool(corrections) and all(multiplies(op, changed, handed) for op in corrections)
    return Accumulation(leading, delayed, carried, tuple(late), corrections, tuple(handed), scales)


def multiplies(op: Any, changed: set[Any], handed: Any) -> bool:
    """Whether a tile op is the product of a value in `changed` and one in `handed`, element by
    element."""
    block = op.regions[0].blocks[0]
    tiles = list(op.operands)[:-1]
    if sum(v in changed for v in tiles) != 1 or sum(v in handed for v in tiles) != 1:
        return False
    first = block.operations[0].operation
    inputs = list(block.arguments)[:-1]
    return (
        len(list(block.operations)) == 2 and first.name == "arith.mulf"
        and len(inputs) == 2 and set(first.operands) == set(inputs)
    )  # fmt: skip


def _corrections(inner: Sequence[Any], delayed: Any, accumulator: Any, end: Any) -> tuple[Any, ...]:
    """The ops that have to wait for the delayed product of the iteration before."""
    waiting = {accumulator}
    found = []
    for op in inner:
        if op == delayed:
            continue
        if any(v in waiting for v in op.operands):
            waiting.update(op.results)
            found.append(op)
    others = [v for v in end.operands if v != delayed.results[0]]
    if any(v in waiting for v in [*others, *list(delayed.operands)[:-1]]):
        raise Unfit("more than the last product depends on what it is added to")
    return tuple(found)


def _reads_position(op: Any, loop: Any) -> bool:
    """Whether the body of a tile op reads a value of the loop around it."""
    return any(
        is_inside(v, loop) and not is_inside(v, op)
        for inside in nested(op.regions[0].blocks[0]) for v in inside.operands
    )  # fmt: skip


def is_product(op: Any) -> bool:
    return VIA.find(op) == "mma"


def _is_load(op: Any) -> bool:
    """Whether it brings a tile to shared memory (or registers), or gets one that was brought."""
    brings = op.name in ("tensor.pad", "tensor.extract_slice")
    return op.name == GET or (brings and LAYOUT.on(op))


def _is_tile_op(op: Any) -> bool:
    return op.name == "linalg.generic"


def _read_by(value: Any, ops: Sequence[Any]) -> bool:
    return any(use.owner.operation in ops for use in value.uses)


def _read_only_by(value: Any, op: Any) -> bool:
    readers = [use.owner.operation for use in value.uses if use.owner.operation.name != RELEASE]
    return bool(readers) and all(reader == op for reader in readers)


__all__ = ["Accumulation", "chain_of", "chains_of", "read_accumulation"]
