# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A gradient that comes in parts: the program adds its part to what there is.

A sum in 16 bits would lose a digit with each part. So it is kept in two numbers: what it is in 16
bits, and the rest, of the same type. Together they have twice the digits; after the last part the
first one is the gradient.
"""

from __future__ import annotations

from neptune_mlir.algebra import terms as T
from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.notation import cast
from neptune_mlir.frontend.program import Program

_NARROW = ("f16", "bf16")


def adding(program: Program, name: str) -> Program:
    """The program with a result added to an input.

    Args:
        program: a gradient, as `neptune.grad` makes them.
        name: of the result to add to.

    Returns:
        Its inputs, then `sum_<name>`, of the shape and dtype of that result, and of 16-bit types
        `rest_<name>`, like it. Its results, that one replaced by the new sum and, of 16-bit types,
        the new rest. Both may be computed in place where the runtime says so
        (`Requirements.in_place`).

    Raises:
        UsageError: there is no such float result.
    """
    found = [o for o in program.outputs if o.name == name and T.is_float(o.term.dtype)]
    if not found:
        names = ", ".join(o.name for o in program.outputs)
        raise UsageError(f"no float result '{name}' in '{program.name}'", hint=f"there are {names}")
    dtype, term = found[0].term.dtype, found[0].term
    made = program.copy(f"{program.name}_adding")
    made.notes = list(program.notes)
    axes = tuple(made.axis_list[a] for a in found[0].axes)
    while term.op == "cast" and T.is_float(term.args[0].dtype):
        term = term.args[0]
    names = [f"{kind}_{name}" for kind in ("sum", "rest")[: 1 + (dtype in _NARROW)]]
    total = Expr(term, made)
    for one in names:
        total = total + cast(made.input(one, *axes, dtype=dtype)[axes], total.dtype)
    for output in program.outputs:
        if output is not found[0]:
            made.outputs.append(output)
            continue
        made.output(total, *axes, dtype=dtype, name=name)
        if dtype in _NARROW:
            rest = total - cast(cast(total, dtype), total.dtype)
            made.output(rest, *axes, dtype=dtype, name=names[1])
    return made
