# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`whole-powers`: powers with small whole exponents become products.

    map [i]  x[i] ** 4.0        ->        map [i]  x[i] * x[i] * x[i] * x[i]

A general power costs a logarithm and an exponential, a product one multiplication.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.program import NestProgram, functions
from neptune_mlir.transforms.registry import register


@register("whole-powers", "turn powers with whole exponents into products", after=("raise-linalg",))
def whole_powers(module: Any, *, up_to: int = 4) -> None:
    """`up-to`: the largest exponent that is taken."""
    for function in functions(module):
        program = NestProgram(function)
        for key, nest in list(program.nests.items()):
            program.put_body(key, T.rewrite(nest.body, partial(_as_product, up_to)))
        program.write()


def _as_product(up_to: int, node: Term) -> Term | None:
    """The product that a power stands for; None where it is no such power."""
    if node.op != "pow" or node.args[1].op != "const":
        return None
    base, exponent = node.args[0], float(node.args[1].attr)
    if not exponent.is_integer() or not 1 <= exponent <= up_to:
        return None
    product = base
    for _ in range(int(exponent) - 1):
        product = T.make("mul", product, base)
    return product
