# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms that a tile may have while code is written: in registers, in memory, on its way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.chip import Operand
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.scalars import Index, Scalars
from neptune_mlir.ir.bindings import ir

LOADED = 128  # bits of the largest load


@dataclass
class Held:
    """A tile in registers: one value per register of the layout."""

    layout: Layout
    values: Sequence[Any]


@dataclass
class Splat:
    """A tile of one value (None: nothing was ever written)."""

    value: Any


@dataclass
class Pending:
    """A tile in global memory that nobody has read yet: loads it as a layout asks for, element by
    element."""

    load: Callable[[Layout], Iterator[Any]]


def _bits(s: Scalars, value: Any) -> Any:
    """A number as an integer of as many bits."""
    if isinstance(value.type, ir.FloatType):
        return s.op("llvm.bitcast", [value], ir.IntegerType.get_signless(value.type.width))
    return value if isinstance(value.type, ir.IntegerType) else s.value(value, s.i32)


def _sized(s: Scalars, value: Any, kind: Any) -> Any:
    """The lower bits of an integer, or 0 above them."""
    if value.type.width == kind.width:
        return value
    return s.op("arith.trunci" if value.type.width > kind.width else "arith.extui", [value], kind)


class Arriving(Sequence[Any]):
    """Elements that are loaded or computed one after the other, each where it is first asked for.

    Args:
        count: how many there are.
    """

    def __init__(self, each: Iterator[Any], count: int):
        self._each, self._count, self._found = each, count, list[Any]()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, k: Any) -> Any:
        last = k.indices(self._count)[1] if isinstance(k, slice) else k + 1
        while len(self._found) < last:
            self._found.append(next(self._each))
        return self._found[k]

    def all(self) -> list[Any]:
        return self[:]

    def tie(self, s: Scalars, others: Sequence[Arriving]) -> None:
        """Let who reads the first element wait for others, too."""
        own = _bits(s, self[0])
        zero = _sized(s, zero_behind(s, others), own.type)
        whole = s.op("arith.ori", [own, zero], own.type)
        floats = isinstance(self[0].type, ir.FloatType)
        self._found[0] = s.op("llvm.bitcast", [whole], self[0].type) if floats else whole


def zero_behind(s: Scalars, others: Sequence[Arriving]) -> Any:
    """0 (i32), which nothing knows before the elements of others are there: their bits, and of
    these what the number of a block along an axis that no grid has is not. (Assemblers look through
    all that stands in the code.)"""
    dimension = ir.Attribute.parse("#gpu<dim z>")
    zero = s.value(s.op("gpu.block_id", [], s.index, dimension=dimension), s.i32)
    words = []
    for found in others:
        bits = _bits(s, found[0])
        each = max(1, LOADED // max(bits.type.width, 8))  # elements that one load brings
        words += [_sized(s, _bits(s, value), s.i32) for value in found.all()[::each]]
    bits = functools.reduce(lambda a, b: s.op("arith.ori", [a, b], s.i32), words)
    return s.op("arith.andi", [bits, zero], s.i32)


@dataclass
class Anew:
    """A tile that each op which reads it loads or computes anew, by the layout that all of these
    have: registers do not hold it.

    Attributes:
        each: its elements, one after the other.
        otherwise: those that another layout needs, where an op may have one.
    """

    layout: Layout
    each: Callable[[], Iterator[Any]]
    otherwise: Callable[[Layout], Sequence[Any]] | None = None

    def read(self, memory: Memory, layout: Layout) -> Sequence[Any]:
        if layout != self.layout:
            assert self.otherwise, "a tile that no op was to read by another layout"
            return self.otherwise(layout)
        return Arriving(self.each(), layout.registers)

    def operand(self, threads: Threads, memory: Memory, wanted: Operand) -> Any:
        raise AssertionError("kernels with products hold their tiles")


@dataclass
class Pieces:
    """A factor of a matrix product as its instructions take it: the words of each piece, by its
    place along the free dimension and along k."""

    pieces: dict[tuple[int, int], Any]

    @property
    def words(self) -> list[Any]:
        return [word for words in self.pieces.values() for word in words]

    def of(self, words: Iterable[Any]) -> Pieces:
        """The same pieces of other words."""
        rest = iter(words)
        return Pieces({at: [next(rest) for _ in old] for at, old in self.pieces.items()})


class InMemory(Protocol):
    """A tile in shared memory, whatever form it has there (`SharedTile`, say)."""

    def read(self, memory: Memory, layout: Layout) -> Sequence[Any]:
        """The elements that the registers of `layout` need."""

    def operand(
        self, threads: Threads, memory: Memory, wanted: Operand
    ) -> Callable[[int, int, int], list[Any]]:
        """A function from the place of pieces (along m or n, along k, how many) to fragments of a
        factor of a matrix product."""


Tile = Held | Splat | Pending | InMemory | Pieces
Point = tuple[Sequence[Any], Sequence[Index]]  # an element of every operand, and a position


@dataclass(frozen=True)
class ResultView:
    """Part of a result in memory: where it starts, and the dimension that each of its own is."""

    array: Array
    offsets: tuple[Any, ...]
    dims: tuple[int, ...]


def words_of(memory: Memory, values: Sequence[Any]) -> list[Any]:
    """Words of four bytes each; of two pairs that were made together (`Memory.pair_of`) by one
    move."""
    s, found = memory.s, []
    for k in range(0, len(values), 4):
        pairs = [memory.pair_of.get(tuple(values[j : j + 2])) for j in (k, k + 2)]
        both = pairs if all(p is not None for p in pairs) else values[k : k + 4]
        found.append(s.op("llvm.bitcast", [memory.pack(both)], s.i32))
    return found
