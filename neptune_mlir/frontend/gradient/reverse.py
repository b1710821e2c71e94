# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reverse mode on programs of index notation: one sweep from the outputs to the inputs.

A program is a sequence of reductions; everything between them is scalar. So is its gradient:

    a scalar operator         its row of `derivatives`
    a read of a value         the sum over the axes that the read lacks; at `h // 4`, at a number or
                              at an axis twice, where the position is the one that was read
    sum over j of f           the adjoint of the sum at every j
    product over j of f       times the product of the others, which zeros leave well defined
    max, min over j of f      shared evenly by the positions that attain it; nothing at all where
                              a proof says that no result depends on the value (`invariance`)
    any, all, integers        nothing

The reductions of the program stay in its gradient: whatever an adjoint reads is computed by them
again. What is stored and what is recomputed is fusion's decision, as in every program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.deferral import Split, split
from neptune_mlir.algebra.proofs.proof import Proof
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import InputError
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.gradient.contraction import contraction
from neptune_mlir.frontend.gradient.derivatives import (
    addends_of,
    choose,
    converted,
    is_masked,
    is_zero,
    masks_outside,
    minus,
    over,
    plus,
    pull,
    times,
    wide,
)
from neptune_mlir.frontend.gradient.exchange import exchanged
from neptune_mlir.frontend.gradient.invariance import free_value
from neptune_mlir.frontend.gradient.known_sums import known_sum
from neptune_mlir.frontend.program import Program, ReductionStep, Tensor

# The addends of an adjoint by the axes that each is over: what depends on fewer axes than what
# reads it gets the sum over the others, of all that comes over the same ones at once.
Parts = dict[frozenset[int], Term]


@dataclass(frozen=True)
class Free:
    """A maximum or minimum without an adjoint: the value that nothing depends on, and the proof."""

    step: str
    value: Term
    proof: Proof


def free_extrema(program: Program) -> list[Free]:
    """The maxima and minima of a program whose values no result depends on, the last one first.

    What is found is a constant for those before it: a maximum of log-sum-exps may go before theirs.
    """
    reductions = [Reduction(s.key, s.combiner, s.body, s.body.dtype, s.kept) for s in program.steps]
    results = [o.term for o in program.outputs]
    found: list[Free] = []
    for step in reversed(program.steps):
        if step.combiner not in ("max", "min") or not T.is_float(step.body.dtype):
            continue
        free = free_value(step.key, reductions, results)
        if free is None:
            continue
        value, proof = free
        found.append(Free(step.key, value, proof))
        table = {value: T.sym(f"free {step.key}", value.dtype)}
        reductions = [
            Reduction(r.name, r.combiner, T.substitute(r.body, table), r.dtype, r.axes)
            for r in reductions
        ]
        results = [T.substitute(r, table) for r in results]
    return found


class Reverse:
    """The sweep. `made` is the program to add to: a copy of `source` with inputs for the adjoints
    of its outputs.

    Attributes:
        adjoints: by name of an input or a reduction, over its own axes.
        notes: the derivation, a line for each rule that was applied.
    """

    def __init__(self, source: Program, made: Program, wrt: Sequence[str]):
        self.source = source
        self.made = made
        self.adjoints: dict[str, Term] = {}
        self.notes: list[str] = []
        free = free_extrema(source)
        self._constant = {masks_outside(f.value) for f in free}
        self._steps = {s.key: replace(s, body=masks_outside(s.body)) for s in source.steps}
        self._results = [masks_outside(o.term) for o in source.outputs]
        self._active = self._find_active(wrt)
        for f in free:
            self.notes.append(
                f"no adjoint: {made.show(f.value)}: no result depends on it ({f.proof.status}, "
                f"{len(f.proof.obligations)} obligations)"
            )

    def run(self, cotangents: Mapping[int, Term]) -> None:
        """Sweep from the outputs of these numbers, whose adjoints are given over their axes."""
        parts: dict[Term | str, Parts] = {}
        for k, adjoint in cotangents.items():
            term, axes = self._results[k], frozenset(self.source.outputs[k].axes)
            if term in self._active:
                _add(parts, term, axes, converted(adjoint, wide(term.dtype)))
        for n in reversed(self._order([self._results[k] for k in cotangents])):
            if isinstance(n, str):
                self._through_reduction(n, parts)
            elif n in parts:
                mine = parts.pop(n)
                span = self._span(n, mine)
                self._through_term(n, self._total(mine, span), span, parts)

    def _order(self, roots: Sequence[Term]) -> list[Term | str]:
        """Terms and names of reductions that adjoints go through, each behind what it depends
        on."""
        order: list[Term | str] = []
        seen: set[Term | str] = set()
        stack: list[tuple[Term | str, bool]] = [(r, False) for r in reversed(roots)]
        while stack:
            n, ready = stack.pop()
            if ready:
                order.append(n)
            elif n not in seen and (isinstance(n, str) or n in self._active):
                seen.add(n)
                below: list[Term | str] = []
                if isinstance(n, str):
                    below = [self._steps[n].body]
                elif n.op == "read":
                    below = [n.attr] if n.attr in self._steps else []
                else:
                    below = list(n.args)
                stack.append((n, True))
                stack.extend((b, False) for b in reversed(below))
        return order

    def _find_active(self, wrt: Sequence[str]) -> set[Term]:
        """The terms through which results depend on what is wanted, smoothly."""
        found: set[Term] = set()
        reached = set(wrt)
        bodies = [(s.key if s.combiner not in ("and", "or") else "", s.body)
                  for s in self._steps.values()]  # fmt: skip
        for key, root in [*bodies, *(("", result) for result in self._results)]:
            for n in T.walk(root):
                if n in self._constant or not T.is_float(n.dtype):
                    continue
                if n.attr in reached if n.is_leaf else any(a in found for a in n.args):
                    found.add(n)
            if key and root in found:
                reached.add(key)
        return found

    def _span(self, n: Term, parts: Parts) -> frozenset[int]:
        """The axes for the adjoint of a term: its own, so that what comes over more is summed, or
        more where everything below is summed over some of its own as well: one sum, not two."""
        leaves = [x for x in T.walk(n) if x.is_leaf and x in self._active]
        if len(parts) == 1 and all(x.axes < n.axes for x in leaves):
            return next(iter(parts))
        return n.axes

    def _total(self, parts: Parts, axes: frozenset[int]) -> Term:
        """An adjoint over `axes` from its parts, each over axes of its own."""
        total: Term | None = None
        for span, d in parts.items():
            d = self._summed(d, span - axes)
            total = d if total is None else plus(total, d)
        assert total is not None
        return total

    def _through_term(
        self, n: Term, d: Term, span: frozenset[int], parts: dict[Term | str, Parts]
    ) -> None:
        """From the adjoint of a term, over `span`, to those of its operands, or of what it
        reads."""
        if is_zero(d):
            return
        if n.op == "sym":
            _add(parts, f"{n.attr}", frozenset(), d)
            self._finish_input(n.attr, parts)
        elif n.op == "read":
            own = self._own_axes(n.attr)
            _add(parts, n.attr, frozenset(own), self._placed(d, n))
            if n.attr not in self._steps:
                self._finish_input(n.attr, parts)
        else:
            addends: dict[Term, Term] = {}  # an operand may come twice, as in x * x
            for k, a in enumerate(n.args):
                addend = pull(n, k, d) if a in self._active else None
                if addend is not None:
                    addends[a] = plus(addends[a], addend) if a in addends else addend
            for a, addend in addends.items():
                _add(parts, a, span, addend)

    def _finish_input(self, name: str, parts: dict[Term | str, Parts]) -> None:
        (self.adjoints[name],) = parts[name].values()

    def _through_reduction(self, key: str, parts: dict[Term | str, Parts]) -> None:
        """From the adjoint of a reduction to that of its body."""
        if key not in parts:
            return
        step = self._steps[key]
        (d,) = parts.pop(key).values()
        self._note(f"d {key}", d, f"of {step.combiner} over {self._names(step.removed)}")
        body = self._of_reduction(step, d)
        _add(parts, step.body, frozenset({*step.kept, *step.removed}), body)

    # ---- reads

    def _own_axes(self, name: str) -> tuple[int, ...]:
        if name in self._steps:
            return self._steps[name].kept
        argument = self.source.inputs[name]
        return tuple(a.number for a in argument.shape) if isinstance(argument, Tensor) else ()

    def _summed(self, d: Term, axes: frozenset[int]) -> Term:
        """The sum of a term over axes, as a reduction of the program made.

        What does not vary along them stays outside: factors, conditions that make it 0, and for an
        axis that it does not vary along at all the extent.
        """
        if not axes or is_zero(d):
            return d
        for a in sorted(axes - d.axes):
            d = times(d, T.make("cast", self.made.axis_list[a].size.term, dtype=d.dtype))
        axes &= d.axes
        if not axes:
            return d
        found = split(d, lambda t: not t.axes & axes)
        return _with_factors(self._sum(found.rest, axes), found)

    def _sum(self, body: Term, axes: frozenset[int]) -> Term:
        """The sum of a term, all of which varies along the axes."""
        if body.op == "neg":  # what is added up is a product, not what is subtracted
            return minus(self._sum(body.args[0], axes))
        rest = known = T.const(0.0, body.dtype)
        whole = known_sum(self.made, body, axes)  # what is left of it may be nothing
        addends = [body] if whole is not None else addends_of(body)
        found = [(addend, known_sum(self.made, addend, axes)) for addend in addends]
        for addend, value in found:
            if value is None:
                rest = plus(rest, addend)
                continue
            known = plus(known, value)
            what = f"sum over {self._names(sorted(axes))} of {self.made.show(addend)}"
            self._note(what, value, "from sums that are known")
        if any(value is not None for _, value in found):
            return plus(known, self._summed(rest, axes))
        rest = contraction(rest, self.made.inputs)
        by_others = exchanged(self.made, rest, axes)
        if by_others is None:
            return self._reduced("add", rest, axes)
        self._note("exchange of sums", by_others.value, by_others.reason)
        return by_others.value

    def _reduced(self, combiner: str, body: Term, axes: frozenset[int]) -> Term:
        along = tuple(self.made.axis_list[a] for a in sorted(axes))
        return self.made.reduction(combiner, Expr(body, self.made), along).term

    def _placed(self, d: Term, read: Term) -> Term:
        """The adjoint over the axes of a read's positions, over the own axes of what it reads."""
        own = self._own_axes(read.attr)
        if all(i is T.index(a) for i, a in zip(read.args, own, strict=True)):
            return d
        moved: dict[int, Term] = {}
        rest: list[tuple[int, Term]] = []  # own axes, and positions that are no axis of their own
        for a, i in zip(own, read.args, strict=True):
            if i.op == "index" and i.attr not in moved and self._alike(i.attr, a):
                moved[i.attr] = T.index(a)
            else:
                rest.append((a, i))
        folded = frozenset(read.axes - set(moved))
        if folded & set(own):
            raise InputError(
                f"the gradient of '{read.attr}' at {self.made.show(read)} needs an axis twice",
                hint="read it through an axis that is none of its own",
            )
        here = T.const(True, "i1")
        for a, i in rest:
            here = T.make("and", here, T.make("eq", T.rename_axes(i, moved), T.index(a)))
        return self._summed(choose(here, T.rename_axes(d, moved), T.const(0.0, d.dtype)), folded)

    def _alike(self, a: int, b: int) -> bool:
        """Whether two axes have the same extent: a nest covers whole tensors."""
        x, y = (self.made.axis_list[k].static for k in (a, b))
        return a == b or x == y

    # ---- reductions

    def _of_reduction(self, step: ReductionStep, d: Term) -> Term:
        """The adjoint of a reduction's body."""
        if step.combiner == "add":
            return d
        body = converted(step.body, wide(step.body.dtype))
        value = T.read(step.key, *(T.index(a) for a in step.kept), dtype=body.dtype)
        one, zero = T.const(1.0, body.dtype), T.const(0.0, body.dtype)
        removed = frozenset(step.removed)

        def count(where: Term) -> Term:
            return self._summed(choose(where, one, zero), removed)

        if step.combiner == "mul":
            none = T.make("eq", body, zero)
            zeros = count(none)
            others = self._reduced("mul", choose(none, one, body), removed)
            alone = choose(T.make("eq", zeros, one), times(d, others), zero)
            return choose(none, alone, choose(
                T.make("eq", zeros, zero), over(times(d, others), body), zero
            ))  # fmt: skip
        if (pullback := lookup(step.combiner).pullback) is not None:
            return pullback(d, value, body)
        if step.combiner not in ("max", "min"):
            raise InputError(
                f"the combiner '{step.combiner}' has no derivative",
                hint="give it a pullback where it is registered",
            )
        attained = T.make("eq", body, value)
        self._note(f"d {step.key}", value, "shared by the positions that attain it")
        return choose(attained, over(d, T.make("max", count(attained), one)), zero)

    def _names(self, axes: Iterable[int]) -> str:
        return ", ".join(self.made.axis_list[a].name for a in axes)

    def _note(self, what: str, value: Term, why: str) -> None:
        self.notes.append(f"{what} = {self.made.show(value)}    ({why})")


def _with_factors(value: Term, found: Split) -> Term:
    """A sum with what was taken out of it; divided by one factor at a time, as a product of
    divisors may leave the range of its type."""
    if is_zero(value):
        return value
    none = T.make("eq", value, T.const(0.0, value.dtype))
    if found.over is not None:
        value = times(value, converted(found.over, value.dtype))
    divisors = [] if found.under is None else [found.under]
    while divisors:
        divisor = divisors.pop()
        if divisor.op == "mul":
            divisors += divisor.args
        else:
            value = over(value, converted(divisor, value.dtype))
    if found.masked or (is_masked(found.rest) and _divides(found.over)):
        # nothing live: 0, also over a divisor of 0
        value = choose(none, T.const(0.0, value.dtype), value)
    for condition, when in found.zeros:
        zero = T.const(0.0, value.dtype)
        value = choose(condition, *((zero, value) if when else (value, zero)))
    return value


def _divides(t: Term | None) -> bool:
    return t is not None and any(n.op == "div" for n in T.walk(t))


def _add(parts: dict[Term | str, Parts], n: Term | str, axes: frozenset[int], d: Term) -> None:
    mine = parts.setdefault(n, {})
    mine[axes] = plus(mine[axes], d) if axes in mine else d
