# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of other libraries in calls of GPU bundles, by the protocols that they have, and what a
process that runs bundles imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neptune_mlir.errors import ArgumentError
from support.chips.axpy import arrays
from support.chips.fake_gpu import CupyArray, FakeDlpack, FakeTensor, fake_cupy, fake_torch

pytestmark = pytest.mark.usefixtures("no_libraries")

KINDS = {"NVIDIA": 2, "AMD": 10}  # DLPack's kDLCUDA, kDLROCM


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(run, gpu, maker, versioned):
    x, y, out, scratch = arrays(10, FakeDlpack, versioned=versioned, where=KINDS[maker])
    run(x, y, 1.0, out=out, workspace=scratch, stream=12)
    assert np.array_equal(out.array, (x.array.astype("f4") + y.array).astype("f2"))
    assert x.streams == y.streams == [12]
    run(x, y, 1.0, out=out, workspace=scratch)
    run.requirements(x, y, 1.0)
    default = {"NVIDIA": 1, "AMD": 0}[maker]  # how the default stream is spelled
    assert x.streams == [12, default, -1]  # -1: no waiting


def test_dlpack_refusals(run, gpu, maker):
    kind = KINDS[maker]
    x, y, out, scratch = arrays(10, FakeDlpack, where=kind)
    with pytest.raises(ArgumentError, match=r"x is on .*not on a GPU"):
        run(FakeDlpack(x.array, where=1), y, 1.0, out=out, workspace=scratch)
    with pytest.raises(ArgumentError, match="out is read-only"):
        run(x, y, 1.0, out=FakeDlpack(out.array, readonly=True, where=kind), workspace=scratch)
    immutable = type("Array", (FakeDlpack,), {"__module__": "jaxlib._jax"})
    with pytest.raises(ArgumentError, match="out is read-only"):
        run(x, y, 1.0, out=immutable(out.array, where=kind), workspace=scratch)
    run(immutable(x.array, where=kind), y, 1.0, out=out, workspace=scratch)
    with pytest.raises(ArgumentError, match="pass out="):
        run(x, y, 1.0)


def test_the_producer_of_an_array_is_waited_for(run, gpu):
    x, y, out, scratch = arrays(10)
    x.stream, y.stream = 44, 1
    run(x, y, 1.0, out=out, workspace=scratch, stream=9)
    here = gpu.context(0)
    assert gpu.waits == [(here, 9, 44), (here, 9, 0)]
    gpu.waits.clear()
    run(x, y, 1.0, out=out, workspace=scratch, stream=44)
    run.prepare(x, y, 1.0, out=out, workspace=scratch)
    assert gpu.waits == [(here, 44, 0), (here, 0, 44)]


def test_torch(run, gpu, maker, monkeypatch):
    torch = fake_torch(current=77, hip="6.4" if maker == "AMD" else None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    x, y, out, scratch = arrays(10, FakeTensor)
    got = run(x, y, 1.0)
    assert np.array_equal(got.array, (x.array.astype("f4") + y.array).astype("f2"))
    assert torch.made == [((10, 8), "float16", "cuda:0", 77), ((512,), "int8", "cuda:0", 77)]
    assert {g.stream for g in gpu.launches} == {77}
    run(x, y, 1.0, out=out, workspace=scratch)
    assert len(torch.made) == 2, "the caller gave all memory"
    run(x, y, 1.0, out=out)
    assert torch.made[2:] == [((512,), "int8", "cuda:0", 77)], "all but the workspace"
    stream = type("Stream", (), {"cuda_stream": 5})()
    run(x, y, 1.0, stream=stream)
    assert gpu.launches[-1].stream == 5 and torch.made[-1][-1] == 5  # memory of that stream
    x.is_cuda = False
    x.device = "cpu"
    with pytest.raises(ArgumentError, match="x is on cpu, not on a GPU"):
        run(x, y, 1.0)


def test_cupy(run, gpu, monkeypatch):
    cupy = fake_cupy(current=55)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    x, y, _, _ = arrays(10, CupyArray)
    got = run(x, y, 1.0)
    assert isinstance(got, CupyArray) and gpu.launches[-1].stream == 55
    assert cupy.made == [(0,), (0,)]  # on that device, on the current stream
    stream = type("Stream", (), {"__cuda_stream__": lambda self: (0, 6)})()
    run(x, y, 1.0, stream=stream)
    assert gpu.launches[-1].stream == 6
    assert [x.__cuda_stream__() for (x,) in cupy.made if x != 0] == [(0, 6)] * 2


PROBE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch_mlir", "mlir", "torch", "llvmlite", "cuda"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
from pathlib import Path

import numpy as np

from neptune_mlir.driver.kernel import Kernel
from support.chips import axpy
from support.chips.fake_drivers import FakeGpu

Path({path!r}).write_bytes(axpy.BUNDLE.to_bytes())
run = Kernel.load({path!r})._executable
run._given_driver = FakeGpu(axpy.KERNELS).driver
x, y, out, scratch = axpy.arrays(10)
run(x, y, 1.0, out=out, workspace=scratch)
assert np.array_equal(out.array, (x.array.astype("f4") + y.array).astype("f2"))
assert not [m for m in sys.modules if m.startswith("neptune_mlir.ir.bindings")]
"""


def test_running_imports_no_compiler(tmp_path):
    folders = map(str, (Path(__file__).parents[2], *filter(None, sys.path)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    text = PROBE.format(path=str(tmp_path / "axpy.bundle"))
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
