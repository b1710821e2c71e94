# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.ops.neptune.attention` without torch's dispatcher, where a call is like the one that ran
last.

Compiled graphs call an operation as eager programs do: through the dispatcher to a kernel in
Python, which costs four times what finding the earlier call does. So the operation, as Python sees
it, asks for that call first. It answers only where the dispatcher would have come to the kernel:
tensors of the same dispatch keys, no mode, nothing to differentiate (`again.last`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._dynamo import eval_frame

from neptune_mlir.torch import again


def door_of(mask: Any, options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Under what a call through the operation is kept."""
    return "overload", *options, mask is None


def tensors_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, captured: Any
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """All tensors of a call, in order."""
    return (q, k, v, *captured) if mask is None else (q, k, v, mask, *captured)


def shorten(overload: Any) -> None:
    """Let an overload with the arguments of attention ask first for the call that ran last, where a
    call names all of them by their places."""
    through, names = overload._op, [argument.name for argument in overload._schema.arguments]
    count, scale = len(names), names.index("scale")  # which is a symbol in a trace

    def call(*given: Any, **named: Any) -> Any:
        if len(given) == count and type(given[scale]) is float:
            q, k, v, mask, captured, *options = given
            made = again.last(door_of(mask, tuple(options)), tensors_of(q, k, v, mask, captured))
            if made is not None:
                out, lse = made
                return out, q.new_empty(0) if lse is None else lse
        return through(*given, **named)

    _hide(call)
    overload._op = call


def _hide(function: Any) -> None:
    """torch.compile is not to look into a function, nor into what that calls. (Its decorator for
    that costs as much as the rest of a call.)"""
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    eval_frame.set_code_exec_strategy(function.__code__, strategy)
