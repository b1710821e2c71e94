# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlexAttention's operation in graphs, and ours in its place.

A graph of `torch.compile` holds no Python functions, but FlexAttention's operation holds its
modifiers as graphs, with the tensors that they capture as operands. So under torch.compile
`attention` with modifiers speaks FlexAttention, with a mark; `take_flex` puts our operation where
that stands. Importing this module lets inductor do so for marked ones, whatever else it compiles;
other backends run FlexAttention itself, with the same result.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import GraphModule, Node

from neptune_mlir.errors import NeptuneError
from neptune_mlir.torch import op
from neptune_mlir.torch.mods import ModPlan
from neptune_mlir.torch.trace import POSITIONS, trace
from neptune_mlir.version import __version__

MARK = "NEPTUNE_ATTENTION"
_NO_BLOCKS = 1 << 30  # FlexAttention's block size where no block mask was given


def call_flex(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score_mod: Any, mask_mod: Any,
    block_mask: Any, scale: float, is_causal: bool, return_lse: bool,
) -> Any:  # fmt: skip
    """`attention` as FlexAttention, marked as ours. The masks go into the score's modifier: our
    kernels need no list of blocks, and a list costs all pairs of positions to make."""
    from torch.nn.attention.flex_attention import flex_attention

    def modified(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if score_mod is not None:
            score = score_mod(score, b, h, i, j)
        if is_causal:
            score = torch.where(i >= j, score, -math.inf)
        if mask_mod is not None:
            score = torch.where(mask_mod(b, h, i, j), score, -math.inf)
        return score

    learns = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if learns and q.device.type == "cpu" and block_mask is None:  # where FlexAttention refuses
        made = op.dense(q, k, v, _everywhere(modified), None, scale, False, return_lse)
        return made if return_lse else made[0]
    return flex_attention(
        q, k, v, score_mod=modified, block_mask=block_mask, scale=scale, enable_gqa=True,
        return_lse=return_lse, kernel_options={MARK: True},
    )  # fmt: skip


def _everywhere(modified: Callable[..., torch.Tensor]) -> op.Modify:
    def modify(s: torch.Tensor, places: dict[str, torch.Tensor]) -> torch.Tensor:
        call = modified
        for k in reversed(range(len(POSITIONS))):
            call = torch.vmap(call, (0, *(0 if j == k else None for j in range(len(POSITIONS)))))
        with TransformGetItemToIndex():
            return call(s, *(places[a] for a in POSITIONS))

    return modify


def take_flex(graph: GraphModule, wanted: Callable[[Node], bool]) -> int:
    """Our operation for those of FlexAttention in a graph of dynamo that are `wanted`, and that
    have a kernel; the others stay. Returns how many were replaced."""
    taken = 0
    for node in graph.graph.find_nodes(
        op="call_function", target=torch.ops.higher_order.flex_attention
    ):
        made = _operands(graph, node) if wanted(node) else None
        if made is not None:
            _replace(graph, node, *made)
            taken += 1
    if taken:  # what is dead now stays: entering and leaving a vmap looks dead, too
        graph.recompile()
    return taken


def is_marked(node: Node) -> bool:
    return bool(node.args[6].get(MARK))


def _operands(graph: GraphModule, node: Node) -> tuple[str, list[Node], float] | None:
    """The modifiers' key, the captured tensors and the scale; None where it is none of ours."""
    q, k, _v, score, blocks, scale, _options, captured, _of_mask = node.args
    if blocks[-3] != _NO_BLOCKS or blocks[-2] != _NO_BLOCKS:
        return None  # a list of blocks is data; what it says is known at run time only
    of_q, of_k = value_of(q), value_of(k)
    used = {u.args[1] for u in node.users if u.target is operator.getitem}
    if of_q.dtype not in op.DTYPES or of_q.shape[0] != of_k.shape[0] or not used <= {0, 1}:
        return None
    examples = [_example(value_of(n)) for n in captured]
    if any(x is None for x in examples):
        return None
    modifier = getattr(graph, score.target)

    def score_mod(*elements: torch.Tensor) -> torch.Tensor:
        made = modifier(*elements, *examples)
        return made[0] if isinstance(made, (tuple, list)) else made

    score_mod.__name__ = "score_mod"
    wide = torch.float64 if of_q.dtype is torch.float64 else torch.float32
    try:
        traced = trace(score_mod, wide)
        mods, tensors = op.mods_of(traced, None)
    except NeptuneError:
        return None
    at = {id(x): n for x, n in zip(examples, captured, strict=True)}
    if any(id(x) not in at for x in tensors) or not _static_rows(
        op.plan_of(traced), {name: value_of(at[id(x)]) for name, x in traced.tensors.items()}
    ):
        return None
    return mods, [at[id(x)] for x in tensors], scale


def value_of(node: Any) -> Any:
    """What a graph of dynamo knows of a node's value: a tensor without memory."""
    return node.meta.get("example_value", node.meta.get("val")) if isinstance(node, Node) else node


def _example(value: Any) -> torch.Tensor | None:
    """A tensor of the dtype and shape (dynamic extents by a hint) that takes no memory; an integer
    known at run time is a 0-d tensor."""
    if isinstance(value, torch.SymInt):
        return torch.zeros((), dtype=torch.int64)
    if not isinstance(value, torch.Tensor):
        return None
    shape = [n if isinstance(n, int) else n.node.hint for n in value.shape]
    if None in shape:
        return None
    return torch.zeros((), dtype=value.dtype).expand(shape)


def _static_rows(plan: ModPlan, values: dict[str, torch.Tensor]) -> bool:
    """Whether the dimensions that a kernel is compiled for are the same in each call."""
    return all(
        place is not None or isinstance(values[s.of].shape[dim], int)
        for s in plan.sources if isinstance(s.of, str) and isinstance(values[s.of], torch.Tensor)
        for dim, place in enumerate(s.axes)
    )  # fmt: skip


def _replace(graph: GraphModule, node: Node, mods: str, captured: list[Node], scale: float) -> None:
    q, k, v = node.args[:3]
    learns = torch.is_grad_enabled() and any(
        isinstance(value_of(n), torch.Tensor) and value_of(n).requires_grad
        for n in (q, k, v, *captured)
    )  # its gradient is made of the log-sum-exp
    reads_lse = learns or any(u.args[1] == 1 and u.users for u in node.users)
    value = value_of(node)
    with graph.graph.inserting_before(node):
        captured = [_as_tensor(graph, n) for n in captured]
        ours = graph.graph.call_function(
            torch.ops.neptune.attention.default,
            (q, k, v, None, captured, mods, scale, False, reads_lse),
        )
        lse = value[1] if reads_lse else value_of(q).new_empty(0)
        ours.meta["example_value"] = (value[0], lse)
        for user in list(node.users):
            at = user.args[1]
            part = graph.graph.call_function(operator.getitem, (ours, at))
            part.meta["example_value"] = value[at]
            if at == 1:  # FlexAttention's operation counts in powers of 2
                part = graph.graph.call_function(operator.mul, (part, 1 / math.log(2)))
                part.meta["example_value"] = value[at]
            user.replace_all_uses_with(part)
            graph.graph.erase_node(user)
    graph.graph.erase_node(node)


def _as_tensor(graph: GraphModule, node: Node) -> Node:
    if isinstance(value_of(node), torch.Tensor):
        return node
    made = graph.graph.call_function(torch.scalar_tensor, (node,), {"dtype": torch.int64})
    return made


class _TakeMarked(CustomGraphPass):
    """Inductor's pass that takes marked operations, after the one that was there before. Inductor's
    caches ask what decides what it does, and pickle it, so it is an object of a named class."""

    def __init__(self, before: Any):
        self._before = before

    def __call__(self, graph: torch.fx.Graph) -> None:
        if self._before is not None:
            self._before(graph)
        take_flex(graph.owning_module, is_marked)

    def uuid(self) -> Any:
        if self._before is not None and not isinstance(self._before, CustomGraphPass):
            return None  # nobody knows what that one does
        return f"neptune {__version__}", self._before and self._before.uuid()


def _join_inductor() -> None:
    """Let inductor take marked operations."""
    from torch._inductor import config

    config.pre_grad_custom_pass = _TakeMarked(config.pre_grad_custom_pass)
    if hasattr(config, "pre_grad_pass_timing"):
        # a compiled graph from inductor's cache names modifiers that this process has to know
        config.pre_grad_pass_timing = "early"


_join_inductor()
