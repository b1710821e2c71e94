# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of tensors that others take the place of, where data say: a choice by position.

    dynamic_update_slice(x, u, s)   ->   s <= j < s + len(u) ? u[j - s] : x[j]

Its conversion makes a slice that begins at a number of the host, which knows none of data. In the
body of a loop it is that: what a step puts into a tensor is little beside the tensor.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.driver.stablehlo.bodies import element_of, made, shape_of, spread
from neptune_mlir.driver.stablehlo.ops import (
    compared,
    conjunction,
    filled,
    pad,
    positions,
    select_of,
)
from neptune_mlir.ir.bindings import ir


def choose_by_position(function: Any) -> bool:
    """Whether a function had updates at places that its arguments say; those of its body alone."""
    changed = False
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if op.name != "stablehlo.dynamic_update_slice":
            continue
        whole, part, *starts = op.operands
        if any(not v.type.has_static_shape for v in (whole, part)) or 0 in shape_of(part):
            continue
        if not any(_is_of_data(start) for start in starts):
            continue  # written out, it is known
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(_chosen(whole, part, starts))
        op.erase()
        changed = True
    return changed


def _is_of_data(value: Any) -> bool:
    """Whether a value is made of an argument, or of what has regions."""
    seen, todo = set(), [value]
    while todo:
        one = todo.pop()
        if isinstance(one.owner, ir.Block) or one.owner.regions:
            return True
        if one not in seen:
            seen.add(one)
            todo += one.owner.operands
    return False


def _chosen(whole: Any, part: Any, starts: list[Any]) -> Any:
    shape, size = shape_of(whole), shape_of(part)
    index = element_of(starts[0])
    starts = [_clamped(start, n - m, index) for start, n, m in
              zip(starts, shape, size, strict=True)]  # fmt: skip
    # the part with as many zeros on both sides as the tensor is long: from n - s on it stands at s
    wide = pad(part, shape, shape, [0] * len(shape))
    from_ = [made("subtract", [filled([], index, n), s], [], index)
             for s, n in zip(starts, shape, strict=True)]  # fmt: skip
    sizes = ir.DenseI64ArrayAttr.get(shape)
    moved = made("dynamic_slice", [wide, *from_], shape, element_of(whole), slice_sizes=sizes)
    inside = []
    for dim, (start, m) in enumerate(zip(starts, size, strict=True)):
        if m == shape[dim]:
            continue
        at = positions(shape, dim, index)
        end = made("add", [start, filled([], index, m)], [], index)
        inside += [compared("GE", at, spread(start, shape, [])),
                   compared("LT", at, spread(end, shape, []))]  # fmt: skip
    return select_of(conjunction(inside), moved, whole) if inside else moved


def _clamped(start: Any, most: int, index: Any) -> Any:
    low = made("maximum", [start, filled([], index, 0)], [], index)
    return made("minimum", [low, filled([], index, most)], [], index)
