# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of the kinds that lose digits: masks, counts, weights, scales, norms, softmaxes.

`Choices` makes every decision, from a seed or from a list, so that a failing program shrinks and
runs again. A program is one to three statistics of rows, each perhaps of what another one made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra.numerics.floats import LARGEST
from neptune_mlir.frontend import notation as N

ROWS, LENGTH, WIDTH = 5, 37, 3  # 37: nine tiles of 4 and a ragged one
SHAPES = {"x": "ij", "y": "ij", "w": "ij", "bias": "ij", "u": "j", "pad": "j", "r": "i", "v": "je"}


class Choices:
    """Decisions, drawn from a seed or taken from `given` (0 behind its end)."""

    def __init__(self, seed: int = 0, given: Sequence[int] | None = None):
        self.random, self.given = random.Random(seed), given
        self.taken: list[int] = []

    def __call__(self, options: Sequence[Any]) -> Any:
        if self.given is None:
            k = self.random.randrange(len(options))
        else:
            at = len(self.taken)
            k = min(self.given[at], len(options) - 1) if at < len(self.given) else 0
        self.taken.append(k)
        return options[k]


class Grammar:
    """Builds one program. The first of a list of options is the simplest one. `rounds`: factors of
    products have the 16 bits of their partners, as matrix instructions take them."""

    def __init__(
        self, pick: Choices, length: int = LENGTH, rows: int = ROWS, rounds: bool = False
    ):  # fmt: skip
        self.pick, self.rounds = pick, rounds
        self.program = N.Program("hostile")
        # Rows and columns of run-time extents come from the first input that has them.
        known = pick([True, True, False])
        self.i = self.program.axis("i", rows if known else None)
        self.j = self.program.axis("j", length if known else None)
        self.e = self.program.axis("e", WIDTH)
        self.tensors: dict[str, N.Expr] = {}
        self.raw = True  # the data is an input as it is
        self.dtype = pick(["f32", "f32", "f32", "f32", "f16", "bf16"])
        self.input("x")

    def input(self, name: str, dtype: str = "") -> N.Expr:
        """An element of an input, in f32 where it is a float."""
        key = name + (dtype and f"_{dtype}")
        if key not in self.tensors:
            own = [{"i": self.i, "j": self.j, "e": self.e}[a] for a in SHAPES[name]]
            tensor = self.program.input(key, *own, dtype=dtype or self.dtype)
            self.tensors[key] = tensor[tuple(own)]
        element = self.tensors[key]
        return N.cast(element, "f32") if element.dtype in ("f16", "bf16") else element

    # What statistics are made of.

    def data(self) -> N.Expr:
        """Something along the row."""
        x = self.input("x")
        return self.pick([
            lambda: x,
            lambda: x,
            lambda: x,
            lambda: self.input("y"),
            lambda: x * self.constant(),
            lambda: x + self.input("y"),
            lambda: x * self.input("u"),
            lambda: x + self.input("r"),
            lambda: abs(x),
            lambda: x / (N.max(abs(x), self.j) + self.small()),
            lambda: N.exp(self.scores() - N.max(self.input("x"), self.j)),
        ])()  # fmt: skip

    def small(self) -> float:
        """What is added to a denominator: of what was computed before, never nothing, since what
        is 0 over the reals is rounding noise in float64, and 0/0 has no reference."""
        return self.pick([1e-6, 0.0] if self.raw else [1e-6, 1e-5])

    def constant(self) -> float:
        return self.pick([2.0, 0.125, 1e-3, 1e3, 1e-20, 1e20, -1.0])

    def condition(self) -> N.Expr:
        i, j = self.i, self.j
        return self.pick([
            lambda: self.input("pad", "i1"),
            lambda: self.input("w", "i1"),
            lambda: self.input("w", "i64") != 0,
            lambda: j <= i,
            lambda: i - j < 3,
            lambda: j < 9,
            lambda: self.input("y") > 0.0,
        ])()  # fmt: skip

    def hidden(self) -> float:
        """What stands where nothing is to be seen."""
        return self.pick([-N.inf, -LARGEST["f32"], -1e9, -1e4])

    def scores(self) -> N.Expr:
        """What exponentials are taken of."""
        x = self.input("x")
        return self.pick([
            lambda: x,
            lambda: N.where(self.condition(), x, self.hidden()),
            lambda: x + self.input("bias"),
            lambda: x + N.where(self.condition(), 0.0, self.hidden()),
            lambda: x * self.constant(),
            lambda: N.where(self.condition(), x + self.input("bias"), self.hidden()),
            lambda: x * self.input("r"),
            lambda: x / (N.max(abs(x), self.j) + 1e-6) * self.constant(),
        ])()  # fmt: skip

    def weight(self) -> tuple[Any, N.Expr]:
        """A weight along the row as a function of what it weights, and the sum of all weights."""
        j = self.j

        def numbers(w: N.Expr, total: Any = None) -> tuple[Any, N.Expr]:
            return (lambda a: w * a), (N.sum(w, j) if total is None else total)

        def counted() -> tuple[Any, N.Expr]:
            keep = self.condition()
            count = self.pick([
                lambda: N.cast(N.sum(N.cast(keep, "i64"), j), "f32"),
                lambda: N.sum(N.cast(keep, "f32"), j),
            ])()  # fmt: skip
            return (lambda a: N.where(keep, a, 0.0)), self.pick([
                count, N.maximum(count, 1.0), count + 1e-6,
            ])  # fmt: skip

        def probabilities() -> tuple[Any, N.Expr]:
            s = self.scores()
            p = N.exp(s - N.max(s, j))
            return self.pick([
                lambda: numbers(p), lambda: numbers(p / N.sum(p, j), self.one())
            ])()  # fmt: skip

        return self.pick([
            lambda: ((lambda a: a), N.cast(j.size, "f32")),
            counted,
            lambda: numbers(self.input("w")),
            lambda: numbers(self.input("w"), self.one()),  # data that are to sum to 1
            lambda: numbers(abs(self.input("w"))),
            probabilities,
            lambda: numbers(self.input("u")),
            lambda: numbers(N.cast(self.condition(), "f32")),
        ])()  # fmt: skip

    def one(self) -> N.Expr:
        return self.program.constant(1.0)

    # Statistics of rows. Each gives a value along i, and perhaps a value along j too.

    def variance(self) -> N.Expr:
        """Squares around a mean, weighted or not."""
        x, j = self.data(), self.j
        weigh, total = self.weight()
        d = x - N.sum(weigh(x), j) / total
        spread = N.sum(weigh(d * d), j) / total
        return self.pick([
            lambda: spread,
            lambda: N.sqrt(spread),
            lambda: d * N.rsqrt(spread + 1e-5),
            lambda: self.product(d * N.rsqrt(spread + 1e-5)),
            lambda: N.sum(weigh(abs(d)), j) / total,
            lambda: N.sum(weigh(d * d * d * d), j) / total,
        ])()  # fmt: skip

    def covariance(self) -> N.Expr:
        x, y, j = self.data(), self.input("y"), self.j
        weigh, total = self.weight()
        dx = x - N.sum(weigh(x), j) / total
        dy = y - N.sum(weigh(y), j) / total
        found = N.sum(weigh(dx * dy), j) / total
        sizes = N.sum(weigh(dx * dx), j) / total, N.sum(weigh(dy * dy), j) / total
        return self.pick([found, found * N.rsqrt(sizes[0] * sizes[1] + 1e-6)])

    def residual(self) -> N.Expr:
        """What a projection leaves."""
        x, y, j = self.data(), self.input("y"), self.j
        weigh, _ = self.weight()
        rest = y - N.sum(weigh(x * y), j) / (N.sum(weigh(x * x), j) + self.small()) * x
        return self.pick([
            lambda: N.sum(rest * rest, j),
            lambda: N.sum(weigh(rest * rest), j),
            lambda: rest,
            lambda: N.max(abs(rest), j),
        ])()  # fmt: skip

    def scaled_norm(self) -> N.Expr:
        """Powers of what the largest element, or a constant, scales."""
        x, j = self.data(), self.j
        size = self.pick([
            lambda: N.max(abs(x), j) + self.small(), lambda: N.sum(abs(x), j) + self.small(),
            lambda: self.one() * 1e3,
        ])()  # fmt: skip
        t = x / size
        total = N.sum(self.pick([t * t, t * t * t * t, abs(t), t * t * t]), j)
        return self.pick([
            lambda: size * N.sqrt(total),
            lambda: total,
            lambda: self.product(t),
            lambda: t * N.rsqrt(total + 1e-6),
            lambda: self.product(t * N.rsqrt(total + 1e-6)),
        ])()  # fmt: skip

    def exponentials(self) -> N.Expr:
        """Softmax and what is made of it."""
        s, j = self.scores(), self.j
        m = N.max(s, j)
        m = self.pick([
            lambda: m, lambda: m, lambda: N.where(m == -N.inf, 0.0, m),
            lambda: N.where(abs(m) == N.inf, 0.0, m), lambda: N.maximum(m, self.input("r")),
        ])()  # fmt: skip
        p = N.exp(s - m)
        total = N.sum(p, j)
        logs = s - m - N.log(total)
        return self.pick([
            lambda: N.log(total) + m,
            lambda: total,
            lambda: p / total,
            lambda: -N.sum(p / total * logs, j),
            lambda: -N.sum(N.exp(logs) * logs, j),
            lambda: N.sum(p * self.data(), j) / total,
            lambda: self.product(p / total),
            lambda: N.where(total == 0.0, 0.0, self.product(p) / total),
            lambda: logs,
            lambda: N.sum(p / total * (p / total), j),
            lambda: N.log(total) - N.sum(p * (s - m), j) / total,
        ])()  # fmt: skip

    def norm(self) -> N.Expr:
        """RMS norm, and the product that follows it."""
        x, j = self.data(), self.j
        weigh, total = self.weight()
        rate = N.rsqrt(N.sum(weigh(x * x), j) / total + self.small())
        return self.pick([
            lambda: x * rate,
            lambda: self.product(x * rate),
            lambda: self.product(x * rate * self.input("u")),
            lambda: N.max(abs(x * rate), j),
        ])()  # fmt: skip

    def product(self, a: N.Expr) -> N.Expr:
        if self.rounds and self.dtype in ("f16", "bf16"):
            a = N.cast(N.cast(a, self.dtype), "f32")
        return N.sum(a * self.input("v"), self.j)

    def build(self) -> N.Program:
        statistics: list[Callable[[], N.Expr]] = [
            self.variance, self.exponentials, self.scaled_norm, self.residual, self.norm,
            self.covariance,
        ]  # fmt: skip
        value = self.pick(statistics)()
        for _ in range(self.pick([0, 0, 1, 2])):  # of what comes before
            self.raw = False
            if self.j in list_of(value):
                self.tensors["x"] = value
            else:
                self.tensors["r"] = N.sum(value, self.e) if self.e in list_of(value) else value
            value = self.pick(statistics)()
        self.program.output(value, *value.axes)
        return self.program


class list_of:
    """The axes of a value; membership is by identity, since == builds an expression."""

    def __init__(self, value: N.Expr):
        self.axes = value.axes

    def __contains__(self, axis: object) -> bool:
        return any(axis is a for a in self.axes)


def shapes(program: N.Program) -> list[tuple[int, ...]]:
    sizes = {"i": ROWS, "j": LENGTH, "e": WIDTH}
    return [tuple(a.static or sizes[a.name] for a in t.shape) for t in program.inputs.values()]
