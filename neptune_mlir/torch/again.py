# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of the operation that are like an earlier one of the same thread: same options, and
tensors of the same types, shapes, strides and devices. They go to the kernel by addresses alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from neptune_mlir.driver.kernel import Kernel

_LIMIT = 512  # calls of a thread that are kept
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Kept(threading.local):
    """By signature: what runs a call, and which of its tensors are the kernel's arguments."""

    def __init__(self) -> None:
        self.calls: dict[Any, tuple[Any, tuple[int, ...]]] = {}


_kept = _Kept()


def forget() -> None:
    """Let each next call of this thread be a first one."""
    _kept.calls.clear()


def is_observed(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether a tracer, a mode or a subclass of Tensor has to see the operation."""
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack():
        return True
    for x in tensors:  # (a generator costs as much as the rest of a call)
        if x is not None and type(x) not in _PLAIN:
            return True
    return False


def learns(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether autograd follows the operation."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def signature(tensors: Sequence[torch.Tensor | None], options: tuple[Any, ...]) -> Any:
    """What a call has in common with those that differ in addresses alone; None where addresses do
    not say what a tensor holds."""
    key: list[Any] = [options]
    for x in tensors:
        if x is None:
            key.append(None)
        elif x.layout is not torch.strided or x.is_neg():
            return None
        else:
            key += (x.dtype, x.shape, x.stride(), x.get_device())
    return tuple(key)


def call(tensors: Sequence[torch.Tensor | None], key: Any) -> Any:
    """The kernel's results for tensors of this signature, or None."""
    found = _kept.calls.get(key)
    if found is None:
        return None
    again, order = found
    return again.run(again.stream, [tensors[k].data_ptr() for k in order])  # type: ignore[union-attr]


def remember(
    tensors: Sequence[torch.Tensor | None], key: Any, kernel: Kernel,
    arguments: Sequence[torch.Tensor],
) -> None:  # fmt: skip
    """Keep a call, whose kernel got these arguments, where each of them is one of its tensors as it
    is. Which one is told by their addresses, so these have to differ."""
    places = {x.data_ptr(): k for k, x in enumerate(tensors) if x is not None}
    if key is None or len(places) < sum(x is not None for x in tensors):
        return
    order = tuple(places.get(x.data_ptr(), -1) for x in arguments)
    again = kernel.again(*arguments) if -1 not in order else None
    if again is not None:
        if len(_kept.calls) >= _LIMIT:
            _kept.calls.clear()
        _kept.calls[key] = again, order
