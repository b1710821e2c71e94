# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over the processes of a group as functions of torch, with gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from neptune_mlir.errors import UsageError
from neptune_mlir.frontend.gradient import as_program
from neptune_mlir.frontend.program import Program
from neptune_mlir.frontend.shard import ShardSplit, apart, split, split_vjp
from neptune_mlir.frontend.shard.positions import axis_numbers
from neptune_mlir.runtime.shards import ShardLayout
from neptune_mlir.torch.distributed.kernels import ShardKernels
from neptune_mlir.torch.distributed.run import ShardedKernel
from neptune_mlir.torch.op import target_of

Mesh: TypeAlias = "DeviceMesh | dist.ProcessGroup"
Layouts = Mapping[str, ShardLayout]


class ShardedFunction:
    """A program over processes that autograd follows: `neptune.vjp`'s passes, each over devices.

    Gradients of pieces are pieces. Of an argument that all processes have, each gets the whole
    gradient; the cotangent of a result that all have must be the same on all.
    """

    def __init__(
        self, program: Program, axes: list[str], run: Callable[[ShardSplit], ShardedKernel]
    ):
        self.program, self.axes = program, axes
        self._run = run

    @cached_property
    def primal(self) -> ShardedKernel:
        """The program itself. Raises NeptuneError where it cannot be cut."""
        return self._run(split(self.program, self.axes))

    @cached_property
    def _passes(self) -> tuple[ShardSplit, ShardSplit]:
        return split_vjp(self.program, self.axes)

    @cached_property
    def forward(self) -> ShardedKernel:
        """The forward pass, whose results behind the program's are saved."""
        return self._run(self._passes[0])

    def backward(self, same: bool) -> list[ShardedKernel]:
        """The backward pass. `same`: its bits are the same in every run.

        One for the gradients that are summed over each axis: none of these travels. But one for
        all, whose parts travel, where its kernel computes all at once and adds to some of them in
        memory, in any order: that computes less."""
        if not same and self._at_once.kernels.added:
            return [self._at_once]
        return self._apart

    @cached_property
    def _at_once(self) -> ShardedKernel:
        return self._run(self._passes[1])

    @cached_property
    def _apart(self) -> list[ShardedKernel]:
        return [self._run(part) for part in apart(self._passes[1])]

    @property
    def results(self) -> int:
        return len(self.program.outputs)

    def __call__(self, *arguments: Any, layouts: Layouts | None = None) -> Any:
        learned = [isinstance(x, torch.Tensor) and x.requires_grad for x in arguments]
        if not (torch.is_grad_enabled() and any(learned)):
            return self.primal(*arguments, layouts=layouts)
        found = _Differentiated.apply(self, layouts, *arguments)
        return found[0] if self.results == 1 else found


class _Differentiated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: ShardedFunction, layouts: Any, *arguments: Any) -> Any:
        forward, ctx.same = function.forward, torch.are_deterministic_algorithms_enabled()
        backward = function.backward(ctx.same)
        found = forward(*arguments, layouts=layouts)
        wanted = {a.name for part in backward for a in part.plan.arguments}
        # of the results as well
        saved = [x for name, x in zip(forward.plan.results, found, strict=True) if name in wanted]
        ctx.function, ctx.layouts = function, layouts
        ctx.names = [n for n in forward.plan.results if n in wanted]
        ctx.others = {k: x for k, x in enumerate(arguments) if not isinstance(x, torch.Tensor)}
        tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
        ctx.count = len(arguments)
        ctx.save_for_backward(*tensors, *saved)
        return found[: function.results]

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        tensors = list(ctx.saved_tensors)
        arguments = [ctx.others[k] if k in ctx.others else tensors.pop(0) for k in range(ctx.count)]
        given = [c.contiguous() for c in cotangents]
        forward, backward = ctx.function.forward, ctx.function.backward(ctx.same)
        names = [a.name for a in forward.plan.arguments]
        results = forward.plan.results[: ctx.function.results]
        known = dict(zip(names, arguments, strict=True))
        known |= zip(ctx.names, tensors, strict=True)
        known |= {f"d_{n}": c for n, c in zip(results, given, strict=True)}
        made: dict[str, torch.Tensor] = {}
        for part in backward:
            pieces = [known[a.name] for a in part.plan.arguments]
            found = part(*pieces, layouts=ctx.layouts)
            found = found if isinstance(found, tuple) else (found,)
            made |= zip(part.plan.results, found, strict=True)
        return (None, None, *(made.get(f"d_{n}") for n in names))


def compile(
    program: Program | Any, mesh: Mesh, shard: Mapping[str, str | int | None], *,
    layouts: Layouts | None = None, transport: str = "auto", gathers: bool = False,
    device: Any = None,
) -> ShardedFunction:  # fmt: skip
    """A program whose axes are in pieces on the processes of a mesh.

    Args:
        program: in index notation, or MLIR, as `neptune.compile` takes it.
        mesh: a mesh of one dimension, one dimension of which is named by `shard`, or a group.
        shard: which axes are in pieces, by name, and over which dimension of the mesh: all over the
            same one. Of two axes, the data of the last travel.
        layouts: the pieces of each axis; default: one a process, in the order of ranks.
        transport: "ring" (torch.distributed), "copy" (copy engines, symmetric memory), "auto".
        gathers: each process takes all of the data that travel and runs the program at once, where
            no gradient is wanted: for short lengths on many devices.
        device: of the tensors; default: the mesh's.

    Returns:
        A function of this process's pieces. It is cut and compiled when it is first called.

    Raises:
        NeptuneError: no such axis or device; in the first call, that the program cannot be cut
            there: which reduction and why.
    """
    group, kind = _group_of(mesh, set(shard.values()), device)
    program, axes = as_program(program), list(shard)
    axis_numbers(program, axes)
    target = target_of(torch.device(kind))
    way = transport_of(transport, torch.device(kind), group)

    def run(made: ShardSplit) -> ShardedKernel:
        return ShardedKernel(ShardKernels.of(made, target), group, layouts, way, gathers)

    return ShardedFunction(program, axes, run)


def _group_of(mesh: Mesh, dims: set[Any], device: Any) -> tuple[dist.ProcessGroup, str]:
    if not isinstance(mesh, DeviceMesh):
        backend = dist.get_backend(mesh)
        return mesh, str(device or ("cuda" if backend == "nccl" else "cpu"))
    if len(dims) != 1:
        raise UsageError(
            f"axes over {len(dims)} dimensions of the mesh", hint="shard all over one dimension"
        )
    (dim,) = dims
    return mesh.get_group(dim), str(device or mesh.device_type)


def transport_of(asked: str, device: torch.device, group: dist.ProcessGroup) -> str:
    """How data travel: by copy engines where all processes of the group are on this host."""
    if asked != "auto":
        return asked
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "0")) >= group.size() > 1
    nvidia = device.type == "cuda" and torch.version.hip is None
    return "copy" if nvidia and here else "ring"
