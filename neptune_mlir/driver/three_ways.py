# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program in three ways: fused, unfused, and in float64 from arguments to results; and what their
results say of the fused one (`algebra/numerics/accuracy.py` has the rule)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics import hostile as hostile_inputs
from neptune_mlir.algebra.numerics.accuracy import DIGITS_OF_F32, TOLERANCE
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.floats import EPSILON
from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.orders import ORDERS
from neptune_mlir.algebra.numerics.programs import Programs
from neptune_mlir.driver.inputs import result_dtype, stored, to_float64
from neptune_mlir.errors import NeptuneError
from neptune_mlir.runtime.rounding import each_way


def three_ways(
    source: Any, entry: str | None, run: Callable[..., Any], unfused: Callable[..., Any], plan: Any
) -> tuple[Programs, str]:
    """The program fused, unfused and in float64; why there is no float64, where there is none."""
    from neptune_mlir.driver.as_written import AsWritten

    given = source.text, source.name, entry
    arguments = tuple(a.dtype for a in plan.arguments)
    results = tuple(result_dtype(plan, k) for k in range(len(plan.results)))

    def native(function: Callable[..., Any]) -> Callable[[Sequence[Any]], list[Any]]:
        def call(values: Sequence[Any]) -> list[Any]:
            found = function(*[
                stored(v, a) for v, a in zip(values, plan.arguments, strict=True)
            ])  # fmt: skip
            listed = found if isinstance(found, tuple) else (found,)
            return [to_float64(r, d) for r, d in zip(listed, results, strict=True)]

        return call

    try:
        in_float64 = AsWritten(*given, wide=True)
        reference = in_float64.compiled()
    except NeptuneError as error:
        same = native(unfused)
        return Programs(native(run), same, same, arguments, results), error.message
    exponents = _exponents(source, entry)
    written = functools.cache(lambda: AsWritten(*given))

    def programs(hide: bool) -> Programs:
        """`hide`: where 0 times anything is 0."""

        @functools.cache
        def wide(**options: Any) -> Callable[..., Any]:
            made: Callable[..., Any] = in_float64.compiled(hide=hide, **options)
            return made

        def exact(values: Sequence[Any]) -> list[Any]:
            return _widely(wide() if hide else reference, values)

        def ranged(values: Sequence[Any]) -> list[Any]:
            return _widely(wide(digits=DIGITS_OF_F32), values)

        def otherwise(number: int) -> Callable[[Sequence[Any]], list[Any]]:
            made = wide(digits=DIGITS_OF_F32, numbered=True, order=number % (ORDERS + 1))
            return functools.partial(_widely, functools.partial(made, rounding=number))

        @functools.cache
        def reordered(order: int) -> Callable[[Sequence[Any]], list[Any]]:
            return native(written().compiled(order=order, hide=hide))

        return Programs(
            native(run), reordered(0) if hide else native(unfused), exact, arguments, results,
            exponents, reordered=reordered, ranged=None if "f64" in arguments else ranged,
            otherwise=None if "f64" in arguments else otherwise,
            directed=[] if "f64" in arguments else each_way(exact), reported=True,
        )  # fmt: skip

    return replace(programs(False), hiding=functools.cache(lambda: programs(True))), ""


def _widely(program: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    found = program(*map(_as_wide, values))
    return [np.asarray(r, np.float64) for r in (found if isinstance(found, tuple) else [found])]


def _exponents(source: Any, entry: str | None) -> frozenset[int] | None:
    """The arguments that exponents are made of, other than through a sum; None where that cannot
    be told."""
    from neptune_mlir.driver.compiler import nests_of
    from neptune_mlir.transforms.fusion.exponents import exponents_of

    module, programs = nests_of(source.text, source.name, "inline-maps")
    with module.context:
        found = [p for p in programs if entry in (None, p.function.name.value)]
        if len(found) != 1:
            return None
        (program,) = found
        names = exponents_of(program)
        places = {program.values.key(a): k for k, a in enumerate(program.block.arguments)}
        return None if names is None else frozenset(places[n] for n in names if n in places)


def _as_wide(value: Any) -> Any:
    array = np.asarray(value)
    return array if array.ndim else array.item()


def plain_values(value: Any, dtype: str) -> Any:
    """An argument as `algebra/numerics/accuracy.py` has it; a number as its type rounds it."""
    if dtype not in EPSILON:
        return np.asarray(value)
    if isinstance(value, float | int):
        value = hostile_inputs.rounded(value, dtype)
    return to_float64(value, dtype)


def judged(programs: Programs, values: Sequence[Any], exact: str, seed: int) -> list[Comparison]:
    """`judge`, or without a float64 reference (`exact` says why) the tolerances between two."""
    if not exact:
        return judge(programs, values, seed)
    found = [
        Comparison(d, slack=TOLERANCE[d] / EPSILON[d], reported=True)
        if d in EPSILON else Comparison(d)
        for d in programs.results
    ]
    fused, unfused = programs.fused(values), programs.unfused(values)
    for comparison, a, b in zip(found, fused, unfused, strict=True):
        comparison.add(a, b, b)
    return found
