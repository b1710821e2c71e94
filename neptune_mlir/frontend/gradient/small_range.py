# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constants behind sums of products return to factors that are rounded to f16.

    dq[i, d] = c Σ_j f16(p (dp - t)) k[j, d]      ->      m Σ_j f16(p (2^e dp - 2^e t)) k[j, d]

f16 has little range. What is rounded is the adjoint of a product's result, and the constant, taken
out of the sum, was written to keep that result in range: the adjoint of q k is c times that of the
score c q k. So half of what a constant below 1 scales by goes back, as a power of two, which
changes no digit of what is in range. Half, for the factor has both ends to keep away from: the
largest adjoints of scores are some times 65504 where results are as large as f16 has them, and with
long rows or small cotangents most are near 6e-5, under which digits are lost. (A constant above 1
stays outside: what underflows loses digits, what overflows all of the result.)

It takes no instruction for each element where there is a sum one of whose addends varies along
fewer axes: a product and a sum are one. Whatever else reads that sum reads the same one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.contractions import SMALL_RANGE, contraction_operands
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.gradient.derivatives import choose, is_masked, is_zero, minus, times
from neptune_mlir.frontend.program import Program, ReductionStep


def keep_in_range(program: Program) -> None:
    """Let the sums of a gradient keep their constants, where a factor is rounded."""
    for step in [s for s in program.steps if s.combiner == "add"]:
        rounded = _rounded_factor(step.body)
        if rounded is None:
            continue
        behind = _behind(program, step.key)
        scale = _half_of(min(behind)) if len(behind) == 1 else 1.0
        if scale != 1:
            made = _Scaled(scale)
            body = T.substitute(step.body, {rounded: made(rounded)})
            _replace(program, step, body, scale)
            for place in made.sums:
                _share(program, place, scale)


def fold_scales(program: Program) -> None:
    """Let a sum that much of a program reads times a power of two, and subtracts, be made so."""
    for step in [s for s in program.steps if s.combiner == "add"]:
        inner = [n for s in program.steps for n in T.walk(s.body) if n.axes < s.body.axes]
        scales = {
            n.args[1].value for n in inner
            if _is_read_scaled(n, step.key)
        }  # fmt: skip
        if len(scales) != 1 or contraction_operands(step.body):
            continue
        scale = scales.pop()
        if math.frexp(abs(scale))[0] == 0.5:
            held = [a for n in inner for a in n.args if _is_read_scaled(a, step.key)]
            negated = [n for n in inner if n.op == "neg" and _is_read_scaled(n.args[0], step.key)]
            scale = -scale if len(negated) == len(held) else scale
            body = times(step.body, T.const(scale, step.body.dtype))
            _replace(program, step, body, scale)


class _Scaled:
    """Terms times a power of two.

    Attributes:
        sums: those that have it in both addends, and what became of them.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.sums: list[tuple[Term, Term]] = []

    def __call__(self, t: Term) -> Term:
        if is_masked(t):
            return choose(t.args[0], *map(self, t.args[1:]))
        if is_zero(t):
            return t
        if t.op == "neg":
            return minus(self(t.args[0]))
        if t.op in ("add", "sub") and _has_room(t):
            made = T.make(t.op, *map(self, t.args))
            self.sums.append((t, made))
            return made
        if t.op in ("mul", "div"):
            takers = _takers(t)
            found = [a for a in takers if a.axes < t.axes] or [a for a in takers if _has_room(a)]
            if found:
                a, *rest = t.args
                args = (self(a), *rest) if a is found[0] else (a, self(t.args[1]))
                return T.make(t.op, *args)
        return times(t, T.const(self.scale, t.dtype))


def _takers(t: Term) -> tuple[Term, ...]:
    """The operands a constant in front of a term may go to: all of them, or one of a product."""
    if is_masked(t):
        return t.args[1:]
    if t.op in ("neg", "add", "sub", "mul"):
        return t.args
    return t.args[:1] if t.op == "div" else ()


def _has_room(t: Term) -> bool:
    """Whether a constant in front of a term takes no instruction for each of its elements."""
    takers = _takers(t)
    smaller = any(a.axes < t.axes for a in takers)
    if t.op in ("add", "sub"):
        return smaller
    behind = any(map(_has_room, takers))
    return behind if is_masked(t) or t.op == "neg" else smaller or behind


def _rounded_factor(body: Term) -> Term | None:
    """What a factor of a product is rounded to f16 from."""
    for t in body.args if body.op == "mul" else ():
        inner = t.args[0] if t.op == "cast" else t
        if inner.op == "cast" and inner.dtype == SMALL_RANGE and T.is_float(inner.args[0].dtype):
            return inner.args[0]
    return None


def _half_of(constant: float) -> float:
    """A power of two near the root of a constant below 1."""
    return 2.0 ** (math.floor(math.log2(constant)) // 2) if 0 < constant < 1 else 1.0


def _behind(program: Program, key: str) -> set[float]:
    """The sizes of what multiplies each read of a sum and is constant, or each read of a sum of it
    (over the heads of a group, say)."""
    found = {c for o in program.outputs for c in _constants(o.term, key)}
    for s in program.steps:
        later = _behind(program, s.key) if _adds(s, key) else {1.0}
        found |= {c * more for c in _constants(s.body, key) for more in later}
    return found


def _adds(step: ReductionStep, key: str) -> bool:
    """Whether a step adds up a sum alone, maybe masked: it is as many times as large."""
    body = step.body
    while is_masked(body):
        body = body.args[1] if is_zero(body.args[2]) else body.args[2]
    return step.combiner == "add" and _is_read(body, key)


def _is_read(t: Term, key: str) -> bool:
    return t.op == "read" and t.attr == key


def _is_read_scaled(t: Term, key: str) -> bool:
    return t.op == "mul" and t.args[1].is_const and _is_read(t.args[0], key)


def _constants(root: Term, key: str) -> Iterator[float]:
    """The sizes of what multiplies each read of a sum and is constant."""
    todo, seen = [root], set()
    while todo:
        n = todo.pop()
        if n in seen:
            continue
        seen.add(n)
        factors = T.factors(n)
        if any(_is_read(f, key) for f in factors):
            yield abs(math.prod(f.value for f in factors if f.is_const))
            todo += [f for f in factors if not _is_read(f, key)]
        else:
            todo += n.args


def _read_times(root: Term, key: str, more: float) -> Term:
    """A term with `more` times each read of a sum; one constant where it has one there."""

    def rule(n: Term) -> Term | None:
        if _is_read(n, key):
            return T.make("mul", n, T.const(more, n.dtype))
        if not (n.op == "neg" or (n.op == "mul" and n.args[1].is_const)):
            return None
        if not _is_read_scaled(n.args[0], key):
            return None
        read, factor = n.args[0].args
        outer = -1.0 if n.op == "neg" else n.args[1].value
        return T.make("mul", read, T.const(factor.value * outer, n.dtype))

    return T.rewrite(root, rule)


def _replace(program: Program, step: ReductionStep, body: Term, scale: float) -> None:
    """Let a sum have another body, which makes it `scale` times as large, and what adds it up."""
    larger = [step.key]
    for s in program.steps:
        if any(_adds(s, key) for key in larger):
            larger.append(s.key)

    def made(s: ReductionStep) -> Term:
        if s.key == step.key:
            return body
        return s.body if s.key in larger else _smaller(s.body, larger, scale)

    program.steps = [replace(s, body=made(s)) for s in program.steps]
    program.outputs = [replace(o, term=_smaller(o.term, larger, scale)) for o in program.outputs]


def _smaller(term: Term, larger: list[str], scale: float) -> Term:
    for key in larger:
        term = _read_times(term, key, 1 / scale)
    return term


def _share(program: Program, place: tuple[Term, Term], scale: float) -> None:
    """Let what reads a term as a factor read the one that is scaled, which others do."""
    for step in [s for s in program.steps if s.combiner == "add"]:
        body = _with_factor(step.body, place)
        if body is not None:
            _replace(program, step, body, scale)
    outputs = []
    for output in program.outputs:
        inner = output.term.args[0] if output.term.op == "cast" else output.term
        made = _with_factor(inner, place)
        if made is not None:
            whole = times(made, T.const(1 / scale, made.dtype))
            output = replace(output, term=T.make("cast", whole, dtype=output.term.dtype))
        outputs.append(output)
    program.outputs = outputs


def _with_factor(t: Term, place: tuple[Term, Term]) -> Term | None:
    """A product with another term in place of one of its factors; None where that is no factor, or
    more than one."""
    old, new = place
    path: list[Term] = []
    while t is not old:
        path.append(t)
        if not (t.op in ("mul", "neg") or is_masked(t)):
            return None
        held = [a for a in t.args if any(n is old for n in T.walk(a))]
        if len(held) != 1:
            return None
        t = held[0]
    made = new
    for outer, inner in zip(path[::-1], [old, *path[:0:-1]], strict=True):
        args = (made if a is inner else a for a in outer.args)
        made = T.make(outer.op, *args, dtype=outer.dtype)
    return made
