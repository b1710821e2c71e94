# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where does a nest contribute nothing? Values of nests at points where a condition fails.

Masked scores are -inf, their exponentials 0, and 0 times anything is 0: this module follows
such constants through the nests of a fused op. Two passes ask:

* `prune-masks`: if this mask is false, does every running value receive its identity?
* `lower-to-tiles`: do the padded elements of a ragged tile, and if not, what must be masked?

Elements of tensors from outside count as finite, as everywhere in this project: an infinite
input at a masked position may be skipped instead of making a NaN. What is computed of them at
padding may overflow, though: (0 + r) (0 + r) is infinite for an r of 1e20. And an element that is
added to others may be -inf in all rows of a program that is right (x + r): padding must not make a
NaN of it there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Flag

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest


class Odd(Flag):
    """The exceptional values that an expression may take."""

    NONE = 0
    LOW = 1  # -inf
    HIGH = 2  # +inf
    NAN = 4
    ANY = 7


_SWAP = {Odd.LOW: Odd.HIGH, Odd.HIGH: Odd.LOW}


def _negate(x: Odd) -> Odd:
    swapped = x & Odd.NAN
    for one, other in _SWAP.items():
        if one & x:
            swapped |= other
    return swapped


class OddValues:
    """Which of -inf, +inf, NaN the values of the nests, and terms over them, may be."""

    def __init__(
        self, nests: Sequence[FusedNest], arguments: Iterable[str] = (), below: Iterable[str] = ()
    ):
        """`arguments` are values of unknown making (running values, final values), and those
        `below` all numbers may be -inf."""
        self._of: dict[str, Odd] = dict.fromkeys(arguments, Odd.ANY)
        self._of |= dict.fromkeys(below, Odd.LOW)
        known = {n.key for n in nests}
        for nest in nests:
            self._of[nest.key] = self._of_nest(nest, known)

    def _of_nest(self, nest: FusedNest, known: set[str]) -> Odd:
        if nest.body is None:
            return Odd.ANY
        body = self(nest.body)
        if nest.combiner is None:
            return body
        if nest.combiner in ("max", "min") and nest.init not in known:
            return body | (Odd.LOW if nest.combiner == "max" else Odd.HIGH)
        if nest.init is None and nest.combiner == "add" and not body:
            return Odd.NONE
        return Odd.NONE if not T.is_float(nest.dtype) else Odd.ANY

    def __call__(self, root: Term) -> Odd:
        done: dict[Term, Odd] = {}
        for node in T.walk(root):
            done[node] = self._one(node, [done[a] for a in node.args])
        return done[root]

    def learn(self, key: str, value: Term) -> None:
        """What a map's elements are at the points in question: no more than anywhere, here."""

    def left(self, t: Term) -> None:
        """Hear what is left of a sum where the other operand is 0."""

    def _one(self, node: Term, args: list[Odd]) -> Odd:
        if not T.is_float(node.dtype):
            return Odd.NONE
        match node.op:
            case "const":
                value = float(node.value)
                if math.isnan(value):
                    return Odd.NAN
                return Odd.NONE if math.isfinite(value) else Odd.LOW if value < 0 else Odd.HIGH
            case "read":
                return self._of.get(node.attr, Odd.NONE)
            case "sym" | "sin" | "cos":
                return args[0] if args else Odd.NONE
            case "cast":
                return args[0]
            case "neg":
                return _negate(args[0])
            case "add" | "sub":
                other = args[1] if node.op == "add" else _negate(args[1])
                clash = args[0] & _negate(other) & ~Odd.NAN
                return args[0] | other | (Odd.NAN if clash else Odd.NONE)
            case "mul":
                return Odd.ANY if args[0] | args[1] else Odd.NONE
            case "div":
                by = float(node.args[1].value) if node.args[1].is_const else 0.0
                if by == 0 or not math.isfinite(by):
                    return Odd.ANY
                return args[0] if by > 0 else _negate(args[0])
            case "max" | "min":
                gone = Odd.LOW if node.op == "max" else Odd.HIGH  # kept only if both may be it
                return (args[0] | args[1]) & ~gone | args[0] & args[1] & gone
            case "select":
                return args[1] | self._unequal(node, args[2])
            case "tanh" | "erf":
                return args[0] & Odd.NAN
            case "abs":
                return args[0] & ~Odd.LOW | (Odd.HIGH if args[0] & Odd.LOW else Odd.NONE)
        return Odd.ANY

    def _unequal(self, select: Term, otherwise: Odd) -> Odd:
        """The last operand of `select(y == c, a, y)` is never c."""
        condition, _, y = select.args
        if condition.op == "eq" and condition.args[0] is y and condition.args[1].is_const:
            return otherwise & ~self._one(condition.args[1], [])
        return otherwise


class PaddingValues(OddValues):
    """As `OddValues`, at positions that do not exist: there what is computed may overflow."""

    def __init__(self, anywhere: OddValues):
        self._of = dict(anywhere._of)

    def learn(self, key: str, value: Term) -> None:
        self._of[key] = self(value)

    def left(self, t: Term) -> None:
        for read in T.leaves(t, "read"):  # of r behind a cast, or scaled, too
            self._of.setdefault(read.attr, Odd.ANY)

    def _one(self, node: Term, args: list[Odd]) -> Odd:
        of_two = node.op in ("add", "sub", "mul") and not any(a.is_const for a in node.args)
        return Odd.ANY if of_two and T.is_float(node.dtype) else super()._one(node, args)


def settle(root: Term, fixed: Mapping[Term, Term], odd: OddValues) -> Term:
    """`root` with the terms in `fixed` replaced, and -inf, +inf and 0 followed upwards."""

    def rule(node: Term) -> Term | None:
        node = fixed.get(node, node)
        if node.is_leaf or not T.is_float(node.dtype):
            return node
        found = _follow(node, odd)
        return node if found is None else found

    return T.rewrite(root, rule)


def _follow(node: Term, odd: OddValues) -> Term | None:
    zero = T.const(0.0, node.dtype)
    op, args = node.op, node.args
    if op in ("add", "sub"):
        return _follow_sum(node, odd)
    if op == "mul":
        return _follow_product(node, odd)
    if op in ("max", "min"):
        low, high = _ends(node.dtype)
        neutral, absorbing = (low, high) if op == "max" else (high, low)
        for a, b in (args, args[::-1]):
            if a is neutral:
                return b
            if a is absorbing and not odd(b) & Odd.NAN:
                return a
        return None
    if op in ("exp", "exp2") and args[0].is_const and args[0].value == -math.inf:
        return zero
    if op == "neg" and args[0].is_const and args[0].value == 0:
        return zero
    return None


def _ends(dtype: str) -> tuple[Term, Term]:
    return T.const(-math.inf, dtype), T.const(math.inf, dtype)


def _follow_sum(node: Term, odd: OddValues) -> Term | None:
    """Of a sum or a difference."""
    low, high = _ends(node.dtype)
    zero = T.const(0.0, node.dtype)
    op, (a, b) = node.op, node.args
    for zeroed, other in ((a, b), (b, a)):
        if zeroed is zero:
            odd.left(other)
    for infinite, clash in ((low, Odd.HIGH), (high, Odd.LOW)):
        # infinite + b, unless b may be the opposite infinity (the same one when subtracted)
        bad = clash if op == "add" else _negate(clash)
        if a is infinite and not odd(b) & (bad | Odd.NAN):
            return a
        if op == "add" and b is infinite and not odd(a) & (clash | Odd.NAN):
            return b
    if op == "sub" and b in (low, high):
        opposite = high if b is low else low
        if not odd(a) & (Odd.NAN | (Odd.LOW if b is low else Odd.HIGH)):
            return opposite
    if b is zero:
        return a
    return b if op == "add" and a is zero else None


def _follow_product(node: Term, odd: OddValues) -> Term | None:
    for a, b in (node.args, node.args[::-1]):
        if a.is_const and a.value == 0 and not odd(b):
            return T.const(0.0, node.dtype)
        if a.is_const and b in _ends(node.dtype) and a.value != 0:
            return b if a.value > 0 else T.make("neg", b)
    return None


def is_identity(value: Term, nest: FusedNest) -> bool:
    """Whether the term is the neutral element of the nest's combiner."""
    return value.is_const and nest.identity is not None and value.value == nest.identity


def follow_nests(
    nests: Sequence[FusedNest],
    bodies: Mapping[str, Term],
    fixed: Mapping[Term, Term],
    carries: Callable[[FusedNest], bool],
    odd: OddValues,
    outside: Callable[[Term], Term | None] = lambda _: None,
) -> dict[str, Term]:
    """For each nest, its body at the points in question, with constants followed through.

    Args:
        bodies: the body of each nest (which may differ from its own).
        fixed: what terms are at these points (the condition in question: false).
        carries: whether an element of the nest's result belongs to one such point.
        outside: the element that a read takes there, for tensors from outside.
    """
    found: dict[str, Term] = {}
    elements: dict[str, Term] = {}
    own: dict[str, tuple[Term, ...]] = {}
    for nest in nests:
        body = bodies.get(nest.key)
        if body is None:
            continue
        table = dict(fixed)
        for read in T.leaves(body, "read"):
            if read.attr in elements and read.args == own[read.attr]:
                table[read] = elements[read.attr]
            elif (known := outside(read)) is not None:
                table[read] = known
        value = found[nest.key] = settle(body, table, odd)
        if nest.combiner is None and carries(nest):
            odd.learn(nest.key, value)
        if value.is_const and carries(nest):
            kept = nest.combiner is None or is_identity(value, nest)
            if kept or nest.combiner in ("max", "min", "and", "or"):
                elements[nest.key] = value
                own[nest.key] = tuple(map(T.index, nest.result_axes))
    return found


def padding_masks(
    nests: Sequence[FusedNest],
    axis: int,
    inside: Term,
    odd: OddValues,
    made_here: Callable[[str], bool],
) -> dict[str, Term]:
    """What nests must give at the padded positions of `axis`, so that reductions ignore them.

    Returns, for the nests that need it, the constant to take where `inside` is false. A mask
    goes on the map that a reduction reads, if that makes the reduction ignore padding: then a
    contraction stays a plain product, and what follows from the map needs no mask of its own. It
    goes on a factor of that map instead, if that varies along fewer axes.
    """
    masks: dict[str, Term] = {}

    def outside(read: Term) -> Term | None:
        padded = any(position is T.index(axis) for position in read.args)
        return T.const(0, read.dtype) if padded and not made_here(read.attr) else None

    def carries(nest: FusedNest) -> bool:
        return axis in nest.result_axes

    by_key = {n.key: n for n in nests}
    while True:
        bodies = {n.key: masked(n.body, inside, masks.get(n.key)) for n in nests if n.body}
        fixed = {inside: T.const(False, "i1")}
        there = PaddingValues(odd)
        at_padding = follow_nests(nests, bodies, fixed, carries, there, outside)
        for nest in nests:
            reduces = axis in nest.loops and axis not in nest.result_axes
            if not reduces or nest.body is None or is_identity(at_padding[nest.key], nest):
                continue
            place, value = _mask_for(nest, at_padding, by_key, masks, carries, there)
            masks[place] = value
            break
        else:
            return masks


def _mask_for(
    nest: FusedNest,
    at_padding: Mapping[str, Term],
    by_key: Mapping[str, FusedNest],
    masks: Mapping[str, Term],
    carries: Callable[[FusedNest], bool],
    odd: OddValues,
) -> tuple[str, Term]:
    """Which nest to mask, and with what, so that `nest` ignores padding."""

    def sources(of: FusedNest) -> Iterator[tuple[Term, FusedNest]]:
        """The maps that a nest reads element by element, which may take a mask."""
        for read in T.leaves(at_padding[of.key], "read"):
            maker = by_key.get(read.attr)
            if maker is None or maker.combiner is not None or maker.body is None:
                continue
            if maker.key in masks or not carries(maker):
                continue
            if read.args == tuple(map(T.index, maker.result_axes)):
                yield read, maker

    def settled(of: FusedNest, read: Term, value: Term) -> Term:
        return settle(at_padding[of.key], {read: value}, odd)

    for read, maker in sources(nest):
        for candidate in (T.const(nest.identity or 0, read.dtype), T.const(0, read.dtype)):
            if not is_identity(settled(nest, read, candidate), nest):
                continue
            for earlier, factor in sources(maker):  # a map over fewer axes has fewer points
                zero = T.const(0, earlier.dtype)
                fewer = len(factor.result_axes) < len(maker.result_axes)
                if fewer and settled(maker, earlier, zero) is candidate:
                    return factor.key, zero
            return maker.key, candidate
    return nest.key, T.const(nest.identity or 0, nest.dtype)


def masked_reads(
    nests: Sequence[FusedNest],
    masks: Mapping[str, Term],
    axis: int,
    odd: OddValues,
    made_here: Callable[[str], bool],
) -> dict[str, tuple[Term, Term]]:
    """Which reductions ignore padding as well where an element that they read is an infinity there:
    instead of the mask that they have, if several read it. A maximum and the sum of exponentials
    that stands on it then have one choice for each element in common. (Not of elements that maps
    read again: a thread would hold these twice, and softmax had 77 registers for 55.)"""
    shared: dict[tuple[Term, Term], list[str]] = {}
    for nest in nests:
        read = _padded_read(nest, axis)
        if nest.body is None or nest.key not in masks or nest.combiner is None:
            continue
        if read is None or made_here(read.attr) or not T.is_float(read.dtype):
            continue
        for end in _ends(read.dtype):
            if is_identity(settle(nest.body, {read: end}, odd), nest):
                shared.setdefault((read, end), []).append(nest.key)
    again = {_padded_read(nest, axis) for nest in nests if nest.combiner is None}
    return {
        key: pair for pair, keys in shared.items()
        if len(keys) > 1 and pair[0] not in again for key in keys
    }  # fmt: skip


def _padded_read(nest: FusedNest, axis: int) -> Term | None:
    """What a nest reads along an axis, if that is one read."""
    reads = () if nest.body is None else T.leaves(nest.body, "read")
    along = [r for r in reads if any(position is T.index(axis) for position in r.args)]
    return along[0] if len(along) == 1 else None


def masked(body: Term, inside: Term, otherwise: Term | None) -> Term:
    return body if otherwise is None else T.make("select", inside, body, otherwise)
