# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where tensors are joined from parts, and the elements of one part without a copy.

`Parts.cuts` finds where a dimension was joined, through reshapes and whatever is computed
elementwise; `Parts.part` writes those ops again for one part. Answers are kept: elementwise ops
share operands, and there are too many paths through them to walk each. Behind DEEP ops nothing is
looked for: a concatenation so far away stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.ir.bindings import tensor as tensor_dialect
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.linalg.structured_loops import Loops, dims_of

DEEP = 64  # ops behind one another
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


class NoPart(Exception):
    """A part of a tensor cannot be had without a copy."""


class Parts:
    """The parts of the tensors of one function."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._depth = 0

    def _once(self, key: Any, find: Callable[[], Any], beyond: Any = False) -> Any:
        """What is found, once; `beyond` where too many questions led here."""
        if key not in self._known:
            if self._depth == DEEP:
                return beyond
            self._depth += 1
            try:
                self._known[key] = find()
            finally:
                self._depth -= 1
        return self._known[key]

    # ---- where tensors are joined --------------------------------------------------------------

    def cuts(self, value: Any, dim: int) -> frozenset[int]:
        """Where the parts of a dimension meet; none where something needs the tensor whole."""
        key = "cuts", value, dim
        return frozenset(self._once(key, lambda: set(self._find_cuts(value, dim)), ()))

    def _find_cuts(self, value: Any, dim: int) -> Iterable[int]:
        op = defining_op(value)
        if op is None or shape_of(value)[dim] == DYNAMIC:
            return
        if op.name == "tensor.concat" and op.attributes["dim"].value == dim:
            starts = _starts(op.operands, dim)
            if starts is not None and self._is_read_in_parts(value, dim):
                yield from starts[1:-1]
                for operand, start in zip(op.operands, starts, strict=False):
                    yield from (start + cut for cut in self.cuts(operand, dim))
        elif op.name == "tensor.pad":
            low, operand = _padding(op, dim), op.operands[0]
            if low is not None and self._is_read_in_parts(value, dim):
                inner = (low + cut for cut in self.cuts(operand, dim))
                ends = {0, shape_of(value)[dim]}
                yield from {low, low + shape_of(operand)[dim], *inner} - ends
        else:
            for operand, k in _sources(op, value, dim):
                yield from self.cuts(operand, k)

    def _is_read_in_parts(self, value: Any, dim: int) -> bool:
        """Are all uses of a tensor reductions along a dimension, or slices of it?"""

        def find() -> bool:
            uses = [(use.owner.operation, use.operand_number) for use in value.uses]
            return all(self._reads_parts(op, number, dim) for op, number in uses)

        return bool(self._once(("parts", value, dim), find))

    def _reads_parts(self, op: Any, number: int, dim: int) -> bool:
        if op.name == "tensor.extract_slice":
            static = static_slice(op)
            return static is not None and static[1][dim] < shape_of(op.operands[0])[dim]
        if op.name in _RESHAPES:
            rank = len(shape_of(op.results[0]))
            after = next((k for k in range(rank) if _before_reshape(op, k) == dim), None)
            return after is not None and self._is_read_in_parts(op.results[0], after)
        if op.name == "tensor.concat":
            return self._is_read_in_parts(op.results[0], dim)
        loops = Loops.of(op)
        loop = loops.loop_of(number, dim) if loops else None
        if loops is None or loop is None:
            return False
        if reduced := loops.reduced():
            return loop in reduced
        return all(
            self._is_read_in_parts(result, k)
            for j, result in enumerate(op.results)
            for k in range(len(shape_of(result)))
            if loops.loop_of(loops.inputs + j, k) == loop
        )

    def normalizes(self, value: Any, dim: int) -> bool:
        """Is a tensor computed elementwise from one that was reduced, maybe along `dim`?"""

        def find() -> bool:
            op = defining_op(value)
            if op is None:
                return False
            loops = elementwise(op, value)
            loop = loops.loop_of(loops.inputs + loops.number(value), dim) if loops else None
            if loops and loop is not None and any(map(self._is_reduced, loops.without(loop))):
                return True
            return any(self.normalizes(operand, k) for operand, k in _sources(op, value, dim))

        return bool(self._once(("normalizes", value, dim), find))

    def _is_reduced(self, value: Any) -> bool:
        """Is a tensor computed from a reduction?"""

        def find() -> bool:
            op = defining_op(value)
            if op is None or not op.name.startswith(("linalg.", "tensor.")):
                return False
            loops = Loops.of(op)
            if loops and loops.reduced():
                return True
            operands = list(op.operands)[: loops.inputs if loops else None]
            tensors = [v for v in operands if isinstance(v.type, ir.RankedTensorType)]
            return any(map(self._is_reduced, tensors))

        return bool(self._once(("reduced", value), find))

    # ---- one part ------------------------------------------------------------------------------

    def part(self, value: Any, dim: int, offset: int, size: int) -> Any:
        """Elements `offset` to `offset + size` of a dimension. Raises NoPart."""
        if shape_of(value)[dim] == size:
            return value
        key = "part", value, dim, offset, size
        found = self._once(key, lambda: self._build(value, dim, offset, size), None)
        if found is None:
            raise NoPart
        return found

    def _build(self, value: Any, dim: int, offset: int, size: int) -> Any:
        op, kind = defining_op(value), resized(value.type, dim, size)
        if op is None:
            return _slice(value, dim, offset, size)
        if op.name == "tensor.concat":
            return self._of_concat(op, dim, offset, size)
        if op.name == "tensor.pad":
            return self._of_pad(op, dim, offset, size)
        if op.name in _RESHAPES:
            before = _before_reshape(op, dim)
            if before is None:
                raise NoPart
            return _reshaped(op, self.part(op.operands[0], before, offset, size), kind)
        if op.name == "tensor.empty":
            return ir.Operation.create("tensor.empty", [kind], list(op.operands)).results[0]
        attr = op.attributes["value"] if op.name == "arith.constant" else None
        if isinstance(attr, ir.DenseElementsAttr) and attr.is_splat:
            splat = ir.DenseElementsAttr.get_splat(kind, attr.get_splat_value())
            return arith.ConstantOp(kind, splat).result
        loops = elementwise(op, value)
        if loops is None:
            return _slice(value, dim, offset, size)
        number = loops.number(value)
        loop = loops.loop_of(loops.inputs + number, dim)
        if loop is None:
            raise NoPart
        operands = self.operands(loops, loop, offset, size, len(op.operands))
        return loops.rebuilt(operands, loop, offset)[number]

    def operands(self, loops: Loops, loop: int, offset: int, size: int, count: int) -> list[Any]:
        """The operands of an op for a part of a loop, the first `count` of them. Raises NoPart."""
        found = list(loops.op.operands)
        for k, results in enumerate(loops.maps[:count]):
            for dim, e in enumerate(results):
                if loop in dims_of(e):
                    if loops.loop_of(k, dim) is None:
                        raise NoPart
                    found[k] = self.part(found[k], dim, offset, size)
        return found

    def _of_concat(self, op: Any, dim: int, offset: int, size: int) -> Any:
        joined = op.attributes["dim"].value
        if joined != dim:
            parts = [self.part(v, dim, offset, size) for v in op.operands]
            kind = resized(op.results[0].type, dim, size)
            return tensor_dialect.ConcatOp(kind, joined, parts).result
        starts = _starts(op.operands, dim) or []
        for value, (start, end) in zip(op.operands, pairwise(starts), strict=False):
            if start <= offset and offset + size <= end:
                return self.part(value, dim, offset - start, size)
        raise NoPart

    def _of_pad(self, op: Any, dim: int, offset: int, size: int) -> Any:
        low, kind = _padding(op, dim), resized(op.results[0].type, dim, size)
        if low is None or DYNAMIC in kind.shape:
            raise NoPart
        end = low + shape_of(op.operands[0])[dim]
        if offset + size <= low or offset >= end:
            return tensor_dialect.SplatOp(kind, _padded_with(op), []).result
        if low <= offset and offset + size <= end and _pads_only(op, dim):
            return self.part(op.operands[0], dim, offset - low, size)
        raise NoPart


# ---- what ops say ------------------------------------------------------------------------------


def shape_of(value: Any) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def resized(kind: Any, dim: int, size: int) -> Any:
    """A tensor type with another extent of one dimension."""
    kind = ir.RankedTensorType(kind)
    shape = [size if k == dim else extent for k, extent in enumerate(kind.shape)]
    return ir.RankedTensorType.get(shape, kind.element_type)


def elementwise(op: Any, value: Any) -> Loops | None:
    """A linalg op that computes each element of `value` from one point of its loops."""
    loops = Loops.of(op)
    if loops is None or loops.reduced():
        return None
    results = loops.maps[loops.inputs + loops.number(value)]
    distinct = {ir.AffineDimExpr(e).position for e in results if isinstance(e, ir.AffineDimExpr)}
    return loops if len(distinct) == len(results) else None


def static_slice(op: Any) -> list[list[int]] | None:
    """Offsets and sizes of a slice with unit strides, where all are static."""
    names = ("offsets", "sizes", "strides")
    offsets, sizes, strides = (list(op.attributes[f"static_{name}"]) for name in names)
    return None if DYNAMIC in offsets + sizes or set(strides) - {1} else [offsets, sizes]


def _sources(op: Any, value: Any, dim: int) -> list[tuple[Any, int]]:
    """The operands, with a dimension each, that have the positions of `dim` in a result."""
    if op.name == "tensor.concat":
        return [(v, dim) for v in op.operands]
    if op.name == "tensor.pad":
        return [(op.operands[0], dim)]
    if op.name in _RESHAPES:
        before = _before_reshape(op, dim)
        return [] if before is None else [(op.operands[0], before)]
    loops = elementwise(op, value)
    loop = loops.loop_of(loops.inputs + loops.number(value), dim) if loops else None
    return [] if loops is None or loop is None else loops.along(loop)


def _starts(values: Iterable[Any], dim: int) -> list[int] | None:
    """Where each of the joined tensors starts, and where the last one ends."""
    starts = [0]
    for value in values:
        if (extent := shape_of(value)[dim]) == DYNAMIC:
            return None
        starts.append(starts[-1] + extent)
    return starts


def _slice(value: Any, dim: int, offset: int, size: int) -> Any:
    """A slice that is read where it lies: it starts at a multiple of its extent."""
    kind = resized(value.type, dim, size)
    whole = shape_of(value)[dim]
    if whole == DYNAMIC or offset % size or whole % size:
        raise NoPart
    index = ir.IndexType.get()
    dynamic = [
        tensor_dialect.dim(value, arith.constant(index, k))
        for k, extent in enumerate(kind.shape) if extent == DYNAMIC
    ]  # fmt: skip
    offsets = [offset if k == dim else 0 for k in range(kind.rank)]
    return tensor_dialect.ExtractSliceOp(
        kind, value, [], dynamic, [], offsets, list(kind.shape), [1] * kind.rank
    ).result


def _padding(op: Any, dim: int) -> int | None:
    """How much a `tensor.pad` adds in front, where it adds one scalar and all is static."""
    low, high = (list(op.attributes[f"static_{side}"])[dim] for side in ("low", "high"))
    if DYNAMIC in (low, high, shape_of(op.operands[0])[dim]) or min(low, high) < 0:
        return None
    return None if _padded_with(op) is None else int(low)


def _padded_with(op: Any) -> Any:
    """The scalar that a `tensor.pad` adds, if it is the same everywhere."""
    block = op.regions[0].blocks[0]
    value = block.operations[len(block.operations) - 1].operation.operands[0]
    made = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    return None if made == block else value


def _pads_only(op: Any, dim: int) -> bool:
    sides = [list(op.attributes[f"static_{side}"]) for side in ("low", "high")]
    return all(n == 0 for side in sides for k, n in enumerate(side) if k != dim)


def _before_reshape(op: Any, dim: int) -> int | None:
    """The dimension before a reshape that is `dim` after it, extents of 1 aside."""
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    groups = _groups(op)
    if op.name == "tensor.collapse_shape":
        long = [k for k in groups[dim] if source[k] != 1]
        return long[0] if len(long) == 1 and source[long[0]] != DYNAMIC else None
    before = next((k for k, group in enumerate(groups) if dim in group), None)
    if before is None:  # of a tensor without dimensions
        return None
    long = [k for k in groups[before] if result[k] != 1]
    return before if long == [dim] and result[dim] != DYNAMIC else None


def _groups(op: Any) -> list[list[int]]:
    return [[k.value for k in group] for group in op.attributes["reassociation"]]


def _reshaped(op: Any, part: Any, kind: Any) -> Any:
    """A reshape of a part, to type `kind`."""
    if op.name == "tensor.collapse_shape":
        return tensor_dialect.CollapseShapeOp(kind, part, _groups(op)).result
    unknown = list(op.operands)[1:]
    return tensor_dialect.ExpandShapeOp(kind, part, _groups(op), unknown, list(kind.shape)).result
