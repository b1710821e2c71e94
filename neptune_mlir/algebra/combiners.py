# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The combiners of reductions: one row each, and the identities of the MLIR ops that combine.

A combiner is associative and commutative. A package can add one (docs/extending.md):

    register(Combiner("logaddexp", -math.inf, log_of_sum, np.logaddexp))

makes `reduce("logaddexp", x[i, j], j)` a reduction like others. Its elements are combined by the
operators that its term is made of, on every target. Those whose term is one operator (`is_plain`)
are combined by a single instruction; the solver has rules for the built-in ones only.

**The identity of a sum is 0.0**, everywhere: it is the value of an empty sum, what matrix
instructions, copy engines and fills give, and what a running value starts from. -0.0 would leave
the sign of a sum of nothing but -0.0, which no program can see: each part is added to a value that
started from 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir import plugins
from neptune_mlir.algebra.terms import Number, Term, is_float, make
from neptune_mlir.errors import UsageError, did_you_mean

LEAST, GREATEST = "least", "greatest"  # of an integer type


@dataclass(frozen=True)
class Combiner:
    """One combiner.

    Attributes:
        identity: on floats; for `and` and `or` on conditions.
        combine: the term of two elements combined.
        array: a NumPy ufunc that does so.
        whole: the identity on integers (a number, LEAST or GREATEST); None: not defined on them.
        boolean: the operator that it is on conditions; "": not defined on them.
        word, short: what texts for people and names call a reduction with it.
        infix: how people write it between two elements.
        pullback: the adjoint of an element, by that of the result, the result and the element;
            None: `frontend/gradient` has a rule of its own, or refuses it.
        accumulates: whether a 16-bit running value would be rounded at every step.
    """

    name: str
    identity: float | bool
    combine: Callable[[Term, Term], Term]
    array: np.ufunc
    whole: int | str | None = None
    boolean: str = ""
    word: str = ""
    short: str = ""
    infix: str = ""
    pullback: Callable[[Term, Term, Term], Term] | None = None
    accumulates: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether it is the operator of its name."""
        return self.name in _PLAIN

    def __call__(self, a: Term, b: Term) -> Term:
        """Two elements of one type combined."""
        if a.dtype == "i1":
            return make(self.boolean, a, b)
        return self.combine(a, b)

    def identity_on(self, dtype: str) -> Number | None:
        """The neutral element of scalars of a type; None where there is none."""
        if dtype == "i1":
            return {"and": 1, "or": 0, "add": 0}.get(self.boolean)
        if is_float(dtype):
            return None if isinstance(self.identity, bool) else self.identity
        return None if self.whole is None else _number(self.whole, _width(dtype))


def _plain(name: str, identity: float | bool, array: np.ufunc, **facts: Any) -> Combiner:
    def combine(a: Term, b: Term) -> Term:
        return make(name, a, b)

    return Combiner(name, identity, combine, array, **facts)


_ROWS = (
    _plain("add", 0.0, np.add, whole=0, boolean="add", word="sum", short="sum",
           infix="{} + {}"),
    _plain("mul", 1.0, np.multiply, whole=1, boolean="and", word="product", short="prod",
           infix="{} * {}"),
    _plain("max", -math.inf, np.maximum, whole=LEAST, boolean="or", accumulates=False),
    _plain("min", math.inf, np.minimum, whole=GREATEST, boolean="and", accumulates=False),
    _plain("and", True, np.logical_and, whole=-1, boolean="and", infix="{} and {}",
           accumulates=False),
    _plain("or", False, np.logical_or, whole=0, boolean="or", infix="{} or {}",
           accumulates=False),
)  # fmt: skip
PLAIN = tuple(row.name for row in _ROWS)
_PLAIN = frozenset(PLAIN)
_COMBINERS = {row.name: row for row in _ROWS}

# MLIR ops that combine two elements: their identity
IDENTITIES: dict[str, float | int | str] = {
    "arith.addf": 0.0, "arith.mulf": 1.0, "arith.maximumf": -math.inf, "arith.maxnumf": -math.inf,
    "arith.minimumf": math.inf, "arith.minnumf": math.inf, "arith.addi": 0, "arith.muli": 1,
    "arith.maxsi": LEAST, "arith.minsi": GREATEST, "arith.maxui": 0, "arith.minui": -1,
    "arith.andi": -1, "arith.ori": 0, "arith.xori": 0,
}  # fmt: skip


def register(combiner: Combiner) -> None:
    """Add a combiner. Raises UsageError where another one has its name."""
    if _COMBINERS.setdefault(combiner.name, combiner) != combiner:
        raise UsageError(f"there is a combiner '{combiner.name}' already")


def is_known(name: str) -> bool:
    """Whether a combiner has this name. (Packages are asked for names that are not built in.)"""
    return name in _COMBINERS or name in plugins.entries(plugins.COMBINERS)


def names() -> list[str]:
    """Every combiner: built in, registered, or an entry point of an installed package."""
    return list(dict.fromkeys([*_COMBINERS, *plugins.entries(plugins.COMBINERS)]))


def lookup(name: str) -> Combiner:
    """The combiner of a name. Raises UsageError where there is none."""
    if name not in _COMBINERS and is_known(name):
        plugins.load(plugins.COMBINERS, name)
        if name not in _COMBINERS:
            raise UsageError(
                f"the entry point '{name}' of {plugins.COMBINERS} registers no combiner of that "
                "name",
                hint="call neptune_mlir.algebra.combiners.register(Combiner(...)) in it",
            )
    if name not in _COMBINERS:
        raise UsageError(f"no combiner '{name}'", hint=did_you_mean(name, names()))
    return _COMBINERS[name]


def identity_of(op: str, width: int) -> float | int:
    """The identity of an MLIR op that combines, on elements of so many bits."""
    return _number(IDENTITIES[op], width)


def _number(value: Any, width: int) -> Any:
    if value == LEAST:
        return -(1 << (width - 1))
    return (1 << (width - 1)) - 1 if value == GREATEST else value


def _width(dtype: str) -> int:
    return 64 if dtype == "index" else int(dtype[1:])
