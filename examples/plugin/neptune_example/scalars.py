# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`softplus`: log(1 + exp(x)), as the larger of x and 0 and what is small beside it.

    softplus(x) = max(x, 0) + log1p(exp(-|x|))
"""

from __future__ import annotations

from neptune_mlir.algebra.functions import Function, register
from neptune_mlir.algebra.terms import Term, const, make


def softplus(x: Term) -> Term:
    """The term of a value: an exponential that cannot overflow."""
    small = make("log1p", make("exp", make("neg", make("abs", x))))
    return make("add", make("max", x, const(0.0, x.dtype)), small)


register(Function("softplus", 1, softplus))
