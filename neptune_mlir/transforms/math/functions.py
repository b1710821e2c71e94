# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions in single precision as straight-line arithmetic on scalars or vectors.

docs/numerics.md has the bound of each, in units in the last place, over its whole range (tested
against double precision), with the IEEE results at infinities, NaN, signed zeros and denormal
numbers. Nothing here branches, so lanes never diverge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.transforms.math.angles import Angles
from neptune_mlir.transforms.math.powers import Powers


class Functions(Powers, Angles):
    """Builds the functions for one type, `f32` or a vector of it."""

    def __init__(self, kind: Any, *, fma: bool, scalef: bool):
        super().__init__(kind, fma=fma, scalef=scalef)
        self.table: dict[str, Callable[..., Any]] = {
            "math.exp": self.exp, "math.exp2": self.exp2, "math.expm1": self.expm1,
            "math.log": self.log, "math.log2": self.log2, "math.log10": self.log10,
            "math.log1p": self.log1p, "math.tanh": self.tanh, "math.erf": self.erf,
            "math.rsqrt": self.rsqrt, "arith.maximumf": self.maximum,
            "arith.minimumf": self.minimum,
        }  # fmt: skip
        if fma:  # these lose bits where a product is rounded before the sum
            self.table |= {
                "math.sinh": self.sinh, "math.cosh": self.cosh, "math.erfc": self.erfc,
                "math.asinh": self.asinh, "math.acosh": self.acosh, "math.atanh": self.atanh,
                "math.asin": self.asin, "math.acos": self.acos, "math.atan": self.atan,
                "math.atan2": self.atan2, "math.cbrt": self.cbrt, "math.powf": self.power,
                "math.fpowi": self.power_of_integer,
            }  # fmt: skip

    def maximum(self, a: Any, b: Any) -> Any:
        """NaN if either is; zeros of both signs count as equal."""
        return self.nan_through(a, self.greater(a, b))

    def minimum(self, a: Any, b: Any) -> Any:
        return self.nan_through(a, self.less(a, b))
