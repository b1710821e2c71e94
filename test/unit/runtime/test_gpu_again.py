# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls on a GPU that differ from an earlier one in addresses alone, on a fake driver: what their
kernels receive, and what sends a call through all checks again."""

import gc
import sys
import threading
import weakref
from ctypes import c_float, c_int32, c_int64, c_uint8, c_void_p
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from neptune_mlir.errors import ArgumentError, ToolError
from neptune_mlir.runtime import gpu as gpu_module
from neptune_mlir.runtime import gpu_again, parameters
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.gpu import GpuExecutable
from neptune_mlir.runtime.gpu_arrays import DeviceArray
from neptune_mlir.runtime.plan import Argument, Buffer, Launch, Plan
from neptune_mlir.runtime.shards.gift import Gift
from neptune_mlir.runtime.shards.in_two import ArraysInTwo
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import FakeArray, FakeTensor, aligned, fake_torch, memory

ROWS = ["dim", 0, 0]
# y = x * a, by way of an array of the workspace; the second kernel also gets the map of x, and a
# number that no two calls under way share
PLAN = Plan(
    "scale",
    (Argument("tensor", "f16", (None, 64), "x"), Argument("scalar", "f32", (), "a")),
    (),
    (Buffer("f16", (ROWS, 64)), Buffer("f16", (ROWS, 64))),
    (
        Launch("first", (ROWS,), (["argument", 0], ["buffer", 0],
                                  ["value", "f32", ["argument", 1]])),
        Launch("second", (ROWS,), (["map", "argument", 0, 0, 64, 64], ["buffer", 0],
                                   ["buffer", 1], ["counter", 8])),
    ),
    (["buffer", 1],),
)  # fmt: skip


def _first(x, xs, t, ts, a, rows):
    memory(t, (rows, 64), (ts, 1), "f2")[:] = memory(x, (rows, 64), (xs, 1), "f2") * np.float16(a)


class Map(c_uint8 * 128):
    """A tensor map among the parameters of a kernel."""

    @property
    def value(self):
        return bytes(self)


def _second(map_, t, ts, y, ys, number, rows):
    memory(y, (rows, 64), (ys, 1), "f2")[:] = memory(t, (rows, 64), (ts, 1), "f2")


ARRAY = (c_void_p, c_int64)
KERNELS = {"first": ((*ARRAY, *ARRAY, c_float), _first),
           "second": ((Map, *ARRAY, *ARRAY, c_int32), _second)}  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(parameters, "_maps", {})
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    FakeArray.living.clear()
    made = FakeGpu(KERNELS)
    yield made
    assert not made.failures and not made.inside


def bundle_of(plan):
    facts = {"threads": 32, "shared": 0, "registers": 32, "spills": 0}
    image = {"target": "sm_90a", "offset": 0, "size": 4, "kernels": dict.fromkeys(KERNELS, facts)}
    return Bundle("sm_90a", plan, b"hopp", {"images": [image],
                                            "alignment": [["argument", 0, 16]]})  # fmt: skip


@pytest.fixture
def run(gpu):
    return GpuExecutable(bundle_of(PLAN), gpu.driver)


@pytest.fixture
def checks(monkeypatch):
    """How many calls went through all checks."""
    seen = []
    whole = GpuExecutable._prepare

    def prepare(self, *arguments, **named):
        seen.append(arguments)
        return whole(self, *arguments, **named)

    monkeypatch.setattr(GpuExecutable, "_prepare", prepare)
    return seen


def tensor(rows=5, seed=0):
    made = aligned((rows, 64), "f2")
    made[:] = np.random.default_rng(seed).standard_normal((rows, 64))
    return FakeTensor(made)


def test_only_addresses_are_filled_in(run, gpu, checks):
    kept = []
    for seed in range(4):
        x = tensor(seed=seed)
        y = run(x, 2.0)
        assert np.array_equal(y.array, x.array * np.float16(2))
        kept += [x, y]
        first, second = gpu.launches[-2:]
        scratch = FakeArray.living[-1]
        assert first.values == [x.address, 64, scratch.address, 64, 2.0]
        assert second.values[1:] == [scratch.address, 64, y.address, 64, seed]
    assert len(checks) == 1
    assert [made[1] for made in gpu.maps] == [x.address for x in kept[::2]], "a map for each x"
    assert len({launch.values[0] for launch in gpu.launches[1::2]}) == 4, "that kernels receive"


def test_a_call_whose_arrays_lie_badly_is_no_example(gpu, checks):
    """It has the kernels for any call; one like it may have those for aligned arrays."""
    facts = {"threads": 32, "shared": 0, "registers": 32, "spills": 0}
    image = {"target": "sm_90a", "offset": 0, "size": 4, "kernels": dict.fromkeys(KERNELS, facts)}
    best = {**image, "when": 1, "alignment": [["argument", 0, 64]]}
    bundle = Bundle("sm_90a", PLAN, b"hopp", {"images": [image, best],
                                              "alignment": [["argument", 0, 16]]})  # fmt: skip
    run = GpuExecutable(bundle, gpu.driver)
    apart = FakeTensor(aligned((5 * 64 + 16,), "f2")[16:].reshape(5, 64))
    for x, count in ((apart, 1), (apart, 2), (tensor(), 3), (tensor(), 3), (apart, 4)):
        assert np.array_equal(run(x, 2.0).array, x.array * np.float16(2))
        assert len(checks) == count


@pytest.mark.parametrize(
    "other", [(7, 1.0), (5, 3.0), (5, -0.0), (5, 1), (5, True)], ids=lambda other: str(other)
)
def test_another_call_is_checked(run, gpu, checks, other):
    rows, number = other
    for a in (1.0, 0.0):
        run(tensor(), a)
    run(tensor(rows), number)
    assert len(checks) == 3
    assert np.signbit(gpu.launches[-2].values[-1]) == np.signbit(np.float32(number))


def test_another_context(run, gpu, checks):
    """A thread may come to be in a context of its own: calls go on there, and come back."""
    x = tensor()
    primary = gpu.context(0)
    for current, entered, count in (
        (None, primary, 1), (None, primary, 1), (primary, primary, 1), (primary, primary, 1),
        (0xABCD, 0xABCD, 2), (0xABCD, 0xABCD, 2), (None, primary, 2), (primary, primary, 2),
    ):  # fmt: skip
        gpu.current = current
        gpu.inside[:] = [current] * (current is not None)
        assert np.array_equal(run(x, 2.0).array, x.array * np.float16(2))
        assert gpu.launches[-1].context == entered
        assert len(checks) == count
        gpu.inside.clear()


def test_without_a_compiler_each_call_is_checked(run, checks, monkeypatch):
    monkeypatch.setattr(gpu_again, "has_compiler", lambda: False)
    for _ in range(2):
        run(tensor(), 2.0)
    assert len(checks) == 2


def test_errors_of_a_call_like_another(run, gpu):
    x = tensor()
    run(x, 2.0)
    gpu.error = 7
    with pytest.raises(ToolError, match="a kernel launch failed: error 7"):
        run(x, 2.0)
    gpu.error = 0
    assert np.array_equal(run(x, 3.0).array, x.array * np.float16(3))


def test_numbers_of_captured_calls(run, gpu):
    x = tensor()
    numbers = []
    for stream, capturing in ((3, None), (3, None), (3, 3), (3, 3), (3, None)):
        gpu.capturing = capturing
        run(x, 1.0, stream=stream)
        numbers.append(gpu.launches[-1].values[-1])
        assert gpu.launches[-1].stream == 3
    assert numbers == [0, 1, 4, 5, 2]


def test_a_result_in_the_memory_of_an_argument(gpu):
    """Where the plan says so, and both are one array: in a first call, and in one like it."""
    run = GpuExecutable(bundle_of(replace(PLAN, in_place=((0, 0),))).to_bytes(), gpu.driver)
    x = tensor(seed=1)
    want = x.array * np.float16(4)
    assert run.requirements(x, 2.0).in_place == ((0, 0),)
    run(x, 1.0, out=tensor())
    assert run(x, 2.0, out=x) is x and run(x, 2.0, out=x) is x
    assert np.array_equal(x.array, want)
    rows = aligned((6, 64), "f2")
    with pytest.raises(ArgumentError, match="out overlaps x"):
        run(FakeTensor(rows[:5]), 2.0, out=FakeTensor(rows[1:]))


def test_memory_of_the_caller(run, checks):
    scratch = FakeTensor(aligned((768,), "i1"))
    for seed in range(3):
        x, out = tensor(seed=seed), tensor()
        assert run(x, 2.0, out=out, workspace=scratch) is out
        assert np.array_equal(out.array, x.array * np.float16(2))
        assert run(x, 2.0, out=[out]) is out
    assert len(checks) == 2
    with pytest.raises(ArgumentError, match="out overlaps x"):
        run(x, 2.0, out=x, workspace=scratch)
    with pytest.raises(ArgumentError, match="workspace overlaps x"):
        run(FakeTensor(scratch.array[:640].view("f2").reshape(5, 64)), 2.0, out=out,
            workspace=scratch)  # fmt: skip
    assert len(checks) == 4
    with pytest.raises(ArgumentError, match="2 arrays for 1 results"):
        run(x, 2.0, out=[out, out])


def test_a_workspace_that_nothing_needs(gpu, run, checks):
    """Callers give what `requirements` says: maybe nothing."""
    plan = replace(PLAN, buffers=(Buffer("f16", (ROWS, 64)),), results=(["buffer", 0],), launches=(
        Launch("first", (ROWS,), (["argument", 0], ["buffer", 0],
                                  ["value", "f32", ["argument", 1]])),
    ))  # fmt: skip
    again = GpuExecutable(replace(run.bundle, plan=plan), gpu.driver)
    for size in (0, 0, 256, 256):
        x, out, scratch = tensor(), tensor(), FakeTensor(aligned((size,), "i1"))
        again(x, 2.0, out=out, workspace=scratch)
        assert np.array_equal(out.array, x.array * np.float16(2))
    assert len(checks) == 2, "one for each size"


def test_misaligned_arrays_are_refused(run, checks):
    run(tensor(), 2.0)
    raw = aligned((5 * 64 + 64,), "f2")
    with pytest.raises(ArgumentError, match="x is not aligned to 16 bytes"):
        run(FakeTensor(raw[1:321].reshape(5, 64)), 2.0)
    run(FakeTensor(raw[64:384].reshape(5, 64)), 2.0)
    assert len(checks) == 2


def test_negated_tensors_are_refused(run, monkeypatch):
    run(tensor(), 2.0)
    x = tensor()
    monkeypatch.setattr(x, "is_neg", lambda: True, raising=False)
    with pytest.raises(ArgumentError, match="negated lazily"):
        run(x, 2.0)


def test_nobodys_memory_is_kept(run):
    x = tensor()
    gone = weakref.ref(x)
    run(x, 2.0)
    FakeArray.living.clear()
    del x
    gc.collect()
    assert gone() is None


def test_each_thread_has_calls_of_its_own(run, gpu, checks):
    x = tensor()
    run(x, 2.0)
    made = []
    threads = [threading.Thread(target=lambda: made.append(run(x, 2.0))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run(x, 2.0)
    assert len(checks) == 3
    assert all(np.array_equal(y.array, x.array * np.float16(2)) for y in made)


def test_few_calls_are_kept(run, checks, monkeypatch):
    monkeypatch.setattr(gpu_module, "_CALLS_LIMIT", 2)
    for rows in (1, 2, 3, 1, 3):
        run(tensor(rows), 2.0)
    assert len(checks) == 4, "three are one too many: the first two are forgotten"


def test_memory_by_its_address(run, gpu, checks):
    """As XLA hands it out: no library allocates anything."""
    living = [tensor(), tensor(), FakeTensor(aligned((768,), "i1"))]
    x, out, scratch = (
        DeviceArray(a.address, {"float16": "f16", "int8": "i8"}[a.array.dtype.name], a.shape)
        for a in living
    )
    for _ in range(2):
        run(x, 2.0, out=[out], workspace=scratch, stream=4)
    assert np.array_equal(living[1].array, living[0].array * np.float16(2))
    assert len(checks) == 1 and gpu.launches[-1].stream == 4
    with pytest.raises(ArgumentError, match="pass out="):
        run(x, 2.0)


def test_a_result_that_is_an_argument_is_checked_each_time(gpu, run, checks):
    plan = replace(PLAN, results=(["argument", 0],))
    again = GpuExecutable(replace(run.bundle, plan=plan), gpu.driver)
    x = tensor()
    assert again(x, 2.0) is x and again(x, 2.0) is x
    assert len(checks) == 2


IN_TWO = Plan(
    "two", PLAN.arguments[:1], (), (Buffer("f16", (ROWS, 64)),),
    (Launch("both", (ROWS,), (
        ["argument", 0], ["buffer", 0], ["in_two", "argument", 0, 0, 4],
        ["map", "argument", 0, 0, 64, 64], ["map behind", "argument", 0, 0, 64, 64],
    )),), (["buffer", 0],),
)  # fmt: skip


def test_arguments_in_two_arrays(gpu, checks, monkeypatch):
    """A call that comes again gets the second array and the word that it was given."""
    seen = []

    def both(*values):
        seen.append([*values[:1], *values[4:12], *values[12:14]])

    numbers = (c_void_p, *[c_int32] * 7)
    monkeypatch.setitem(KERNELS, "both", ((*ARRAY, *ARRAY, *numbers, Map, Map), both))
    made = FakeGpu(KERNELS)
    facts = {"threads": 32, "shared": 0, "registers": 32, "spills": 0}
    image = {"target": "sm_90a", "offset": 0, "size": 4, "kernels": {"both": facts}}
    bundle = Bundle("sm_90a", IN_TWO, b"hopp", {"images": [image], "alignment": []})

    def values(run, x, more, word, late):
        run(ArraysInTwo((x, more), 0, late, word, 900, 0, 5))
        return seen.pop()

    run = GpuExecutable(bundle, made.driver)
    given = [(tensor(4, k), tensor(3, k + 9), 4 * (k + 1), k % 2) for k in range(4)]
    found = [values(run, *g) for g in given]
    assert len(checks) == 2  # for what is late counts
    assert found == [values(GpuExecutable(bundle, made.driver), *g) for g in given]
    assert [row[1:9] for row in found[:2]] == [
        [4, 4, 0, 4, 900, 0, 0, 5], [8, 4, 4, 7, 900, 0, 0, 5]
    ]  # fmt: skip
    assert len({row[-1] for row in found}) == 4
    with pytest.raises(ArgumentError, match="no kernel for this device takes"):
        run(ArraysInTwo((tensor(5), tensor(3)), 0))  # tiles have 4 rows
    before = len(checks)  # what is sent has addresses as well
    gift = Gift(((16, 32),), 1, 0, 0, 64, 32, 64, 4, 8)
    for _ in "ab":
        run(ArraysInTwo(given[0][:2], 0, 0, 4, 900, gift=gift))
    assert len(checks) == before + 2
    made.failures.clear()


@pytest.fixture
def quick(gpu):
    """What torch's compilers make arrays by: what was asked of it, and the current device."""
    state, torch = SimpleNamespace(made=[], device=0), sys.modules["torch"]

    def empty(shape, steps, kind):
        state.made.append((shape, steps, kind))
        return FakeTensor(aligned(shape, kind), state.device)

    torch._C._dynamo = SimpleNamespace(guards=SimpleNamespace(_empty_strided_cuda=empty))
    torch._C._cuda_getDevice, torch.empty_strided = lambda: state.device, empty
    return state


def test_a_call_again_as_a_function(run, gpu, checks, quick):
    x = tensor()
    run(x, 2.0)
    again = run.again(x, 2.0).repeat([1], [])
    again([None, x])  # finds that this thread is in the call's context
    torch, launches = sys.modules["torch"], len(gpu.launches)
    quick.made.clear()
    for seed in range(1, 4):
        x = tensor(seed=seed)
        (y,) = again([None, x])
        assert np.array_equal(y.array, x.array * np.float16(2))
        first, second = gpu.launches[-2:]
        assert first.values[0] == x.address
        assert second.values[-1] == (seed + 2) % 4, "numbers in turn"
        assert first.stream == 77, "torch's own"
    assert len(gpu.launches) == launches + 6 and len(checks) == 1
    assert quick.made == [((5, 64), (64, 1), "float16"), ((768,), (1,), "int8")] * 3
    quick.device, made = 1, len(torch.made)  # results lie on the device of the call
    (y,) = again([None, x])
    assert y.device == 0 and len(torch.made) == made + 2 and len(quick.made) == 6
    gpu.current = 0xABCD
    gpu.inside[:] = [0xABCD]
    assert again([None, x]) is None, "another context: a whole call can say"
    gpu.inside.clear()


def test_steps_of_a_call_again(run, gpu, quick):
    """Functions of Python and of C between the caller and the native entry: about a quarter of a
    microsecond each."""
    x, seen = tensor(), []
    run(x, 2.0)
    kept = run.again(x, 2.0)
    kept._enter = lambda *given: seen.append("enter") or 0
    again = kept.repeat([0], [])
    again([x])
    seen.clear()
    here = gpu_again.__file__.partition("gpu_again")[0]

    def watch(frame, event, _):
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(here):
            seen.append(event)

    sys.setprofile(watch)
    try:
        again([x])
    finally:
        sys.setprofile(None)
    assert seen.index("enter") <= 12, seen


def test_orders_of_results(run, gpu, quick):
    x = tensor()
    run(x, 2.0)
    quick.made.clear()
    run.again(x, 2.0).repeat([0], [(1, 0)])([x])
    assert quick.made[0] == ((64, 5), (1, 64), "float16")
