# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many tiles of a loop's loads `assign-layouts` has in shared memory at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from neptune_mlir.analysis.layouts import Shared, layout_of
from neptune_mlir.analysis.tiles import (
    element_bytes,
    element_of,
    is_added,
    load_window,
    multiple_of,
    nested,
    read_contraction,
    read_generic,
    row_distance,
    shape_of,
    tuned,
)
from neptune_mlir.dialects.attributes import WARPS
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, IN_FRAGMENTS, LAYOUT
from neptune_mlir.dialects.op_names import ADD_SLICE, START
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets import resources
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.targets.group_tiles import GROUP_ROWS
from neptune_mlir.targets.warp_groups import (
    CHUNK,
    F32_PANEL,
    RESERVED_BYTES,
    STAGED,
    panel_of,
    tile_bytes,
)
from neptune_mlir.transforms import fast_paths

Size = Callable[[Any], int]  # bytes of a load in shared memory


def stages_of(forall: Any, target: GpuTarget, loops: Sequence[Any], rows: int, asked: int) -> int:
    """The stages asked for; else the slots of rings for specialised warps; else 2, but enough for
    what is under way where products have so few rows that they wait for memory. Fewer where the
    tiles of a loop, all its stages, exceed shared memory.

    Args:
        rows: of the products of a kernel, at most.
        asked: 0 for nothing.
    """
    size = partial(_in_panels, forall) if CONSUMERS.on(forall) else _with_pitch
    once = _loaded(forall.regions[0].blocks[0], size)
    most = max((_loaded_at_once(loop, size) for loop in loops), default=0)
    stages = asked
    limit = target.shared_for(tuned(forall, "blocks", 1))
    if CONSUMERS.on(forall):
        limit -= exchanged_bytes(forall)
    if CONSUMERS.on(forall) and most and not stages:
        results = WARPS.find(forall, 0) * STAGED + RESERVED_BYTES
        late = RESERVED_BYTES if tuned(forall, "waits", 0) else 0
        late = results if any(map(_is_shared, loops)) else late
        stages = resources.ring_slots(limit, once, most, late)
    if not stages:
        waits = most and 0 < rows <= resources.ROWS
        stages = resources.stages_under_way(most) if waits else resources.STAGES
    if "cp.async" not in target.copies:  # what is under way is in registers
        return stages
    fitting = resources.fitting_stages(limit, once, most, stages)
    if fitting < stages:
        text = f"{fitting} stages: shared memory holds no more"
        fast_paths.missed(forall.location, fast_paths.STAGED, text, message=text)
    return fitting


def exchanged_bytes(forall: Any) -> int:
    """Bytes of the left factors of a loop that groups of warps make together."""
    found: dict[Any, int] = {}
    for op in nested(forall.regions[0].blocks[0]):
        if op.name == "linalg.copy" and LAYOUT.on(op):
            layout = layout_of(op, shape_of(op.results[0]))
            size = layout.bytes * places_of(op) if isinstance(layout, Shared) else 0
            found[op.parent] = found.get(op.parent, 0) + size
    return max(found.values(), default=0)


def added_panels(forall: Any) -> int:
    """Panels of f32 that a warp of a group stages of what its program adds to other programs'
    sums, at most: 16 rows, all columns or those of its group."""
    found = [0]
    from_registers = IN_FRAGMENTS.on(forall) and not tuned(forall, "adder", 0)
    for op in nested(forall.regions[0].blocks[0]):
        if op.name == ADD_SLICE and not from_registers:
            rows, columns = shape_of(op.operands[0])
            found.append(-(-columns * rows // (GROUP_ROWS * CONSUMERS.of(forall) * F32_PANEL)))
    return max(found)


def places_of(op: Any) -> int:
    """How many places a loop has for what a copy takes to shared memory. Two, in turns, for the
    left factor of a product that programs add up: groups that write the next one need not wait
    until others have read this one. (One where the next iteration reads it: it lies there.)"""
    if op.name != "linalg.copy" or op.parent.name != "scf.for":
        return 1
    users = [use.owner.operation for use in op.results[0].uses]
    products = [user for user in users if user.name in ("linalg.generic", START)]
    kept = len(products) == len(users) and step_of(op.parent) is not None
    return 2 if kept and any(is_added(_made_by(product)) for product in products) else 1


def _made_by(product: Any) -> Any:
    """What a product makes: that of a start is what is waited for."""
    (result,) = product.results
    waits = [use.owner.operation for use in result.uses if product.name == START]
    return waits[0].results[0] if waits else result


def step_of(loop: Any) -> int | None:
    """How far each iteration of a loop is from the next, where that is compiled in."""
    step = defining_op(loop.operands[2])
    return multiple_of(loop.operands[2]) if step and step.name == "arith.constant" else None


def _is_shared(loop: Any) -> bool:
    """Whether several products of a loop read a tile that it loads."""
    for op in loop.regions[0].blocks[0].operations:
        if is_staged(op.operation):
            readers = {use.owner.operation for use in op.operation.results[0].uses}
            generics = (read_generic(r) for r in readers if r.name == "linalg.generic")
            if sum(read_contraction(g) is not None for g in generics) > 1:
                return True
    return False


def is_boxed(forall: Any, value: Any) -> bool:
    """Whether a load that no product reads comes to shared memory all the same, by the copy engine:
    a tile of rows and columns that a loop of warp groups brings, or reads in each iteration, where
    `tile` reckoned with it."""
    level, op = tuned(forall, "boxes", 0), defining_op(value)
    window = load_window(value, forall) if level and op is not None else None
    if window is None:
        return False
    body = forall.regions[0].blocks[0]
    if op.block == body and any(use.owner.operation.block == body for use in value.uses):
        return False
    kind = ir.RankedTensorType(window.tensor.type)
    last = kind.rank - 1
    if len(window.shape) != 2 or window.dims[-1] != last or min(window.shape) == 1:
        return False
    whole = level > 1 and kind.is_dynamic_dim(last)
    whole = whole or row_distance(window.tensor) % CHUNK == 0
    return whole and element_of(value) in ("f16", "bf16")


def is_staged(op: Any) -> bool:
    """Whether an op is a load to shared memory."""
    return (
        op.name in ("tensor.pad", "tensor.extract_slice")
        and LAYOUT.on(op)
        and isinstance(layout_of(op, shape_of(op.results[0])), Shared)
    )


def _with_pitch(op: Any) -> int:
    """Bytes of a tile that threads copy."""
    return int(layout_of(op, shape_of(op.results[0])).bytes)


def _in_panels(forall: Any, op: Any) -> int:
    """Bytes of a tile that the copy engine brings."""
    window = load_window(op.results[0], forall)
    if window is None:
        return _with_pitch(op)
    *rows, columns = window.shape
    row, size = row_distance(window.tensor), element_bytes(element_of(op.results[0]))
    return tile_bytes(math.prod(rows), columns, panel_of(columns, row, size), size)


def _loaded_at_once(loop: Any, size: Size) -> int:
    """Bytes of one stage of the loads of a loop and of the loops around it."""
    total = 0
    while loop.name == "scf.for":
        total += _loaded(loop.regions[0].blocks[0], size)
        loop = loop.parent
    return total


def _loaded(block: Any, size: Size) -> int:
    """Bytes of shared memory that the loads of a block take, one stage."""
    staged = [op.operation for op in block.operations if is_staged(op.operation)]
    return sum(map(size, staged))
