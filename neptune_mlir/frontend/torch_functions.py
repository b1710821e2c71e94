# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of torch that look at numbers before they compute, as ones that do not: torch.export
refuses a look, and a kernel cannot raise. One that computes in chunks, as one that does not. And
recurrent layers, of which torch would write out each step.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from neptune_mlir.frontend import (
    torch_groups,
    torch_images,
    torch_linalg,
    torch_loops,
    torch_series,
)


def instead(torch: Any) -> Any:
    """A context in which a program calls ours for these functions."""
    ours: dict[Any, Callable[..., Any]] = {
        torch.nn.functional.gaussian_nll_loss: _gaussian_likelihood,
        torch.nn.functional.interpolate: torch_images.resized,
        torch.narrow: _narrow, torch.Tensor.narrow: _narrow,
        torch.cov: _covariance, torch.Tensor.cov: _covariance,
        torch.corrcoef: _correlation, torch.Tensor.corrcoef: _correlation,
        getattr(torch.nn.functional, "linear_cross_entropy", None): _linear_cross_entropy,
        **torch_groups.functions(torch), **torch_loops.functions(torch),
        **torch_series.functions(torch), **torch_linalg.functions(torch),
    }  # fmt: skip

    class Instead(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, given: Any = (), named: Any = None
        ) -> Any:
            own, named = ours.get(function), named or {}
            found = NotImplemented if own is None else own(torch, *given, **named)
            return function(*given, **named) if found is NotImplemented else found

    return Instead()


@contextlib.contextmanager
def unchecked(torch: Any) -> Iterator[None]:
    """A context in which distributions take parameters and samples as they are."""
    distributions = torch.distributions.Distribution
    before = distributions._validate_args
    distributions.set_default_validate_args(False)
    try:
        yield
    finally:
        distributions.set_default_validate_args(before)


@contextlib.contextmanager
def unswapped(torch: Any) -> Iterator[None]:
    """A context in which a module that a program converts holds what the conversion gives. torch
    swaps the contents of its parameters, and those of an export cannot be swapped."""

    def apply(self: Any, function: Callable[..., Any], recurse: bool = True) -> Any:
        for part in self.children() if recurse else ():
            apply(part, function)
        for held in (vars(self)["_parameters"], vars(self)["_buffers"]):
            held.update((k, x if x is None else function(x)) for k, x in held.items())
        return self

    every, name = torch.nn.Module, "_apply"  # what all conversions come to
    before = getattr(every, name)
    setattr(every, name, apply)
    try:
        yield
    finally:
        setattr(every, name, before)


@contextlib.contextmanager
def unlooked(torch: Any) -> Iterator[None]:
    """A context in which a transformer's layers do not look whether a mask is the causal one: it
    hides the same whoever knows that."""
    layers, name = torch.nn.modules.transformer, "_detect_is_causal_mask"
    before = getattr(layers, name, None)  # a detail of torch's
    if before is None:
        yield
        return

    def asked(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal)

    setattr(layers, name, asked)
    try:
        yield
    finally:
        setattr(layers, name, before)


def _gaussian_likelihood(
    torch: Any, input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """Of variances that nobody asks whether they are negative."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    elif var.dim() == input.dim() - 1:  # one for each row
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else getattr(loss, reduction)()


def _linear_cross_entropy(
    torch: Any, *given: Any, options: Any = None, **named: Any
) -> Any:  # (from torch 2.13 on)
    """Without chunks: these save the memory of logits, and a kernel stores none."""
    if options is None:
        return NotImplemented
    return torch.nn.functional.linear_cross_entropy(*given, **named)


def _narrow(torch: Any, input: Any, dim: int, start: Any, length: int) -> Any:
    """From a place that a tensor says."""
    if not isinstance(start, torch.Tensor):
        return NotImplemented
    start = torch.where(start < 0, start + input.shape[dim], start)
    return input.index_select(dim, start + torch.arange(length, device=input.device))


def _covariance(
    torch: Any, input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Any:
    """Of observations without weights, which nobody looks through for one of another kind."""
    plain = fweights is None and aweights is None and input.is_floating_point()
    if not plain or not 0 < input.dim() <= 2:
        return NotImplemented
    rows = input if input.dim() == 2 else input.unsqueeze(0)
    apart = rows - rows.mean(1, keepdim=True)
    freedom = torch.full_like(apart[:1, :1], max(0, rows.shape[1] - correction))
    return (apart @ apart.T / freedom).squeeze()


def _correlation(torch: Any, input: Any) -> Any:
    found = _covariance(torch, input)
    if found is NotImplemented:
        return found
    if not found.dim():
        return found / found
    deviation = found.diagonal().sqrt()
    return (found / deviation.unsqueeze(1) / deviation.unsqueeze(0)).clamp(-1, 1)
