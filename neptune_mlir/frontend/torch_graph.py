# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What happens to an exported graph of torch before torch-mlir gets it: operations that its own
lowering computes in float64, at positions that no loop has, or never ends with, become others.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import TORCH_MLIR

_OTHER_RANK = {"aten::unsqueeze", "aten::squeeze"}  # a dimension of theirs names no loop


def prepare(torch: Any, exported: Any) -> Any:
    """An exported program in operations that torch-mlir lowers well."""
    exported = exported.run_decompositions(decompositions(torch))
    _refuse_random(torch, exported.graph)
    _compute_no_empty(torch, exported.graph)
    _give_dimensions(torch, exported.graph)
    _count_from_first(torch, exported.graph)
    return exported


def _refuse_random(torch: Any, graph: Any) -> None:
    """Raises InputError where a graph draws random numbers, with the function that was called."""
    for node in graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded not in tags:
            continue
        called = node.meta.get("torch_fn", ("", str(node.target)))[1]
        lines = re.findall(r'File "(.*)", line (\d+), in', node.meta.get("stack_trace") or "")
        raise InputError(
            f"'{called.removeprefix('function.').removeprefix('builtin_function_or_method.')}' "
            f"draws random numbers ('{node.target}'), and a kernel has none",
            loc=":".join(lines[-1]) if lines else None,
            hint="call eval() on a module with dropout; pass other random numbers as arguments",
        )


def decompositions(torch: Any) -> dict[Any, Callable[..., Any]]:
    """torch-mlir's table, with our own variances and group norms in it."""
    known = importlib.import_module(f"{TORCH_MLIR}.extras.fx_decomp_util")
    table: dict[Any, Callable[..., Any]] = dict(known.get_decomposition_table())
    aten = torch.ops.aten
    table |= torch._decomp.get_decompositions([aten.addmv, aten.dist])
    for name, function in (
        ("var.correction", _variance), ("var_mean.correction", _variance_and_mean),
        ("std.correction", _deviation), ("native_group_norm.default", _group_norm),
        ("linalg_norm.default", functools.partial(_norm, torch)),
        ("linalg_norm.ord_str", functools.partial(_norm, torch)),
        ("roll.default", functools.partial(_roll, torch)),
        ("logcumsumexp.default", functools.partial(_logcumsumexp, torch)),
        ("embedding_bag.padding_idx", functools.partial(_weighted_bags, torch)),
    ):  # fmt: skip
        packet, _, overload = name.partition(".")
        table[getattr(getattr(aten, packet), overload)] = function
    return table


def _weighted_bags(
    torch: Any, table: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, weights: Any = None, *more: Any,
) -> Any:  # fmt: skip
    """Bags of weighted rows: torch-mlir loses the weights."""
    if weights is None or not set(more) <= {None, False}:  # more: the last offset, padding
        return NotImplemented
    rows = table[indices] * weights[:, None]
    own = torch.arange(indices.shape[0], device=indices.device)
    bags = torch.ops.aten.embedding_bag.padding_idx
    return bags(rows, own, offsets, scale_grad_by_freq, mode, sparse, None, False, None)


def _wide(x: Any) -> Any:
    """A tensor in the type that statistics of it are computed in."""
    return x.float() if x.is_floating_point() and x.element_size() < 4 else x


def _variance_and_mean(
    x: Any, dim: Sequence[int] | None = None, *, correction: float | None = None,
    keepdim: bool = False,
) -> Any:  # fmt: skip
    """By two passes, as torch's own: torch-mlir squares in float64."""
    dims = list(dim) if dim else list(range(x.dim()))
    correction = 1 if correction is None else correction
    extents = [x.shape[d] for d in dims]
    known = all(isinstance(n, int) for n in extents)
    if not x.is_floating_point() or not x.dim() or not (known or correction == 0):
        return NotImplemented
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    squares = (wide - mean) * (wide - mean)
    if correction == 0:
        variance = squares.mean(dims, keepdim=keepdim)
    else:
        freedom = max(0.0, math.prod(extents) - correction)
        total = squares.sum(dims, keepdim=keepdim)
        # no number divides by zero as a tensor does
        variance = total / freedom if freedom else total * math.inf
    mean = mean if keepdim else wide.mean(dims)
    return variance.to(x.dtype), mean.to(x.dtype)


def _variance(x: Any, dim: Sequence[int] | None = None, **options: Any) -> Any:
    both = _variance_and_mean(x, dim, **options)
    return both if both is NotImplemented else both[0]


def _deviation(x: Any, dim: Sequence[int] | None = None, **options: Any) -> Any:
    both = _variance_and_mean(x, dim, **options)
    return both if both is NotImplemented else both[0].sqrt()


def _group_norm(
    x: Any, weight: Any, bias: Any, batch: Any, channels: Any, area: Any, groups: int,
    epsilon: float,
) -> Any:  # fmt: skip
    """With an axis for groups and one for channels of a group: torch's own decomposition makes rows
    of all that a group has, and gathers weights by tables of positions."""
    spatial = list(x.shape[2:])
    wide = _wide(x).reshape(batch, groups, channels // groups, *spatial)
    dims = list(range(2, wide.dim()))
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    scale = ((centred * centred).mean(dims, keepdim=True) + epsilon).rsqrt()
    out = centred * scale
    along = [groups, channels // groups, *[1] * len(spatial)]
    if weight is not None:
        out = out * weight.reshape(along)
    if bias is not None:
        out = out + bias.reshape(along)
    statistics = (mean.reshape(batch, groups), scale.reshape(batch, groups))
    return out.reshape(x.shape).to(x.dtype), *statistics


def _norm(
    torch: Any, x: Any, ord: float | str | None = None, dim: Any = None, keepdim: bool = False,
    *, dtype: Any = None,
) -> Any:  # fmt: skip
    """Norms of vectors, and those of matrices that are sums: singular values are not lowered."""
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if ord in (None, "fro") or len(dims) == 1:
        power = 2 if ord in (None, "fro") else ord
        return torch.linalg.vector_norm(x, power, dims, keepdim, dtype=dtype)
    if ord not in (1, -1, math.inf, -math.inf) or len(dims) != 2:
        raise NotImplementedError(f"'aten.linalg_norm' of order {ord!r} needs singular values")
    along, across = dims if abs(ord) == 1 else dims[::-1]
    sums = (x if dtype is None else x.to(dtype)).abs().sum(along, keepdim=True)
    both = (sums.amax if ord > 0 else sums.amin)(across, keepdim=True)
    return both if keepdim else both.squeeze(tuple(dims))


def _roll(torch: Any, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Without slices of no extent, and of a flattened tensor where no dimension is named: neither
    is lowered by torch-mlir."""
    if not dims:
        if not x.dim():
            return x.clone()
        return _roll(torch, x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        n = x.shape[dim]
        if not isinstance(n, int) or not isinstance(shift, int):
            return NotImplemented
        if n and (moved := shift % n):
            parts = x.split([n - moved, moved], dim)
            x = torch.cat(parts[::-1], dim)
    return x.clone()


def _logcumsumexp(torch: Any, x: Any, dim: int) -> Any:
    """A reduction of what each element sees: torch-mlir adds up exponentials, which overflow."""
    if not x.dim():
        return x.clone()
    rows = _wide(x).movedim(dim, -1)
    at = torch.arange(rows.shape[-1], device=x.device)
    seen = torch.where(at <= at[:, None], rows.unsqueeze(-2), -math.inf)
    largest = seen.amax(-1)
    largest = torch.where(largest.abs() == math.inf, 0.0, largest)
    total = (seen - largest.unsqueeze(-1)).exp().sum(-1)
    return (total.log() + largest).movedim(-1, dim).to(x.dtype)


def _compute_no_empty(torch: Any, graph: Any) -> None:
    """A tensor without elements comes from nothing: torch-mlir divides by its extents."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        if all(isinstance(extent, int) for extent in value.shape) and 0 in value.shape:
            node.target = torch.ops.aten.full.default
            node.args = (list(value.shape), 0)
            node.kwargs = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    graph.eliminate_dead_code()


def _give_dimensions(torch: Any, graph: Any) -> None:
    """An operation along a dimension of a tensor that has none gets one of one element: torch-mlir
    refuses such a scan or extremum, and does not end with such a softmax."""
    for node in list(graph.nodes):
        if not _has_dimension(node):
            continue
        sources = [a for a in node.args if isinstance(a, torch.fx.Node) and _is_number(torch, a)]
        if sources and sources[0] is node.args[0]:
            _along_one(torch, graph, node, sources)
    graph.lint()


def _count_from_first(torch: Any, graph: Any) -> None:
    """Dimensions are counted from the first: torch-mlir dies of a scatter along dimension -1."""
    for node in graph.nodes:
        if not _has_dimension(node) or not isinstance(node.args[0], torch.fx.Node):
            continue
        value = node.args[0].meta.get("val")
        for k, argument in enumerate(node.target._schema.arguments[: len(node.args)]):
            dim = node.args[k]
            if argument.name == "dim" and type(dim) is int and dim < 0:
                if isinstance(value, torch.Tensor) and value.dim():
                    node.update_arg(k, dim + value.dim())


def _is_number(torch: Any, node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dim()


def _has_dimension(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or schema.name in _OTHER_RANK:
        return False
    return any(a.name == "dim" and "int" in str(a.type) for a in schema.arguments)


def _along_one(torch: Any, graph: Any, node: Any, sources: Sequence[Any]) -> None:
    aten = torch.ops.aten
    given = {}
    with graph.inserting_before(node):
        for source in dict.fromkeys(sources):
            given[source] = graph.call_function(aten.unsqueeze.default, (source, 0))
            given[source].meta = {"val": source.meta["val"].unsqueeze(0)}
    node.args = tuple(given.get(a, a) if isinstance(a, torch.fx.Node) else a for a in node.args)
    values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args]
    with values[0].fake_mode:
        made = node.target(*values, **node.kwargs)
    results = [(node, made)]
    if isinstance(made, tuple):
        gets = [user for user in node.users if user.target is operator.getitem]
        results = [(get, made[get.args[1]]) for get in gets]
    for result, value in results:
        old = result.meta["val"]
        _has_value(result, value)
        if value.dim() == old.dim():
            continue
        with graph.inserting_after(result):
            shorter = graph.call_function(aten.squeeze.dim, (result, 0))
        shorter.meta = {"val": old}
        result.replace_all_uses_with(shorter, delete_user_cb=lambda user, s=shorter: user is not s)
    _has_value(node, made)


def _has_value(node: Any, value: Any) -> None:
    node.meta["val"] = value
    node.meta.pop("tensor_meta", None)  # which the importer would believe
