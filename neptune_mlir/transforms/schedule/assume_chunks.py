# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `assume-chunks`: rows of the arguments have whole chunks of 16 bytes.

For kernels that serve such calls alone (`pipelines/cases.py`). A row whose length only a call knows
may start and end at any element, so nothing moves it by more than an element at a time, and the
copy engine not at all. In a program that is made for rows of whole chunks it moves like one
whose length is compiled in.

The pass writes `neptune.multiples` on each function that has such arguments: `[argument,
dimension, factor]` for the last dimension of every array of floats with two or more dimensions,
and for all dimensions that must be equal to it. `analysis/tiles.py` asks there what extents are
multiples of.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.layouts import CHUNK
from neptune_mlir.analysis.tiles import element_bytes, element_of, is_tensor
from neptune_mlir.dialects.attributes import EQUAL_DIMS, MULTIPLES
from neptune_mlir.dialects.program import functions
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.registry import register


@register("assume-chunks", "rows of run-time length have whole chunks of 16 bytes")
def assume_chunks(module: Any) -> None:
    for function in functions(module):
        found = _rows(function)
        for flat in EQUAL_DIMS.find(function.operation, ()):
            group = [(flat[k], flat[k + 1]) for k in range(0, len(flat), 3) if flat[k + 2] == 1]
            unit = max((found.get(place, 1) for place in group), default=1)
            found |= dict.fromkeys(group, unit) if unit > 1 else {}
        if found:
            MULTIPLES.set(function.operation, [[*place, n] for place, n in sorted(found.items())])


def _rows(function: Any) -> dict[tuple[int, int], int]:
    """The last dimensions of arrays of floats, and how many elements a chunk has."""
    found = {}
    for argument in function.regions[0].blocks[0].arguments:
        if not is_tensor(argument):
            continue
        kind, element = ir.RankedTensorType(argument.type), element_of(argument)
        inner = kind.rank - 1
        if inner > 0 and kind.is_dynamic_dim(inner) and element in ("f16", "bf16", "f32"):
            found[argument.arg_number, inner] = CHUNK // element_bytes(element)
    return found
