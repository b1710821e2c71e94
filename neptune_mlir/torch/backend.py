# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.compile(model, backend="neptune")`: our kernels where they fit, inductor for the rest.

The graph that dynamo traced keeps its shape: attention in it, as `scaled_dot_product_attention` or
as FlexAttention, becomes our operation; then inductor compiles the graph. No graph is broken, and
lengths that dynamo holds as symbols stay open. Attention that is too small to be worth a call is
inductor's, where dynamo knows how small it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from neptune_mlir.torch.cost import is_worth_a_call
from neptune_mlir.torch.flex import take_flex, value_of
from neptune_mlir.torch.op import written_out
from neptune_mlir.torch.sdpa import sdpa

_FACTORS = ("query", "key", "value")
_SDPA = (torch.nn.functional.scaled_dot_product_attention,
         torch._C._nn.scaled_dot_product_attention)  # fmt: skip


def neptune(
    graph: GraphModule, inputs: Sequence[Any], *, mode: str | None = None,
    options: dict[str, Any] | None = None, **_: Any,
) -> Callable[..., Any]:  # fmt: skip
    """The backend: a function on the graph's inputs.

    Args:
        mode, options: inductor's.
    """
    take_attention(graph)
    return _rest(graph, inputs, mode, options)


def take_attention(graph: GraphModule) -> int:
    """Our operation for attention in a graph of dynamo. Returns how many were replaced."""
    taken = take_flex(graph, _always)
    for target in _SDPA:
        for node in graph.graph.find_nodes(op="call_function", target=target):
            if is_worth_a_call(*_factors(node)):
                node.target = sdpa  # which asks of each call whether it fits
                taken += 1
    left = _leave_small(graph)
    if taken or left:
        graph.recompile()
    return taken


def _leave_small(graph: GraphModule) -> int:
    """torch's attention for ours that was asked for by name and is too small for a call; what torch
    has none for (caps, sinks, modifiers) is written out. Returns how many."""
    packet, left = torch.ops.neptune.attention, 0
    for node in [n for n in graph.graph.nodes if n.target in (packet, packet.default)]:
        q, k, v, mask, _, mods, scale, is_causal, return_lse = node.args
        values = [value_of(x) for x in (q, k, v)]
        seen = None if mask is None else value_of(mask).dtype
        if is_worth_a_call(*values):
            continue
        left += 1
        if mods or return_lse or seen not in (None, torch.bool, values[0].dtype):
            node.target = written_out
            continue
        options = {"attn_mask": mask, "is_causal": is_causal, "scale": scale, "enable_gqa": True}
        with graph.graph.inserting_before(node):
            made = graph.graph.call_function(_SDPA[0], (q, k, v), options)
        for user in [*node.users]:  # its first result: the second is empty
            made.meta = dict(user.meta)
            user.replace_all_uses_with(made)
            graph.graph.erase_node(user)
        graph.graph.erase_node(node)
    return left


def _always(node: Node) -> bool:
    return True


def _factors(node: Node) -> list[Any]:
    """What a graph knows of query, key and value."""
    given = dict(zip(_FACTORS, node.args, strict=False)) | dict(node.kwargs)
    return [value_of(given[name]) for name in _FACTORS]


def _rest(
    graph: GraphModule, inputs: Sequence[Any], mode: str | None, options: dict[str, Any] | None
) -> Callable[..., Any]:
    on_cpu = all(x.device.type == "cpu" for x in inputs if isinstance(x, torch.Tensor))
    if on_cpu and not _has_compiler():
        from torch._dynamo.backends.debugging import aot_eager

        return aot_eager(graph, inputs)
    # what backend="inductor" is: it knows the spellings of options and what a mode asks for
    compiler = torch._TorchCompileInductorWrapper(mode, options, dynamic=None)
    return compiler(graph, inputs)


@functools.cache
def _has_compiler() -> bool:
    """Whether inductor finds a C++ compiler: without one it cannot do anything for a CPU."""
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except (exc.InvalidCxxCompiler, RuntimeError):
        return False
    return True
