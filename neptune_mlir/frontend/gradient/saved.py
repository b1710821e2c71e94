# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune.vjp`: a forward program that saves what its gradient needs, and the gradient from that.

Saved are reductions that are no larger than an input or a result. What is larger, like attention's
scores, is computed again from the inputs. Where a reference may be any number, it is saved as the
one for which its sum is 1 (`normalised`): of attention, a log-sum-exp a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.gradient import as_program, grad
from neptune_mlir.frontend.gradient.derivatives import masks_outside
from neptune_mlir.frontend.gradient.normalised import SavedValue, normalised
from neptune_mlir.frontend.gradient.small_range import fold_scales
from neptune_mlir.frontend.program import Program, ReductionStep, Tensor


def vjp(program: Any, wrt: Sequence[str] | None = None) -> tuple[Program, Program]:
    """Forward and backward passes of a program.

    Args:
        program, wrt: as of `neptune.grad`.

    Returns:
        Forward: the inputs and results of `program`, then what is saved, called `saved<number>`,
        f32 (f64 of f64).
        Backward: the inputs of `program`, those of its results that it reads, under their names,
        what was saved, the cotangents; results as of `neptune.grad`.

    Raises:
        UsageError, InputError: as `neptune.grad`.
    """
    program = as_program(program)
    gradient = grad(program, wrt)
    steps = _small(program, gradient)
    values, ones, gone = normalised(program, gradient, steps)
    values += [_plainly(s) for s in steps if s.key not in gone]
    results = {
        (_unrounded(o.term), o.axes): o for o in program.outputs if o.name not in program.inputs
    }
    known = [(v, results.get((v.saved, v.axes))) for v in values]
    first = [(v, o.name, o.term.dtype) for v, o in known if o]
    rest = [v for v, o in known if not o]
    forward = program.copy(f"{program.name}_forward")
    forward.outputs = list(program.outputs)
    for k, v in enumerate(rest):
        axes = (forward.axis_list[a] for a in v.axes)
        forward.output(Expr(v.saved, forward), *axes, name=f"saved{k}")
    named = [*first, *((v, f"saved{k}", v.saved.dtype) for k, v in enumerate(rest))]
    order = [o.name for o in forward.outputs]
    named.sort(key=lambda x: order.index(x[1]))
    return forward, _backward(program, gradient, named, ones, {s.key for s in steps})


def _plainly(step: ReductionStep) -> SavedValue:
    """A reduction, saved as it is."""
    read = T.read(step.key, *(T.index(a) for a in step.kept), dtype=step.body.dtype)
    return SavedValue(read, read, tuple(step.kept), f"{step.combiner} of its body")


def _unrounded(t: Term) -> Term:
    return masks_outside(t.args[0] if t.op == "cast" and T.is_float(t.args[0].dtype) else t)


def _small(program: Program, gradient: Program) -> list[ReductionStep]:
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
    program: Program, gradient: Program, saved: Sequence[tuple[SavedValue, str, str]],
    ones: dict[Term, Term], keys: set[str],
) -> Program:  # fmt: skip
    """The gradient, with what is saved among its inputs.

    Args:
        saved: each value with its name and type.
        ones: constants in place of terms.
        keys: the reductions that are not computed again.
    """
    made = gradient.copy(f"{program.name}_backward")
    cotangents = {n: made.inputs.pop(n) for n in [*made.inputs][len(program.inputs) :]}
    table: dict[str, tuple[SavedValue, Term]] = {}
    for value, name, dtype in saved:
        tensor = made.input(name, *(made.axis_list[a] for a in value.axes), dtype=dtype)
        own = tensor[tuple(made.axis_list[a] for a in value.axes)].term
        table[name] = value, T.make("cast", own, dtype=value.term.dtype)
    made.inputs |= cotangents

    def reading(t: Term) -> Term:
        t = T.substitute(t, ones)  # first: the terms may hold values
        for value, own in table.values():
            t = _in_place(t, value, own)
        return t

    made.steps = [replace(s, body=reading(s.body)) for s in gradient.steps if s.key not in keys]
    made.outputs = [replace(o, term=reading(o.term)) for o in gradient.outputs]
    shown = (f"saved: {n} = {program.show(v.saved)}    ({v.why})" for v, n, _ in saved)
    made.notes = [*shown, *gradient.notes]
    fold_scales(made)
    return made


def _in_place(t: Term, value: SavedValue, own: Term) -> Term:
    """`t` with what was saved in place of the value, also where a reduction is read elsewhere."""
    if value.term.op != "read":
        return T.substitute(t, {value.term: own})

    def rule(n: Term) -> Term | None:
        if n.op == "read" and n.attr == value.term.attr:
            return T.rename_axes(own, dict(zip(value.axes, n.args, strict=True)))
        return None

    return T.rewrite(t, rule)
