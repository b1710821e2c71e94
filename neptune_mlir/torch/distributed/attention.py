# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention and losses over the processes of a group, and attention of DTensors."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from neptune_mlir import ops
from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.program import Program
from neptune_mlir.runtime.shards import ShardLayout
from neptune_mlir.torch.distributed.function import (
    Layouts,
    Mesh,
    ShardedFunction,
    compile,
)

DTYPES = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
}  # fmt: skip


def _dtype(x: torch.Tensor) -> str:
    if x.dtype not in DTYPES:
        raise UsageError(f"a tensor of {x.dtype}", hint="float16, bfloat16, float32 or float64")
    return DTYPES[x.dtype]


@functools.lru_cache(maxsize=64)
def _function(
    mesh: Mesh, device: torch.device, axes: tuple[str, ...], transport: str, gathers: bool,
    kind: str, options: tuple[tuple[str, Any], ...],
) -> ShardedFunction:  # fmt: skip
    make: dict[str, Any] = {
        "attention": ops.attention, "linear_cross_entropy": ops.linear_cross_entropy,
    }  # fmt: skip
    program: Program = make[kind](**dict(options))
    shard: dict[str, str | int | None] = dict.fromkeys(axes, None)
    return compile(
        program, mesh, shard, transport=transport, gathers=gathers, device=device
    )


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mesh: Mesh, *,
    is_causal: bool = False, window: int | None = None, scale: float | None = None,
    layout: ShardLayout | None = None, kv_layout: ShardLayout | None = None,
    transport: str = "auto", gathers: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Attention whose queries and keys are in pieces on the processes of a group.

    Args:
        q: this process's [batch, heads, queries, dim]; k, v: its [batch, kv_heads, keys, dim].
        mesh: a process group, or a mesh of one dimension.
        is_causal, window: as of `ops.attention`, of positions on the whole axes.
        layout: the pieces of the queries, and of the keys where `kv_layout` is not given;
            `ShardLayout.zigzag(length, processes)` shares causal work evenly. Default: one piece a
            process, in the order of ranks, of the lengths that the processes have.
        transport, gathers: as of `compile`.

    Returns:
        The results of this process's queries; autograd follows them.
    """
    function = _function(
        mesh, q.device, ("i", "j"), transport, gathers, "attention",
        _options(q, k, v, is_causal, window, scale),
    )
    layouts = None if layout is None else {"i": layout, "j": kv_layout or layout}
    return function(q, k, v, layouts=layouts)


def decode_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mesh: Mesh, *,
    scale: float | None = None, layout: ShardLayout | None = None, transport: str = "auto",
) -> torch.Tensor:  # fmt: skip
    """Attention of queries that all processes have on keys that are in pieces: parts travel, of the
    size of the result."""
    function = _function(
        mesh, q.device, ("j",), transport, False, "attention",
        (*_options(q, k, v, False, None, scale), ("q_len", q.shape[2])),
    )  # fmt: skip
    return function(q, k, v, layouts=None if layout is None else {"j": layout})


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, mesh: Mesh, *,
    layout: ShardLayout | None = None, transport: str = "auto",
) -> torch.Tensor:  # fmt: skip
    """Cross-entropy of x weightᵀ with the classes in pieces: x [rows, width], this process's
    weight [classes, width], target [rows] i64, counted over all classes -> [rows]."""
    options = (("width", x.shape[1]), ("dtype", _dtype(x)))
    function = _function(
        mesh, x.device, ("j",), transport, False, "linear_cross_entropy", options
    )
    layouts: Layouts | None = None if layout is None else {"j": layout}
    return function(x, weight, target, layouts=layouts)


def _options(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, window: int | None,
    scale: float | None,
) -> tuple[tuple[str, Any], ...]:  # fmt: skip
    if q.dtype != k.dtype or k.dtype != v.dtype or q.ndim != 4 or k.ndim != 4:
        raise UsageError("q, k and v differ in dtype, or are not [batch, heads, length, dim]")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise UsageError(f"{q.shape[1]} query heads and {k.shape[1]} key heads")
    return (
        ("head_dim", q.shape[3]), ("v_dim", v.shape[3]), ("group", q.shape[1] // k.shape[1]),
        ("dtype", _dtype(q)), ("scale", scale), ("causal", is_causal), ("window", window),
    )  # fmt: skip


def of_dtensors(
    q: Any, k: Any, v: Any, is_causal: bool, scale: float | None
) -> Any | None:
    """Attention of DTensors that are sharded along their length, as torch's context_parallel makes
    them; None where they are something else."""
    from torch.distributed.tensor import DTensor, Shard

    if not all(isinstance(x, DTensor) for x in (q, k, v)):
        return None
    mesh = q.device_mesh
    placed = all(x.device_mesh == mesh and x.placements == (Shard(2),) for x in (q, k, v))
    if not placed or q.dtype not in DTYPES or q.shape[1] % k.shape[1]:
        return None
    layout, size = None, q.shape[2]
    if size == k.shape[2]:
        rearranged = is_causal and _is_rearranged(size, mesh.size())
        layout = (ShardLayout.zigzag if rearranged else _chunks)(size, mesh.size())
    made = attention(
        q.to_local(), k.to_local(), v.to_local(), _group(mesh), is_causal=is_causal, scale=scale,
        layout=layout,
    )  # fmt: skip
    return DTensor.from_local(
        made, mesh, [Shard(2)], shape=torch.Size((*q.shape[:3], v.shape[3])),
        stride=(q.shape[1] * size * v.shape[3], size * v.shape[3], v.shape[3], 1),
        run_check=False,
    )  # fmt: skip


def _group(mesh: Any) -> dist.ProcessGroup:
    found: dist.ProcessGroup = mesh.get_group()
    return found


def _chunks(size: int, devices: int) -> ShardLayout:
    """torch.chunk's pieces, which a DTensor has: all equal but the last ones."""
    each = -(-size // devices)
    return ShardLayout.contiguous([max(0, min(each, size - r * each)) for r in range(devices)])


def _is_rearranged(size: int, devices: int) -> bool:
    """Whether torch's context_parallel, if we are in it, gives each process a piece from each end.
    torch has no public way to ask."""
    import torch.nn.functional as F

    try:
        from torch.distributed.tensor.experimental._context_parallel import _attention as inside
    except ImportError:
        return False
    wrapped = F.scaled_dot_product_attention in getattr(inside, "_replaced_functions", {})
    return wrapped and inside._cp_options.enable_load_balance and size % (2 * devices) == 0
