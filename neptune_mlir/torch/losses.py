# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`linear_cross_entropy`: a linear layer and its cross-entropy, without the matrix of logits.

    torch.ops.neptune.linear_cross_entropy(x, weight, target) -> (loss, lse)
    torch.ops.neptune.linear_cross_entropy_backward(d_loss, x, weight, target, lse, chunk, needs)
        -> (d_x, d_weight)

Both passes are programs that `neptune.vjp` derives. The gradient of the logits is stored, in the
dtype of x, for `chunk` classes at a time: the backward program runs on these rows of the weight,
whose gradient it writes in place, and adds its gradient of x to what there is
(`frontend.gradient.added`). A class that is not in a piece is a target that no class of the piece
equals, so targets only move. On GPUs a piece's gradient of the logits lies where the gradient of
the weight is not written yet. Pieces are as large as that allows, for each one adds to all of the
gradient of x; the last ones, which find no room there, are small.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from neptune_mlir import ops
from neptune_mlir.driver.kernel import Kernel, compile
from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.gradient.added import adding
from neptune_mlir.frontend.gradient.saved import vjp
from neptune_mlir.runtime.memory import WORKSPACE_ALIGNMENT
from neptune_mlir.torch.mods import DTYPES
from neptune_mlir.torch.op import by_rows, target_of

CHUNK = 4096  # classes: matmuls that fill a GPU, and logits that take less memory than the weight
_SMALL = 8  # of a chunk: pieces whose logits have memory of their own
_REDUCTIONS = ("mean", "sum", "none")


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, *, ignore_index: int = -100,
    reduction: str = "mean", chunk: int = CHUNK,
) -> torch.Tensor:  # fmt: skip
    """`torch.nn.functional.cross_entropy(x @ weight.mT, target)`, differentiable.

    Args:
        x: [..., width], f16, bf16 or f32.
        weight: [classes, width], of the dtype of x.
        target: [...] of x, int64: the class of each row.
        ignore_index: rows of this target have no loss, and no gradient.
        reduction: "mean" (over rows that are not ignored), "sum" or "none".
        chunk: how many classes have their part of the logits in memory at once in the backward
            pass, at most; 0: all. (On GPUs an eighth of it at most, and as many as fit in the
            memory of the gradient of the weight.)

    Returns:
        f32, [] or, with "none", [...] of x.

    Raises:
        UsageError: tensors or options that do not fit together.
    """
    if reduction not in _REDUCTIONS:
        raise UsageError(f"reduction '{reduction}'", hint=", ".join(_REDUCTIONS))
    if chunk < 0:
        raise UsageError(f"chunk is {chunk}", hint="a number of classes, or 0 for all")
    fits = weight.ndim == 2 and x.shape[-1:] == weight.shape[1:] and x.dtype == weight.dtype
    if not fits or target.shape != x.shape[:-1] or target.dtype != torch.int64:
        raise UsageError(
            f"x {list(x.shape)} {x.dtype}, weight {list(weight.shape)} {weight.dtype}, "
            f"target {list(target.shape)} {target.dtype}",
            hint="[..., width] and [classes, width] of one dtype, [...] int64",
        )
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise UsageError(f"x is {x.dtype}", hint="float16, bfloat16 or float32")
    rows, targets = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    loss = torch.ops.neptune.linear_cross_entropy(rows, weight, targets, chunk)[0]
    live = targets != ignore_index
    loss = loss.where(live, 0.0)
    if reduction == "none":
        return loss.view(target.shape)
    return loss.sum() / live.sum() if reduction == "mean" else loss.sum()


@functools.cache
def _forward(width: int, classes: int, dtype: torch.dtype, device: torch.device) -> Kernel:
    program, _ = vjp(_program(width, classes, dtype), wrt=["x"])
    return compile(program, target=target_of(device))


@functools.cache
def _backward(
    width: int, classes: int, dtype: torch.dtype, device: torch.device, wrt: tuple[str, ...],
    adds: bool,
) -> Kernel:  # fmt: skip
    """`adds`: to what there is of the gradient of x."""
    _, program = vjp(_program(width, classes, dtype), wrt=wrt)
    return compile(adding(program, "d_x") if adds else program, target=target_of(device))


def _program(width: int, classes: int, dtype: torch.dtype) -> Any:
    return ops.linear_cross_entropy(width=width, classes=classes, dtype=DTYPES[dtype])


@torch.library.custom_op("neptune::linear_cross_entropy", mutates_args=())
def _op(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    kernel = _forward(x.shape[1], weight.shape[0], x.dtype, x.device)
    loss, lse = kernel(*map(by_rows, (x.detach(), weight.detach(), target)))
    return loss, lse


@_op.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    loss = x.new_empty(x.shape[:1], dtype=torch.float32)
    return loss, torch.empty_like(loss)


@torch.library.custom_op("neptune::linear_cross_entropy_backward", mutates_args=())
def _backward_op(
    d_loss: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
    lse: torch.Tensor, chunk: int, learns_x: bool, learns_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    classes, wrt = weight.shape[0], ("x",) * learns_x + ("w",) * learns_weight
    x, weight, target, lse, d_loss = (by_rows(t.detach()) for t in (x, weight, target, lse, d_loss))
    d_x, d_weight = _results(x, weight, learns_x, learns_weight)
    room_for = len(x) if learns_weight and x.is_cuda else 0
    pieces = piece_sizes(classes, chunk or classes, room_for, x.shape[1])
    adds = learns_x and len(pieces) > 1
    sums = [d_x] * learns_x
    if adds:
        sums += [torch.empty_like(d_x)] * (d_x.itemsize < 4)  # what the sum is rounded by
        for one in sums:
            one.zero_()
    first = 0
    for size in pieces:
        last = first + size
        kernel = _backward(x.shape[1], size, x.dtype, x.device, wrt, adds)
        given = (x, weight[first:last], target - first, lse, d_loss)
        free = d_weight[last:].view(-1)
        if not adds:
            _run(kernel, given, [*sums, *[d_weight[first:last]] * learns_weight], free)
        else:
            sums = _add(kernel, given, sums, [d_weight[first:last]] * learns_weight, free)
        first = last
    return sums[0] if learns_x else d_x, d_weight


def piece_sizes(classes: int, chunk: int, rows: int, width: int) -> list[int]:
    """How many classes each piece has. On GPUs (`rows`: of x, else 0) as many, a power of 2, as
    have their logits in the gradient of the weight that later pieces write; small ones if less
    than a part of `chunk` has."""
    sizes: list[int] = []
    rest = classes
    while rest:
        size = min(chunk, rest)
        if chunk < classes and rows:
            room = rest * width // (rows + width)  # rows * room <= (rest - room) * width
            size = min(max(-(-chunk // _SMALL), 1 << room.bit_length() >> 1), rest)
        sizes.append(size)
        rest -= size
    return sizes


def _add(
    kernel: Kernel, given: Sequence[torch.Tensor], sums: list[torch.Tensor],
    others: list[torch.Tensor], free: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    """Run a kernel that adds to sums, in their place where that may be; returns the new sums."""
    given = (*given, *sums)
    first = len(given) - len(sums)
    wanted = {(k, first + k) for k in range(len(sums))}
    there = given[0].is_cuda and wanted <= {*kernel.requirements(*given).in_place}
    made = sums if there else [torch.empty_like(one) for one in sums]
    _run(kernel, given, [*made, *others], free)
    return made


def _run(
    kernel: Kernel, given: Sequence[torch.Tensor], out: Sequence[torch.Tensor], free: torch.Tensor
) -> None:
    """Run a kernel; `free` is memory that it may work in, if that is enough."""
    named = {}
    if free.is_cuda and free.numel():
        room = free.view(torch.int8)
        room = room[-room.data_ptr() % WORKSPACE_ALIGNMENT :]
        if 0 < kernel.requirements(*given).workspace <= len(room):
            named["workspace"] = room
    kernel(*given, out=list(out), **named)


def _results(
    x: torch.Tensor, weight: torch.Tensor, learns_x: bool, learns_weight: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Room for both gradients; none for one that is not wanted."""
    wanted = ((x, learns_x), (weight, learns_weight))
    return tuple(  # type: ignore[return-value]
        torch.empty_like(t, memory_format=torch.contiguous_format) if learns else t.new_empty(0)
        for t, learns in wanted
    )


@_backward_op.register_fake
def _(
    d_loss: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
    lse: torch.Tensor, chunk: int, learns_x: bool, learns_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    return _results(x, weight, learns_x, learns_weight)


def _refuse(*_: Any) -> Any:
    raise UsageError(
        "the second derivative of neptune's linear_cross_entropy is not there",
        hint="differentiate once, or torch's cross_entropy",
    )


_backward_op.register_autograd(_refuse, setup_context=lambda ctx, inputs, output: None)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.chunk = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[1])


def _differentiate(ctx: Any, d_loss: Any, d_lse: Any) -> tuple[Any, ...]:
    learns = ctx.needs_input_grad[:2]
    if d_loss is None or not any(learns):
        return None, None, None, None
    x, weight, target, lse = ctx.saved_tensors
    found = torch.ops.neptune.linear_cross_entropy_backward(
        d_loss, x, weight, target, lse, ctx.chunk, *learns
    )
    return *(g if need else None for g, need in zip(found, learns, strict=True)), None, None


_op.register_autograd(_differentiate, setup_context=_setup)
