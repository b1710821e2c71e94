# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running GPU bundles on a fake driver: what kernels receive, memory, streams, threads, devices."""

from __future__ import annotations

import threading
from ctypes import c_int32, c_int64
from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir.errors import ArgumentError, ToolError
from neptune_mlir.runtime import parameters
from neptune_mlir.runtime.arrays import ArrayView
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.gpu import GpuExecutable
from neptune_mlir.runtime.plan import Buffer, Constant
from support.chips.axpy import (
    BUNDLE,
    CHIPS,
    FACTS,
    KERNELS,
    PLAN,
    ROWS,
    arrays,
    bundle_for,
    numbers,
)
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import (
    FakeArray,
    aligned,
)

pytestmark = pytest.mark.usefixtures("no_libraries")

# what only one maker's driver or code has
nvidia = pytest.mark.parametrize("maker", ["NVIDIA"], indirect=True)
amd = pytest.mark.parametrize("maker", ["AMD"], indirect=True)


STREAM = 0x7F01_2345_6789  # handles are addresses


def test_what_kernels_receive(run, gpu, maker):
    x, y, out, scratch = arrays(10)
    assert run(x, y, 0.5, out=out, workspace=scratch, stream=STREAM) is out
    want = (x.array * np.float32(0.5) + y.array.astype("f4")).astype("f2")
    assert np.array_equal(out.array, want)
    first, second = gpu.launches
    assert (first.name, first.programs, first.threads) == ("scale", 3, 128)
    assert first.shared == (64 if maker == "NVIDIA" else 0)
    assert first.values == [x.address, 8, scratch.address, 8, 0.5, 10]
    assert second.values == [scratch.address, 8, y.address, 8, out.address, 8, 10]
    assert first.stream == second.stream == STREAM
    assert gpu.loads == [(gpu.context(0), b"hopp")] and first.context == gpu.context(0)


def test_strided_arrays_are_used_in_place(run, gpu):
    packed = aligned((10, 3, 8), "f2")
    packed[:] = np.random.default_rng(0).standard_normal(packed.shape)
    x, y, out = (FakeArray(packed[:, k]) for k in range(3))  # interleaved in one memory
    run(x, y, 2.0, out=out, workspace=arrays(10)[3])
    assert gpu.launches[0].values[:2] == [x.address, 24]
    assert np.allclose(out.array, packed[:, 0] * 2 + packed[:, 1], atol=1e-2)


def test_one_bundle_serves_every_length(run, gpu):
    for rows in range(1, 101):
        x, y, out, scratch = arrays(rows)
        run(x, y, 1.0, out=out, workspace=scratch)
        assert np.array_equal(out.array, (x.array.astype("f4") + y.array).astype("f2"))
    assert len(gpu.loads) == 1 and [g.programs for g in gpu.launches[::2]][-1] == 25


def test_no_rows_launch_nothing(run, gpu):
    x, y, out, scratch = arrays(0)
    run(x, y, 1.0, out=out, workspace=scratch)
    assert not gpu.launches


REFUSED = {
    "count": (lambda a: a.pop("a"), "axpy takes 3 arguments, 2 were given"),
    "number": (lambda a: a.update(a="1"), "a is a str, not a number"),
    "no array": (lambda a: a.update(x=3), "x is a int, not an array on a GPU"),
    "host": (lambda a: a.update(x=numbers(10)), "x is on cpu, not on a GPU"),
    "shape": (lambda a: a.update(x=FakeArray(aligned((10, 7), "f2"))),
              r"x has shape \[10, 7\], not \[\?, 8\]"),
    "rank": (lambda a: a.update(x=FakeArray(aligned((1, 10, 8), "f2"))), "x has shape"),
    "type": (lambda a: a.update(x=FakeArray(numbers(10, "f4"))), "x has type f32, not f16"),
    "equal": (lambda a: a.update(y=FakeArray(numbers(11))),
              r"x.shape\[0\] is 10, but y.shape\[0\] is 11"),
    "inner stride": (lambda a: a.update(y=FakeArray(aligned((10, 16), "f2")[:, ::2])),
                     "y has stride 2 along its last dimension, not 1"),
    "address": (lambda a: a.update(x=FakeArray(aligned((10, 16), "f2")[:, 1:9])),
                "x is not aligned to 16 bytes"),
    "stride": (lambda a: a.update(x=FakeArray(aligned((10, 12), "f2")[:, :8])),
               "x has stride 12 along dimension 0: 24 bytes, not a multiple of 16"),
    "device": (lambda a: a.update(y=FakeArray(numbers(10), device=1)),
               "several devices: y is on GPU 1, others on GPU 0"),
    "out device": (lambda a: a.update(out=FakeArray(numbers(10), device=1)),
                   "out is on GPU 1, others on GPU 0"),
    "out shape": (lambda a: a.update(out=FakeArray(numbers(11))),
                  r"out has shape \[11, 8\], not \[10, 8\]"),
    "out type": (lambda a: a.update(out=FakeArray(numbers(10, "f4"))), "out has type f32"),
    "out number": (lambda a: a.update(out=[a["out"]] * 2), "out= has 2 arrays for 1 results"),
    "read-only": (lambda a: a.update(out=FakeArray(numbers(10), readonly=True)), "read-only"),
    "expanded": (lambda a: a.update(out=FakeArray(np.broadcast_to(numbers(1), (10, 8)))),
                 "out has several positions at one place"),
    "overlap": (lambda a: a.update(out=FakeArray(a["x"].array)), "out overlaps x"),
    "partly": (lambda a: a.update(**dict(zip(("x", "out"), _shifted(), strict=True))),
               "out overlaps x"),
    "no workspace": (lambda a: a.update(workspace=None), "axpy needs 512 bytes of workspace="),
    "small": (lambda a: a.update(workspace=FakeArray(aligned((511,), "u1"))),
              "workspace has 511 bytes, 512 are needed"),
    "misplaced": (lambda a: a.update(workspace=FakeArray(aligned((800,), "u1")[128:])),
                  "workspace is not aligned to 256 bytes"),
    "shared": (lambda a: a.update(workspace=FakeArray(aligned((512,), "u1"))) or a.update(
                   x=FakeArray(a["workspace"].array[:160].view("f2").reshape(10, 8))),
               "workspace overlaps x"),
    "stream": (lambda a: a.update(stream="fast"), "stream= is a str, not a stream"),
}  # fmt: skip


def _shifted():
    both = numbers(20)
    return FakeArray(both[:10]), FakeArray(both[5:15])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_before_any_work(run, gpu, name):
    change, message = REFUSED[name]
    x, y, out, workspace = arrays(10)
    named = {"x": x, "y": y, "a": 1.0, "out": out, "workspace": workspace, "stream": 0}
    change(named)
    positional = [named.pop(k) for k in ("x", "y", "a") if k in named]
    with pytest.raises(ArgumentError, match=message):
        run(*positional, **named)
    assert not gpu.launches


def test_requirements(run, gpu):
    x, y, _, _ = arrays(10)
    needs = run.requirements(x, y, 1.0)
    assert needs.results == (((10, 8), "f16"),) and needs.workspace == 512
    assert not gpu.launches and not gpu.waits


def test_a_prepared_call_only_launches(run, gpu):
    x, y, out, scratch = arrays(10)
    call = run.prepare(x, y, 1.0, out=out, workspace=scratch)
    assert not gpu.launches and call.results == (out,)
    gpu.calls.clear()
    x.array[:] = 2
    call()
    call(7)
    assert gpu.calls == ["enter", "launch", "launch", "leave"] * 2
    assert [g.stream for g in gpu.launches] == [0, 0, 7, 7]
    assert np.array_equal(out.array, (2 + y.array.astype("f4")).astype("f2"))
    assert run.prepare(x, y, 1.0, out=out, workspace=scratch, stream=5)() is None
    assert gpu.launches[-1].stream == 5


def test_errors_of_the_driver(run, gpu):
    x, y, out, scratch = arrays(10)
    call = run.prepare(x, y, 1.0, out=out, workspace=scratch)
    gpu.error = 700
    with pytest.raises(ToolError, match=r"a kernel launch failed: error 700 \(700\), error 700"):
        call()
    assert not gpu.inside  # the thread is where it was


def test_threads(run, gpu):
    failures = []

    def work(seed):
        try:
            for rows in range(1, 30):
                x, y, out, scratch = arrays(rows + 40 * seed)
                call = run.prepare(x, y, 1.0 + seed, out=out, workspace=scratch, stream=seed + 1)
                call()
                want = (x.array * np.float32(1 + seed) + y.array).astype("f2")
                assert np.array_equal(out.array, want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures and len(gpu.loads) == 1


def test_devices(run, gpu, maker):
    for device, code in ((1, b"ampe"), (0, b"hopp"), (1, b"ampe")):
        run(*arrays(4, device=device)[:2], 1.0, **_outputs(4, device))
        assert gpu.launches[-1].context == gpu.context(device)
        assert (gpu.context(device), code) in gpu.loads
    assert len(gpu.loads) == 2
    told = {"NVIDIA": "sm_80, sm_90a; this device is sm_75",
            "AMD": "gfx90a, gfx942; this device is gfx1030"}  # fmt: skip
    with pytest.raises(ArgumentError, match=f"holds code for {told[maker]}"):
        run(*arrays(4, device=2)[:2], 1.0, **_outputs(4, 2))


def _outputs(rows, device):
    return dict(zip(("out", "workspace"), arrays(rows, device=device)[2:], strict=True))


@nvidia
def test_an_image_may_have_launches_of_its_own(gpu):
    """Code for one chip takes tensor maps, code for another does not."""
    own = replace(
        PLAN,
        launches=(
            replace(PLAN.launches[0], operands=(*PLAN.launches[0].operands,
                                                ["map", "argument", 0, 0, 64, 64])),
            PLAN.launches[1],
        ),
    )  # fmt: skip
    images = [FACTS["images"][0], {**FACTS["images"][1], "plan": own.to_json()}]
    gpu.kernels = {**KERNELS, "scale": ((*KERNELS["scale"][0], c_int64), None)}
    run = GpuExecutable(replace(BUNDLE, facts={**FACTS, "images": images}), gpu.driver)
    run(*arrays(4)[:2], 1.0, **_outputs(4, 0))
    assert len(gpu.launches[0].values) == 7
    gpu.kernels = KERNELS
    run(*arrays(4, device=1)[:2], 1.0, **_outputs(4, 1))
    assert len(gpu.launches[2].values) == 6


@nvidia
def test_calls_that_may_run_again_have_numbers_of_their_own(gpu):
    counted = replace(
        PLAN,
        launches=(
            replace(PLAN.launches[0], operands=(
                *PLAN.launches[0].operands, ["map", "argument", 0, 0, 64, 64], ["counter", 8]
            )),
            PLAN.launches[1],
        ),
    )  # fmt: skip
    gpu.kernels = {**KERNELS, "scale": ((*KERNELS["scale"][0], c_int64, c_int32), None)}
    run = GpuExecutable(replace(BUNDLE, plan=counted), gpu.driver)
    x, y, out, scratch = arrays(4)
    given = {"out": out, "workspace": scratch}

    def number(call):
        call()
        return gpu.launches[-2].values[-1]

    prepared = [run.prepare(x, y, 1.0, **given) for _ in range(3)]
    once = [number(lambda: run(x, y, 1.0, **given)) for _ in range(6)]
    gpu.capturing = 9
    captured = number(lambda: run(x, y, 1.0, **given, stream=9))
    assert [number(call) for call in prepared] == [4, 5, 6] and captured == 7
    assert once == [0, 1, 2, 3, 0, 1]
    assert number(prepared[0]) == 4


@nvidia
def test_tensor_maps_are_encoded_again_only_for_another_array(gpu, monkeypatch):
    monkeypatch.setattr(parameters, "_maps", {})
    gpu.current = gpu.context(0)
    view = ArrayView(4096, "bf16", (2, 3, 100, 128), (38400, 128, 384, 1), False, None, 0)
    made = parameters.tensor_map(gpu.driver, view, 2, 64, 128)
    assert parameters.tensor_map(gpu.driver, replace(view, owner=1), 2, 64, 128) is made
    # columns of a panel, rows, panels; then heads and batch
    assert gpu.maps == [(9, 4096, (64, 100, 2, 3, 2), (768, 128, 256, 76800), (64, 64, 2, 1, 1))]
    parameters.tensor_map(gpu.driver, replace(view, address=8192), 2, 64, 128)
    assert len(gpu.maps) == 2
    parameters.tensor_map(gpu.driver, view, 2, 64, 128, narrow=True)
    assert len(gpu.maps) == 3 and gpu.fetched == [3, 3, 2]
    empty = parameters.tensor_map(gpu.driver, replace(view, shape=(2, 3, 0, 128)), 2, 64, 128)
    assert bytes(empty) == bytes(128) and len(gpu.maps) == 3


@nvidia
def test_tensor_maps_of_rows_that_are_not_whole_panels(gpu, monkeypatch):
    monkeypatch.setattr(parameters, "_maps", {})
    gpu.current = gpu.context(0)
    view = ArrayView(4096, "f16", (2, 100, 72), (7200, 72, 1), False, None, 0)
    parameters.tensor_map(gpu.driver, view, 1, 64, 0)  # boxes begin at any column
    parameters.tensor_map(gpu.driver, replace(view, shape=(2, 100, 96)), 1, 64, 96, 32)
    assert [made[2:] for made in gpu.maps] == [
        ((72, 100, 2), (144, 14400), (64, 64, 1)),
        ((32, 100, 3, 2), (144, 64, 14400), (32, 64, 3, 1)),
    ]


# ---- results that are arguments, or other shapes of one array


@nvidia
def test_reshaped_results_and_arguments(gpu):
    plan = replace(
        PLAN,
        buffers=(*PLAN.buffers, Buffer("f16", (["mul", ROWS, 2], 4), ["buffer", 1]),
                 Buffer("f16", (["mul", ROWS, 8],), ["argument", 0])),
        results=(["buffer", 2], ["argument", 1], ["buffer", 3], ["buffer", 1]),
    )  # fmt: skip
    run = GpuExecutable(replace(BUNDLE, plan=plan), gpu.driver)
    x, y, _, scratch = arrays(10)
    out = FakeArray(aligned((20, 4), "f2"))
    same = FakeArray(out.array.reshape(10, 8))
    got = run(x, y, 1.0, out=[out, None, None, same], workspace=scratch)
    assert got[0] is out and got[1] is y and got[2].shape == (80,) and got[3] is same
    assert gpu.launches[1].values[4:6] == [out.address, 8]
    assert np.array_equal(same.array, (x.array.astype("f4") + y.array).astype("f2"))
    apart = FakeArray(aligned((20, 8), "f2")[:, :4])
    with pytest.raises(ArgumentError, match=r"out\[0\] has strides \[8, 1\], with which"):
        run(x, y, 1.0, out=[apart, None, None, same], workspace=scratch)
    with pytest.raises(ArgumentError, match=r"out\[3\] and out\[0\] are one result"):
        run(x, y, 1.0, out=[out, None, None, FakeArray(numbers(10))], workspace=scratch)
    with pytest.raises(ArgumentError, match=r"out\[1\]: this result is y itself"):
        run(x, y, 1.0, out=[out, out, None, same], workspace=scratch)


# ---- constants


def test_constants_are_stored_once_a_context(gpu, maker):
    y = numbers(10)
    digest = "5f" * 32
    add = replace(PLAN.launches[1], operands=(["buffer", 0], ["constant", 0], ["buffer", 1],
                                              ["value", "index", ROWS]))  # fmt: skip
    plan = replace(PLAN, launches=(PLAN.launches[0], add),
                   constants=(Constant("f16", (10, 8), digest, "constant0"),))  # fmt: skip
    bundle = replace(bundle_for(*CHIPS[maker]), plan=plan, data={digest: y.tobytes()})
    run = GpuExecutable(bundle.to_bytes(), gpu.driver)
    for device in (0, 0, 1):
        x, unused, out, scratch = arrays(10, device=device)
        run(x, unused, 2.0, out=out, workspace=scratch)
    assert [context for context, _ in gpu.stored] == [gpu.context(0), gpu.context(1)]
    assert np.array_equal(out.array, (x.array.astype("f4") * 2 + y).astype("f2"))


@nvidia
@pytest.mark.parametrize("follows, first", [(1, "launch"), (2, "early")])
def test_a_kernel_that_waits_by_itself_starts_early(follows, first, gpu):
    kernels = dict(FACTS["images"][1]["kernels"])
    for name in kernels:  # the first one has nothing to wait for in its plan
        kernels[name] = {**kernels[name], "follows": follows}
    facts = {**FACTS, "images": [FACTS["images"][0], {**FACTS["images"][1], "kernels": kernels}]}
    x, y, z, scratch = arrays()
    call = GpuExecutable(replace(BUNDLE, facts=facts), gpu.driver).prepare(
        x, y, 2.0, out=z, workspace=scratch, stream=31
    )
    gpu.calls.clear()
    call()
    call(32)
    assert gpu.calls == ["enter", first, "early", "leave"] * 2
    assert [launch.stream for launch in gpu.launches] == [31, 31, 32, 32]
    np.testing.assert_allclose(z.array, x.array * 2.0 + y.array, rtol=2e-3, atol=2e-3)


def test_long_calls_take_the_image_made_for_them():
    """The last image whose condition holds; its own plan, grid and code."""
    plan = replace(PLAN, launches=tuple(
        replace(launch, grid=(["ceildiv", ROWS, 16],)) for launch in PLAN.launches
    ))  # fmt: skip
    image = FACTS["images"][1]
    variants = [
        {**image, "offset": 8, "when": ["le", 100, ROWS], "plan": plan.to_json(),
         "alignment": FACTS["alignment"]},
        {**image, "offset": 4, "when": ["le", ["mul", 50, ["multiprocessors"]], ROWS]},
    ]  # fmt: skip
    facts = {**FACTS, "images": [*FACTS["images"], *variants]}
    seen = []
    kernels = {name: (kinds, lambda *values: seen.append(values[-1]))
               for name, (kinds, _) in KERNELS.items()}  # fmt: skip
    gpu = FakeGpu(kernels)
    run = GpuExecutable(Bundle("sm_80,sm_90a", PLAN, b"ampehopplong", facts), gpu.driver)
    for rows, programs in ((99, 25), (100, 7), (199, 13), (200, 50), (99, 25)):
        x, y, z, scratch = arrays(rows)
        run(x, y, 2.0, out=z, workspace=scratch)
        assert seen[-2:] == [programs] * 2


def test_an_image_that_would_need_copies_is_not_taken():
    """One for some calls, which sees an argument and the result under other shapes."""
    flat = Buffer("f16", (["mul", ROWS, 8],))
    views = replace(flat, of=["argument", 0]), Buffer("f16", (ROWS, 8), ["buffer", 1])
    buffers = (PLAN.buffers[0], flat, *views)
    plan = replace(PLAN, buffers=buffers, results=(["buffer", 3],)).to_json()
    facts = {**FACTS, "images": [*FACTS["images"], {**FACTS["images"][1], "when": 1, "plan": plan}]}
    (x, y, z, scratch), apart = arrays(40), FakeArray(np.zeros((40, 16), np.float16)[:, :8])
    run = GpuExecutable(replace(BUNDLE, facts=facts), FakeGpu(KERNELS).driver)
    for first, out, taken in ((x, z, True), (apart, z, False), (x, apart, False), (x, z, True)):
        assert bool(run.prepare(first, y, 2.0, out=out, workspace=scratch).image.when) == taken
