# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reshapes around kernels, of arguments, between kernels and of results: views at run time."""

from pathlib import Path

import numpy as np
import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.runtime import CpuExecutable
from support.chips.run_kernels import Simulated

INPUTS = Path(__file__).parents[2] / "inputs"


@pytest.mark.parametrize("name", ["alibi_flat_heads", "torch_sequence_first"])
def test_reshapes(name):
    text = (INPUTS / f"{name}.mlir").read_text()
    module, _ = compiler.lower_text(text, name, "sm_80", None, "tile")
    run = Simulated(module)
    assert any(buffer.of for buffer in run.plan.buffers)
    draw = np.random.default_rng(0)
    values = [draw.standard_normal(a.shape, np.float32) for a in run.plan.arguments]
    wanted = CpuExecutable(compiler.compile_text(text, name, "cpu", None, None))(*values)
    assert np.allclose(run(*values), wanted, atol=1e-5)
