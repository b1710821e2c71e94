# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gradient of `torch.ops.neptune.attention`: derived from its program, as an operation.

    attention_backward(Tensor? d_out, Tensor? d_lse, Tensor q, Tensor k, Tensor v,
                       Tensor? attn_mask, Tensor[] captured, Tensor out, Tensor lse, str mods,
                       float scale, bool is_causal, bool[] needs) -> Tensor[]

`neptune.vjp` derives the program; what it saves are the result and the log-sum-exp of each row, two
results of the forward operation. `needs` says of q, k, v, the mask and each captured tensor whether
its gradient is wanted. The results are the adjoints of the kernel's inputs, in its order; those of
captured tensors follow from them by torch (`Mods.pull`).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._library.autograd import Info, make_autograd_impl

from neptune_mlir.driver.kernel import Kernel
from neptune_mlir.driver.on_demand import Coming
from neptune_mlir.errors import NeptuneError, ToolError, UsageError
from neptune_mlir.frontend.gradient.saved import vjp
from neptune_mlir.frontend.notation import Program, Tensor
from neptune_mlir.torch import again, op, shortcut

_OUT, _LSE = "out0", "saved0"  # what `vjp` calls what it saves
_TYPES = {name: dtype for dtype, name in op.DTYPES.items()}
_FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class BackwardKernel:
    """A kernel for adjoints: of which inputs of the forward program, and what it takes, by name
    with its type."""

    kernel: Kernel
    of: tuple[str, ...]
    takes: dict[str, torch.dtype]


_backwards: dict[Any, BackwardKernel] = {}


def backward_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    mods: str, scale: float, is_causal: bool, with_lse: bool, needs: Sequence[bool],
) -> BackwardKernel:  # fmt: skip
    """The kernel for tensors like these, with or without a cotangent of the log-sum-exp. Its bits
    are the same in every run where torch asks for that (`torch.use_deterministic_algorithms`).

    Raises:
        NeptuneError: the program has no derivative, or the kernel cannot be compiled.
    """
    same = q.device.type != "cpu" and torch.are_deterministic_algorithms_enabled()
    key = (*op.key_of(q, k, v, attn_mask, mods, scale, is_causal), with_lse, same, *needs)
    if key not in _backwards:
        program = op.program_of(q, k, v, attn_mask, mods, scale, is_causal, with_lse)
        wanted = op.mods_named(mods).inputs_of(needs[4:])
        wanted |= {n for n, x in zip(("q", "k", "v", "attn_mask"), needs, strict=False) if x}
        types = {n: x.dtype for n, x in program.inputs.items() if isinstance(x, Tensor)}
        of = [n for n, dtype in types.items() if n in wanted and dtype in _FLOATS]
        _, program = vjp(program, wrt=of)
        unknown = [n for n in program.inputs if n.startswith("saved") and n != _LSE]
        if unknown:
            raise ToolError(
                "the gradient needs more than a log-sum-exp a row",
                hint="write the score so that a softmax's maximum is free",
            )
        # else programs may add to a result in any order
        knobs: dict[str, Any] = {"knobs": {"ordered": 1}} if same else {}
        coming = _call_of(program, q, k, v)
        kernel = op.compile(program, target=op.target_of(q.device), coming=coming, **knobs)
        inputs = program.inputs.items()
        takes = {n: _TYPES[x.dtype] for n, x in inputs if isinstance(x, Tensor)}
        _backwards[key] = BackwardKernel(kernel, tuple(of), takes)
    return _backwards[key]


def _call_of(
    program: Program, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Coming | None:
    """The call of a backward program that follows one of the forward program with these tensors:
    what it takes beside them has their axes. None, where others decide how long one is."""
    sizes: dict[str, Any] = {}
    for name, x in (("q", q), ("k", k), ("v", v)):
        tensor = program.inputs.get(name)
        if isinstance(tensor, Tensor):
            sizes |= zip((axis.name for axis in tensor.shape), x.shape, strict=True)
    tensors = [x for x in program.inputs.values() if isinstance(x, Tensor)]
    shapes = [tuple(a.static or sizes.get(a.name) for a in x.shape) for x in tensors]
    if len(shapes) < len(program.inputs) or any(type(n) is not int for s in shapes for n in s):
        return None  # (sizes of traced tensors are symbols)
    return op.call_of(shapes, q.device)


@torch.library.custom_op("neptune::attention_backward", mutates_args=())
def attention_backward(
    d_out: torch.Tensor | None, d_lse: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor,
    v: torch.Tensor, attn_mask: torch.Tensor | None, captured: Sequence[torch.Tensor],
    out: torch.Tensor, lse: torch.Tensor, mods: str, scale: float, is_causal: bool,
    needs: Sequence[bool],
) -> list[torch.Tensor]:  # fmt: skip
    backward = backward_of(
        q, k, v, attn_mask, mods, scale, is_causal, d_lse is not None, needs
    )
    given = op.named_arguments(q, k, v, attn_mask, captured, mods)
    given |= {_OUT: out, "d_out0": torch.zeros_like(out) if d_out is None else d_out}
    # a row that sees nothing: every score is left of its reference
    given[_LSE] = lse.masked_fill(lse == -math.inf, math.inf)
    if d_lse is not None:
        given["d_out1"] = d_lse
    takes = backward.takes.items()
    made = backward.kernel(*(op.by_rows(given[n].detach().to(dtype)) for n, dtype in takes))
    return [made] if len(backward.of) == 1 else list(made)


@attention_backward.register_fake
def _fake(
    d_out: torch.Tensor | None, d_lse: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor,
    v: torch.Tensor, attn_mask: torch.Tensor | None, captured: Sequence[torch.Tensor],
    out: torch.Tensor, lse: torch.Tensor, mods: str, scale: float, is_causal: bool,
    needs: Sequence[bool],
) -> list[torch.Tensor]:  # fmt: skip
    of = backward_of(q, k, v, attn_mask, mods, scale, is_causal, d_lse is not None, needs).of
    like = op.named_arguments(q, k, v, attn_mask, captured, mods)
    return [q.new_empty(like[name].shape, dtype=like[name].dtype) for name in of]


def _refuse(*_: Any) -> Any:
    raise UsageError(
        "the second derivative of neptune's attention is not there",
        hint="differentiate once, or attention by torch "
        "(torch.nn.attention.sdpa_kernel(SDPBackend.MATH))",
    )


attention_backward.register_autograd(_refuse, setup_context=lambda ctx, inputs, output: None)


def gradients(
    tensors: Sequence[torch.Tensor | None], options: tuple[str, float, bool],
    needs: Sequence[bool], made: tuple[torch.Tensor, torch.Tensor],
    cotangents: tuple[torch.Tensor | None, torch.Tensor | None],
) -> list[torch.Tensor | None]:  # fmt: skip
    """The gradients of those `tensors` that `needs` marks.

    Args:
        tensors: q, k, v, the mask, the captured ones.
        options: the modifiers' key, the scale, is_causal.
        made: the results of the forward operation, which may lack the log-sum-exp.
        cotangents: of both, None for 0.
    """
    q, k, v, mask, *captured = tensors
    try:
        backward = backward_of(q, k, v, mask, *options, cotangents[1] is not None, needs)
    except NeptuneError as error:
        _say_once(str(error))
        return _by_torch(tensors, options, needs, cotangents)
    out, lse = made
    if not lse.ndim == 3:  # the operation was called without `return_lse`
        lse = torch.ops.neptune.attention(q, k, v, mask, captured, *options, True)[1]
    inside_func = torch._C._functorch.peek_interpreter_stack()
    call = AttentionBackward.apply if inside_func else _by_operation
    found = call(*cotangents, q, k, v, mask, out, lse, options, tuple(needs), *captured)
    adjoints = dict(zip(backward.of, found, strict=True))
    sizes = op.sizes_of(q, k)
    pulled = op.mods_named(options[0]).pull(captured, needs[4:], adjoints, sizes, q.device)
    first = [adjoints.get(n) for n in ("q", "k", "v", "attn_mask")]
    return [*first, *pulled]


def _by_operation(
    d_out: Any, d_lse: Any, q: Any, k: Any, v: Any, mask: Any, out: Any, lse: Any,
    options: tuple[str, float, bool], needs: tuple[bool, ...], *captured: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    return torch.ops.neptune.attention_backward(
        d_out, d_lse, q, k, v, mask, list(captured), out, lse, *options, list(needs)
    )


class AttentionBackward(torch.autograd.Function):
    """The operation for `torch.func`, which takes none that has a derivative of its own."""

    @staticmethod
    def forward(*given: Any) -> Any:
        return tuple(_by_operation(*given))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        return _refuse()


class DifferentiableAttention(torch.autograd.Function):
    """The forward operation for `torch.func`: q, k, v, the mask, options, captured tensors."""

    @staticmethod
    def forward(
        q: Any, k: Any, v: Any, mask: Any, options: tuple[str, float, bool], *captured: Any
    ) -> Any:
        return torch.ops.neptune.attention(q, k, v, mask, list(captured), *options, True)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        q, k, v, mask, ctx.options, *captured = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, mask, *captured, *output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        *tensors, out, lse = ctx.saved_tensors
        needs = [*ctx.needs_input_grad[:4], *ctx.needs_input_grad[5:]]
        found = gradients(tensors, ctx.options, needs, (out, lse), cotangents)
        return (*found[:4], None, *found[4:])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    q, k, v, mask, captured, *ctx.options = inputs
    ctx.count = len(captured)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, mask, *captured, *output)


def _backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
    *tensors, out, lse = ctx.saved_tensors
    options = tuple(ctx.options[:3])
    found = gradients(tensors, options, _needs(ctx), (out, lse), cotangents)
    return (*found[:4], found[4:], None, None, None, None)


def _needs(ctx: Any) -> list[bool]:
    """Of q, k, v, the mask and each captured tensor, whether its gradient is wanted."""
    *first, captured = ctx.needs_input_grad[:5]
    each = captured if isinstance(captured, (tuple, list)) else [captured] * ctx.count
    return [*first, *each]


# What `torch.library.register_autograd` would register, which takes twice the host time of the rest
# of a call to find out that nobody differentiates it.
_differentiable = make_autograd_impl(torch.ops.neptune.attention.default, Info(_backward, _setup))


@torch._disable_dynamo
def _forward(
    keys: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None,
    captured: Sequence[torch.Tensor] | None, *options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    captured = captured or []  # packages of AOTInductor pass None for an empty list
    tensors = (q, k, v, attn_mask, *captured)
    if again.learns(tensors) or again.is_observed(tensors):
        made: tuple[torch.Tensor, torch.Tensor] = _differentiable(
            keys, q, k, v, attn_mask, captured, *options
        )
        return made
    made = op.attention_op(q, k, v, attn_mask, captured, *options)
    given = shortcut.tensors_of(q, k, v, attn_mask, captured)
    again.note(shortcut.door_of(attn_mask, options), given)
    return made


op.LIBRARY.impl("attention", _forward, "Autograd", with_keyset=True)
shortcut.shorten(torch.ops.neptune.attention.default)


def _by_torch(
    tensors: Sequence[torch.Tensor | None], options: tuple[str, float, bool],
    needs: Sequence[bool], cotangents: tuple[torch.Tensor | None, torch.Tensor | None],
) -> list[torch.Tensor | None]:  # fmt: skip
    given = [None if x is None else x.detach() for x in tensors]
    learned = [g for g, need in zip(given, needs, strict=True) if need]
    with torch.enable_grad():
        for x in learned:
            x.requires_grad_()
        q, k, v, mask, *captured = given
        mods, scale, is_causal = options
        made = op.dense(q, k, v, op.modify(mods, captured), mask, scale, is_causal, True)
    pairs = [(m, c) for m, c in zip(made, cotangents, strict=True) if c is not None]
    if not pairs:
        return [None for _ in given]
    results, weights = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(results, learned, weights, allow_unused=True))
    return [next(found) if need else None for need in needs]


@functools.cache
def _say_once(why: str) -> None:
    warnings.warn(
        f"gradients of attention come from torch, which stores all scores: {why}", stacklevel=2
    )
