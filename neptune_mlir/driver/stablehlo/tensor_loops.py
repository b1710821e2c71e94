# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops over tensors in the place of the calls that stand for them in what torch-mlir lowers.

Such a function has no body, and a name that says which functions are parts of the loop: all that
torch-mlir leaves of a function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.analysis.tiles import is_inside
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.regions import clone_scalar_code, operations_named
from neptune_mlir.ir.bindings import arith, ir, linalg, scf
from neptune_mlir.ir.bindings import tensor as tensor_dialect

_PREFIX = "loop "


def name_of(spec: dict[str, Any]) -> str:
    """The name of a function whose calls are loops.

    Args:
        spec: of a loop along the elements of tensors: its `body`, the name of a function of what it
            carries, elements and other values; how many are `carried`, and `scanned`; and `sizes`,
            the operands and dimensions that have the unknown extents of what it collects. Of one
            that goes on while its `test` holds: `body` and `carried`. Of one of so many `steps`,
            whose body takes a counter first: its `first` value, and what it grows `by`.
    """
    return _PREFIX + json.dumps(spec)


def write_loops(module: Any) -> None:
    """Write every loop that a call stands for. Functions that only loops call go."""
    named = {op.operation.attributes["sym_name"].value: op.operation
             for op in module.body.operations if op.operation.name == "func.func"}  # fmt: skip
    standing = {n: json.loads(n.removeprefix(_PREFIX)) for n in named if n.startswith(_PREFIX)}
    while calls := _calls(module, standing):
        for call, spec in calls:
            with ir.InsertionPoint(call), call.location:
                body = named[spec["body"]].regions[0].blocks[0]
                if "test" in spec:
                    test = named[spec["test"]].regions[0].blocks[0]
                    results = _while(list(call.operands), spec["carried"], test, body)
                elif "steps" in spec:
                    results = _count(list(call.operands), spec, body)
                else:
                    results = _scan(call, spec, body)
                _replace(call, results)
    parts = {spec[part] for spec in standing.values() for part in ("body", "test") if part in spec}
    for name in (*standing, *parts):
        named[name].erase()


def _calls(module: Any, standing: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
    found: list[tuple[Any, dict[str, Any]]] = []

    def look(op: Any) -> Any:
        if op.name == "func.call":
            callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            if callee in standing:
                found.append((op, standing[callee]))
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _scan(call: Any, spec: dict[str, Any], body: Any) -> list[Any]:
    """What a body makes of the elements of tensors along their first dimension, one by one: the
    values that it carries, and all that it makes of an element, along a first dimension."""
    operands, carried, scanned = list(call.operands), spec["carried"], spec["scanned"]
    first, given = operands[:carried], operands[carried : carried + scanned]
    held = operands[carried + scanned :]
    sizes = iter(spec["sizes"])
    extents = [(operands[k], next(sizes)) for k in sizes]
    collected = []
    for result in list(call.results)[carried:]:
        kind = ir.RankedTensorType(result.type)
        unknown = [_dim(*extents.pop(0)) for e in kind.shape if e == DYNAMIC]
        collected.append(_tensor("tensor.empty", kind, unknown))

    def step(at: Any, values: Sequence[Any]) -> list[Any]:
        here = [_part(x, at, kind.type) for x, kind in
                zip(given, list(body.arguments)[carried:], strict=False)]  # fmt: skip
        made = _inlined(body, [*values[:carried], *here, *held])
        wholes = values[carried:]
        put = [_put(x, whole, at) for x, whole in zip(made[carried:], wholes, strict=True)]
        return [*made[:carried], *put]

    return for_each(_dim(given[0], 0), [*first, *collected], step)


def _count(operands: list[Any], spec: dict[str, Any], body: Any) -> list[Any]:
    first, held = operands[: spec["carried"]], operands[spec["carried"] :]
    element = ir.RankedTensorType(body.arguments[0].type).element_type

    def step(at: Any, values: Sequence[Any]) -> list[Any]:
        number = arith.index_cast(element, at)
        if spec["by"] != 1:
            number = arith.muli(number, arith.constant(element, spec["by"]))
        if spec["first"]:
            number = arith.addi(number, arith.constant(element, spec["first"]))
        counter = tensor_dialect.from_elements(body.arguments[0].type, [number])
        made = _inlined(body, [counter, *values, *held])
        _as_numbers(counter, number)
        return made

    return for_each(arith.constant(ir.IndexType.get(), spec["steps"]), first, step)


def _as_numbers(counter: Any, number: Any) -> None:
    """What is computed of a counter alone, tensors without dimensions, as numbers: positions that
    slices begin at are known then where a step is written out."""
    known = {counter: number}
    block = ir.InsertionPoint.current.block
    for op in [op.operation for op in block.operations]:
        kinds = [r.type for r in op.results]
        if op.name == "arith.constant" and _is_number(kinds[0]):
            held = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            with ir.InsertionPoint(op), op.location:
                known[op.results[0]] = arith.ConstantOp(held.type, held).result
        elif op.name == "tensor.extract" and op.operands[0] in known:
            op.results[0].replace_all_uses_with(known[op.operands[0]])
        elif op.name == "linalg.generic" and len(kinds) == 1 and _is_number(kinds[0]):
            inner = op.regions[0].blocks[0]
            given = [known.get(v) for v in list(op.operands)[:-1]]
            if None in given or list(inner.arguments[len(given)].uses):
                continue
            with ir.InsertionPoint(op), op.location:
                table = dict(zip(inner.arguments, [*given, None], strict=True))
                (made,) = clone_scalar_code(inner, {k: v for k, v in table.items() if v})
                whole = tensor_dialect.from_elements(kinds[0], [made])
            known[whole] = made
            op.results[0].replace_all_uses_with(whole)


def _is_number(kind: Any) -> bool:
    return isinstance(kind, ir.RankedTensorType) and not kind.shape


def for_each(
    count: Any, carried: Sequence[Any], step: Callable[[Any, Sequence[Any]], Sequence[Any]]
) -> list[Any]:
    """A loop of so many steps: what the last one makes of the values that are carried."""
    zero, one = (arith.constant(ir.IndexType.get(), k) for k in (0, 1))
    loop = scf.ForOp(zero, count, one, list(carried))
    with ir.InsertionPoint(loop.body):
        made = step(loop.induction_variable, list(loop.inner_iter_args))
        scf.YieldOp(_as(made, [value.type for value in carried]))
    _know_extents(loop.operation, dict(zip(loop.inner_iter_args, carried, strict=True)))
    return list(loop.results)


def _know_extents(loop: Any, first: dict[Any, Any]) -> None:
    """Extents of what a loop carries, and of what is outside, are known before it."""
    for op in operations_named(loop, "tensor.dim"):
        source, place = op.operands
        source = first.get(source, source)
        number = place.owner.attributes["value"].value
        if not any(source == x for x in first) and not is_inside(source, loop):
            with ir.InsertionPoint(loop), op.location:
                op.results[0].replace_all_uses_with(_dim(source, number))
            op.erase()


def _while(operands: list[Any], carried: int, test: Any, body: Any) -> list[Any]:
    first, held = operands[:carried], operands[carried:]
    types = [value.type for value in first]
    loop = ir.Operation.create("scf.while", types, first, regions=2)
    places = [ir.Location.current] * carried
    before, after = (region.blocks.append(*types, arg_locs=places) for region in loop.regions)
    with ir.InsertionPoint(before):
        (found,) = _inlined(test, [*before.arguments, *held])
        goes_on = tensor_dialect.extract(found, [])
        ir.Operation.create("scf.condition", operands=[goes_on, *before.arguments])
    with ir.InsertionPoint(after):
        made = _as(_inlined(body, [*after.arguments, *held]), types)
        # (bufferization asks that a loop like this writes where it reads)
        pairs = zip(made, after.arguments, strict=True)
        scf.YieldOp([linalg.copy(x, outs=[old]) for x, old in pairs])
    return list(loop.results)


def _inlined(block: Any, given: Sequence[Any]) -> list[Any]:
    """What a function returns for these values."""
    values = _as(given, [argument.type for argument in block.arguments])
    return clone_scalar_code(block, dict(zip(block.arguments, values, strict=True)))


def _as(values: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """The values, with what these types say of their extents."""
    return [
        value if value.type == kind else _tensor("tensor.cast", kind, [value])
        for value, kind in zip(values, types, strict=True)
    ]


def _tensor(name: str, kind: Any, operands: Sequence[Any], **attributes: Any) -> Any:
    return ir.Operation.create(name, [kind], list(operands), attributes).results[0]


def _part(whole: Any, at: Any, kind: Any) -> Any:
    """An element of a tensor along its first dimension."""
    return _slice("tensor.extract_slice", kind, [whole], whole, at)


def _put(one: Any, whole: Any, at: Any) -> Any:
    """A tensor in which one element along the first dimension is another."""
    return _slice("tensor.insert_slice", whole.type, [one, whole], whole, at)


def _slice(name: str, kind: Any, tensors: Sequence[Any], whole: Any, at: Any) -> Any:
    shape = list(ir.RankedTensorType(whole.type).shape)
    unknown = [_dim(whole, k) for k, extent in enumerate(shape) if k and extent == DYNAMIC]
    places = [DYNAMIC, *[0] * (len(shape) - 1)]
    arrays = {"static_offsets": places, "static_sizes": [1, *shape[1:]],
              "static_strides": [1] * len(shape),
              "operandSegmentSizes": [*[1] * len(tensors), 1, len(unknown), 0]}  # fmt: skip
    attributes: dict[str, Any] = {
        key: ir.DenseI64ArrayAttr.get(value) for key, value in arrays.items()
    }
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(arrays["operandSegmentSizes"])
    return _tensor(name, kind, [*tensors, at, *unknown], **attributes)


def _dim(tensor: Any, k: int) -> Any:
    extent = ir.RankedTensorType(tensor.type).shape[k]
    index = ir.IndexType.get()
    if extent != DYNAMIC:
        return arith.constant(index, extent)
    return tensor_dialect.dim(tensor, arith.constant(index, k))


def _replace(op: Any, values: Sequence[Any]) -> None:
    types = [result.type for result in op.results]
    for result, value in zip(op.results, _as(values, types), strict=True):
        result.replace_all_uses_with(value)
    op.erase()
