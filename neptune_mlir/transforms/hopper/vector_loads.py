# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vectors that loops of warp groups read: a number for each streamed point, in f32.

Where there is room, each warp has the vectors of an iteration and of the next one in shared memory
(`codegen.nvidia.vectors_staged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from neptune_mlir.analysis.tiles import element_of, load_window, nested, shape_of
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.gpu.layout_stages import step_of

NUMBER = 4  # bytes
PLACES = 2  # of a warp, for a vector


def staged_vectors(forall: Any, wave: int) -> dict[Any, list[Any]]:
    """By loop: its loads of vectors that move with it, by warps of so many lanes."""
    found: dict[Any, list[Any]] = {}
    for op in nested(forall.regions[0].blocks[0]):
        if _fits(op, forall, wave):
            found.setdefault(op.parent, []).append(op)
    return found


def places_of_warps(vectors: dict[Any, list[Any]]) -> list[tuple[list[Any], int]]:
    """The k-th loads of all loops, which have one place, and what it takes of each warp."""
    return [(ops, max(map(place_bytes, ops))) for ops in zip_all(list(vectors.values()))]


def place_bytes(op: Any) -> int:
    """Of the places of a warp."""
    (size,) = shape_of(op.results[0])
    return int(size) * NUMBER * PLACES


def _fits(op: Any, forall: Any, wave: int) -> bool:
    if op.name not in ("tensor.extract_slice", "tensor.pad") or op.parent.name != "scf.for":
        return False
    window = load_window(op.results[0], forall)
    if window is None or len(window.shape) != 1 or window.pages is not None:
        return False
    loop, (place,), (size,) = op.parent, window.dims, window.shape
    variable = loop.regions[0].blocks[0].arguments[0]
    return (
        element_of(window.tensor) == "f32"
        and size > 0 and size % wave == 0  # not that of a slice that is padded
        and step_of(loop) is not None
        and moves_with(window.offsets[place], variable)
    )


def moves_with(position: Any, variable: Any) -> bool:
    """Whether a position is the loop's variable, plus what stays."""
    if isinstance(position, int):
        return False
    if position == variable:
        return True
    made = defining_op(position)
    sums = ("affine.apply", "arith.addi", "arith.subi")
    return made is not None and made.name in sums and any(
        moves_with(operand, variable) for operand in made.operands
    )  # fmt: skip


def zip_all(blocks: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """The first ops of all blocks, the second ones of those that have one, and so on."""
    for k in range(max(map(len, blocks), default=0)):
        yield [ops[k] for ops in blocks if k < len(ops)]
