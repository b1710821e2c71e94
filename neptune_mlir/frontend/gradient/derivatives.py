# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of the scalar operators: how the adjoint of a result reaches each operand.

A row of `PULLBACKS` has one function an operand, or None where no derivative passes (an integer,
a condition, a step function). It takes the adjoint d of the result y = op(*args), then y, then
the operands, and gives the addend of the operand's adjoint.

At ties `max` and `min` give each operand half, beside a NaN both all of it, as PyTorch does; `abs`
gives 0 at 0. The constructors below keep 0 * x, x * 1 and x + 0 out of what they build, and keep a
condition that makes an adjoint 0 outermost: `where(c, 0, d) / x` is written `where(c, 0, d / x)`,
so that a division by 0 which the program avoids is also avoided by its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from neptune_mlir.algebra.terms import OPS, Term, const, is_float, make, rewrite

Pullback = Callable[..., Term]


def zero(like: Term) -> Term:
    """0 in the type of a term."""
    return const(0.0, like.dtype)


def is_zero(t: Term) -> bool:
    return t.is_const and t.value == 0


def plus(a: Term, b: Term) -> Term:
    """a + b; conditions that both addends have are factored out."""
    if is_zero(a):
        return b
    if is_zero(b):
        return a
    if a is b:
        return times(const(2.0, a.dtype), a)
    if a.op == b.op == "select" and a.args[0] is b.args[0]:
        return choose(a.args[0], plus(a.args[1], b.args[1]), plus(a.args[2], b.args[2]))
    if b.op == "neg":
        return make("sub", a, b.args[0])
    shared = [x for x in a.args if x in b.args] if a.op == b.op == "mul" else []
    if shared:
        first, second = (_other_factor(x, shared[0]) for x in (a, b))
        return times(plus(first, second), shared[0])
    return make("add", a, b)


def _other_factor(product: Term, factor: Term) -> Term:
    a, b = product.args
    return b if a is factor else a


def addends_of(t: Term) -> list[Term]:
    """Terms that add up to `t`, in its order."""
    if t.op == "neg":
        return [minus(a) for a in addends_of(t.args[0])]
    if t.op not in ("add", "sub"):
        return [t]
    a, b = map(addends_of, t.args)
    return [*a, *(b if t.op == "add" else map(minus, b))]


def minus(a: Term) -> Term:
    """-a"""
    if is_zero(a):
        return a
    if a.op == "neg":
        return a.args[0]
    if is_masked(a):
        return choose(a.args[0], minus(a.args[1]), minus(a.args[2]))
    return make("neg", a)


def times(a: Term, b: Term) -> Term:
    """a * b"""
    for x, y in ((a, b), (b, a)):
        if is_zero(x):
            return x
        if is_masked(x):
            c, first, second = x.args
            return choose(c, times(first, y), times(second, y))
        if x.op == "neg":
            return minus(times(x.args[0], y))
        if x.is_const and x.value == -1:
            return minus(y)
    return make("mul", a, b)


def over(a: Term, b: Term) -> Term:
    """a / b; a product with 1 / b where b varies along fewer axes: one division for many."""
    if is_zero(a):
        return a
    if is_masked(a):
        return choose(a.args[0], over(a.args[1], b), over(a.args[2], b))
    if a.op == "neg":
        return minus(over(a.args[0], b))
    if b.axes < a.axes:
        return times(a, make("div", const(1.0, b.dtype), b))
    return make("div", a, b)


def choose(condition: Term, a: Term, b: Term) -> Term:
    """a where the condition holds, b elsewhere; nothing twice under one condition."""
    a, b = _under(condition, True, a), _under(condition, False, b)
    return make("select", condition, a, b)


def converted(a: Term, dtype: str) -> Term:
    """`a` in another float type."""
    if a.dtype == dtype:
        return a
    if a.is_const:
        return const(a.value, dtype)
    if is_masked(a):
        return choose(a.args[0], *(converted(x, dtype) for x in a.args[1:]))
    return make("cast", a, dtype=dtype)


def masks_outside(root: Term) -> Term:
    """exp(where(c, x, -inf) - m) as where(c, exp(x - m), 0).

    Equal where m is finite, and 0 where a row of nothing but -inf makes it NaN. What is masked is
    then 0 whatever it is multiplied by or divided by.
    """

    def rule(n: Term) -> Term | None:
        if n.op in ("exp", "exp2"):
            return _exponential(n.op, n.args[0], n.dtype)
        if n.op == "cast" and is_float(n.args[0].dtype) and is_masked(n.args[0]):
            return converted(n.args[0], n.dtype)
        return None

    return rewrite(root, rule)


def _exponential(op: str, exponent: Term, dtype: str) -> Term:
    first, *rest = exponent.args if exponent.op == "sub" else (exponent,)
    if first.op != "select":
        return make(op, exponent)
    condition, *cases = first.args
    if not any(c.is_const and c.value == -math.inf for c in cases):
        return make(op, exponent)
    found = [
        const(0.0, dtype) if c.is_const and c.value == -math.inf
        else _exponential(op, make("sub", c, *rest) if rest else c, dtype)
        for c in cases
    ]  # fmt: skip
    return choose(condition, *found)


def _under(condition: Term, outcome: bool, t: Term) -> Term:
    while t.op == "select" and t.args[0] is condition:
        t = t.args[1 if outcome else 2]
    return t


def is_masked(t: Term) -> bool:
    """0 in one case of a condition."""
    return t.op == "select" and any(map(is_zero, t.args[1:]))


def _number(value: float, like: Term) -> Term:
    return const(value, like.dtype)


def _power_base(d: Term, y: Term, a: Term, b: Term) -> Term:
    less = make("sub", b, _number(1.0, b))
    return times(d, times(b, make("pow", a, less)))


def _power_exponent(d: Term, y: Term, a: Term, b: Term) -> Term:
    return choose(make("eq", a, zero(a)), zero(d), times(d, times(y, make("log", a))))


def _extremum(d: Term, mine: Term, other: Term, op: str) -> Term:
    half = times(d, _number(0.5, d))
    mostly = choose(make("eq", mine, other), half, d)  # a NaN is neither less nor equal
    return choose(make("lt" if op == "max" else "gt", mine, other), zero(d), mostly)


def _absolute(d: Term, y: Term, a: Term) -> Term:
    negative = choose(make("lt", a, zero(a)), minus(d), zero(d))
    return choose(make("gt", a, zero(a)), d, negative)


def _scaled(factor: float) -> Pullback:
    return lambda d, y, *_: times(d, times(y, _number(factor, y)))


PULLBACKS: dict[str, tuple[Pullback | None, ...]] = {
    "add": (lambda d, *_: d, lambda d, *_: d),
    "sub": (lambda d, *_: d, lambda d, *_: minus(d)),
    "mul": (lambda d, y, a, b: times(d, b), lambda d, y, a, b: times(d, a)),
    "div": (
        lambda d, y, a, b: over(d, b),
        lambda d, y, a, b: minus(over(times(d, y), b)),
    ),
    "rem": (lambda d, *_: d, lambda d, y, a, b: times(d, over(make("sub", y, a), b))),
    "pow": (_power_base, _power_exponent),
    "max": (
        lambda d, y, a, b: _extremum(d, a, b, "max"),
        lambda d, y, a, b: _extremum(d, b, a, "max"),
    ),
    "min": (
        lambda d, y, a, b: _extremum(d, a, b, "min"),
        lambda d, y, a, b: _extremum(d, b, a, "min"),
    ),
    "neg": (lambda d, *_: minus(d),),
    "abs": (_absolute,),
    "exp": (lambda d, y, a: times(d, y),),
    "exp2": (_scaled(math.log(2)),),
    "log": (lambda d, y, a: over(d, a),),
    "log2": (lambda d, y, a: over(d, times(a, _number(math.log(2), a))),),
    "log1p": (lambda d, y, a: over(d, plus(_number(1.0, a), a)),),
    "expm1": (lambda d, y, a: times(d, plus(y, _number(1.0, y))),),
    "tanh": (lambda d, y, a: times(d, make("sub", _number(1.0, y), make("mul", y, y))),),
    "sqrt": (lambda d, y, a: over(times(d, _number(0.5, d)), y),),
    "rsqrt": (lambda d, y, a: times(d, times(_number(-0.5, y), over(y, a))),),
    "sin": (lambda d, y, a: times(d, make("cos", a)),),
    "cos": (lambda d, y, a: minus(times(d, make("sin", a))),),
    "erf": (
        lambda d, y, a: times(
            d, times(_number(2 / math.sqrt(math.pi), a), make("exp", make("neg", times(a, a))))
        ),
    ),
    "select": (
        None,
        lambda d, y, c, a, b: choose(c, d, zero(d)),
        lambda d, y, c, a, b: choose(c, zero(d), d),
    ),
    "cast": (lambda d, y, a: d,),
    "quantize": (lambda d, y, a: d,),
}  # fmt: skip
for _step in ("floordiv", "floor", "ceil", "roundeven", "eq", "ne", "lt", "le", "gt", "ge", "and",
              "or", "xor", "not", "shl", "shr"):  # fmt: skip
    PULLBACKS[_step] = (None,) * OPS[_step]


def wide(dtype: str) -> str:
    """The type of the adjoint of a float: 16-bit values have f32 adjoints, which never round."""
    return "f32" if dtype in ("f16", "bf16") else dtype


def pull(node: Term, k: int, d: Term) -> Term | None:
    """What `node`, with adjoint `d`, adds to the adjoint of its operand k.

    None where no derivative passes. Adjoints have the type `wide` of what they belong to.
    """
    back = PULLBACKS[node.op][k]
    if back is None or not is_float(node.args[k].dtype):
        return None
    args = [converted(a, wide(a.dtype)) if is_float(a.dtype) else a for a in node.args]
    value = converted(node, wide(node.dtype))
    return converted(back(d, value, *args), wide(node.args[k].dtype))
