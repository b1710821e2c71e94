# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of StableHLO without a conversion to linalg, as others that have one.

    scatter             one update for each point of the batch: a choice by position (the gradient
                        of `take_along_axis`, so of a cross-entropy); others: `tm_tensor.scatter`
    sort, top_k         `tm_tensor.sort`
    select_and_scatter  each place of a window as a strided slice: the windows that chose it
    optimization_barrier  what it is given (`jax.checkpoint`): what is computed again is fused here

What none of these describes stays, and is refused by its name.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.driver.stablehlo_bodies import (
    NoForm,
    element_of,
    made,
    negated,
    of_numbers,
    of_tensors,
    shape_of,
    signless,
    spread,
)
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.ir.bindings import module as bindings_module

WINDOW = 64  # places of a window that are written out


def rewrite(op: Any) -> bool:
    """Put another form in place of an op; False where it stays."""
    form = _FORMS.get(op.name)
    if form is None or any(ir.ShapedType(v.type).has_static_shape is False for v in op.operands):
        return False
    with ir.InsertionPoint(op), op.location:
        try:
            results = form(op)
        except NoForm:
            return False
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
    return True


# ---- small forms ---------------------------------------------------------------------------------


def _filled(shape: Sequence[int], element: Any, number: float) -> Any:
    kind = ir.RankedTensorType.get(list(shape), element)
    made_of = ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr
    value = made_of.get(element, number if made_of is ir.FloatAttr else int(number))
    held = ir.DenseElementsAttr.get_splat(kind, value)
    return made("constant", [], shape, element, value=held)


def _integer(bits: int) -> Any:
    return ir.IntegerType.get_signless(bits)


def _positions(shape: Sequence[int], dim: int, element: Any) -> Any:
    attribute = ir.IntegerAttr.get(_integer(64), dim)
    return made("iota", [], shape, element, iota_dimension=attribute)


def _compared(direction: str, a: Any, b: Any) -> Any:
    attribute = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
    return made("compare", [a, b], shape_of(a), _integer(1), comparison_direction=attribute)


def _all(conditions: Sequence[Any]) -> Any:
    return functools.reduce(lambda a, b: made("and", [a, b], shape_of(a), _integer(1)), conditions)


def _select(condition: Any, a: Any, b: Any) -> Any:
    return made("select", [condition, a, b], shape_of(a), element_of(a))


def _reshape(value: Any, shape: Sequence[int]) -> Any:
    if shape_of(value) == list(shape):
        return value
    return made("reshape", [value], shape, element_of(value))


def _transpose(value: Any, order: Sequence[int]) -> Any:
    if list(order) == list(range(len(order))):
        return value
    shape = shape_of(value)
    attribute = ir.DenseI64ArrayAttr.get(list(order))
    return made(
        "transpose", [value], [shape[k] for k in order], element_of(value), permutation=attribute
    )  # fmt: skip


def _slice(
    value: Any, start: Sequence[int], end: Sequence[int], step: Sequence[int] | None = None
) -> Any:  # fmt: skip
    step = [1] * len(start) if step is None else list(step)
    shape = [-(-(b - a) // s) for a, b, s in zip(start, end, step, strict=True)]
    given = {"start_indices": start, "limit_indices": end, "strides": step}
    attributes = {name: ir.DenseI64ArrayAttr.get(list(v)) for name, v in given.items()}
    return made("slice", [value], shape, element_of(value), **attributes)


def _pad(
    value: Any, low: Sequence[int], high: Sequence[int], inner: Sequence[int], number: float = 0
) -> Any:  # fmt: skip
    shape = [
        a + b + n + max(n - 1, 0) * i
        for n, a, b, i in zip(shape_of(value), low, high, inner, strict=True)
    ]
    given = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    attributes = {name: ir.DenseI64ArrayAttr.get(list(v)) for name, v in given.items()}
    filler = _filled([], element_of(value), number)
    return made("pad", [value, filler], shape, element_of(value), **attributes)


def _signless(value: Any) -> Any:
    """A tensor of numbers that `arith` takes."""
    element = signless(element_of(value))
    if element == element_of(value):
        return value
    return made("bitcast_convert", [value], shape_of(value), element)


def _as_before(value: Any, old: Any) -> Any:
    if element_of(value) == element_of(old):
        return value
    return made("bitcast_convert", [value], shape_of(value), element_of(old))


# ---- scatters ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scatter:
    """A scatter of one tensor: which dimensions are what.

    Attributes:
        places: dimensions of the indices without that of the vectors, one for each of `points`.
        points: dimensions of the updates that say which update it is.
        windows: of each dimension of the operand, the dimension of the updates, or None.
        batch: (dimension of the operand, position among `points`) that go together.
        indexed: of each column of the indices, the dimension of the operand.
    """

    op: Any
    operand: Any
    updates: Any
    indices: Any  # the vectors along the last dimension
    points: list[int]
    windows: list[int | None]
    batch: list[tuple[int, int]]
    indexed: list[int]

    @property
    def body(self) -> Any:
        return self.op.regions[0].blocks[0]

    def sizes(self) -> list[int]:
        """Of a window, along each dimension of the operand."""
        extents = shape_of(self.updates)
        return [1 if w is None else extents[w] for w in self.windows]

    def one_each(self) -> bool:
        """Whether a point of the batch has one update at most."""
        along = {point for _, point in self.batch}
        extents = shape_of(self.updates)
        return all(extents[d] == 1 for k, d in enumerate(self.points) if k not in along)

    def valid(self) -> Any:
        """Of each point, whether its window lies within the operand as a whole."""
        extents, sizes = shape_of(self.operand), self.sizes()
        shape = shape_of(self.indices)
        last = len(shape) - 1
        rooms = [extents[d] - sizes[d] for d in self.indexed]
        conditions = []
        for k, room in enumerate(rooms):
            column = self.column(k)
            kind = element_of(column)
            conditions.append(_compared("GE", column, _filled(shape[:last], kind, 0)))
            conditions.append(_compared("LE", column, _filled(shape[:last], kind, room)))
        return _all(conditions)

    def column(self, k: int) -> Any:
        """The k-th number of each vector, one for each point."""
        shape = shape_of(self.indices)
        start, end = [0] * len(shape), list(shape)
        start[-1], end[-1] = k, k + 1
        return _reshape(_slice(self.indices, start, end), shape[:-1])


def _scatter(op: Any) -> Sequence[Any]:
    if len(op.operands) != 3:
        raise NoForm("several tensors")
    scatter = _read_scatter(op)
    if not scatter.indexed or 0 in shape_of(scatter.updates):
        raise NoForm("no positions")
    full = [e == s or k in scatter.indexed for k, (e, s) in
            enumerate(zip(shape_of(scatter.operand), scatter.sizes(), strict=True))]  # fmt: skip
    for k, _ in scatter.batch:
        full[k] = True
    single = all(scatter.sizes()[d] == 1 for d in scatter.indexed)
    if scatter.one_each() and single and all(full):
        return [_by_choice(scatter)]
    return [_by_loops(scatter)]


def _read_scatter(op: Any) -> _Scatter:
    operand, indices, updates = op.operands
    kinds = bindings_module("_mlir_libs._stablehlo")
    numbers = kinds.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    vectors = numbers.index_vector_dim
    if vectors == len(shape_of(indices)):
        indices = _reshape(indices, [*shape_of(indices), 1])
    rank = len(shape_of(indices))
    places = [k for k in range(rank) if k != vectors]
    indices = _transpose(indices, [*places, vectors])
    if signless(element_of(indices)) != element_of(indices):
        indices = made("convert", [indices], shape_of(indices), _integer(64))
    windowed = list(numbers.update_window_dims)
    inserted, batched = list(numbers.inserted_window_dims), list(numbers.input_batching_dims)
    along = iter(windowed)
    windows = [
        None if k in inserted or k in batched else next(along)
        for k in range(len(shape_of(operand)))
    ]
    along_points = map(places.index, numbers.scatter_indices_batching_dims)
    batch = list(zip(batched, along_points, strict=True))
    return _Scatter(
        op, operand, updates, indices,
        [k for k in range(len(shape_of(updates))) if k not in windowed], windows, batch,
        list(numbers.scattered_dims_to_operand_dims),
    )  # fmt: skip


def _by_choice(s: _Scatter) -> Any:
    """Each element of the operand asks whether the update of its point of the batch is for it."""
    shape = shape_of(s.operand)
    of_point = {point: k for k, point in s.batch}

    def over_operand(value: Any, dims: Sequence[int | None]) -> Any:
        """A tensor over the operand, from one whose dimensions are these of it, None for units."""
        kept = [k for k, d in enumerate(dims) if d is not None]
        order = sorted(kept, key=lambda k: dims[k])  # type: ignore[arg-type,return-value]
        value = _reshape(value, [shape_of(value)[k] for k in kept])
        value = _transpose(value, [kept.index(k) for k in order])
        return spread(value, shape, [d for k in order if (d := dims[k]) is not None])

    of_points = [of_point.get(k) for k in range(len(s.points))]
    hits = []
    for k, dim in enumerate(s.indexed):
        column = over_operand(s.column(k), of_points)
        hits.append(_compared("EQ", column, _positions(shape, dim, element_of(column))))
    dims: list[int | None] = [None] * len(shape_of(s.updates))
    for point, update_dim in zip(of_points, s.points, strict=True):
        dims[update_dim] = point
    for dim, window in enumerate(s.windows):
        if window is not None and dim not in s.indexed:
            dims[window] = dim
    updates = over_operand(s.updates, dims)
    return _select(_all(hits), of_tensors(s.body, [s.operand, updates], shape), s.operand)


def _by_loops(s: _Scatter) -> Any:
    """Vectors of all positions, of the batch's too, and a window of each update as large as the
    operand has dimensions. A window that does not fit is moved out as a whole."""
    count = math.prod(shape_of(s.updates)[k] for k in s.points)
    order = [w for w in s.windows if w is not None]
    updates = _reshape(_transpose(s.updates, [*s.points, *order]), [count, *s.sizes()])
    kind, shape = element_of(s.indices), shape_of(s.indices)
    outside = _filled(shape[:-1], kind, -max(shape_of(s.operand)))
    valid = s.valid()
    columns = [_select(valid, s.column(k), outside) for k in range(len(s.indexed))]
    columns += [_positions(shape[:-1], point, kind) for _, point in s.batch]
    columns = [_reshape(c, [count, 1]) for c in columns]
    attribute = ir.IntegerAttr.get(_integer(64), 1)
    vectors = made("concatenate", columns, [count, len(columns)], kind, dimension=attribute)
    operand, updates = _signless(s.operand), _signless(updates)
    dims = [*s.indexed, *(k for k, _ in s.batch)]
    element = element_of(operand)
    op = ir.Operation.create(
        "tm_tensor.scatter", results=[operand.type], operands=[updates, vectors, operand],
        attributes={
            "dimension_map": ir.DenseI64ArrayAttr.get(dims),
            "unique_indices": ir.BoolAttr.get(False),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
        },
        regions=1,
    )  # fmt: skip
    _region(op, [element, element], lambda update, old: of_numbers(s.body, [old, update]))
    return _as_before(op.results[0], s.operand)


def _region(op: Any, kinds: Sequence[Any], body: Callable[..., Any]) -> None:
    try:
        block = op.regions[0].blocks.append(*kinds)
        with ir.InsertionPoint(block):
            ir.Operation.create("tm_tensor.yield", operands=[body(*block.arguments)])
    except NoForm:
        op.erase()
        raise


# ---- sorts ---------------------------------------------------------------------------------------


def _sort(op: Any) -> Sequence[Any]:
    body = op.regions[0].blocks[0]

    def in_order(*pairs: Any) -> Any:
        """Whether the second of two is not to come before the first: equal ones stay in order."""
        turned = [pairs[k ^ 1] for k in range(len(pairs))]
        return negated(of_numbers(body, turned))

    results = _sorted(list(op.operands), op.attributes["dimension"].value, in_order)
    return [_as_before(r, old) for r, old in zip(results, op.operands, strict=True)]


def _sorted(tensors: Sequence[Any], dim: int, in_order: Callable[..., Any]) -> list[Any]:
    plain = [_signless(t) for t in tensors]
    op = ir.Operation.create(
        "tm_tensor.sort", results=[t.type for t in plain], operands=plain,
        attributes={
            "dimension": ir.IntegerAttr.get(_integer(64), dim),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, len(plain)]),
        },
        regions=1,
    )  # fmt: skip
    kinds = [element_of(t) for t in plain for _ in range(2)]
    _region(op, kinds, in_order)
    return list(op.results)


def _top_k(op: Any) -> Sequence[Any]:
    (x,), k = op.operands, op.attributes["k"].value
    shape = shape_of(x)
    is_float = isinstance(element_of(x), ir.FloatType)
    if not is_float and element_of(x).is_unsigned:
        raise NoForm("an order of numbers without a sign")

    def in_order(a: Any, b: Any, *_: Any) -> Any:
        if is_float:  # what is after it in the program puts NaN before all numbers
            return arith.cmpf(arith.CmpFPredicate.OGE, a, b)
        return arith.cmpi(arith.CmpIPredicate.sge, a, b)

    last = len(shape) - 1
    places = _positions(shape, last, _integer(32))
    values, found = _sorted([x, places], last, in_order)
    end = [*shape[:last], k]
    start = [0] * len(shape)
    return [_slice(_as_before(values, x), start, end), _slice(found, start, end)]


# ---- windows -------------------------------------------------------------------------------------


def _select_and_scatter(op: Any) -> Sequence[Any]:
    operand, source, first = op.operands
    select, scatter = (region.blocks[0] for region in op.regions)
    if [o.operation.name for o in scatter.operations] != ["stablehlo.add", "stablehlo.return"]:
        raise NoForm("what windows are joined by")
    shape, counts = shape_of(operand), shape_of(source)
    rank = len(shape)
    sizes = _listed(op, "window_dimensions", [1] * rank)
    steps = _listed(op, "window_strides", [1] * rank)
    padding = [0] * (2 * rank)
    if "padding" in op.attributes:
        padding = [int(n) for n in ir.DenseIntElementsAttr(op.attributes["padding"])]
    low, high = padding[::2], padding[1::2]
    if math.prod(sizes) > WINDOW or min(padding, default=0) < 0:
        raise NoForm("a large window")
    padded = [n + a + b for n, a, b in zip(shape, low, high, strict=True)]
    none = [0] * rank
    x, real = operand, None
    if any(padding):
        x = _pad(operand, low, high, none)
        real = _pad(_filled(shape, _integer(1), 1), low, high, none)
    offsets = list(itertools.product(*map(range, sizes)))

    def at(value: Any, offset: Sequence[int]) -> Any:
        end = [o + (n - 1) * s + 1 for o, n, s in zip(offset, counts, steps, strict=True)]
        return _slice(value, offset, end, steps)

    chosen = _chosen(select, offsets, counts, x, real, at)
    element = element_of(operand)
    total = spread(first, padded, [])
    for k, offset in enumerate(offsets):
        mine = _compared("EQ", chosen, _filled(counts, _integer(32), k))
        part = _select(mine, source, _filled(counts, element, 0))
        behind = [p - (n - 1) * s - 1 - o for p, n, s, o in
                  zip(padded, counts, steps, offset, strict=True)]  # fmt: skip
        part = _pad(part, offset, behind, [s - 1 for s in steps])
        total = of_tensors(scatter, [total, part], padded)
    return [_slice(total, low, [a + n for a, n in zip(low, shape, strict=True)])]


def _chosen(
    select: Any, offsets: Sequence[Sequence[int]], counts: Sequence[int], x: Any, real: Any,
    at: Callable[..., Any],
) -> Any:  # fmt: skip
    """Of each window the number of the place that is chosen; -1 where none of it is real."""
    kind, truth = _integer(32), _integer(1)
    best = at(x, offsets[0])
    chosen = _filled(counts, kind, 0)
    found = None
    if real is not None:
        found = at(real, offsets[0])
        chosen = _select(found, chosen, _filled(counts, kind, -1))
    for k, offset in enumerate(offsets[1:], 1):
        other = at(x, offset)
        kept = of_tensors(select, [best, other], counts)
        if real is not None:
            there = at(real, offset)
            kept = made("and", [kept, found], counts, truth)
            kept = made("or", [kept, made("not", [there], counts, truth)], counts, truth)
            found = made("or", [found, there], counts, truth)
        best = _select(kept, best, other)
        chosen = _select(kept, chosen, _filled(counts, kind, k))
    return chosen


def _listed(op: Any, name: str, default: list[int]) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else default


_FORMS: Mapping[str, Callable[[Any], Sequence[Any]]] = {
    "stablehlo.scatter": _scatter, "stablehlo.sort": _sort, "chlo.top_k": _top_k,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.optimization_barrier": lambda op: list(op.operands),
}  # fmt: skip
