# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters of StableHLO: one update, or one for each point of the batch, is a choice by position;
of slices that are joined or set, each place asks all updates; others are `tm_tensor.scatter`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neptune_mlir.driver.limits import PAIRS
from neptune_mlir.driver.stablehlo.bodies import (
    NoForm,
    element_of,
    made,
    of_numbers,
    of_tensors,
    shape_of,
    signless,
    spread,
)
from neptune_mlir.driver.stablehlo.known import MOST, elements
from neptune_mlir.driver.stablehlo.ops import (
    as_before,
    as_signless,
    compared,
    conjunction,
    fill_region,
    filled,
    integer,
    positions,
    reshape,
    select_of,
    slice_of,
    transpose,
)
from neptune_mlir.driver.stablehlo.updates import placed
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.bindings import module as bindings_module

MOST_TABLES = 4  # of updates that are for one place, which a program says
_NEUTRAL = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}


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
            conditions.append(compared("GE", column, filled(shape[:last], kind, 0)))
            conditions.append(compared("LE", column, filled(shape[:last], kind, room)))
        return conjunction(conditions)

    def count(self) -> int:
        """The number of updates."""
        return math.prod(shape_of(self.updates)[k] for k in self.points)

    def places_of_windows(self) -> list[int]:
        """Extents of the dimensions that are indexed."""
        return [shape_of(self.operand)[d] for d in self.indexed]

    def pairs(self) -> int:
        """Of updates' slices and positions along the dimensions that are indexed."""
        slices = math.prod(self.sizes()[d] for d in self.indexed)
        return self.count() * slices * math.prod(self.places_of_windows())

    def joined(self) -> str:
        """The op that an update and the element before it are joined by, where any order of updates
        gives the same but for rounding, else ""."""
        first, *rest = [op.operation for op in self.body.operations]
        name = first.name.removeprefix("stablehlo.")
        numbers = element_of(self.operand)
        known = isinstance(numbers, ir.FloatType) or (
            name in ("add", "multiply") and isinstance(numbers, ir.IntegerType)
            and numbers.width > 1
        )  # fmt: skip
        alone = len(rest) == 1 and {*first.operands} == {*self.body.arguments}
        return name if alone and known and name in _NEUTRAL else ""

    def replaces(self) -> bool:
        """Whether an update takes the place of the element before it."""
        (end,) = [op.operation for op in self.body.operations][-1:]
        return len(list(self.body.operations)) == 1 and end.operands[0] == self.body.arguments[1]

    def column(self, k: int) -> Any:
        """The k-th number of each vector, one for each point."""
        shape = shape_of(self.indices)
        start, end = [0] * len(shape), list(shape)
        start[-1], end[-1] = k, k + 1
        return reshape(slice_of(self.indices, start, end), shape[:-1])


def scatter(op: Any) -> Sequence[Any]:
    """A scatter as a choice by position, or as loops over positions."""
    if len(op.operands) != 3:
        raise NoForm("several tensors")
    read = _read_scatter(op)
    if not read.indexed or 0 in shape_of(read.updates):
        raise NoForm("no positions")
    full = [e == s or k in read.indexed for k, (e, s) in
            enumerate(zip(shape_of(read.operand), read.sizes(), strict=True))]  # fmt: skip
    for k, _ in read.batch:
        full[k] = True
    single = all(read.sizes()[d] == 1 for d in read.indexed)
    if read.one_each() and single and all(full):
        return [_by_choice(read)]
    if read.count() == 1 and not read.batch and not single:
        return [_by_place(read)]
    name = read.joined()
    if all(full) and not read.batch and (name or read.replaces()):
        slices = _of_slices(read)
        if (tables := _tables(slices, once=not name)) is not None:
            return [_by_tables(slices, name, tables)]
        if read.pairs() <= PAIRS:
            return [_by_reduction(slices, name) if name else _by_last(slices)]
    if read.count() == 1 and not read.batch:
        return [_by_place(read)]
    return [_by_loops(read)]


def _read_scatter(op: Any) -> _Scatter:
    operand, indices, updates = op.operands
    kinds = bindings_module("_mlir_libs._stablehlo")
    numbers = kinds.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    vectors = numbers.index_vector_dim
    if vectors == len(shape_of(indices)):
        indices = reshape(indices, [*shape_of(indices), 1])
    rank = len(shape_of(indices))
    places = [k for k in range(rank) if k != vectors]
    indices = transpose(indices, [*places, vectors])
    if signless(element_of(indices)) != element_of(indices):
        indices = made("convert", [indices], shape_of(indices), integer(64))
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


def _of_slices(s: _Scatter) -> _Scatter:
    """The scatter with an update for each slice of a window along what is indexed. Those of a
    window that does not fit are outside, too."""
    sizes = s.sizes()
    wide = [d for d in s.indexed if sizes[d] > 1]
    if not wide:
        return s
    kind, before = element_of(s.indices), shape_of(s.indices)[:-1]
    valid = s.valid()
    outside = filled(before, kind, -max(shape_of(s.operand)))
    shape = [*before, *(sizes[d] for d in wide)]
    columns = []
    for k, d in enumerate(s.indexed):
        column = spread(select_of(valid, s.column(k), outside), shape, range(len(before)))
        if d in wide:
            step = positions(shape, len(before) + wide.index(d), kind)
            column = made("add", [column, step], shape, kind)
        columns.append(reshape(column, [*shape, 1]))
    last = ir.IntegerAttr.get(integer(64), len(shape))
    indices = made("concatenate", columns, [*shape, len(columns)], kind, dimension=last)
    along = [w for d in wide if (w := s.windows[d]) is not None]
    windows = [None if d in wide else w for d, w in enumerate(s.windows)]
    return replace(s, indices=indices, points=[*s.points, *along], windows=windows)


def _by_choice(s: _Scatter) -> Any:
    """Each element of the operand asks whether the update of its point of the batch is for it."""
    shape = shape_of(s.operand)
    of_point = {point: k for k, point in s.batch}

    def over_operand(value: Any, dims: Sequence[int | None]) -> Any:
        """A tensor over the operand, from one whose dimensions are these of it, None for units."""
        kept = [k for k, d in enumerate(dims) if d is not None]
        order = sorted(kept, key=lambda k: dims[k])  # type: ignore[arg-type,return-value]
        value = reshape(value, [shape_of(value)[k] for k in kept])
        value = transpose(value, [kept.index(k) for k in order])
        return spread(value, shape, [d for k in order if (d := dims[k]) is not None])

    of_points = [of_point.get(k) for k in range(len(s.points))]
    hits = []
    for k, dim in enumerate(s.indexed):
        column = over_operand(s.column(k), of_points)
        hits.append(compared("EQ", column, positions(shape, dim, element_of(column))))
    dims: list[int | None] = [None] * len(shape_of(s.updates))
    for point, update_dim in zip(of_points, s.points, strict=True):
        dims[update_dim] = point
    for dim, window in enumerate(s.windows):
        if window is not None and dim not in s.indexed:
            dims[window] = dim
    updates = over_operand(s.updates, dims)
    return select_of(conjunction(hits), of_tensors(s.body, [s.operand, updates], shape), s.operand)


def _by_reduction(s: _Scatter, name: str) -> Any:
    """Each slice is joined with those of all updates that are for it."""
    shape, kind = shape_of(s.operand), element_of(s.operand)
    at, rest, windows = _apart(s)
    updates = reshape(transpose(s.updates, [*s.points, *windows]), [s.count(), *rest])
    whole = [*at, s.count(), *rest]
    updates = spread(updates, whole, range(len(at), len(whole)))
    given = select_of(_hits(s, whole), updates, filled(whole, kind, _NEUTRAL[name]))
    found = _reduced(name, given, len(at), kind, _NEUTRAL[name])
    joined = made(name, [s.operand, transpose(found, _back(s))], shape, kind)
    if name != "add" or not isinstance(kind, ir.FloatType):
        return joined
    # -0 with a sum of nothing would be 0
    some = _reduced("or", _hits(s, whole[: len(at) + 1]), len(at), integer(1), 0)
    taken = spread(some, [*at, *rest], range(len(at)))
    return select_of(transpose(taken, _back(s)), joined, s.operand)


def _by_place(s: _Scatter) -> Any:
    """One window, of a known size, at a place that data may say: a choice by position."""
    shape, kind = shape_of(s.operand), element_of(s.indices)
    order = [w for w in s.windows if w is not None]
    part = reshape(transpose(s.updates, [*s.points, *order]), s.sizes())
    starts = [filled([], kind, 0)] * len(shape)
    for k, dim in enumerate(s.indexed):
        starts[dim] = reshape(s.column(k), [])
    moved, inside = placed(part, starts, shape)
    hit = conjunction([*inside, spread(reshape(s.valid(), []), shape, [])])
    return select_of(hit, of_tensors(s.body, [s.operand, moved], shape), s.operand)


def _by_last(s: _Scatter) -> Any:
    """Each slice looks up which update is for it, the last of several."""
    numbers = integer(32)
    at, _, _ = _apart(s)
    pairs = [*at, s.count()]
    order = positions(pairs, len(at), numbers)
    none = filled(pairs, numbers, -1)
    last = _reduced("maximum", select_of(_hits(s, pairs), order, none), len(at), numbers, -1)
    taken, chosen = _looked_up(s, last)
    return select_of(taken, chosen, s.operand)


def _looked_up(s: _Scatter, last: Any) -> tuple[Any, Any]:
    """Whether an update is for an element, and which: a tensor over what is indexed says it by the
    number of the update, or -1."""
    kind, numbers = element_of(s.operand), element_of(last)
    at, rest, windows = _apart(s)
    updates = reshape(transpose(s.updates, [*s.points, *windows]), [s.count(), *rest])
    dims = [*range(len(at), len(at) + len(rest))]
    attribute = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {dims}, collapsed_slice_dims = [0], "
        f"start_index_map = [0], index_vector_dim = {len(at)}>"
    )
    chosen = made(
        "gather", [updates, last], [*at, *rest], kind, dimension_numbers=attribute,
        slice_sizes=ir.DenseI64ArrayAttr.get([1, *rest]),
    )  # fmt: skip
    is_one = compared("GE", last, filled(at, numbers, 0))
    is_one = spread(is_one, [*at, *rest], range(len(at)))
    taken, chosen = (transpose(value, _back(s)) for value in (is_one, chosen))
    return taken, chosen


def _tables(s: _Scatter, once: bool) -> list[Any] | None:
    """Of each place along what is indexed, the number of an update that is for it, or -1, where
    the program says all places: so many tables that each update is in one. None where it does not
    say, and where a place has many.

    Args:
        once: the last update of a place is enough.
    """
    known, extents = elements(s.indices), s.places_of_windows()
    if known is None or np.prod(extents) > MOST:
        return None
    vectors = known.reshape(-1, len(extents)).astype(np.int64)
    inside = ((vectors >= 0) & (vectors < extents)).all(-1)
    numbers = np.flatnonzero(inside)
    flat = np.ravel_multi_index(tuple(vectors[inside].T), extents)
    tables: list[Any] = []
    while len(numbers) and len(tables) < MOST_TABLES:
        table = np.full(np.prod(extents), -1, np.int32)
        table[flat] = numbers  # of several the last
        left = table[flat] != numbers
        tables.append(table.reshape(extents))
        if once:
            return tables
        flat, numbers = flat[left], numbers[left]
    return None if len(numbers) else tables


def _by_tables(s: _Scatter, name: str, tables: Sequence[Any]) -> Any:
    """Each slice looks up the updates that are for it, in tables that the program says."""
    found, shape, kind = s.operand, shape_of(s.operand), element_of(s.operand)
    for table in tables:
        held = ir.DenseElementsAttr.get(np.ascontiguousarray(table))
        last = made("constant", [], list(table.shape), integer(32), value=held)
        taken, chosen = _looked_up(s, last)
        joined = made(name, [found, chosen], shape, kind) if name else chosen
        found = select_of(taken, joined, found)
    return found


def _apart(s: _Scatter) -> tuple[list[int], list[int], list[int]]:
    """Extents of the operand that are indexed, the others, and what dimensions of the updates go
    along the others. (Those of single elements are dropped.)"""
    shape = shape_of(s.operand)
    rest = [k for k in range(len(shape)) if k not in s.indexed]
    kept = [w for k in rest if (w := s.windows[k]) is not None]
    units = [w for k in s.indexed if (w := s.windows[k]) is not None]
    return s.places_of_windows(), [shape[k] for k in rest], [*units, *kept]


def _back(s: _Scatter) -> list[int]:
    """The order of the operand's dimensions from those that are indexed and the others."""
    order = [*s.indexed, *(k for k in range(len(s.windows)) if k not in s.indexed)]
    return [order.index(k) for k in range(len(order))]


def _hits(s: _Scatter, whole: Sequence[int]) -> Any:
    """Of places, updates and what is behind, whether the update is for the place."""
    count = len(s.indexed)
    found = []
    for k in range(count):
        column = reshape(s.column(k), [s.count()])
        place = positions(list(whole), k, element_of(column))
        found.append(compared("EQ", spread(column, whole, [count]), place))
    return conjunction(found)


def _reduced(name: str, given: Any, dim: int, kind: Any, first: float) -> Any:
    shape = shape_of(given)
    result = ir.RankedTensorType.get([*shape[:dim], *shape[dim + 1 :]], kind)
    op = ir.Operation.create(
        "stablehlo.reduce", results=[result], operands=[given, filled([], kind, first)],
        attributes={"dimensions": ir.DenseI64ArrayAttr.get([dim])}, regions=1,
    )  # fmt: skip
    block = op.regions[0].blocks.append(*[ir.RankedTensorType.get([], kind)] * 2)
    with ir.InsertionPoint(block):
        joined = made(name, [*block.arguments], [], kind)
        ir.Operation.create("stablehlo.return", operands=[joined])
    return op.results[0]


def _by_loops(s: _Scatter) -> Any:
    """Vectors of all positions, of the batch's too, and a window of each update as large as the
    operand has dimensions. A window that does not fit is moved out as a whole."""
    count = s.count()
    order = [w for w in s.windows if w is not None]
    updates = reshape(transpose(s.updates, [*s.points, *order]), [count, *s.sizes()])
    kind, shape = element_of(s.indices), shape_of(s.indices)
    outside = filled(shape[:-1], kind, -max(shape_of(s.operand)))
    valid = s.valid()
    columns = [select_of(valid, s.column(k), outside) for k in range(len(s.indexed))]
    columns += [positions(shape[:-1], point, kind) for _, point in s.batch]
    columns = [reshape(c, [count, 1]) for c in columns]
    attribute = ir.IntegerAttr.get(integer(64), 1)
    vectors = made("concatenate", columns, [count, len(columns)], kind, dimension=attribute)
    operand, updates = as_signless(s.operand), as_signless(updates)
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
    fill_region(op, [element, element], lambda update, old: of_numbers(s.body, [old, update]))
    return as_before(op.results[0], s.operand)
