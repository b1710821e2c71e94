# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One line of scalar IR on many values: by a simulator, and by machine code that upstream's passes
and LLVM make of the same text."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.codegen.cpu import native
from neptune_mlir.dialects.context import parse
from neptune_mlir.ir.bindings import ir, passmanager
from neptune_mlir.pipelines import cpu
from neptune_mlir.runtime.loader import load
from neptune_mlir.targets.cpu import host
from neptune_mlir.transforms.math.math_to_gpu import math_to_gpu
from support.chips import simt
from support.chips.simt_amd import AmdBlock
from support.chips.simt_ops import Kernel

_STORED = {"i1": "i8", "index": "i64"}  # what lies in memory, and how it becomes the other
_IN = {"i1": "arith.trunci {} : i8 to i1", "index": "arith.index_cast {} : i64 to index"}
_OUT = {"i1": "arith.extui {} : i1 to i8", "index": "arith.index_cast {} : index to i64"}
_TO_LLVM = (
    "builtin.module(arith-expand{include-bf16=true},convert-scf-to-cf,convert-arith-to-llvm{index-bitwidth=32},"
    "convert-index-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts)"
)


@dataclass(frozen=True)
class Case:
    """`line` defines %y, of type `target`, from %a0, %a1, ... of types `kinds`."""

    line: str
    kinds: tuple[str, ...]
    target: str

    def stored(self) -> list[str]:
        return [_STORED.get(kind, kind) for kind in (*self.kinds, self.target)]

    def body(self, position: str) -> str:
        """Code that loads, computes and stores the element whose number is the i64 `position`."""
        *kinds, target = self.stored()
        text = []
        for k, kind in enumerate([*kinds, target]):
            size, name = simt.SIZES[kind], f"%p{k}" if k < len(kinds) else "%q"
            text += [f"%s{k} = arith.constant {size} : i64",
                     f"%m{k} = arith.muli {position}, %s{k} : i64",
                     f"%o{k} = llvm.getelementptr {name}[%m{k}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
                     ]  # fmt: skip
        for k, (kind, wanted) in enumerate(zip(kinds, self.kinds, strict=True)):
            load = f"llvm.load %o{k} {{alignment = {simt.SIZES[kind]} : i64}} : !llvm.ptr -> {kind}"
            if kind == wanted:
                text.append(f"%a{k} = {load}")
            else:
                text += [f"%l{k} = {load}", f"%a{k} = " + _IN[wanted].format(f"%l{k}")]
        text.append(self.line)
        result = "%y"
        if target != self.target:
            result = "%z"
            text.append("%z = " + _OUT[self.target].format("%y"))
        alignment = f"{{alignment = {simt.SIZES[target]} : i64}}"
        text.append(f"llvm.store {result}, %o{len(kinds)} {alignment} : {target}, !llvm.ptr")
        return "\n".join(text)

    def arguments(self) -> str:
        return ", ".join([f"%p{k}: !llvm.ptr" for k in range(len(self.kinds))] + ["%q: !llvm.ptr"])


def simulate(case: Case, arrays: Sequence[np.ndarray], chip: str = "sm_80") -> np.ndarray:
    """What the simulator of a chip makes of values; a thread has one."""
    count = len(arrays[0])
    threads = count + -count % 64
    text = f"""gpu.module @m {{ gpu.func @k({case.arguments()}) kernel attributes
      {{known_block_size = array<i32: {threads}, 1, 1>, neptune.shared = 0 : i64}} {{
      %t = gpu.thread_id x
      %t64 = arith.index_cast %t : index to i64
      {case.body("%t64")}
      gpu.return
    }} }}"""
    module = parse(text)
    with module.context, ir.Location.unknown():
        math_to_gpu(module)
    function = module.body.operations[0].operation.regions[0].blocks[0].operations[0].operation
    kernel = Kernel.of(function)
    *kinds, target = case.stored()
    memory = simt.Memory()
    padded = [np.concatenate([a, np.repeat(a[-1:], threads - count)]) for a in arrays]
    places = [memory.put(simt.to_bytes(a.reshape(1, -1), kind))
              for a, kind in zip(padded, kinds, strict=True)]  # fmt: skip
    places.append(memory.put(np.zeros(threads * simt.SIZES[target], np.uint8)))
    if chip.startswith("gfx"):
        AmdBlock(chip, kernel, memory, places, 0)
    else:
        simt.Block(kernel, memory, places, 0)
    memory.check_guards()
    return memory.get(places[-1], (count,), target)


def compiled(cases: Sequence[Case]) -> list[Any]:
    """A function for each case, from arrays to the result of machine code for this machine."""
    functions = []
    for k, case in enumerate(cases):
        functions.append(f"""func.func @case{k}({case.arguments()}, %n: i64) {{
          %zero = arith.constant 0 : i64
          %one = arith.constant 1 : i64
          scf.for %t64 = %zero to %n step %one : i64 {{
            {case.body("%t64")}
          }}
          return
        }}""")
    module = parse("\n".join(functions))
    with module.context, ir.Location.unknown():
        passmanager.PassManager.parse(_TO_LLVM).run(module.operation)
        text = cpu._llvm_text(module)
    code = native.object_code(text, host(), vectorize=False)
    engine, addresses = load(code, [f"case{k}" for k in range(len(cases))])

    def call(k: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
        *kinds, target = cases[k].stored()
        raw = [simt.to_bytes(a.reshape(1, -1), kind) for a, kind in zip(arrays, kinds, strict=True)]
        out = np.zeros(len(arrays[0]) * simt.SIZES[target], np.uint8)
        pointers = [ctypes.c_void_p(r.ctypes.data) for r in (*raw, out)]
        kept = engine  # the code lives as long as who may call it
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)(addresses[k])(
            *pointers, len(arrays[0])
        )
        assert kept is not None
        return simt.from_bytes(out, target)

    return [lambda arrays, k=k: call(k, arrays) for k in range(len(cases))]
