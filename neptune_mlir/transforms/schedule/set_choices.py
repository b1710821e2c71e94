# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`set-choices`: say what kernels do otherwise than by the rules of the passes behind this one.

Some choices are neither sizes of tiles nor properties of the program: how many tiles are under way,
whether iterations keep their reference. Passes choose them by rules, and the tuning table knows
better for some kernels. Both speak through one attribute of a kernel, `neptune.tuned`, which `tile`
writes and which goes with the kernel into tile IR. This pass overwrites entries of it, for all
kernels of a module in the fused form or in tile IR; a choice of -1 stays as it is.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import foralls, note_choices
from neptune_mlir.dialects.attributes import PRODUCT
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import UsageError
from neptune_mlir.targets.tuned import IN_TURNS
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.schedule.tile import kernel_ops

# the largest number of each; the least is 0, of blocks 1
MOST = {
    "keeps": 1, "turns": 1, "skew": 1, "resident": 1, "boxed": 1, "narrow": 1, "slots": 16,
    "warps": 32, "blocks": 32, "interleave": 4, "priority": 1, "near": 1,
    "ahead": 1 << 20, "early": 1, "late": 6, "lefts": 1, "cut": 1, "beside": 8,
    "looks": 1, "waits": 1, "adder": IN_TURNS, "apart": 1, "pairs": 2, "sums": 8,
}  # fmt: skip


@register("set-choices", "say what kernels do otherwise than by the rules")
def set_choices(
    module: Any, *, keeps: int = -1, turns: int = -1, skew: int = -1, resident: int = -1,
    boxed: int = -1, narrow: int = -1, slots: int = -1, warps: int = -1, blocks: int = -1,
    interleave: int = -1, priority: int = -1, near: int = -1, ahead: int = -1, early: int = -1,
    late: int = -1, lefts: int = -1, cut: int = -1, beside: int = -1, looks: int = -1,
    waits: int = -1, adder: int = -1, apart: int = -1, pairs: int = -1, sums: int = -1,
) -> None:  # fmt: skip
    """
    Args:
        keeps: 1 if iterations may keep their reference (`keep-references`).
        turns: 1 if warp groups take turns at the matrix units.
        skew: 1 if loops are software-pipelined (`schedule-loops`).
        resident: 1 if blocks stay and take program after program.
        boxed: 1 if results may leave by TMA stores.
        narrow: 1 if an f32 factor is rounded to the 16-bit type of the other.
        slots: of the rings, or stages of the copies, that streamed tiles go through; 0 for the
            rule's.
        warps: of a block, but for warp groups; 0 for the rule's.
        blocks: that are to share a multiprocessor, from 1 on.
        interleave: on AMD, 0 for loads where LLVM has them, else 1 more than the variant of
            `rocdl.iglp.opt` that puts them between products (`pace-products`).
        priority: on AMD, 1 if waves that multiply issue first (`pace-products`).
        near: on AMD, 1 if neighbouring programs run on one die of the chip.
        ahead: how many programs on the rows are that a program has brought to the second-level
            cache, where it holds a row and multiplies no matrices; 0: it does not.
        early: 1 if an iteration loads vectors in front of its matmuls (`schedule-loops`).
        late: how many matmuls may run an iteration late, at most (`schedule-loops`).
        lefts: 1 if left factors that a program loads once stay in registers, where warp groups
            multiply.
        beside: how many eighths of the instructions of a matmul are issued at its start, where
            others can be between the elements of arithmetic (`pipeline-loops`), or behind the
            stores of what groups exchange before another starts; 0: all; 8: all, there behind.
        cut: 1 if tiles of rows may begin where data say (`cut-rows`).
        looks: 1 if kernels find which tiles masks made of data leave (`skip-dead-tiles`).
        waits: 1 if memory is what warp groups wait for: a third slot of what they stream comes
            before a second one of what a program loads once.
        adder: 1 if an idle warp adds what a group makes to sums that programs share, 2 if in the
            order of the programs.
        apart: 1 if programs that add to a result begin at tiles of their own, without masks.
        pairs, sums: blocks of programs that share what they load, or a sum (`form-clusters`); of
            the products that have a note of their axes (`neptune.product`), where some have.
    """
    given = {
        "keeps": keeps, "turns": turns, "skew": skew, "resident": resident, "boxed": boxed,
        "narrow": narrow, "slots": slots, "warps": warps, "blocks": blocks,
        "interleave": interleave, "priority": priority, "near": near, "ahead": ahead,
        "early": early, "late": late, "lefts": lefts, "cut": cut, "beside": beside,
        "looks": looks, "waits": waits, "adder": adder, "apart": apart, "pairs": pairs,
        "sums": sums,
    }  # fmt: skip
    chosen = {name: number for name, number in given.items() if number != -1}
    for name, number in chosen.items():
        least = int(name == "blocks")
        if not least <= number <= MOST[name] or (name == "warps" and number & (number - 1)):
            unit = "0 or a power of two up to" if name == "warps" else f"{least} to"
            raise UsageError(f"choice '{name}' is {number}", hint=f"{unit} {MOST[name]}")
    _note(module, chosen)


def _note(module: Any, chosen: dict[str, int]) -> None:
    """Say it of all kernels; of clusters, of the products alone whose programs these are of."""
    others = {name: n for name, n in chosen.items() if name not in ("pairs", "sums")}
    for function in functions(module):
        ops = [op.operation for op in kernel_ops(function)]
        products = [op for op in ops if PRODUCT.on(op)] or ops  # blocks share what these load
        for op in ops:
            note_choices(op, chosen if op in products else others)
    for forall in foralls(module):
        note_choices(forall, chosen)
