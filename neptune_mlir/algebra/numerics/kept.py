# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of the evaluation of terms on many inputs at once (`evaluation`), where it is repeated:
values that are kept, reads without copies, arrays whose inputs are next to each other in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.floats import SMALLEST, Array
from neptune_mlir.algebra.operators import OPERATORS
from neptune_mlir.algebra.terms import Term, is_float, reads, walk

Place = tuple[dict[Any, Array], Any]  # a table of values, and a key there
LANES, ROW = 8, 128  # of NumPy's sums: side by side, and in one go
# glibc keeps memory of up to 32 MB, with what stands around an array.
KEPT_BYTES = (32 << 20) - (64 << 10)
ADDED_UP = 16  # of so many sums as elements, NumPy adds each alone: calls cost more than points


@functools.cache
def keep_memory() -> None:
    """Let glibc keep the memory of arrays for those that come next, as it does by itself when a
    process has given a large array back. Before, each array is new pages, which the system clears:
    a fifth of a check in a new process. (This array is never touched, so it has no pages.)"""
    np.empty(KEPT_BYTES, np.uint8)


@dataclass
class Kept:
    """Values of terms that evaluations have in common: they read the same data, and what loops
    have the same number is equally long wherever a term occurs.

    Attributes:
        shared: terms that are kept, with their forms (`Forms`); those that read nothing are anyhow.
        positions: values of the latter, which hold for other data, too.
        values: values of the others, each with no dimension but that of inputs and its loops.
    """

    shared: Mapping[Term, int]
    positions: dict[Any, Array] = field(default_factory=dict)
    values: dict[Any, Array] = field(default_factory=dict)

    def place(
        self, n: Term, extents: Sequence[int], axis: int, lo: int, hi: int
    ) -> Place | None:
        """Where the value of a term is, or belongs: a table, and its key there, which has the
        positions of the loops of the term; None where it is not kept."""
        known = n.memo.get("loops")  # (asked of each node of each batch)
        if known is None:
            known = n.memo["loops"] = not n.has_ref and (bool(reads(n)), sorted(n.axes))
        if known is False:
            return None
        read, loops = known
        form = self.shared.get(n) if read else n
        if form is None:
            return None
        whole = [extents[k] if k != axis or hi < 0 else (lo, hi) for k in loops]
        return self.values if read else self.positions, (form, *whole)

    def found(self, n: Term, place: Place, rank: int) -> Array | None:
        """The value of a term, if it is there, over so many loops."""
        table, key = place
        value = table.get(key)
        if value is None or table is not self.values:
            return value
        shape = [len(value), *(1,) * rank]
        for k, extent in zip(sorted(n.axes), value.shape[1:], strict=True):
            shape[1 + k] = extent
        return value.reshape(shape)

    def keep(self, n: Term, place: Place, value: Array) -> None:
        table, key = place
        if table is self.values:
            value = value.reshape(len(value), *(value.shape[1 + k] for k in sorted(n.axes)))
        table[key] = value


class Forms:
    """Numbers of terms that are the same but for the numbers of their loops, and have these in the
    same order: loops that are as long make the same of them."""

    def __init__(self) -> None:
        self._of: dict[Term, int] = {}
        self._numbers: dict[Any, int] = {}

    def of(self, root: Term) -> int:
        for n in walk(root) if root not in self._of else ():
            if n not in self._of:
                order = sorted(n.axes)
                parts = [(self._of[a], *map(order.index, sorted(a.axes))) for a in n.args]
                leaf = "index" if n.op == "index" else n
                key = (n.op, repr(n.attr), n.dtype) if n.args else leaf
                self._of[n] = self._numbers.setdefault((key, *parts), len(self._numbers))
        return self._of[root]


def operated(n: Term, args: list[Array], turned: bool) -> Array:
    """The value of an operator. `turned`: what counts inputs goes last meanwhile, for NumPy lays
    out in memory as dimensions are ordered where operands do not say, and inputs belong together.
    """
    rank = args[0].ndim
    if turned:
        args = [a.transpose(*range(1, rank), 0) for a in args]
    if n.op == "div":
        value = args[0] / args[1] if is_float(n.dtype) else np.trunc(args[0] / args[1])
    else:
        value = OPERATORS[n.op].array(*args)
    return value.transpose(rank - 1, *range(rank - 1)) if turned else value


def added_in_pairs(value: Array, axis: int) -> Array:
    """The sums along a dimension, to the bit as NumPy adds up what lies in a row: eight sums side
    by side, and these in pairs. Inputs stay next to each other in memory, so no array is turned,
    and each addition is one of whole inputs."""
    length = value.shape[axis]
    whole = length - length % LANES

    def part(array: Array, first: int, last: int, step: int = 1) -> Array:
        place: Any = (slice(None),) * axis + (slice(first, last, step),)
        return np.asarray(array[place])

    lanes = part(value, 0, LANES)
    for first in range(LANES, whole, LANES):
        out = lanes if first > LANES else None  # (the first ones are a view)
        lanes = np.add(lanes, part(value, first, first + LANES), out=out)
    while (count := lanes.shape[axis]) > 1:
        lanes = part(lanes, 0, count, 2) + part(lanes, 1, count, 2)
    for k in range(whole, length):
        lanes += part(value, k, k + 1)
    return lanes + value.dtype.type(0)  # a sum begins with 0, which has a sign


def is_row(value: Array, axis: int) -> bool:
    """Whether NumPy adds up floats along a dimension in one go, were they next to each other."""
    return bool(np.issubdtype(value.dtype, np.floating)) and LANES <= value.shape[axis] <= ROW


def one_by_one(value: Array, digits: int) -> Array:
    """The sum over the last dimension, from its start."""
    length = value.shape[-1]
    if not digits and length * ADDED_UP > value.size // length:
        return np.add.accumulate(value, axis=-1)[..., -1]
    total = value[..., 0]
    for k in range(1, length):
        total = total + value[..., k]
        total = with_digits(total, digits) if digits else total
    return total


def with_digits(value: Array, digits: int) -> Array:
    """The nearest numbers of so many bits; of two that are as near, the even one."""
    drop = 53 - digits
    if not ((np.abs(value) < SMALLEST["f64"]) & (value != 0)).any():
        bits = value.view(np.int64)
        found = (bits >> drop) & 1
        found += bits
        found += (1 << (drop - 1)) - 1
        found &= -(1 << drop)
        return found.view(np.float64)
    fraction, exponent = np.frexp(value)
    return np.ldexp(np.rint(np.ldexp(fraction, digits)), exponent - digits)


def read_plainly(
    n: Term, array: Array, of: Sequence[int], axis: int, lo: int, hi: int
) -> Array | None:  # fmt: skip
    """A read at the positions of different loops, of these extents, and at constants, for all
    inputs of a batch and without a copy of anything; None of another one."""
    if not n.args:
        return None
    parts: list[Any] = [slice(None)]
    loops: list[int] = []
    for i, extent in zip(n.args, array.shape[1:], strict=True):
        if i.op == "index" and i.attr not in loops:
            first, last = (lo, hi) if i.attr == axis and hi >= 0 else (0, of[i.attr])
            loops.append(i.attr)
            parts.append(slice(first, last))
        elif i.is_const:
            first, last = int(i.value), int(i.value) + 1
            parts.append(first)
        else:
            return None
        if not 0 <= first < last <= extent:
            return None
    order = sorted(range(len(loops)), key=loops.__getitem__)
    found = array[tuple(parts)].transpose(0, *(1 + k for k in order))
    spread = (slice(None) if k in loops else None for k in range(len(of)))
    spread_out: Any = (slice(None), *spread)
    return found[spread_out]


def read_at(
    array: Array, places: Sequence[Array], clipped: bool, batched: bool, unit: tuple[int, ...]
) -> Array:  # fmt: skip
    """A read at any positions. `unit`: the shape of a value that varies along no axis.

    Of a program's own arrays (not `batched`), positions outside that are data (`clipped`) are the
    nearest inside, and others raise IndexError. Of inputs that a check makes, positions outside, of
    data or of extents that are smaller there than the program has them, count on from the start.
    """
    shape = array.shape[int(batched) :]
    if not batched:
        if clipped:
            places = [np.clip(p, 0, n - 1) for p, n in zip(places, shape, strict=True)]
        return array[tuple(places)] if places else array.reshape(unit)
    places = [
        p if 0 <= p.min(initial=0) and p.max(initial=0) < n else p % n
        for p, n in zip(places, shape, strict=True)
    ]
    if not places:
        return array.reshape(array.shape[:1] + unit[1:])
    if all(len(p) == 1 for p in places):  # the same for all inputs
        index: Any = (slice(None), *(p[0] for p in places))
        return array[index]
    first = np.arange(max(len(array), *map(len, places))).reshape(-1, *(1 for _ in unit[1:]))
    index = (first % len(array), *places)
    return array[index]
