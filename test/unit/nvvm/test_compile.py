# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From tile IR to cubin without a GPU: bundles, figures, instructions, errors of the tools."""

from __future__ import annotations

import re
import subprocess

import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import nvptx, ptxas
from neptune_mlir.dialects.context import parse
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import ArgumentError, Refused, ToolError, UsageError
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.nvvm import compile_tiles
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.gpu import GpuExecutable
from neptune_mlir.runtime.images import choose_images
from neptune_mlir.targets.nvidia import nvidia
from support.tile_programs import attention

try:
    ptxas.find_ptxas()
except ToolError:
    pytest.skip("no ptxas here", allow_module_level=True)


@pytest.fixture(scope="module")
def fat():
    module = parse(attention(64, 64, 64, causal=True, dtype="f16"))
    return compile_tiles(module, target="sm_80,sm_89,sm_90a")


def test_one_file_serves_several_chips(fat):
    again = Bundle.from_bytes(fat.to_bytes())
    images = again.facts["images"]
    assert [i["target"] for i in images] == ["sm_80", "sm_89", "sm_90a"]
    assert [i["target"] for i in choose_images(images, "sm_86")] == ["sm_80"]
    assert [i["target"] for i in choose_images(images, "sm_89")] == ["sm_89"]
    assert [i["target"] for i in choose_images(images, "sm_90")] == ["sm_90a"]
    with pytest.raises(ArgumentError, match="sm_120"):
        choose_images(images, "sm_120")
    for image in images:
        code = again.code[image["offset"] : image["offset"] + image["size"]]
        assert code.startswith(b"\x7fELF")


def test_nothing_spills(fat):
    for image in fat.facts["images"]:
        figures = image["kernels"]["attention_0"]
        assert figures["spills"] == 0 and figures["registers"] <= 168
        assert figures["shared"] == (64 * 64 + 2 * 2 * 64 * 64) * 2  # q; k and v, 2 stages


def test_instructions_that_matter(fat, tmp_path):
    image = fat.facts["images"][-1]
    path = tmp_path / "kernel.cubin"
    path.write_bytes(fat.code[image["offset"] : image["offset"] + image["size"]])
    tool = ptxas.find_ptxas().parent / "nvdisasm"
    if not tool.exists():
        pytest.skip("no nvdisasm here")
    sass = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    for instruction in ("HMMA.16816.F32", "LDSM.16.M88.4", "LDSM.16.MT88.4", "LDGSTS", "MUFU.EX2"):
        assert instruction in sass, instruction
    for instruction in ("LDL", "STL"):
        assert f" {instruction}" not in sass, "local memory"


def test_alignment_is_asked_for(fat):
    assert ["argument", 0, 16] in fat.facts["alignment"]


def test_arguments_are_called_what_the_program_calls_them():
    text = ops.rms_norm(cols=64).to_mlir()
    for target in ("sm_80", "cpu"):
        plan = compiler.compile_text(text, "rms_norm", target, None, None).plan
        assert [argument.name for argument in plan.arguments] == ["x", "weight"], target


def test_wrong_arguments(fat):
    run = GpuExecutable(fat)
    with pytest.raises(ArgumentError, match="takes 4 arguments"):
        run(1, 2)
    with pytest.raises(ArgumentError, match="not an array on a GPU"):
        run(1, 2, 3, 0.1)


def test_a_dying_code_generator_is_an_error_message():
    text = """declare float @llvm.amdgcn.rcp.f32(float)
define float @f(float %x) {
  %y = call float @llvm.amdgcn.rcp.f32(float %x)
  ret float %y
}"""
    with pytest.raises(ToolError, match=r"LLVM's NVPTX code generator"):
        nvptx.ptx(text, nvidia("sm_80"))


def test_unknown_intrinsic_is_an_error_message():
    text = """declare float @llvm.nvvm.no.such.thing(float)
define float @f(float %x) {
  %y = call float @llvm.nvvm.no.such.thing(float %x)
  ret float %y
}"""
    with pytest.raises(ToolError, match=r"llvm\.nvvm\.no\.such\.thing"):
        nvptx.ptx(text, nvidia("sm_80"))


def test_what_ptxas_reports():
    figures = ptxas.read_report(
        "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
        "ptxas info    : Function properties for k\n"
        "    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 1 barriers\n"
    )
    assert figures["k"] == ptxas.Figures(168, 16, 12, 8)


def test_fewer_blocks_where_a_kernel_would_spill():
    text = ".visible .entry k(\n\t.param .u64 p\n)\n.maxntid 128, 1, 1\n.minnctapersm 3\n{"
    assert ".minnctapersm 2" in ptxas._fewer_blocks(text, "k")
    assert ptxas._fewer_blocks(text.replace("3\n", "1\n"), "k").count("minnctapersm 1") == 1
    assert ptxas._fewer_blocks(text, "other") == text
    silent = text.replace(".minnctapersm 3\n", "")
    assert ptxas._fewer_blocks(silent, "k") == silent
    assert ".maxntid 128, 1, 1\n.minnctapersm 7\n" in ptxas._fewer_blocks(silent, "k", 1024)


def test_kernels_that_spill_are_tried_without_the_others(monkeypatch):
    def kernel(name, blocks):
        bound = f".maxntid 128, 1, 1\n.minnctapersm {blocks}\n"
        return f"\n.visible .entry {name}(\n\t.param .u64 p\n)\n{bound}{{\n\t{{\n}}\n\tret;\n}}"

    def assembled(text, target):
        """Kernels spill where over two blocks are asked for."""
        asks = re.findall(r"entry (\w+).*?minnctapersm (\d+)", text, re.DOTALL)
        seen.append([name for name, _ in asks])
        figures = {k: ptxas.Figures(32, 0, int(n) > 2, 0) for k, n in asks}
        return ptxas.Cubin(text.encode(), figures, (), "")

    seen = []
    monkeypatch.setattr(ptxas, "assemble", assembled)
    text = ".version 8.8\n" + kernel("a", 2) + kernel("b", 5) + kernel("c", 4)
    made = ptxas.assemble_without_spills(text, nvidia("sm_90a"))
    assert made.code.decode() == ".version 8.8\n" + kernel("a", 2) + kernel("b", 2) + kernel("c", 2)
    assert seen == [["a", "b", "c"], ["b", "c"], ["b", "c"], ["b"], ["a", "b", "c"]]
    seen.clear()
    assert ptxas.assemble_without_spills(kernel("b", 4), nvidia("sm_90a")).figures["b"]
    assert seen == [["b"], ["b"], ["b"]]


def test_a_precision_that_does_not_exist():
    text = Source.of(ops.attention(head_dim=64, dtype="f32")).text
    with pytest.raises(UsageError, match="tf16"):
        compiler.with_options(text, "attention", precision="tf16")


@pytest.mark.nightly  # test_tf32_products.py assembles products
def test_tf32_where_the_program_allows_it(tmp_path):
    text = Source.of(ops.attention(head_dim=64, dtype="f32")).text
    allowed = compiler.with_options(text, "attention", precision="tf32")
    bundle = compiler.compile_text(allowed, "attention", "sm_80", None, None)
    (kernel,) = bundle.facts["images"][0]["kernels"].values()
    assert kernel["spills"] == 0
    path = tmp_path / "kernel.cubin"
    path.write_bytes(bundle.code)
    tool = ptxas.find_ptxas().parent / "nvdisasm"
    if not tool.exists():
        pytest.skip("no nvdisasm here")
    sass = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    assert "HMMA.1688.F32.TF32" in sass and "LDGSTS" in sass


def test_code_that_the_assembler_spoils_is_made_another_way(monkeypatch):
    def spoiled(cubin):
        raise Refused("products one by one")

    monkeypatch.setattr(nvvm, "_check_specialised", spoiled)
    text = Source.of(ops.attention(head_dim=64, dtype="f16", q_len=256, batch=1, heads=1)).text
    bundle = compiler.compile_text(text, "test", "sm_90a", None, None, cases=False)
    assert bundle.facts["remarks"][0] == "unknown: warning: products one by one"
    (image,) = bundle.facts["images"]
    assert all(kernel["threads"] == 128 for kernel in image["kernels"].values())
