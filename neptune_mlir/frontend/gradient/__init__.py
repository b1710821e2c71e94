# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of programs, as programs: `neptune.grad`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.gradient.reverse import Reverse
from neptune_mlir.frontend.gradient.small_range import fold_scales, keep_in_range
from neptune_mlir.frontend.program import Program, Tensor


def grad(program: Any, wrt: Sequence[str] | None = None) -> Program:
    """The gradient of a program: reverse mode, from cotangents of its outputs.

    Args:
        program: in index notation, as `neptune.ops` makes them, or what `neptune.compile` takes:
            MLIR text, a path to it, an `ir.Module`.
        wrt: names of float inputs; default: all of them.

    Returns:
        A program with the inputs of `program`, then one for the cotangent of every float output:
        `d_<name of the output>`, of its shape and dtype. Its outputs are the gradients of `wrt`, in
        that order, of the shape and dtype of each input. It computes what it needs of `program`
        again. `notes` has the derivation.

    Raises:
        UsageError: an input that is not there or no float, or no float output.
        InputError: a read whose adjoint has no form; in MLIR an op that no nest models.
    """
    program = as_program(program)
    wanted = _wanted(program, wrt)
    made = program.copy(f"{program.name}_grad")
    cotangents = {}
    for k, output in enumerate(program.outputs):
        if T.is_float(output.term.dtype):
            axes = tuple(made.axis_list[a] for a in output.axes)
            tensor = made.input(f"d_{output.name}", *axes, dtype=output.term.dtype)
            cotangents[k] = tensor[axes].term
    if not cotangents:
        raise UsageError(f"'{program.name}' has no float result", hint="nothing to differentiate")
    reverse = Reverse(program, made, wanted)
    reverse.run(cotangents)
    for name in wanted:
        argument = made.inputs[name]
        axes = argument.shape if isinstance(argument, Tensor) else ()
        dtype = argument.dtype if isinstance(argument, Tensor) else argument
        value = reverse.adjoints.get(name, T.const(0.0, dtype))
        made.output(Expr(value, made), *axes, dtype=dtype, name=f"d_{name}")
    made.notes = reverse.notes
    keep_in_range(made)
    fold_scales(made)
    return made


def as_program(program: Any) -> Program:
    """A program as it is, MLIR in index notation. Raises as `frontend.from_nests`."""
    if isinstance(program, Program):
        return program
    from neptune_mlir.frontend.from_nests import program_of

    return program_of(program)


def _wanted(program: Program, wrt: Sequence[str] | None) -> list[str]:
    """The inputs to differentiate for, checked."""
    floats = [
        name for name, argument in program.inputs.items()
        if T.is_float(argument.dtype if isinstance(argument, Tensor) else argument)
    ]  # fmt: skip
    names = floats if wrt is None else [wrt] if isinstance(wrt, str) else list(wrt)
    unknown = [n for n in names if n not in floats]
    if unknown or not names:
        what = f"'{unknown[0]}' is no float input of" if unknown else "no float input in"
        raise UsageError(f"{what} '{program.name}'", hint=", ".join(floats) or None)
    return names
