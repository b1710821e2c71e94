# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments for a call of any program: which extents it has, and arrays of these. No MLIR."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.driver.inputs import shapes
from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.plan import Plan

MOST = 64 << 30  # bytes
NUMBERED = "argument "  # with its position: what a plan calls an argument that has no name
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4, "i8": 1, "i1": 1}


def parse_extents(settings: Sequence[str]) -> dict[str, int]:
    """`q.0=4,q.1=16` as a table. Raises UsageError."""
    found = {}
    for item in (x for setting in settings for x in setting.split(",")):
        name, _, number = item.partition("=")
        if not number.isdigit() or int(number) < 1 or not name.rpartition(".")[2].isdigit():
            raise UsageError(f"'{item}' is no extent", hint="ARGUMENT.DIMENSION=NUMBER: q.0=4")
        found[name.removeprefix(NUMBERED)] = int(number)
    return found


@dataclass(frozen=True)
class Arguments:
    """Of a plan's call: extents known at run time only are those that are `fixed` (by
    "ARGUMENT.DIMENSION"), or that follow from them, and `length` for the rest.

    Raises:
        UsageError: there is no such extent, or they do not fit together.
    """

    plan: Plan
    fixed: Mapping[str, int]
    length: int

    def __post_init__(self) -> None:
        unknown = [name for name in self.fixed if name not in self._open()]
        if unknown:
            raise UsageError(f"the program has no extent '{unknown[0]}' that a call decides",
                             hint=", ".join(self._open()) or "it has none")  # fmt: skip

    def _open(self) -> dict[str, tuple[int, int]]:
        """The places of extents that are known at run time only. Arguments without a name, as those
        of programs in MLIR are, go by their position."""
        return {
            f"{a.name.removeprefix(NUMBERED)}.{dim}": (k, dim)
            for k, a in enumerate(self.plan.arguments)
            for dim, extent in enumerate(a.shape) if extent is None
        }  # fmt: skip

    @property
    def known(self) -> dict[tuple[int, int], int]:
        """The fixed extents, by argument and dimension."""
        places = self._open()
        return {places[name]: extent for name, extent in self.fixed.items()}

    @property
    def has_length(self) -> bool:
        """Whether any extent is the length's."""
        return self.shapes() != shapes(self.plan, self.length + 1, self.known)

    def shapes(self) -> list[list[int]]:
        return shapes(self.plan, self.length, self.known)

    def check_size(self) -> None:
        """Raises UsageError for arrays that no chip has room for."""
        total = sum(
            BYTES.get(a.dtype, 8) * math.prod(shape)
            for a, shape in zip(self.plan.arguments, self.shapes(), strict=True)
        )
        if total > MOST:
            left = [name for name in self._open() if name not in self.fixed]
            raise UsageError(
                f"at length {self.length} the arguments take {total >> 30} GiB",
                hint=f"say what is no length: --extent {left[0]}=1 (of {', '.join(left)})",
            )

    def on_gpu(self) -> list[Any]:
        """Seeded arrays and numbers, as torch tensors on the GPU."""
        import torch

        generator = torch.Generator("cuda").manual_seed(self.length)
        floats = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
                  "f64": torch.float64}  # fmt: skip
        whole = {"i1": torch.bool, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64}
        found: list[Any] = []
        for argument, shape in zip(self.plan.arguments, self.shapes(), strict=True):
            kind = argument.dtype
            if argument.kind == "scalar":
                found.append(1.0 if kind in floats else 1)
            elif kind in floats:
                found.append(torch.randn(
                    shape, dtype=floats[kind], device="cuda", generator=generator
                ))  # fmt: skip
            else:  # small enough to be positions in most tensors
                drawn = torch.randint(0, 2 if kind == "i1" else 8, shape, device="cuda",
                                      generator=generator)  # fmt: skip
                found.append(drawn.to(whole.get(kind, torch.int64)))
        return found
