# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What results start from that programs add to: zeros, which a kernel of their own makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.analysis.tiles import is_tensor
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import KERNEL, TILE
from neptune_mlir.dialects.nests import build_map
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.tiling.host_plan import captured, nested_in

ZEROS = 1 << 10  # elements that a program makes of what is added to


def build_zeros(origin: FusedNest, shape: Sequence[Index], values: nests.Values) -> Any:
    """A map, with its tile: a tensor of the identity of a sum."""
    domain = [n if ix.is_static(n) else nests.DYNAMIC for n in shape]
    extents = [n for n in shape if not ix.is_static(n)]
    made = build_map(values, T.const(origin.identity, origin.dtype), domain, extents)
    *outer, row, column = [1] * max(0, 2 - len(shape)) + domain
    columns = 0 if 0 < column <= ZEROS else ZEROS
    rows = max(1, ZEROS // (columns or column))
    sizes = [*[1] * len(outer), 0 if 0 < row <= rows else rows, columns]
    TILE.set(made.owner, sizes[-len(shape) :])
    return made


def zeros_first(block: Any) -> None:
    """Put kernels that read no tensor in front of all others, with what their sizes are made of: a
    kernel of a GPU may start when those before it have, and waits for what it needs alone."""
    kernels = [o.operation for o in block.operations if KERNEL.on(o.operation)]
    for kernel in kernels:
        if any(_tensor_of(value, block) for op in nested_in(kernel) for value in op.operands):
            continue
        needed = [kernel, *_made_of(kernel, block)]
        for op in [o.operation for o in block.operations if o.operation in needed]:
            if kernels[0].is_before_in_block(op):
                op.move_before(kernels[0])


def _tensor_of(value: Any, block: Any) -> bool:
    """Whether a value is a tensor of a block: given to it, or made by a kernel in it."""
    if not is_tensor(value):
        return False
    made = defining_op(value)
    return value.owner == block if made is None else made.block == block


def _made_of(op: Any, block: Any) -> list[Any]:
    """The ops of a block that an op of it is made of."""
    found: list[Any] = []
    pending = [op]
    while pending:
        made = [defining_op(v) for v in captured([pending.pop()])]
        new = [m for m in made if m is not None and m.block == block and m not in found]
        found += new
        pending += new
    return found
