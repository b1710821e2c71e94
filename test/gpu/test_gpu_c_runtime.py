# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime in C on a GPU gives what the Python runtime gives, bit for bit. Its library comes
with the programs (`tools/gpu_tests.py build`), or is made here."""

import math
import os
from pathlib import Path

import pytest
from test_gpu_operators import decode_inputs, error, inputs

from neptune_mlir.runtime.arrays import torch_view
from neptune_mlir.runtime.gpu import GpuExecutable
from support import c_runtime
from support.gpu_programs import bundle

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    built = Path(os.environ.get("NEPTUNE_GPU_BUNDLES", "")) / c_runtime.NAME
    if built.exists():
        return built
    if c_runtime.compiler() is None:
        pytest.skip("there is no C compiler")
    return c_runtime.build(tmp_path_factory.mktemp("c"))


def array(tensor):
    return c_runtime.array(torch_view(tensor, "a tensor", 0))


@pytest.mark.parametrize("name", ["d64-causal", "d64-hopper", "d128-causal-hopper", "decode"])
def test_the_same_as_from_python(library, name):
    found, head = bundle(name), 64 if "d64" in name else 128
    kernel = c_runtime.CKernel(library, found.to_bytes(), 1)
    run, stream = GpuExecutable(found), torch.cuda.current_stream().cuda_stream
    for n in (1, 70, 600, 1500):
        q, k, v = decode_inputs(n) if name == "decode" else inputs(head, n)
        given = [array(x) for x in (q, k, v)]
        ((_, shape),), size = kernel.requirements(given)
        out = torch.full(shape, math.nan, device="cuda", dtype=q.dtype)
        workspace = torch.empty(max(size, 1), device="cuda", dtype=torch.uint8)
        kernel.call(given, [array(out)], (workspace.data_ptr(), size), stream)
        torch.cuda.synchronize()
        assert error(out, q, k, v, causal="causal" in name) < 1e-3, n
        assert torch.equal(out, run(q, k, v)), n
    kernel.close()
