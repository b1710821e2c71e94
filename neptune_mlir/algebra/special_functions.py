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
# M. Wichura, "The percentage points of the normal distribution" (1988), PPND16: a numerator and a
# denominator each, in 0.180625 - q^2 near the middle, in r - 1.6, and in r - 5 from r = 5 on
_NORMAL = (
    ((3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3,
      1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
      3.3430575583588128105e4, 2.5090809287301226727e3),
     (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
      2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
      5.2264952788528545610e3)),
    ((1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550,
      3.64784832476320460504, 1.27045825245236838258, 2.41780725177450611770e-1,
      2.27238449892691845833e-2, 7.74545014278341407640e-4),
     (1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
      1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
      1.05075007164441684324e-9)),
    ((6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
      2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
      2.71155556874348757815e-5, 2.01033439929228813265e-7),
     (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
      7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
      2.04426310338993978564e-15)),
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


def quantile_of_normal(where: Where, p: Any) -> Any:
    """Where the distribution function of the normal distribution is p."""
    q = p - 0.5
    middle = (q < 0.425) & (q > -0.425)
    tail = where(p < 0.5, p, 1 - p)
    r = (-where(middle, 0.25, tail).log()).sqrt()
    at = [where(middle, 0.180625 - q * q, 0.0), where(r < 5.0, r - 1.6, 0.0),
          where(r < 5.0, 0.0, r - 5.0)]  # fmt: skip
    near, far, end = (
        polynomial(x, above) / polynomial(x, below)
        for x, (above, below) in zip(at, _NORMAL, strict=True)
    )
    far = where(r < 5.0, far, end)
    found = where(middle, q * near, where(q < 0, -far, far))
    return where(tail == 0, where(q < 0, -math.inf, math.inf), found)
