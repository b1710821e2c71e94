# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers of 8 bits in programs of torch. torch-mlir computes with unsigned ones as if they had
signs, refuses some arithmetic of signed ones, and leaves open what a float is that is too large.
"""

from __future__ import annotations

import operator
from typing import Any

# operations whose results are elements of their operands, or nothing of these
_MOVES = (
    "view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "permute", "transpose",
    "t", "clone", "alias", "detach", "slice", "select", "cat", "flip", "index", "index_select",
    "gather", "lift_fresh_copy", "_to_copy", "copy", "full_like", "repeat", "unfold",
    "split_with_sizes",
)  # fmt: skip


def compute_wide(torch: Any, graph: Any) -> None:
    """Integers of 8 bits are computed as integers of 32, and floats become short integers by way
    of those: what is too large loses its upper bits, as torch has it."""
    aten = torch.ops.aten
    moves = {getattr(aten, name) for name in _MOVES if hasattr(aten, name)}
    casts = {torch.ops.prims.convert_element_type.default, aten._to_copy.default}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in casts:
            _shorten(torch, node)
        elif getattr(node.target, "overloadpacket", None) not in moves:
            _widen(torch, node)
    graph.lint()


def _shorten(torch: Any, node: Any) -> None:
    source, value = node.args[0], node.meta["val"]
    short = {torch.int8, torch.int16, torch.uint8}
    if value.dtype in short and source.meta["val"].dtype.is_floating_point:
        node.update_arg(0, _cast(torch, source, torch.int32, node))


def _widen(torch: Any, node: Any) -> None:
    kinds = {torch.uint8}
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    if pointwise or node.target is torch.ops.aten.floor_divide.default:
        kinds.add(torch.int8)
    given = {a: a for a in node.all_input_nodes if _dtype(torch, a) in kinds}
    if not given or node.target is operator.getitem or node.meta.get("val") is None:
        return
    for source in given:
        given[source] = _cast(torch, source, torch.int32, node)
    node.args = torch.fx.node.map_arg(node.args, lambda a: given.get(a, a))
    node.kwargs = torch.fx.node.map_arg(node.kwargs, lambda a: given.get(a, a))
    values = torch.fx.node.map_arg((node.args, node.kwargs), lambda a: a.meta["val"])
    with next(iter(given)).meta["val"].fake_mode:
        made = node.target(*values[0], **values[1])
    several = isinstance(made, (tuple, list))
    gets = [user for user in node.users if user.target is operator.getitem]
    results = [(g, made[g.args[1]]) for g in gets] if several else [(node, made)]
    if several:
        node.meta["val"] = made
        node.meta.pop("tensor_meta", None)
    for result, value in results:
        _as_before(torch, result, value)


def _as_before(torch: Any, result: Any, value: Any) -> None:
    """A result that got another type is cast to the one that it had."""
    old = result.meta["val"]
    if not isinstance(old, torch.Tensor) or value.dtype == old.dtype:
        return
    result.meta = {**result.meta, "val": value}
    result.meta.pop("tensor_meta", None)  # which the importer would believe
    users = list(result.users)
    following = _cast(torch, result, old.dtype, result.next)
    for user in users:
        user.replace_input_with(result, following)


def _dtype(torch: Any, node: Any) -> Any:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _cast(torch: Any, source: Any, dtype: Any, before: Any) -> Any:
    """A new node with the elements of a source in another type, before a node."""
    with source.graph.inserting_before(before):
        made = source.graph.call_function(
            torch.ops.prims.convert_element_type.default, (source, dtype)
        )
    value = source.meta["val"]
    with value.fake_mode:
        made.meta = {"val": value.to(dtype), "stack_trace": before.meta.get("stack_trace")}
    return made
