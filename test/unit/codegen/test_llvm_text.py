# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rewriting of LLVM 24's text, against LLVM's own idea of every constant, bit for bit."""

import llvmlite.binding as llvm
import numpy as np
import pytest

from neptune_mlir.codegen.cpu.native import object_code
from neptune_mlir.codegen.llvm_text import bits_of, downgrade
from neptune_mlir.ir.bindings import ir, passmanager
from neptune_mlir.ir.bindings import llvm as llvm_dialect
from neptune_mlir.runtime.loader import load
from neptune_mlir.targets.cpu import host

WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
MANTISSAS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def interesting(kind: str, count: int = 60) -> list[int]:
    """Bit patterns: random ones, zeros, infinities, quiet NaNs, denormals, extremes."""
    width, mantissa = WIDTHS[kind], MANTISSAS[kind]
    sign, exponent = 1 << (width - 1), ((1 << (width - 1 - mantissa)) - 1) << mantissa
    special = [0, sign, exponent, sign | exponent, 1, exponent - 1, exponent | 1 << (mantissa - 1),
               sign | exponent | 1 << (mantissa - 1), exponent | 3 << (mantissa - 2)]  # fmt: skip
    rng = np.random.default_rng(7)
    some = [int(x) % (1 << width) for x in rng.integers(0, 1 << 63, count, dtype=np.uint64)]
    # signalling NaNs may turn quiet on their way through an x87 or a conversion: leave them out
    return special + [b for b in some if b & exponent != exponent]


@pytest.mark.parametrize("kind", sorted(WIDTHS))
def test_constants_survive(kind):
    """Store constants through LLVM 24's printer, our rewriting and LLVM 22's parser."""
    width = WIDTHS[kind]
    patterns = interesting(kind)
    stores = "\n".join(
        f"""%c{k} = arith.constant 0x{bits:0{width // 4}X} : {kind}
        %i{k} = arith.constant {k} : index
        memref.store %c{k}, %m[%i{k}] : memref<?x{kind}>"""
        for k, bits in enumerate(patterns)
    )
    with ir.Context():
        module = ir.Module.parse(
            f"func.func @f(%m: memref<?x{kind}>) attributes {{llvm.emit_c_interface}} "
            f"{{ {stores}\n return }}"
        )
        passmanager.PassManager.parse(
            "builtin.module(finalize-memref-to-llvm,convert-arith-to-llvm,convert-func-to-llvm,"
            "convert-index-to-llvm,reconcile-unrealized-casts)"
        ).run(module.operation)
        text = llvm_dialect.translate_module_to_llvmir(module.operation)
    engine, (address,) = load(object_code(text, host(), vectorize=False), ["_mlir_ciface_f"])
    import ctypes

    out = np.zeros(len(patterns), f"uint{width}")
    pointer = out.ctypes.data
    record = (ctypes.c_int64 * 5)(pointer, pointer, 0, len(patterns), 1)
    ctypes.CFUNCTYPE(None)(address)(record)
    assert engine and [int(x) for x in out] == patterns


@pytest.mark.parametrize(
    ("token", "kind", "bits"),
    [
        ("+inf", "float", 0x7F800000), ("-inf", "half", 0xFC00), ("+qnan", "float", 0x7FC00000),
        ("-nan(0x1)", "float", 0xFFC00001), ("+snan(0x1)", "float", 0x7F800001),
        ("f0x3F333333", "float", 0x3F333333), ("1.000980e-01", "bfloat", 0x3DCD),
        ("1.000000e-01", "float", 0x3DCCCCCD),
    ],
)  # fmt: skip
def test_spellings(token, kind, bits):
    assert bits_of(token, kind) == bits


def test_what_is_no_constant_stays():
    line = 'call void asm "mov.f32 1.5, +inf;", ""() ; and @name.1.5, %v1.50'
    assert downgrade(line).startswith('call void asm "mov.f32 1.5, +inf;", ""()')
    assert downgrade('attributes #0 = { "uniform-work-group-size" }') == (
        'attributes #0 = { "uniform-work-group-size"="true" }'
    )
    assert "nocreateundeforpoison" not in downgrade(
        "attributes #0 = { nocreateundeforpoison nounwind }"
    )


def test_every_operand_position_parses():
    text = """define float @f(float %x, i1 %c, <2 x float> %v) {
entry:
  br i1 %c, label %a, label %b
a:
  br label %b
b:
  %p = phi float [ 1.000000e-01, %entry ], [ f0x3F333333, %a ]
  %s = select i1 %c, float %p, float -inf
  %y = fadd float %s, 2.000000e-01
  %d = fcmp ogt float %y, 3.000000e-01
  %w = fadd <2 x float> %v, splat (float 1.300000e+00)
  %u = fadd <2 x float> %w, <float 1.000000e-01, float +qnan>
  %z = extractelement <2 x float> %u, i32 0
  %r = select i1 %d, float %z, float %y
  ret float %r
}"""
    llvm.parse_assembly(downgrade(text)).verify()
