# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ten operators and the hardest of the zoo to machine code, with no GPU: the instructions that
matter, and nothing kept in local memory."""

from __future__ import annotations

import re
import subprocess

import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import ToolError
from neptune_mlir.zoo import find
from support.often import nightly_if

try:
    ptxas.find_ptxas()
except ToolError:
    pytest.skip("no ptxas here", allow_module_level=True)

# sm_89 has the instructions and tile programs of sm_80; test_other_head_dims_do_not_spill has it
TARGETS = ["sm_80,sm_90a", pytest.param("sm_89", marks=pytest.mark.nightly)]

# simulators run all of them, and test_compile_time.py compiles one of decoding; an operator has up
# to eleven images, 10 to 40 s of processor time
QUICK = ("prefill_causal",)
NAMES = nightly_if(lambda name: name not in QUICK, ops.OPERATORS)
LOCAL = re.compile(r"\b(LDL|STL)\b")


def compiled(program, targets):
    return compiler.compile_text(Source.of(program).text, program.name, targets, None, None)


def kernels(bundle):
    return [kernel for image in bundle.facts["images"] for kernel in image["kernels"].values()]


def disassembly(bundle, folder):
    """Machine code by target, of all kernels for it."""
    tool = ptxas.find_ptxas().parent / "nvdisasm"
    if not tool.exists():
        pytest.skip("no nvdisasm here")
    found = {}
    for image in bundle.facts["images"]:
        path = folder / f"{image['target']}.cubin"
        path.write_bytes(bundle.code[image["offset"] : image["offset"] + image["size"]])
        done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True)
        found[image["target"]] = found.get(image["target"], "") + done.stdout
    return found


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_operator(name, targets, tmp_path):
    bundle = compiled(ops.operator(name), targets)
    moved = [remark for remark in bundle.facts["remarks"] if "moves its reference" in remark]
    assert not moved
    for target, code in disassembly(bundle, tmp_path).items():
        assert not LOCAL.search(code), target
        if "HGMMA" in code:  # specialised warps: test_hopper.py has more
            assert target == "sm_90a" and "UTMALDG" in code
            # warps that keep their reference multiply alone when they cannot
            assert "VOTE.ALL" in code and "HMMA.16816.F32" in code
            continue
        assert "VOTE.ALL" in code, target  # of references; of decoding, where one chunk is all
        for instruction in ("HMMA.16816.F32", "LDSM.16.M88", "LDSM.16.MT88", "LDGSTS"):
            assert instruction in code, (target, instruction)


@pytest.mark.nightly
@pytest.mark.parametrize("head", [80, 192, 256])
def test_other_head_dims_do_not_spill(head):
    """Those where tiles of the usual size would, the mask and function that take most with them."""
    bundle = compiled(ops.operator("prefill_windowed", head_dim=head, dtype="bf16"), "sm_89")
    assert all(kernel["spills"] == 0 for kernel in kernels(bundle))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["absmax_matmul", "layer_norm_matmul", "performer"])
def test_example_does_not_spill(name):
    (example,) = find([name])
    assert all(kernel["spills"] == 0 for kernel in kernels(compiled(example.build(), "sm_90a")))
