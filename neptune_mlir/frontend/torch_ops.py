# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of torch as others: those that torch-mlir's own lowering computes in float64, at
positions that no loop has, wrongly, or not at all.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.frontend import (
    torch_extrema,
    torch_groups,
    torch_images,
    torch_layout,
    torch_scatters,
    torch_special,
)
from neptune_mlir.ir.bindings import TORCH_MLIR

# coefficients of cosines that a window is made of
_WINDOWS = {"hann": (0.5, -0.5), "hamming": (0.54, -0.46), "blackman": (0.42, -0.5, 0.08)}


def decompositions(torch: Any) -> dict[Any, Callable[..., Any]]:
    """torch-mlir's table, with our own functions in it."""
    known = importlib.import_module(f"{TORCH_MLIR}.extras.fx_decomp_util")
    table: dict[Any, Callable[..., Any]] = dict(known.get_decomposition_table())
    aten = torch.ops.aten
    table |= torch._decomp.get_decompositions([aten.addmv, aten.dist, aten.gelu_backward])
    ours: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("var.correction", _variance), ("var_mean.correction", _variance_and_mean),
        ("std.correction", _deviation), ("native_group_norm.default", _group_norm),
        ("rms_norm.default", functools.partial(_rms_norm, torch)),
        ("linalg_norm.default", functools.partial(_norm, torch)),
        ("linalg_norm.ord_str", functools.partial(_norm, torch)),
        ("linalg_vector_norm.default", functools.partial(_vector_norm, torch)),
        ("norm.Scalar", lambda x, p=2: torch.linalg.vector_norm(x, p)),
        ("addbmm.default", functools.partial(_sum_of_products, torch)),
        ("roll.default", functools.partial(_roll, torch)),
        ("logcumsumexp.default", functools.partial(_logcumsumexp, torch)),
        ("cumprod.default", _product_so_far),
        ("avg_pool2d.default", functools.partial(_pooled, torch)),
        ("max_pool2d_with_indices.default", functools.partial(_largest_of_image, torch)),
        ("searchsorted.Tensor", functools.partial(_sorted_place, torch)),
        ("sort.stable", lambda x, *, stable=None, dim=-1, descending=False: (
            x.sort(dim, descending))),  # as each is
        ("embedding_bag.padding_idx", functools.partial(_bags, torch)),
        ("_cdist_forward.default", _distances),
        ("gelu.default", functools.partial(_gelu, torch)),
        ("neg.default", _negative),
        ("elu.default", functools.partial(_elu, torch)),
        ("rrelu_with_noise_functional.default", functools.partial(_leaky, torch)),
        ("trunc.default", functools.partial(_towards_0, torch)),
        ("constant_pad_nd.default", functools.partial(_padded, torch)),
        ("isfinite.default", lambda x: x.abs() < math.inf if x.is_floating_point() else x == x),
        ("isclose.default", _close),
        ("fmod.Scalar", lambda x, n: torch.fmod(x, torch.full_like(x, n))),
        ("fmod.Tensor", functools.partial(_rest, torch)),
        *((f"bitwise_{name}.Scalar", functools.partial(_bitwise, torch, f"bitwise_{name}"))
          for name in ("or", "xor")),
        *((f"__{name[0]}shift__.{kind}", functools.partial(_shifted, torch, name))
          for name in ("left", "right") for kind in ("Tensor", "Scalar")),
        *((f"bitwise_{name}_shift.Scalar_Tensor", functools.partial(_shifted, torch, name))
          for name in ("left", "right")),
        *((f"{name}_window{kind}", functools.partial(_window, torch, *cosines))
          for name, cosines in _WINDOWS.items() for kind in (".default", ".periodic")),
        ("fft_fftfreq.default", functools.partial(_frequencies, torch, True)),
        ("fft_rfftfreq.default", functools.partial(_frequencies, torch, False)),
        ("hypot.default", functools.partial(_hypotenuse, torch)),
        ("pow.Tensor_Tensor", functools.partial(_power, torch)),
        ("pow.Scalar", functools.partial(_power, torch)),
        ("pow.Tensor_Scalar", functools.partial(_power_of_number, torch)),
        *((f"{name}_mode", functools.partial(_whole_quotient, torch))
          for name in ("div.Tensor", "div.Scalar")),
        ("floor_divide.default", lambda x, y: _whole_quotient(torch, x, y, rounding_mode="floor")),
        *torch_extrema.functions(torch).items(), *torch_scatters.functions(torch).items(),
        *torch_images.functions(torch).items(), *torch_special.functions(torch).items(),
        *torch_layout.functions(torch, table).items(),
    )  # fmt: skip
    for name, function in ours:
        packet, _, overload = name.partition(".")
        table[getattr(getattr(aten, packet), overload)] = torch_layout.laid_out(torch, function)
    return table | dict(torch_groups.decompositions(torch))


def _bags(
    torch: Any, table: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, weights: Any = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """Sums, means or maxima of the rows that each bag has: torch-mlir knows sums, and loses their
    weights."""
    padded = padding_idx is not None and padding_idx >= 0
    if mode == 0 and weights is None and not include_last_offset and not padded:
        return NotImplemented
    n = indices.shape[0]
    at = torch.arange(n, device=indices.device)
    ends = offsets[1:]
    if include_last_offset:
        offsets = offsets[:-1]
    else:
        ends = torch.cat([ends, torch.full_like(offsets[:1], n)])
    seen = (at >= offsets.unsqueeze(1)) & (at < ends.unsqueeze(1))
    if padded:
        seen = seen & (indices != padding_idx)
    rows, sizes = table[indices], seen.to(torch.int64).sum(1)
    if mode == 2:
        most = torch.where(seen.unsqueeze(2), rows, -math.inf).amax(1)
        made = torch.where((sizes == 0).unsqueeze(1), 0.0, most)
    else:
        made = seen.to(rows.dtype) @ (rows if weights is None else rows * weights.unsqueeze(1))
        if mode == 1:
            made = made / sizes.clamp(min=1).unsqueeze(1)
    return made, offsets, sizes, offsets


def _wide(x: Any) -> Any:
    """A tensor in the type that statistics of it are computed in."""
    return x.float() if x.is_floating_point() and x.element_size() < 4 else x


def _variance_and_mean(
    x: Any, dim: Sequence[int] | None = None, *, correction: float | None = None,
    keepdim: bool = False,
) -> Any:  # fmt: skip
    """By two passes, as torch's own: torch-mlir squares in float64."""
    dims = list(dim) if dim else list(range(x.dim()))
    correction = 1 if correction is None else correction
    extents = [x.shape[d] for d in dims]
    known = all(isinstance(n, int) for n in extents)
    if not x.is_floating_point() or not x.dim() or not (known or correction == 0):
        return NotImplemented
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    squares = (wide - mean) * (wide - mean)
    if correction == 0:
        variance = squares.mean(dims, keepdim=keepdim)
    else:
        freedom = max(0.0, math.prod(extents) - correction)
        total = squares.sum(dims, keepdim=keepdim)
        # no number divides by zero as a tensor does
        variance = total / freedom if freedom else total * math.inf
    mean = mean if keepdim else wide.mean(dims)
    return variance.to(x.dtype), mean.to(x.dtype)


def _variance(x: Any, dim: Sequence[int] | None = None, **options: Any) -> Any:
    both = _variance_and_mean(x, dim, **options)
    return both if both is NotImplemented else both[0]


def _deviation(x: Any, dim: Sequence[int] | None = None, **options: Any) -> Any:
    both = _variance_and_mean(x, dim, **options)
    return both if both is NotImplemented else both[0].sqrt()


def _group_norm(
    x: Any, weight: Any, bias: Any, batch: Any, channels: Any, area: Any, groups: int,
    epsilon: float,
) -> Any:  # fmt: skip
    """With an axis for groups and one for channels of a group: torch's own decomposition makes rows
    of all that a group has, and gathers weights by tables of positions."""
    spatial = list(x.shape[2:])
    wide = _wide(x).reshape(batch, groups, channels // groups, *spatial)
    dims = list(range(2, wide.dim()))
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    scale = ((centred * centred).mean(dims, keepdim=True) + epsilon).rsqrt()
    out = centred * scale
    along = [groups, channels // groups, *[1] * len(spatial)]
    if weight is not None:
        out = out * weight.reshape(along)
    if bias is not None:
        out = out + bias.reshape(along)
    statistics = (mean.reshape(batch, groups), scale.reshape(batch, groups))
    return out.reshape(x.shape).to(x.dtype), *statistics


def _rms_norm(
    torch: Any, x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    """In float32 for 16 bits, as torch's own: squares above 65504 were infinite in float16."""
    wide = _wide(x)
    if wide is x:
        return NotImplemented
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    dims = list(range(-len(shape), 0))
    out = wide * ((wide * wide).mean(dims, keepdim=True) + eps).rsqrt()
    return (out if weight is None else out * weight).to(x.dtype)


def _gelu(torch: Any, x: Any, *, approximate: str = "none") -> Any:
    """With 0.7978846, the root of 2 over pi, where torch-mlir has 0.797724."""
    if approximate != "tanh":
        return NotImplemented
    wide = _wide(x)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * (wide * wide * wide))
    return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)


def _elu(torch: Any, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """torch-mlir takes 1 from exponentials, which loses the digits of small numbers."""
    if not x.is_floating_point():
        return NotImplemented
    wide = _wide(x)
    below = torch.expm1(wide * input_scale) * (alpha * scale)
    return torch.where(wide > 0, wide * scale, below).to(x.dtype)


def _negative(x: Any) -> Any:
    """torch-mlir has that of integers by way of float32."""
    return NotImplemented if x.is_floating_point() or x.is_complex() else 0 - x


def _towards_0(torch: Any, x: Any) -> Any:
    """With the sign of x, where it becomes 0."""
    return torch.copysign(x.abs().floor(), x) if x.is_floating_point() else NotImplemented


def _largest_of_image(torch: Any, x: Any, *options: Any) -> Any:
    if x.dim() == 4:
        return NotImplemented
    found = torch.ops.aten.max_pool2d_with_indices(x.unsqueeze(0), *options)
    return tuple(result.squeeze(0) for result in found)


def _leaky(
    torch: Any, x: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, generator: Any = None,
) -> Any:  # fmt: skip
    """With the mean slope where no slope is drawn."""
    if training:
        return NotImplemented
    return torch.where(x < 0, x * ((lower + upper) / 2), x), noise


def _padded(torch: Any, x: Any, pad: Sequence[int], value: float = 0) -> Any:
    """Slices where less than nothing is added: torch-mlir pads by the sum of both sides."""
    if not all(isinstance(n, int) for n in pad) or all(n >= 0 for n in pad):
        return NotImplemented
    for k, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        end = x.shape[-1 - k] + min(behind, 0)
        x = torch.ops.aten.slice.Tensor(x, x.dim() - 1 - k, max(-before, 0), end)
    return torch.nn.functional.pad(x, [max(n, 0) for n in pad], value=value)


def _norm(
    torch: Any, x: Any, ord: float | str | None = None, dim: Any = None, keepdim: bool = False,
    *, dtype: Any = None,
) -> Any:  # fmt: skip
    """Norms of vectors, and those of matrices that are sums: singular values are not lowered."""
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if ord in (None, "fro") or len(dims) == 1:
        power = 2 if ord in (None, "fro") else ord
        return torch.linalg.vector_norm(x, power, dims, keepdim, dtype=dtype)
    if ord not in (1, -1, math.inf, -math.inf) or len(dims) != 2:
        raise NotImplementedError(f"'aten.linalg_norm' of order {ord!r} needs singular values")
    along, across = dims if abs(ord) == 1 else dims[::-1]
    sums = (x if dtype is None else x.to(dtype)).abs().sum(along, keepdim=True)
    both = (sums.amax if ord > 0 else sums.amin)(across, keepdim=True)
    return both if keepdim else both.squeeze(tuple(dims))


def _vector_norm(
    torch: Any, x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """In float32 for 16 bits, as torch's own: torch-mlir rounds each power."""
    if _wide(x) is x or dtype is not None:
        return NotImplemented
    return torch.linalg.vector_norm(_wide(x), ord, dim, keepdim).to(x.dtype)


def _sum_of_products(
    torch: Any, x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1
) -> Any:
    """torch-mlir takes factors of float32 alone."""
    made = torch.bmm(a, b).sum(0)
    made = made if alpha == 1 else made * alpha
    return made.to(x.dtype) if beta == 0 else x + made if beta == 1 else x * beta + made


def _roll(torch: Any, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Without slices of no extent, and of a flattened tensor where no dimension is named: neither
    is lowered by torch-mlir."""
    if not dims:
        if not x.dim():
            return x.clone()
        return _roll(torch, x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        n = x.shape[dim]
        if not isinstance(n, int) or not isinstance(shift, int):
            return NotImplemented
        if n and (moved := shift % n):
            parts = x.split([n - moved, moved], dim)
            x = torch.cat(parts[::-1], dim)
    return x.clone()


def _logcumsumexp(torch: Any, x: Any, dim: int) -> Any:
    """A reduction of what each element sees: torch-mlir adds up exponentials, which overflow."""
    if not x.dim():
        return x.clone()
    rows = _wide(x).movedim(dim, -1)
    at = torch.arange(rows.shape[-1], device=x.device)
    seen = torch.where(at <= at[:, None], rows.unsqueeze(-2), -math.inf)
    largest = seen.amax(-1)
    largest = torch.where(largest.abs() == math.inf, 0.0, largest)
    total = (seen - largest.unsqueeze(-1)).exp().sum(-1)
    return (total.log() + largest).movedim(-1, dim).to(x.dtype)


def _product_so_far(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return NotImplemented if dtype is None else x.to(dtype).cumprod(dim)


def _pooled(
    torch: Any, x: Any, size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Of a batch, by lists of two numbers: torch-mlir takes another window where one stands for
    both."""
    both = [list(n) * 2 if len(n) == 1 else list(n) for n in (size, stride, padding)]
    if x.dim() == 4 and both == [list(size), list(stride), list(padding)]:
        return NotImplemented
    size, stride, padding = both
    batch = x if x.dim() == 4 else x.unsqueeze(0)
    made = torch.nn.functional.avg_pool2d(
        batch, size, stride or None, padding, ceil_mode, count_include_pad, divisor_override
    )
    return made if x.dim() == 4 else made.squeeze(0)


def _sorted_place(
    torch: Any, rows: Any, x: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Any = None,
) -> Any:  # fmt: skip
    """How many numbers of a row are below x, or not above; a NaN is above all. torch-mlir knows one
    row alone."""
    if sorter is not None:
        rows = rows.gather(-1, sorter)
    upto = right if side is None else side == "right"
    rows, x = rows.unsqueeze(-2), x.unsqueeze(-1)
    if rows.dim() < x.dim():  # one row for all
        rows = rows.reshape([1] * (x.dim() - 1) + [rows.shape[-1]])
    seen = ~(rows > x) if upto else ~(rows >= x)
    return seen.sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _power(torch: Any, base: Any, exponent: Any) -> Any:
    """In the type of the result: torch-mlir takes float64 where one of the two is an integer, and
    refuses an integer to the power of integers."""
    dtype = torch.result_type(base, exponent)
    if not dtype.is_floating_point:
        base = base if hasattr(base, "dtype") else torch.full_like(exponent, base)
        return _integer_power(torch, base.to(dtype), exponent.to(dtype))
    if exponent.dtype == dtype == getattr(base, "dtype", dtype):
        return NotImplemented
    return torch.pow(base.to(dtype) if hasattr(base, "to") else base, exponent.to(dtype))


def _power_of_number(torch: Any, x: Any, exponent: Any) -> Any:
    """A root as torch's own: a power of -inf is inf, and its root NaN. Powers of integers by
    products, as torch-mlir knows those of floats alone."""
    dtype = torch.result_type(x, exponent)
    if x.is_floating_point():
        if exponent not in (0.5, -0.5):
            return NotImplemented
        return x.sqrt() if exponent > 0 else x.rsqrt()
    if dtype.is_floating_point:
        return torch.pow(x.to(dtype), exponent)
    if dtype is torch.bool or exponent < 0 or x.is_complex():
        return NotImplemented
    made, square = torch.ones_like(x), x
    for bit in bin(int(exponent))[:1:-1]:
        made = made * square if bit == "1" else made
        square = square * square
    return made


def _rest(torch: Any, x: Any, y: Any) -> Any:
    """What is left of x, with its sign: torch-mlir takes the quotient, which is rounded."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return NotImplemented
    x, y = _wide(x.to(dtype)), _wide(y.to(dtype))
    return torch.copysign(torch.remainder(x.abs(), y.abs()), x).to(dtype)


def _whole_quotient(torch: Any, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    """How often y is in x, by the remainder, as torch's own: 1 / 0.1 rounds to 10, and 0.1 is nine
    times in 1."""
    dtype = torch.result_type(x, y)
    if rounding_mode == "floor" and not dtype.is_floating_point and dtype is not torch.bool:
        return _whole_quotient_of_integers(torch, x, y)
    if rounding_mode != "floor" or not dtype.is_floating_point:
        return NotImplemented
    x = _wide(x.to(dtype))
    y = _wide(y.to(dtype)) if hasattr(y, "to") else torch.full((), y, dtype=x.dtype)
    rest = torch.fmod(x, y)
    near = (x - rest) / y
    near = torch.where((rest != 0) & ((x < 0) != (y < 0)), near - 1, near)
    whole = near.floor()
    whole = torch.where(near - whole > 0.5, whole + 1, whole)
    quotient = x / y
    whole = torch.where(near != 0, whole, quotient * 0)
    return torch.where(y != 0, whole, quotient).to(dtype)


def _whole_quotient_of_integers(torch: Any, x: Any, y: Any) -> Any:
    """By the quotient towards 0, which torch-mlir has in integers: it floors one of floats."""
    quotient = torch.div(x, y, rounding_mode="trunc")
    return quotient - ((x - quotient * y != 0) & ((x < 0) != (y < 0))).to(quotient.dtype)


def _integer_power(torch: Any, base: Any, exponent: Any) -> Any:
    """By the bits of exponents below 64. Larger ones count as what is left of them."""
    made, square = torch.ones_like(base * exponent), base
    for bit in range(6):
        made = torch.where((exponent >> bit) & 1 == 1, made * square, made)
        square = square * square
    one = torch.where(base == -1, 1 - 2 * (exponent & 1), (base == 1).to(base.dtype))
    return torch.where(exponent < 0, one, made)


def _close(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:  # fmt: skip
    """Infinite numbers are close to their like alone."""
    apart = (x - y).abs()
    close = (x == y) | ((apart <= atol + (rtol * y).abs()) & (apart < math.inf))
    return close | ((x != x) & (y != y)) if equal_nan else close


def _bitwise(torch: Any, name: str, x: Any, number: int) -> Any:
    number = torch.full((), number, dtype=torch.result_type(x, number), device=x.device)
    return getattr(torch, name)(x.to(number.dtype), number)


def _shifted(torch: Any, name: str, x: Any, by: Any) -> Any:
    """One of the two may be a number."""
    like = x if hasattr(x, "dtype") else by
    x, by = (n if hasattr(n, "dtype") else torch.full((), n, dtype=like.dtype, device=like.device)
             for n in (x, by))  # fmt: skip
    return getattr(torch, f"bitwise_{name}_shift")(x, by)


def _window(torch: Any, *given: Any, **options: Any) -> Any:
    """A window of cosines; the coefficients stand before its length, and whether it is periodic
    behind that."""
    cosines = [c for c in given if isinstance(c, float)]
    count, periodic = (*given[len(cosines) :], True)[:2]
    if not isinstance(count, int) or len(given) > len(cosines) + 2:
        return NotImplemented
    steps = count if periodic or count == 1 else count - 1
    turn = 2 * math.pi / steps * torch.arange(count, device=options.get("device"))
    made = sum(c * torch.cos(k * turn) for k, c in enumerate(cosines))
    return made.to(options.get("dtype") or torch.get_default_dtype())


def _frequencies(torch: Any, both: bool, n: int, d: float = 1.0, **options: Any) -> Any:
    """Of the elements of a Fourier transform: also those below 0, or the others alone."""
    at = torch.arange(n if both else n // 2 + 1, device=options.get("device"))
    at = torch.where(at < (n + 1) // 2, at, at - n) if both else at
    return at.to(options.get("dtype") or torch.get_default_dtype()) / (n * d)


def _hypotenuse(torch: Any, x: Any, y: Any) -> Any:
    """Of the larger one and the quotient, which does not overflow."""
    x, y = x.abs(), y.abs()
    most, least = torch.maximum(x, y), torch.minimum(x, y)
    ratio = torch.where((most == 0) | (least == math.inf), least, least / most)
    return most * (1 + ratio * ratio).sqrt()


def _distances(x: Any, y: Any, p: float, compute_mode: int | None = None) -> Any:
    """Of each row of x from each row of y, by differences: exact where the rows are near."""
    apart = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(x.dtype).sum(-1)
    if p == 1:
        return apart.sum(-1)
    if p == 2:
        return (apart * apart).sum(-1).sqrt()
    return apart.amax(-1) if p == math.inf else apart.pow(p).sum(-1).pow(1 / p)
