# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of the `neptune` dialect about the warps that run a tile program: what a warp decides on its
own, and in what order it issues.
"""

# no `from __future__ import annotations`: op definitions are read from live annotations
from typing import Any

from neptune_mlir.dialects import verify_warps
from neptune_mlir.dialects.neptune import Neptune, Numbers
from neptune_mlir.ir.bindings import ext


class WarpAllOp(Neptune.Operation, name="warp_all"):
    """Whether all elements of a tile that the warp holds are true. Warps of a program may differ,
    so an `scf.if` of it chooses for rows of the tile, not for the tile.

    Example: `%fits = "neptune.warp_all"(%rows) : (tensor<128xi1>) -> i1`

    Rejected: an operand that is no tensor of `i1`, a result that is no `i1`.
    """

    rows: ext.Operand[Any]
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_warps.warp_all)


class JoinLanesOp(Neptune.Operation, name="join_lanes"):
    """Adds up what lanes of a warp, and warps, hold apart: a tile of which each thread has a part
    of every element. `distances` are those between the numbers of lanes that add up, one after
    another; `warps` has, of each digit of their numbers along which warps do, its distance and its
    size.

    Example: `%l = "neptune.join_lanes"(%part) {distances = array<i64: 1, 2>, warps = array<i64>}
    : (tensor<128xf32>) -> tensor<128xf32>`

    Rejected: a result of another type than the operand, a distance that is no power of two,
    numbers of warps that are no pairs.
    """

    part: ext.Operand[Any]
    distances: Numbers
    warps: Numbers
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_warps.join)


class IssueFenceOp(Neptune.Operation, name="issue_fence"):
    """Arithmetic in front of it is issued before anything behind it.

    Between arithmetic and a wait it keeps the arithmetic beside the matmul: an assembler that knows
    nothing of this moves it behind the wait.

    Example: `"neptune.issue_fence"() : () -> ()`
    """

    verify_invariants = staticmethod(verify_warps.bare)


class AwaitTurnOp(Neptune.Operation, name="await_turn"):
    """A warp group waits until the one before it has given its turn. Groups that take turns start
    their matmuls one group after another, round and round.

    Example: `"neptune.await_turn"() : () -> ()`
    """

    verify_invariants = staticmethod(verify_warps.bare)


class GiveTurnOp(Neptune.Operation, name="give_turn"):
    """A warp group gives its turn to the next one.

    Example: `"neptune.give_turn"() : () -> ()`
    """

    verify_invariants = staticmethod(verify_warps.bare)


__all__ = ["AwaitTurnOp", "GiveTurnOp", "IssueFenceOp", "JoinLanesOp", "WarpAllOp"]
