# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`linear_cross_entropy`: a linear layer and its cross-entropy, without a matrix of all logits.

    torch.ops.neptune.linear_cross_entropy(x, weight, target, chunk, keeps) -> (loss, lse, kept)
    torch.ops.neptune.linear_cross_entropy_backward(d_loss, x, weight, target, lse, chunk, needs)
        -> (d_x, d_weight)
    torch.ops.neptune.linear_cross_entropy_backward_kept(..., kept, d_weight, chunk, needs) -> d_x

All passes are programs that `neptune.vjp` derives. They run on pieces of the classes, which are
rows of the weight: its gradient is written in place, and the gradient of x is added to what there
is (`frontend.gradient.added`). A class that is not in a piece is a target that no class of the
piece equals, so targets only move.

Logits of some classes are `kept`, rounded to the dtype of x, in memory that the gradient of the
weight takes later (`pieces`), so that the backward pass has one matmul less for these. The logits
of the other classes are computed again; on GPUs a piece's gradient of them lies where the gradient
of the weight is not written yet. Pieces are as large as that allows, for each one adds to all of
the gradient of x.
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
from neptune_mlir.frontend.notation import Program
from neptune_mlir.frontend.notation import sum as summed
from neptune_mlir.runtime.memory import WORKSPACE_ALIGNMENT
from neptune_mlir.torch import autocast
from neptune_mlir.torch.mods import DTYPES
from neptune_mlir.torch.op import by_rows, target_of
from neptune_mlir.torch.pieces import CHUNK, kept_at, kept_sizes, piece_sizes

_REDUCTIONS = ("mean", "sum", "none")


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, *, ignore_index: int = -100,
    reduction: str = "mean", chunk: int = CHUNK,
) -> torch.Tensor:  # fmt: skip
    """`torch.nn.functional.cross_entropy(x @ weight.mT, target)`, differentiable.

    Args:
        x: [..., width], f16, bf16 or f32.
        weight: [classes, width], of the dtype of x. (Inside of `torch.autocast` both are cast.)
        target: [...] of x, int64: the class of each row.
        ignore_index: rows of this target have no loss, and no gradient.
        reduction: "mean" (over rows that are not ignored), "sum" or "none".
        chunk: how many classes have memory of their own for their part of the logits at once in
            the backward pass, at most; 0: all logits are kept from the forward pass on. (On GPUs
            an eighth of it at most. Other logits are in the memory of the gradient of the weight,
            as many as fit.)

    Returns:
        f32, [] or, with "none", [...] of x.

    Raises:
        UsageError: tensors or options that do not fit together.
    """
    x, weight = autocast.cast(x, weight)
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
    learns = weight.requires_grad or (x.requires_grad and not chunk)
    # a graph of torch.compile copies what it saves before it writes there
    keeps = torch.is_grad_enabled() and learns and not torch.compiler.is_compiling()
    loss = torch.ops.neptune.linear_cross_entropy(rows, weight, targets, chunk, keeps)[0]
    live = targets != ignore_index
    loss = loss.where(live, 0.0)
    if reduction == "none":
        return loss.view(target.shape)
    return loss.sum() / live.sum() if reduction == "mean" else loss.sum()


# of a kernel: width, classes (None: any number), and where
Key = tuple[int, int | None, torch.dtype, torch.device]


@functools.cache
def _forward(key: Key) -> Kernel:
    program, _ = vjp(_program(key), wrt=["x"])
    return compile(program, target=target_of(key[-1]))


@functools.cache
def _backward(key: Key, wrt: tuple[str, ...], adds: bool) -> Kernel:
    """`adds`: to what there is of the gradient of x."""
    _, program = vjp(_program(key), wrt=wrt)
    return compile(adding(program, "d_x") if adds else program, target=target_of(key[-1]))


@functools.cache
def _logits(key: Key) -> Kernel:
    return compile(_linear(key), target=target_of(key[-1]))


@functools.cache
def _logits_backward(key: Key, wrt: tuple[str, ...], adds: bool) -> Kernel:
    """Of the gradient of logits. Both products have many programs, and on GPUs pairs of these share
    what they load (`form-clusters`; 2.8 and 1.3 ms of 29 at 8192 x 4096 x 128256): but for odd
    numbers, where two do the same, which would add twice in place."""
    _, program = vjp(_linear(key), wrt=wrt)
    target = target_of(key[-1])
    if adds or key[-1].type == "cpu":
        return compile(adding(program, "d_x") if adds else program, target=target)
    return compile(program, target=target, knobs={"pairs": 2})


@functools.cache
def _loss(key: Key) -> tuple[Kernel, Kernel]:
    """Of logits: the loss, and its backward pass."""
    _, classes, dtype, device = key
    program = ops.cross_entropy(classes=classes, dtype=DTYPES[dtype])
    forward, backward = (compile(p, target=target_of(device)) for p in vjp(program, wrt=["x"]))
    return forward, backward


def _program(key: Key) -> Program:
    return ops.linear_cross_entropy(width=key[0], classes=key[1], dtype=DTYPES[key[2]])


def _linear(key: Key) -> Program:
    """x wᵀ, in the dtype of both."""
    width, classes, dtype = key[0], key[1], DTYPES[key[2]]
    p = Program("linear")
    i, j, d = p.axis("i"), p.axis("j", classes), p.axis("d", width)
    x, w = p.input("x", i, d, dtype=dtype), p.input("w", j, d, dtype=dtype)
    p.output(summed(x[i, d] * w[j, d], d), i, j, dtype=dtype, name="y")
    return p


def _key(x: torch.Tensor, classes: int) -> Key:
    return x.shape[1], classes, x.dtype, x.device


def _piece(x: torch.Tensor, classes: int) -> Key:
    """Of pieces: on GPUs these have many sizes, and one kernel for all."""
    return _key(x, classes) if x.device.type == "cpu" else (x.shape[1], None, x.dtype, x.device)


@torch.library.custom_op("neptune::linear_cross_entropy", mutates_args=())
def _op(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, chunk: int, keeps: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, weight, target = (by_rows(t.detach()) for t in (x, weight, target))
    kept = _memory(x, weight, chunk, keeps)
    found, first = [], 0  # the loss and log-sum-exp of each piece
    for size, logits in _kept_pieces(kept, x, weight, chunk):
        _logits(_piece(x, size))(x, weight[first : first + size], out=[logits])
        found.append(_loss(_piece(x, size))[0](logits, target - first))
        first += size
    if first < len(weight) or not found:
        kernel = _forward(_key(x, len(weight) - first))
        found.append(kernel(x, weight[first:], target - first))
    loss, lse = found[0]
    if len(found) > 1:  # a loss is its log-sum-exp less the logit of the target, if it is there
        lse = torch.stack([part for _, part in found]).logsumexp(0)
        loss = lse - torch.stack([part - one for one, part in found]).sum(0)
    return loss, lse, kept


def _memory(x: torch.Tensor, weight: torch.Tensor, chunk: int, keeps: bool) -> torch.Tensor:
    """What logits are kept in: the gradient of the weight, or a matrix of their own."""
    if not keeps:
        return x.new_empty(0)
    if chunk:
        return torch.empty_like(weight, memory_format=torch.contiguous_format)
    return x.new_empty(len(x), len(weight))


def _kept_pieces(
    kept: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, chunk: int
) -> list[tuple[int, torch.Tensor]]:
    """The number of classes of each piece that is kept, and its logits."""
    sizes = kept_sizes(len(weight), chunk, *x.shape) if kept.numel() else []
    pieces, rest = [], sum(sizes)
    for size in sizes:
        first = kept_at(kept.numel(), len(x), rest) if chunk else 0
        pieces.append((size, kept.view(-1)[first : first + len(x) * size].view(len(x), size)))
        rest -= size
    return pieces


@_op.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, chunk: int, keeps: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    loss = x.new_empty(x.shape[:1], dtype=torch.float32)
    return loss, torch.empty_like(loss), _memory(x, weight, chunk, keeps)


@torch.library.custom_op("neptune::linear_cross_entropy_backward", mutates_args=())
def _backward_op(
    d_loss: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
    lse: torch.Tensor, chunk: int, learns_x: bool, learns_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    x, weight, target, lse, d_loss = (by_rows(t.detach()) for t in (x, weight, target, lse, d_loss))
    d_x, d_weight = _results(x, weight, learns_x, learns_weight)
    kept = x.new_empty(0)
    return _differentiated(d_loss, x, weight, target, lse, kept, d_x, d_weight, chunk), d_weight


@torch.library.custom_op(
    "neptune::linear_cross_entropy_backward_kept", mutates_args=("kept", "d_weight")
)
def _backward_kept_op(
    d_loss: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
    lse: torch.Tensor, kept: torch.Tensor, d_weight: torch.Tensor, chunk: int, learns_x: bool,
) -> torch.Tensor:  # fmt: skip
    """`d_weight` may be `kept`."""
    x, weight, target, lse, d_loss = (by_rows(t.detach()) for t in (x, weight, target, lse, d_loss))
    d_x, _ = _results(x, weight, learns_x, False)
    return _differentiated(d_loss, x, weight, target, lse, kept, d_x, d_weight, chunk)


def _differentiated(
    d_loss: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
    lse: torch.Tensor, kept: torch.Tensor, d_x: torch.Tensor, d_weight: torch.Tensor, chunk: int,
) -> torch.Tensor:  # fmt: skip
    """Write the gradient of the weight; the gradient of x. Neither, where there is no room."""
    learns_x, learns_weight = d_x.numel() > 0, d_weight.numel() > 0
    wrt = ("x",) * learns_x + ("w",) * learns_weight
    there = _kept_pieces(kept, x, weight, chunk)
    rest = len(weight) - sum(size for size, _ in there)
    room_for = len(x) if learns_weight and x.is_cuda else 0
    sizes = piece_sizes(rest, chunk or rest, room_for, x.shape[1])
    adds = learns_x and len(there) + len(sizes) > 1
    sums = [d_x] * learns_x
    if adds:
        sums += [torch.empty_like(d_x)] * (d_x.itemsize < 4)  # what the sum is rounded by
        for one in sums:
            one.zero_()
    first = 0
    for size, logits in [*there, *((size, None) for size in sizes)]:
        last = first + size
        given: tuple[torch.Tensor, ...] = (x, weight[first:last])
        if logits is None:
            kernel = _backward(_piece(x, size), wrt, adds)
            given = (*given, target - first, lse, d_loss)
        else:
            found = (logits, target - first, lse, d_loss)
            kernel = _logits_backward(_piece(x, size), wrt, adds)
            given = (*given, _over(_loss(_piece(x, size))[1], found, [logits], 0)[0])
        free = d_weight[last:].view(-1) if logits is None else d_weight[:0]
        others = [d_weight[first:last]] * learns_weight
        if not adds:
            _run(kernel, given, [*sums, *others], free)
        else:
            sums = _over(kernel, (*given, *sums), sums, len(given), others, free)
        first = last
    return sums[0] if learns_x else d_x


def _over(
    kernel: Kernel, given: Sequence[torch.Tensor], over: list[torch.Tensor], first: int,
    others: Sequence[torch.Tensor] = (), free: torch.Tensor | None = None,
) -> list[torch.Tensor]:  # fmt: skip
    """Run a kernel whose first results take the memory of arguments, `over`, from the argument
    `first` on, where that may be; returns these results. Other results are written to `others`."""
    wanted = {(k, first + k) for k in range(len(over))}
    there = given[0].is_cuda and wanted <= {*kernel.requirements(*given).in_place}
    made = over if there else [torch.empty_like(one) for one in over]
    _run(kernel, given, [*made, *others], free)
    return made


def _run(
    kernel: Kernel, given: Sequence[torch.Tensor], out: Sequence[torch.Tensor],
    free: torch.Tensor | None,
) -> None:  # fmt: skip
    """Run a kernel; `free` is memory that it may work in, if that is enough."""
    named = {}
    if free is not None and free.is_cuda and free.numel():
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


@_backward_kept_op.register_fake
def _(
    d_loss: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor,
    lse: torch.Tensor, kept: torch.Tensor, d_weight: torch.Tensor, chunk: int, learns_x: bool,
) -> torch.Tensor:  # fmt: skip
    return _results(x, weight, learns_x, False)[0]


_backward_op.register_autograd(_refuse, setup_context=lambda ctx, inputs, output: None)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.chunk, keeps = inputs
    ctx.set_materialize_grads(False)
    ctx.kept_is_whole = keeps
    ctx.save_for_backward(*tensors, *output[1:])


def _differentiate(ctx: Any, d_loss: Any, d_lse: Any, d_kept: Any) -> tuple[Any, ...]:
    learns = ctx.needs_input_grad[:2]
    if d_loss is None or not any(learns):
        return None, None, None, None, None
    x, weight, *others, kept = ctx.saved_tensors
    if ctx.kept_is_whole and not torch.is_grad_enabled():  # else: the operation that refuses
        ctx.kept_is_whole = False  # for a second pass through a graph that is retained
        kept = kept.data  # may change after it was saved
        d_weight = kept if ctx.chunk else _results(x, weight, False, learns[1])[1]
        d_x = torch.ops.neptune.linear_cross_entropy_backward_kept(
            d_loss, x, weight, *others, kept, d_weight, ctx.chunk, learns[0]
        )
        found = (d_x, d_weight)
    else:
        found = torch.ops.neptune.linear_cross_entropy_backward(
            d_loss, x, weight, *others, ctx.chunk, *learns
        )
    return *(g if need else None for g, need in zip(found, learns, strict=True)), None, None, None


_op.register_autograd(_differentiate, setup_context=_setup)
