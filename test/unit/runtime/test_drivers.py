# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The makers' drivers: which one, on which device, what is missing, and what is AMD's alone."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from ctypes import sizeof
from dataclasses import replace
from pathlib import Path

import pytest

from neptune_mlir.driver.kernel import Kernel
from neptune_mlir.errors import ArgumentError, ToolError
from neptune_mlir.runtime.drivers import hip, makers
from neptune_mlir.runtime.drivers.cuda import CudaDriver
from neptune_mlir.runtime.drivers.driver import open_first
from neptune_mlir.runtime.drivers.hip import HipDriver
from neptune_mlir.runtime.gpu import GpuExecutable
from support.chips.axpy import DEVICES, KERNELS, arrays, bundle_for
from support.chips.fake_drivers import CUDA, HIP, NO_DEVICE, PROPERTIES, FakeGpu
from support.chips.fake_gpu import FakeArray, FakeDlpack, FakeTensor, fake_torch


def call(gpu, bundle, rows=4, **options):
    x, y, out, scratch = arrays(rows, **options)
    GpuExecutable(bundle, gpu.driver)(x, y, 1.0, out=out, workspace=scratch)


@pytest.fixture
def amd():
    gpu = FakeGpu(KERNELS, "AMD", DEVICES["AMD"], {"scale": 64})
    yield gpu
    assert not gpu.failures and not gpu.inside


@pytest.fixture
def machine(monkeypatch):
    """Lets a test say which drivers there are: fake GPUs, or none."""
    makers.driver.cache_clear()

    def has(**gpus):
        for kind in (CudaDriver, HipDriver):
            library = gpus[kind.maker.name].library if kind.maker.name in gpus else None
            if library:
                monkeypatch.setattr(kind, "open_library", classmethod(lambda cls, it=library: it))

    yield has
    makers.driver.cache_clear()


def test_rows_are_copied_by_a_copy_engine():
    import numpy as np

    gpu = FakeGpu(KERNELS)
    source, target = np.arange(24).reshape(4, 6), np.zeros((4, 6), int)
    a, b = source[:, 1:3], target[:, 2:4]
    gpu.driver.copy_rows(b.ctypes.data, a.ctypes.data, 2 * a.itemsize, 4, a.strides[0], 0, 7)
    assert (b == a).all() and target.sum() == a.sum()
    assert "rows on 7" in gpu.calls and not gpu.inside and not gpu.failures


@pytest.mark.parametrize("lanes", [slice(0, 4), slice(1, 3)])
@pytest.mark.parametrize("places", [slice(0, 6), slice(2, 5)])
def test_tensors_that_are_layers_go_by_one_order(lanes, places):
    """Keys and values, whole or some positions of some lanes, that lie so far apart."""
    torch = pytest.importorskip("torch")
    from neptune_mlir.torch.distributed import copies

    gpu = FakeGpu(KERNELS)
    source = torch.arange(240).view(5, 4, 6, 2)
    target = torch.zeros_like(source)
    pairs = [(target[t, lanes, places], source[s, lanes, places]) for t, s in ((0, 1), (3, 2))]
    boxes, want = copies.boxes_of(pairs), torch.zeros_like(source)
    width, rows, _ = copies.rows_of(pairs[0][1])
    for t, s in ((0, 1), (3, 2)):
        want[t, lanes, places] = source[s, lanes, places]
    gpu.driver.copy_box(*boxes, width, rows, 2, 0, 7)
    assert torch.equal(target, want)
    assert "box on 7" in gpu.calls and not gpu.inside and not gpu.failures
    assert copies.boxes_of(pairs[::-1]) is None  # the second one in front of the first
    assert copies.boxes_of(pairs[:1]) is None
    arrays = [FakeArray(t.numpy()) for t in (source, target)]
    starts = [gpu.driver.allocation(x.data_ptr(), 0) for x in (*pairs[0], *pairs[1])]
    assert starts == [target.data_ptr(), source.data_ptr()] * 2 and len(arrays) == 2
    other = torch.zeros(2 * pairs[0][0].numel()).view(-1, 2)[:, 0].view(pairs[0][0].shape)
    assert copies.boxes_of([pairs[0], (other, pairs[1][1])]) is None


def test_words_are_written_in_order():
    import numpy as np

    gpu = FakeGpu(KERNELS)
    words = np.zeros(4, np.uint32)
    at = words.ctypes.data
    gpu.driver.write_words([(at + 4, 7), (at + 12, 1), (at + 4, 9)], 0, 7)
    assert words.tolist() == [0, 9, 0, 1]
    assert "words on 7" in gpu.calls and not gpu.inside and not gpu.failures


def test_who_captures_a_stream():
    gpu = FakeGpu(KERNELS)
    gpu.capturing = 7
    assert [gpu.driver.capture(0, stream) for stream in (0, 6, 7)] == [0, 0, 5]
    assert not gpu.inside and not gpu.failures


# ---- which driver


def test_code_for_both_makers_runs_where_a_device_is(machine):
    nvidia, amd = FakeGpu(KERNELS, devices=()), FakeGpu(KERNELS, "AMD", ("gfx942",))
    machine(NVIDIA=nvidia, AMD=amd)
    call_on = GpuExecutable(bundle_for("sm_80", "gfx942"))
    x, y, out, scratch = arrays(4)
    call_on(x, y, 1.0, out=out, workspace=scratch)
    assert [code for _, code in amd.loads] == [b"hopp"] and len(amd.launches) == 2
    assert not nvidia.loads


def test_a_kernel_for_amd_is_loaded_from_a_file(machine, tmp_path):
    gpu = FakeGpu(KERNELS, "AMD", ("gfx942",))
    machine(AMD=gpu)
    path = tmp_path / "axpy.bundle"
    path.write_bytes(bundle_for("gfx942").to_bytes())
    x, y, out, scratch = arrays(4)
    kernel = Kernel.load(path)
    kernel(x, y, 1.0, out=out, workspace=scratch)
    kernel.prepare(x, y, 1.0, out=out, workspace=scratch)()
    assert kernel.requirements(x, y, 1.0).workspace == 256 and len(gpu.launches) == 4


def test_no_device_of_either_maker(machine):
    machine(NVIDIA=FakeGpu(KERNELS, devices=()), AMD=FakeGpu(KERNELS, "AMD", ()))
    with pytest.raises(ToolError) as caught:
        makers.driver_for(["sm_90a", "gfx942"])
    assert str(NO_DEVICE) in caught.value.message
    assert all(name in caught.value.message for name in ("cuInit", "hipInit"))
    with pytest.raises(ToolError, match="hipInit failed") as caught:
        makers.driver_for(["gfx942"])
    assert "/dev/kfd" in caught.value.hint or "rocminfo" in caught.value.hint


def test_no_library(monkeypatch, tmp_path):
    monkeypatch.setattr(hip, "open_first", lambda paths: None)
    with pytest.raises(ToolError, match=r"no HIP runtime \(libamdhip64.so\)") as caught:
        HipDriver()
    assert "ROCm 6" in caught.value.hint
    assert open_first([str(tmp_path / "libnothing.so")]) is None


def test_the_library_that_torch_has_loaded_is_taken(monkeypatch):
    maps = ("7f0-7f1 r--p 0 0:1 2  /usr/lib/libc.so.6\n7f1-7f2 rw-p 0 0:0 0\n"
            "7f2-7f3 r-xp 0 0:1 3  /venv/my torch/lib/libamdhip64.so.6\n")  # fmt: skip
    assert hip.loaded_path(maps) == "/venv/my torch/lib/libamdhip64.so.6"
    assert hip.loaded_path("") == ""
    asked = []
    monkeypatch.setattr(hip, "loaded_path", lambda text: "/torch/libamdhip64.so")
    monkeypatch.setattr(hip, "open_first", lambda paths: asked.extend(paths) or "library")
    monkeypatch.setenv("ROCM_PATH", "/rocm")
    assert HipDriver.open_library() == "library"
    assert asked[:3] == ["/torch/libamdhip64.so", "/rocm/lib/libamdhip64.so", "libamdhip64.so"]


def test_an_old_library_is_an_error_message(amd):
    del amd.library.hipGetDevicePropertiesR0600
    with pytest.raises(ToolError, match="HIP runtime has no hipGetDevicePropertiesR0600"):
        amd.driver.architecture(0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_permission(tmp_path):
    path = tmp_path / "kfd"
    path.touch(mode=0)
    assert "group 'render'" in hip.why_no_device(str(path))


def test_why_there_is_no_device(tmp_path):
    assert "no amdgpu driver" in hip.why_no_device(str(tmp_path / "kfd"))
    (tmp_path / "kfd").touch()
    assert "HIP_VISIBLE_DEVICES" in hip.why_no_device(str(tmp_path / "kfd"))


# ---- AMD


def test_devices(amd):
    assert amd.driver.device_names() == ["GPU 0", "GPU 1", "GPU 2"]
    found = [amd.driver.architecture(device) for device in range(3)]
    assert found == ["gfx942", "gfx90a", "gfx1030"]  # without features
    assert amd.driver.multiprocessors(1) == 4


def test_a_thread_stays_on_its_device(amd):
    amd.threads.on = 2  # as hipSetDevice left it
    call(amd, bundle_for("gfx90a", "gfx942"), device=1)
    assert amd.launches[0].context == 1 and amd.threads.on == 2


@pytest.mark.parametrize(("own", "asked"), [(64, 0), (0, 64), (16, 48)])
def test_shared_memory_that_code_lacks_is_asked_for(own, asked):
    """Ours has it of its own, Triton's has none."""
    gpu = FakeGpu(KERNELS, "AMD", ("gfx942",), {"scale": own})
    call(gpu, bundle_for("gfx942"))
    assert [launch.shared for launch in gpu.launches] == [asked, 0]


def test_code_stays_in_memory(amd):
    call(amd, bundle_for("gfx90a", "gfx942"))
    assert amd.driver._code == [b"hopp"]


def test_a_launch_of_too_many_threads_is_refused(amd):
    """HIP counts the threads of a grid in 32 bits."""
    bundle = bundle_for("gfx942")
    scale, add = bundle.plan.launches
    large = replace(scale, grid=(["mul", ["dim", 0, 0], 1 << 23],))
    run = GpuExecutable(
        replace(bundle, plan=replace(bundle.plan, launches=(large, add))), amd.driver
    )
    x, y, out, scratch = arrays(4)
    with pytest.raises(ArgumentError, match="33554432 programs of 128 threads are more than one"):
        run(x, y, 1.0, out=out, workspace=scratch)
    assert not amd.launches
    x, y, out, scratch = arrays(3)
    run.prepare(x, y, 1.0, out=out, workspace=scratch)  # not called: 100 million threads


def test_arrays_of_the_other_maker_are_refused(amd, monkeypatch):
    run = GpuExecutable(bundle_for("gfx942"), amd.driver)
    x, y, out, scratch = arrays(4)
    with pytest.raises(ArgumentError, match="x is on a GPU of NVIDIA, and the code for AMD GPUs"):
        run(FakeDlpack(x.array, where=2), y, 1.0, out=out, workspace=scratch)
    monkeypatch.setitem(sys.modules, "torch", fake_torch(hip=None))
    with pytest.raises(ArgumentError, match="x is on a GPU of NVIDIA"):
        run(FakeTensor(x.array), y, 1.0, out=out, workspace=scratch)
    assert not amd.launches


# ---- the parameters of the makers' functions, as headers have them


def test_the_fake_hip_is_that_of_the_header():
    """tinygrad generates its bindings from hip_runtime_api.h."""
    header = pytest.importorskip("tinygrad.runtime.autogen.hip")
    assert header.hipDeviceProp_tR0600.gcnArchName.offset == hip._ARCHITECTURE
    assert sizeof(header.hipDeviceProp_tR0600) == PROPERTIES < hip._PROPERTIES_ROOM
    assert header.hipDeviceAttributePhysicalMultiProcessorCount == hip._MULTIPROCESSORS
    assert header.HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES == hip._OWN_SHARED
    assert header.hipEventDisableTiming == 2 and header.hipErrorNoDevice == NO_DEVICE
    for name, (kinds, _) in HIP.items():
        found = getattr(header, name).argtypes
        assert [sizeof(k) for k in found] == [sizeof(k) for k in kinds], name


def test_the_fake_cuda_is_that_of_the_header():
    """Wherever a package brings cuda.h."""
    package = importlib.util.find_spec("nvidia")
    folders = package.submodule_search_locations if package else ()
    headers = [path for folder in folders for path in Path(folder).glob("*/include/cuda.h")]
    if not headers:
        pytest.skip("no cuda.h here")
    text = headers[0].read_text()
    for name, (kinds, _) in CUDA.items():
        plain = name.removesuffix("_v2")  # a macro of the header, or an older version in it
        found = (re.search(rf"^ *CUresult CUDAAPI {n}\((.*?)\);", text, re.M | re.S)
                 for n in (name, plain))  # fmt: skip
        declared = next(m[1] for m in found if m)
        words = re.compile(
            r"(unsigned )?int |CUdevice |CUresult |cuuint32_t |\w+_attribute |CUtensor"
        )
        sizes = [4 if words.match(p.strip()) and "*" not in p else 8 for p in declared.split(",")]
        assert sizes == [sizeof(k) for k in kinds], name
