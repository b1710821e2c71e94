# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""New arrays for a call on the CPU: torch tensors where the caller's arrays are some, else NumPy
arrays. Nothing is imported that the caller has not imported."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from neptune_mlir.runtime.arrays import address_of, contiguous, unwritten
from neptune_mlir.runtime.libraries import tensor_over, torch_type


class NumpyMemory:
    """NumPy arrays."""

    address: Callable[[Any], int] = staticmethod(address_of)  # of an array that was made here

    def maker(
        self, shape: Sequence[int], dtype: str, order: Sequence[int] | None = None
    ) -> Callable[[], Any]:
        """A function that makes an array, for a kernel to write all of it.

        Args:
            dtype: MLIR's element type.
            order: of the dimensions as the array is handed out; it lies in memory as `shape` says.
        """
        if order is None:
            return functools.partial(unwritten, tuple(shape), dtype)
        return lambda: unwritten(tuple(shape), dtype).transpose(order)

    def over(self, array: Any, dtype: str) -> Any:
        """A NumPy array as it is handed out."""
        return array

    def turned(self, array: Any, order: Sequence[int]) -> Any:
        """An array with its dimensions in an order."""
        return array.transpose(order)


class TorchMemory(NumpyMemory):
    """torch tensors, made as those of inductor's programs are: NumPy's memory as a tensor takes
    four times as long."""

    def __init__(self, torch: Any):
        self._torch, self.address = torch, torch.Tensor.data_ptr
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        self._quick = getattr(guards, "_empty_strided_cpu", None)

    def maker(
        self, shape: Sequence[int], dtype: str, order: Sequence[int] | None = None
    ) -> Callable[[], Any]:
        kind = torch_type(self._torch, dtype)
        if kind is None:
            make = _NUMPY.maker(shape, dtype, order)
            return lambda: tensor_over(make(), dtype)
        shape, steps = tuple(shape), contiguous(tuple(shape))
        if order is not None:
            shape, steps = (tuple(own[k] for k in order) for own in (shape, steps))
        if self._quick is not None:
            return functools.partial(self._quick, shape, steps, kind)
        return functools.partial(self._torch.empty_strided, shape, steps, dtype=kind, device="cpu")

    def over(self, array: Any, dtype: str) -> Any:
        return tensor_over(array, dtype)

    def turned(self, array: Any, order: Sequence[int]) -> Any:
        return array.permute(order)


_NUMPY = NumpyMemory()
_torch: dict[int, TorchMemory] = {}  # by the identity of the module


def memory_for(arguments: Iterable[Any]) -> NumpyMemory:
    """What makes the results of a call with these arguments."""
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(v, torch.Tensor) for v in arguments):
        return _NUMPY
    if id(torch) not in _torch:
        _torch[id(torch)] = TorchMemory(torch)
    return _torch[id(torch)]
