# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does the valid part of a tile end where its tensor ends? There the copy engine clips it."""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.analysis.tiles import Window, shape_of, slice_parts, strip_slice
from neptune_mlir.dialects.attributes import EQUAL_DIMS
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

Linear = dict[Any, int]  # value (or 1) -> factor


def ends_with_tensor(op: Any, forall: Any) -> bool:
    """Whether an insert slice op writes all of a tile that is inside of a result of `forall`."""
    target = op.operands[1]
    if op.name != "tensor.parallel_insert_slice" or target.owner.owner.operation != forall:
        return False  # part of a strip
    source = defining_op(op.operands[0])
    cut = source is not None and source.name == "tensor.extract_slice"
    shape = shape_of(source.operands[0] if cut else op.operands[0])
    outputs = list(forall.operands)[len(forall.operands) - len(forall.results) :]
    arguments = list(forall.regions[0].blocks[0].arguments)
    start = outputs[arguments.index(target) - len(arguments) + len(outputs)]
    offsets, sizes, dims = slice_parts(op)
    valid = tuple(
        None if isinstance(sizes[d], int) and sizes[d] >= n else sizes[d]
        for d, n in zip(dims, shape, strict=True)
    )
    window = Window(start, offsets, dims, shape, valid)
    return all(v is None or window_ends(window, k, forall) for k, v in enumerate(valid))


def strip_is_whole(strip: Any, forall: Any) -> bool:
    """Whether a strip of a result of `forall` ends where the result does."""
    cut = strip_slice(strip)
    outputs = list(forall.operands)[len(forall.operands) - len(forall.results) :]
    arguments = list(forall.regions[0].blocks[0].arguments)
    start = outputs[arguments.index(cut.operands[0]) - len(arguments) + len(outputs)]
    made, kind = defining_op(_started_with(start)), ir.RankedTensorType(start.type)
    offsets, sizes, dims = slice_parts(cut)
    for d in dims:
        extent, size = kind.shape[d], sizes[d]
        if kind.is_dynamic_dim(d) and made is not None and made.name == "tensor.empty":
            extent = made.operands[sum(map(kind.is_dynamic_dim, range(d)))]
        same = size == extent if isinstance(size, int) or isinstance(extent, int) else (
            size == extent or (_extent(size) is not None and _extent(size) == _extent(extent))
        )
        if offsets[d] != 0 or not same:
            return False
    return True


def window_ends(window: Window, k: int, forall: Any) -> bool:
    """Whether what is valid along dimension k is min(size, extent - offset), for the tensor's own
    extent."""
    valid, dim = window.valid[k], window.dims[k]
    if isinstance(valid, int) and isinstance(window.offsets[dim], int):
        kind = ir.RankedTensorType(window.tensor.type)
        return not kind.is_dynamic_dim(dim) and window.offsets[dim] + valid == kind.shape[dim]
    op = defining_op(valid) if not isinstance(valid, int) else None
    if op is None or op.name != "affine.min":
        return False
    offset = _linear(window.offsets[dim])
    bounds = [_affine(e, op) for e in ir.AffineMapAttr(op.attributes["map"]).value.results]
    if len(bounds) != 2 or offset is None:
        return False
    rest = [b for b in bounds if b != {1: window.shape[k]}]
    if len(rest) != 1 or rest[0] is None:
        return False
    end = _sum(rest[0], offset)
    if end == {1: ir.RankedTensorType(window.tensor.type).shape[dim]}:
        return True
    if (whole := _reshaped(window.tensor, dim)) is not None:
        return end == whole
    made, known = defining_op(_started_with(window.tensor)), (window.tensor, dim)
    kind = ir.RankedTensorType(window.tensor.type)
    if made is not None and made.name == "tensor.empty" and kind.is_dynamic_dim(dim):
        # a result, of this kernel or another
        wanted = made.operands[sum(map(kind.is_dynamic_dim, range(dim)))]
        if end == _linear(wanted):
            return True
        known = _extent(wanted)
    found = _extent(next(iter(end))) if list(end.values()) == [1] else None
    if found is None or known is None:
        return False
    return found == known or _equal_extents(found, known, forall)


def _reshaped(tensor: Any, dim: int) -> Linear | None:
    """An extent of a tensor that has another shape of the elements of one; None: it has not, or
    the extent is not linear in other numbers."""
    made = defining_op(tensor)
    if made is None or made.name not in ("tensor.expand_shape", "tensor.collapse_shape"):
        return None
    kind = ir.RankedTensorType(tensor.type)
    if not kind.is_dynamic_dim(dim):
        return {1: kind.shape[dim]}
    if made.name == "tensor.expand_shape":
        return _linear(made.operands[1 + sum(map(kind.is_dynamic_dim, range(dim)))])
    source = made.operands[0]
    factors = [_reshaped(source, d.value) for d in made.attributes["reassociation"][dim]]
    varying = [f for f in factors if f is None or set(f) != {1}]
    if len(varying) != 1 or varying[0] is None:
        return None
    scale = math.prod(f[1] for f in factors if f is not None and set(f) == {1})
    return {k: n * scale for k, n in varying[0].items()}


def _started_with(tensor: Any) -> Any:
    """What the result of a kernel is before it, or others of which only one runs, write it; another
    tensor itself."""
    made = defining_op(tensor)
    while made is not None and made.name == "scf.forall":
        outputs = list(made.operands)[len(made.operands) - len(made.results) :]
        tensor = outputs[list(made.results).index(tensor)]
        made = defining_op(tensor)
    return tensor


def _extent(value: Any) -> tuple[Any, int] | None:
    """The tensor and the dimension that an index is the extent of."""
    made = defining_op(value) if value != 1 else None
    if made is None or made.name != "tensor.dim":
        return None
    at = defining_op(made.operands[1])
    if at is None or at.name != "arith.constant":
        return None
    tensor, dim = made.operands[0], at.attributes["value"].value
    empty, kind = defining_op(tensor), ir.RankedTensorType(tensor.type)
    if empty is not None and empty.name == "tensor.empty" and kind.is_dynamic_dim(dim):
        return _extent(empty.operands[sum(map(kind.is_dynamic_dim, range(dim)))])
    return tensor, dim


def _equal_extents(one: Any, other: Any, forall: Any) -> bool:
    """Whether the host checks that two extents of arguments are equal."""
    function = forall.parent
    arguments = list(function.regions[0].blocks[0].arguments)
    if one[0] not in arguments or other[0] not in arguments:
        return False
    wanted = [(arguments.index(t), d) for t, d in (one, other)]
    for numbers in EQUAL_DIMS.find(function.operation, ()):
        known = {(numbers[k], numbers[k + 1]): numbers[k + 2] for k in range(0, len(numbers), 3)}
        if all(w in known for w in wanted) and known[wanted[0]] == known[wanted[1]]:
            return True
    return False


def _sum(a: Linear, b: Linear) -> Linear:
    total = {k: a.get(k, 0) + b.get(k, 0) for k in [*a, *(k for k in b if k not in a)]}
    return {k: n for k, n in total.items() if n}


def _linear(value: Any) -> Linear | None:
    """An index as a linear form over values that are not affine."""
    if isinstance(value, int):
        return {1: value} if value else {}
    op = defining_op(value)
    if op is not None and op.name == "arith.constant":
        return _linear(op.attributes["value"].value)
    if op is not None and op.name == "affine.apply":
        return _affine(ir.AffineMapAttr(op.attributes["map"]).value.results[0], op)
    return {value: 1}


def _affine(e: Any, op: Any) -> Linear | None:
    """An affine expression over the operands of `op` as a linear form."""
    operands = list(op.operands)
    if isinstance(e, ir.AffineConstantExpr):
        return _linear(ir.AffineConstantExpr(e).value)
    if isinstance(e, ir.AffineDimExpr):
        return _linear(operands[ir.AffineDimExpr(e).position])
    if isinstance(e, ir.AffineSymbolExpr):
        count = ir.AffineMapAttr(op.attributes["map"]).value.n_dims
        return _linear(operands[count + ir.AffineSymbolExpr(e).position])
    if isinstance(e, (ir.AffineAddExpr, ir.AffineMulExpr)):
        a, b = _affine(e.lhs, op), _affine(e.rhs, op)
        if a is None or b is None:
            return None
        if isinstance(e, ir.AffineAddExpr):
            return _sum(a, b)
        for x, y in ((a, b), (b, a)):
            if set(x) <= {1}:
                return {k: n * x.get(1, 0) for k, n in y.items() if x.get(1, 0)}
    if isinstance(e, (ir.AffineCeilDivExpr, ir.AffineFloorDivExpr, ir.AffineModExpr)):
        both = _affine(e.lhs, op), _affine(e.rhs, op)
        if None not in both:  # the same of the same is the same, whatever it is
            return {(type(e), *(frozenset(x.items()) for x in both if x is not None)): 1}
    return None
