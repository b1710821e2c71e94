# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a CPU bundle on arrays: checks the arguments, evaluates the plan, calls the kernels."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime import workers
from neptune_mlir.runtime.arrays import ArrayView, contiguous, elements, storage_dtype, view
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.checks import check, check_array, check_elements, check_equal
from neptune_mlir.runtime.libraries import host_results
from neptune_mlir.runtime.loader import load
from neptune_mlir.runtime.plan import Argument, Expression, Plan, evaluate

Arrays = dict[str, Any]  # those of a call by the kind of a reference, in the order of the plan
_SIZES_LIMIT = 1024  # shapes whose numbers are kept


@dataclass(frozen=True)
class CpuLaunch:
    """A launch that runs: operands are references to arrays, and what is the same in each call
    with these shapes, the grid at their end."""

    kernel: str
    operands: tuple[Any, ...]
    programs: int


@dataclass(frozen=True)
class CpuSizes:
    """What a plan says for arguments of given shapes and scalars."""

    buffers: tuple[tuple[int, ...], ...]
    launches: tuple[CpuLaunch, ...]

    @classmethod
    def of(cls, plan: Plan, shapes: Sequence[Any], scalars: Sequence[Any]) -> CpuSizes:
        """Launches with an empty grid are left out. Raises ArgumentError for a scalar of a type
        that cannot be passed."""
        launches = []
        for launch in plan.launches:
            grid = [int(_value(e, shapes, scalars)) for e in launch.grid]
            if math.prod(grid) <= 0:
                continue
            operands = [
                c_scalar(o[1], _value(o[2], shapes, scalars)) if o[0] == "value" else tuple(o)
                for o in launch.operands
            ]
            operands += [ctypes.c_int64(extent) for extent in grid]
            launches.append(CpuLaunch(launch.kernel, tuple(operands), math.prod(grid)))
        buffers = tuple(
            tuple(int(_value(e, shapes, scalars)) for e in b.shape) for b in plan.buffers
        )
        return cls(buffers, tuple(launches))


class CpuExecutable:
    """A compiled function.

    Call it with the arguments in order: arrays (NumPy, or anything with DLPack, of any strides,
    used in place) and numbers. `out=` (one array, or a sequence of one per result) receives the
    results, else new arrays are made: torch tensors where an argument is one, else NumPy arrays
    (bf16: of `ml_dtypes.bfloat16` where that is installed, else its bits as uint16). Returns the
    array, or a tuple of them.
    """

    def __init__(self, bundle: Bundle | bytes):
        self.bundle = Bundle.from_bytes(bundle) if isinstance(bundle, bytes) else bundle
        self.plan: Plan = self.bundle.plan
        names = sorted({launch.kernel for launch in self.plan.launches})
        self._engine, addresses = load(self.bundle.code, [f"_mlir_ciface_{n}" for n in names])
        make = ctypes.CFUNCTYPE(None)
        self._kernels = {n: make(a) for n, a in zip(names, addresses, strict=True)}
        self._sizes: dict[Any, CpuSizes] = {}  # by shapes and scalars
        self._constants = [
            elements(self.bundle.data[c.sha256], c.dtype, c.shape) for c in self.plan.constants
        ]

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        views, scalars = check(self.plan, arguments, view)
        shapes = tuple(v.shape if v else None for v in views)
        sizes = self._sizes_for(shapes, scalars)
        buffers: list[Any] = [None] * len(self.plan.buffers)
        arrays = {"argument": views, "constant": self._constants, "buffer": buffers}
        results = _take_out(self.plan, out, shapes, scalars, arrays)
        for k, (buffer, shape) in enumerate(zip(self.plan.buffers, sizes.buffers, strict=True)):
            if buffers[k] is None:
                if buffer.of is None:
                    array = np.empty(shape, storage_dtype(buffer.dtype))
                else:
                    array = _reshaped(buffer.of, shape, arrays)
                buffers[k] = _buffer_view(array, buffer.dtype)
        for launch in sizes.launches:
            self._launch(launch, arrays)
        hand_out = host_results(arguments)
        values = []
        for reference, target in zip(self.plan.results, results, strict=True):
            source = _array(arrays, reference)
            if target is None:
                lent = self._is_given(reference)  # the caller's memory is not handed back
                array = source.numpy().copy() if lent else source.owner
                values.append(hand_out(array, source.dtype))
                continue
            if source.owner is not target.owner:
                np.copyto(target.numpy(), source.numpy())
            values.append(target.owner)
        return values[0] if len(values) == 1 else tuple(values)

    def _is_given(self, reference: Any) -> bool:
        """Whether an array is an argument or a constant, maybe under another shape."""
        while reference is not None and reference[0] == "buffer":
            reference = self.plan.buffers[reference[1]].of
        return reference is not None

    def _sizes_for(self, shapes: tuple[Any, ...], scalars: list[Any]) -> CpuSizes:
        key = (workers.count(), shapes, *scalars)
        found = self._sizes.get(key)
        if found is None:
            check_equal(self.plan, shapes, scalars)
            if len(self._sizes) >= _SIZES_LIMIT:
                self._sizes.clear()
            found = self._sizes[key] = CpuSizes.of(self.plan, shapes, scalars)
        return found

    def _launch(self, launch: CpuLaunch, arrays: Arrays) -> None:
        operands: list[Any] = []
        for operand in launch.operands:
            if isinstance(operand, tuple):
                operands.append(_array(arrays, operand).descriptor())
            else:
                operands.append(operand)
        counter = ctypes.c_int64(0)
        address = ctypes.addressof(counter)
        operands.append((ctypes.c_int64 * 5)(address, address, 0, 1, 1))
        kernel = self._kernels[launch.kernel]

        def task() -> None:
            memory = workers.scratch(max(self.plan.scratch, 64))
            start = memory.__array_interface__["data"][0]
            kernel(*operands, (ctypes.c_int64 * 5)(start, start, 0, memory.nbytes, 1))

        workers.run(task, min(workers.count(), launch.programs))


def _value(expression: Expression, shapes: Any, scalars: Any) -> Any:
    """The value of an expression; the multiprocessors of a CPU are its workers."""
    return evaluate(expression, shapes, scalars, workers.count())


def _array(arrays: Arrays, reference: Any) -> ArrayView:
    return arrays[reference[0]][reference[1]]


def c_scalar(dtype: str, value: Any) -> Any:
    if dtype == "f32":
        return ctypes.c_float(value)
    if dtype == "f64":
        return ctypes.c_double(value)
    if dtype == "index":
        return ctypes.c_int64(value)
    if dtype.startswith("i"):
        return ctypes.c_int64(value)
    raise ArgumentError(f"scalars of type {dtype} cannot be passed", hint="use f32")


def _take_out(
    plan: Plan, out: Any, shapes: Any, scalars: Any, arrays: Arrays
) -> list[ArrayView | None]:
    """The arrays of `out=` by result; those that can be written in place become buffers."""
    if out is None:
        return [None] * len(plan.results)
    given = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(given) != len(plan.results):
        raise ArgumentError(f"out= has {len(given)} arrays for {len(plan.results)} results")
    targets: list[ArrayView] = []
    for k, (reference, value) in enumerate(zip(plan.results, given, strict=True)):
        name = f"out[{k}]" if len(given) > 1 else "out"
        array = view(value, name)
        if reference[0] == "buffer":
            buffer = plan.buffers[reference[1]]
            shape = tuple(int(_value(e, shapes, scalars)) for e in buffer.shape)
            dtype = buffer.dtype
        else:
            held = _array(arrays, reference)
            shape, dtype = held.shape, held.dtype
        array = check_array(array, Argument("tensor", dtype, shape, name))
        if array.readonly:
            raise ArgumentError(f"{name} is read-only")
        if isinstance(value, np.ndarray) and array.owner is not value:
            raise ArgumentError(f"{name} has elements that are not at whole element positions")
        targets.append(replace(array, owner=value))
    for k, (reference, array) in enumerate(zip(plan.results, targets, strict=True)):
        low, high = array.span()
        others = [v for v in arrays["argument"] if v] + targets[:k]
        apart = all(high <= v.span()[0] or v.span()[1] <= low for v in others)
        contained = array.strides == contiguous(array.shape)
        own = reference[0] == "buffer" and plan.buffers[reference[1]].of is None
        if own and arrays["buffer"][reference[1]] is None and apart and contained:
            arrays["buffer"][reference[1]] = array
    return list(targets)


def _reshaped(reference: Any, shape: tuple[int, ...], arrays: Arrays) -> Any:
    """An array under another shape: a view where its strides allow it."""
    kind, number = reference
    source = _array(arrays, reference)
    check_elements(f"{kind} {number}", source.shape, shape)
    # NumPy keeps the memory alive through the array that owns it
    own = isinstance(source.owner, np.ndarray) and kind != "constant"
    return (source.owner if own else source.numpy()).reshape(shape)


def _buffer_view(array: np.ndarray[Any, Any], dtype: str) -> ArrayView:
    found = view(array, "a buffer")
    return ArrayView(found.address, dtype, found.shape, found.strides, False, array)
