# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to an object file for a CPU, through llvmlite."""

from __future__ import annotations

import threading
from typing import Any

import llvmlite.binding as llvm

from neptune_mlir.codegen.llvm_text import downgrade
from neptune_mlir.errors import ToolError
from neptune_mlir.targets.cpu import CpuTarget

_lock = threading.Lock()


def object_code(text: str, target: CpuTarget, *, vectorize: bool) -> bytes:
    """The relocatable object of an LLVM IR module, optimised for `target`. Code that is in
    vectors already compiles faster without LLVM's loop vectoriser and unroller.

    Raises:
        ToolError: LLVM does not take the module (a defect of this compiler).
    """
    with _lock:  # LLVM's global context takes one thread at a time
        machine, module = _optimised(text, target, vectorize)
        return bytes(machine.emit_object(module))


def assembly(text: str, target: CpuTarget, *, vectorize: bool) -> str:
    """The same, as text for people."""
    with _lock:
        machine, module = _optimised(text, target, vectorize)
        return str(machine.emit_assembly(module))


def _optimised(text: str, target: CpuTarget, vectorize: bool) -> tuple[Any, Any]:
    machine = _machine(target)
    module = _parse(text, machine)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = vectorize
    options.loop_unrolling = vectorize
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine, module


def _machine(target: CpuTarget) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.name, features=target.features, opt=3, reloc="pic", codemodel="small",
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
