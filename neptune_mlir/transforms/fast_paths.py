# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fast paths that a program may miss, and what is said where it does.

A pass that gives up a fast path calls `missed` with the condition that failed, and with what would
change it where it knows. People get a remark. The same goes into the bundle as data, for each image
(`facts["images"][k]["missed"]`, of CPUs `facts["missed"]`), which `neptune explain --target` and
the benchmark's sweep print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.transforms.registry import Miss, remark


@dataclass(frozen=True)
class FastPath:
    """`name`: for people. `lost`: the statement that it was missed. `change`: what takes a program
    there where the pass says no more."""

    name: str
    lost: str
    change: str


SPECIALISED = FastPath(
    "specialised warps", "warps are not specialised",
    "products of f16, bf16 or tf32 over extents that are compiled in and multiples of 8",
)  # fmt: skip
PIPELINED = FastPath(
    "pipelined loop", "a loop is not pipelined",
    "one stream a program, with a product and work that needs nothing of it",
)  # fmt: skip
KEPT = FastPath(
    "kept references", "a loop moves its reference in each iteration",
    "a softmax whose maximum is used in exponentials alone",
)  # fmt: skip
MATRIX = FastPath(
    "matrix instructions", "a contraction runs without matrix instructions",
    "factors of f16, bf16 or tf32, sums in f32, and tiles that are multiples of the instruction's",
)  # fmt: skip
IN_REGISTERS = FastPath(
    "tiles in registers", "a tile leaves the registers",
    "smaller tiles (knobs rows, stream), or factors whose layouts agree",
)  # fmt: skip
STAGED = FastPath(
    "loads ahead", "loads are not begun as early as asked for",
    "smaller tiles (knob stream): shared memory holds more of them",
)  # fmt: skip
FUSED = FastPath(
    "one pass", "not fused",
    "reductions whose dependence on each other has a correction (numerics mode fast allows more)",
)  # fmt: skip
UNSPILLED = FastPath(
    "no spills", "registers do not hold a kernel",
    "smaller tiles (knobs rows, stream), or smaller head dims",
)  # fmt: skip

BEST = FastPath(
    "best way", "a better way of tiling was refused",
    "smaller tiles (knobs rows, stream), or smaller head dims",
)  # fmt: skip


def missed(
    location: Any, path: FastPath, condition: str, change: str = "", kind: str = "remark",
    message: str = "",
) -> None:  # fmt: skip
    """Say at an MLIR location that a fast path is missed.

    Args:
        condition: that failed.
        change: what would make it hold; default: what the path says.
        message: the remark; default: the path's statement and the condition.
    """
    what = Miss(path.name, condition, change or path.change)
    remark(location, message or f"{path.lost}: {condition}", kind, what)
