# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs that whole programs are judged on (`whole`) beside those that `hostile` has.

What is rare in random numbers, and common in what users have, is made on purpose: two terms of a
sum that nearly cancel, weights of both signs that nearly sum to 1 over equal numbers, one number
that is far larger than all others of its row, which a mask may hide from what is to normalise it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.floats import Array, rounded
from neptune_mlir.algebra.numerics.hostile import MAGNITUDES, HostileCall
from neptune_mlir.algebra.numerics.steps import NestStep, Step
from neptune_mlir.algebra.terms import is_float, leaves, walk

# Inputs of which others are made: one is changed so that it nearly cancels what it is added to. So
# much of it is left, in powers of 2.
CANCELLING = (
    "as given", "all floats: mean 1e+02", "all floats: moves up at once",
    "all floats: moves down at once", "all floats: moves up at once (columns)",
    "all floats: moves down at once (columns)",
)  # fmt: skip
LEFT = 2.0, 6.0
EQUAL = "sums to nearly 1; exponents are equal"
OUTLIER = "its largest is far larger"


@dataclass(frozen=True)
class Cancellation:
    """An input that is added, in a sum, to something else, and that no loop of the sum changes:
    x t + r may be summed up as x and r, and where they nearly cancel errors are of their size.

    Attributes:
        other: what it is added to, or subtracted from.
        axes: those of the sum's nest that the input has.
        sign: of the other one, where both are to be 0 together.
    """

    name: str
    other: NestStep
    axes: tuple[int, ...]
    sign: float

    def cancelling(self, values: Array) -> Array:
        """The input, from the other one's values on several inputs of the program: about what is
        in the middle of them."""
        rest = [1 + k for k in range(values.ndim - 1) if k not in self.axes]
        middle = np.median(values, axis=tuple(rest)) if rest else values
        kept = sorted(self.axes)
        order = [1 + kept.index(a) for a in self.axes]
        return np.asarray(self.sign * middle.transpose(0, *order))


def cancellations(steps: Sequence[Step], inputs: Collection[str]) -> list[Cancellation]:
    found: dict[Any, Cancellation] = {}
    for step in steps:
        if not isinstance(step, NestStep) or step.combiner != "add":
            continue
        everywhere = tuple(range(len(step.extents)))
        for n in (n for n in walk(step.body) if n.op in ("add", "sub")):
            for own, other in (n.args, n.args[::-1]):
                read = own.args[0] if own.op == "cast" else own
                axes = tuple(i.attr for i in read.args if i.op == "index")
                is_input = read.op == "read" and read.attr in inputs
                if not is_input or not set(axes) <= set(step.axes) or not leaves(other, "read"):
                    continue
                key = f"{step.key} beside {read.attr}"
                probe = NestStep(key, None, other, step.extents, everywhere)
                if len(axes) == len(read.args) > 0:
                    sign = -1.0 if n.op == "add" else 1.0
                    found[read, other] = Cancellation(read.attr, probe, axes, sign)
    return list(found.values())


def further(
    inputs: Mapping[str, tuple[tuple[int, ...], str]], exponents: Collection[str] | None,
    given: Sequence[Array], seed: int, only: Collection[str] | None,
) -> Iterator[HostileCall]:  # fmt: skip
    """Inputs of which one is changed, and those that exponents are made of may be 0.

    Args:
        inputs: the shape and the element type of each; `given`: as they are.
        only: the names of those that are wanted; all when None.
    """
    equal = [
        np.zeros_like(value) if name in (exponents or ()) else value
        for name, value in zip(inputs, given, strict=True)
    ]
    for place, (key, (shape, dtype)) in enumerate(inputs.items()):
        if not is_float(dtype) or not shape:
            continue
        forms = [(OUTLIER, _outlier, given)]
        if exponents and key not in exponents:
            forms.append((EQUAL, _nearly_one, equal))
        for form, make, beside in forms:
            name = f"{key}: {form}"
            if only is None or name in only:
                arguments = [*beside]
                generator = np.random.default_rng([seed, *name.encode()])
                arguments[place] = rounded(make(generator, shape, dtype), dtype)
                yield HostileCall(name, tuple(arguments))


def _nearly_one(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Weights of both signs that sum to nearly 1. Over exponentials that are all equal, what is
    left of their difference from their weighted sum is a small number, the same in a row, and
    times other differences it cancels."""
    values = generator.standard_normal(shape)
    rows = (*shape[:-1], 1)
    left = generator.choice((-1, 1), rows) * 2.0 ** -generator.uniform(*LEFT, rows)
    return np.asarray(values + (1 + left - values.sum(-1, keepdims=True)) / shape[-1])


def _outlier(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """One large number in each row, anywhere, and beside it numbers of the size of its root. Where
    a mask hides it, it is not normalised: it stays in range when it is divided by the size of the
    others, or its square by their square, and leaves it when its square is divided by one."""
    size = MAGNITUDES[dtype][-1]
    place = generator.random(shape)
    largest = place == place.max(-1, keepdims=True, initial=0.0)
    return np.asarray(generator.standard_normal(shape) * np.where(largest, size, size**0.5))
