# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a whole function compiled by upstream's loops: the unfused reference of `--check`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import elements, storage_dtype, view
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.checks import check
from neptune_mlir.runtime.loader import load

_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]


class FunctionExecutable:
    """Call it with the function's arguments; returns new NumPy arrays."""

    def __init__(self, bundle: Bundle):
        self.plan = bundle.plan
        self._results = bundle.facts["results"]
        self._numbered = bool(bundle.facts.get("numbered"))
        self._constants = [
            elements(bundle.data[c.sha256], c.dtype, c.shape) for c in self.plan.constants
        ]
        self._engine, (address,) = load(bundle.code, [f"_mlir_ciface_{self.plan.entry}"])
        self._function = ctypes.CFUNCTYPE(None)(address)

    def __call__(self, *arguments: Any, rounding: int = 0) -> Any:
        """`rounding`: the number of a way to round, where it was compiled for that."""
        views, scalars = check(self.plan, arguments, view)
        operands: list[Any] = [
            _c_scalar(a.dtype, scalar) if view is None else view.descriptor()
            for a, view, scalar in zip(self.plan.arguments, views, scalars, strict=True)
        ]
        operands += [constant.descriptor() for constant in self._constants]
        operands += [ctypes.c_int64(rounding)] * self._numbered
        # the results come back as one record of descriptors
        sizes = [3 + 2 * rank if rank is not None else 1 for _, rank in self._results]
        record = (ctypes.c_int64 * sum(sizes))()
        self._function(record, *operands)
        values, start, owned = [], 0, set()
        for (dtype, rank), size in zip(self._results, sizes, strict=True):
            fields = record[start : start + size]
            start += size
            if rank is None:
                raw = np.array(fields, np.int64).view(storage_dtype(dtype))[0]
                values.append(raw)
                continue
            values.append(_copy(fields, dtype, rank))
            owned.add(fields[0])
        for address in owned - {v.address for v in (*views, *self._constants) if v}:
            _free(address)
        return values[0] if len(values) == 1 else tuple(values)


def _c_scalar(dtype: str, value: Any) -> Any:
    if dtype == "f32":
        return ctypes.c_float(value)
    if dtype == "f64":
        return ctypes.c_double(value)
    if dtype == "index" or dtype.startswith("i"):
        return ctypes.c_int64(value)
    raise ArgumentError(f"scalars of type {dtype} cannot be passed", hint="use f32")


def _copy(fields: list[int], dtype: str, rank: int) -> np.ndarray[Any, Any]:
    """A new array with the elements that a descriptor names."""
    kind = storage_dtype(dtype)
    shape, strides = fields[3 : 3 + rank], fields[3 + rank :]
    if 0 in shape:
        return np.empty(shape, kind)
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory: Any = (ctypes.c_uint8 * (extent * kind.itemsize)).from_address(
        fields[1] + fields[2] * kind.itemsize
    )
    flat = np.frombuffer(memory, kind)
    spread = tuple(s * kind.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(flat, shape, spread).copy()
