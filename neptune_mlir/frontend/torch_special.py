# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Special functions and small parts of linear algebra and quantisation of torch, in operations that
torch-mlir lowers. Series and approximations are right to a few units of float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra.special_functions import (
    digamma,
    inverse_of_erf_by_x,
    logarithm_of_gamma,
    polynomial,
    quantile_of_normal,
)

# of 1/(1 + x/2): the logarithm of erfc(x) exp(x^2) (1 + x/2)
_ERROR = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
    1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip
# Abramowitz and Stegun, 9.8.1 to 9.8.4: of (x / 3.75)^2, and of 3.75 / x
_BESSEL = {
    0: ((1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
        (0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706, 0.02635537,
         -0.01647633, 0.00392377)),
    1: ((0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
        (0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967, -0.02895312,
         0.01787654, -0.00420059)),
}  # fmt: skip


def functions(torch: Any) -> dict[str, Callable[..., Any]]:
    """Decompositions by the names of their operations."""
    bound = functools.partial
    bessel = {
        f"{name}{'e' if scaled else ''}.default": bound(_bessel, torch, order, scaled)
        for order, names in ((0, ("i0", "special_i0")), (1, ("special_i1",)))
        for name in names for scaled in (False, True)
        if not (name == "i0" and scaled)
    }  # fmt: skip
    return bessel | {
        "lgamma.default": bound(_of_wide, torch, logarithm_of_gamma),
        "digamma.default": bound(_of_wide, torch, digamma),
        "erfc.default": bound(_complement, torch),
        "special_erfcx.default": bound(_scaled_complement, torch),
        "fake_quantize_per_channel_affine.default": lambda *given: _by_channel(torch, *given)[0],
        "fake_quantize_per_channel_affine_cachemask.default": bound(_by_channel, torch),
        "view.dtype": bound(_viewed, torch),
        "histc.default": bound(_histogram, torch),
        "adaptive_max_pool2d.default": bound(_largest_of_windows, torch),
        "linalg_solve_triangular.default": bound(solved_by_blocks, torch),
        "erfinv.default": bound(_inverse_error, torch),
        "special_ndtri.default": bound(_of_wide, torch, quantile_of_normal),
        "signbit.default": _has_sign,
        "copysign.Tensor": bound(_with_sign, torch), "copysign.Scalar": bound(_with_sign, torch),
    }


def _wide(x: Any) -> Any:
    return x.float() if x.element_size() < 4 or not x.is_floating_point() else x


def _result(x: Any, made: Any) -> Any:
    return made.to(x.dtype) if x.is_floating_point() else made


def _of_wide(torch: Any, function: Callable[..., Any], given: Any) -> Any:
    return _result(given, function(torch.where, _wide(given)))


def _scaled_complement(torch: Any, given: Any) -> Any:
    """erfc(x) exp(x^2)."""
    x = _wide(given)
    half = 1 / (1 + 0.5 * x.abs())
    made = half * polynomial(half, _ERROR).exp()
    return _result(given, torch.where(x < 0, 2 * (x * x).exp() - made, made))


def _has_sign(x: Any) -> Any:
    """Whether numbers are below 0, or -0."""
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def _with_sign(torch: Any, x: Any, sign: Any) -> Any:
    """|x| with another number's sign."""
    if not hasattr(sign, "dtype"):
        sign = torch.full((), sign, dtype=x.dtype if x.is_floating_point() else torch.float32)
    dtype = torch.result_type(x, sign)
    x = x.to(dtype if dtype.is_floating_point else torch.float32).abs()
    return torch.where(_has_sign(sign), -x, x)


def _inverse_error(torch: Any, y: Any) -> Any:
    """The inverse of erf: Giles' polynomials in log(1 - y^2), of its root far out, and a step of
    Newton's iteration where the error function has digits for it."""
    x = _wide(y)
    w = -((1 - x) * (1 + x)).log()
    made = inverse_of_erf_by_x(torch.where, w) * x
    slope = (2 / math.sqrt(math.pi)) * (-made * made).exp()
    made = torch.where(x.abs() < 0.9, made - (made.erf() - x) / slope, made)
    return _result(y, torch.where(x.abs() == 1, x * math.inf, made))


def _complement(torch: Any, given: Any) -> Any:
    """1 - erf(x), which does not round to 0."""
    x = _wide(given)
    half = 1 / (1 + 0.5 * x.abs())
    made = half * (polynomial(half, _ERROR) - x * x).exp()
    return _result(given, torch.where(x < 0, 2 - made, made))


def _bessel(torch: Any, order: int, scaled: bool, given: Any) -> Any:
    """The modified functions of the first kind; `scaled` by exp(-|x|)."""
    x = _wide(given)
    size = x.abs()
    least = size.clamp(min=3.75)
    near, far = _BESSEL[order]
    small = size.clamp(max=3.75) / 3.75
    low = polynomial(small * small, near)
    low = low * size if order else low
    high = polynomial(3.75 / least, far) * least.rsqrt()
    low, high = (low * (-size).exp(), high) if scaled else (low, high * size.exp())
    made = torch.where(size < 3.75, low, high)
    return _result(given, torch.where(x < 0, -made, made) if order else made)


def _by_channel(
    torch: Any, x: Any, scale: Any, zero: Any, axis: int, least: int, most: int
) -> tuple[Any, Any]:
    along = [-1 if k == axis % x.dim() else 1 for k in range(x.dim())]
    scale, zero = scale.reshape(along), zero.reshape(along)
    at = (x / scale).round() + zero
    within = (at >= least) & (at <= most)
    return ((at.clamp(least, most) - zero) * scale).to(x.dtype), within


def _viewed(torch: Any, x: Any, dtype: Any) -> Any:
    """The bytes of integers as other integers, by shifts."""
    whole = {torch.uint8: 1, torch.int8: 1, torch.int16: 2, torch.int32: 4, torch.int64: 8}
    if x.dtype not in whole or dtype not in whole:
        return NotImplemented
    old, new = whole[x.dtype], whole[dtype]
    if old == new:
        return x.to(dtype)
    mask, bits = (1 << 8 * min(old, new)) - 1, 8 * min(old, new)
    if new < old:
        parts = [((x >> bits * k) & mask).to(dtype) for k in range(old // new)]
        return torch.stack(parts, -1).flatten(-2)
    rows = x.unflatten(-1, (-1, new // old)).to(dtype)
    parts = [(rows.select(-1, k) & mask) << bits * k for k in range(new // old)]
    return functools.reduce(lambda a, b: a | b, parts)


def _histogram(torch: Any, x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many elements are between each two of bins + 1 numbers."""
    row = x.reshape(-1)
    low, high = (row.amin(), row.amax()) if min == max else (min, max)
    width = high - low
    if min == max:
        low, width = torch.where(width == 0, low - 1, low), torch.where(width == 0, 2.0, width)
        high = low + width
    place = ((row - low) * (bins / width)).floor().clamp(0, bins - 1)
    place = torch.where((row >= low) & (row <= high), place, -1.0)
    at = torch.arange(bins, device=x.device).to(place.dtype)
    return (place == at.unsqueeze(-1)).sum(-1).to(x.dtype)


def _largest_of_windows(torch: Any, x: Any, size: Sequence[int]) -> Any:
    """Of windows that differ in size, where torch-mlir knows those of one size: the last elements
    of short ones count twice."""
    extents = x.shape[-2:]
    known = all(isinstance(n, int) for n in extents)
    if not known or not any(n % m for n, m in zip(extents, size, strict=True)):
        return NotImplemented
    rows, columns = (_windows(torch, n, m, x.device) for n, m in zip(extents, size, strict=True))
    rows, columns = rows[:, None, :, None], columns[None, :, None, :]
    windows = x[..., rows, columns].flatten(-2)
    places = (rows * extents[1] + columns).flatten(-2)
    first = windows.argmax(-1, keepdim=True)
    places = places.expand(windows.shape).gather(-1, first).squeeze(-1)
    return windows.amax(-1), places


def _windows(torch: Any, n: int, m: int, device: Any) -> Any:
    """The elements of n that each of m windows has."""
    at = torch.arange(m, device=device)
    first, end = at * n // m, -(-(at + 1) * n // m)
    widest = max(-(-(k + 1) * n // m) - k * n // m for k in range(m))
    inside = first.unsqueeze(1) + torch.arange(widest, device=device)
    return torch.minimum(inside, end.unsqueeze(1) - 1)


def solved_by_blocks(
    torch: Any, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """By the inverse of blocks on the diagonal, which double until there is one."""
    n = a.shape[-1]
    if not isinstance(n, int) or not n:
        return NotImplemented
    a = a.mT if upper else a
    at = torch.arange(n, device=a.device)
    same = at.unsqueeze(-1) == at
    a = torch.where(at.unsqueeze(-1) >= at, a, 0.0)
    a = torch.where(same, 1.0, a) if unitriangular else a
    whole = 1 << (n - 1).bit_length()
    if whole != n:
        a = torch.nn.functional.pad(a, (0, whole - n, 0, whole - n))
        at = torch.arange(whole, device=a.device)
        a = torch.where((at.unsqueeze(-1) == at) & (at >= n), 1.0, a)
    inverse = (1 / a.diagonal(dim1=-2, dim2=-1)).unsqueeze(-1).unsqueeze(-1)
    size = 1
    while size < whole:
        first, second = inverse.unflatten(-3, (-1, 2)).unbind(-3)
        blocks = a.unflatten(-2, (-1, 2, size)).unflatten(-1, (-1, 2, size))
        # rows of the second block of each pair, columns of the first
        lower = blocks.diagonal(dim1=-6, dim2=-3)[..., 1, :, 0, :, :].movedim(-1, -3)
        corner = -(second @ lower @ first)
        upper_rows = torch.cat([first, torch.zeros_like(first)], -1)
        inverse = torch.cat([upper_rows, torch.cat([corner, second], -1)], -2)
        size *= 2
    inverse = inverse.squeeze(-3)[..., :n, :n]
    inverse = inverse.mT if upper else inverse
    return inverse @ b if left else b @ inverse
