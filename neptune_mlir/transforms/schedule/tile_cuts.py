# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where an axis may be cut into tiles. Part of the pass `tile`.

An axis that is read modulo a constant, or divided by one, or by which a number is looked up, has
tiles that lie between multiples of it: then a tile is in one page, and has one quotient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import AccessIndex, position_of
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import DYNAMIC


def at_most(extent: int, limit: int) -> bool:
    return extent != DYNAMIC and extent <= limit


def divisors(nests: Sequence[FusedNest]) -> dict[int, int]:
    """The axes that are read divided by a constant, and the constant (the least, of several)."""
    found: dict[int, int] = {}
    for p in _positions(nests):
        if p.axis is not None and p.divisor > 1:
            found[p.axis] = math.gcd(found.get(p.axis, 0), p.divisor)
    return found


def equal_quotients(axis: int, nests: Sequence[FusedNest]) -> int:
    """The constant by which a condition divides the positions along an axis: that many are alike,
    and a tile of them is live or dead. 0: none does."""
    found = {
        int(t.args[1].value) for nest in nests if nest.body is not None for t in T.walk(nest.body)
        if t.op == "floordiv" and t.args[0] is T.index(axis) and t.args[1].is_const
    }  # fmt: skip
    return min(found, default=0)


def part_of(divisor: int | None, size: int) -> int:
    """The largest size of tiles that do not lie across multiples of a divisor, `size` at most."""
    if divisor is None:
        return size
    return max(d for d in range(1, min(size, divisor) + 1) if divisor % d == 0)


def within_pages(
    chosen: dict[int, int], nests: Sequence[FusedNest], domain: Sequence[int], across: int | None
) -> list[int]:
    """The sizes of all axes, smaller for those that are read modulo a constant, or by which numbers
    are looked up: a tile lies in one page, and what is looked up is one number for it. Not those of
    the axis `across`, whose rows are looked up one by one."""
    found: dict[int, int] = {}

    def within(axis: int | None, most: int) -> None:
        if axis is not None and axis != across and not at_most(domain[axis], most):
            size = found.get(axis, chosen[axis]) or domain[axis]
            found[axis] = math.gcd(size, most)

    pending = _positions(nests)
    while pending:
        p = pending.pop()
        if p.modulus is not None:
            within(p.axis, p.divisor if p.divisor > 1 else p.modulus)
        if p.lookup is not None:
            inner = [q for i in p.lookup.args if (q := position_of(i))]
            for q in inner:
                within(q.axis, q.divisor)
            pending += inner
    return [found.get(a, chosen[a]) for a in range(len(domain))]


def _positions(nests: Sequence[FusedNest]) -> list[AccessIndex]:
    """The positions at which nests read what they compute with."""
    reads = dict.fromkeys(read for nest in nests for read in nest.reads)
    found = [position_of(i) for read in reads for i in read.args]
    return [p for p in found if p is not None]


def tiles_beside(op: Any, nests: Sequence[FusedNest]) -> list[set[int]]:
    """The axes of tiles that a program has: in a join each nest has one of its own."""
    if isinstance(op, N.GlobalOp):
        return [set(nest.loops) for nest in nests]
    return [set(range(len(list(op.domain))))]


def cut_to(
    most: int, order: Sequence[int], sizes: dict[int, int], domain: Sequence[int],
    beside: Sequence[set[int]], divided: Mapping[int, int],
) -> dict[int, int]:  # fmt: skip
    """Smaller sizes for axes, the first first, until a tile over axes that stand `beside` each
    other has no more than `most` elements; no tile lies across multiples of what divides its axis.

    Of several reduced axes each may be short enough to be uncut, and all together too large. A
    chip holds powers of two of each.
    """
    held = {a: power_of_2(sizes[a] or domain[a]) for a in sizes}
    cut = {}
    for a in order:
        rest = max((math.prod(held[b] for b in axes - {a}) for axes in beside if a in axes),
                   default=1)  # fmt: skip
        if held[a] * rest > most:
            held[a] = cut[a] = part_of(divided.get(a), max(1, most // rest))
    return cut


def power_of_2(size: int) -> int:
    return 1 << (size - 1).bit_length()
