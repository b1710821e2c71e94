# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR to NVIDIA code: layouts, distribution, NVVM, PTX, cubin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.bindings import ir, llvm, passmanager
from neptune_mlir.codegen import nvptx, ptxas
from neptune_mlir.errors import LoweringError, ToolError
from neptune_mlir.runtime.plan import Plan
from neptune_mlir.targets.nvidia import NvidiaTarget, nvidia
from neptune_mlir.transforms.registry import remark

# 32-bit positions: an axis has less than 2^31 elements; addresses are 64-bit all the same.
_LOWERINGS = (
    "builtin.module(lower-affine,gpu.module("
    "canonicalize,cse,arith-expand,convert-scf-to-cf,"
    "convert-gpu-to-nvvm{index-bitwidth=32 use-bare-ptr-memref-call-conv=1},"
    "convert-vector-to-llvm,convert-arith-to-llvm{index-bitwidth=32},"
    "convert-math-to-llvm,convert-index-to-llvm{index-bitwidth=32}),"
    "convert-cf-to-llvm{index-bitwidth=32},reconcile-unrealized-casts,"
    "gpu.module(canonicalize,cse))"
)


@dataclass(frozen=True)
class KernelInfo:
    """What one kernel of a compiled module takes of a multiprocessor."""

    name: str
    threads: int
    shared: int  # bytes of dynamic shared memory
    registers: int
    spills: int  # bytes of spill stores and loads of one thread
    blocks_per_sm: int


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture, with the figures of its kernels."""

    target: str
    cubin: bytes
    ptx: str
    kernels: tuple[KernelInfo, ...]
    plan: Plan
    warnings: tuple[str, ...]
    tools: tuple[str, ...]


def compile_tiles(module: Any, target: str, **options: Any) -> Compiled:
    """Compile tile IR (consumed) for one NVIDIA architecture.

    Args:
        options: of the pass `assign-layouts` (`warps`, `stages`, `narrow`).

    Raises:
        LoweringError: the program cannot be lowered.
        ToolError: the code generator or the assembler failed.
    """
    from neptune_mlir.transforms.assign_layouts import assign_layouts
    from neptune_mlir.transforms.distribute_tiles import distribute_tiles

    chip = nvidia(target)
    with module.context, ir.Location.unknown():
        passmanager.PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)
        assign_layouts(module, target=target, **options)
        distribute_tiles(module)
        module.operation.verify()
        plan = Plan.from_json(ir.StringAttr(module.operation.attributes["neptune.plan"]).value)
        kernels = _kernel_attributes(module)
        text = to_llvm(module)
    code = nvptx.ptx(text, chip)
    cubin = ptxas.assemble(code, chip)
    infos = []
    for name, threads, shared in kernels:
        found = cubin.figures.get(name)
        if found is None:
            raise ToolError(f"ptxas reports no kernel '{name}'")
        spills = found.spill_stores + found.spill_loads
        if spills:
            with module.context:
                remark(ir.Location.unknown(module.context),
                       f"kernel '{name}' spills {spills} bytes a thread on {target}", "warning")  # fmt: skip
        infos.append(
            KernelInfo(
                name, threads, shared, found.registers, spills,
                chip.blocks_per_sm(threads, found.registers, shared),
            )  # fmt: skip
        )
    return Compiled(
        target, cubin.code, code, tuple(infos), plan, cubin.warnings, (cubin.tool,)
    )


def _kernel_attributes(module: Any) -> list[tuple[str, int, int]]:
    """Name, threads and bytes of shared memory of every kernel."""
    found = []
    for op in module.body.operations:
        if op.operation.name != "gpu.module":
            continue
        for inner in op.operation.regions[0].blocks[0].operations:
            operation = inner.operation
            if operation.name == "gpu.func":
                attributes = operation.attributes
                found.append((
                    ir.StringAttr(attributes["sym_name"]).value,
                    list(ir.DenseI32ArrayAttr(attributes["known_block_size"]))[0],
                    ir.IntegerAttr(attributes["neptune.shared"]).value,
                ))  # fmt: skip
    return found


def to_llvm(module: Any) -> str:
    """Lower the `gpu.module` in place and translate it to LLVM IR text."""
    try:
        passmanager.PassManager.parse(_LOWERINGS).run(module.operation)
    except ir.MLIRError as error:
        raise LoweringError(f"the kernels cannot be lowered to NVVM: {error}") from None
    kernels = next(op for op in module.body.operations if op.operation.name == "gpu.module")
    check_translatable(kernels.operation)
    return str(llvm.translate_module_to_llvmir(kernels.operation))


def check_translatable(operation: Any) -> None:
    """Raise LoweringError on an op that translation to LLVM IR would die on."""
    foreign: set[str] = set()

    def visit(op: Any) -> Any:
        if op.name.split(".")[0] not in ("llvm", "nvvm", "rocdl") and op.name != "gpu.module":
            foreign.add(op.name)
        return ir.WalkResult.ADVANCE

    operation.walk(visit)
    if foreign:
        raise LoweringError(f"no lowering to LLVM for {', '.join(sorted(foreign))}")
