# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile sizes of streams for warp groups of 64 rows: measured ones, else a rule.

`group_sizes.json` has what was measured to be best, by what a stream is like (`Shape`) and how
long it is. For anything else: three groups where a thread's registers hold the products of a
tile of 128, no function but exp is computed beside them, and nothing depends on where in the
stream a row stands (a triangle wastes what its tiles jut out); else two. What of the streamed
axis then fits registers and shared memory (two stages, 16-bit elements).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.transforms.tile_room import contractions

REGISTERS = {1: 216, 2: 216, 3: 128}  # of a thread, for products, by the number of warp groups
ROOMY = {"tanh", "sin", "cos", "erf", "log"}  # take registers of their own
MEMORY = 208 << 10  # bytes of shared memory for tiles; the rest is for results, barriers
TABLE = "group_sizes.json"


@dataclass(frozen=True)
class Shape:
    """What decides the sizes of a stream.

    Attributes:
        depth: points that the deepest product sums over, but for the streamed ones.
        width: columns of the result; 0 where they are cut.
        triangle: whether a comparison of several axes masks points.
        light: whether exp is the only function that takes registers.
    """

    depth: int
    width: int
    triangle: bool
    light: bool


def shape_of(
    nests: Sequence[FusedNest], domain: Sequence[int], stream: int, column: int | None
) -> Shape:
    """`stream`, `column`: the streamed axis, and the result's column axis unless it is cut."""
    depths = [
        math.prod(domain[a] for a in nest.reduced_axes if a != stream and domain[a] != DYNAMIC)
        for nest, *_ in contractions(nests)
    ]
    terms = [t for nest in nests if nest.body is not None for t in T.walk(nest.body)]
    triangle = any(t.op in ("lt", "le", "gt", "ge") and len(T.axes_of(t)) > 1 for t in terms)
    return Shape(
        max(depths, default=0), 0 if column is None else domain[column], triangle,
        not any(t.op in ROOMY for t in terms),
    )  # fmt: skip


def sizes(shape: Shape, length: int, few: bool = False) -> tuple[int, int]:
    """Rows and streamed size of a tile, for streams of at least `length` points. Where programs
    are `few`, one group has one of its own."""
    known = [entry for entry in _table(shape) if entry["from"] <= length and not few]
    if known:
        best = max(known, key=lambda entry: int(entry["from"]))
        return best["rows"], best["stream"]
    fits = shape.width and 3 * 128 // 4 + shape.width // 2 <= REGISTERS[3]
    groups = 3 if shape.light and fits and not shape.triangle else 2
    groups = 1 if few else groups
    rows = 64 * groups
    # registers of a thread for s scores of a row (kept rounded as well) and for the result
    by_registers = (REGISTERS[groups] - shape.width // 2) * 4 // 3
    by_memory = (MEMORY - rows * shape.depth * 2) // max(1, 4 * (shape.depth + shape.width))
    return rows, max(16, min(128, by_registers, by_memory) // 16 * 16)


def lengths(shape: Shape) -> list[int]:
    """From which lengths on other sizes are better than for any length."""
    return sorted({entry["from"] for entry in _table(shape)} - {0})


def _table(shape: Shape) -> list[dict[str, Any]]:
    wanted = asdict(shape)
    return [e for e in _entries() if all(e[key] == value for key, value in wanted.items())]


@cache
def _entries() -> list[dict[str, Any]]:
    text = resources.files(__package__).joinpath(TABLE).read_text()
    return list(json.loads(text)["entries"])
