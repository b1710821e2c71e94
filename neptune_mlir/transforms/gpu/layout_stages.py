# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many tiles of a loop's loads `assign-layouts` has in shared memory at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from neptune_mlir.analysis.layouts import Shared, layout_of
from neptune_mlir.analysis.tiles import load_window, shape_of, tuned
from neptune_mlir.dialects.attributes import CONSUMERS, LAYOUT
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.targets.warp_groups import RESULT_BYTES, panel_of, tile_bytes
from neptune_mlir.transforms.registry import remark

UNDER_WAY = 32 << 10  # bytes that a program which waits for memory has on their way
MOST_STAGES = 6

Size = Callable[[Any], int]  # bytes of a load in shared memory


def stages_of(forall: Any, target: GpuTarget, loops: Sequence[Any], rows: int, asked: int) -> int:
    """The stages asked for; else 4 for specialised warps where there is room, or 2, but enough
    for UNDER_WAY where products have so few rows that they wait for memory; fewer where the
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
    if CONSUMERS.on(forall) and not stages:
        # slots of rings: loads outside of loops have two, results need room as well
        room = limit - 2 * once - RESULT_BYTES
        stages = 4 if 4 * most <= room else 2
    if not stages:
        waits = most and 0 < rows <= 16
        stages = max(2, min(MOST_STAGES, 1 + -(-UNDER_WAY // most))) if waits else 2
    wanted = stages
    if "cp.async" not in target.copies:  # what is under way is in registers
        return stages
    while stages > 1 and once + stages * most > limit:
        stages -= 1
    if stages < wanted:
        remark(forall.location, f"{stages} stages: shared memory holds no more")
    return stages


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
    row = ir.RankedTensorType(window.tensor.type).shape[-1]
    return tile_bytes(math.prod(rows), columns, panel_of(columns, row))


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
