# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.compile(model, backend="neptune")`: our kernels where they fit, inductor for the rest.

The graph that dynamo traced keeps its shape: attention in it, as `scaled_dot_product_attention` or
as FlexAttention, becomes our operation; then inductor compiles the graph. No graph is broken, and
lengths that dynamo holds as symbols stay open. `scaled_dot_product_attention` that is too small to
be worth a call stays inductor's, where dynamo knows how small it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

from neptune_mlir.targets.roofline import roof_of
from neptune_mlir.torch.flex import take_flex, value_of
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
            if _is_worth_it(*_factors(node)):
                node.target = sdpa  # which asks of each call whether it fits
                taken += 1
    if taken:
        graph.recompile()
    return taken


def _always(node: Node) -> bool:
    return True


def _factors(node: Node) -> list[Any]:
    """What a graph knows of query, key and value."""
    given = dict(zip(_FACTORS, node.args, strict=False)) | dict(node.kwargs)
    return [value_of(given[name]) for name in _FACTORS]


def _is_worth_it(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether our kernel may be sooner done than torch's. Of extents that a call decides, of other
    devices than CPUs, of tensors over several devices, and of what `sdpa` refuses, yes."""
    sizes = [n for x in (q, k, v) for n in x.shape]
    if any(isinstance(n, torch.SymInt) for n in sizes) or 0 in sizes:
        return True
    roof = roof_of("cpu")
    if roof is None or q.device.type != "cpu" or type(q) is not FakeTensor:
        return True
    if not q.ndim == k.ndim == v.ndim == 4:
        return True
    points = math.prod(q.shape[:3]) * k.shape[2]
    flops = 2 * points * (q.shape[3] + v.shape[3])
    elements = q.numel() + k.numel() + v.numel() + math.prod(q.shape[:3]) * v.shape[3]
    programs = math.prod(q.shape[:2])
    moved = elements * q.element_size()
    return roof.is_worth_a_call(flops, moved, programs, torch.get_num_threads())


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
