# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `skew-loops`: in streamed loops, the last product is delayed by an iteration (sm_90a).

A loop of the form

    for i:  s = A * K[i];  (m, l, c, p) = f(s, m, l);  acc = c(acc) + p * V[i]

keeps matrix units idle while f runs, and the other way round. Skewed, an iteration issues the
first product of its own and the last of the iteration before, and f runs beside the latter:

    for i:  issue s = A * K[i];  issue acc += p * V[i-1];  wait s;  f;  wait acc;  acc = c(acc)

(software pipelining; for attention it is the overlap inside a warp group of FlashAttention-3,
section 3.2). What a loop computes does not matter, only its shape: two products, the first of
loaded tiles, the last of a computed left factor, added to a carried tile that nothing else reads;
or the last one alone, its left factor made of loaded tiles beside the product before it.
Loops that follow each other and carry on with the results of the one before form a chain: what
one leaves for later, the next one finishes. A loop that fits gets `neptune.skew`; a chain is
skewed as a whole or not at all, with a remark. `distribute-tiles` writes the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.tiles import (
    foralls,
    is_blank,
    is_inside,
    is_tensor,
    nested,
    owner,
    shape_of,
    tuned,
)
from neptune_mlir.dialects.verify_aref import GET, RELEASE
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.hopper.partition_warps import producer_of
from neptune_mlir.transforms.registry import register, remark


class Unfit(Exception):
    """Why a loop cannot be skewed, or cannot keep its reference; a remark tells it."""


@register("skew-loops", "delay the last product of streamed loops by an iteration")
def skew_loops(module: Any) -> None:
    for forall in foralls(module):
        if "neptune.consumers" not in forall.attributes or not tuned(forall, "skew", 1):
            continue
        producer_of(forall)  # or there are no rings to tell loads by
        for chain in _chains(forall):
            try:
                skews = [read_skew(loop) for loop in chain]
            except Unfit as reason:
                remark(chain[0].location, f"a loop is not skewed: {reason}")
                continue
            if any(_hands_on(s) != _hands_on(skews[0]) for s in skews):
                remark(chain[0].location, "a loop is not skewed: the next one has other tiles")
                continue
            for loop in chain:
                loop.attributes["neptune.skew"] = ir.UnitAttr.get()


@dataclass(frozen=True)
class Skew:
    """What a loop that can be skewed consists of.

    Attributes:
        leading: the first product, if there are two.
        delayed: the last product.
        carried: the number of the carried tile that it is added to.
        late: the ops that make the delayed product's left factor, and nothing else.
        corrections: the ops that change this tile before the product is added.
        handed: tiles of the same iteration that the corrections read.
        scales: whether all that corrections do is to multiply by elements of those.
        loads: shapes of the tiles of the first product's and of the delayed product's loads.
    """

    leading: Any
    delayed: Any
    carried: int
    late: tuple[Any, ...]
    corrections: tuple[Any, ...]
    handed: tuple[Any, ...]
    scales: bool
    loads: tuple[tuple[int, ...], ...]

    @property
    def products(self) -> list[Any]:
        return [*([] if self.leading is None else [self.leading]), self.delayed]


def chain_of(loop: Any) -> list[Any]:
    """The loops from `loop` on that carry each other's results."""
    chain = [loop]
    while (found := _next(chain[-1])) is not None:
        chain.append(found)
    return chain


def _next(loop: Any) -> Any:
    """The loop that starts with all results of `loop`, when only scalar ops stand between."""
    results = list(loop.results)
    uses = [use.owner.operation for value in results for use in value.uses]
    if not uses or any(use != uses[0] for use in uses):
        return None
    found = uses[0]
    if found.name != "scf.for" or list(found.operands)[3:] != results:
        return None
    operations = [op.operation for op in loop.block.operations if op.operation.name != RELEASE]
    between = operations[operations.index(loop) + 1 : operations.index(found)]
    if any(is_tensor(v) for op in between for v in [*op.results, *op.operands]):
        return None
    return found


def _chains(forall: Any) -> list[list[Any]]:
    chains: list[list[Any]] = []
    for op in forall.regions[0].blocks[0].operations:
        loop = op.operation
        streams = loop.name == "scf.for" and "neptune.stages" in loop.attributes
        if streams and not any(loop in chain for chain in chains):
            chains.append(chain_of(loop))
    return chains


def read_skew(loop: Any) -> Skew:
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
    if (leading is not None and len(first) + len(last) != len(loads)) or len(last) != 1:
        raise Unfit("a loaded tile that both products read, or neither")
    for value in [] if leading is None else list(leading.operands)[:-1]:
        source = owner(value)
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
        v for op in corrections for v in op.operands
        if v not in made and v != body.arguments[1 + carried]
        and is_inside(v, loop) and not is_blank(v)
    )
    shapes = tuple(shape_of(v) for v in [*first, *last])
    changed = {body.arguments[1 + carried], *made}
    scales = bool(corrections) and all(multiplies(op, changed, handed) for op in corrections)
    return Skew(leading, delayed, carried, tuple(late), corrections, tuple(handed), scales, shapes)


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


def _hands_on(skew: Skew) -> Any:
    """What the loops of a chain must have alike: one finishes what the one before leaves."""
    corrections = [
        (str(op.attributes["indexing_maps"]),
         [inside.operation.name for inside in op.regions[0].blocks[0].operations])
        for op in skew.corrections
    ]  # fmt: skip
    handed = [str(v.type) for v in skew.handed]
    return skew.loads, skew.carried, skew.scales, corrections, handed


def _reads_position(op: Any, loop: Any) -> bool:
    """Whether the body of a tile op reads a value of the loop around it."""
    return any(
        is_inside(v, loop) and not is_inside(v, op)
        for inside in nested(op.regions[0].blocks[0]) for v in inside.operands
    )  # fmt: skip


def is_product(op: Any) -> bool:
    via = "neptune.via" in op.attributes and ir.StringAttr(op.attributes["neptune.via"]).value
    return via == "mma"


def _is_load(op: Any) -> bool:
    """Whether it brings a tile to shared memory (or registers), or gets one that was brought."""
    brings = op.name in ("tensor.pad", "tensor.extract_slice")
    return op.name == GET or (brings and "neptune.layout" in op.attributes)


def _is_tile_op(op: Any) -> bool:
    return op.name == "linalg.generic"


def _read_only_by(value: Any, op: Any) -> bool:
    readers = [use.owner.operation for use in value.uses if use.owner.operation.name != RELEASE]
    return bool(readers) and all(reader == op for reader in readers)


__all__ = ["Skew", "chain_of", "read_skew", "skew_loops"]
