# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tile IR through the GPU passes and on the simulator, as the launch plan says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from neptune_mlir.dialects.context import parse
from neptune_mlir.driver import compiler
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import common, nvvm, rocdl, runner
from neptune_mlir.runtime import parameters
from neptune_mlir.runtime.arrays import ArrayView
from neptune_mlir.runtime.plan import Plan, evaluate
from neptune_mlir.runtime.shards.in_two import BEHIND, OPERAND, ArraysInTwo
from neptune_mlir.targets import tuned
from neptune_mlir.targets.amd import TARGETS as AMD
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.nvidia import TARGETS as NVIDIA
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.math.math_to_gpu import math_to_gpu
from support.chips import simt, simt_amd
from support.chips.simt_cluster import Cluster, ClusterBlock
from support.chips.simt_hopper import HopperBlock
from support.chips.simt_ops import Kernel
from support.chips.simt_parts import Launch, Maps

NOT_A_MAP = 1 << 30


class Rows(tuple[int, ...]):
    """The shape of an array whose rows begin at multiples of `pitch` elements."""

    pitch = 1


def in_memory(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what an array takes."""
    pitch = getattr(shape, "pitch", 1)
    return (*shape[:-1], -(-shape[-1] // pitch) * pitch) if shape else shape


def strides(shape: tuple[int, ...]) -> list[int]:
    whole = in_memory(shape)
    return [int(np.prod(whole[d + 1 :])) for d in range(len(shape))]


class Simulated:
    """A tile program lowered for a GPU, to be called with NumPy arrays.

    Args:
        data: of its constants, by SHA-256.
        choices: otherwise than by the rules: options of `set-choices`.
    """

    def __init__(
        self, program: Any, *, target: str = "sm_80", keeps: bool = True,
        data: Mapping[str, bytes] | None = None, **choices: int,
    ):  # fmt: skip
        self.target = target
        self.data = data or {}
        self.module = parse(program) if isinstance(program, str) else program
        with registry.collect_remarks() as self.remarks, self.module.context:
            if target in NVIDIA:
                steps = nvvm.to_kernels(NVIDIA[target], "")
            else:
                steps = rocdl.to_kernels(AMD[target], "")
            steps = [runner.Step("set-choices", {"keeps": int(keeps), **choices}), *steps]
            assigning = runner.until(steps, "keep-references")
            common.run(self.module, assigning)
            self.assigned = str(self.module)
            common.run(self.module, steps[len(assigning) :])
            with ir.Location.unknown():
                self.finish()

    def finish(self) -> None:
        """From kernels to what the simulator knows."""
        math_to_gpu(self.module)
        common.run(self.module, runner.parse_pipeline("lower-affine,gpu.module(canonicalize,cse)"))
        text = ir.StringAttr(self.module.operation.attributes["neptune.plan"]).value
        self.plan = Plan.from_json(text)
        self._kernels: dict[str, Kernel] | None = None
        self.behind: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.placed: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}  # arrays of a call

    def block(self, *arguments: Any) -> simt.Block:
        """Run one block."""
        if self.target.startswith("gfx"):
            return simt_amd.AmdBlock(self.target, *arguments)
        return simt.Block(*arguments)

    def run_blocks(self, kernel: Kernel, memory: simt.Memory, values: Any, blocks: int) -> None:
        for number in range(blocks):
            self.block(kernel, memory, values, number)

    def tensor_map(self, array: Any, kind: str, number: int, *box: int) -> Any:
        """What stands for the tensor map of an array, which is an address and a shape."""
        raise NotImplementedError

    def blocks_of(self, launch: Any, programs: int) -> int:
        """How many blocks a launch has."""
        return programs

    def put_behind(self, number: int, two: ArraysInTwo) -> tuple[int, ...]:
        """The second array of an argument; the shape of both."""
        first, behind = two.arrays
        kind = self.plan.arguments[number].dtype
        address = self.memory.put(simt.to_bytes(behind.reshape(1, -1), kind))
        self.behind[number] = address, behind.shape
        whole = list(first.shape)
        whole[two.dim] += behind.shape[two.dim]
        return tuple(whole)

    def place_in_two(
        self, two: ArraysInTwo | None, shapes: list[Any], number: int, dim: int, rows: int
    ) -> list[int]:
        """What a launch says of an argument that may lie in two arrays."""
        shape = shapes[number]
        view = ArrayView(0, "i8", shape, tuple(strides(shape)), False, None)
        if two is not None:
            parts = [ArrayView(0, "i8", a.shape, tuple(strides(a.shape)), False, None)
                     for a in two.arrays]  # fmt: skip
            view = two.view(parts[0], parts[1], "argument")
            assert two.arrays[0].shape[dim] % rows == 0
        return [int(x.value or 0) for x in parameters.in_two(view, dim)]

    def functions(self) -> dict[str, Any]:
        found = {}
        for op in self.module.body.operations:
            if op.operation.name == "gpu.module":
                for inner in op.operation.regions[0].blocks[0].operations:
                    if inner.operation.name == "gpu.func":
                        name = ir.StringAttr(inner.operation.attributes["sym_name"]).value
                        found[name] = inner.operation
        return found

    def kernels(self) -> dict[str, Kernel]:
        if self._kernels is None:
            self._kernels = {name: Kernel.of(f) for name, f in self.functions().items()}
        return self._kernels

    def __call__(self, *arguments: Any) -> Any:
        memory = self.memory = simt.Memory()
        second = {k: a for k, a in enumerate(arguments) if isinstance(a, ArraysInTwo)}
        shapes = [a.shape if isinstance(a, np.ndarray) else None for a in arguments]
        arguments = tuple(a.arrays[0] if k in second else a for k, a in enumerate(arguments))
        for k, two in second.items():
            shapes[k] = self.put_behind(k, two)
        scalars = [None if isinstance(a, np.ndarray) else a for a in arguments]
        addresses: dict[tuple[str, int], tuple[int, tuple[int, ...]]] = {}
        self.placed = addresses
        for k, value in enumerate(arguments):
            if isinstance(value, np.ndarray):
                kind = self.plan.arguments[k].dtype
                raw = simt.to_bytes(value.reshape(1, -1), kind) if value.size else value
                addresses["argument", k] = (memory.put(raw), value.shape)
        for k, held in enumerate(self.plan.constants):
            raw = np.frombuffer(self.data[held.sha256], np.uint8)
            addresses["constant", k] = (memory.put(raw), held.shape)
        for k, buffer in enumerate(self.plan.buffers):
            shape = tuple(int(evaluate(e, shapes, scalars, MULTIPROCESSORS)) for e in buffer.shape)
            if buffer.of is not None:  # the same memory under another shape
                addresses["buffer", k] = (addresses[tuple(buffer.of)][0], shape)
                continue
            shape = Rows(shape)
            shape.pitch = buffer.pitch
            size = int(np.prod(in_memory(shape))) * simt.SIZES[buffer.dtype]
            poison = np.full(size, 0xFF, np.uint8)
            addresses["buffer", k] = (memory.put(poison), shape)
        kernels = self.kernels()
        for launch in self.plan.launches:
            memory.begin_launch()
            values: list[Any] = []
            for operand in launch.operands:
                if operand[0] == "value":
                    values.append(evaluate(operand[2], shapes, scalars, MULTIPROCESSORS))
                elif operand[0] in ("map", BEHIND):
                    array = addresses[tuple(operand[1:3])]
                    if operand[0] == BEHIND:
                        array = self.behind.get(operand[2], array)
                    values.append(self.tensor_map(array, *operand[1:]))
                elif operand[0] == OPERAND:
                    values += self.place_in_two(second.get(operand[2]), shapes, *operand[2:])
                elif operand[0] == "counter":
                    values.append(0)
                else:
                    address, shape = addresses[operand[0], operand[1]]
                    values += [address, *strides(shape)[:-1]]
            grid = [int(evaluate(e, shapes, scalars, MULTIPROCESSORS)) for e in launch.grid]
            blocks = self.blocks_of(launch, int(np.prod(grid)))
            self.run_blocks(kernels[launch.kernel], memory, values, blocks)
        memory.check_guards()
        results = []
        for kind, k in self.plan.results:
            address, shape = addresses[kind, k]
            results.append(memory.get(address, shape, self.plan.array((kind, k)).dtype))
        return results[0] if len(results) == 1 else results


class Specialised(Simulated):
    """A program lowered for sm_90a as users compile it, for long streams.

    Args:
        choice: instead of what the shipped table says.
        blocks: of a launch whose blocks take programs from a queue.
        knobs: `NAME:NUMBER;...`, otherwise than users compile it.
        precision: what f32 factors may be rounded to.
    """

    def __init__(
        self, program: Any, choice: tuned.Choice | None = None, blocks: int = 1, knobs: str = "",
        precision: str | None = None,
    ):  # fmt: skip
        table = None
        if choice is not None:
            depths, flags = (1, 64, 128, 256), (False, True)
            every = itertools.product(depths, (0, *depths), flags, flags, flags)
            counts = (1, 1), (2, 1), (2, 2)  # of scores and results: a softmax and its gradient
            shapes = [tuned.Shape(*s, *n) for s, n in itertools.product(every, counts)]
            entries = [tuned.Entry("sm_90a", shape, 0, choice) for shape in shapes]
            table = tuned.Table(tuple(entries))
        with tuned.using(table), registry.collect_remarks() as self.remarks:
            text = compiler.with_options(program.to_mlir(), "test", precision=precision)
            self.module, _ = compiler.lower_text(text, "test", "sm_90a", None, "tile", knobs)
            nvvm.emit_tiles(self.module, "target", target="sm_90a")
            with self.module.context, ir.Location.unknown():
                self.finish()
        self.most_blocks, self.data = blocks, {}
        self.maps = Maps()
        self.blocks: list[HopperBlock] = []
        self.come: Callable[[int, int], None] | None = None  # see `Launch`

    def block(self, *arguments: Any) -> HopperBlock:
        self.blocks.append(HopperBlock(*arguments, self.maps, self.launch))
        return self.blocks[-1]

    def run_blocks(self, kernel: Kernel, memory: simt.Memory, values: Any, blocks: int) -> None:
        if kernel.cluster == 1:
            super().run_blocks(kernel, memory, values, blocks)
            return

        def make(cluster: Cluster, number: int) -> HopperBlock:
            block = ClusterBlock(cluster, kernel, memory, values, number, self.maps, self.launch)
            self.blocks.append(block)
            return block

        assert blocks % kernel.cluster == 0
        for first in range(0, blocks, kernel.cluster):
            Cluster(make, range(first, first + kernel.cluster))

    def blocks_of(self, launch: Any, programs: int) -> int:
        queue = any(operand[0] == "counter" for operand in launch.operands)
        most = max(self.most_blocks, self.kernels()[launch.kernel].cluster)
        blocks = min(programs, most) if queue else programs
        self.launch = Launch(blocks, come=self.come)
        return self.launch.blocks

    def tensor_map(self, array: Any, kind: str, number: int, *box: int) -> Any:
        address, shape = array
        dtype = self.plan.array((kind, number)).dtype
        view = ArrayView(address, dtype, shape, tuple(strides(shape)), False, None)
        made = parameters.tensor_map(self.maps, view, *box)
        return made if isinstance(made, int) else NOT_A_MAP  # an array that has no elements

    def __call__(self, *arguments: Any) -> Any:
        parameters._maps.clear()  # addresses mean something else in each call
        self.blocks = []
        self.behind.clear()
        return super().__call__(*arguments)


class Variant(Specialised):
    """A tile program with specialised warps, as it is: the kernels for some calls, say."""

    def __init__(self, module: Any):
        self.module, self.target = module, "sm_90a"
        self.most_blocks, self.data, self.maps, self.blocks = 2, {}, Maps(), []
        self.come = None
        nvvm.emit_tiles(module, "target", target="sm_90a")
        with module.context, ir.Location.unknown():
            self.finish()
