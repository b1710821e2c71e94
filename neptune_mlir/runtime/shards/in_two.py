# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments of a call that lie in two arrays, one behind the other along a dimension, of which one
may still be on its way from another device.

Kernels of specialised warps take them where the program says so (`Program.in_two`): they bring each
tile from the array that it lies in, and wait for what has not come yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView, Behind, storage_dtype
from neptune_mlir.runtime.plan import Plan
from neptune_mlir.runtime.shards.gift import GIFT, Gift

OPERAND = "in_two"
BEHIND = "map behind"
UNIT = 16  # bytes that addresses and rows are multiples of
WORD = 4  # bytes of the word that counts


@dataclass(frozen=True)
class ArraysInTwo:
    """An argument: two arrays along dimension `dim`.

    Attributes:
        late: which of them (0, 1) is on its way; None: none.
        word: the address of an i32 in the memory of the device. It says how many lanes of that
            array have come: points of the dimensions before `dim`, in order.
        timeout: milliseconds after which a kernel that waits ends in an error.
        step: if not 0, the word says how many positions of all lanes have come, from the last one
            down: first so many, then all.
        last: how many of the last points of a grid (all its variables but the last one) programs
            of different lengths come longest first of, whatever the point; 0: what the kernel
            finds right (`codegen.nvidia.program_order`).
        gift: what the kernel sends to the other device while it runs, of all its arguments.
    """

    arrays: tuple[Any, Any]
    dim: int
    late: int | None = None
    word: int = 0
    timeout: int = 0
    step: int = 0
    last: int = 0
    gift: Gift | None = None

    def view(self, first: ArrayView, second: ArrayView, name: str) -> ArrayView:
        """Both as one. Raises ArgumentError where they do not fit."""
        one, two = list(first.shape), list(second.shape)
        begin, more = one[self.dim], two[self.dim]
        one[self.dim] = two[self.dim] = begin + more
        if one != two or first.dtype != second.dtype or first.device != second.device:
            raise ArgumentError(f"the arrays of {name} differ in more than dimension {self.dim}")
        size = storage_dtype(second.dtype).itemsize
        steps = (s * size for s in second.strides[:-1])
        if second.address % UNIT or any(s % UNIT for s in steps) or second.strides[-1] != 1:
            raise ArgumentError(f"the second array of {name} is not aligned to {UNIT} bytes")
        low, high = ((0, 0), (0, begin), (begin, begin + more))[
            0 if self.late is None else 1 + self.late
        ]
        behind = Behind(
            second, self.dim, begin, low, high, self.word, self.timeout, self.step, self.last,
            self.gift,
        )  # fmt: skip
        return replace(first, shape=tuple(one), behind=behind)


def first_of(value: Any) -> Any:
    """An argument, or the first array of one in two."""
    return value.arrays[0] if type(value) is ArraysInTwo else value


def takes(plan: Plan, views: Sequence[ArrayView | None]) -> bool:
    """Whether the kernels of a plan can take those of its arguments that lie in two arrays."""
    for number, view in enumerate(views):
        if view is None or view.behind is None:
            continue
        place = ["argument", number]
        if any(list(b.of or ()) == place for b in plan.buffers):
            return False
        for launch in plan.launches:
            if not any(list(o[:2]) == place for o in launch.operands):
                continue
            rows = [o[4] for o in launch.operands
                    if o[0] == OPERAND and [*o[1:4]] == [*place, view.behind.dim]]  # fmt: skip
            if not rows or view.behind.begin % rows[0]:
                return False
    return True


def can_give(plan: Plan) -> bool:
    """Whether kernels of a plan that take arguments in two arrays can send; those that take none
    are not asked to."""
    names = [{o[0] for o in launch.operands} for launch in plan.launches]
    return all(GIFT in x for x in names if OPERAND in x)


def can_take(plan: Plan, numbers: Sequence[int], rows: int) -> bool:
    """Whether the kernels of a plan can take these arguments in two arrays, the second of which
    begins at a multiple of `rows`."""
    for number in numbers:
        place = ["argument", number]
        for launch in plan.launches:
            if any(list(o[:2]) == place for o in launch.operands) and not any(
                o[0] == OPERAND and [*o[1:3]] == place and rows % o[4] == 0
                for o in launch.operands
            ):  # fmt: skip
                return False
    return all(list(b.of or ()) not in [["argument", n] for n in numbers] for b in plan.buffers)
