# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads through tables of pages: what the table finds, and which chips look rows up one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra.access import AccessIndex, position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import CHIP
from neptune_mlir.ir.values import module_of
from neptune_mlir.targets.chips import is_known


@dataclass(frozen=True)
class PagedRead:
    """A read through a table: rows of `axis` are slots (dimension `slot`, if any) of pages (`dim`)
    that `lookup` finds, whose dimension `column` the axis divided by `size` runs along."""

    axis: int
    size: int
    dim: int
    slot: int | None
    lookup: Term
    column: int


def read_pages(read: Term, axis: int) -> PagedRead | None:
    """The pages along an axis that a read is through; None if it is through none."""
    positions = [position_of(index) for index in read.args]
    found = [d for d, p in enumerate(positions) if p is not None and p.lookup is not None]
    page = positions[found[0]] if len(found) == 1 else None
    if page is None or page.lookup is None or page.axis is not None or page.constant:
        return None
    inner = [position_of(index) for index in page.lookup.args]
    columns = [d for d, q in enumerate(inner) if q is None or q.axis == axis]
    column = inner[columns[0]] if len(columns) == 1 else None
    if column != AccessIndex(axis=axis, divisor=column.divisor if column else 1):
        return None
    slots = [d for d, p in enumerate(positions) if p is not None and p.axis == axis]
    size = column.divisor
    if len(slots) > 1 or any(positions[d] != AccessIndex(axis=axis, modulus=size) for d in slots):
        return None
    if any(q is not None and q.lookup is not None for q in inner):
        return None
    return PagedRead(axis, size, found[0], slots[0] if slots else None, page.lookup, columns[0])


def spans(op: Any) -> bool:
    """Whether tiles of a kernel may lie in several pages: on the chips that this compiler makes
    code for."""
    return is_known(CHIP.find(module_of(op), ""))
