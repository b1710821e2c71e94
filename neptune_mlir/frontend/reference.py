# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The definition of a program, evaluated with NumPy in float64.

Every array has one dimension per axis of the program (extent 1 where it does not vary). A sum
of a product goes through `einsum`, so that attention needs memory for its scores and not for
every product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.numerics.evaluation import Domain, fold
from neptune_mlir.algebra.numerics.evaluation import evaluate as evaluate_term
from neptune_mlir.algebra.numerics.float8 import float8_values
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import ArgumentError

if TYPE_CHECKING:
    from neptune_mlir.frontend.program import Program


def evaluate(program: Program, arrays: Sequence[Any]) -> Any:
    """See `Program.reference`. Raises ArgumentError for a wrong number or shape of arrays."""
    if len(arrays) != len(program.inputs):
        raise ArgumentError(f"'{program.name}' takes {len(program.inputs)} inputs")
    sizes = {a.number: a.static for a in program.axis_list}
    data: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    for (name, argument), value in zip(program.inputs.items(), arrays, strict=True):
        if isinstance(argument, str):
            scalars[name] = value
            continue
        array = np.asarray(value)
        if array.ndim != len(argument.shape):
            raise ArgumentError(f"'{name}' has {len(argument.shape)} dimensions, got {array.ndim}")
        for axis, extent in zip(argument.shape, array.shape, strict=True):
            if sizes[axis.number] is None:
                sizes[axis.number] = extent
            if sizes[axis.number] != extent:
                raise ArgumentError(f"'{name}': axis '{axis.name}' has two extents")
        data[name] = _wide(array, argument.dtype) if T.is_float(argument.dtype) else array
    for axis in program.axis_list:
        if axis.made_of is not None:
            known = {f"size:{a.name}": sizes[a.number] or 0 for a in program.axis_list}
            size = evaluate_term(axis.made_of, Domain((), {}, known), {})
            sizes[axis.number] = int(np.asarray(size).reshape(()))
        elif sizes[axis.number] is None and (found := program.dimension_of(axis)):
            sizes[axis.number] = data[found[0]].shape[found[1]]
    extents = tuple(sizes[k] or 0 for k in range(len(program.axis_list)))
    for axis in program.axis_list:
        scalars[f"size:{axis.name}"] = extents[axis.number]
    try:
        return _results(program, extents, data, scalars)
    except IndexError as error:
        raise ArgumentError(f"'{program.name}' reads outside of an input: {error}") from None


def _wide(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == T.FLOAT8 and array.itemsize == 1:
        return float8_values(array.view(np.uint8))
    return array.astype(np.float64)


def _results(
    program: Program, extents: tuple[int, ...], data: dict[str, Any], scalars: dict[str, Any]
) -> Any:
    with np.errstate(all="ignore"):
        for step in program.steps:
            data[step.key] = _step(step, Domain(extents, data, scalars))
        domain = Domain(extents, data, scalars)
        results = []
        for output in program.outputs:
            value = evaluate_term(output.term, domain, {})
            full = [extents[k] if k in output.axes else 1 for k in range(len(extents))]
            value = np.broadcast_to(value, full)
            others = tuple(k for k in range(len(extents)) if k not in output.axes)
            squeezed = value.squeeze(axis=others)
            order = np.argsort(np.argsort(output.axes))
            results.append(np.asarray(squeezed.transpose(order), order="C"))
    return results[0] if len(results) == 1 else tuple(results)


def _factors(t: Term) -> list[Term]:
    return [f for a in t.args for f in _factors(a)] if t.op == "mul" else [t]


def _step(step: Any, domain: Domain) -> Any:
    """The reduction's result, one dimension per kept axis."""
    axes = sorted(T.axes_of(step.body) | set(step.removed))
    factors = _factors(step.body)
    if step.combiner == "add" and len(factors) > 1 and T.axes_of(step.body) >= set(step.removed):
        operands: list[Any] = []
        for factor in factors:
            own = sorted(T.axes_of(factor))
            value = evaluate_term(factor, domain, {})
            shape = [domain.extents[k] for k in own]
            operands += [value.reshape(shape), own]
        return np.einsum(*operands, list(step.kept), optimize=True)
    value = evaluate_term(step.body, domain, {})
    value = fold(step.combiner, value, domain, step.removed, -1, -1)
    kept = [domain.extents[k] for k in step.kept]
    return value.reshape(kept) if axes else value.reshape(())
