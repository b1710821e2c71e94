# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar functions that packages add, by name: each is a term of its arguments.

    register(Function("softplus", 1, lambda x: make("log1p", make("exp", x))))

makes `call("softplus", x[i, j])` an expression of the index notation and `func.call @softplus` of a
declared function scalar code in MLIR (docs/extending.md). What it is made of is known to fusion, to
gradients and to every target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neptune_mlir import plugins
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class Function:
    """One function.

    Attributes:
        arguments: how many it takes.
        term: the term of its value, given those of its arguments.
    """

    name: str
    arguments: int
    term: Callable[..., Term]

    def __call__(self, *arguments: Term) -> Term:
        """Raises UsageError for a wrong number of arguments."""
        if len(arguments) != self.arguments:
            raise UsageError(
                f"'{self.name}' takes {self.arguments} arguments, {len(arguments)} were given"
            )
        return self.term(*arguments)


_FUNCTIONS: dict[str, Function] = {}


def register(function: Function) -> None:
    """Add a function. Raises UsageError where another one has its name."""
    if _FUNCTIONS.setdefault(function.name, function) != function:
        raise UsageError(f"there is a scalar function '{function.name}' already")


def is_known(name: str) -> bool:
    """Whether a scalar function has this name."""
    return name in _FUNCTIONS or name in plugins.entries(plugins.FUNCTIONS)


def names() -> list[str]:
    """Every scalar function: registered, or an entry point of an installed package."""
    return list(dict.fromkeys([*_FUNCTIONS, *plugins.entries(plugins.FUNCTIONS)]))


def named(name: str) -> Function:
    """The function of a name. Raises UsageError where there is none."""
    if name not in _FUNCTIONS and is_known(name):
        plugins.load(plugins.FUNCTIONS, name)
        if name not in _FUNCTIONS:
            raise UsageError(
                f"the entry point '{name}' of {plugins.FUNCTIONS} registers no function of that "
                "name",
                hint="call neptune_mlir.algebra.functions.register(Function(...)) in it",
            )
    if name not in _FUNCTIONS:
        raise UsageError(f"no scalar function '{name}'", hint=did_you_mean(name, names()))
    return _FUNCTIONS[name]
