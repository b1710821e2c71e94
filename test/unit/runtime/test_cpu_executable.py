# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calling compiled functions: what is refused and before any work, `out=`, DLPack, threads."""

import sys

import numpy as np
import pytest

from neptune_mlir.dialects.context import parse
from neptune_mlir.driver.inputs import bf16_bits
from neptune_mlir.errors import ArgumentError, LoweringError, UsageError
from neptune_mlir.pipelines import cpu
from neptune_mlir.runtime import CpuExecutable, workers
from neptune_mlir.runtime.arrays import storage_dtype
from support.tile_programs import attention


@pytest.fixture(scope="module")
def run():
    text = attention(8, 16, 16).replace(
        "-> tensor<?x?x?x8xf32> {",
        "-> tensor<?x?x?x8xf32> attributes {neptune.equal_dims = ["
        "array<i64: 0, 0, 1, 1, 0, 1, 2, 0, 1>, array<i64: 0, 1, 1, 1, 1, 1, 2, 1, 1>, "
        "array<i64: 1, 2, 1, 2, 2, 1>]} {",
        1,
    )
    return CpuExecutable(cpu.compile_tiles(parse(text)).to_bytes())


@pytest.fixture
def qkv():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 3, 20, 8), dtype=np.float32) for _ in range(3)]


REFUSED = {
    "rank": (lambda q: q[0], r"argument 0 has shape \[3, 20, 8\], not \[\?, \?, \?, 8\]"),
    "extent": (lambda q: q[..., :7], r"argument 0 has shape \[2, 3, 20, 7\]"),
    "dtype": (lambda q: q.astype(np.float64), "argument 0 has type f64, not f32"),
    "complex": (lambda q: q.astype(np.complex64), "type complex64, which no kernel takes"),
    "byte order": (lambda q: q.astype(">f4"), "which no kernel takes"),
    "no array": (lambda q: "text", "argument 0 is a str, not an array"),
    "batch": (lambda q: q[:1], r"argument 0.shape\[0\] is 1, but argument 1.shape\[0\] is 2"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_before_any_work(run, qkv, name):
    change, message = REFUSED[name]
    out = np.full_like(qkv[0], 7)
    with pytest.raises(ArgumentError, match=message):
        run(change(qkv[0]), qkv[1], qkv[2], 0.3, out=out)
    assert (out == 7).all()


def test_wrong_scalars_and_numbers(run, qkv):
    with pytest.raises(ArgumentError, match="takes 4 arguments, 3 were given"):
        run(*qkv)
    with pytest.raises(ArgumentError, match="argument 3 is a str, not a number"):
        run(*qkv, "0.3")
    assert np.array_equal(run(*qkv, np.float32(0.25)), run(*qkv, 0.25))


def test_out(run, qkv):
    wanted = run(*qkv, 0.3)
    out = np.empty_like(wanted)
    assert run(*qkv, 0.3, out=out) is out and np.array_equal(out, wanted)
    strided = np.zeros((2, 3, 20, 16), np.float32)[..., ::2]
    assert run(*qkv, 0.3, out=strided) is strided and np.array_equal(strided, wanted)
    q = qkv[0].copy()
    assert run(q, *qkv[1:], 0.3, out=q) is q and np.array_equal(q, wanted)  # in place of an input
    readonly = np.empty_like(wanted)
    readonly.flags.writeable = False
    for bad, message in [(readonly, "read-only"), (out[:1], "shape"), (out.astype("f8"), "type"),
                         ((out, out), "2 arrays for 1 results")]:  # fmt: skip
        with pytest.raises(ArgumentError, match=message):
            run(*qkv, 0.3, out=bad)


def test_read_only_inputs_are_fine(run, qkv):
    wanted = run(*qkv, 0.3)
    for x in qkv:
        x.flags.writeable = False
    assert np.array_equal(run(*qkv, 0.3), wanted)


def test_empty(run, qkv):
    q, k, v = qkv
    assert run(q[:, :, :0], k, v, 0.3).shape == (2, 3, 0, 8)
    assert run(q[:0], k[:0], v[:0], 0.3).shape == (0, 3, 20, 8)
    assert (run(q, k[:, :, :0], v[:, :, :0], 0.3) == 0).all()


def test_unaligned_fields(run, qkv):
    record = np.zeros((2, 3, 20, 8), np.dtype([("pad", "u1"), ("x", "<f4")]))
    record["x"] = qkv[0]
    assert np.array_equal(run(record["x"], *qkv[1:], 0.3), run(*qkv, 0.3))


def test_dlpack(run, qkv):
    torch = pytest.importorskip("torch")
    wanted = run(*qkv, 0.3)
    tensors = [torch.from_numpy(x) for x in qkv]
    turned = tensors[1].transpose(2, 3).contiguous().transpose(2, 3)
    assert np.array_equal(run(tensors[0], turned, tensors[2], 0.3), wanted)
    out = torch.empty(wanted.shape)
    assert run(*tensors, 0.3, out=out) is out and np.array_equal(out.numpy(), wanted)
    with pytest.raises(ArgumentError, match="argument 0 gives no DLPack view"):
        run(tensors[0].clone().requires_grad_(), *tensors[1:], 0.3)
    with pytest.raises(ArgumentError, match="argument 0 has type f64"):
        run(tensors[0].double(), *tensors[1:], 0.3)


def test_bfloat16_through_dlpack():
    torch = pytest.importorskip("torch")
    run = CpuExecutable(cpu.compile_tiles(parse(attention(16, 16, 32, dtype="bf16"))))
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 40, 16).bfloat16() for _ in range(3))
    out = torch.empty_like(q)
    run(q, k, v, 0.25, out=out)
    wanted = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    assert torch.linalg.norm(out.float() - wanted) / torch.linalg.norm(wanted) < 1e-2
    fresh = run(q, k, v, 0.25)
    assert fresh.dtype == torch.bfloat16 and torch.equal(fresh, out)


def test_results_are_of_the_library_of_the_arguments(run, qkv):
    torch = pytest.importorskip("torch")
    wanted = run(*qkv, 0.3)
    assert isinstance(wanted, np.ndarray)
    found = run(*(torch.from_numpy(x) for x in qkv), 0.3)
    assert isinstance(found, torch.Tensor) and np.array_equal(found.numpy(), wanted)


def test_bfloat16_in_numpy(monkeypatch):
    """Of the type that ml_dtypes adds where it is installed, else as bits."""
    run = CpuExecutable(cpu.compile_tiles(parse(attention(16, 16, 32, dtype="bf16"))))
    bits = [bf16_bits(np.random.default_rng(s).standard_normal((1, 2, 40, 16))) for s in range(3)]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ml_dtypes", None)
        storage_dtype.cache_clear()
        plain = run(*bits, 0.25)
        assert plain.dtype == np.uint16
    storage_dtype.cache_clear()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for arrays in (bits, [b.view(ml_dtypes.bfloat16) for b in bits]):
        typed = run(*arrays, 0.25)
        assert typed.dtype == ml_dtypes.bfloat16
        assert np.array_equal(typed.view(np.uint16), plain)


def test_threads_agree(run, qkv, monkeypatch):
    results = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("NEPTUNE_NUM_THREADS", count)
        results.append(run(*qkv, 0.3))
    assert all(np.array_equal(results[0], r) for r in results)
    monkeypatch.setenv("NEPTUNE_NUM_THREADS", "none")
    with pytest.raises(UsageError, match="not a positive number"):
        workers.count()


def test_callers_on_several_threads(run, qkv):
    from concurrent.futures import ThreadPoolExecutor

    wanted = run(*qkv, 0.3)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: run(*qkv, 0.3), range(16)))
    assert all(np.array_equal(r, wanted) for r in results)


def test_extents_of_a_program_must_agree():
    import neptune_mlir
    from neptune_mlir import ops

    run = neptune_mlir.compile(ops.attention(head_dim=8, group=2))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, h, 20, 8), dtype=np.float32) for h in (4, 2, 2))
    assert np.isfinite(run(q, k, v)).all()
    for bad in [(q, k[:1], v), (q, k, v[:, :, :7]), (q, k[:, :1], v[:, :1]), (q[:, :3], k, v)]:
        with pytest.raises(ArgumentError, match="must be equal"):
            run(*bad)


def test_host_code_that_computes_on_arrays_is_refused():
    text = """func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = func.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }
    func.func private @g(%x: tensor<4xf32>) -> tensor<4xf32>"""
    with pytest.raises(LoweringError):
        cpu.compile_tiles(parse(text), entry="f")
