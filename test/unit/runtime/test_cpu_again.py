# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of torch tensors as one native function: what differs from the call before is seen."""

import sys
import threading

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime import cpu_again
from neptune_mlir.runtime.cpu import CpuExecutable

torch = pytest.importorskip("torch")
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("torch without DLPack's exchange interface", allow_module_level=True)


@pytest.fixture(scope="module")
def bundle():
    return neptune.compile(ops.layer_norm()).bundle


@pytest.fixture
def run(bundle):
    """One whose last call was of 5 x 9 elements."""
    made = CpuExecutable(bundle)
    for _ in range(3):
        made(*given())
    assert made._last is not None
    return made


def given(rows=5, columns=9):
    return torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)


def check(got, x, w, b):
    wanted = torch.nn.functional.layer_norm(x.double(), x.shape[-1:], w.double(), b.double())
    assert (got.double() - wanted).abs().max() < 1e-5


def test_it_is_taken(run, monkeypatch):
    monkeypatch.setattr(CpuExecutable, "_find", None)
    x, w, b = given()
    check(run(x, w, b), x, w, b)
    parameter = torch.nn.Parameter(w, requires_grad=False)
    check(run(x, parameter, b), x, w, b)


def test_what_differs(run):
    _, w, b = given()
    for x in (*(given(*n)[0] for n in ((7, 9), (5, 9), (1, 9))), torch.randn(9, 5).t(),
              torch.randn(10, 9)[::2], torch.randn(5, 18)[:, 9:]):  # fmt: skip
        for _ in range(2):
            check(run(x, w, b), x, w, b)
    other = given(5, 8)
    check(run(*other), *other)
    arrays = [np.asarray(a) for a in given()]
    check(torch.from_numpy(run(*arrays)), *map(torch.from_numpy, arrays))


@pytest.mark.parametrize("which", ["gradient", "negated", "meta", "sparse", "few", "type"])
def test_what_no_kernel_takes(run, which):
    x, w, b = given()
    wrong = {
        "gradient": lambda: x.requires_grad_(), "negated": lambda: torch._neg_view(x),
        "meta": lambda: x.to("meta"), "sparse": x.to_sparse, "type": x.double,
    }.get(which)  # fmt: skip
    with pytest.raises(ArgumentError):
        run(*((x, w) if wrong is None else (wrong(), w, b)))
    x = x.detach()
    check(run(x, w, b), x, w, b)


def test_results_in_given_memory(run):
    x, w, b = given()
    for _ in range(3):
        out = torch.empty_like(x)
        assert run(x, w, b, out=out) is out
        check(out, x, w, b)
    for first in (1, 0):  # shifted by a row, in place
        memory = torch.randn(6, 9)
        x, target = memory[:5].clone(), memory[first : first + 5]
        run(memory[:5], w, b, out=target)
        check(target, x, w, b)
    check(run(x, w, b), x, w, b)  # results of its own again


def test_no_reference_is_kept(run):
    x, w, b = given()
    out = torch.empty_like(x)
    run(x, w, b, out=out)
    before = sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(w)
    for _ in range(50):
        run(x, w, b, out=out)
    assert before == (sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(w))


def test_threads_share_it(run):
    found = []

    def work():
        x, w, b = given()
        for _ in range(200):
            found.append(bool(torch.allclose(run(x, w, b), run(x, w, b))))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 600 and all(found)


def test_arrays_are_few(bundle, monkeypatch):
    """A native function has room for so many."""
    monkeypatch.setattr(cpu_again, "_MOST", 3)
    run = CpuExecutable(bundle)
    for _ in range(3):
        run(*given())
    assert run._last is None


def test_torch_without_the_interface(bundle, monkeypatch):
    monkeypatch.setattr(cpu_again, "_interface", lambda: None)
    run = CpuExecutable(bundle)
    for _ in range(3):
        x, w, b = given()
        check(run(x, w, b), x, w, b)
    assert run._last is None
