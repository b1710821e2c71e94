# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks that run at once (a cluster): of programs that share what they load, or a sum.

*Pairs* (choice `pairs`: 1 for the last variable of the grid, 2 for the one before).

    program (i, n):   for k: x[i, k], w[k, n]          programs (i, 2 n), (i, 2 n + 1):
                                                           x[i, k] is loaded once, for both

The second-level cache gives a multiprocessor fewer bytes in a step of a product than the tiles of
that step have, where all multiprocessors run. Of two programs that differ in one variable of the
grid, tiles that do not depend on it are the same, and each brings one half of them to both. So
both ask for less: of tiles of 128 rows and 192 columns for 224 rows in place of 320. Both have to
bring as many tiles, in the same order, so bounds of loops may not depend on that variable, and
producers may not look anything up. (Two heads of a group stream the same, too: what says which
group a head is in is the same for both where groups are pairs.)

*Sums* (choice `sums`: how many blocks).

    program (i, n):                       block r of 4 of program (i, n):
      for k: acc += x[i, k] w[k, n]         for k of the r-th quarter: acc += x[i, k] w[k, n]
      o[i, n] = f(acc)                      of all blocks' acc, those of some warps: added up
                                            o[i, n] = f(acc), these rows of it

A product with few tiles leaves most of the chip idle. Cut into chunks (`privatize`) there are more
programs, but what they sum up goes through memory, and another kernel joins it. In a cluster each
warp reads what the same warps of other blocks have, from their shared memory, and goes on: a part
of the warps of each block, so that all have as much to do. That is for a program of one loop, which
adds one product to 0, where nothing behind it is for other threads than those that have its
elements. (Blocks that stay have other tiles under way in the memory that sums go through.)

This pass takes back the choices where programs cannot do so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from neptune_mlir.analysis.tiles import (
    Window,
    foralls,
    is_inside,
    load_window,
    nested,
    note_choices,
    read_generic,
    tuned,
)
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, RESIDENT
from neptune_mlir.dialects.op_names import ADD_SLICE, GET, PAGED, PUT, RELEASE
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.hopper.partition_warps import producer_of
from neptune_mlir.transforms.hopper.specialize_warps import GROUP
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.grid_direction import depends_on
from neptune_mlir.transforms.tiling.host_plan import fold

PAIR = 2  # blocks
HALF = 16  # rows whose half is whole swizzles
BEHIND = ("tensor.extract_slice", "tensor.empty", "affine.apply", "affine.min", "linalg.generic")


@register("form-clusters", "let blocks that run at once share what they load, or a sum")
def form_clusters(module: Any) -> None:
    for forall in foralls(module):
        pairs, sums = tuned(forall, "pairs", 0), tuned(forall, "sums", 0)
        if sums and not _may_share_sum(forall, sums):
            note_choices(forall, {"sums": 0})
        if not pairs:
            continue
        if tuned(forall, "sums", 0) or not _may_pair(forall, pairs):
            note_choices(forall, {"pairs": 0})
        else:
            _end_together(forall, pairs)


def _may_share_sum(forall: Any, blocks: int) -> bool:
    if blocks < PAIR or not CONSUMERS.on(forall) or RESIDENT.on(forall):
        return False
    return blocks <= GROUP * CONSUMERS.of(forall) and _summing_loop(forall) is not None


def blocks_of(forall: Any, grid: tuple[Any, ...]) -> tuple[Any, ...]:
    """The blocks of a grid of programs, behind this pass."""
    if pairs := tuned(forall, "pairs", 0):
        at = len(grid) - pairs
        grid = (*grid[:at], fold("mul", fold("ceildiv", grid[at], PAIR), PAIR), *grid[at + 1 :])
    sums = tuned(forall, "sums", 0)
    return (fold("mul", grid[0], sums), *grid[1:]) if sums else grid


def _rank(forall: Any) -> int:
    """How many variables its grid has."""
    block = forall.regions[0].blocks[0]
    return len(block.arguments) - len(forall.results)


def _may_pair(forall: Any, wanted: int) -> bool:
    """Whether programs that differ in one variable of the grid can share some tiles."""
    block, rank = forall.regions[0].blocks[0], _rank(forall)
    adds = any(op.name == ADD_SLICE for op in nested(block))
    if not CONSUMERS.on(forall) or rank < wanted or adds:
        return False
    variable = block.arguments[rank - wanted]
    producer = producer_of(forall).regions[0].blocks[0]
    ops = list(nested(producer))
    loops = [op for op in ops if op.name == "scf.for"]
    if any(_bounds_depend(op, variable, forall) for op in loops):
        both = [_loops_of(b) for b in (producer, block)]
        if len(loops) > len(both[0]) or not all(_may_end(x, variable, forall) for x in both):
            return False
    if any(op.name in ("tensor.extract", "scf.if", PAGED) for op in ops):
        return False
    return any(shares(forall, variable, op) for op in ops if op.name == PUT)


def _bounds_depend(loop: Any, variable: Any, forall: Any) -> bool:
    return any(depends_on(v, variable, forall) for v in list(loop.operands)[:3])


def _loops_of(block: Any) -> list[Any]:
    return [op.operation for op in block.operations if op.operation.name == "scf.for"]


def _may_end(loops: list[Any], variable: Any, forall: Any) -> bool:
    """Whether loops begin at the same place in both programs of a pair, and one goes on where the
    one before ends."""
    if not 0 < len(loops) <= PAIR:
        return False
    spans = [list(op.operands)[:3] for op in loops]
    alike = [spans[0][0], *(step for *_, step in spans)]
    if any(depends_on(v, variable, forall) for v in alike):
        return False
    return all(before[1] == after[0] for before, after in pairwise(spans))


def _end_together(forall: Any, pairs: int) -> None:
    """Have both programs of a pair stream to the end of the longer one: in the last loop, which has
    the mask that ends what the shorter one adds up; in the one before, as far as both may."""
    block = forall.regions[0].blocks[0]
    variable = block.arguments[_rank(forall) - pairs]
    for inside in (producer_of(forall).regions[0].blocks[0], block):
        loops = _loops_of(inside)
        if not any(_bounds_depend(op, variable, forall) for op in loops):
            continue
        with forall.location, ir.InsertionPoint(loops[0]):
            first = ix.scale(ix.floordiv(variable, PAIR), PAIR)
            places = [ix.value(first), ix.value(ix.add(first, 1))]
            ends = [
                [_copy(op.operands[1], {variable: place}, forall) for place in places]
                for op in loops
            ]
            found = [ix.value(ix.minimum(*end)) for end in ends[:-1]]
            found.append(ix.value(ix.maximum(*ends[-1])))
        for k, (loop, end) in enumerate(zip(loops, found, strict=True)):
            loop.operands[1] = end
            if k:
                loop.operands[0] = found[k - 1]


def _copy(value: Any, copies: dict[Any, Any], forall: Any) -> Any:
    """A scalar of a tile program, at the insertion point, where others stand for some values."""
    if value in copies or not is_inside(value, forall) or isinstance(value.owner, ir.Block):
        return copies.get(value, value)
    op = defining_op(value)
    operands = [_copy(operand, copies, forall) for operand in op.operands]
    made = op.clone()
    for k, operand in enumerate(operands):
        made.operands[k] = operand
    copies[value] = made.results[0]
    return made.results[0]


def shares(forall: Any, variable: Any, put: Any) -> bool:
    """Whether a tile is the same whatever a variable of the grid is, and has halves."""
    window = load_window(put.operands[1], forall)
    if window is None or window.pages is not None or len(window.shape) != 2:
        return False
    return not window.shape[0] % HALF and not _depends(window, variable, forall)


def _depends(window: Window, variable: Any, forall: Any) -> bool:
    """Whether a window is another one for the two programs of a pair."""
    offsets = (v for v in window.offsets if not isinstance(v, int))
    return any(depends_on(v, variable, forall) and not _of_pair(v, variable) for v in offsets)


def _of_pair(value: Any, variable: Any) -> bool:
    """Whether a value is the number of a group, of as many pairs, that a variable is in."""
    op = defining_op(value)
    if op is None or op.name != "affine.apply" or list(op.operands) != [variable]:
        return False
    (place,) = ir.AffineMapAttr(op.attributes["map"]).value.results
    if not isinstance(place, ir.AffineFloorDivExpr):
        return False
    group = place.rhs if isinstance(place.lhs, ir.AffineDimExpr) else None
    return isinstance(group, ir.AffineConstantExpr) and group.value % PAIR == 0


def _summing_loop(forall: Any) -> Any:
    """The only loop of a program, if it adds up a product and what follows is for each element."""
    ops = [op.operation for op in forall.regions[0].blocks[0].operations]
    producing = [op.operation for op in producer_of(forall).regions[0].blocks[0].operations]
    loops = [op for op in ops if op.name == "scf.for"]
    if len(loops) != 1 or [op.name for op in producing] != ["scf.for"]:
        return None
    (loop,) = loops
    behind = ops[ops.index(loop) + 1 : -1]
    before = [op for op in ops[: ops.index(loop)] if op.name in (GET, ADD_SLICE)]
    if before or not all(op.name in BEHIND and _is_for_each(op) for op in behind):
        return None
    return loop if _adds_a_product(loop) else None


def _is_for_each(op: Any) -> bool:
    """Whether an op makes each element of those at the same place."""
    if op.name != "linalg.generic":
        return True
    g = read_generic(op)
    return all(list(m) == list(g.maps[-1]) for m in g.maps)


def _adds_a_product(loop: Any) -> bool:
    """Whether a loop has but one product, added to what it began with: 0."""
    block = loop.regions[0].blocks[0]
    *inside, end = [op.operation for op in block.operations]
    if len(loop.results) != 1 or not _is_zero(loop.operands[3]):
        return False
    products = [op for op in inside if op.name not in (GET, RELEASE)]
    if len(products) != 1 or len(list(nested(block))) != len(inside) + 1:
        return False
    (product,) = products
    sums = product.operands[len(product.operands) - 1] == block.arguments[1]
    return sums and list(end.operands) == list(product.results)


def _is_zero(value: Any) -> bool:
    fill = defining_op(value)
    if fill is None or fill.name != "linalg.fill":
        return False
    constant = defining_op(fill.operands[0])
    return (
        constant is not None and constant.name == "arith.constant"
        and ir.FloatAttr(constant.attributes["value"]).value == 0
    )
