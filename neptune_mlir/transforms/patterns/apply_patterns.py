# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`apply-patterns`: spellings of front ends become ops that the compiler knows.

    %s = chlo.square %x                  ->   %s = arith.mulf %x, %x
    %p = math.fpowi %x, %c2              ->   %p = arith.mulf %x, %x
    %w = arith.extf %x : f32 to f64
    %c = arith.cmpf ogt, %w, %zero       ->   %c = arith.cmpf ogt, %x, %zero32 : f32
    %d = math.absi %i
    %n = arith.cmpi sle, %d, %w          ->   %n = -%w <= %i and %i <= %w

Patterns are declarations (`transforms/patterns/language.py`); `spellings.py` has those of this
project, and packages add others (docs/extending.md). MLIR's own rewriter applies them until none
matches. A pattern some of whose ops do not occur is not even compiled.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.transforms.patterns.language import chosen
from neptune_mlir.transforms.patterns.to_pdl import Rewriting
from neptune_mlir.transforms.registry import register


@register("apply-patterns", "rewrite what front ends spell in other ways, by declared patterns")
def apply_patterns(module: Any, *, only: str = "") -> None:
    """`only`: the name of one pattern, to apply it alone."""
    Rewriting(chosen([only] if only else [])).run(module)
