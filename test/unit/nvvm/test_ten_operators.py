# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ten operators and the hardest of the zoo to machine code, with no GPU: the instructions that
matter, and nothing kept in local memory."""

from __future__ import annotations

import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import ToolError
from neptune_mlir.zoo import find
from support.machine_code import check_operator

try:
    ptxas.find_ptxas()
except ToolError:
    pytest.skip("no ptxas here", allow_module_level=True)

# sm_89 has the instructions and tile programs of sm_80; test_other_head_dims_do_not_spill has it
TARGETS = ["sm_80,sm_90a", "sm_89"]


def compiled(program, targets):
    return compiler.compile_text(Source.of(program).text, program.name, targets, None, None)


def kernels(bundle):
    return [kernel for image in bundle.facts["images"] for kernel in image["kernels"].values()]


# With each change `transforms/test_group_sizes.py` asks it of causal attention, whose twelve images
# it has; simulators run all ten, and test_compile_time.py compiles one of decoding. An operator
# has up to eleven images, 10 to 40 s of processor time.
@pytest.mark.nightly
@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", ops.OPERATORS)
def test_operator(name, targets, tmp_path):
    bundle = compiled(ops.operator(name), targets)
    check_operator(bundle, tmp_path)


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
