# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments of a call against the plan: number, types, shapes, extents that must agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView
from neptune_mlir.runtime.plan import Argument, Plan, describe, evaluate


def check(
    plan: Plan, arguments: Sequence[Any], take: Callable[[Any, str], ArrayView]
) -> tuple[list[ArrayView | None], list[Any]]:
    """Views of the arrays (`take` makes one of a value and its name) and the scalars, by position;
    None where the argument is of the other kind.

    Raises:
        ArgumentError: a wrong number, type, rank or extent.
    """
    check_count(plan, arguments)
    views: list[ArrayView | None] = []
    scalars: list[Any] = []
    for value, wanted in zip(arguments, plan.arguments, strict=True):
        if wanted.kind == "tensor":
            views.append(check_array(take(value, wanted.name), wanted))
            scalars.append(None)
        else:
            views.append(None)
            scalars.append(_check_scalar(value, wanted))
    return views, scalars


def check_count(plan: Plan, arguments: Sequence[Any]) -> None:
    """Raises ArgumentError for a wrong number of arguments."""
    if len(arguments) != len(plan.arguments):
        raise ArgumentError(
            f"{plan.entry} takes {len(plan.arguments)} arguments, {len(arguments)} were given"
        )


def check_equal(plan: Plan, shapes: Sequence[Any], scalars: Sequence[Any]) -> None:
    """Raises ArgumentError where extents that the program makes equal are not."""
    for left, right in plan.equal:
        a, b = evaluate(left, shapes, scalars), evaluate(right, shapes, scalars)
        if a != b:
            names = [argument.name for argument in plan.arguments]
            raise ArgumentError(
                f"{describe(left, names)} is {a}, but {describe(right, names)} is {b}: "
                "they must be equal"
            )


def check_elements(name: str, shape: Sequence[int], wanted: Sequence[int]) -> None:
    """Raises ArgumentError where an array cannot have another shape: it has more elements, or
    fewer. (Extents of other arguments decide which shape the program gives it.)"""
    if prod(shape) != prod(wanted):
        raise ArgumentError(
            f"{name} has shape {list(shape)}, and the program gives it the shape {list(wanted)}: "
            "the number of elements must be the same"
        )


def check_array(array: ArrayView, wanted: Argument) -> ArrayView:
    """The array, its type spelled as the plan spells it. Raises ArgumentError."""
    fits = len(array.shape) == len(wanted.shape)
    for n, m in zip(wanted.shape, array.shape, strict=False):
        fits = fits and (n is None or n == m)
    if not fits:
        shape = f"[{', '.join('?' if n is None else str(n) for n in wanted.shape)}]"
        raise ArgumentError(f"{wanted.name} has shape {list(array.shape)}, not {shape}")
    if array.dtype == wanted.dtype:
        return array
    if not _same_type(array.dtype, wanted.dtype):
        raise ArgumentError(f"{wanted.name} has type {array.dtype}, not {wanted.dtype}")
    return replace(array, dtype=wanted.dtype)


def _same_type(given: str, wanted: str) -> bool:
    """What kernels compute on has no sign, only what a caller sees of a result has one; libraries
    without bf16 or e4m3 hold them as their bits."""
    if (given, wanted) in (("ui16", "bf16"), ("ui8", "f8E4M3FN")):
        return True
    given, wanted = given.removeprefix("u"), wanted.removeprefix("u")
    return given == wanted or (given, wanted) == ("i64", "index")


def _check_scalar(value: Any, wanted: Argument) -> Any:
    on_gpu = hasattr(value, "__cuda_array_interface__")  # reading it would wait for the GPU
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 and not on_gpu:
        value = value.item()
    whole = wanted.dtype == "index" or wanted.dtype.startswith("i")
    if not isinstance(value, int if whole else (int, float)):
        kind = "an integer" if whole else "a number"
        raise ArgumentError(f"{wanted.name} is a {type(value).__name__}, not {kind}")
    if whole:
        bits = 64 if wanted.dtype == "index" else int(wanted.dtype[1:])
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise ArgumentError(f"{wanted.name} is {value}, which {wanted.dtype} cannot hold")
    return value if whole else float(value)
