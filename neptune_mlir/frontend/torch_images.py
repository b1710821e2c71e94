# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images of torch whose elements come from places that are known, or that few numbers say: each
element of a result looks its own up, in parallel on every target. torch-mlir has no lowering of
these, or loops over what is written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any


def functions(torch: Any) -> dict[str, Callable[..., Any]]:
    """Decompositions by the names of their operations."""
    bound = functools.partial
    return {
        "col2im.default": bound(_folded, torch),
        "max_unpool2d.default": lambda x, at, size: _unpooled(x, at, size),
        "max_unpool3d.default": lambda x, at, size, stride, padding: _unpooled(x, at, size),
        "_adaptive_avg_pool3d.default": bound(_means_of_parts, torch),
        "fractional_max_pool2d.default": bound(_fractional, torch),
        "fractional_max_pool3d.default": bound(_fractional, torch),
    }


def resized(
    torch: Any, input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:  # fmt: skip
    """`interpolate` with `antialias=True`: where its shares can still be constants."""
    extents = input.shape[2:]
    known = mode in _KERNELS and all(isinstance(n, int) for n in extents)
    if not (antialias and known and len(extents) == 2):
        return NotImplemented

    def both(given: Any) -> list[Any]:
        return list(given) if isinstance(given, (list, tuple)) else [given] * 2

    scales: list[float | None] = [None, None]
    if size is None:
        given = both(scale_factor)
        scales = scales if recompute_scale_factor else given
        size = [math.floor(n * s) for n, s in zip(extents, given, strict=True)]
    return _smooth(torch, *_KERNELS[mode], input, both(size), bool(align_corners), scales)


def _folded(
    torch: Any, x: Any, size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> Any:  # fmt: skip
    """What each place of an image gets of the windows that it is in."""
    if not all(isinstance(n, int) for n in (*size, x.shape[-1])):
        return NotImplemented
    parts = x if x.dim() == 3 else x.unsqueeze(0)
    spans = list(zip(size, kernel, dilation, padding, stride, strict=True))
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in spans]
    parts = parts.unflatten(1, (-1, math.prod(kernel))).flatten(2)
    tables, inside = [], []
    for (n, k, d, p, s), count in zip(spans, counts, strict=True):
        at = torch.arange(n, device=x.device)[:, None] + p - d * torch.arange(k, device=x.device)
        inside.append((at >= 0) & (at % s == 0) & (at // s < count))
        tables.append((at // s).clamp(0, count - 1))
    i, j = (torch.arange(k, device=x.device) for k in kernel)
    window = i[None, :, None, None] * kernel[1] + j
    place = (window * counts[0] + tables[0][:, :, None, None]) * counts[1] + tables[1]
    found = parts[:, :, place]
    seen = inside[0][:, :, None, None] & inside[1]
    made = torch.where(seen, found, 0.0).sum((3, 5)).to(x.dtype)
    return made if x.dim() == 3 else made.squeeze(0)


def _means_of_parts(torch: Any, x: Any, size: Sequence[int]) -> Any:
    """Means of so many parts along each dimension, which may overlap."""
    extents = x.shape[-len(size) :]
    if not all(isinstance(n, int) for n in extents):
        return NotImplemented
    made = x.float() if x.element_size() < 4 else x
    for k, (n, m) in enumerate(zip(extents, size, strict=True)):
        dim = x.dim() - len(size) + k
        if n % m == 0:
            made = made.unflatten(dim, (m, n // m)).mean(dim + 1)
            continue
        at = torch.arange(m, device=x.device)
        first, end = at * n // m, -(-(at + 1) * n // m)
        widest = max(-(-(j + 1) * n // m) - j * n // m for j in range(m))
        inside = first.unsqueeze(1) + torch.arange(widest, device=x.device)
        behind = [1] * (x.dim() - 1 - dim)
        seen = (inside < end.unsqueeze(1)).reshape([m, widest, *behind])
        parts = made.index_select(dim, inside.clamp(max=n - 1).reshape(-1))
        parts = torch.where(seen, parts.unflatten(dim, (m, widest)), 0.0)
        count = (end - first).to(made.dtype).reshape([m, *behind])
        made = parts.sum(dim + 1) / count
    return made.to(x.dtype)


def _unpooled(x: Any, at: Any, size: Sequence[int]) -> Any:
    """Elements at their places in planes of zeros."""
    rank, area = len(size), math.prod(size)
    outer = list(x.shape[: x.dim() - rank])
    rows = x.new_zeros([*outer, area])
    return rows.scatter(-1, at.flatten(-rank), x.flatten(-rank)).reshape([*outer, *size])


def _fractional(
    torch: Any, x: Any, kernel: Sequence[int], size: Sequence[int], samples: Any
) -> Any:
    """The largest of windows that begin where random numbers say, and where it is."""
    rank = len(size)
    extents = x.shape[-rank:]
    if not all(isinstance(n, int) for n in (*extents, *size)):
        return NotImplemented
    batch = x if x.dim() == rank + 2 else x.unsqueeze(0)
    place: Any = 0
    for dim, (n, m, k) in enumerate(zip(extents, size, kernel, strict=True)):
        # of two dimensions the first number is for columns
        u = samples[..., rank - 1 - dim if rank == 2 else dim].unsqueeze(-1)
        at = torch.arange(m, device=x.device)
        alpha = (n - k) / (m - 1) if m > 1 else 0.0
        first = ((at + u) * alpha).to(torch.int64) - (u * alpha).to(torch.int64)
        first = torch.where(at == m - 1, n - k, first)
        inside = first.unsqueeze(-1) + torch.arange(k, device=x.device)
        along = [*inside.shape[:2], *[1] * (2 * rank)]
        along[2 + dim], along[2 + rank + dim] = m, k
        place = place * n + inside.reshape(along)
    place = place.flatten(2 + rank)  # [batch, channel, size, window]
    places = place.expand([*batch.shape[:2], *place.shape[2:]])
    rows = batch.flatten(2)
    windows = rows.gather(-1, places.flatten(2)).reshape(places.shape)
    chosen = windows.argmax(-1, keepdim=True)
    results = windows.amax(-1), places.gather(-1, chosen).squeeze(-1)
    return results if batch is x else tuple(r.squeeze(0) for r in results)


def _smooth(
    torch: Any, kernel: Callable[[float], float], reach: int, x: Any, size: Sequence[int],
    align_corners: bool, scales: Sequence[float | None],
) -> Any:  # fmt: skip
    """An image in another size, whose elements are means of all that a kernel as wide as one of
    them reaches."""
    made = x.float() if x.element_size() < 4 else x
    for dim, (n, m, given) in enumerate(zip(x.shape[-2:], size, scales, strict=True)):
        if align_corners:
            scale = (n - 1) / (m - 1) if m > 1 else 0.0
        else:
            scale = 1 / given if given else n / m
        places, weights = _reached(kernel, reach, n, m, scale)
        at = torch.tensor(places, device=x.device)
        share = torch.tensor(weights, dtype=made.dtype, device=x.device)
        if dim:
            made = (made[..., at] * share).sum(-1)
        else:
            made = (made[..., at, :] * share.unsqueeze(-1)).sum(-2)
    return made.to(x.dtype)


def _reached(
    kernel: Callable[[float], float], reach: int, n: int, m: int, scale: float
) -> tuple[list[list[int]], list[list[float]]]:
    """The elements of n that each of m is a mean of, and their shares: as many for each, so the
    last one may stand there several times, with a part of its share."""
    wide = max(scale, 1.0)
    places, weights = [], []
    for i in range(m):
        center = scale * (i + 0.5)
        first = max(int(center - reach * wide + 0.5), 0)
        end = min(int(center + reach * wide + 0.5), n)
        own = [kernel((j - center + 0.5) / wide) for j in range(first, end)]
        places.append([*range(first, end)])
        weights.append([w / (sum(own) or 1.0) for w in own])
    most = max(map(len, places))
    for row, share in zip(places, weights, strict=True):
        again = most - len(row)
        share[-1:] = [share[-1] / (again + 1)] * (again + 1)
        row += [row[-1]] * again
    return places, weights


def _triangle(t: float) -> float:
    return max(0.0, 1 - abs(t))


def _cubic(t: float, a: float = -0.5) -> float:
    t = abs(t)
    if t < 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return (((t - 5) * t + 8) * t - 4) * a if t < 2 else 0.0


# what `mode` means: a kernel, and how far it reaches
_KERNELS: dict[str, tuple[Callable[[float], float], int]] = {
    "bilinear": (_triangle, 1), "bicubic": (_cubic, 2),
}  # fmt: skip
