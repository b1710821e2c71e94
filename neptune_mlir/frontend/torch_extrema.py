# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extrema, clamps and medians of torch as comparisons and sorts. torch-mlir's own lowering of these
loses a NaN, or there is none.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any


def functions(torch: Any) -> dict[str, Callable[..., Any]]:
    """Decompositions by the names of their operations."""
    table: dict[str, Callable[..., Any]] = {
        "cummax.default": functools.partial(_extremum_so_far, torch, 1),
        "cummin.default": functools.partial(_extremum_so_far, torch, -1),
        "kthvalue.default": functools.partial(_of_rank, torch),
        "topk.default": _largest,
        "mode.default": functools.partial(_most_frequent, torch),
        "median.default": functools.partial(_median_of_all, torch),
        "median.dim": functools.partial(_median, torch),
        "nanmedian.default": functools.partial(_median_of_all, torch, numbers=True),
        "nanmedian.dim": functools.partial(_median, torch, numbers=True),
    }
    for name, sign in (("max", 1), ("min", -1)):
        table |= {
            f"{name}imum.default": functools.partial(_extremum, torch, sign),
            f"f{name}.default": functools.partial(_extremum_of_numbers, torch, sign),
            f"arg{name}.default": functools.partial(_place, torch, sign),
            f"{name}.dim": functools.partial(_value_and_place, torch, sign),
        }
    clamp = functools.partial(_clamp, torch)
    for name in ("clamp.default", "clamp.Tensor", "hardtanh.default"):
        table[name] = clamp
    for kind in ("default", "Tensor"):
        table[f"clamp_min.{kind}"] = clamp
        table[f"clamp_max.{kind}"] = lambda x, most: clamp(x, None, most)
    table["hardtanh.default"] = lambda x, least=-1.0, most=1.0: clamp(x, least, most)
    table["relu6.default"] = lambda x: clamp(x, 0.0, 6.0)
    table["hardsigmoid.default"] = lambda x: clamp(x / 6 + 0.5, 0.0, 1.0)
    return table


def _largest(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """In any order: in theirs."""
    return NotImplemented if sorted else x.topk(k, dim, largest)


def _extremum(torch: Any, sign: int, x: Any, y: Any) -> Any:
    """Of two: NaN where one of them is."""
    x, y = (t.to(torch.result_type(x, y)) for t in (x, y))
    if not x.is_floating_point():
        return NotImplemented
    return torch.where((x > y if sign > 0 else x < y) | (x != x), x, y)


def _extremum_of_numbers(torch: Any, sign: int, x: Any, y: Any) -> Any:
    """Of two: the other where one of them is NaN. (torch-mlir wants both of one shape.)"""
    x, y = (t.to(torch.result_type(x, y)) for t in (x, y))
    return torch.where((x >= y if sign > 0 else x <= y) | (y != y), x, y)


def _clamp(torch: Any, x: Any, least: Any = None, most: Any = None) -> Any:
    """A NaN is neither below nor above."""
    bounds = [b for b in (least, most) if b is not None]
    dtype = functools.reduce(torch.promote_types, (torch.result_type(x, b) for b in bounds))
    if not dtype.is_floating_point:
        return NotImplemented
    x = x.to(dtype)
    for bound, sign in ((least, 1), (most, -1)):
        if hasattr(bound, "dtype"):
            x = _extremum(torch, sign, x, bound)
        elif bound is not None:
            bound = torch.full((), bound, dtype=dtype, device=x.device)
            x = torch.where(x < bound if sign > 0 else x > bound, bound, x)
    return x


def _value_and_place(torch: Any, sign: int, x: Any, dim: int, keepdim: bool = False) -> Any:
    value = x.amax(dim, keepdim) if sign > 0 else x.amin(dim, keepdim)
    place = _place(torch, sign, x, dim, keepdim)
    return NotImplemented if place is NotImplemented else (value, place)


def _place(torch: Any, sign: int, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Where the first extremum is, or the first NaN."""
    if not x.is_floating_point() or not x.dim() or 0 in x.shape:
        return NotImplemented
    rows = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    best = rows.amax(-1, keepdim=True) if sign > 0 else rows.amin(-1, keepdim=True)
    n = rows.shape[-1]
    at = torch.arange(n, device=x.device)
    place = torch.where((rows == best) | (rows != rows), at, n).amin(-1)
    if not keepdim:
        return place
    return place.reshape([1] * x.dim()) if dim is None else place.unsqueeze(dim)


def _extremum_so_far(torch: Any, sign: int, x: Any, dim: int) -> Any:
    """The greatest (sign 1) or least element that each element sees, and where the last such is."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    rows = x.movedim(dim, -1)
    at = torch.arange(rows.shape[-1], device=x.device)
    before = at <= at[:, None]
    if x.dtype is torch.bool:
        rows = rows.to(torch.uint8)
    info = torch.finfo if rows.is_floating_point() else torch.iinfo
    worst = -sign * math.inf if rows.is_floating_point() else info(rows.dtype).min
    if not rows.is_floating_point() and sign < 0:
        worst = info(rows.dtype).max
    seen = torch.where(before, rows.unsqueeze(-2), worst)
    best = seen.amax(-1) if sign > 0 else seen.amin(-1)
    there = (seen == best.unsqueeze(-1)) | (seen != seen)
    last = torch.where(there & before, at, -1).amax(-1)
    return best.movedim(-1, dim).to(x.dtype), last.movedim(-1, dim)


def _of_rank(torch: Any, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element, NaN behind all numbers."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    both = torch.sort(x, dim)
    return tuple(t.narrow(dim, k - 1, 1) if keepdim else t.select(dim, k - 1) for t in both)


def _most_frequent(torch: Any, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of those that occur most often, and the last place of it."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    rows = x.movedim(dim, -1)
    same = rows.unsqueeze(-1) == rows.unsqueeze(-2)
    times = same.to(torch.int64).sum(-1)
    often = times == times.amax(-1, keepdim=True)
    least = torch.where(often, rows, rows.amax(-1, keepdim=True)).amin(-1, keepdim=True)
    at = torch.arange(rows.shape[-1], device=x.device)
    place = torch.where(rows == least, at, -1).amax(-1, keepdim=True)
    both = least.movedim(-1, dim), place.movedim(-1, dim)
    return both if keepdim else tuple(t.squeeze(dim) for t in both)


def _median(
    torch: Any, x: Any, dim: int = -1, keepdim: bool = False, *, numbers: bool = False
) -> Any:  # fmt: skip
    """The lower of the two in the middle, of all elements or of those that are no NaN (`numbers`);
    NaN, and where the first is, where all have to count and one is NaN."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    n = x.shape[dim]
    if not isinstance(n, int) or not n:
        return NotImplemented
    odd = (x != x).to(torch.int64)
    ordered, places = torch.sort(x, dim)
    if numbers:
        middle = ((n - 1 - odd.sum(dim, keepdim=True)) // 2).clamp(min=0)
        value, place = ordered.gather(dim, middle), places.gather(dim, middle)
    else:
        value, place = (t.narrow(dim, (n - 1) // 2, 1) for t in (ordered, places))
        if x.is_floating_point():
            some = odd.amax(dim, keepdim=True) == 1
            value = torch.where(some, math.nan, value)
            place = torch.where(some, odd.argmax(dim, keepdim=True), place)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _median_of_all(torch: Any, x: Any, *, numbers: bool = False) -> Any:
    both = _median(torch, x.reshape(-1), 0, numbers=numbers)
    return both if both is NotImplemented else both[0]
