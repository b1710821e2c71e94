# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to an object file for a CPU, through llvmlite."""

from __future__ import annotations

import threading

import llvmlite.binding as llvm

from neptune_mlir.codegen.llvm_text import downgrade
from neptune_mlir.errors import ToolError
from neptune_mlir.targets.cpu import CpuTarget

_lock = threading.Lock()


def object_code(text: str, target: CpuTarget, *, level: int = 3) -> bytes:
    """The relocatable object of an LLVM IR module, optimised for `target`.

    Raises:
        ToolError: LLVM does not take the module (a defect of this compiler).
    """
    with _lock:  # LLVM's global context takes one thread at a time
        machine = _machine(target, level)
        module = _parse(text, machine)
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return bytes(machine.emit_object(module))


def assembly(text: str, target: CpuTarget, *, level: int = 3) -> str:
    """The same, as text for people."""
    with _lock:
        machine = _machine(target, level)
        module = _parse(text, machine)
        builder = llvm.create_pass_builder(
            machine, llvm.create_pipeline_tuning_options(speed_level=level)
        )
        builder.getModulePassManager().run(module, builder)
        return str(machine.emit_assembly(module))


def _machine(target: CpuTarget, level: int) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.name, features=target.features, opt=level, reloc="pic", codemodel="small",
        jit=False,
    )  # fmt: skip


def _parse(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(downgrade(text))
        module.verify()
    except RuntimeError as error:
        raise ToolError(f"LLVM does not take the generated module: {error}") from None
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module
