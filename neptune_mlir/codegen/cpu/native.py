# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to an object file for a CPU, through llvmlite."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm

from neptune_mlir.codegen.llvm_text import downgrade
from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.loader import llvm_lock
from neptune_mlir.targets.cpu import EFFORT, CpuTarget, is_arm

# Chips without AVX512-BF16: LLVM moves vectors of bfloat by way of float, whatever the program
# says, and calls these (of libgcc, from GCC 13 on) for the way back. Nearest even; NaN stays NaN.
# From double by way of the float that is rounded to odd, so that nothing is rounded twice.
_CONVERSIONS = """
define bfloat @__truncsfbf2(float %x) noinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %bits, 32767
  %sum = add i32 %half, %odd
  %near = lshr i32 %sum, 16
  %quiet = or i32 %high, 64
  %nan = fcmp uno float %x, %x
  %word = select i1 %nan, i32 %quiet, i32 %near
  %short = trunc i32 %word to i16
  %r = bitcast i16 %short to bfloat
  ret bfloat %r
}
define bfloat @__truncdfbf2(double %x) noinline {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %exact = fcmp ueq double %back, %x
  %size = call double @llvm.fabs.f64(double %x)
  %reached = call double @llvm.fabs.f64(double %back)
  %over = fcmp ogt double %reached, %size
  %bits = bitcast float %near to i32
  %less = sext i1 %over to i32
  %cut = add i32 %bits, %less
  %odd = or i32 %cut, 1
  %word = select i1 %exact, i32 %bits, i32 %odd
  %f = bitcast i32 %word to float
  %r = call bfloat @__truncsfbf2(float %f)
  ret bfloat %r
}
declare double @llvm.fabs.f64(double)
"""


def object_code(text: str, target: CpuTarget, *, vectorize: bool) -> bytes:
    """The relocatable object of an LLVM IR module, optimised for `target`. Code that is in
    vectors already compiles faster without LLVM's loop vectoriser and unroller.

    Raises:
        ToolError: LLVM does not take the module (a defect of this compiler).
    """
    with llvm_lock:
        machine, module = _optimised(text, target, vectorize)
        return bytes(machine.emit_object(module))


def assembly(text: str, target: CpuTarget, *, vectorize: bool) -> str:
    """The same, as text for people."""
    with llvm_lock:
        machine, module = _optimised(text, target, vectorize)
        return str(machine.emit_assembly(module))


def _optimised(text: str, target: CpuTarget, vectorize: bool) -> tuple[Any, Any]:
    machine = _machine(target)
    module = _parse(text, machine)
    options = llvm.create_pipeline_tuning_options(speed_level=EFFORT.get())
    options.loop_vectorization = options.slp_vectorization = vectorize
    options.loop_unrolling = vectorize
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine, module


def _machine(target: CpuTarget) -> llvm.TargetMachine:
    if is_arm(target.triple) == is_arm(llvm.get_process_triple()):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:  # code for another machine than this one
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.name, features=target.features, opt=EFFORT.get(), reloc="pic",
        codemodel="small", jit=False,
    )  # fmt: skip


def _parse(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(downgrade(text))
        if "bfloat" in text:
            module.link_in(llvm.parse_assembly(_CONVERSIONS))
        module.verify()
    except RuntimeError as error:
        raise ToolError(f"LLVM does not take the generated module: {error}") from None
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module
