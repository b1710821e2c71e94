# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of joins: of kernels that join what chunks of a stream left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir import affine as ix
from neptune_mlir.transforms.fusion.privatize import FEW_CHUNKS
from neptune_mlir.transforms.schedule.tile_cuts import at_most
from neptune_mlir.transforms.schedule.wishes import Wishes

JOINED = 4096  # elements of a tile of private values


def fit_join(
    sizes: dict[int, int], op: Any, parallel: Sequence[int], inner: int,
    nests: Sequence[FusedNest], wishes: Wishes, on_chip: bool,
) -> None:  # fmt: skip
    """Cut a join of chunks (axis 0) until a program has JOINED elements at most. Where chunks are
    joined to numbers of rows, which whole rows are made with, a program has so many of these: it
    joins the numbers first."""
    domain = list(op.domain)
    if on_chip and _joins_numbers(op, nests, inner):
        sizes.update(dict.fromkeys(parallel, 1))
        sizes[inner] = JOINED
        return
    if domain[0] == DYNAMIC:  # made for the most chunks
        if sizes[0] > FEW_CHUNKS and wishes.columns:
            sizes[inner] = wishes.columns
        room = JOINED // (sizes[0] * (sizes[inner] or domain[inner]))
        sizes.update({a: max(1, min(sizes[a], room)) for a in parallel[-1:]})
    if not parallel:
        room = JOINED // (sizes[0] or domain[0])
        sizes[inner] = min(sizes[inner] or domain[inner], max(8, 1 << room.bit_length() - 1))


def _joins_numbers(op: Any, nests: Sequence[FusedNest], inner: int) -> bool:
    """Whether no nest of a join has both the chunks and the axis that arrays lie along,
    which is longer than a tile."""
    if at_most(op.domain[inner], JOINED - 1):
        return False
    return not any({0, inner} <= {*nest.loops} for nest in nests)


def chunks_of(join: Any) -> int:
    """The tile of the chunk axis: all of it, or as many as there can be."""
    return 0 if join.domain[0] != DYNAMIC else ix.most(join.operation.operands[0]) or 64
