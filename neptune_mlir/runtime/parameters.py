# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel receives: an array is its address and the strides of all dimensions but the last
(64 bits each), a scalar is itself (positions and extents have 32 bits), a tensor map 128 bytes."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView, Behind
from neptune_mlir.runtime.drivers.boxes import PANEL, is_narrow, map_shape
from neptune_mlir.runtime.drivers.cuda import map_room
from neptune_mlir.runtime.drivers.driver import Driver
from neptune_mlir.runtime.gpu_arrays import SIZES
from neptune_mlir.runtime.memory import SizedLaunch
from neptune_mlir.runtime.plan import GPU_NUMBERS
from neptune_mlir.runtime.shards.in_two import BEHIND, OPERAND

_maps: dict[Any, Any] = {}  # tensor maps by array and box; encoding one takes microseconds
_MAPS_LIMIT = 4096


class CallNumbers:
    """Numbers for kernels whose calls under way must not share one (operand "counter").

    Calls that run once take the lower half of the numbers in turn; those that may run again at
    any time, prepared or captured in a graph, take the upper half.
    """

    def __init__(self) -> None:
        self._once, self._kept = itertools.count(), itertools.count()

    def take(self, limit: int, kept: bool) -> int:
        half = limit // 2
        return half + next(self._kept) % half if kept else next(self._once) % half


def parameters(
    sized: SizedLaunch, arrays: Mapping[tuple[str, int], ArrayView], driver: Driver,
    number: Callable[[int], int], context: int | None = None,
) -> list[Any]:  # fmt: skip
    """The parameters of a launch as ctypes objects.

    Args:
        arrays: those of the plan, by reference.
        number: gives the call a number below a limit.
        context: of the launch; None: that of the thread.
    """
    made: list[Any] = []
    for operand, value in zip(sized.launch.operands, sized.values, strict=True):
        if operand[0] == "value":
            made.append(c_scalar(operand[1], value))
        elif operand[0] == "counter":
            made.append(ctypes.c_int32(number(operand[1])))
        elif operand[0] in ("map", BEHIND):
            kind, k, *box = operand[1:]
            array = in_memory(arrays[kind, k], operand[0])
            made.append(tensor_map(driver, array, *box, context=context, narrow=sized.narrow))
        elif operand[0] == OPERAND:
            made += in_two(arrays[operand[1], operand[2]], operand[3])
        else:
            array = arrays[operand[0], operand[1]]
            made.append(ctypes.c_void_p(array.address))
            made += [ctypes.c_int64(s) for s in array.strides[:-1]]
    return made


def in_memory(array: ArrayView, operand: str) -> ArrayView:
    """What a tensor map is of: of an array that lies in two one of them."""
    if operand == BEHIND and array.behind is not None:
        return array.behind.view
    return array.first()


def in_two(array: ArrayView, dim: int) -> list[Any]:
    """Where an array is to be read that may lie in two (`codegen.nvidia.in_two`): all of one that
    does not is in the first."""
    found = array.behind or Behind(array, dim, array.shape[dim])
    lanes, steps = 1, list[int]()
    for extent in reversed(array.shape[:dim]):
        steps.insert(0, lanes)
        lanes *= extent
    if found.step:
        steps = [0] * len(steps)
    row = int(found.step > 0)
    numbers = (found.begin, found.low, found.high, found.timeout, found.step, row, found.last)
    return [ctypes.c_void_p(found.word), *map(ctypes.c_int32, (*numbers, *steps))]


def tensor_map(
    driver: Driver, array: ArrayView, rows_dim: int, rows: int, columns: int, panel: int = PANEL,
    rounds: int = 0, *, context: int | None = None, narrow: bool = False,
) -> Any:  # fmt: skip
    """What the copy engine needs to bring or write boxes of `rows` x `columns` elements: 128 bytes,
    encoded again only for another address or shape.

    Its axes: the columns of a panel (swizzled), the rows, the panels, then the other dimensions
    from the innermost outwards. Without panels the first axis is that of all columns. What does not
    exist comes as 0, and is not written.

    Args:
        rows_dim: the dimension of the array that rows are along; -1 for boxes of one row.
        columns: of whole panels; 0 for a map without panels, of boxes that begin at any column.
        panel: its columns: rows of 128 or 64 bytes.
        rounds: 1 for f32 that is rounded to TF32 on its way.
        context: to be in where it is encoded; None: that of the thread, which may be in none.
        narrow: of a launch (`runtime.plan`).
    """
    narrow = is_narrow(array, panel, narrow)
    key = (
        array.address, array.dtype, array.shape, array.strides, rows_dim, rows, columns, panel,
        rounds, narrow,
    )  # fmt: skip
    found = _maps.get(key)
    if found is None:
        if len(_maps) >= _MAPS_LIMIT:
            _maps.clear()
        with nullcontext() if context is None else driver.entered(context):
            found = _maps[key] = _encode(
                driver, array, (rows_dim, rows, columns, panel, rounds), narrow
            )
    return found


def _encode(
    driver: Driver, array: ArrayView, box: tuple[int, int, int, int, int], narrow: bool
) -> Any:
    if 0 in array.shape:  # there is nothing to bring, and no address
        return map_room()
    dtype, *shape = map_shape(array, SIZES[array.dtype], *box)
    return driver.tensor_map(dtype, array.address, *shape, narrow=narrow)


_C_TYPES: dict[str, Any] = {
    "f32": ctypes.c_float, "f64": ctypes.c_double, "i1": ctypes.c_int8, "i8": ctypes.c_int8,
    "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
}  # fmt: skip


_INFINITE_HALF = 65520.0  # rounded to f16 this is infinite, and what is less is not


def c_scalar(dtype: str, value: Any) -> Any:
    """A number as a kernel takes it. Raises ArgumentError."""
    if dtype not in GPU_NUMBERS:
        raise ArgumentError(f"scalars of type {dtype} cannot be passed", hint="use f32")
    if dtype == "index":
        if not -(1 << 31) <= value < 1 << 31:
            raise ArgumentError(f"a size or position of {value} does not fit 32 bits")
        return ctypes.c_int32(value)
    if dtype == "f16":
        value = value if abs(value) < _INFINITE_HALF else math.copysign(math.inf, value)
        return ctypes.c_uint16(*struct.unpack("<H", struct.pack("<e", value)))
    return _C_TYPES[dtype](value)
