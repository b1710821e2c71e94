# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of the `neptune` dialect for asynchronous matmuls of tiles.

A matmul is started and waited for by two ops. What stands between them runs beside the matmul.
`neptune.pending<T>` is the type of a result that is still being computed: only a wait may use it.
Matmuls of one program retire in the order of their starts, so a wait says how many matmuls that
started later may still run. (On sm_90a: `wgmma.mma_async`, `wgmma.commit_group` and
`wgmma.wait_group`. The model is Triton's `warp_group_dot` and `warp_group_dot_wait`.)
"""

# no `from __future__ import annotations`: op definitions are read from live annotations
from typing import Any

from neptune_mlir.dialects import verify_matmul
from neptune_mlir.dialects.neptune import Neptune
from neptune_mlir.ir.bindings import ext, ir


class PendingType(Neptune.Type, name="pending"):
    """A tile that a running matmul computes: `!neptune.pending<tensor<128x128xf32>>`."""

    tile: ir.TypeAttr


class MmaStartOp(Neptune.Operation, name="mma_start"):
    """Starts `acc[m, n] + sum over k of a[m, k] * b[n, k]`.

    `indexing_maps` say which of the three loops each dimension of `a`, `b` and `acc` is, as in the
    `linalg.generic` that this op replaces; that op's attributes (`neptune.layout`,
    `neptune.swapped`) stay. The matmul reads its operands until the wait.

    Example:

        %t = "neptune.mma_start"(%q, %k, %zero) {indexing_maps = [#mk, #nk, #mn]}
           : (tensor<128x64xf16>, tensor<128x64xf16>, tensor<128x128xf32>)
           -> !neptune.pending<tensor<128x128xf32>>

    Rejected: operands that are no contraction of two matrices, a result of another type than the
    accumulator's, a result that does not have exactly one use, a `neptune.mma_wait` of the same
    block, an operand from a ring that is released before this wait.
    """

    a: ext.Operand[Any]
    b: ext.Operand[Any]
    acc: ext.Operand[Any]
    indexing_maps: ir.ArrayAttr
    result: ext.Result[PendingType]

    verify_invariants = staticmethod(verify_matmul.start)


class MmaWaitOp(Neptune.Operation, name="mma_wait"):
    """Waits until a matmul is over; the last `pending` matmuls to start may still run.

    Example:

        %s = "neptune.mma_wait"(%t) {pending = 1 : i64}
           : (!neptune.pending<tensor<128x128xf32>>) -> tensor<128x128xf32>

    Rejected: an operand that no `neptune.mma_start` gave, a result of another type than the
    matmul's, a negative `pending`, one that is larger than the number of matmuls that start
    between this one and the wait: it would let this matmul run on.
    """

    matmul: ext.Operand[PendingType]
    pending: ir.IntegerAttr
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_matmul.wait)


__all__ = ["MmaStartOp", "MmaWaitOp", "PendingType"]
