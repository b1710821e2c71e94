# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The host function of tile IR on tensors, as a launch plan for a GPU."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from neptune_mlir.analysis.tiles import element_bytes, tuned
from neptune_mlir.codegen.gpu.in_place import in_place
from neptune_mlir.dialects.attributes import KERNELS, PLAN, POINTS
from neptune_mlir.dialects.gpu_attributes import CONSUMERS
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.runtime.plan import GPU_NUMBERS, Buffer, Plan
from neptune_mlir.targets.warp_groups import PANEL, of_size
from neptune_mlir.transforms.hopper.clusters import blocks_of
from neptune_mlir.transforms.tiling.host_plan import (
    HostReader,
    captured,
    entry_function,
    fold,
    grid_bounds,
)


@dataclass
class KernelSignature:
    """What one kernel takes: tensors (the last `outputs` are its results), scalars, then the
    extents of its grid. `places` are the tensors' references in the plan."""

    name: str
    forall: Any
    tensors: list[Any]
    scalars: list[Any]
    bounds: list[Any]
    outputs: int
    places: list[tuple[str, int]]
    follows: int = 0  # it starts early, and waits for the kernel before it: 1: in the plan, 2: any
    independent: bool = False  # of what may run then: it waits at its end
    awaited: Sequence[tuple[str, int]] = ()  # of `places`: it waits until they are there, by words
    awaits: Sequence[KernelSignature] = ()  # those that write these words
    tells: int = 0  # how many words it writes of each part of a sum that others await
    given: Sequence[Any] = ()  # of `tensors`: no kernel before writes them
    threads: int = 0
    shared: int = 0
    alignment: dict[tuple[str, int], int] = field(default_factory=dict)  # bytes, by reference
    extents: Sequence[Any] = ()  # of its grid, as expressions of the plan
    operands: list[Any] = field(default_factory=list)  # of a launch, after the extents
    narrow: Any = 0  # of a launch (`runtime.plan`)
    resident: bool = False  # blocks stay and run several programs, one after another
    cluster: int = 1  # blocks that run together


@dataclass(frozen=True)
class KernelFacts:
    """What `distribute-tiles` leaves in the module of each kernel (`neptune.kernels`).

    Attributes:
        threads: of a block.
        shared: bytes of shared memory of a block.
        follows: it may start before the kernel before it has ended, and waits by itself; 1: that of
            the plan, 2: whatever it is of.
        resident: a launch has no more blocks than the chip runs at once; `cluster` run together.
        specialized: its warps have roles (`partition-warps`).
        alignment: (kind, number, bytes): what the address and outer strides of an array have to
            be multiples of.
    """

    name: str
    threads: int
    shared: int
    follows: int
    resident: bool
    cluster: int
    specialized: bool
    alignment: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, kernel: KernelSignature) -> KernelFacts:
        return cls(
            kernel.name, kernel.threads, kernel.shared, kernel.follows, kernel.resident,
            kernel.cluster, any(operand[0] != "value" for operand in kernel.operands),
            tuple((*place, unit) for place, unit in kernel.alignment.items()),
        )  # fmt: skip


def leave_facts(module: Any, kernels: Sequence[KernelSignature]) -> None:
    """Write what is known of the kernels into the module."""
    text = json.dumps([asdict(KernelFacts.of(kernel)) for kernel in kernels])
    KERNELS.set(module.operation, text)


def facts_of(module: Any) -> list[KernelFacts]:
    """What `distribute-tiles` left of the kernels."""
    found = json.loads(KERNELS.of(module.operation))
    return [KernelFacts(**{**f, "alignment": tuple(map(tuple, f["alignment"]))}) for f in found]


# another shape of the same elements: the runtime passes a view
_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


class GpuHost(HostReader):
    """Reads the host function op by op into a plan."""

    @staticmethod
    def find(module: Any, entry: str) -> GpuHost:
        return GpuHost(entry_function(module, entry))

    def read(self) -> list[KernelSignature]:
        self.kernels: list[KernelSignature] = []
        block = self.function.regions[0].blocks[0]
        _own_results(block)
        for op in block.operations:
            self._op(op)
        self.in_place = in_place(self.function, len(self.arguments), self.expressions)
        return self.kernels

    def _op(self, op: Any) -> None:
        name = op.operation.name
        if name == "tensor.empty":
            kind, sizes = op.result.type, iter(op.operation.operands)
            self.shapes[op.result] = [
                self.expressions[next(sizes)] if kind.is_dynamic_dim(d) else kind.shape[d]
                for d in range(kind.rank)
            ]  # a buffer is made for each result that starts from it
        elif name in ("tensor.dim", "tensor.cast"):
            source, result = op.operands[0], op.results[0]
            if name == "tensor.cast":
                self.arrays[result], self.shapes[result] = self.arrays[source], self.shapes[source]
            else:
                dimension = self.expressions[op.operands[1]]
                self.expressions[result] = self.shapes[source][dimension]
        elif name in _RESHAPES:
            result, shape = op.results[0], self.reshaped(op.operation)
            dtype = str(ir.RankedTensorType(result.type).element_type)
            self.buffers.append(Buffer(dtype, tuple(shape), self.arrays[op.operands[0]]))
            self.arrays[result] = ["buffer", len(self.buffers) - 1]
            self.shapes[result] = shape
        elif name == "scf.forall":
            self._kernel(op.operation)
        elif name == "func.return":
            self.results = tuple(list(self._result_buffer(value)) for value in op.operands)
        else:
            self.scalar(op, name)

    def _kernel(self, forall: Any) -> None:
        lows, highs, steps = grid_bounds(forall)
        if any(x != 0 for x in lows) or any(x != 1 for x in steps):
            raise LoweringError(
                "a grid that does not count from 0 by 1", loc=location_text(forall.location)
            )
        body = forall.regions[0].blocks[0]
        own = set(body.arguments)
        outside = [v for v in captured(list(body.operations)) if v not in own]
        outputs = list(forall.operands)[len(forall.operands) - len(forall.results) :]
        tensors = [v for v in outside if v in self.arrays]
        scalars = [v for v in outside if v in self.expressions and v not in self.constants]
        places = [tuple(self.arrays[v]) for v in tensors]
        pitched = bool(tuned(forall, "pitched", 0))
        places += [self._result_buffer(v, pitched) for v in outputs]
        name = self.kernel_name(forall)
        grid = tuple(h if isinstance(h, int) else self.expressions[h] for h in highs)
        extents: tuple[Any, ...] = grid
        if CONSUMERS.on(forall):
            grid = blocks_of(forall, grid)
        if POINTS.on(forall):
            points = functools.reduce(lambda a, b: fold("mul", a, b), grid)
            grid = (fold("ceildiv", points, POINTS.of(forall)),)
        operands: list[Any] = [list(place) for place in places]
        operands += self.passed(scalars, forall, GPU_NUMBERS)
        operands += [["value", "index", extent] for extent in extents]
        self.launch(name, grid, operands, forall)
        self.kernels.append(
            KernelSignature(
                name, forall, [*tensors, *outputs], scalars, list(highs), len(outputs), places,
                extents=extents,
            )
        )
        made = places[len(tensors) :]
        for result, out, place in zip(forall.results, outputs, made, strict=True):
            self.arrays[result], self.shapes[result] = list(place), self.shapes[out]

    def _result_buffer(self, start: Any, pitched: bool = False) -> tuple[str, int]:
        """The memory of a result that starts as `start`, its rows apart (`pitched`) or not.

        One `tensor.empty` may be the start of several results: each gets a buffer of its own.
        """
        if start in self.arrays:
            kind, k = self.arrays[start]
            return kind, k
        dtype = str(ir.RankedTensorType(start.type).element_type)
        unit = of_size(PANEL, element_bytes(dtype)) if pitched else 1
        self.buffers.append(Buffer(dtype, tuple(self.shapes[start]), pitch=unit))
        return "buffer", len(self.buffers) - 1

    def finish(self, module: Any) -> Plan:
        """Leave the plan in the module and remove the host function."""
        self.launches = [
            replace(
                launch, operands=(*launch.operands, *kernel.operands), narrow=kernel.narrow
            )
            for launch, kernel in zip(self.launches, self.kernels, strict=True)
        ]
        plan = replace(self.plan(), in_place=self.in_place)
        for op in list(module.body.operations):
            if op.operation.name == "func.func":
                op.operation.erase()
        PLAN.set(module.operation, plan.to_json())
        return plan


def _own_results(block: Any) -> None:
    """Give every result of a kernel an empty tensor of its own: as values, empty tensors of one
    shape are all alike (and `cse` merges them), but each is a buffer here."""
    for op in list(block.operations):
        if op.operation.name != "scf.forall":
            continue
        forall = op.operation
        first = len(forall.operands) - len(forall.results)
        for position in range(first, len(forall.operands)):
            value = forall.operands[position]
            empty = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if empty is None or empty.name != "tensor.empty" or len(list(value.uses)) == 1:
                continue
            with ir.InsertionPoint(forall), forall.location:
                forall.operands[position] = empty.clone().results[0]
