# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune doctor`, and `neptune run` for a GPU: what there is, what is missing, and why."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.cli import doctor, main
from neptune_mlir.codegen.amd import amdgcn
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.driver.kernel import compile
from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.drivers import cuda, hip, makers
from support.chips.amd_calls import gpu_for
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import FakeTensor, fake_torch


@pytest.fixture(autouse=True)
def no_drivers(monkeypatch):
    monkeypatch.setattr(cuda, "open_first", lambda paths: None)
    monkeypatch.setattr(hip, "open_first", lambda paths: None)
    makers.driver.cache_clear()
    yield
    makers.driver.cache_clear()


def install(monkeypatch, gpu):
    monkeypatch.setattr(hip, "open_first", lambda paths: gpu.library)


def report(capsys):
    main.main(["doctor", "--json"])
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_devices_are_named(monkeypatch, capsys):
    install(monkeypatch, FakeGpu({}, "AMD", ("gfx942:xnack-", "gfx1100")))
    row = report(capsys)["AMD GPU"]
    assert (row["state"], row["detail"]) == ("ok", "GPU 0 (gfx942), GPU 1 (gfx1100)")


def test_no_library(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(hip, "_KFD", str(tmp_path / "kfd"))
    found = report(capsys)
    assert found["NVIDIA GPU"]["detail"] == "there is no CUDA driver on this machine"
    row = found["AMD GPU"]
    assert row["state"] == "missing" and "no HIP runtime (libamdhip64.so)" in row["detail"]
    assert "no amdgpu driver" in row["detail"] and "ROCm 6" in row["get"]


def test_no_device_or_no_permission(monkeypatch, tmp_path, capsys):
    install(monkeypatch, FakeGpu({}, "AMD", ()))
    monkeypatch.setattr(hip, "_KFD", str(tmp_path / "kfd"))
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(hip.os, "access", lambda path, mode: False)
    row = report(capsys)["AMD GPU"]
    assert "hipInit failed" in row["detail"] and "group 'render'" in row["get"]


def test_any_ptxas_will_do(monkeypatch):
    """Also one that no package brought."""
    monkeypatch.setattr(ptxas, "find_ptxas", lambda: "/opt/cuda/bin/ptxas")
    monkeypatch.setattr(ptxas, "version", lambda: "ptxas 13.1")
    rows = {row.what: row for row in doctor.findings()}
    assert rows["NVIDIA assembler"].state == "ok" and "13.1" in rows["NVIDIA assembler"].detail
    assert "nvidia-cuda-nvcc" not in rows

    def none():
        raise ToolError("no ptxas found")

    monkeypatch.setattr(ptxas, "find_ptxas", none)
    monkeypatch.setattr(ptxas, "version", none)
    rows = {row.what: row for row in doctor.findings()}
    assert "neptune-mlir[nvidia]" in rows["NVIDIA assembler"].get


# ---- neptune run


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    try:
        amdgcn.find_linker()
    except ToolError:
        pytest.skip("no lld here")
    path = tmp_path_factory.mktemp("run") / "softmax.mlir"
    path.write_text(ops.softmax().to_mlir())
    return path


def run(program, capsys):
    code = main.main(["run", str(program), "--target", "gfx942", "--repeat", "1"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_run_without_a_device(program, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", run_torch())
    code, _, told = run(program, capsys)
    assert code == 1
    assert "--target gfx942: error: there is no HIP runtime (libamdhip64.so)" in told
    assert "hint: install ROCm 6 or newer" in told and "neptune doctor says more" in told


def test_run_with_a_torch_for_other_gpus(program, capsys, monkeypatch):
    install(monkeypatch, FakeGpu({}, "AMD", ("gfx942",)))
    monkeypatch.setitem(sys.modules, "torch", run_torch(hip=None))
    code, _, told = run(program, capsys)
    assert code == 1 and "not built for AMD GPUs" in told and "install torch for ROCm" in told


def test_run_launches(program, capsys, monkeypatch):
    gpu, _ = gpu_for(compile(program, "gfx942").bundle, "gfx942")
    install(monkeypatch, gpu)
    monkeypatch.setitem(sys.modules, "torch", run_torch())
    code, told, _ = run(program, capsys)
    assert code == 0 and "1 kernel on gfx942" in told
    assert [launch.name for launch in gpu.launches] == ["softmax_0"] * 2 and not gpu.failures


def run_torch(hip="6.4"):
    """A torch whose arrays on a GPU are on the host."""
    torch = fake_torch(hip=hip)
    torch.from_numpy = HostTensor
    torch.bfloat16, torch.__version__ = "bfloat16", "2.13"
    torch.cuda = SimpleNamespace(**vars(torch.cuda), is_available=lambda: True,
                                 synchronize=lambda: None)  # fmt: skip
    torch.empty = lambda shape, dtype, device: HostTensor(np.zeros(shape, dtype))
    return torch


class HostTensor(FakeTensor):
    def cuda(self):
        return self

    cpu = cuda

    def numpy(self):
        return self.array
