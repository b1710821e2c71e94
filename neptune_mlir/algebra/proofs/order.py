# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does a function of accumulators commute with max and min (and with or and and)?

    preserves(F, "max", ...):  F(max(a, b)) = max(F(a), F(b))

holds for order-preserving F of one accumulator that is a maximum, for order-reversing F of one
that is a minimum, and for the maximum of several such. The check mirrors the definition and
shares nothing with the code that found F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.operators import order_of
from neptune_mlir.algebra.terms import COMPARISONS, Term, walk

FLIP = {"max": "min", "min": "max", "or": "and", "and": "or"}
ORDER = {"or": "max", "and": "min"}


def preserves(t: Term, want: str, combiner: Callable[[Term], str], facts: Facts) -> bool:
    """`combiner(leaf)` tells how the accumulator behind an `acc` leaf is combined."""
    return want in FLIP and _Check(combiner, facts).holds(t, want)


def _moves(n: Term) -> bool:
    """Whether a term reads accumulators."""
    return any(x.op == "ref" and isinstance(x.attr, tuple) and x.attr[0] == "acc" for x in walk(n))


@dataclass(frozen=True)
class _Check:
    """See `preserves`."""

    combiner: Callable[[Term], str]
    facts: Facts

    def holds(self, n: Term, want: str) -> bool:
        if not _moves(n):
            return True
        if n.op == "ref":
            return self.combiner(n) == want
        if order := order_of(n.op):
            return self.holds(n.args[0], want if order > 0 else FLIP[want])
        if n.op == want:
            return all(self.holds(a, want) for a in n.args)
        if n.op == "select":
            return self._select(n, want)
        if n.op == "mul" and n.args[0] is n.args[1]:
            return self.facts.sign(n.args[0]) == 1 and self.holds(n.args[0], want)
        if len(n.args) != 2 or (_moves(n.args[0]) and _moves(n.args[1])):
            return False
        return self._of_one(n, want)

    def _of_one(self, n: Term, want: str) -> bool:
        """Of two operands one moves."""
        a, b = n.args
        fixed, free = (b, a) if _moves(a) else (a, b)
        if n.op in ("add", "max", "min", "and", "or"):
            return self.holds(free, want)
        if n.op == "sub":
            return self.holds(free, want if free is a else FLIP[want])
        if n.op == "mul" or (n.op == "div" and free is a):
            sign = self.facts.sign(fixed)
            return sign is not None and self.holds(free, want if sign > 0 else FLIP[want])
        if n.op in COMPARISONS - {"eq", "ne"} and want in ORDER:
            grows = (n.op in ("gt", "ge")) == (free is a)
            return self.holds(free, ORDER[want] if grows else FLIP[ORDER[want]])
        return False

    def _select(self, n: Term, want: str) -> bool:
        cond, a, b = n.args
        if not _moves(cond):
            return self._known_sign(cond, a, b, want)
        # Empty as long as the accumulator is its identity: then the result is the identity.
        empty = cond.op == "eq" and cond.args[0].op == "ref" and cond.args[1].is_const
        return (
            empty
            and cond.args[1].value == lookup(self.combiner(cond.args[0])).identity
            and a.is_const
            and a.value == lookup(want).identity
            and self.holds(b, want)
        )

    def _known_sign(self, cond: Term, a: Term, b: Term, want: str) -> bool:
        """Each arm, knowing the sign that the condition grants (`select(c >= 0, ...)`)."""
        if cond.op == "ge" and cond.args[1].is_const and cond.args[1].value == 0:
            with self.facts.assuming(cond.args[0], 1):
                first = self.holds(a, want)
            with self.facts.assuming(cond.args[0], -1):
                return first and self.holds(b, want)
        return self.holds(a, want) and self.holds(b, want)
