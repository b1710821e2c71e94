# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deferral: a factor that does not vary along the stream leaves the reduction.

    o = Σ_j (p_j / l) · v_j     becomes     o' = Σ_j p_j · v_j,   o = o' / l

So does a condition that does not vary, where one of its cases is 0: a row of weights that is
set to 0 when everything in it is masked is a row of results that is. What is rounded to 16 bits
keeps its constants: without them it might not fit. So does a sum over the elements of one tensor:
c x y may be in range where x y is not, and c costs little there. A contraction gives its constants
up: its operands are then what lies in memory. The body keeps its shape otherwise, so sub-terms that
several reductions share stay shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.contractions import rounds_in_range
from neptune_mlir.algebra.growth import LITERALS, Growth, Ranges, growths
from neptune_mlir.algebra.terms import (
    Term,
    axes_of,
    const,
    factors,
    index,
    is_float,
    make,
    read,
    ref,
    substitute,
    walk,
)

Invariant = Callable[[Term], bool]


FAR = 2.0**-20, 2.0**20  # larger and smaller constants stay with the data that they scale

Zero = tuple[Term, bool]  # a condition, and which of its values makes all of it 0


@dataclass(frozen=True)
class Split:
    """`rest * over / under`, None standing for 1; 0 where one of `zeros` holds.

    `masked`: the divisor came from below a mask, so that a sum in which nothing is live is 0, also
    where the divisor is.
    """

    rest: Term
    over: Term | None = None
    under: Term | None = None
    zeros: tuple[Zero, ...] = ()
    masked: bool = False

    @property
    def outside(self) -> tuple[Term | None, Term | None, tuple[Zero, ...], bool]:
        return self.over, self.under, self.zeros, self.masked

    @property
    def trivial(self) -> bool:
        return (self.over, self.under, self.zeros) == (None, None, ())

    def finish(self, value: Term, *, exact: bool = False) -> Term:
        """What the sum of `rest` becomes; `exact`: also where nothing is live, which the real
        numbers do not tell apart."""
        # One factor after the other: their product may leave the range.
        for factor in _factors(self.over):
            value = make("mul", value, make("cast", factor, dtype=value.dtype))
        if self.under is not None:
            under, zero = make("cast", self.under, dtype=value.dtype), const(0.0, value.dtype)
            nothing = make("and", make("eq", under, zero), make("eq", value, zero))
            for factor in _factors(self.under):
                value = make("div", value, make("cast", factor, dtype=value.dtype))
            if self.masked and exact:
                value = make("select", nothing, zero, value)
        for condition, when in self.zeros:
            zero = const(0.0, value.dtype)
            cases = (zero, value) if when else (value, zero)
            value = make("select", condition, *cases)
        return value


Known = dict[Term, Split]  # what operands are split into: they may be shared


def split(t: Term, invariant: Invariant) -> Split:
    """Pull the invariant factors out of a product, through the operators that let them pass."""
    return _split(t, invariant, {})


def _split(t: Term, invariant: Invariant, known: Known) -> Split:
    if t not in known:
        known[t] = _split_now(t, invariant, known)
    return known[t]


def _split_now(t: Term, invariant: Invariant, known: Known) -> Split:
    if not is_float(t.dtype):
        return Split(t)
    if invariant(t):
        if t.op == "div" and not invariant(t.args[0]):
            return Split(t.args[0], None, t.args[1])
        if t.op == "div" and t.args[0].is_const:
            return Split(t.args[0], None, t.args[1])
        return Split(const(1.0, t.dtype), t)
    match t.op:
        case "mul":
            a, b = (_split(x, invariant, known) for x in t.args)
            return Split(
                make("mul", a.rest, b.rest), _times(a.over, b.over), _times(a.under, b.under),
                _both(a.zeros, b.zeros), a.masked or b.masked,
            )  # fmt: skip
        case "div":
            a, b = (_split(x, invariant, known) for x in t.args)
            if not b.zeros:
                return Split(
                    make("div", a.rest, b.rest), _times(a.over, b.under), _times(a.under, b.over),
                    a.zeros, a.masked,
                )  # fmt: skip
        case "neg" | "cast" if is_float(t.args[0].dtype):
            a = _split(t.args[0], invariant, known)
            if t.op == "cast" and t.dtype in ("f16", "bf16") and not _widens(a.rest, t.dtype):
                a = split(t.args[0], lambda u: invariant(u) and _is_read(u))
            return Split(make(t.op, a.rest, dtype=t.dtype), *a.outside)
        case "add" | "sub":
            a, b = (_split(x, invariant, known) for x in t.args)
            if a.outside == b.outside:
                return Split(make(t.op, a.rest, b.rest), *a.outside)
        case "select":
            return _cases(t, invariant, known)
        case "exp":
            return _exponent(t, invariant)
    return Split(t)


def _cases(t: Term, invariant: Invariant, known: Known) -> Split:
    """Factors of a select: those of the case that is not 0, or what both cases share."""
    condition, *cases = t.args
    zero = [_is_zero(case) for case in cases]
    if any(zero):
        live = _split(cases[zero.index(False)], invariant, known)
        if invariant(condition):
            return replace(live, zeros=_both(live.zeros, ((condition, zero[0]),)))
        rests = [case if z else live.rest for case, z in zip(cases, zero, strict=True)]
        masked = live.masked or live.under is not None
        inside = make("select", condition, *rests)
        return Split(inside, live.over, live.under, live.zeros, masked)
    a, b = (_split(x, invariant, known) for x in cases)
    if a.outside == b.outside:
        return Split(make("select", condition, a.rest, b.rest), *a.outside)
    return Split(t)


def split_in_range(t: Term, invariant: Invariant, fits: Callable[[Split], bool]) -> Split:
    """As `split`, but for the factors without which the rest would leave its range."""
    contracted = not any(axes_of(n) >= axes_of(t) for n in walk(t) if n.op == "read")

    def moves(u: Term) -> bool:
        stays = _is_far(u) if contracted else all(n.is_const for n in walk(u) if n.is_leaf)
        return invariant(u) and not stays

    found = split(t, moves)
    if found.trivial or (fits(found) and not _narrows(found)):
        return found
    best = Split(t)
    free: set[Any] = set()
    for key in dict.fromkeys(_key(n) for n in walk(t) if n.is_leaf and invariant(n)):
        allowed = free | {key}

        def may_move(u: Term, allowed: set[Any] = allowed) -> bool:
            return moves(u) and all(_key(n) in allowed for n in walk(u) if n.is_leaf)

        trial = split(t, may_move)
        if not trial.trivial and fits(trial) and not _narrows(trial):
            best, free = trial, allowed
    return best


def _narrows(found: Split) -> bool:
    """Whether data in range may leave it where the divisor is behind the sum."""
    return has_powers(found.rest) or (found.under is not None and weighs_squares(found.rest))


def weighs_squares(t: Term) -> bool:
    """Whether an exponential weights the square of what is read, or a higher power of it. Weights
    that are divided by their sum add up to 1, and others to as much as a row is long: the square
    of a number that is large, but in range, would be out of it."""
    found = growths(t, Ranges().of_ref)
    return any(
        n.op == "mul" and any(f.op == "exp" for f in _factors(n))
        and any(d >= 2 for key, d in found[n].large.items() if key != LITERALS)
        for n in walk(t)
    )  # fmt: skip


def has_powers(t: Term) -> bool:
    """Whether an exponential is multiplied with itself: of its range half is left, or less, where
    what divided it first (the largest of a row that masks hide) has moved behind."""
    for n in walk(t):
        exponentials = [f for f in _factors(n) if f.op == "exp"] if n.op == "mul" else []
        if len(set(exponentials)) < len(exponentials):
            return True
    return False


def _is_far(t: Term) -> bool:
    """A constant that was written to keep numbers in range."""
    return t.is_const and t.value != 0 and not FAR[0] <= abs(t.value) <= FAR[1]


def _key(leaf: Term) -> Any:
    """What moves together: a tensor, a running value, a scalar, the constants."""
    return (leaf.op, None if leaf.op in ("const", "index") else leaf.attr)


def _widens(t: Term, dtype: str) -> bool:
    return t.op == "cast" and t.args[0].dtype == dtype


def _is_read(t: Term) -> bool:
    """Whether a value comes from memory, or from another reduction."""
    return any(n.op in ("read", "ref") for n in walk(t))


def defer(
    reduction: Reduction,
    axis: int,
    is_invariant: Invariant,
    *,
    numerics: str = "default",
    producers: Mapping[Any, Growth] | None = None,
    whole: Collection[Term] = (),
) -> tuple[Reduction, Term] | None:
    """A sum without its invariant factors, and its final value over `ref(reduction.name)`.

    Args:
        axis: the axis that is summed over.
        is_invariant: which sub-terms to pull out; none of them may vary along the axis.
        numerics: "fast" also pulls out factors that keep the sum in range (`growth`).
        producers: how the reductions that it reads grow.
        whole: terms out of which nothing moves: others subtract from them what they make of the
            sum (`common_roundings`).

    Returns:
        None when nothing can be pulled out.
    """
    if reduction.combiner != "add":
        return None
    value = ref(reduction.name, dtype=reduction.dtype)
    closed = {t: read(("whole", k), *map(index, sorted(axes_of(t))), dtype=t.dtype)
              for k, t in enumerate(whole)}  # fmt: skip
    opened = {leaf: t for t, leaf in closed.items()}

    def fits(found: Split) -> bool:
        if numerics == "fast":
            return True
        ranges = Ranges(numerics == "strict", dict(producers or {}))
        ranges.allow(reduction.body)
        ranges.refs.pop(reduction.name, None)  # `value` is what is left of it
        rest = substitute(found.rest, opened)
        if not rounds_in_range(reduction.body, rest, ranges):
            return False
        ranges.learn(reduction.name, rest)
        return ranges.all_inside((rest, found.finish(value, exact=True)))

    body = substitute(reduction.body, closed)
    found = split_in_range(body, lambda t: is_invariant(t) and axis not in axes_of(t), fits)
    if found.trivial:
        return None
    return replace(reduction, body=substitute(found.rest, opened)), found.finish(value, exact=True)


def _exponent(t: Term, invariant: Invariant) -> Split:
    """exp(a - log(l)) = exp(a) / l; other invariant addends stay: they keep exp in range."""
    rest: list[tuple[Term, bool]] = []
    found: dict[bool, Term | None] = {True: None, False: None}
    if not any(n.op == "log" and invariant(n) for n in walk(t.args[0])):
        return Split(t)
    for addend, positive in _addends(t.args[0], True):
        if addend.op == "log" and invariant(addend):
            found[positive] = _times(found[positive], addend.args[0])
        else:
            rest.append((addend, positive))
    if not any(found.values()):
        return Split(t)
    rest.sort(key=lambda r: not r[1])
    total: Term | None = None
    for addend, positive in rest:
        if total is None:
            total = addend if positive else make("neg", addend)
        else:
            total = make("add" if positive else "sub", total, addend)
    body = const(1.0, t.dtype) if total is None else make("exp", total)
    return Split(body, found[True], found[False])


def _addends(t: Term, positive: bool) -> list[tuple[Term, bool]]:
    if t.op in ("add", "sub"):
        right = positive if t.op == "add" else not positive
        return _addends(t.args[0], positive) + _addends(t.args[1], right)
    if t.op == "neg":
        return _addends(t.args[0], not positive)
    return [(t, positive)]


def _times(a: Term | None, b: Term | None) -> Term | None:
    if a is None or b is None:
        return a if b is None else b
    return make("mul", a, make("cast", b, dtype=a.dtype))


def _factors(t: Term | None) -> list[Term]:
    """The factors of a product; none of None."""
    return [] if t is None else factors(t)


def _both(a: tuple[Zero, ...], b: tuple[Zero, ...]) -> tuple[Zero, ...]:
    return tuple(dict.fromkeys(a + b))


def _is_zero(t: Term) -> bool:
    return t.is_const and t.value == 0
