# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the subcommands read: program text, and arrays to run it on."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.float8 import float8_bits, float8_values
from neptune_mlir.algebra.terms import FLOAT8, is_float
from neptune_mlir.driver.foreign import program_text, text_of
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import ArgumentError, InputError


def read_source(path: str) -> Source:
    """The program in a file (`driver/foreign.py` says which), or text on stdin for `-`.

    Raises InputError.
    """
    try:
        if path == "-":
            return Source(text_of(read_stdin(), "<stdin>"), "<stdin>")
        return Source(program_text(path), path)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or error}") from None


def read_stdin() -> bytes:
    """What comes on standard input. Raises InputError where there is none."""
    if sys.stdin is None:
        raise InputError("standard input is closed", hint="name a file")
    return sys.stdin.buffer.read()


def load_inputs(path: str, arguments: Sequence[Any]) -> list[Any]:
    """arg0, arg1, ... of an npz file. Raises InputError."""
    try:
        loaded = np.load(path)
        if isinstance(loaded, np.ndarray):
            raise InputError(f"'{path}' is one array, not an npz file", hint="see numpy.savez")
        with loaded as archive:
            missing = [f"arg{k}" for k in range(len(arguments)) if f"arg{k}" not in archive]
            if missing:
                takes = (f"arg{k}: {a.dtype}{list(a.shape)}" for k, a in enumerate(arguments))
                raise InputError(
                    f"{path} has no {', '.join(missing)}",
                    hint=f"it has {', '.join(archive) or 'nothing'}; the program takes "
                    f"{', '.join(takes).replace('None', '?')}",
                )
            arrays = [archive[f"arg{k}"] for k in range(len(arguments))]
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile):  # NumPy's messages are about pickles
        raise InputError(f"'{path}' is no npz file", hint="see numpy.savez") from None
    return [
        array.item() if argument.kind == "scalar" and array.ndim == 0 else array
        for array, argument in zip(arrays, arguments, strict=True)
    ]


def random_inputs(
    plan: Any, size: int, seed: int = 0, known: Mapping[tuple[int, int], int] | None = None
) -> list[Any]:
    """Seeded inputs for a plan; `size` stands for run-time extents that nothing else decides.

    `known`: such extents, by argument and dimension.
    """
    generator, made = np.random.default_rng(seed), list[Any]()
    wanted = zip(plan.arguments, shapes(plan, size, known or {}), strict=True)
    for k, (argument, shape) in enumerate(wanted):
        try:
            if math.prod(shape) > sys.maxsize // 8:
                raise MemoryError
            made.append(_random(generator, argument, shape))
        except MemoryError:
            raise ArgumentError(
                f"argument {k} has shape {shape}, for which there is no memory here",
                hint="a smaller --size, for extents that are known at run time",
            ) from None
    return made


def shapes(plan: Any, size: int, known: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """Extents for every argument that satisfy the equalities that the plan asks for."""
    extents: dict[tuple[int, int], int | None] = {
        (k, axis): extent
        for k, argument in enumerate(plan.arguments)
        for axis, extent in enumerate(argument.shape)
    } | dict(known)
    fixed = {place for place, extent in extents.items() if extent is not None}
    for place in extents:
        if place not in fixed:
            extents[place] = size
    changed = True
    while changed:  # a static extent, or a constant, spreads along the equalities
        changed = False
        for left, right in plan.equal:
            for one, other in ((left, right), (right, left)):
                place, known = _place(one), _known(other, extents, fixed)
                if place in extents and place not in fixed and known is not None:
                    extents[place] = known
                    fixed.add(place)
                    changed = True
    return [
        [extents[k, axis] or 0 for axis in range(len(argument.shape))]
        for k, argument in enumerate(plan.arguments)
    ]


def _place(expression: Any) -> Any:
    if isinstance(expression, (list, tuple)) and expression[0] == "dim":
        return (expression[1], expression[2])
    return None


def _known(expression: Any, extents: dict[Any, int | None], fixed: set[Any]) -> int | None:
    if isinstance(expression, int):
        return expression
    place = _place(expression)
    return extents[place] if place in fixed else None


def _random(generator: np.random.Generator, argument: Any, shape: list[int]) -> Any:
    from neptune_mlir.runtime.arrays import storage_dtype

    dtype = argument.dtype
    if is_float(dtype):
        values = generator.standard_normal(shape, dtype=np.float32)
        if not shape:
            values = abs(values)  # an epsilon or a scale, more likely than a signed value
        if argument.kind == "scalar":
            return float(values)
        return stored(values, argument)
    if dtype == "i1":
        drawn = generator.integers(0, 2, shape)
    else:  # small enough to be positions in most tensors
        drawn = generator.integers(0, 8, shape)
    return int(drawn) if argument.kind == "scalar" else drawn.astype(storage_dtype(dtype))


LONG, FEW = 261, 2  # several tiles of a stream with a ragged tail; of what comes before the rows


def hostile_extents(plan: Any) -> tuple[dict[tuple[int, int], int], int]:
    """Run-time extents for inputs that hurt: `known` and `size` of `random_inputs`.

    The last two dimensions of a tensor are long; what comes before them (a batch, heads) is small,
    as are extents that equal such a one.
    """
    few = {
        (k, axis)
        for k, argument in enumerate(plan.arguments)
        for axis in range(max(len(argument.shape) - 2, 0))
    }
    before = 0
    while len(few) > before:
        before = len(few)
        for left, right in plan.equal:
            places = {p for p in (_place(left), _place(right)) if p}
            if places & few:
                few |= places
    open_places = {
        (k, axis)
        for k, argument in enumerate(plan.arguments)
        for axis, extent in enumerate(argument.shape)
        if extent is None
    }
    fixed = shapes(plan, LONG, {})
    return {(k, a): FEW for k, a in few & open_places if fixed[k][a] == LONG}, LONG


def stored(value: Any, argument: Any) -> Any:
    """A plain array (floats as float64) as the runtime takes an argument of a plan."""
    from neptune_mlir.runtime.arrays import storage_dtype

    array = np.asarray(value)
    if argument.kind == "scalar":
        return array.item()
    kind = storage_dtype(argument.dtype)
    if argument.dtype == "bf16":
        bits = bf16_bits(array.astype(np.float32))
        return bits if kind == np.uint16 else bits.view(kind)
    if argument.dtype == FLOAT8:
        return float8_bits(array).view(kind)
    with np.errstate(over="ignore"):
        return array.astype(kind)


def bf16_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 rounded to bfloat16 (nearest even), as its 16 bits. NaN stays NaN."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def to_float64(values: Any, dtype: str) -> np.ndarray[Any, Any]:
    """An array of the runtime as float64, whatever holds its elements."""
    array = np.asarray(values)
    if dtype == "bf16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if dtype == FLOAT8:
        return float8_values(array.view(np.uint8))
    return array.astype(np.float64)


def result_dtype(plan: Any, k: int) -> str:
    """The MLIR element type of result `k` of a launch plan."""
    return plan.array(plan.results[k]).dtype
