# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example chains at the level of terms, for the solver's tests.

Axes: 0 = row i, 1 = streamed j, 2 = a spare, 3 = output feature e. `E` gives terms operators.
"""

# ruff: noqa: E501, E741, RUF005
from __future__ import annotations

import math
from collections.abc import Callable

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.solver import Reduction
from neptune_mlir.algebra.terms import Term

AXIS = 1
INF = math.inf


class E:
    """A term with Python's operators."""

    def __init__(self, term: Term):
        self.term = term

    def __add__(self, o): return _op("add", self, o)
    def __radd__(self, o): return _op("add", o, self)
    def __sub__(self, o): return _op("sub", self, o)
    def __rsub__(self, o): return _op("sub", o, self)
    def __mul__(self, o): return _op("mul", self, o)
    def __rmul__(self, o): return _op("mul", o, self)
    def __truediv__(self, o): return _op("div", self, o)
    def __rtruediv__(self, o): return _op("div", o, self)
    def __neg__(self): return _op("neg", self)
    def __le__(self, o): return _op("le", self, o)
    def __lt__(self, o): return _op("lt", self, o)
    def __gt__(self, o): return _op("gt", self, o)
    def __ge__(self, o): return _op("ge", self, o)
    def __and__(self, o): return _op("and", self, o)  # fmt: skip


def _wrap(x, dtype="f32") -> Term:
    return x.term if isinstance(x, E) else T.const(x, dtype)


def _op(op, *args) -> E:
    dtype = next(a.term.dtype for a in args if isinstance(a, E))
    return E(T.make(op, *(_wrap(a, dtype) for a in args)))


def call(op: str) -> Callable[..., E]:
    return lambda *args: _op(op, *args)


exp, log, tanh, sqrt, rsqrt, absolute, maximum, minimum = map(
    call, ("exp", "log", "tanh", "sqrt", "rsqrt", "abs", "max", "min")
)


def where(c: E, a, b) -> E:
    dtype = next((x.term.dtype for x in (a, b) if isinstance(x, E)), "f32")
    return E(T.make("select", c.term, _wrap(a, dtype), _wrap(b, dtype)))


def equal(a, b) -> E:
    return _op("eq", a, b)


def cast(a: E, dtype: str) -> E:
    return E(T.make("cast", a.term, dtype=dtype))


def read(key: str, *axes: int, dtype: str = "f32") -> E:
    return E(T.read(key, *map(T.index, axes), dtype=dtype))


def ref(key: str, *axes: int) -> E:
    return E(T.ref(key, *map(T.index, axes or (0,))))


def number(axis: int) -> E:
    return E(T.index(axis))


def sym(name: str) -> E:
    return E(T.sym(name))


def reduction(name: str, combiner: str, body: E, dtype: str = "f32") -> Reduction:
    return Reduction(name, combiner, body.term, dtype)


x, s, v, w = read("x", 0, 1), read("s", 0, 1), read("v", 1, 3), read("w", 1, 3)
u = read("u", 0, 1)
m, l, n = ref("m"), ref("l"), sym("n")
i, j = number(0), number(1)
p = exp(x - m)


def softmax_over(logits: E, *more: Reduction) -> list[Reduction]:
    """Running maximum and sum, then `more`."""
    return [
        reduction("m", "max", logits),
        reduction("l", "add", exp(logits - m)),
        *more,
    ]


def attention(logits: E) -> list[Reduction]:
    return softmax_over(logits, reduction("o", "add", exp(logits - m) / l * v))


def norm(*more: Reduction) -> list[Reduction]:
    return [
        reduction("s", "add", x),
        reduction("q", "add", (x - ref("s") / n) * (x - ref("s") / n)),
        *more,
    ]


def data_weighted(*more: Reduction) -> list[Reduction]:
    """The sums of weights that are data, and of what they weigh, then `more`."""
    return [
        reduction("l", "add", absolute(u)),
        reduction("mean", "add", absolute(u) * x),
        *more,
    ]


scaled = s * 0.125
causal = where(j <= i, scaled, -INF)
features = exp(x - read("h", 1) - m) + 1e-3
centred = x - ref("s") / n
unit = rsqrt(ref("q") / n + 1e-5)

ZOO: dict[str, list[Reduction]] = {
    "softmax": softmax_over(x),
    "log-sum-exp": softmax_over(x),
    "weighted sum": attention(x),
    "attention": attention(scaled),
    "causal": attention(causal),
    "window": attention(where((j <= i) & (_op("sub", i, j) < 3), scaled, -INF)),
    "alibi": attention(scaled + cast(j - i, "f32") * sym("slope")),
    "softcap": attention(tanh(scaled / 30.0) * 30.0),
    "sink": attention(scaled) + [reduction("d", "add", v * exp(scaled - log(l) - m))],
    "document": attention(
        where(
            equal(E(T.read("doc", T.index(0), dtype="i32")), E(T.read("doc", T.index(1), dtype="i32"))),
            scaled, -INF,
        )
    ),
    "guarded by the program": softmax_over(
        causal,
        reduction("o", "add", exp(causal - where(equal(m, -INF), 0.0, m)) / where(equal(l, 0.0), 1.0, l) * v),
    ),
    "zero where all is masked": softmax_over(
        causal,
        reduction("none", "and", equal(causal, -INF), "i1"),
        reduction("o", "add", where(E(T.ref("none", T.index(0), dtype="i1")), 0.0, exp(causal - m) / l) * v),
    ),
    "masked outside": [
        reduction("m", "max", scaled),
        reduction("l", "add", where(j <= i, exp(scaled - m), 0.0)),
        reduction("o", "add", where(j <= i, exp(scaled - m), 0.0) / l * v),
    ],
    "scale inside the exponent": [
        reduction("m", "max", s),
        reduction("l", "add", exp((s - m) * 0.125)),
        reduction("o", "add", exp((s - m) * 0.125) / l * v),
    ],
    "exp2": [
        reduction("m", "max", s * 0.18),
        reduction("l", "add", call("exp2")(s * 0.18 - m)),
        reduction("o", "add", call("exp2")(s * 0.18 - m) * v / l),
    ],
    "lse-returning": softmax_over(x, reduction("o", "add", exp(x - (m + log(l))) * v)),
    "half precision": softmax_over(
        x, reduction("o", "add", cast(cast(p / l, "f16"), "f32") * cast(read("vh", 1, 3, dtype="f16"), "f32"))
    ),
    "cross-entropy": softmax_over(x, reduction("t", "add", where(equal(j, E(T.read("y", T.index(0), dtype="index"))), x - m - log(l), 0.0))),
    "variance": norm(),
    "layer norm + matmul": norm(
        reduction("o", "add", (centred * unit * read("g", 1) + read("b", 1)) * w)
    ),
    "rms norm + matmul": [
        reduction("q", "add", x * x),
        reduction("o", "add", x * unit * read("g", 1) * w),
    ],
    "absmax + matmul": [
        reduction("a", "max", absolute(x)),
        reduction("o", "add", x / maximum(ref("a"), 1e-6) * w),
    ],
    "two-level softmax": [  # over groups; x is each group's own log-sum-exp
        reduction("m", "max", read("gm", 0, 1) + log(read("gl", 0, 1))),
        reduction("l", "add", exp(read("gm", 0, 1) + log(read("gl", 0, 1)) - m)),
        reduction("o", "add", exp(read("gm", 0, 1) + log(read("gl", 0, 1)) - m) / l * v),
    ],
    "performer": [
        reduction("m", "max", x),
        reduction("z", "add", features),
        reduction("c", "add", features * v),
        reduction("r", "add", features / ref("z") * v),
    ],
    "log-domain weighted mean": softmax_over(
        x + log(read("u", 1)),
        reduction("mean", "add", exp(x + log(read("u", 1)) - m) * read("val", 0, 1) / l),
    ),
    "weighted variance": softmax_over(
        x,
        reduction("mu", "add", p / l * read("val", 0, 1)),
        reduction("q", "add", p / l * (read("val", 0, 1) - ref("mu")) * (read("val", 0, 1) - ref("mu"))),
    ),
    "deviations without weights": softmax_over(
        x,
        reduction("mu", "add", p / l * read("val", 0, 1)),
        reduction("o", "add", (read("val", 0, 1) - ref("mu")) * v),
    ),
    "deviations from a mean that data weigh": data_weighted(
        reduction("o", "add", (x - ref("mean") / ref("l")) * v),
    ),
    "variance that data weigh": data_weighted(
        reduction("q", "add", absolute(u) * (x - ref("mean") / ref("l")) * (x - ref("mean") / ref("l"))),
    ),
    "covariance that data weigh": data_weighted(
        reduction("other", "add", absolute(u) * s),
        reduction("c", "add", absolute(u) * (x - ref("mean") / ref("l")) * (s - ref("other") / ref("l"))),
    ),
    "covariance": [
        reduction("s", "add", x),
        reduction("t", "add", s),
        reduction("c", "add", (x - ref("s") / n) * (s - ref("t") / n)),
    ],
    "masked variance": [
        reduction("k", "add", where(j <= i, 1.0, 0.0)),
        reduction("s", "add", where(j <= i, x, 0.0)),
        reduction("q", "add", where(j <= i, (x - ref("s") / ref("k")) * (x - ref("s") / ref("k")), 0.0)),
    ],
    "unscaled exponent": [
        reduction("s", "add", x),
        reduction("q", "add", exp(x - ref("s") / n) * v),
    ],
    "largest deviation": [
        reduction("s", "add", x),
        reduction("d", "max", absolute(x - ref("s") / n)),
        reduction("o", "add", (x - ref("s") / n) / ref("d") * w),
    ],
    "nothing left": softmax_over(x, reduction("o", "add", p * (v - v)), reduction("top", "max", p * (x - x))),
    "masked total": [
        reduction("s", "add", x),
        reduction("hi", "max", where(j <= i, ref("s"), 0.0)),
        reduction("lo", "min", where(j <= i, x, ref("s"))),
    ],
    "any above the mean": [
        reduction("s", "add", x),
        reduction("any", "or", x > ref("s") / n, "i1"),
    ],
    "largest weight": softmax_over(x, reduction("top", "max", p / l)),
    "largest weighted value": softmax_over(x, reduction("top", "max", p / l * read("u", 1))),
    "product": [
        reduction("hi", "max", x),
        reduction("e", "mul", exp((x - ref("hi")) * 0.01)),
    ],
    "range": [
        reduction("hi", "max", x),
        reduction("lo", "min", x),
        reduction("o", "add", (x - ref("lo")) / (ref("hi") - ref("lo")) * w),
    ],
}  # fmt: skip


UNFUSABLE: dict[str, tuple[list[Reduction], str, str]] = {
    "relu under add": (
        [reduction("m", "max", x), reduction("o", "add", maximum(x - m, 0.0))], "re-basing", "max",
    ),
    "absolute deviation": (
        [reduction("s", "add", x), reduction("o", "add", absolute(x - ref("s") / n))],
        "re-basing", "abs",
    ),
    "count above the mean": (
        [reduction("s", "add", x), reduction("o", "add", where(x > ref("s") / n, 1.0, 0.0))],
        "re-basing", "select",
    ),
    "temperature from a reduction": (
        [reduction("a", "max", absolute(x)), reduction("o", "add", exp(x / ref("a")))],
        "homomorphism", "exp",
    ),
    "softmax of softmax": (
        softmax_over(x, reduction("o", "add", exp(p / l))), "homomorphism", "exp",
    ),
    "logarithm of a shifted value": (
        [reduction("m", "min", x), reduction("o", "add", log(x - m + 1.0))],
        "homomorphism", "log",
    ),
    "harmonic": (
        [reduction("m", "min", x), reduction("o", "add", 1.0 / (x - m + 1.0))],
        "homomorphism", "div",
    ),
}  # fmt: skip
