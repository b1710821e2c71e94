# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors as views: every dimension written in digits, so that reshapes cost nothing.

A *digit* is one counter with an extent. A dimension is a row-major number of digits:

    tensor<8x16x64>                      [b h] [i] [d]         after collapsing (b, h)
    expand_shape                         [b] [h] [i] [d]
    an extent of 1                       []                    no digit at all

and an *access* says which digits select an element of the tensor that lies in memory. So
collapse, expand, transpose, broadcast and slices of packed tensors only rearrange digits. Where
two tensors meet in one loop, `refine` cuts both into common pieces: query heads `[h]` against
broadcast key heads `[kv g]` gives `h = (kv g)`, and the keys are read at `h floordiv |g|`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import NeptuneError
from neptune_mlir.transforms.linalg.raise_sizes import FunctionSizes, Size, product


class NotRaised(NeptuneError):
    """This op stays as it is; the message says why."""


@dataclass(frozen=True)
class Fixed:
    """A digit that always has one value (a slice of extent 1)."""

    value: int
    extent: int


@dataclass(frozen=True)
class Looked:
    """A whole dimension of `extent` whose position is an element of another tensor in memory."""

    access: Access
    dtype: str
    extent: Size


Part = int | Fixed | Looked  # a digit, or what stands for digits
Dims = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Access:
    """The element of the tensor `key` at the position that `dims` gives, digits row-major."""

    key: str
    dims: tuple[tuple[Part, ...], ...]

    def digits(self) -> set[int]:
        found = {p for parts in self.dims for p in parts if isinstance(p, int)}
        return found.union(*(looked.access.digits() for looked in self.looked()))

    def looked(self) -> list[Looked]:
        """The positions of this access that are elements of tensors."""
        return [p for parts in self.dims for p in parts if isinstance(p, Looked)]

    def check_distinct(self) -> None:
        """Raises NotRaised where one digit selects along two dimensions."""
        used = [p for parts in self.dims for p in parts if isinstance(p, int)]
        if len(used) != len(set(used)):
            raise NotRaised("a tensor is read along a diagonal")


@dataclass(frozen=True)
class View:
    """A tensor whose element at the digits of `dims` is `body` (None: undefined).

    Leaves of `body`: `read` with an `Access` as its name, `index(digit)`, constants, scalars.
    """

    dims: Dims
    body: Term | None
    dtype: str


def read(access: Access, dtype: str) -> Term:
    return T.term("read", (), access, dtype)


def accesses(body: Term) -> list[Access]:
    return [leaf.attr for leaf in T.leaves(body, "read")]


def with_looked(access: Access) -> list[Access]:
    """An access and those that its positions are read by."""
    return [access, *(a for looked in access.looked() for a in with_looked(looked.access))]


class Digits:
    """The extents of all digits of one function, and how digits were cut."""

    def __init__(self, sizes: FunctionSizes):
        self.sizes = sizes
        self._extents: list[Size] = []
        self._cuts: dict[int, tuple[int, ...]] = {}

    def new(self, extent: Size) -> tuple[int, ...]:
        """A digit of this extent; none for 1."""
        if self.sizes.resolve(extent) == Size(1):
            return ()
        self._extents.append(extent)
        return (len(self._extents) - 1,)

    def unit(self) -> int:
        """A digit of extent 1, for a tensor whose type must show it."""
        self._extents.append(Size(1))
        return len(self._extents) - 1

    def extent(self, digit: int) -> Size:
        return self.sizes.resolve(self._extents[digit])

    def total(self, parts: Sequence[Part]) -> Size:
        return product([
            Size(p.extent) if isinstance(p, Fixed)
            else p.extent if isinstance(p, Looked) else self.extent(p) for p in parts
        ])  # fmt: skip

    def cut(self, digit: int, pieces: Sequence[int]) -> None:
        self._cuts[digit] = tuple(pieces)

    def pieces(self, digits: Sequence[int]) -> tuple[int, ...]:
        """The digits that these were cut into, to the finest."""
        found: list[int] = []
        for digit in digits:
            if digit in self._cuts:
                found.extend(self.pieces(self._cuts[digit]))
            elif self.extent(digit) != Size(1):
                found.append(digit)
        return tuple(found)

    def dims(self, extents: Sequence[Size]) -> Dims:
        return tuple(self.new(e) for e in extents)

    def refine(self, a: Sequence[int], b: Sequence[int]) -> None:
        """Cut a and b, two row-major factorings of one number, into the same pieces.

        The digits of b become (pieces of) the digits of a. Raises NotRaised where no common
        pieces are known to exist.
        """
        left_a, left_b = list(self.pieces(a)), list(self.pieces(b))
        original = list(left_a), list(left_b)
        while left_a and left_b and self._match(left_a, left_b, 0):
            pass
        while left_a and left_b and self._match(left_a, left_b, -1):
            pass
        if not self._match_rest(left_a, left_b):
            shown = " against ".join(
                "x".join(self._show(self.extent(d)) for d in side) or "1" for side in original
            )
            raise NotRaised(f"extents {shown} have no common factoring")

    @staticmethod
    def _show(size: Size) -> str:
        return str(size.factor) if not size.symbols else "?"

    def _match(self, a: list[int], b: list[int], end: int) -> bool:
        """Match the outermost (end 0) or innermost (-1) digits of a and b."""
        x, y = a[end], b[end]
        if x == y:
            a.pop(end), b.pop(end)
            return True
        ex, ey = self.extent(x), self.extent(y)
        if ex == ey:
            a.pop(end), b.pop(end)
            self.cut(y, (x,))
            return True
        for whole, other, mine, size in ((x, y, a, (ex, ey)), (y, x, b, (ey, ex))):
            rest = self.sizes.divide(*size)
            if rest is not None:
                (more,) = self.new(rest)
                (same,) = self.new(size[1])
                self.cut(whole, (same, more) if end == 0 else (more, same))
                self.cut(other, (same,))
                mine[end] = more
                (b if mine is a else a).pop(end)
                return True
        return False

    def _match_rest(self, a: list[int], b: list[int]) -> bool:
        """Where the sizes alone do not decide: equal totals force equal extents."""
        if not a or not b:
            return all(self.sizes.equate(self.extent(d), Size(1)) for d in a + b)
        if len(a) == len(b) == 1:
            self.cut(b[0], (a[0],))
            return self.sizes.equate(self.extent(a[0]), self.extent(b[0]))
        for one, many in ((a, b), (b, a)):
            if len(one) == 1 and self.sizes.equate(self.extent(one[0]), self.total(many)):
                self.cut(one[0], many)
                return True
        return self._match_assuming(a, b)

    def _match_assuming(self, a: list[int], b: list[int]) -> bool:
        """Match at the static extents that both sides have in the same order; what lies between
        them is taken to be equal part by part (a run-time program may do otherwise, but then
        its batch or heads differ between the operands)."""
        sides = []
        for digits in (a, b):
            anchors = [k for k, d in enumerate(digits) if self.extent(d).static is not None]
            bounds = [-1, *anchors, len(digits)]
            sides.append((
                [digits[k] for k in anchors],
                [digits[i + 1 : j] for i, j in itertools.pairwise(bounds)],
            ))  # fmt: skip
        (anchors_a, parts_a), (anchors_b, parts_b) = sides
        if [self.extent(d) for d in anchors_a] != [self.extent(d) for d in anchors_b]:
            return False
        for x, y in zip(anchors_a, anchors_b, strict=True):
            self.cut(y, (x,))
        return all(self._assume_equal(x, y) for x, y in zip(parts_a, parts_b, strict=True))

    def _assume_equal(self, a: list[int], b: list[int]) -> bool:
        if len(a) == len(b):
            for x, y in zip(a, b, strict=True):
                self.cut(y, (x,))
            pairs = [(self.extent(x), self.extent(y)) for x, y in zip(a, b, strict=True)]
            return all(self.sizes.assume(x, y) for x, y in pairs)
        for one, many in ((a, b), (b, a)):
            if len(one) == 1 and many and self.sizes.assume(self.total(one), self.total(many)):
                self.cut(one[0], many)
                return True
        return False

    def regroup(self, dims: Dims, extents: Sequence[Size]) -> Dims:
        """The same elements, row-major, as a tensor of other extents."""
        flat = [digit for dim in dims for digit in dim]
        target = self.dims(extents)
        self.refine(flat, [digit for dim in target for digit in dim])
        return tuple(self.pieces(dim) for dim in target)

    # ---- rewriting views -------------------------------------------------------------------

    def rename(
        self, body: Term, table: dict[int, tuple[Part, ...]], size_term: Callable[[Size], Term]
    ) -> Term:
        """`body` with each digit replaced by the (finest pieces of the) parts it maps to."""

        def rule(node: Term) -> Term | None:
            if node.op == "index":
                return self.number(self._parts_of(node.attr, table), size_term)
            if node.op == "read":
                return read(self._renamed(node.attr, table), node.dtype)
            return None

        return T.rewrite(body, rule)

    # (No closures that call each other: such a cycle stays until Python looks for garbage.)

    def _renamed(self, access: Access, table: dict[int, tuple[Part, ...]]) -> Access:
        dims = (tuple(q for p in dim for q in self._parts_of(p, table)) for dim in access.dims)
        return Access(access.key, tuple(dims))

    def _parts_of(self, part: Part, table: dict[int, tuple[Part, ...]]) -> tuple[Part, ...]:
        if isinstance(part, Fixed):
            return (part,)
        if isinstance(part, Looked):
            return (Looked(self._renamed(part.access, table), part.dtype, part.extent),)
        found: list[Part] = []
        for piece in self.pieces((part,)):
            for target in table.get(piece, (piece,)):
                if not isinstance(target, int):
                    found.append(target)
                else:
                    found.extend(self.pieces((target,)))
        return tuple(found)

    def number(self, parts: Sequence[Part], size_term: Callable[[Size], Term]) -> Term:
        """The value of a row-major number as a term."""
        value = T.const(0, "index")
        for part in parts:
            if isinstance(part, Looked):
                raise NotRaised("a position that is looked up is computed with")
            digit = T.const(part.value, "index") if isinstance(part, Fixed) else T.index(part)
            if not (value.is_const and value.value == 0):
                value = T.make("mul", value, size_term(self.total((part,))))
            value = T.make("add", value, digit)
        return value

    def fresh(self, view: View, size_term: Callable[[Size], Term]) -> View:
        """The same view over digits of its own, so that cutting them here changes it nowhere."""
        dims = tuple(self.pieces(dim) for dim in view.dims)
        table: dict[int, Any] = {}
        for digit in {d for dim in dims for d in dim}:
            table[digit] = self.new(self.extent(digit))
        body = None if view.body is None else self.rename(view.body, table, size_term)
        new_dims = tuple(tuple(q for d in dim for q in table[d]) for dim in dims)
        return View(new_dims, body, view.dtype)
