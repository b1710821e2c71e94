# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vectors that a loop loads to registers, asked for an iteration ahead.

A number for each streamed point (a log-sum-exp, a sum over a row) comes from global memory to the
registers of all consumers, for it is no tile of a product. Each iteration reads other ones, so the
first-level cache has none of them, and all warps wait for the second level. So an iteration asks
for the elements of the next one: an instruction of each warp, which reads nothing and never fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import load_window, multiple_of, owner, tuned
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.transforms.hopper.vector_loads import moves_with

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter


def bring_next(writer: SpecializedWriter, op: Any) -> None:
    """Ask for what a load of a vector in a loop will load next, if it moves with the loop. (Loads
    in front of products, choice `early`, need no help.)"""
    loop, found = op.parent, load_window(op.results[0], writer.forall)
    if loop.name != "scf.for" or tuned(writer.forall, "early", 0):
        return
    if found is None or len(found.shape) != 1 or found.pages is not None:
        return
    step, (place,) = owner(loop.operands[2]), found.dims
    variable = loop.regions[0].blocks[0].arguments[0]
    known = step is not None and step.name == "arith.constant"
    if not known or not moves_with(found.offsets[place], variable):
        return
    s, window, size = writer.s, writer.window(found), found.shape[0]
    offsets = list(window.offsets)
    offsets[place] = s.add(offsets[place], multiple_of(loop.operands[2]))
    # (Left alone, the address stays in registers through the loop, and others are spilled.)
    lane = hopper.unknown(s.value(writer.threads.lane, s.i32))
    lanes = writer.target.wave
    mine = s.mul(s.op("arith.index_cast", [lane], s.index), -(-size // lanes))
    mine = mine if size % lanes == 0 else s.mod(mine, size)
    there = replace(window, offsets=tuple(offsets))
    hopper.bring_near(writer.memory.address(writer.arrays[found.tensor], there, [mine]))
