# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exchange of sums: a sum that reads an inner sum, as one over the inner sum's axis.

    S = sum over j of a(j) * T(j)      T(j) = sum over e of b(e) * c(j, e)
    U(e) = sum over j of a(j) * c(j, e) is in the program

    S = sum over e of b(e) * U(e)

Right because finite sums commute, if the products are equal, which is the obligation; taken where
it visits fewer points. In softmax(x) v it turns the sum over the keys of weight times its adjoint
into one over the columns of v, result times its adjoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.proofs.proof import PROVED, Obligation, discharge
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.gradient.derivatives import is_zero, masks_outside, over, times
from neptune_mlir.frontend.program import Program, ReductionStep

UNKNOWN = 1024  # points of an axis whose extent is known at run time only

Factors = Counter[Term]  # with exponents, which may be negative


@dataclass(frozen=True)
class Exchanged:
    """The value of a sum by other sums, and why they are equal."""

    value: Term
    reason: str


def exchanged(program: Program, body: Term, axes: frozenset[int]) -> Exchanged | None:
    """The sum of `body` over `axes` from sums that `program` has, where that is cheaper."""
    steps = {s.key: s for s in program.steps if s.combiner == "add"}
    outer = _factors(body)
    for read in [f for f, n in outer.items() if f.op == "read" and n == 1 and f.attr in steps]:
        inner = steps[read.attr]
        fresh = set(inner.removed) - body.axes
        if read.args != tuple(T.index(a) for a in inner.kept) or fresh != set(inner.removed):
            continue
        if _points(program, inner.removed) >= _points(program, axes):
            continue
        whole = _factors(inner.body)
        whole.update(outer)
        whole[read] -= 1
        for step in steps.values():
            found = _through(program, step, whole, axes, inner, read)
            if found is not None:
                return found
    return None


def _through(
    program: Program, step: ReductionStep, whole: Factors, axes: frozenset[int],
    inner: ReductionStep, read: Term,
) -> Exchanged | None:  # fmt: skip
    """The double sum by way of one that the program has over the same axes."""
    if set(step.removed) != axes or step is inner:
        return None
    rest = Counter(whole)
    rest.subtract(_factors(step.body))
    if any(f.axes & axes for f, n in rest.items() if n):
        return None
    outside = _product(rest, step.body.dtype)
    normal = Normaliser(Facts(frozenset()), reals=True)
    both = _product(whole, step.body.dtype)
    claim = discharge(
        Obligation("exchange", step.key, both, T.make("mul", outside, step.body)), normal
    )
    if claim.status != PROVED:
        return None
    made = T.read(step.key, *(T.index(a) for a in step.kept), dtype=step.body.dtype)
    along = tuple(program.axis_list[a] for a in inner.removed)
    value = program.reduction("add", Expr(times(outside, made), program), along).term
    reason = (
        f"{_points(program, inner.removed)} points in place of {_points(program, axes)}: "
        f"{program.show(read)} is a sum over {', '.join(a.name for a in along)}; "
        f"the products are equal: {claim.status} ({claim.by})"
    )
    return Exchanged(value, reason)


def _points(program: Program, axes: Iterable[int]) -> int:
    sizes = (program.axis_list[a].static for a in axes)
    return prod(UNKNOWN if size is None else size for size in sizes)


def _factors(t: Term) -> Factors:
    """What a term is a product of; masks are factors of 0 and 1."""
    found: Factors = Counter()
    pending = [(masks_outside(t), 1)]
    while pending:
        n, sign = pending.pop()
        if n.op in ("mul", "div"):
            pending += [(n.args[0], sign), (n.args[1], sign if n.op == "mul" else -sign)]
        elif n.op == "neg":
            found[T.const(-1.0, n.dtype)] += 1
            pending.append((n.args[0], sign))
        elif n.op == "select" and any(map(is_zero, n.args[1:])):
            live = is_zero(n.args[1])
            one = T.const(1.0, n.dtype)
            cases = (n.args[1], one) if live else (one, n.args[2])
            found[T.make("select", n.args[0], *cases)] += 1
            pending.append((n.args[2 if live else 1], sign))
        else:
            found[n] += sign
    return found


def _product(factors: Factors, dtype: str) -> Term:
    """A term of these factors, in an order of their own."""
    value = T.const(1.0, dtype)
    ordered = sorted(factors.items(), key=lambda f: (f[1] < 0, T.key(f[0])))
    for f, n in ordered:
        for _ in range(abs(n)):
            value = times(value, f) if n > 0 else over(value, f)
    return value
