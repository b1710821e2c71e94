# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What becomes of the fused programs of one program, each lowered to tiles once.

For each case a schedule is bound to other numbers, of which many decide nothing about a program: of
56 variants of a softmax 20 are fused programs that others were before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.pipelines.ways import Way
from neptune_mlir.transforms.registry import Remark

# A fused program, and what a way does with it
Form = tuple[str, bool, tuple[str, ...], Callable[[Any], bool]]


@dataclass(frozen=True)
class TileProgram:
    """A tile program.

    Attributes:
        module: changed by nobody.
        said: what was remarked on the way to tiles.
        of_steps: what the steps of the way behind it remarked.
        taken: whether the way takes it.
    """

    module: Any
    said: Sequence[Remark]
    of_steps: Sequence[Remark]
    taken: bool


def form_of(module: Any, way: Way) -> Form:
    """All that the tile program of a fused one depends on."""
    return str(module), way.multiplies_bytes, tuple(map(str, way.steps)), way.suits
