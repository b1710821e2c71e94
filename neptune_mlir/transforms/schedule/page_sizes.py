# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether tiles of a stream lie in one page each, or in several whose rows are looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra.access import position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.analysis.paged_reads import read_pages, spans

WIDE = 64  # rows of a page from which on a tile lies in one
BOXED = 16  # rows of a page from which on the copy engine brings pages one by one


def size_across_pages(
    op: Any, nests: Sequence[FusedNest], axis: int, size: int, boxed: bool
) -> int:
    """The size of tiles along the streamed axis that lie in several pages, `size` at most; 0 where
    a tile lies in one. They do where pages have fewer rows, where every read along the axis that
    is through a table can be looked up row by row, and on chips whose loads do that.

    Args:
        boxed: the copy engine brings the tiles, so they are whole pages.
    """
    reads = dict.fromkeys(read for nest in nests for read in nest.reads)
    found = [read for read in reads if _looks_up(read, axis)]
    pages = [read_pages(read, axis) for read in found]
    known = {p.size for p in pages if p is not None}
    if None in pages or not known or not spans(op):
        return 0
    if boxed:
        (page, *others) = known
        fits = not others and page % BOXED == 0 and page < size
        return size // page * page if fits else 0
    return size if max(known) < min(size, WIDE) else 0


def _looks_up(read: Term, axis: int) -> bool:
    """Whether a read along an axis is through a table, or of a digit of positions."""
    for index in read.args:
        p = position_of(index)
        if p is not None and p.axis == axis and p.is_digit:
            return True
        if p is not None and p.lookup is not None and axis in p.lookup.axes:
            return True
    return False
