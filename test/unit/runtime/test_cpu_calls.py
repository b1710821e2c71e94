# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls after the first: only addresses differ, memory may overlap, and the host costs little."""

import gc
import os
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.runtime import cpu, workers
from neptune_mlir.runtime.cpu import CpuExecutable
from neptune_mlir.runtime.host_memory import memory_for
from neptune_mlir.runtime.loader import load
from support.process import is_mapped


@pytest.fixture(scope="module")
def run():
    return neptune.compile(ops.softmax())


def rows(count=3, length=70, seed=0):
    return np.random.default_rng(seed).standard_normal((count, length), dtype=np.float32)


def softmax(x):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def check(got, x):
    np.testing.assert_allclose(got, softmax(x), rtol=1e-5, atol=1e-7)  # f32, 300 elements at most


def test_calls_alike_in_all_but_memory(run):
    for seed in range(3):
        x = rows(seed=seed)
        check(run(x), x)
        check(run(np.asfortranarray(x)), x)
        out = np.full_like(x, np.nan)
        assert run(x, out=out) is out
        check(out, x)


def test_out_that_overlaps_and_out_that_does_not(run):
    """The same shapes and strides: only addresses say that a result is read while it is written."""
    memory = np.empty((5, 70), np.float32)
    for first in (3, 1, 0, 2):  # apart from x below, overlapping, in place, apart and overlapping
        memory[:2] = rows(2)
        x = memory[:2].copy()
        run(memory[:2], out=memory[first : first + 2])
        check(memory[first : first + 2], x)


def test_a_call_keeps_no_memory(run):
    x = rows(4, 33)
    for given in ({}, {"out": np.empty_like(x)}):
        run(x, **given)
    seen = weakref.ref(x)
    del x, given
    gc.collect()
    assert seen() is None


def test_a_prepared_call_keeps_its_code():
    x = rows()
    out = np.empty_like(x)
    call = neptune.compile(ops.softmax()).prepare(x, out=out)
    gc.collect()  # the kernel is gone
    call()
    check(out, x)


def test_prepared(run):
    x, out = rows(), np.full((3, 70), np.nan, np.float32)
    call = run.prepare(x, out=out)
    assert call() is None
    check(out, x)
    x[:] = rows(seed=1)
    call()
    check(out, x)
    in_place = rows(seed=2)
    wanted = in_place.copy()
    run.prepare(in_place, out=in_place)()
    check(in_place, wanted)


@pytest.mark.parametrize("count", ["1", "4"])
def test_threads_that_call_at_once(run, count, monkeypatch):
    """Helpers serve one call; the others run alone."""
    monkeypatch.setenv("NEPTUNE_NUM_THREADS", count)
    wrong = []

    def call(seed):
        x = rows(300, 300, seed)
        for _ in range(20):
            if not np.allclose(run(x), softmax(x), rtol=1e-5, atol=1e-7):
                wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork(run, monkeypatch):
    """The helpers of the parent do not exist in the child, which makes its own."""
    monkeypatch.setenv("NEPTUNE_NUM_THREADS", "3")
    x = rows(500, 300)
    run(x)
    child = os.fork()
    if child == 0:
        right = np.allclose(run(x), softmax(x), rtol=1e-5, atol=1e-7)
        os._exit(0 if right and workers.helpers()._threads == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_of_torch(run, threads, monkeypatch):
    """Where torch is loaded its OpenMP threads run the programs, as many as it may use."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(workers, "_forked", False)
    monkeypatch.setenv("NEPTUNE_NUM_THREADS", "3")
    if not isinstance(workers.helpers(), workers.Team):
        pytest.skip("no OpenMP runtime in torch")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        monkeypatch.setattr(workers, "_own", None)
        for seed in range(20):
            x = rows(300, 300, seed)
            np.testing.assert_allclose(run(x), softmax(x), rtol=1e-5, atol=1e-7)
    finally:
        torch.set_num_threads(before)


def calls_of(call):
    """The functions, of Python and of C, that a call of `call` calls when nothing is new to it.

    A count is the same on each machine; processor time was ten times as long on a shared one.
    """
    for _ in range(3):
        call()
    names = []

    def note(frame, event, what):
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call":
            names.append(what.__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_host_cost(run):
    """41, 48 and 7 functions took 10, 13 and 3 us beside other processes; planning calls 259.
    (Asking `os.environ` for a variable that is not set is six, and an exception.)"""
    x = rows(0)
    out = np.empty_like(x)
    again = calls_of(lambda: run(x))
    assert len(again) < 45, again
    into = calls_of(lambda: run(x, out=out))
    assert len(into) < 57, into
    prepared = calls_of(run.prepare(x, out=out))
    assert len(prepared) < 12, prepared


def test_host_cost_counts_what_plans_anew(run):
    lengths = iter(range(100, 110))
    assert len(calls_of(lambda: run(np.ones((1, next(lengths)), np.float32)))) > 200


def test_a_first_call_on_two_threads_loads_code_that_stays(run, monkeypatch):
    """Each thread loads the code; the one that is later may not drop what the other calls."""
    kernel, loaded, second = CpuExecutable(run.bundle), [], threading.Event()

    def slow_first(code, names):
        made = load(code, names)
        loaded.append(made[1][0])
        if threading.current_thread() is first:
            second.wait(60)
        return made

    monkeypatch.setattr(cpu, "load", slow_first)
    results = []
    first = threading.Thread(target=lambda: results.append(kernel(rows(4))))
    first.start()
    while not loaded:
        time.sleep(0.001)
    x = rows(5)
    np.testing.assert_allclose(kernel(x), softmax(x), rtol=1e-5, atol=1e-7)
    second.set()
    first.join()
    gc.collect()
    np.testing.assert_allclose(results[0], softmax(rows(4)), rtol=1e-5, atol=1e-7)
    assert is_mapped(loaded[1])  # the code of the call that is called again
    np.testing.assert_allclose(kernel(x), softmax(x), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8E4M3FN", "i64", "index", "ui16"])
def test_memory_for_tensors(dtype):
    """Of a type that torch does not have, NumPy's memory."""
    torch = pytest.importorskip("torch")
    memory = memory_for([None, torch.zeros(1)])
    array = memory.maker((2, 3, 4), dtype)()
    assert isinstance(array, torch.Tensor) and array.is_contiguous()
    assert tuple(array.shape) == (2, 3, 4) and memory.address(array) == array.data_ptr()
    turned = memory.maker((2, 3, 4), dtype, (0, 2, 1))()
    assert tuple(turned.shape) == (2, 4, 3) and turned.stride() == (12, 1, 4)
    other = memory_for([np.zeros(1)])
    assert isinstance(other.maker((2,), dtype)(), np.ndarray)
    assert other.maker((2, 3, 4), dtype, (0, 2, 1))().shape == (2, 4, 3)
