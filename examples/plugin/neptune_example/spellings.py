# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`tanh-by-exponential`: (exp(2x) - 1) / (exp(2x) + 1) is tanh(x), which cannot overflow.

Alternatives: the factor 2 may stand on either side, x + x for it, and 1 on either side of the sum.
The guard reads the constants.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.patterns.language import Given, OneOf, Op, constant, register

x = Given("x")
TWICE = OneOf(
    Op("arith.mulf", x, constant("two")),
    Op("arith.mulf", constant("two"), x),
    Op("arith.addf", x, x),  # the same name twice: the same value twice
)
GROWN = Op("math.exp", TWICE, name="grown")
LESS = OneOf(Op("arith.subf", GROWN, constant("one")), Op("arith.addf", GROWN, constant("minus")))
MORE = OneOf(Op("arith.addf", GROWN, constant("one more")),
             Op("arith.addf", constant("one more"), GROWN))  # fmt: skip
VALUES = {"two": 2.0, "one": 1.0, "minus": -1.0, "one more": 1.0}


def constants_fit(match: Any) -> bool:
    """Whether every constant of the spelling has the value that it should."""
    return all(match.number(n) == value for n, value in VALUES.items() if n in match)


@register("tanh-by-exponential", Op("arith.divf", LESS, MORE), guard=constants_fit)
def tanh(match: Any) -> Any:
    """(exp(2x) - 1) / (exp(2x) + 1) as tanh(x)."""
    return ir.Operation.create("math.tanh", [match["x"].type], [match["x"]])
