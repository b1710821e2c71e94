# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of torch that we compute by others: against torch's own in float64, and compiled."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402
from neptune_mlir.frontend.torch_special import functions  # noqa: E402

OURS = functions(torch)
INF = float("inf")
ODD = torch.tensor([0.0, 1, 2, 3, -2, INF, -INF, float("nan"), 1e-8, -1e-8, 1e20, 0.5, 1.5, 2.5, 8])
X = torch.cat([torch.linspace(-6.3, 6.3, 401), torch.linspace(6, 80, 100), ODD])
FUNCTIONS = {
    "lgamma": torch.lgamma, "digamma": torch.digamma, "erfc": torch.erfc,
    "special_erfcx": torch.special.erfcx, "i0": torch.i0, "special_i0e": torch.special.i0e,
    "special_i1": torch.special.i1, "special_i1e": torch.special.i1e,
}  # fmt: skip
BYTES = torch.randint(0, 256, (3, 16), dtype=torch.uint8)
WHOLE = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions(name):
    x = X[(X.abs() < 80) | (X.abs() > 1e30) | X.isnan()] if "_i" in name or name == "i0" else X
    x = x[x.abs() < 9] if name == "special_erfcx" else x
    if "i" in name[-3:] and "gamma" not in name:
        x = x[x.isfinite()]
    got, want = OURS[f"{name}.default"](x).double(), FUNCTIONS[name](x.double())
    torch.testing.assert_close(got, want, rtol=3e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("n", [1, 5, 8])
def test_triangles(n):
    a, b = torch.randn(2, n, n) + 3 * torch.eye(n), torch.randn(2, n, n)
    for k in range(8):
        how = {"upper": bool(k & 1), "left": bool(k & 2), "unitriangular": bool(k & 4)}
        got = OURS["linalg_solve_triangular.default"](a, b, **how).double()
        want = torch.linalg.solve_triangular(a.double(), b.double(), **how)
        assert (got - want).norm() < 1e-5 * want.norm()


def test_bytes_of_integers():
    for old in WHOLE:
        for new in WHOLE:
            given = BYTES.view(old)
            assert torch.equal(OURS["view.dtype"](given, new), given.view(new))


@pytest.mark.parametrize("size", [(3, 2), (4, 3), (7, 4)])
def test_windows_that_differ(size):
    x = torch.randn(2, 3, 7, 5)
    want = torch.nn.functional.adaptive_max_pool2d(x, size, return_indices=True)
    for got, wanted in zip(OURS["adaptive_max_pool2d.default"](x, size), want, strict=True):
        assert torch.equal(got, wanted)


def test_compiled():
    scale, zero = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 1, 2], dtype=torch.int32)

    def program(x, packed):
        even = torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7)
        nibbles = packed.view(torch.uint8) & 15
        return even, torch.histc(x, 5, -1, 1), (x.abs() + 1).lgamma(), nibbles

    given = torch.randn(3, 8), BYTES.view(torch.int8)
    kernel = neptune_mlir.compile(from_torch(program, given))
    for got, want in zip(kernel(*given), program(*given), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
