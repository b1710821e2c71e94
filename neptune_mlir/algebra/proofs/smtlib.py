# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Obligations as SMT-LIB 2, decided by z3 when that is installed.

Each obligation becomes `assert not (left = right)` over the reals; `unsat` proves it. The text
is made from the terms themselves, not from the normal forms that the first proof compares.
Transcendental functions are uninterpreted, with the ground instances of

    exp(a + b) = exp(a) * exp(b)     exp(a) > 0     exp(log(u)) = u for u > 0
    sqrt(u) >= 0, sqrt(u)^2 = u      a <= b implies f(a) <= f(b) for increasing f

that the terms at hand call for, so the problem has no quantifiers. Hypotheses: denominators
are not zero, and sums known to be non-negative are positive (an element was seen).
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.operators import order_of
from neptune_mlir.algebra.poly import LN2, TooComplex, to_term
from neptune_mlir.algebra.proofs import proof
from neptune_mlir.algebra.proofs.proof import PROVED, REFUTED, Obligation, Proof, cases, leaf_text
from neptune_mlir.algebra.terms import Term, const, is_float, make, show, substitute, sym, walk

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "="}
_NOT_A_REAL = "not_a_real"
_WRITTEN = {  # operators whose operands are all that their text depends on
    "add": "(+ {} {})", "sub": "(- {} {})", "mul": "(* {} {})", "neg": "(- {})",
    "and": "(and {} {})", "or": "(or {} {})", "xor": "(xor {} {})", "not": "(not {})",
    "select": "(ite {} {} {})", "abs": "(ite (>= {0} 0) {0} (- {0}))",
    "max": "(ite (>= {0} {1}) {0} {1})", "min": "(ite (<= {0} {1}) {0} {1})",
}  # fmt: skip


class _Problem:
    """One equation: declarations, axiom instances, hypotheses and the negated goal."""

    def __init__(self, facts: Facts):
        self.facts = facts
        self.normal = Normaliser(facts, reals=True)
        self.declared: dict[str, str] = {}
        self.names: dict[tuple[Any, ...], str] = {}
        self.axioms: dict[str, None] = {}
        self.hypotheses: dict[str, None] = {}
        self.calls: dict[str, list[str]] = {}
        self._text: dict[Term, str] = {}
        self._exps: set[Term] = set()

    def script(self, left: Term, right: Term, title: str) -> str:
        a, b = self.text(left), self.text(right)
        for op, args in self.calls.items():
            direction = order_of(op)
            for i, x in enumerate(args):
                for y in args[:i]:
                    if direction:
                        lo, hi = (x, y) if direction > 0 else (y, x)
                        self.axioms[f"(=> (<= {x} {y}) (<= ({op} {lo}) ({op} {hi})))"] = None
                        self.axioms[f"(=> (<= {y} {x}) (<= ({op} {hi}) ({op} {lo})))"] = None
        lines = [f"; {line}" for line in title.splitlines()]
        lines += ["(set-logic ALL)"]
        lines += self.declared.values()
        lines += [f"(assert {h}) ; hypothesis" for h in self.hypotheses]
        lines += [f"(assert {x})" for x in self.axioms]
        lines += [f"(assert (not (= {a} {b})))", "(check-sat)"]
        return "\n".join(lines) + "\n"

    def name(self, key: tuple[Any, ...], text: str, sort: str) -> str:
        found = self.names.get(key)
        if found is None:
            found = re.sub(r"[^A-Za-z0-9_.~*']+", "_", text).strip("_").replace("'", "~")
            found = f"v{found}" if found[:1].isdigit() else found
            while found in self.declared:
                found += "~"
            self.names[key] = found
            self.declared[found] = f"(declare-const {found} {sort})"
        return found

    def function(self, op: str, arity: int) -> None:
        sorts = " ".join(["Real"] * arity)
        self.declared.setdefault(op, f"(declare-fun {op} ({sorts}) Real)")

    def text(self, t: Term) -> str:
        found = self._text.get(t)
        if found is None:
            found = self._text[t] = self._make(t)
        return found

    def _make(self, t: Term) -> str:
        if t.is_const:
            return _number(t.value)
        if t.is_leaf:
            return self._leaf(t)
        if (same := self._same(t)) is not None:
            return self.text(same)
        args = [self.text(a) for a in t.args]
        if t.op in ("eq", "ne", "lt", "le", "gt", "ge"):
            return self._compare(t, args)
        if t.op in _WRITTEN:
            return _WRITTEN[t.op].format(*args)
        if t.op == "cast":
            if t.args[0].dtype == "i1":
                return f"(ite {args[0]} 1.0 0.0)"
            if is_float(t.dtype) or not is_float(t.args[0].dtype):
                return args[0]
        if t.op == "div" and is_float(t.dtype):
            if not t.args[1].is_const:
                self.hypotheses[f"(distinct {args[1]} 0)"] = None
            return f"(/ {args[0]} {args[1]})"
        return self._function(t, args)

    def _leaf(self, t: Term) -> str:
        idx = tuple(show(a) for a in t.args)
        text = leaf_text(t) or show(t)
        found = self.name((t.op, t.attr, idx), text, "Bool" if t.dtype == "i1" else "Real")
        if t.op == "ref" and self.facts.name(t) in self.facts.nonneg:
            self.hypotheses[f"(> {found} 0)"] = None
        return found

    def _same(self, t: Term) -> Term | None:
        """A simpler term that is known to be the same."""
        op = t.op
        if op in ("exp", "exp2") and self.normal.equal(t, const(0.0)):
            return const(0.0)  # exp(-inf): a masked element
        if op in ("max", "min"):
            rest = [a for a in t.args if not (a.is_const and a.value == lookup(op).identity)]
            return rest[0] if len(rest) == 1 else None
        if op == "select" and self.text(t.args[0]) in ("true", "false"):
            return t.args[1 if self.text(t.args[0]) == "true" else 2]
        return None

    def _compare(self, t: Term, args: list[str]) -> str:
        decided = self.normal.indicator(t)
        if not decided:
            return "false"
        if decided == {(): 1}:
            return "true"
        if t.op == "ne":
            return f"(distinct {args[0]} {args[1]})"
        return f"({_COMPARE[t.op]} {args[0]} {args[1]})"

    def _function(self, t: Term, args: list[str]) -> str:
        op = t.op
        if op == "exp2":
            return self.text(make("exp", make("mul", t.args[0], LN2)))
        if op == "log2":
            return self.text(make("div", make("log", t.args[0]), LN2))
        if op == "expm1":
            return f"(- {self.text(make('exp', t.args[0]))} 1.0)"
        if op == "log1p":
            return self.text(make("log", make("add", const(1.0), t.args[0])))
        if op == "rsqrt":
            return f"(/ 1.0 {self.text(make('sqrt', t.args[0]))})"
        if op == "pow" and t.args[1].is_const and t.args[1].value in (1, 2, 3, 4):
            return f"(* {' '.join([args[0]] * int(t.args[1].value))} 1.0)"
        self.function(op, len(args))
        call = f"({op} {' '.join(args)})"
        if op == "exp":
            self._exponential(t.args[0], call)
        elif op == "log":
            self.hypotheses[f"(> {args[0]} 0)"] = None
        elif op == "sqrt":
            self.hypotheses[f"(> {args[0]} 0)"] = None
            self.axioms[f"(> {call} 0)"] = None
            self.axioms[f"(= (* {call} {call}) {args[0]})"] = None
        if op in ("tanh", "erf", "sin"):
            self.axioms[f"(= ({op} 0.0) 0.0)"] = None
            self.calls.setdefault(op, ["0.0"])
        if len(args) == 1 and args[0] not in self.calls.setdefault(op, []):
            self.calls[op].append(args[0])
        return call

    def _exponential(self, exponent: Term, call: str) -> None:
        """exp of a sum is the product of exponentials; each is positive."""
        self.axioms[f"(> {call} 0)"] = None
        if exponent in self._exps:
            return
        self._exps.add(exponent)
        try:
            addends = self.normal.poly(exponent)
        except TooComplex:
            return
        over: list[str] = []
        under = [call]
        for m, c in addends.items():
            if len(m) == 1 and m[0][0].op == "log" and m[0][1] == 1 and abs(c) == 1:
                inner = self.text(m[0][0].args[0])
                self.hypotheses[f"(> {inner} 0)"] = None
                (over if c > 0 else under).append(inner)
                continue
            piece = f"(exp {self.text(to_term({m: abs(c)}, 'f32'))})"
            self.axioms[f"(> {piece} 0)"] = None
            (over if c > 0 else under).append(piece)
        if [call] != under or over != [call]:
            self.axioms[f"(= {_product(under)} {_product(over)})"] = None


def _product(factors: list[str]) -> str:
    if len(factors) < 2:
        return factors[0] if factors else "1.0"
    return f"(* {' '.join(factors)})"


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if math.isinf(value) or math.isnan(value):
        return _NOT_A_REAL
    exact = Fraction(value)
    text = f"{abs(exact.numerator)}.0"
    if exact.denominator != 1:
        text = f"(/ {text} {exact.denominator}.0)"
    return f"(- {text})" if exact < 0 else text


def scripts(obligation: Obligation, facts: Facts, general: bool = True) -> list[str]:
    """One SMT-LIB problem per case of the obligation; all must be unsatisfiable.

    Args:
        general: claim it for arbitrary values of the roots and logarithms both sides share.
    """
    normal = Normaliser(facts, reals=True)
    found = []
    for left, right in cases(obligation.left, obligation.right, normal):
        if general:
            left, right = _generalised(left, right)
        if left is not right:
            found.append(_Problem(facts).script(left, right, str(replace(obligation, status=""))))
    return found


def _generalised(left: Term, right: Term) -> tuple[Term, Term]:
    """Roots and logarithms that both sides share become arbitrary numbers: a stronger claim."""
    functions = ("sqrt", "rsqrt", "log", "log2", "tanh", "erf", "sin", "cos", "pow")
    there = set(walk(right))
    shared = [n for n in walk(left) if n.op in functions and n in there]
    table = {n: sym(f"{n.op}_{k}", n.dtype) for k, n in enumerate(shared)}
    # `substitute` works bottom-up: outer functions of replaced ones stay as they are.
    outermost = {n: s for n, s in table.items() if not any(n in set(walk(o)) - {o} for o in shared)}
    return substitute(left, outermost), substitute(right, outermost)


def export(proved: Proof, facts: Facts) -> str:
    """All obligations as one SMT-LIB 2 file; every `check-sat` should answer unsat."""
    texts = [s for o in proved.obligations for s in scripts(o, facts)]
    return "(reset)\n".join(texts)


@dataclass(frozen=True)
class Verdict:
    """What z3 says: proved, refuted (with a model), or unknown."""

    status: str
    model: str = ""


def decide(obligation: Obligation, facts: Facts, timeout_ms: int = 2000) -> Verdict:
    """Ask z3.

    Raises:
        ToolError: z3 is not installed.
    """
    if importlib.util.find_spec("z3") is None:
        from neptune_mlir.errors import ToolError

        raise ToolError(
            "cannot verify with z3: the package is not installed",
            hint="pip install neptune-mlir[verify]",
        )
    verdict = _ask(scripts(obligation, facts), timeout_ms)
    if verdict.status != PROVED:
        verdict = _ask(scripts(obligation, facts, general=False), timeout_ms)
    if verdict.status == REFUTED and obligation.by == proof.ROUNDED:
        return Verdict("unknown", "constants were rounded when they were folded")
    return verdict


def _ask(problems: list[str], timeout_ms: int) -> Verdict:
    for script in problems:
        asked = "\n".join(line for line in script.splitlines() if not line.startswith(";"))
        verdict = _answer(asked, timeout_ms)
        if verdict.status != PROVED:
            return verdict
    return Verdict(PROVED)


@functools.lru_cache(1024)  # half of the obligations of a session are those of another program
def _answer(problem: str, timeout_ms: int) -> Verdict:
    import z3

    if _NOT_A_REAL in problem:
        return Verdict("unknown", "an infinity is left that is no number")
    solver = z3.Solver(ctx=z3.Context())  # what was asked before has no say
    solver.set("timeout", timeout_ms)
    solver.set("random_seed", 0)
    solver.from_string(problem)
    answer = solver.check()
    if answer == z3.sat:
        model = solver.model()
        values = sorted((d.name(), str(model[d])) for d in model.decls() if d.arity() == 0)
        return Verdict(REFUTED, ", ".join(f"{n} = {v}" for n, v in values))
    if answer != z3.unsat:
        return Verdict("unknown", solver.reason_unknown())
    return Verdict(PROVED)
