# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that bring arrays along (weights, tables, masks): what becomes of these."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import Kernel
from neptune_mlir.driver import compiler
from neptune_mlir.driver.inputs import to_float64
from neptune_mlir.errors import InputError
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.pipelines.ways import ways_of
from neptune_mlir.runtime.bundle import Bundle

WEIGHT = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)

PRODUCT = """
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x5xf32> {
  %w = arith.constant VALUE : tensor<6x5xf32>
  %zero = arith.constant 0.0 : f32
  %new = tensor.empty() : tensor<4x5xf32>
  %start = linalg.fill ins(%zero : f32) outs(%new : tensor<4x5xf32>) -> tensor<4x5xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x6xf32>, tensor<6x5xf32>)
                     outs(%start : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
"""


def resource(key: str, raw: bytes) -> str:
    """A resource as MLIR writes it: how it is aligned, then its bytes."""
    digits = (b"\4\0\0\0" + raw).hex().upper()
    return f'{{-# dialect_resources: {{ builtin: {{\n    {key}: "0x{digits}"\n  }} }} #-}}'


def product(weight: np.ndarray = WEIGHT, *, as_resource: bool = False) -> str:
    if as_resource:
        data = resource("model.w", weight.tobytes())
        return PRODUCT.replace("VALUE", "dense_resource<model.w>") + data
    return PRODUCT.replace("VALUE", f"dense<{weight.tolist()}>")


def returned(kind: str, value: str, data: str = "") -> str:
    """A program whose result is a constant, element by element."""
    body = f"%c = arith.constant {value} : {kind} return %c : {kind}"
    return f"func.func @main() -> {kind} {{ {body} }}\n{data}"


@pytest.mark.parametrize("as_resource", [False, True], ids=["dense", "dense_resource"])
def test_weights_are_data_of_the_bundle(as_resource, tmp_path):
    text = product(as_resource=as_resource)
    kernel = neptune.compile(text)
    wanted = X.astype(np.float64) @ WEIGHT
    # sums of 6 products of numbers of size 1, each rounded to 2^-24
    np.testing.assert_allclose(kernel(X), wanted, atol=12 * 2**-24 * 3)
    digest = hashlib.sha256(WEIGHT.tobytes()).hexdigest()
    assert kernel.bundle.data == {digest: WEIGHT.tobytes()}
    assert [c.sha256 for c in kernel.plan.constants] == [digest]
    assert len(kernel.plan.arguments) == 1  # the caller's
    kernel.save(tmp_path / "k.bundle")
    assert np.array_equal(Kernel.load(tmp_path / "k.bundle")(X), kernel(X))
    for unfused in (
        compiler.compile_unfused(text, "w", None, vectorize=False),
        compiler.compile_reference(text, "w", None),
    ):
        wide = X.astype(np.float64 if unfused.plan.arguments[0].dtype == "f64" else np.float32)
        np.testing.assert_allclose(unfused(wide), wanted, atol=12 * 2**-24 * 3)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("tensor<3xf64>", "dense<[1.0, 2.5, -3.0]>", [1.0, 2.5, -3.0]),
        ("tensor<3xf16>", "dense<[1.0, 2.5, -3.0]>", [1.0, 2.5, -3.0]),
        ("tensor<3xbf16>", "dense<[1.0, 2.5, -3.0]>", [1.0, 2.5, -3.0]),
        ("tensor<2x2xi64>", "dense<[[1, 2], [3, -4]]>", [[1, 2], [3, -4]]),
        ("tensor<3xi8>", "dense<[1, 2, -4]>", [1, 2, -4]),
        ("tensor<3xi1>", "dense<[true, false, true]>", [1, 0, 1]),
        ("tensor<f32>", "dense<2.5>", 2.5),
        ("tensor<3xf32>", "dense<2.5>", [2.5] * 3),
        ("tensor<0x3xf32>", "dense<> ", np.zeros((0, 3))),
    ],
)
def test_every_type_of_element(kind, value, wanted):
    kernel = neptune.compile(returned(kind, value))
    got = kernel()
    assert got.shape == np.shape(wanted)
    dtype = kernel.plan.array(kernel.plan.results[0]).dtype
    assert np.array_equal(to_float64(got, dtype), np.asarray(wanted, np.float64))
    got[...] = 0  # memory of its own: the next call sees the constant again
    assert np.array_equal(to_float64(kernel(), dtype), np.asarray(wanted, np.float64))


@pytest.mark.parametrize("packed", [True, False])
def test_conditions_eight_to_a_byte(packed):
    bits = np.random.default_rng(2).integers(0, 2, (3, 7)).astype(bool)
    raw = np.packbits(bits, bitorder="little") if packed else bits
    kernel = neptune.compile(
        returned("tensor<3x7xi1>", "dense_resource<mask>", resource("mask", raw.tobytes()))
    )
    assert np.array_equal(kernel(), bits)


def test_equal_data_is_stored_once():
    text = """
    func.func @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<2x4xf32>) {
      %a = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
      %b = arith.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>
      %r = arith.addf %x, %a : tensor<8xf32>
      return %r, %b : tensor<8xf32>, tensor<2x4xf32>
    }
    """
    kernel = neptune.compile(text)
    assert len(kernel.bundle.data) == 1 and len(kernel.plan.constants) == 2
    first, second = kernel(np.zeros(8, np.float32))
    assert np.array_equal(first, np.arange(1, 9)) and np.array_equal(second.ravel(), first)


def test_numbers_that_become_an_array():
    """`canonicalize` makes a constant of `from_elements`."""
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %a = arith.constant 3.0 : f32
      %b = arith.constant 4.0 : f32
      %c = tensor.from_elements %a, %b : tensor<2xf32>
      %r = arith.mulf %x, %c : tensor<2xf32>
      return %r : tensor<2xf32>
    }
    """
    assert np.array_equal(neptune.compile(text)(np.ones(2, np.float32)), [3, 4])


def test_large_data_is_not_quoted_with_the_program(tmp_path):
    weight = np.random.default_rng(3).standard_normal((6, 5 * 400)).astype(np.float32)
    text = product(weight, as_resource=True).replace("x5xf32", "x2000xf32")
    kernel = neptune.compile(text)
    assert len(kernel.bundle.to_bytes()) < 1.5 * weight.nbytes
    kernel.save(tmp_path / "k.bundle")
    loaded = Kernel.load(tmp_path / "k.bundle")
    assert "constant0" in loaded.explain()  # the program is there, if not its data
    with pytest.raises(InputError, match="data of the program's constants is not in the program"):
        neptune.compile(loaded.source)


def test_data_that_is_missing_or_short():
    with pytest.raises(InputError, match=r"the data of the constant 'model.w' is not in the"):
        neptune.compile(PRODUCT.replace("VALUE", "dense_resource<model.w>"))
    short = resource("model.w", WEIGHT.tobytes()[:-4])
    with pytest.raises(InputError, match=r"'model.w' has 116 bytes for tensor<6x5xf32>"):
        neptune.compile(PRODUCT.replace("VALUE", "dense_resource<model.w>") + short)


def test_the_same_program_makes_the_same_bytes():
    text = product(as_resource=True)
    first, second = (
        compiler.compile_text(text, "w", "sm_80,gfx942", None, None).to_bytes() for _ in range(2)
    )
    assert first == second
    assert Bundle.from_bytes(first).data == {
        hashlib.sha256(WEIGHT.tobytes()).hexdigest(): WEIGHT.tobytes()
    }


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_gpus_read_weights(target):
    from support.chips.run_kernels import Simulated

    program = RaisedProgram(product(), "w")
    lowering = next(program.lowerings(target, ways_of(compiler.pipeline_of(target), target)))
    run = Simulated(lowering.module, target=target, data=program.constants)
    np.testing.assert_allclose(run(X), X.astype(np.float64) @ WEIGHT, atol=12 * 2**-24 * 3)


def modules():
    """PyTorch modules with parameters and buffers, and arguments for them."""
    import torch
    from torch import nn

    class Alibi(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("slopes", torch.tensor([0.5, 0.25, 0.125, 0.0625]))

        def forward(self, q, k, v):
            at = torch.arange(q.shape[2])
            bias = (at[None, :] - at[:, None]).to(q.dtype) * self.slopes.to(q.dtype)[:, None, None]
            return torch.softmax(q @ k.transpose(-1, -2) / 4 + bias, -1) @ v

    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x, need_weights=False)[0]

    torch.manual_seed(0)
    norm = nn.GroupNorm(2, 8)
    nn.init.normal_(norm.weight)
    x, y, z = torch.randn(5, 12), torch.randn(2, 11, 16), torch.randn(3, 8, 5, 5)
    mlp = nn.Sequential(nn.Linear(12, 30), nn.GELU(), nn.LayerNorm(30), nn.Linear(30, 7))
    return {
        "linear": (nn.Linear(12, 7), (x,)),
        "mlp": (mlp, (x,)),
        "multihead": (SelfAttention(), (y,)),
        "group_norm": (norm, (z,)),
        "alibi": (Alibi(), tuple(torch.randn(3, 2, 4, 24, 16))),
        "embedding": (nn.Embedding(20, 8), (torch.randint(0, 20, (3, 6)),)),
    }


LONG = ("mlp", "multihead", "group_norm")
NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in LONG]


@pytest.mark.parametrize("name", ["linear", "alibi", "embedding", *NIGHTLY])
def test_modules_with_their_parameters(name):
    torch = pytest.importorskip("torch")
    from neptune_mlir.frontend.from_torch import from_torch

    module, arguments = modules()[name]
    module.eval()
    with torch.no_grad():
        got = neptune.compile(from_torch(module, arguments, raised=False))(*arguments)
        wide = [a.double() if a.is_floating_point() else a for a in arguments]
        wanted = module.double()(*wide)
    assert (got.double() - wanted).abs().max() < 5e-6  # values of size 1, sums of at most 50
