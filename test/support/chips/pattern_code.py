# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code of the functions that stand for AMD instructions, made in the emulator's process.

The emulator writes C and starts a compiler for each pattern of instruction, which takes 20 ms of
processor time, most of it the compiler's own start. Its package also writes LLVM IR, which llvmlite
compiles here in 5, without optimisations: what is run is not what costs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, ClassVar

import llvmlite.binding as llvm
from tinygrad import codegen
from tinygrad.device import Compiler
from tinygrad.dtype import dtypes
from tinygrad.helpers import Target
from tinygrad.renderer import Estimates
from tinygrad.renderer.llvmir import CPULLVMRenderer, LLVMRenderer, base_rewrite, ldt
from tinygrad.runtime import ops_cpu
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat

LOOSE = " nsz arcp contract afn"  # what IR says of each floating-point operation there
ALIGNED = " align 32"  # what arrays of that package are, and ours, which end at a page, are not
FUNCTIONS = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc"}  # exact ones, which it would make of others


def _call(ctx: Any, x: UOp) -> str:
    kind = ldt(x.dtype)
    return f"  {ctx[x]} = call {kind} @llvm.{FUNCTIONS[x.op]}({kind} {ctx[x.src[0]]})"


def _fused(ctx: Any, x: UOp, a: UOp, b: UOp, c: UOp) -> str:
    """A product and a sum in one instruction of a chip are rounded once."""
    kind = ldt(x.dtype)
    operands = ", ".join(f"{kind} {ctx[y]}" for y in (a, b, c))
    return f"  {ctx[x]} = call {kind} @llvm.fma({operands})"


EXACTLY = PatternMatcher([
    (UPat(tuple(FUNCTIONS), name="x"), _call),
    (UPat(Ops.ADD, (dtypes.float32, dtypes.float64), name="x",
          src=[UPat(Ops.MUL, src=(UPat.var("a"), UPat.var("b"))), UPat.var("c")]), _fused),
])  # fmt: skip


class Renderer(CPULLVMRenderer):
    """As `CPULLVMRenderer`, which needs a shared library of LLVM."""

    code_for_op: ClassVar = {**LLVMRenderer.code_for_op, **dict.fromkeys(FUNCTIONS, lambda: None)}
    string_rewrite = EXACTLY + base_rewrite

    def __init__(self, target: Target):
        LLVMRenderer.__init__(self, target)
        self.compiler = _Llvmlite()

    def supported_dtypes(self) -> set[Any]:
        rounds = self.compiler.features.get("f16c", True)  # or has other names for that
        missing = {*dtypes.fp8s, *(() if rounds else (dtypes.float16,))}
        return {*LLVMRenderer.supported_dtypes(self)} - missing

    def render(self, uops: list[UOp]) -> str:
        return super().render(uops).replace(LOOSE, "").replace(ALIGNED, "")


class _Llvmlite(Compiler):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(None)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        found = llvm.Target.from_triple(llvm.get_process_triple())
        self.features = llvm.get_host_cpu_features()
        self._machine = found.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=self.features.flatten(),
            opt=0, reloc="pic", codemodel="default",
        )  # fmt: skip

    def compile(self, text: str) -> bytes:
        module = llvm.parse_assembly(text)
        module.triple = self._machine.triple
        code: bytes = self._machine.emit_object(module)
        return code


def install(emulator: Any) -> None:
    """Let an emulator make its functions so, before it makes the first one."""
    ops_cpu.ClangRenderer = Renderer
    # (programs of queues, which IR has no form for; nothing here is queued)
    ops_cpu.timestamp_prog = ops_cpu.worker_prog = ops_cpu.signal_prog
    # (it takes longer to find wide loads than they save)
    codegen.memory_coalescing = lambda sink, renderer: sink
    _propagate(sys.modules[emulator.emu.parse_pcode.__module__])
    make, nothing = emulator.emu.to_program, Estimates()

    def made(sink: UOp, renderer: Any) -> Any:  # nobody asks how long a function takes
        return make(sink.replace(arg=replace(sink.arg, estimates=nothing)), renderer)

    emulator.emu.to_program = made


def _propagate(pcode: Any) -> None:
    """The minimum and the maximum that are NaN where an operand is. (The emulator takes them for
    those that leave NaNs out, wherever an instruction is made of them.)"""
    for full in ("minimum", "maximum"):
        for kind, dtype in (("f32", dtypes.float32), ("f16", dtypes.float16)):
            for name in (f"v_{full}_{kind}", f"v_{full}3_{kind}"):
                pcode._FUNCS[name] = _propagating(pcode, pcode._FUNCS[name], dtype)


def _propagating(pcode: Any, function: Any, dtype: Any) -> Any:
    def made(*operands: UOp) -> UOp:
        found = function(*operands)
        for x in operands:
            if dtype == dtypes.float16:
                value = pcode._f16_extract(x)
            else:
                value = x.bitcast(dtype) if x.dtype == dtypes.uint32 else x.cast(dtype)
            found = pcode._isnan(value).where(value, found)
        return found

    return made
