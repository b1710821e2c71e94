# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lower-to-linalg`: program-level nests become `linalg.generic` on tensors, one for one.

The unfused reference route: what comes out goes through upstream's own lowering, so a fused
kernel can be compared with code that shares nothing with it.

A read at loops becomes an operand with an indexing map. Positions that linalg maps do not
express (`d0 floordiv 4`, a constant) become a `tensor.extract` in the body.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.op_names import INDEX, READ, YIELD
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.scalars import constant, emit_combined
from neptune_mlir.ir.bindings import arith, ir, linalg, tensor
from neptune_mlir.transforms.registry import register


@register("lower-to-linalg", "turn unfused nests into linalg.generic ops")
def lower_to_linalg(module: Any) -> None:
    for function in functions(module):
        for op in list(function.regions[0].blocks[0].operations):
            if isinstance(op, N.MapOp | N.ReduceOp):
                with ir.InsertionPoint(op), op.operation.location:
                    lowered = _lower(op)
                op.operation.results[0].replace_all_uses_with(lowered)
                op.operation.erase()


def _lower(op: Any) -> Any:
    """The result of the linalg.generic that computes what `op` computes."""
    domain, result_axes = list(op.domain), list(op.result_axes)
    extents = iter(op.extents)
    sizes = [next(extents) if e == DYNAMIC else None for e in domain]
    kind = ir.RankedTensorType(op.operation.results[0].type)
    init = _empty([(domain[k], sizes[k]) for k in result_axes], kind.element_type)
    combiner = op.combiner.value if isinstance(op, N.ReduceOp) else None
    if combiner is not None:
        identity = arith.ConstantOp(kind.element_type, op.identity).result
        init = linalg.fill(identity, outs=[init])

    reads = {
        inner.operation.results[0]: inner.operation
        for inner in op.operation.regions[0].blocks[0].operations
        if inner.operation.name == READ
    }
    operands = {r: read for r, read in reads.items() if _is_operand(read)}
    maps = [read.attributes["map"].value for read in operands.values()]
    inputs = [read.operands[0] for read in operands.values()]
    covered = set(result_axes) | {
        ir.AffineDimExpr(e).position
        for m in maps
        for e in m.results
        if isinstance(e, ir.AffineDimExpr)
    }
    if len(covered) < len(domain):  # linalg takes the extent of every loop from an operand
        inputs.append(_empty(list(zip(domain, sizes, strict=True)), kind.element_type))
        maps.append(ir.AffineMap.get_identity(len(domain)))
    dims = [ir.AffineExpr.get_dim(k) for k in result_axes]
    maps.append(ir.AffineMap.get(len(domain), 0, dims))
    generic = linalg.GenericOp(
        [kind],
        inputs,
        [init],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([
            ir.Attribute.parse(f"#linalg.iterator_type<{name}>")
            for k in range(len(domain))
            for name in ("parallel" if k in result_axes else "reduction",)
        ]),
    )  # fmt: skip
    types = [ir.RankedTensorType(v.type).element_type for v in [*inputs, init]]
    block = generic.regions[0].blocks.append(*types)
    with ir.InsertionPoint(block):
        known = {r: block.arguments[k] for k, r in enumerate(operands)}
        value = _copy_body(op.operation.regions[0].blocks[0], known)
        if combiner == "custom":
            combine = op.operation.regions[1].blocks[0]
            known = dict(zip(combine.arguments, (block.arguments[-1], value), strict=True))
            value = _copy_body(combine, known)
        elif combiner is not None:
            value = emit_combined(combiner, block.arguments[-1], value)
        linalg.YieldOp([value])
    return generic.operation.results[0]


def _empty(shape: list[tuple[int, Any]], element: Any) -> Any:
    kind = ir.RankedTensorType.get([extent for extent, _ in shape], element)
    sizes = [size for _, size in shape if size is not None]
    return ir.Operation.create("tensor.empty", [kind], sizes).results[0]


def _is_operand(read: Any) -> bool:
    """Can a linalg operand stand for this read? Every position must be a loop or 0 of a unit."""
    shape = ir.RankedTensorType(read.operands[0].type).shape
    return len(read.operands) == 1 and all(
        isinstance(e, ir.AffineDimExpr)
        or (isinstance(e, ir.AffineConstantExpr) and ir.AffineConstantExpr(e).value == 0 and n == 1)
        for e, n in zip(read.attributes["map"].value.results, shape, strict=True)
    )


def _copy_body(block: Any, known: dict[Any, Any]) -> Any:
    """Copy scalar code to the insertion point; returns what its yield yields."""
    for op in block.operations:
        operation = op.operation
        if operation.name == YIELD:
            return known.get(operation.operands[0], operation.operands[0])
        result = operation.results[0] if operation.results else None
        if result in known:
            continue
        if operation.name == INDEX:
            known[result] = linalg.IndexOp(operation.attributes["dim"].value).result
        elif operation.name == READ:
            known[result] = _extract(operation, known)
        else:
            copy = operation.clone()
            for k, value in enumerate(operation.operands):
                copy.operands[k] = known.get(value, value)
            known.update(zip(operation.results, copy.results, strict=True))
    raise AssertionError("verified regions end in a yield")


_BINARY = {
    ir.AffineFloorDivExpr: arith.FloorDivSIOp, ir.AffineModExpr: arith.RemSIOp,
    ir.AffineAddExpr: arith.AddIOp,
}  # fmt: skip


def _extract(read: Any, known: dict[Any, Any]) -> Any:
    source, *lookups = read.operands

    def position(expr: Any) -> Any:
        if isinstance(expr, ir.AffineConstantExpr):
            return constant(ir.AffineConstantExpr(expr).value, "index")
        if isinstance(expr, ir.AffineDimExpr):
            return linalg.IndexOp(ir.AffineDimExpr(expr).position).result
        if isinstance(expr, ir.AffineSymbolExpr):
            return known[lookups[ir.AffineSymbolExpr(expr).position]]
        make = next(op for kind, op in _BINARY.items() if isinstance(expr, kind))
        return make(position(expr.lhs), position(expr.rhs)).result

    expressions = read.attributes["map"].value.results
    positions = [_inside(position(e), source, d) if lookups else position(e)
                 for d, e in enumerate(expressions)]  # fmt: skip
    return tensor.ExtractOp(source, positions).result


def _inside(position: Any, source: Any, dimension: int) -> Any:
    """A position that depends on data, clamped to what exists."""
    extent = tensor.DimOp(source, constant(dimension, "index")).result
    last = arith.SubIOp(extent, constant(1, "index")).result
    return arith.MaxSIOp(arith.MinSIOp(position, last), constant(0, "index")).result
