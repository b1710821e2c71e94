# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lower-tm-tensor`: torch-mlir's scans, sorts and scatters as nests and loops.

    scan      out[j] = reduction over k <= j of x[k]; a long one by blocks of about its root,
              or of what a program computes in one pass (`most`: `schedule/map_tiles.py`)
    sort      rank[p] = how many q come before p; out[r] = the x[p] with rank[p] = r
    scatter   a loop over the updates (on CPUs alone)

Where no program has a pass the first two do more work than one in order would (a scan n^1.5, a sort
n^2), and all of it in parallel, on every target. What stands around a scan and makes it run from
the end, or leave out each element itself, is part of it (`scan_forms.py`). A NaN sorts as in
PyTorch: after every number, before them where the largest comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Values, build_map, build_reduce
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.scalars import NoTermForm, identity_value, region_to_terms
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import arith, ir, location_text, scf
from neptune_mlir.ir.bindings import tensor as tensor_dialect
from neptune_mlir.transforms.linalg.scan_forms import whole_scan
from neptune_mlir.transforms.registry import register

SHORT = 64  # a scan of up to so many elements is one reduction


@register("lower-tm-tensor", "turn scans, sorts and scatters of torch-mlir into nests and loops")
def lower_tm_tensor(module: Any, *, most: int = SHORT) -> None:
    """
    Args:
        most: elements of a scan along the last dimension that is one reduction.

    Raises:
        InputError: for an op of the dialect that has no such form.
    """
    rules: dict[str, Callable[[Any], Sequence[Any]]] = {
        "tm_tensor.scan": partial(_scan, most=most), "tm_tensor.sort": _sort,
        "tm_tensor.scatter": _scatter,
    }  # fmt: skip
    for function in functions(module):
        for operation in _operations(function.operation):
            rule = rules.get(operation.name, _refuse)
            if operation.parent != function.operation and rule is not _scatter:
                _refuse(operation, " in a loop")  # that holds no nests
            with ir.InsertionPoint(operation), operation.location:
                results = rule(operation)
            for old, new in zip(operation.results, results, strict=True):
                if new is not None:
                    old.replace_all_uses_with(new)
            operation.erase()


def _operations(function: Any) -> list[Any]:
    found: list[Any] = []

    def look(op: Any) -> Any:
        if op.name.startswith("tm_tensor.") and op.results:
            found.append(op)
        return ir.WalkResult.ADVANCE

    function.walk(look)
    return found


def _refuse(op: Any, why: str = "") -> Sequence[Any]:
    raise InputError(
        f"'{op.name}' has no lowering{why}", loc=location_text(op.location),
        hint="compute it outside of the program and pass its result as an argument",
    )  # fmt: skip


def _extents(tensor: Any) -> tuple[list[int], list[Any]]:
    """The extents of a tensor as a nest takes them: static ones, and values of the others."""
    shape = list(ir.RankedTensorType(tensor.type).shape)
    return shape, [_dim(tensor, k) for k, extent in enumerate(shape) if extent == DYNAMIC]


def _dim(tensor: Any, k: int) -> Any:
    return tensor_dialect.dim(tensor, arith.constant(ir.IndexType.get(), k))


def _dtype(tensor: Any) -> str:
    return str(ir.RankedTensorType(tensor.type).element_type)


def _body(op: Any, arguments: list[Term], values: Values) -> Term:
    block = op.regions[0].blocks[0]
    try:
        (body,) = region_to_terms(
            block, arguments, lambda v: T.sym(values.key(v), str(v.type))
        )  # fmt: skip
    except NoTermForm as reason:
        _refuse(op, f": {reason.message}")
    return body


class _Along:
    """Nests over a tensor's dimensions, in which another loop goes along one of them."""

    def __init__(self, values: Values, tensor: Any, dim: int):
        self.values, self.dim = values, dim
        self.domain, self.unknown = _extents(tensor)
        self.rank = len(self.domain)
        self.extra = [_dim(tensor, dim)] if self.domain[dim] == DYNAMIC else []

    def at(self, tensor: Any, loop: int | None = None, rank: int | None = None) -> Term:
        """The element of a tensor with `loop` in place of the dimension's own loop."""
        loops = [self.dim if loop is None and k == self.dim else loop if k == self.dim else k
                 for k in range(self.rank if rank is None else rank)]  # fmt: skip
        return T.read(self.values.key(tensor), *map(T.index, loops), dtype=_dtype(tensor))

    def reduce(self, combiner: str, body: Term) -> Any:
        """A reduction over one more loop, as long as the dimension."""
        domain = [*self.domain, self.domain[self.dim]]
        unknown = [*self.unknown, *self.extra]
        return build_reduce(self.values, combiner, body, domain, unknown, range(self.rank))


# ---- scans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prefixes:
    """Reductions of what stands up to each element along a dimension, or from it on (`upwards`),
    with or without itself (`inclusive`)."""

    values: Values
    combiner: str
    inclusive: bool
    upwards: bool
    most: int

    def of(self, x: Any, dim: int) -> Any:
        shape = list(ir.RankedTensorType(x.type).shape)
        one = self.most if dim == len(shape) - 1 else SHORT
        block = _block(shape[dim], one) if DYNAMIC not in shape else 0
        if block:
            return self._by_blocks(x, dim, block)
        along = _Along(self.values, x, dim)
        own, other = T.index(dim), T.index(along.rank)
        comparison = ("le" if self.inclusive else "lt", "ge" if self.inclusive else "gt")
        there = T.make(comparison[not self.upwards], other, own)
        neutral = T.const(identity_value(self.combiner, _dtype(x)), _dtype(x))
        body = T.make("select", there, along.at(x, along.rank), neutral)
        return along.reduce(self.combiner, body)

    def _by_blocks(self, x: Any, dim: int, block: int) -> Any:
        """Within each block, and of the blocks before it."""
        kind, values = ir.RankedTensorType(x.type), self.values
        shape = list(kind.shape)
        cut = [*shape[:dim], shape[dim] // block, block, *shape[dim + 1 :]]
        groups = [[k] if k < dim else [k, k + 1] if k == dim else [k + 1]
                  for k in range(len(shape))]  # fmt: skip
        cut_kind = ir.RankedTensorType.get(cut, kind.element_type)
        blocks = tensor_dialect.ExpandShapeOp(cut_kind, x, groups, [], cut).result
        within = self.of(blocks, dim + 1)
        kept = [k for k in range(len(cut)) if k != dim + 1]
        loops = list(map(T.index, range(len(cut))))
        element = T.read(values.key(blocks), *loops, dtype=_dtype(x))
        totals = build_reduce(values, self.combiner, element, cut, [], kept)
        before = replace(self, inclusive=False).of(totals, dim)
        first = T.read(values.key(before), *(loops[k] for k in kept), dtype=_dtype(x))
        rest = T.read(values.key(within), *loops, dtype=_dtype(x))
        joined = build_map(values, T.make(self.combiner, first, rest), cut, [])
        return tensor_dialect.CollapseShapeOp(kind, joined, groups).result


def _scan(op: Any, most: int) -> Sequence[Any]:
    dim, inclusive = op.attributes["dimension"].value, op.attributes["inclusive"].value
    values, dtype = Values(), _dtype(op.operands[0])
    left, right = T.sym("left", dtype), T.sym("right", dtype)
    body = _body(op, [left, right], values)
    if body.op not in ("add", "mul", "max", "min") or set(body.args) != {left, right}:
        _refuse(op, " for what it combines elements with")
    combiner, x, total = body.op, op.operands[0], None
    if next(iter(op.results[1].uses), None) is not None:
        shape, unknown = _extents(x)
        kept = [k for k in range(len(shape)) if k != dim]
        element = T.read(values.key(x), *map(T.index, range(len(shape))), dtype=dtype)
        total = build_reduce(values, combiner, element, shape, unknown, kept)
    scan = whole_scan(op, dim, inclusive, identity_value(combiner, dtype))
    made = _Prefixes(values, combiner, scan.inclusive, scan.upwards, most).of(scan.x, dim)
    if scan.around is not None:
        scan.around.results[0].replace_all_uses_with(made)
        scan.around.erase()
    return made, total


def _block(extent: int, most: int) -> int:
    """How many elements a block has: the divisor nearest to the root, or the largest for which
    there is a pass (more than SHORT); 0 for a scan in one."""
    if extent <= most:
        return 0
    divisors = [d for d in range(2, extent) if extent % d == 0]
    if long := [d for d in divisors if SHORT < d <= most]:
        return max(long)
    best = min(divisors, key=lambda d: (d + extent // d, d), default=0)
    return best if best and best + extent // best <= extent // 2 else 0


# ---- sorts ---------------------------------------------------------------------------------------


def _sort(op: Any) -> Sequence[Any]:
    tensors, dim, values = list(op.operands), op.attributes["dimension"].value, Values()
    along = _Along(values, tensors[0], dim)
    own, other = T.index(dim), T.index(along.rank)

    def in_order(first: int | None, second: int | None) -> Term:
        pairs = [along.at(t, loop) for t in tensors for loop in (first, second)]
        return _with_nans(_body(op, pairs, values), pairs[0], pairs[1])

    earlier = T.make("lt", other, own)
    after = T.make("not", in_order(None, along.rank))
    precedes = T.make("select", earlier, in_order(along.rank, None), after)
    counted = T.make("and", T.make("ne", other, own), precedes)
    rank = along.reduce("add", T.make("cast", counted, dtype="i64"))
    hit = T.make("eq", along.at(rank, along.rank), T.make("cast", own, dtype="i64"))
    results = []
    for tensor in tensors:
        dtype = _dtype(tensor)  # one element is hit: the largest of it and nothing is it
        nothing = T.const(identity_value("max", dtype), dtype)
        body = T.make("select", hit, along.at(tensor, along.rank), nothing)
        results.append(along.reduce("max", body))
    return results


def _with_nans(condition: Term, first: Term, second: Term) -> Term:
    """Whether two elements are in order, NaN being larger than every number."""
    if not T.is_float(first.dtype) or set(condition.args) != {first, second}:
        return condition
    rising = condition.op in ("lt", "le")
    if not rising and condition.op not in ("gt", "ge"):
        return condition
    largest = second if rising else first
    return T.make("or", condition, T.make("ne", largest, largest))


# ---- scatters ------------------------------------------------------------------------------------


def _scatter(op: Any) -> Sequence[Any]:
    updates, indices, target = op.operands
    dims = list(op.attributes["dimension_map"])
    rank = len(ir.RankedTensorType(target.type).shape)
    window = len(ir.RankedTensorType(updates.type).shape) - 1
    index = ir.IndexType.get()
    zero, one = (arith.constant(index, k) for k in (0, 1))
    limits = [_dim(target, k) for k in range(rank)]

    def point(position: list[Any], tensor: Any) -> Any:
        """One update; a position outside of the tensor changes nothing."""
        at, inside = [], arith.constant(ir.IntegerType.get_signless(1), 1)
        for k in range(rank):
            moved = k - (rank - window)
            place = position[1 + moved] if moved >= 0 else zero
            if k in dims:
                column = arith.constant(index, dims.index(k))
                found = tensor_dialect.extract(indices, [position[0], column])
                place = arith.addi(place, arith.index_cast(index, found))
            low = arith.cmpi(arith.CmpIPredicate.sge, place, zero)
            high = arith.cmpi(arith.CmpIPredicate.slt, place, limits[k])
            valid = arith.andi(low, high)
            inside = arith.andi(inside, valid)
            at.append(arith.select(valid, place, zero))
        old = tensor_dialect.extract(tensor, at)
        new = _inlined(op.regions[0].blocks[0], [tensor_dialect.extract(updates, position), old])
        return tensor_dialect.insert(arith.select(inside, new, old), tensor, at)

    def nest(position: list[Any], tensor: Any) -> Any:
        if len(position) == window + 1:
            return point(position, tensor)
        loop = scf.ForOp(zero, _dim(updates, len(position)), one, [tensor])
        with ir.InsertionPoint(loop.body):
            done = nest([*position, loop.induction_variable], loop.inner_iter_args[0])
            scf.YieldOp([done])
        return loop.results[0]

    return [nest([], target)]


def _inlined(block: Any, arguments: list[Any]) -> Any:
    """What a block yields for its arguments, its ops copied to the insertion point."""
    table = dict(zip(block.arguments, arguments, strict=True))
    for op in block.operations:
        operands = [table.get(v, v) for v in op.operation.operands]
        if op.operation.name == "tm_tensor.yield":
            return operands[0]
        copy = op.operation.clone(ip=ir.InsertionPoint.current).operation
        for k, value in enumerate(operands):
            copy.operands[k] = value
        table.update(zip(op.operation.results, copy.results, strict=True))
    raise AssertionError("a region without a yield")
