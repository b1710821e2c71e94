# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune.vjp`: a forward program that saves what its gradient needs, and the gradient from that.

Saved are reductions that are no larger than an input or a result: a maximum or a sum a row, a
result before its division. What is larger, like attention's scores, is computed again from the
inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.gradient import as_program, grad
from neptune_mlir.frontend.program import Program, ReductionStep, Tensor


def vjp(program: Any, wrt: Sequence[str] | None = None) -> tuple[Program, Program]:
    """Forward and backward passes of a program.

    Args:
        program, wrt: as of `neptune.grad`.

    Returns:
        Forward: the inputs and results of `program`, then what is saved, called `saved<number>`,
        f32 (f64 of f64).
        Backward: the inputs of `program`, what was saved, the cotangents; results as of
        `neptune.grad`.

    Raises:
        UsageError, InputError: as `neptune.grad`.
    """
    program = as_program(program)
    gradient = grad(program, wrt)
    names = {s.key: f"saved{k}" for k, s in enumerate(_saved(program, gradient))}
    steps = [s for s in program.steps if s.key in names]
    forward = program.copy(f"{program.name}_forward")
    forward.outputs = list(program.outputs)
    for s in steps:
        axes = tuple(forward.axis_list[a] for a in s.kept)
        read = T.read(s.key, *(a.term for a in axes), dtype=s.body.dtype)
        forward.output(Expr(read, forward), *axes, name=names[s.key])
    return forward, _backward(program, gradient, steps, names)


def _saved(program: Program, gradient: Program) -> list[ReductionStep]:
    """The small reductions that the gradient reads, but for those behind other small ones."""
    shapes = [{a.number for a in t.shape} for t in program.inputs.values() if isinstance(t, Tensor)]
    shapes += [set(o.axes) for o in program.outputs]
    small = {s.key for s in program.steps if any(set(s.kept) <= shape for shape in shapes)}
    steps = {s.key: s for s in gradient.steps}
    reached: set[str] = set()
    pending = [o.term for o in gradient.outputs]
    while pending:
        for key in {r.attr for r in T.reads(pending.pop())} & steps.keys() - reached:
            reached.add(key)
            if key not in small:
                pending.append(steps[key].body)
    return [s for s in program.steps if s.key in reached & small]


def _backward(
    program: Program, gradient: Program, saved: Sequence[ReductionStep], names: dict[str, str]
) -> Program:
    """The gradient, with what is saved among its inputs."""
    made = gradient.copy(f"{program.name}_backward")
    cotangents = {n: made.inputs.pop(n) for n in [*made.inputs][len(program.inputs) :]}
    for s in saved:
        made.input(names[s.key], *(made.axis_list[a] for a in s.kept), dtype=s.body.dtype)
    made.inputs |= cotangents

    def reading(t: Term) -> Term:
        return T.rewrite(t, lambda n: T.read(names[n.attr], *n.args, dtype=n.dtype)
                         if n.op == "read" and n.attr in names else None)  # fmt: skip

    made.steps = [
        replace(s, body=reading(s.body)) for s in gradient.steps if s.key not in names
    ]
    made.outputs = [replace(o, term=reading(o.term)) for o in gradient.outputs]
    shown = (f"saved: {names[s.key]} = {s.combiner} of {program.show(s.body)}" for s in saved)
    made.notes = [*shown, *gradient.notes]
    return made
