# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the products of a fused program load along its streams."""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import contractions, multiplies_matrices, nests_of
from neptune_mlir.analysis.masks import masked_load
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.program import streams
from neptune_mlir.transforms.schedule.tile_room import BYTES


def streams_products(stream: Any) -> bool:
    """Whether matrices are multiplied in a stream."""
    return multiplies_matrices(nests_of(stream, Values()))


def streams_bytes(module: Any, width: int = 1) -> bool:
    """Whether each product of a fused program loads elements of so many bytes along its stream, and
    no others there."""
    widths = set()
    for stream in streams(module):
        nests = nests_of(stream, Values())
        made = {nest.key for nest in nests if nest.body is None or masked_load(nest.body) is None}
        for _, *factors in contractions(nests):
            along = [f for f in factors if stream.axis.value in T.axes_of(f)]
            widths |= {BYTES.get(f.dtype, 4) for f in along if f.attr not in made}
            widths |= set() if any(f.attr not in made for f in along) else {0}
    return widths == {width}


def streamed_row_bytes(module: Any) -> set[int]:
    """Of the rows that products load along streams."""
    found = set()
    for stream in streams(module):
        nests = nests_of(stream, Values())
        made = {nest.key for nest in nests if nest.body is None or masked_load(nest.body) is None}
        for _, *factors in contractions(nests):
            for f in factors:
                along = f.attr not in made and f.args and stream.axis.value in T.axes_of(f)
                extents = [stream.domain[a] for a in T.axes_of(f.args[-1])] if along else []
                found |= {n * BYTES.get(f.dtype, 4) for n in extents if n != DYNAMIC}
    return found
