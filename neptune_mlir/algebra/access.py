# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions: what one index of a read may be. Whatever looks into an access goes through here.

    position := lookup + digit + constant        each part may be missing
    digit    := axis | axis floordiv c | axis mod c | axis floordiv c mod d
    lookup   := an element of a tensor of integers, read at positions itself

`k[table[b, j // 16], j % 16, h // 4, d]` has the positions `lookup table[b, j floordiv 16]`,
`j mod 16`, `h floordiv 4` and `d`. A lookup depends on no value that the reader computes: to the
algebra the whole read is a function of the axes (`opaque`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term


@dataclass(frozen=True)
class AccessIndex:
    """`lookup + (axis floordiv divisor) mod modulus + constant`."""

    axis: int | None = None
    divisor: int = 1
    modulus: int | None = None
    constant: int = 0
    lookup: Term | None = None

    @property
    def is_digit(self) -> bool:
        """Whether other points of the axis may have the same position."""
        return self.axis is not None and (self.divisor > 1 or self.modulus is not None)

    @property
    def is_affine(self) -> bool:
        return self.lookup is None

    def last(self, extent: int | None) -> int | None:
        """The largest position along an axis of this extent; None where that is not known."""
        if self.lookup is not None or (self.axis is not None and not extent):
            return None
        digit = 0 if self.axis is None or not extent else (extent - 1) // self.divisor
        if self.modulus is not None:
            digit = min(digit, self.modulus - 1)
        return digit + self.constant

    def term(self) -> Term:
        """The position as a term of type index; equal positions have equal terms."""
        total = T.const(0, "index")
        if self.lookup is not None:
            total = T.make("cast", self.lookup, dtype="index")
        if self.axis is not None:
            digit = T.index(self.axis)
            if self.divisor > 1:
                digit = T.make("floordiv", digit, T.const(self.divisor, "index"))
            if self.modulus is not None:
                digit = T.make("rem", digit, T.const(self.modulus, "index"))
            total = T.make("add", total, digit)
        return T.make("add", total, T.const(self.constant, "index"))


def position_of(t: Term) -> AccessIndex | None:
    """The position that an integer term is; None if it is none."""
    if T.is_float(t.dtype) or t.dtype == "i1":
        return None
    if t.is_const:
        return AccessIndex(constant=int(t.value))
    if t.op == "index":
        return AccessIndex(axis=t.attr)
    if t.op == "read":
        return AccessIndex(lookup=t)
    if t.op == "cast":
        return position_of(t.args[0])
    if t.op == "add":
        return _sum(position_of(t.args[0]), position_of(t.args[1]))
    if t.op == "sub":
        return _difference(t)
    if t.op in ("floordiv", "rem") and t.args[1].is_const:
        return _digit(position_of(t.args[0]), t.op, int(t.args[1].value))
    return None


def _sum(a: AccessIndex | None, b: AccessIndex | None) -> AccessIndex | None:
    if a is None or b is None:
        return None
    for x, y in ((a, b), (b, a)):
        if y.axis is None and (x.lookup is None or y.lookup is None):
            lookup = y.lookup if x.lookup is None else x.lookup
            return replace(x, constant=x.constant + y.constant, lookup=lookup)
    return None


def _difference(t: Term) -> AccessIndex | None:
    """`x - c`, or `x - x floordiv c * c`, which is `x mod c`."""
    left, right = t.args
    if left is right:  # x mod 1
        return AccessIndex()
    if right.is_const:
        return _sum(position_of(left), AccessIndex(constant=-int(right.value)))
    if right.op == "mul":
        for quotient, c in (right.args, right.args[::-1]):
            divided = quotient.op == "floordiv" and quotient.args[0] is left
            if c.is_const and divided and quotient.args[1] is c:
                return _digit(position_of(left), "rem", int(c.value))
    return None


def _digit(of: AccessIndex | None, op: str, c: int) -> AccessIndex | None:
    """A position divided by a constant, or its remainder; positions of axes are never negative."""
    if of is None or of.axis is None or of.constant or of.lookup or c < 1:
        return None
    if op == "floordiv":
        return None if of.modulus is not None else replace(of, divisor=of.divisor * c)
    if of.modulus is None:
        return replace(of, modulus=c)
    return of if of.modulus <= c else None


def is_access(read: Term) -> bool:
    """Whether all indices of a read are positions."""
    return all(position_of(i) is not None for i in read.args)


def lookups(body: Term) -> tuple[Term, ...]:
    """The distinct reads of a term whose elements are positions of other reads."""
    found = {r: None for read in T.reads(body) for i in read.args for r in T.reads(i)}
    return tuple(found)


def elements(body: Term) -> tuple[Term, ...]:
    """The distinct reads of a term whose elements it computes with, in order of appearance."""
    found: dict[Term, None] = {}
    seen: set[Term] = set()
    stack = [body]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "read":
            found[node] = None
        elif node.op != "ref":
            stack.extend(reversed(node.args))
    return tuple(found)


def positions(t: Term) -> set[int]:
    """The axes whose positions a value is made of, not counting where tensors are read."""
    return {n.attr for n in T.walk_outside(t, ("read",)) if n.op == "index"}


def opaque(body: Term) -> Term:
    """`body` with each read through a lookup as a read, at its axes, of a tensor of its own."""
    inner = set(lookups(body))
    if not inner:
        return body

    def rule(node: Term) -> Term | None:
        if node.op != "read" or not any(T.reads(i) for i in node.args):
            return None
        return T.read((node.attr, node.args), *map(T.index, sorted(node.axes)), dtype=node.dtype)

    return T.rewrite(body, rule)
