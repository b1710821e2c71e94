# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`scaled-factors`: leave factors of products that sums of their rows scale to be stored.

    o[i, n] = Σ_j x[i, j] * r[i] * g[j] * w[j, n]

`defer` moves r behind the product, whose programs compute x g then, each for its columns. Where
that takes longer than a kernel that stores x r g, schedules run this pass before: nothing moves out
of such a product, and `rolling-update` (option `ahead`) stores its factor.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.attributes import SCALED
from neptune_mlir.dialects.program import NestProgram, functions
from neptune_mlir.transforms.fusion.factors_ahead import found_in
from neptune_mlir.transforms.registry import register


@register(
    "scaled-factors", "leave factors of products that sums of their rows scale to be stored",
    after=("raise-linalg", "widen-sums", "inline-maps"),
)  # fmt: skip
def scaled_factors(module: Any) -> None:
    for function in functions(module):
        program = NestProgram(function)
        for key in found_in(program, scaled=True):
            SCALED.set(program.nests[key].op.operation)
