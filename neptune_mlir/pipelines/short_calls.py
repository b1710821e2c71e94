# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls whose programs visit so few tiles that no kernel in front of the stream pays.

Which tiles masks made of data leave is found by small kernels (`skip-dead-tiles`), and what rows
that are merged read of many heads is spread over them by another (`merge-rows`). Each takes as long
as a program takes to visit a tile or two, and the stream waits for it. Where the programs of a call
visit no more, one after the other, there is nothing to save.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.fused_nests import read_live
from neptune_mlir.analysis.masks import begins_known, conjuncts, constraints
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.program import streams
from neptune_mlir.pipelines.product_cases import argument_of
from neptune_mlir.runtime.plan import Expression
from neptune_mlir.transforms.fusion.privatize import live_tiles

VISIT_ALL = "looks:0"  # the choice of `skip-dead-tiles`
WORTH = 4  # tiles, one after the other, that take no longer than the kernels in front


def visited_tiles(stream: Any, length: Expression | None) -> Expression | None:
    """How many tiles a program of a stream visits at most, whatever masks read; None where nobody
    knows how long the stream is, or it has no tiles."""
    sizes = TILE.find(stream.operation, ())
    size = sizes[stream.axis.value] if sizes else 0
    if length is None or not size:
        return None
    found: Expression = ["ceildiv", length, size]
    for most in live_tiles(stream, Values(), size):
        found = ["min", found, most]
    return found


def looks_at_data(stream: Any) -> bool:
    """Whether a mask of a stream reads data along it, so that nobody knows before where it is
    live."""
    for part in conjuncts(read_live(stream, Values())):
        forms = constraints(part)
        if not part.is_const and (forms is None or not begins_known(forms, stream.axis.value)):
            return True
    return False


def visited(module: Any) -> Expression | None:
    """How many tiles a program visits at most, of a fused program whose only stream is whole."""
    found = streams(module)
    if len(found) != 1 or isinstance(found[0].operation.parent.opview, N.PrivateOp):
        return None
    return visited_tiles(found[0], stream_length(module))


def stream_length(module: Any) -> Expression | None:
    """How long the stream of a fused program is that has one: a number, or a dimension of an
    argument; None where it is neither."""
    found = streams(module)
    if len(found) != 1:
        return None
    (stream,) = found
    known = list(stream.domain)[stream.axis.value]
    if known != DYNAMIC:
        return int(known)
    dynamic = [k for k, extent in enumerate(stream.domain) if extent == DYNAMIC]
    place = argument_of(list(stream.extents)[dynamic.index(stream.axis.value)])
    return None if place is None else ["dim", *place]
