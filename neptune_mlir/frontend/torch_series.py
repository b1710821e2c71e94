# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of torch that its kernels compute by a loop that ends when numbers say so, as sums and
scans of fixed length: incomplete gamma functions, common divisors, and the loss of CTC.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_LARGE = 30.0  # from here on an integral over a few deviations has all of a gamma function
_TERMS = 48  # of a series, up to `_LARGE`
_NODES = 40  # of an integral
_DIVISIONS = {1: 12, 2: 23, 4: 46, 8: 92}  # that Euclid needs at most, by bytes


def functions(torch: Any) -> dict[Any, Callable[..., Any]]:
    """What a program calls ours for."""
    part = functools.partial
    lower, upper = part(_incomplete_gamma, upper=False), part(_incomplete_gamma, upper=True)
    return {
        torch.igamma: lower, torch.Tensor.igamma: lower, torch.special.gammainc: lower,
        torch.igammac: upper, torch.Tensor.igammac: upper, torch.special.gammaincc: upper,
        torch.gcd: _common_divisor, torch.Tensor.gcd: _common_divisor,
        torch.lcm: _common_multiple, torch.Tensor.lcm: _common_multiple,
        torch.nn.functional.ctc_loss: _ctc_loss,
    }  # fmt: skip


# ---- incomplete gamma functions ------------------------------------------------------------------


def _incomplete_gamma(torch: Any, input: Any, other: Any, *, upper: bool) -> Any:
    """P(a, x), or Q = 1 - P: by its series below a + 1, by Gauss' and Laguerre's sum above, and
    for large a as an integral from x to where nothing is left."""
    dtype = torch.result_type(input, other)
    if not dtype.is_floating_point:
        return NotImplemented
    a, x = torch.broadcast_tensors(*(t.to(dtype) for t in (input, other)))
    a, x = (t.float() if t.element_size() < 4 else t for t in (a, x))
    odd = (a < 0) | (x < 0) | (a != a) | (x != x)
    odd = odd | ((a == math.inf) & (x == math.inf)) | ((a == 0) & (x == 0))
    inner = (a > 0) & (a < math.inf) & (x > 0) & (x < math.inf)
    one = torch.ones_like(a)
    a1, x1 = torch.where(inner, a, one), torch.where(inner, x, one)
    large = a1 >= _LARGE
    below = torch.where(large, x1 <= a1 - 1, x1 < a1 + 1)  # P is what is found, else Q
    few, many = torch.where(large, one, a1), torch.where(large, a1, one * _LARGE)
    xs = torch.where(large, one, x1)
    found = torch.where(
        large, _by_integral(torch, many, torch.where(large, x1, one * _LARGE), below),
        torch.where(below, _by_series(torch, few, xs), _by_laguerre(torch, few, xs)),
    )  # fmt: skip
    found = torch.where(below == upper, 1 - found, found)
    # P is 0 where x is, and where a is infinite; 1 at the other ends
    ends = torch.where((x == 0) | (a == math.inf), one * float(upper), one * float(not upper))
    made = torch.where(inner, found, ends)
    return torch.where(odd, math.nan, made).to(dtype)


def _numbers(torch: Any, numbers: Any, like: Any) -> Any:
    return torch.tensor([float(n) for n in numbers], dtype=like.dtype, device=like.device)


def _weight(torch: Any, a: Any, x: Any) -> Any:
    """x^a e^-x / Γ(a + 1)."""
    return (a * x.log() - x - torch.lgamma(a + 1)).exp()


def _by_series(torch: Any, a: Any, x: Any) -> Any:
    steps = _numbers(torch, range(1, _TERMS), a)
    x, wide = torch.minimum(x, a + 1), a.unsqueeze(-1)
    terms = (x.unsqueeze(-1) / (wide + steps)).cumprod(-1)
    return _weight(torch, a, x) * (1 + terms.sum(-1))


def _by_laguerre(torch: Any, a: Any, x: Any) -> Any:
    """Q = x^a e^-x / Γ(a) x ∫ e^-s (1 + s/x)^(a - 1) ds."""
    nodes, weights = np.polynomial.laguerre.laggauss(_NODES)
    s, w = _numbers(torch, nodes, a), _numbers(torch, np.log(weights), a)
    x = torch.maximum(x, a + 1)
    power = (a - 1).unsqueeze(-1) * torch.log1p(s / x.unsqueeze(-1))
    return _weight(torch, a, x) * a / x * (power + w).exp().sum(-1)


def _by_integral(torch: Any, a: Any, x: Any, below: Any) -> Any:
    """∫ t^n e^-t dt / Γ(n + 1), n = a - 1, from x to the end that is nearer: its largest is at n,
    and Γ by Stirling has what else would cancel."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = _numbers(torch, (nodes + 1) / 2, a), _numbers(torch, weights / 2, a)
    n = a - 1
    width = n.sqrt()
    low = torch.minimum(n - 7.5 * width, x - 5 * width).clamp(min=0.0)
    high = torch.maximum(n + 11.5 * width, x + 6 * width)
    span = torch.where(below, low, high) - x
    d = (x - n).unsqueeze(-1) / n.unsqueeze(-1) + (span / n).unsqueeze(-1) * nodes
    # log(1 + d) - d, which is -d^2/2 near 0
    near = -d * d * (0.5 - d * (1 / 3 - d * (0.25 - d * (0.2 - d / 6))))
    power = torch.where(d.abs() < 0.02, near, torch.log1p(d) - d)
    whole = ((n.unsqueeze(-1) * power).exp() * weights).sum(-1) * span.abs()
    step = 1 / n
    return whole * (step * (step * step / 360 - 1 / 12)).exp() / (2 * math.pi * n).sqrt()


# ---- integers ------------------------------------------------------------------------------------


def _common_divisor(torch: Any, input: Any, other: Any) -> Any:
    """By as many divisions as two numbers of the type can need."""
    dtype = torch.result_type(input, other)
    a, b = torch.broadcast_tensors(*(t.to(dtype).abs() for t in (input, other)))
    wide = torch.int64 if dtype.itemsize == 8 else torch.int32

    def step(a: Any, b: Any, at: Any) -> list[Any]:
        done = b == 0
        rest = torch.where(done, b, torch.remainder(a, torch.where(done, 1, b)))
        return [torch.where(done, a, b), rest, at.clone()]

    scan = importlib.import_module("torch._higher_order_ops.scan").scan_op
    at = torch.arange(_DIVISIONS[dtype.itemsize], device=a.device)
    return scan(step, [a.to(wide), b.to(wide)], [at], ())[0].to(dtype)


def _common_multiple(torch: Any, input: Any, other: Any) -> Any:
    divisor = _common_divisor(torch, input, other)
    return (input // torch.where(divisor == 0, 1, divisor) * other).abs()


# ---- CTC -----------------------------------------------------------------------------------------


def _ctc_loss(
    torch: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any,
    blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """The probability of all alignments, forward in time: a scan over a row of states for each
    target, blanks between its elements."""
    single = log_probs.dim() == 2
    rows = log_probs.unsqueeze(1) if single else log_probs
    device = rows.device
    given, wanted = (_lengths(torch, n, device) for n in (input_lengths, target_lengths))
    symbols = _rows_of_targets(torch, targets, target_lengths, wanted, single)
    blanks = torch.full_like(symbols, blank)
    states = torch.cat([torch.stack([blanks, symbols], -1).flatten(1), blanks[:, :1]], 1)
    emitted = rows.gather(2, states.expand(rows.shape[0], -1, -1))
    count = states.shape[1]
    at = torch.arange(count, device=device)
    other = torch.nn.functional.pad(states[:, 2:] != states[:, :-2], (2, 0), value=False)
    skips = other & (at % 2 == 1)
    begins = (at == 0) | ((at == 1) & (wanted > 0).unsqueeze(1))
    first = torch.where(begins, emitted[0], -math.inf)

    def step(now: Any, here: Any, t: Any, given: Any, skips: Any) -> list[Any]:
        before = torch.nn.functional.pad(now, (1, 0), value=-math.inf)[:, :-1]
        jumped = torch.nn.functional.pad(now, (2, 0), value=-math.inf)[:, :-2]
        made = _joined(torch, now, before, torch.where(skips, jumped, -math.inf)) + here
        made = torch.where((t < given).unsqueeze(1), made, now)
        return [made, made.clone()]

    last = first
    if rows.shape[0] > 1:
        scan = importlib.import_module("torch._higher_order_ops.scan").scan_op
        steps = torch.arange(1, rows.shape[0], device=device)
        last = scan(step, [first], [emitted[1:], steps], (given, skips))[0]
    end = (2 * wanted).unsqueeze(1)
    ends = [torch.where(at == k, last, -math.inf).amax(1) for k in (end, end - 1)]
    loss = -_joined(torch, *ends)
    if zero_infinity:
        loss = torch.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / wanted.clamp(min=1).to(loss.dtype)).mean()
    return loss.sum() if reduction == "sum" else loss.squeeze(0) if single else loss


def _lengths(torch: Any, given: Any, device: Any) -> Any:
    return torch.as_tensor(given, dtype=torch.int64, device=device).reshape(-1)


def _rows_of_targets(torch: Any, targets: Any, given: Any, wanted: Any, single: bool) -> Any:
    """[batch, longest]: targets that stand one behind the other have a row each."""
    targets = targets.to(torch.int64)
    if targets.dim() == 2:
        return targets
    if single:
        return targets.unsqueeze(0)
    listed: Sequence[int] = given if isinstance(given, (tuple, list)) else [targets.shape[0]]
    at = torch.arange(max(listed), device=targets.device)
    place = (wanted.cumsum(0) - wanted).unsqueeze(1) + at
    return targets[place.clamp(max=targets.shape[0] - 1)]


def _joined(torch: Any, *given: Any) -> Any:
    """log Σ e^x, also of none but -inf."""
    most = functools.reduce(torch.maximum, given)
    least = torch.where(most == -math.inf, 0.0, most)
    return functools.reduce(torch.add, [(x - least).exp() for x in given]).log() + least
