# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`logaddexp`: the combiner log(exp(a) + exp(b)), by the larger of both."""

from __future__ import annotations

import math

import numpy as np

from neptune_mlir.algebra.combiners import Combiner, register
from neptune_mlir.algebra.terms import Term, const, make


def combine(a: Term, b: Term) -> Term:
    """The term of two elements combined."""
    largest = make("max", a, b)
    grown = make("log1p", make("exp", make("sub", make("min", a, b), largest)))
    empty = make("eq", largest, const(-math.inf, a.dtype))  # -inf - -inf is no number
    return make("select", empty, largest, make("add", largest, grown))


register(Combiner("logaddexp", -math.inf, combine, np.logaddexp))
