# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters of torch: of short rows as what each element gets of all updates of its row, in parallel
on every target; others stay a loop over updates. What is put where a mask is true, as a choice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.driver.limits import PAIRS

_REDUCED = {"add": "sum", "multiply": "prod"}  # as `scatter` calls them


def functions(torch: Any) -> dict[str, Callable[..., Any]]:
    """Decompositions by the names of their operations."""
    scatter, along = functools.partial(_scatter, torch), functools.partial(_along, torch)
    return {
        "scatter.src": scatter,
        "scatter.value": scatter,
        "scatter.reduce": lambda *given, reduce: _reduced(torch, *given, reduce=reduce),
        "scatter.value_reduce": lambda *given, reduce: _reduced(torch, *given, reduce=reduce),
        "scatter_add.default": functools.partial(scatter, reduce="sum"),
        "scatter_reduce.two": scatter,
        "index_add.default": lambda x, dim, index, source, *, alpha=1: along(
            x, dim, index, source if alpha == 1 else source * alpha, "sum"
        ),
        "index_reduce.default": along,
        "put.default": functools.partial(_put, torch),
        "index.Tensor": functools.partial(_looked_up, torch),
        "index_put.default": functools.partial(_index_put, torch),
        "masked_scatter.default": functools.partial(_masked_scatter, torch),
    }


def _reduced(torch: Any, x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    if not hasattr(source, "dtype"):
        source = torch.full_like(index, source, dtype=x.dtype)
    source = source[tuple(slice(n) for n in index.shape)]
    return x.scatter_reduce(dim, index, source, _REDUCED[reduce])


def _along(
    torch: Any, x: Any, dim: int, index: Any, source: Any, reduce: str = "", *,
    include_self: bool = True,
) -> Any:  # fmt: skip
    """Whole slices along a dimension."""
    if not x.dim():
        x, source = x.reshape(1), source.reshape(-1)
        return _along(
            torch, x, 0, index.reshape(-1), source, reduce, include_self=include_self
        ).reshape(())  # fmt: skip
    along = [-1 if k == dim % x.dim() else 1 for k in range(x.dim())]
    index = index.view(along).expand(source.shape)
    found = _scatter(torch, x, dim, index, source, reduce, include_self=include_self)
    if found is NotImplemented:
        return x.scatter_reduce(dim, index, source, reduce, include_self=include_self)
    return found


def _put(torch: Any, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Into all elements as one row."""
    row, at = x.reshape(-1), index.reshape(-1)
    at = torch.where(at < 0, at + row.shape[0], at)
    added = row.scatter_add if accumulate else row.scatter
    return added(0, at, source.reshape(-1)).reshape(x.shape)


def _index_put(
    torch: Any, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Any:  # fmt: skip
    """Where a mask is true, a choice: the positions of what is true have a shape of data. At
    positions, what each slice gets of all updates, where these are few."""
    given = [k for k, index in enumerate(indices) if index is not None]
    if all(indices[k].dtype in (torch.int32, torch.int64) for k in given):
        return _put_at(torch, x, indices, given, values, accumulate)
    if len(given) != 1 or indices[given[0]].dtype is not torch.bool:
        return NotImplemented
    before, mask = given[0], indices[given[0]]
    behind = x.dim() - before - mask.dim()
    wide = mask.reshape([1] * before + list(mask.shape) + [1] * behind)
    rows = values.dim() - behind - 1  # the dimension of what is true, where values have it
    if rows >= 0 and values.shape[rows] != 1:
        if before:
            return NotImplemented
        place = (mask.reshape(-1).cumsum(0) - 1).clamp(0, values.shape[rows] - 1)
        values = values.reshape(values.shape[rows:])[place].reshape(x.shape)
    elif mask.dim() > 1 and rows >= 0:
        values = values.reshape(
            [*values.shape[:rows], *[1] * mask.dim(), *values.shape[rows + 1 :]]
        )  # fmt: skip
    return torch.where(wide, x + values if accumulate else values, x)


def _put_at(
    torch: Any, x: Any, indices: Sequence[Any], given: Sequence[int], values: Any, accumulate: bool
) -> Any:  # fmt: skip
    """At positions along some dimensions, as positions along one."""
    first, count = given[0], len(given)
    if list(given) != [*range(first, first + count)]:  # what they index comes first, as of values
        order = [*given, *(k for k in range(x.dim()) if k not in given)]
        moved = [indices[k] for k in given]
        made = _put_at(torch, x.permute(order), moved, range(count), values, accumulate)
        return made.permute([order.index(k) for k in range(x.dim())])
    places = torch.broadcast_tensors(*(indices[k] for k in given))
    place = _in_one(torch, x, dict(zip(given, places, strict=True))).reshape(-1)
    rows = x.flatten(first, first + count - 1)
    before, behind = list(x.shape[:first]), list(x.shape[first + count :])
    source = values.to(x.dtype).expand([*before, *places[0].shape, *behind])
    source = source.reshape([*before, -1, *behind])
    most, known = rows.shape[first], (*x.shape, *place.shape)
    if not all(isinstance(n, int) for n in known) or not 0 < most * place.shape[0] <= PAIRS:
        if count == 1:  # a loop, or refused
            return NotImplemented
        at = [None] * first + [place]
        return torch.ops.aten.index_put(rows, at, source, accumulate).reshape(x.shape)
    if accumulate:
        return _along(torch, rows, first, place, source, "sum").reshape(x.shape)
    hit = place == torch.arange(most, device=x.device)[:, None]
    at = torch.arange(place.shape[0], device=x.device)
    last = torch.where(hit, at, 0).amax(1)
    some = hit.any(1).reshape([most] + [1] * len(behind))
    return torch.where(some, source.index_select(first, last), rows).reshape(x.shape)


def _in_one(torch: Any, x: Any, places: dict[int, Any]) -> Any:
    """Positions along several dimensions as positions along one."""
    found: Any = 0
    for k, at in places.items():
        at, n = at.to(torch.int64), x.shape[k]
        found = found * n + torch.where(at < 0, at + n, at)
    return found


def count_from_first(torch: Any, graph: Any) -> None:
    """Positions of what is put somewhere are counted from the first: torch-mlir takes negative ones
    for places before the tensor, which change nothing."""
    aten = torch.ops.aten
    for node in list(graph.nodes):
        if node.target is not aten.index_put.default:
            continue
        extents = node.args[0].meta["val"].shape
        at = list(node.args[1])
        for k, index in enumerate(at):
            if index is None or not isinstance(extents[k], int):
                continue
            value = index.meta["val"]
            if value.dtype in (torch.int32, torch.int64):
                with graph.inserting_before(node), value.fake_mode:
                    at[k] = _from_first(torch, graph, index, extents[k])
        node.update_arg(1, at)


def _from_first(torch: Any, graph: Any, index: Any, extent: int) -> Any:
    def call(function: Any, *given: Any) -> Any:
        made = graph.call_function(function, given)
        values = [x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in given]
        made.meta = {"val": function(*values)}
        return made

    aten = torch.ops.aten
    below = call(aten.lt.Scalar, index, 0)
    return call(aten.where.self, below, call(aten.add.Scalar, index, extent), index)


def _looked_up(torch: Any, x: Any, indices: Sequence[Any]) -> Any:
    """At positions along several dimensions that stand together, of which calls know an extent: as
    positions along one. torch-mlir refuses these."""
    given = [k for k, index in enumerate(indices) if index is not None]
    first, count = given[0], len(given)
    if count < 2 or given != [*range(first, first + count)]:
        return NotImplemented
    known = (n for t in (x, *(indices[k] for k in given)) for n in t.shape)
    if all(isinstance(n, int) for n in known) or any(
        indices[k].dtype not in (torch.int32, torch.int64) for k in given
    ):
        return NotImplemented
    place = _in_one(torch, x, {k: indices[k] for k in given})
    rows = x.flatten(first, first + count - 1)
    found = rows.index_select(first, place.reshape(-1))
    return found.reshape([*x.shape[:first], *place.shape, *x.shape[first + count :]])


def _masked_scatter(torch: Any, x: Any, mask: Any, source: Any) -> Any:
    """Of one shape: torch-mlir refuses others."""
    if x.shape == mask.shape:
        return NotImplemented
    x, mask = torch.broadcast_tensors(x, mask)
    return x.clone().masked_scatter(mask.clone(), source)


def _scatter(
    torch: Any, x: Any, dim: int, index: Any, source: Any, reduce: str = "", *,
    include_self: bool = True,
) -> Any:  # fmt: skip
    """The last update wins, or all are reduced."""
    if not hasattr(source, "dtype"):
        source = torch.full_like(index, source, dtype=x.dtype)
    if not x.dim():
        index, source = index.reshape(-1), source.reshape(-1)
        row = _scatter(
            torch, x.reshape(1), 0, index, source, reduce, include_self=include_self
        )  # fmt: skip
        return row if row is NotImplemented else row.reshape(())
    known = all(isinstance(n, int) for n in (*x.shape, *index.shape))
    if not known:
        return NotImplemented
    dim %= x.dim()
    others = [k for k in range(x.dim()) if k != dim and x.shape[k] != index.shape[k]]
    if others or not 0 < x.shape[dim] * index.shape[dim] <= PAIRS:
        return NotImplemented
    rows = x.movedim(dim, -1)
    index, source = (t.movedim(dim, -1) for t in (index, source))
    source = source[tuple(slice(n) for n in index.shape)]
    place = torch.arange(rows.shape[-1], device=x.device)[:, None]
    hit = index.unsqueeze(-2) == place
    some = hit.any(-1)
    if not reduce:
        at = torch.arange(index.shape[-1], device=x.device)
        last = torch.where(hit, at, 0).amax(-1)
        found = source.gather(-1, last)
    else:
        finfo = torch.finfo if x.is_floating_point() else torch.iinfo
        bound = math.inf if x.is_floating_point() else finfo(x.dtype).max
        least = -math.inf if x.is_floating_point() else finfo(x.dtype).min
        whole, join, neutral = {
            "sum": ("sum", torch.add, 0), "mean": ("sum", torch.add, 0),
            "prod": ("prod", torch.mul, 1), "amax": ("amax", torch.maximum, least),
            "amin": ("amin", torch.minimum, bound),
        }[reduce]  # fmt: skip
        given = torch.where(hit, source.unsqueeze(-2), neutral)
        found = getattr(given, whole)(-1).to(x.dtype)
        if include_self:
            found = join(rows, found)
        if reduce == "mean":
            count = (hit.sum(-1) + include_self).clamp(min=1).to(x.dtype)
            found = found / count if x.is_floating_point() else found // count
    return torch.where(some, found, rows).movedim(-1, dim)
