# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the solver knows, as data: monoids, monotone functions, inverses, advice.

The forms, cheapest at run time first (`FORMS`); t is what a reduction reads of earlier ones:

    deferral        f = φ(t) ⊗ g(x), ⊗ distributes over ⊕       no correction: φ moves behind
                    f = u(g(x), t), u ordered in g, ⊕ = max/min  no correction: u moves behind
    multiplicative  f = g(x)·φ(t)                                h = a · φ(t')/φ(t)
    exponential     f = g(x)·exp(k(x) + φ(t))                    h = a · exp(φ(t') - φ(t))
    additive        f = g(x) + φ(t),   ⊕ = max/min               h = a + φ(t') - φ(t)
    monotone        f = u(g(x), t),    ⊕ = max/min               h = u(u⁻¹(a, t), t')
    augmented       f = Σ_i g_i(x)·φ_i(t), or a polynomial in differences g(x) - t: further
                    accumulators (counts, moments) close the space  h = Σ_i H_i(t, t')·a_i
"""

from __future__ import annotations

MODES = ("strict", "default", "fast")  # how exact a fused form has to be, see `accept`
FORMS = ("deferral", "multiplicative", "exponential", "additive", "monotone", "augmented")

# What would make a sub-expression that mixes data and references fusable, by its operator.
ADVICE = {
    "max": "apply the clamp to the data before the reference is subtracted, or reduce with max",
    "min": "apply the clamp to the data before the reference is subtracted, or reduce with min",
    "abs": "use a square instead of an absolute value, or reduce with max",
    "select": "let the condition depend on positions or data only, not on an earlier reduction",
    "exp": "let the exponent be a sum g(x) + phi(t); a product of data and reference cannot be "
    "undone under this combiner (scale the data by something known before the loop)",
    "log": "reduce with mul instead of adding logarithms, or take the logarithm of a product",
    "tanh": "apply tanh to the data before the reference is subtracted",
    "erf": "apply erf to the data before the reference is subtracted",
    "pow": "use an integer exponent, or a product g(x)*phi(t) as the base",
    "div": "let the denominator be a product g(x)*phi(t), or depend on one of them only",
}
DEFAULT_ADVICE = "write it as a sum of products g(x)*phi(t), or split the loop at this reduction"
