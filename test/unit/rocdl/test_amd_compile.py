# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From programs to HSACO without a GPU: the ten operators, notes, mixed bundles, errors."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.amd import amdgcn, hsaco
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.driver.compiler import compile_text, emit_text
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import ToolError, UsageError
from neptune_mlir.pipelines import rocdl
from neptune_mlir.pipelines.rocdl import argument_sizes
from neptune_mlir.runtime.arrays import storage_dtype
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.images import choose_images
from neptune_mlir.targets.amd import amd
from support.chips import amd_calls
from support.often import nightly_if

try:
    amdgcn.find_linker()
except ToolError:
    pytest.skip("no lld here", allow_module_level=True)


def built(program, target):
    return compile_text(Source.of(program).text, "test", target, None, None)


def code_of(bundle, image):
    return bundle.code[image["offset"] : image["offset"] + image["size"]]


# groups of heads and a cut stream (test_amd_kernels simulates operators of each kind, and
# test_instructions_that_matter compiles attention without that)
QUICK = ("decode_gqa",)


@pytest.mark.parametrize("name", nightly_if(lambda name: name not in QUICK, ops.OPERATORS))
def test_the_ten_operators(name):
    """At their real size, for a chip of each kind: no scratch memory, and launched as planned."""
    bundle = built(ops.operator(name), "gfx942,gfx1100")
    inputs = [
        np.zeros([n or _extent(name, k, d) for d, n in enumerate(a.shape)], storage_dtype(a.dtype))
        for k, a in enumerate(bundle.plan.arguments)
    ]
    for image in bundle.facts["images"]:
        chip = amd(image["target"])
        target, notes = hsaco.read_notes(code_of(bundle, image))
        assert target == f"amdgcn-amd-amdhsa--{chip.name}"
        assert set(notes) == set(image["kernels"])
        for kernel, found in notes.items():
            assert found.scratch == found.spills == 0
            assert found.registers <= chip.thread_registers
            assert found.shared == image["kernels"][kernel]["shared"] <= chip.shared_block
            assert found.wave == chip.wave
        assert amd_calls.check_call(bundle, chip.name, inputs) > 0


def _extent(name, argument, dimension):
    """What a call makes of a length that the program leaves open."""
    if dimension == 0:
        return 2  # sequences
    return 1 if name.startswith("decode") and argument == 0 else 197


@pytest.mark.parametrize(
    ("target", "dtype", "instruction"),
    [
        ("gfx942", "f16", r"v_mfma_f32_32x32x8_f16"),
        ("gfx1100", "bf16", r"v_wmma_f32_16x16x16_bf16"),
        *(pytest.param(*other, marks=pytest.mark.nightly) for other in (
            ("gfx90a", "bf16", r"v_mfma_f32_32x32x8_?bf16_1k"),
            ("gfx950", "bf16", r"v_mfma_f32_32x32x16_bf16"),
            ("gfx1201", "f16", r"v_wmma_f32_16x16x16_f16"),
        )),
    ],
)  # fmt: skip
def test_instructions_that_matter(target, dtype, instruction):
    source = Source.of(ops.attention(head_dim=64, dtype=dtype, causal=True))
    text, _ = emit_text(source.text, "test", target, None, None, "asm")
    assert re.search(instruction, text) and "v_exp_f32" in text
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"' in text
    assert ".amdhsa_code_object_version 5" in text
    assert set(re.findall(r"\.private_segment_fixed_size: (\d+)", text)) == {"0"}
    assert not re.search(r"\b(scratch_|buffer_)(load|store)", text)
    # tiles come and go in 16 bytes a thread
    assert re.search(r"global_load_(dwordx4|b128)", text)
    assert re.search(r"ds_(write|store)_b128", text)


@pytest.fixture(scope="module")
def mixed():
    try:
        ptxas.find_ptxas()
    except ToolError:
        pytest.skip("no ptxas here")
    return built(ops.attention(head_dim=64, dtype="f16"), "sm_80,gfx1100")


def test_one_bundle_for_both_makers(mixed):
    again = Bundle.from_bytes(mixed.to_bytes())
    nvidia, *few, ours = again.facts["images"]  # `few`: for launches of few programs
    assert few and ours["target"] == "gfx1100"
    assert {image["target"] for image in (nvidia, *few)} == {"sm_80"}
    assert choose_images(again.facts["images"], "sm_86") == [nvidia, *few]
    assert choose_images(again.facts["images"], "gfx1100") == [ours]
    assert hsaco.read_notes(code_of(again, ours))[0].endswith("gfx1100")
    # the chips want other tiles, so the AMD image is launched with a plan of its own
    assert again.plan_of(ours) != again.plan == again.plan_of(nvidia)


def test_no_bundle_holds_a_cpu_beside_gpus():
    with pytest.raises(UsageError, match="no bundle holds all"):
        built(ops.softmax(), "cpu,gfx942")


# ---- notes


def test_notes_list_the_arguments():
    bundle = built(ops.attention(head_dim=64, dtype="f16"), "gfx942")
    notes = hsaco.read_notes(bundle.code)[1]["attention_0"]
    sizes = argument_sizes(bundle.plan, bundle.plan.launches[0])
    assert notes.arguments[0] == (0, 8, "global_buffer")
    assert [size for _, size, _ in notes.arguments] == sizes
    figures = {"threads": notes.threads, "shared": notes.shared, "wave": 64}
    hsaco.check(notes, sizes, **figures)
    with pytest.raises(ToolError, match="arguments"):
        hsaco.check(notes, sizes[1:], **figures)
    with pytest.raises(ToolError, match="shared memory"):
        hsaco.check(replace(notes, shared=notes.shared + 16), sizes, **figures)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x7fELF\x02\x01" + bytes(58)])
def test_no_hsaco(data):
    with pytest.raises(ToolError, match="not an HSACO"):
        hsaco.read_notes(data)


def test_message_pack():
    data = bytes([0x83, 0xA1, 0x61, 0x01, 0xA1, 0x62, 0x92, 0xC3, 0xCD, 0x01, 0x00, 0xD9, 1, 0x63])
    assert hsaco._MessagePack(data + b"\xff").value() == {"a": 1, "b": [True, 256], "c": -1}


# ---- errors of the tools


def test_a_dying_code_generator_is_an_error_message():
    wmma = "@llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16"  # of RDNA only
    text = f"""declare <8 x float> {wmma}(<16 x half>, <16 x half>, <8 x float>)
define amdgpu_kernel void @f(ptr addrspace(1) %p, <16 x half> %a, <8 x float> %c) {{
  %y = call <8 x float> {wmma}(<16 x half> %a, <16 x half> %a, <8 x float> %c)
  store <8 x float> %y, ptr addrspace(1) %p
  ret void
}}"""
    with pytest.raises(ToolError, match=r"AMDGPU code generator stopped with signal 6 .*wmma"):
        amdgcn.hsaco(text, amd("gfx942"))


def test_an_undefined_function_is_an_error_message():
    text = """declare float @__ocml_exp_f32(float)
define amdgpu_kernel void @f(ptr addrspace(1) %p, float %x) {
  %y = call float @__ocml_exp_f32(float %x)
  store float %y, ptr addrspace(1) %p
  ret void
}"""
    with pytest.raises(ToolError, match="__ocml_exp_f32"):
        amdgcn.hsaco(text, amd("gfx942"))


@pytest.mark.parametrize(("scratch", "rolled", "taken"), [
    (0, None, b"unrolled"), (8, 0, b"rolled"), (8, 4, b"rolled"), (8, 12, b"unrolled"),
])  # fmt: skip
def test_code_with_scratch_memory_is_made_again_with_rolled_loops(
    monkeypatch, scratch, rolled, taken
):
    needed = {b"unrolled": scratch, b"rolled": rolled}
    made = []

    def generate(text, chip, unroll=True):
        made.append(b"unrolled" if unroll else b"rolled")
        return made[-1]

    monkeypatch.setattr(amdgcn, "hsaco", generate)
    monkeypatch.setattr(rocdl, "_scratch", needed.__getitem__)
    assert rocdl._without_scratch("", amd("gfx1100")) == taken
    assert len(made) == (1 if rolled is None else 2)


LOOP = """
define amdgpu_kernel void @sum(ptr addrspace(1) %x, ptr addrspace(1) %y) {
start:
  br label %loop
loop:
  %k = phi i32 [ 0, %start ], [ %next, %loop ]
  %sum = phi float [ 0.0, %start ], [ %more, %loop ]
  %place = getelementptr float, ptr addrspace(1) %x, i32 %k
  %value = load float, ptr addrspace(1) %place
  %more = fadd float %sum, %value
  %next = add i32 %k, 1
  %again = icmp slt i32 %next, 16
  br i1 %again, label %loop, label %end
end:
  store float %more, ptr addrspace(1) %y
  ret void
}
"""


def test_loops_stay_rolled():
    made = [len(amdgcn.hsaco(LOOP, amd("gfx1100"), unroll=unroll)) for unroll in (True, False)]
    assert made[0] > made[1]
