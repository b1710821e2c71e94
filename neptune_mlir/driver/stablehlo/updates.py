# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of tensors that others take the place of, where data say: a choice by position.

    dynamic_update_slice(x, u, s)   ->   s <= j < s + len(u) ? u[j - s] : x[j]
    dynamic_slice(x, s)             ->   gather(x, s)          (in a loop)

Its conversion makes a slice that begins at a number of the host, which knows none of data. In the
body of a loop it is that where the loop's counter says: what a step puts into a tensor is little
beside the tensor. What else a loop carries is data, and so is what it reads of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.driver.stablehlo.bodies import element_of, made, shape_of, spread
from neptune_mlir.driver.stablehlo.ops import (
    compared,
    conjunction,
    filled,
    integer,
    pad,
    positions,
    reshape,
    select_of,
)
from neptune_mlir.ir.bindings import ir


def within_loop(function: Any, counted: bool) -> None:
    """Let the body of a loop write and read at places that data say. Of one that is `counted` the
    first argument is a number of the host."""
    block = function.regions[0].blocks[0]
    known = list(block.arguments)[: int(counted)]
    choose_by_position(function, known)
    for op in [o.operation for o in block.operations]:
        if op.name != "stablehlo.dynamic_slice" or not op.operands[0].type.has_static_shape:
            continue
        whole, *starts = op.operands
        if any(_is_of_data(start, known) for start in starts):
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_gathered(whole, starts, op.results[0]))
            op.erase()


def _gathered(whole: Any, starts: Sequence[Any], result: Any) -> Any:
    rank, index = len(starts), element_of(starts[0])
    if not rank:
        return whole
    parts = [reshape(start, [1]) for start in starts]
    along = ir.IntegerAttr.get(integer(64), 0)
    places = made("concatenate", parts, [rank], index, dimension=along)
    every = list(range(rank))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {every}, start_index_map = {every}, index_vector_dim = 0>"
    )
    return made(
        "gather", [whole, places], shape_of(result), element_of(result),
        dimension_numbers=numbers, slice_sizes=ir.DenseI64ArrayAttr.get(shape_of(result)),
    )  # fmt: skip


def choose_by_position(function: Any, known: Sequence[Any] = ()) -> bool:
    """Whether a function had updates at places that its arguments say, but for those that are
    `known`; those of its body alone."""
    changed = False
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if op.name != "stablehlo.dynamic_update_slice":
            continue
        whole, part, *starts = op.operands
        if any(not v.type.has_static_shape for v in (whole, part)) or 0 in shape_of(part):
            continue
        if not any(_is_of_data(start, known) for start in starts):
            continue  # written out, it is known
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(_chosen(whole, part, starts))
        op.erase()
        changed = True
    return changed


def _is_of_data(value: Any, known: Sequence[Any]) -> bool:
    """Whether a value is made of an argument, but for those that are known, or of what has
    regions."""
    seen, todo = set(), [value]
    while todo:
        one = todo.pop()
        if one in known:
            continue
        if isinstance(one.owner, ir.Block) or one.owner.regions:
            return True
        if one not in seen:
            seen.add(one)
            todo += one.owner.operands
    return False


def _chosen(whole: Any, part: Any, starts: list[Any]) -> Any:
    moved, inside = placed(part, starts, shape_of(whole))
    return select_of(conjunction(inside), moved, whole) if inside else moved


def placed(part: Any, starts: list[Any], shape: Sequence[int]) -> tuple[Any, list[Any]]:
    """A tensor of a shape that has a part at a place, and the conditions for that place."""
    size, index = shape_of(part), element_of(starts[0])
    starts = [_clamped(start, n - m, index) for start, n, m in
              zip(starts, shape, size, strict=True)]  # fmt: skip
    # the part with as many zeros on both sides as the tensor is long: from n - s on it stands at s
    wide = pad(part, list(shape), list(shape), [0] * len(shape))
    from_ = [made("subtract", [filled([], index, n), s], [], index)
             for s, n in zip(starts, shape, strict=True)]  # fmt: skip
    sizes = ir.DenseI64ArrayAttr.get(list(shape))
    moved = made("dynamic_slice", [wide, *from_], shape, element_of(part), slice_sizes=sizes)
    inside = []
    for dim, (start, m) in enumerate(zip(starts, size, strict=True)):
        if m == shape[dim]:
            continue
        at = positions(shape, dim, index)
        end = made("add", [start, filled([], index, m)], [], index)
        inside += [compared("GE", at, spread(start, shape, [])),
                   compared("LT", at, spread(end, shape, []))]  # fmt: skip
    return moved, inside


def _clamped(start: Any, most: int, index: Any) -> Any:
    low = made("maximum", [start, filled([], index, 0)], [], index)
    return made("minimum", [low, filled([], index, most)], [], index)
