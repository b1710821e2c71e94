# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Object files for CPUs: the conversions that they bring along."""

import ctypes
import dataclasses

import numpy as np
import pytest

from neptune_mlir.codegen.cpu import native
from neptune_mlir.driver.inputs import bf16_bits
from neptune_mlir.runtime.loader import load, undefined_symbols
from neptune_mlir.targets.cpu import host

# a chip with 512-bit vectors and no instruction that rounds to bfloat
SHUFFLED = """
define void @shuffled(ptr %p) {
  %a = load <16 x bfloat>, ptr %p
  %b = shufflevector <16 x bfloat> %a, <16 x bfloat> zeroinitializer, <4 x i32> <i32 3, i32 1, i32 2, i32 0>
  store <4 x bfloat> %b, ptr %p
  ret void
}
define void @from_single(ptr %to, float %x) {
  %r = call bfloat @__truncsfbf2(float %x)
  store bfloat %r, ptr %to
  ret void
}
define void @from_double(ptr %to, double %x) {
  %r = call bfloat @__truncdfbf2(double %x)
  store bfloat %r, ptr %to
  ret void
}
declare bfloat @__truncsfbf2(float)
declare bfloat @__truncdfbf2(double)
"""  # noqa: E501

# halves between neighbours, above and below them, subnormals, both ends of the range
VALUES = [
    0.0, -0.0, 1.0, 1.00390625, 1.01171875, 1.0 + 2**-8 + 2**-20, -1.00390625 - 2**-30,
    3.3895e38, 3.4e38, -3.4e38, 1e-39, 9.2e-41, 2**-133, 2**-134, np.inf, -np.inf, np.nan,
]  # fmt: skip


@pytest.mark.parametrize("kind", ["single", "double"])
def test_conversions_to_bfloat(kind):
    code = native.object_code(SHUFFLED, host(), vectorize=False)
    assert undefined_symbols(code) == []
    engine, (address,) = load(code, [f"from_{kind}"])
    real = ctypes.c_float if kind == "single" else ctypes.c_double
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, real)(address)
    for value in map(np.float32, VALUES):
        made = ctypes.c_uint16()
        function(ctypes.addressof(made), float(value))
        assert made.value == int(bf16_bits(value)), value
    assert engine


def test_double_is_rounded_once():
    """1 + 2^-8 + 2^-40: the nearest float is the tie 1 + 2^-8, which would round to 1."""
    engine, (address,) = load(
        native.object_code(SHUFFLED, host(), vectorize=False), ["from_double"]
    )
    made = ctypes.c_uint16()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_double)(address)
    function(ctypes.addressof(made), 1 + 2**-8 + 2**-40)
    assert made.value == 0x3F81 and engine


def test_chips_without_the_instruction_need_no_library():
    chip = dataclasses.replace(host(), features="+avx512f,+avx512bw,+avx512vl,-avx512bf16")
    assert undefined_symbols(native.object_code(SHUFFLED, chip, vectorize=False)) == []
