# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of the operation that are like an earlier one of the same thread: same options, and
tensors of the same types, shapes, strides and devices. They go to the kernel by addresses alone.

Such a call is found by its signature. The one that ran last under the same options is asked before:
torch's own guard tells in one native call whether tensors are like those of another call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from neptune_mlir.driver.kernel import Kernel

_LIMIT = 512  # calls of a thread that are kept
_PLAIN = (torch.Tensor, torch.nn.Parameter)
Results = tuple[torch.Tensor, torch.Tensor | None]
# what torch.compile's guards on tensors are made of
_Guards: Any = getattr(getattr(torch._C._dynamo, "guards", None), "TensorGuards", None)


def _never(*tensors: torch.Tensor) -> bool:
    return False


# the heads of a row lie together in memory: what is handed out is [batch, heads, rows, dim]
_ORDERS = ((0, 2, 1, 3),)


class _Call:
    """A call that may come again; `again` is what the kernel keeps of it (`Kernel.again`)."""

    def __init__(self, again: Callable[[Sequence[torch.Tensor]], Any]):
        self._again = again
        self.guards: dict[str, Callable[..., bool]] = {}  # by who asks

    def run(self, tensors: Sequence[torch.Tensor]) -> Results | None:
        """The operation's results; None where addresses need a whole check."""
        made = self._again(tensors)
        if made is None:
            return None
        return made[0], made[1] if len(made) > 1 else None


class _Kept(threading.local):
    """Calls by signature; without and with gradients (which guards do not tell apart), by options
    the guard and the call that ran last; and which ran last."""

    def __init__(self) -> None:
        self.calls: dict[Any, _Call] = {}
        self.last: tuple[dict[Any, tuple[Callable[..., bool], _Call]], ...] = {}, {}
        self.newest: _Call | None = None


_kept = _Kept()


def forget() -> None:
    """Let each next call of this thread be a first one."""
    _kept.calls.clear()
    for kept in _kept.last:
        kept.clear()
    _kept.newest = None


def is_observed(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether a tracer, a mode or a subclass of Tensor has to see the operation, or there is no
    memory."""
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack():
        return True
    for x in tensors:  # (a generator costs as much as the rest of a call)
        if x is not None and (type(x) not in _PLAIN or x.is_meta):
            return True
    return False


def learns(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether autograd follows the operation."""
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


def signature(tensors: Sequence[torch.Tensor], options: tuple[Any, ...]) -> Any:
    """What a call has in common with those that differ in addresses alone; None where addresses do
    not say what a tensor holds."""
    key: list[Any] = [options]
    for x in tensors:
        if x.layout is not torch.strided or x.is_neg() or x.is_meta:
            return None
        key += (x.dtype, x.shape, x.stride(), x.get_device())
    return tuple(key)


def last(options: tuple[Any, ...], tensors: Sequence[torch.Tensor]) -> Results | None:
    """The results by the call that ran last under these options, where this one is like it.

    Args:
        options: who asks, and all that the call depends on but its tensors.
    """
    found = _kept.last[torch.is_grad_enabled()].get(options)
    if found is None or torch._C._len_torch_dispatch_stack():
        return None
    is_like, call = found
    if not is_like(*tensors):
        return None
    _kept.newest = call
    return call.run(tensors)


def note(options: tuple[Any, ...], tensors: Sequence[torch.Tensor]) -> None:
    """Let `last` find the call of these tensors that has just run, if one was kept."""
    call, who = _kept.newest, options[0]
    if call is None:
        return
    is_like = call.guards.get(who)
    if is_like is None or not is_like(*tensors):
        is_like = call.guards[who] = _guard(tensors)
    kept = _kept.last[torch.is_grad_enabled()]
    if len(kept) >= _LIMIT:
        kept.clear()
    kept[options] = is_like, call


def _guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Whether tensors have the types, shapes, strides, devices and dispatch keys of these, want
    gradients as these do, and no two are one."""
    if _Guards is None:
        return _never
    sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    guard = _Guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    check: Callable[..., bool] = guard.check
    return check


def call(tensors: Sequence[torch.Tensor], key: Any) -> Results | None:
    """The operation's results for tensors of this signature, or None."""
    found = _kept.newest = _kept.calls.get(key)
    return None if found is None else found.run(tensors)


def remember(
    tensors: Sequence[torch.Tensor], key: Any, kernel: Kernel, arguments: Sequence[torch.Tensor]
) -> None:
    """Keep a call, whose kernel got these arguments, where each of them is one of its tensors as it
    is. Which one is told by their addresses, so these have to differ."""
    places = {x.data_ptr(): k for k, x in enumerate(tensors)}
    if key is None or len(places) < len(tensors):
        return
    order = tuple(places.get(x.data_ptr(), -1) for x in arguments)
    if -1 in order:
        return
    again = kernel.again(*arguments, order=order, orders=_ORDERS)
    if again is not None:
        if len(_kept.calls) >= _LIMIT:
            _kept.calls.clear()
        _kept.newest = _kept.calls[key] = _Call(again)
