# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The logarithm of the gamma function, its derivative, and the inverse of the error function, in
operations that every front end has.

Numbers are tensors of torch, or values of MLIR that have their operators and methods; they are
float32 at least. Results are right to a few units of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

# lnΓ(2 + z) = Σ c_k z^k for |z| <= 1/2: 1 - Euler's constant, then (-1)^k (ζ(k) - 1) / k
_NEAR_2 = (
    0.0, 0.42278433509846714, 0.32246703342411320, -0.06735230105319810, 0.02058080842778454,
    -0.00738555102867399, 0.00289051033074153, -0.00119275391170326, 0.00050966952474304,
    -0.00022315475845358, 0.00009945751278181, -0.00004492623673813, 0.00002050721277567,
)  # fmt: skip
# M. Giles, "Approximating the erfinv function" (2010), single precision
_INVERSE_NEAR = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.000218580870, -4.39150654e-06,
    -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
_INVERSE_FAR = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
)  # fmt: skip
_SHIFT = 6  # steps up to where an asymptotic series is right

Where = Callable[[Any, Any, Any], Any]


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """The value of a polynomial, whose coefficients begin with the constant one."""
    made = x * coefficients[-1] + coefficients[-2]
    for c in coefficients[-3::-1]:
        made = made * x + c
    return made


def logarithm_of_gamma(where: Where, x: Any) -> Any:
    """Near 1 and 2, where it is 0, by its series; from 2.5 on by Stirling's; below 1/2 by what it
    is one further on, or at 1 - x."""
    below = x < 0
    at = where(below, 1 - x, x)  # >= 0
    small = at < 0.5
    at = where(small, at + 1, at)
    near_1 = at < 1.5
    z = where(near_1, at - 1, where(at < 2.5, at - 2, 0.0))
    series = polynomial(z, _NEAR_2)
    series = where(near_1, series - z.log1p(), series)
    product = at
    for k in range(1, _SHIFT):
        product = product * where(at < 8, at + k, 1.0)
    far = where(at < 8, at + _SHIFT, at)
    step = 1 / far
    series_of_far = step * polynomial(step * step, (1 / 12, -1 / 360, 1 / 1260))
    stirling = (far - 0.5) * (far.log() - 1) + (series_of_far + 0.5 * math.log(2 * math.pi) - 0.5)
    stirling = where(at < 8, stirling - product.log(), stirling)
    made = where(at < 2.5, series, stirling)
    first = where(below, 1 - x, x)
    made = where(small, made - first.log(), made)
    sine = (math.pi * (x - x.round())).sin().abs()
    made = where(below, math.log(math.pi) - sine.log() - made, made)
    return where(x.abs() == math.inf, math.inf, made)


def digamma(where: Where, x: Any) -> Any:
    """By its asymptotic series some steps further on; below 0 by what it is at 1 - x."""
    at = where(x < 0, 1 - x, x)
    sum_of_steps = 1 / at
    for k in range(1, _SHIFT):
        sum_of_steps = sum_of_steps + 1 / (at + k)
    far = at + _SHIFT
    square = 1 / (far * far)
    made = far.log() - 0.5 / far - square * polynomial(square, (1 / 12, -1 / 120, 1 / 252))
    made = made - sum_of_steps
    turned = math.pi * (x - x.round())
    pole = (x == x.round()) & (x < 0)
    reflected = made - math.pi * turned.cos() / turned.sin()
    made = where(pole, math.nan, where(x < 0, reflected, made))
    return where(x == math.inf, math.inf, made)


def inverse_of_erf_by_x(where: Where, w: Any) -> Any:
    """The inverse of the error function at x, over x, of w = -log(1 - x^2): polynomials in w - 2.5,
    and from 5 on in sqrt(w) - 3."""
    near, far = polynomial(w - 2.5, _INVERSE_NEAR), polynomial(w.sqrt() - 3.0, _INVERSE_FAR)
    return where(w < 5.0, near, far)
