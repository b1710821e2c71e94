# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR to NVIDIA code: layouts, distribution, NVVM, PTX, cubin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from neptune_mlir.bindings import ir, llvm, passmanager
from neptune_mlir.codegen import nvptx, ptxas
from neptune_mlir.errors import LoweringError, ToolError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan
from neptune_mlir.targets.nvidia import NvidiaTarget, nvidia
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.assign_layouts import assign_layouts
from neptune_mlir.transforms.distribute_host import KernelSignature
from neptune_mlir.transforms.distribute_tiles import distribute
from neptune_mlir.transforms.math_to_nvvm import math_to_nvvm
from neptune_mlir.transforms.registry import remark
from neptune_mlir.transforms.skew_loops import skew_loops
from neptune_mlir.transforms.specialize_warps import specialize_warps

# What shipped schedules are bound to: products of 192 registers a thread of 4 warps. So held, 128
# rows by 64 columns in 2 stages were the fastest tiles that tools/gpu_check.py tried on an H200 at
# head dims 64 and 128.
KNOBS = {"streamed": "held:24576"}

# 32-bit positions: an axis has less than 2^31 elements; addresses are 64-bit all the same.
_LOWERINGS = (
    "builtin.module(lower-affine,gpu.module("
    "canonicalize,cse,arith-expand,convert-scf-to-cf,"
    "convert-gpu-to-nvvm{index-bitwidth=32 use-bare-ptr-memref-call-conv=1},"
    "convert-vector-to-llvm,convert-arith-to-llvm{index-bitwidth=32},"
    "convert-index-to-llvm{index-bitwidth=32}),"
    "convert-cf-to-llvm{index-bitwidth=32},reconcile-unrealized-casts,"
    "gpu.module(canonicalize,cse))"
)


def compile_tiles(
    module: Any,
    *,
    target: str = "sm_80",
    entry: str | None = None,
    facts: dict[str, Any] | None = None,
    **options: Any,
) -> Bundle:
    """The bundle of tile IR for NVIDIA architectures.

    Args:
        module: consumed.
        target: one architecture or several, separated by commas.
        options: of the pass `assign-layouts` (`warps`, `stages`, `narrow`), and `hopper`: on
            sm_90a, kernels that allow it get a producer and consumers (`specialize-warps`, its
            option `turns`), their loops `skew`ed (`skew-loops`).

    Raises:
        LoweringError: the program cannot be lowered.
        ToolError: the code generator or the assembler failed.
    """
    text = str(module)
    plan: Plan | None = None
    images: list[dict[str, Any]] = []
    code = b""
    remarks: list[str] = []
    alignment: dict[tuple[str, int], int] = {}
    for name in target.split(","):
        copy = ir.Module.parse(text, module.context)
        with registry.collect_remarks() as found:
            made = _compile_one(copy, nvidia(name.strip()), entry or "", options)
        remarks += [str(r) for r in found if str(r) not in remarks]
        plan = plan or made.plan
        images.append({"target": name.strip(), "offset": len(code), "size": len(made.cubin),
                       "kernels": made.kernels, "tools": made.tools,
                       "notes": made.warnings})  # fmt: skip
        code += made.cubin
        for place, unit in made.alignment.items():
            alignment[place] = max(alignment.get(place, 1), unit)
    assert plan is not None
    facts = {} if facts is None else facts
    facts.setdefault("remarks", []).extend(remarks)
    facts["images"] = images
    facts["alignment"] = [[*place, unit] for place, unit in sorted(alignment.items())]
    return Bundle(target, plan, code, facts)


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture. `kernels` is, by name: threads, shared (bytes),
    registers, spills (bytes a thread), blocks_per_sm."""

    cubin: bytes
    ptx: str
    kernels: dict[str, dict[str, int]]
    plan: Plan
    alignment: dict[tuple[str, int], int]
    warnings: list[str]
    tools: list[str]


def _compile_one(module: Any, chip: NvidiaTarget, entry: str, options: Any) -> Compiled:
    with module.context, ir.Location.unknown():
        kernels = _to_kernels(module, chip, entry, options)
        plan = Plan.from_json(ir.StringAttr(module.operation.attributes["neptune.plan"]).value)
        text = to_llvm(module)
    code = nvptx.ptx(text, chip)
    cubin = ptxas.assemble_without_spills(code, chip)
    if any(kernel.maps for kernel in kernels):
        _check_specialised(cubin)
    infos: dict[str, dict[str, int]] = {}
    alignment: dict[tuple[str, int], int] = {}
    for kernel in kernels:
        found = cubin.figures.get(kernel.name)
        if found is None:
            raise ToolError(f"ptxas reports no kernel '{kernel.name}'")
        spills = found.spill_stores + found.spill_loads
        if spills:
            message = f"kernel '{kernel.name}' spills {spills} bytes a thread on {chip.name}"
            remark(ir.Location.unknown(module.context), message, "warning")
        infos[kernel.name] = {
            "threads": kernel.threads, "shared": kernel.shared, "registers": found.registers,
            "spills": spills,
            "blocks_per_sm": chip.blocks_per_sm(kernel.threads, found.registers, kernel.shared),
        }  # fmt: skip
        for place, unit in kernel.alignment.items():
            alignment[place] = max(alignment.get(place, 1), unit)
    return Compiled(
        cubin.code, code, infos, plan, alignment, list(cubin.warnings), [cubin.tool]
    )


def _check_specialised(cubin: ptxas.Cubin) -> None:
    """Matrix products that the assembler runs one by one, or a refused register
    reallocation, undo what specialised warps are for: such a build has failed."""
    lost = [w for w in cubin.warnings if re.search(r"C75\d\d|serializ|setmaxnreg", w)]
    if lost:
        raise ToolError(f"ptxas gives up warp specialisation: {lost[0]}")


_HOPPER = {"hopper": False, "skew": True, "turns": True}  # options and their defaults

EMITS = ("target", "llvm", "ptx")  # the levels below tile IR that `emit_tiles` shows


def emit_tiles(module: Any, level: str, entry: str | None = None, target: str = "sm_80") -> str:
    """A function in tile IR at a lower level, as text (changes `module`)."""
    chip = nvidia(target)
    with module.context, ir.Location.unknown():
        _to_kernels(module, chip, entry or "", {})
        if level == "target":
            return str(module)
        text = to_llvm(module)
    return text if level == "llvm" else nvptx.ptx(text, chip)


def _to_kernels(
    module: Any, chip: NvidiaTarget, entry: str, options: Any
) -> list[KernelSignature]:
    """Tile IR to `gpu.func`s and a plan."""
    passmanager.PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)
    options = dict(options)
    hopper, skew, turns = (options.pop(k, d) for k, d in _HOPPER.items())
    hopper = hopper and chip.name == "sm_90a"
    if hopper:
        stages = options.get("stages", 2)
        specialize_warps(module, target=chip.name, stages=stages, turns=bool(turns))
    assign_layouts(module, target=chip.name, **options)
    if hopper and skew:
        skew_loops(module)
    kernels = distribute(module, entry)
    module.operation.verify()
    return kernels


def to_llvm(module: Any) -> str:
    """Lower the `gpu.module` in place and translate it to LLVM IR text."""
    math_to_nvvm(module)
    try:
        passmanager.PassManager.parse(_LOWERINGS).run(module.operation)
    except ir.MLIRError as error:
        raise LoweringError(f"the kernels cannot be lowered to NVVM: {error}") from None
    kernels = next(op for op in module.body.operations if op.operation.name == "gpu.module")
    _keep_constants_in_place(kernels.operation)
    check_translatable(kernels.operation)
    return str(llvm.translate_module_to_llvmir(kernels.operation))


def _keep_constants_in_place(kernels: Any) -> None:
    """Arguments passed by value are constants of the grid: without this LLVM copies them first.

    (`gpu.func` cannot carry the attribute, so it is set on what became of it.)
    """
    for op in kernels.regions[0].blocks[0].operations:
        attributes = op.operation.attributes
        if op.operation.name != "llvm.func" or "arg_attrs" not in attributes:
            continue
        by_value = {
            "nvvm.grid_constant": ir.UnitAttr.get(),
            "llvm.byval": ir.TypeAttr.get(ir.Type.parse("!llvm.array<128 x i8>")),
        }
        found = []
        for argument in map(ir.DictAttr, attributes["arg_attrs"]):
            known = {entry.name: entry.attr for entry in argument}
            # the conversion keeps the alignment of a tensor map and drops that it is a value
            found.append(ir.DictAttr.get(known | by_value if "llvm.align" in known else known))
        attributes["arg_attrs"] = ir.ArrayAttr.get(found)


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
