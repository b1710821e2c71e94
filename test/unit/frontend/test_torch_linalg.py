# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inverses, systems, determinants and factors by scans, beside LAPACK's."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.frontend import torch_linalg  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402

OURS = torch_linalg.functions(torch)
CALLS = {
    "inverse": (torch.linalg.inv, lambda a, p, b: (a,), {}),
    "solution": (torch.linalg.solve, lambda a, p, b: (a, b), {}),
    "solution from the right": (torch.linalg.solve, lambda a, p, b: (a, b.mT), {"left": False}),
    "solution of vectors": (torch.linalg.solve, lambda a, p, b: (a, b[..., 0]), {}),
    "determinant": (torch.det, lambda a, p, b: (a,), {}),
    "sign and logarithm": (torch.slogdet, lambda a, p, b: (a,), {}),
    "logarithm": (torch.logdet, lambda a, p, b: (p,), {}),
    "lower factor": (torch.linalg.cholesky, lambda a, p, b: (p,), {}),
    "upper factor": (torch.linalg.cholesky, lambda a, p, b: (p,), {"upper": True}),
    "by a factor": (torch.cholesky_solve, lambda a, p, b: (b, p.tril()), {}),
    "inverse by a factor": (torch.cholesky_inverse, lambda a, p, b: (p.triu(),), {"upper": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 7, 7)])
def test_agrees_with_lapack(name, shape):
    torch.manual_seed(len(shape))
    function, chosen, how = CALLS[name]
    a, b = torch.randn(shape) + 3 * torch.eye(shape[-1]), torch.randn(*shape[:-1], 2)
    given = chosen(a, a @ a.mT + torch.eye(shape[-1]), b)
    got = OURS[function](torch, *given, **how)
    want = function(*(x.double() for x in given), **how)
    listed = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    for x, y in listed:
        assert x.shape == y.shape and (x - y).norm() <= 1e-4 * y.norm() + 1e-6


def test_pivots_are_chosen():
    """[[0, 1], [2, 3]] has an inverse, and its first element is no pivot; ones have none."""
    a, ones = torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.ones(3, 3)
    torch.testing.assert_close(OURS[torch.inverse](torch, a), a.inverse())
    assert OURS[torch.det](torch, a) == -2 and OURS[torch.det](torch, ones) == 0
    assert OURS[torch.logdet](torch, ones) == -torch.inf
    assert OURS[torch.logdet](torch, a).isnan()
    large = torch.diag(torch.tensor([1e30, -1e-30, 2.0]))  # no logarithm's digits are lost
    assert OURS[torch.det](torch, large) == large.det()


def test_compiled():
    def program(a, b):
        whole = a @ a.mT + torch.eye(3)
        return torch.linalg.solve(a, b), torch.linalg.cholesky(whole), a.det()

    given = torch.randn(3, 3), torch.randn(3, 1)
    module = from_torch(program, given)
    for got, want in zip(neptune_mlir.compile(module)(*given), program(*given), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
