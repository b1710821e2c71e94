# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `distribute-tiles`: every `scf.forall` becomes a `gpu.func` for one thread of a block.

`assign-layouts` has decided where tile values live; this pass writes the code of one thread
(`gpu/kernels.py`, `points.py`, `nvidia/specialized.py`) with the instructions of a chip.

The host function becomes the launch plan (`neptune.plan`, see `runtime/plan.py`), and what a
launch has to know of each kernel becomes `neptune.kernels` (`gpu/host.py`); each tensor
operand of a kernel is passed as its address and the strides of all but the innermost dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.codegen.amd.instructions import Amd
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.host import GpuHost, KernelSignature, leave_facts
from neptune_mlir.codegen.gpu.kernels import KernelWriter
from neptune_mlir.codegen.gpu.sums import awaits_of
from neptune_mlir.codegen.nvidia.instructions import Nvidia
from neptune_mlir.codegen.nvidia.program_queue import declare_counters
from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter
from neptune_mlir.codegen.overlap import given, independent
from neptune_mlir.codegen.points import PointWriter
from neptune_mlir.dialects.attributes import FOLLOWED, POINTS, TARGET, WARPS
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, RESIDENT
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import gpu, ir, location_text
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.amd import AmdTarget
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.transforms.registry import register


@register("distribute-tiles", "turn tile programs into the code of one GPU thread")
def distribute_tiles(module: Any, *, entry: str = "") -> None:
    host = GpuHost.find(module, entry)
    signatures = host.read()
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        kernels = gpu.GPUModuleOp("kernels")
        block = (
            kernels.regions[0].blocks[0]
            if len(kernels.regions[0].blocks)
            else (kernels.regions[0].blocks.append())
        )
        with ir.InsertionPoint(block):
            writers = [_writer(signature) for signature in signatures]
            for writer in writers[:1]:
                writer.chip.declare_module()
            if any(RESIDENT.on(x.forall) for x in signatures):
                declare_counters()
            if all(writer.target.overlaps_launches for writer in writers):
                _overlap(writers, host)
            for writer in writers:
                kernel = writer.signature
                kernel.independent &= all(other.tells > 0 for other in kernel.awaits)
                writer.write()
    host.finish(module)
    leave_facts(module, signatures)
    module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _overlap(writers: Sequence[KernelWriter], host: GpuHost) -> None:
    """Let kernels start before those in front of them have ended."""
    beside = [False] * len(writers)
    for writer in writers:
        if type(writer) is KernelWriter:
            kernel, told = writer.signature, [op.operands[0] for op in awaits_of(writer.forall)]
            pairs = zip(kernel.tensors, kernel.places, strict=True)
            kernel.awaited = [place for tensor, place in pairs if tensor in told]
            made = [defining_op(tensor) for tensor in told]
            kernel.awaits = [k for k in host.kernels if k.forall in made]
    if not host.in_place:  # else a result may have the memory of what another kernel reads
        beside = independent(host.kernels, [x.grid for x in host.launches], host.buffers)
        for kernel, tensors in zip(host.kernels, given(host.kernels, host.buffers), strict=True):
            kernel.given = tensors
    for number, writer in enumerate(writers):
        writer.signature.follows = int(number > 0)
        writer.signature.independent = beside[number]
        is_last = number + 1 == len(writers)
        writer.is_followed = not is_last or FOLLOWED.on(writer.forall.parent)
        writer.waits_first = any(beside)


def chip_of(target: GpuTarget) -> Chip:
    """The instructions of a target."""
    return Amd(target) if isinstance(target, AmdTarget) else Nvidia(target)


def _writer(signature: KernelSignature) -> KernelWriter:
    forall = signature.forall
    if not WARPS.on(forall):
        raise LoweringError(
            "tile values have no layouts", loc=location_text(forall.location),
            hint="run assign-layouts first",
        )  # fmt: skip
    chip = chip_of(gpu_target(TARGET.of(forall)))
    if POINTS.on(forall):
        return PointWriter(signature, chip)
    if CONSUMERS.on(forall):
        return SpecializedWriter(signature, chip)
    return KernelWriter(signature, chip)
