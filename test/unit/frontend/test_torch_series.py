# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of fixed length in the place of loops, and both branches of a choice."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.algebra.special_functions import quantile_of_normal  # noqa: E402
from neptune_mlir.frontend import torch_series  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402

F, INF = torch.nn.functional, float("inf")
OURS = torch_series.functions(torch)
A = torch.tensor([0, 1e-3, 0.3, 1, 2.5, 10, 29, 31, 100, 3000, 1e5, INF, -1])
X = torch.tensor([0, 1e-4, 0.2, 1, 1.7, 3.6, 9, 12, 28, 35, 60, 99, 130, 2950, 3010, 1e5, INF, -2])


@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
def test_incomplete_gamma_functions(function):
    a, x = torch.meshgrid(A, X, indexing="ij")
    got, want = OURS[function](torch, a, x).double(), function(a.double(), x.double())
    torch.testing.assert_close(got, want, rtol=2e-4, atol=5e-7, equal_nan=True)
    got = OURS[function](torch, a.double(), x.double())
    torch.testing.assert_close(got, want, rtol=3e-9, atol=5e-10, equal_nan=True)


def test_quantiles():
    p = torch.tensor([0, 1, 1e-30, 1e-38, 1e-9, 0.07, 0.08, 0.5, 0.75, 0.93, 0.9999, -1, 2, -INF])
    for x, rtol in ((p, 3e-7), (p.double(), 3e-15)):
        got = quantile_of_normal(torch.where, x).double()
        torch.testing.assert_close(
            got, torch.special.ndtri(x.double()), rtol=rtol, atol=rtol, equal_nan=True
        )


# of the Fibonacci numbers, which take the most steps, and of zeros
PAIRS = torch.tensor([[0, 12, -18, 7, 2971215073, 100, 5], [0, 18, 12, 0, 1836311903, -75, 5]])


def test_divisors():
    long, short = PAIRS, torch.randint(-127, 128, (2, 300), dtype=torch.int8)
    for a, b in (long, short):
        assert torch.equal(OURS[torch.gcd](torch, a, b), torch.gcd(a, b))
    assert torch.equal(OURS[torch.lcm](torch, *long), torch.lcm(*long))


def test_alignments():
    rows = torch.randn(9, 3, 5).log_softmax(-1)
    targets = torch.tensor([[1, 1, 2, 4], [4, 2, 2, 1], [1, 2, 4, 1]])
    given, wanted = torch.tensor([9, 7, 3]), torch.tensor([3, 0, 4])  # (4 in 3 steps)
    own = OURS[F.ctc_loss]
    for how in ({"reduction": "none"}, {"blank": 3, "zero_infinity": True}, {"reduction": "sum"}):
        got = own(torch, rows, targets, given, wanted, **how)
        torch.testing.assert_close(got, F.ctc_loss(rows, targets, given, wanted, **how))
    listed = rows[:, :2], torch.tensor([1, 1, 2, 4, 1]), (9, 7), (3, 2)
    torch.testing.assert_close(own(torch, *listed), F.ctc_loss(*listed))
    one = rows[:, 0], torch.tensor([1, 2]), torch.tensor(9), torch.tensor(2)
    torch.testing.assert_close(own(torch, *one), F.ctc_loss(*one))


def test_compiled():
    def step(at, x):
        return at + 1, torch.cond(x.sum() > 0, lambda x: x * 0.5 - 1, lambda x: -x, (x,))

    def inner(x):
        return torch.cond(x.max() > 2, lambda x: (x * 2,), lambda x: (x + 1,), (x,))[0].exp()

    def program(x, targets):
        loop = torch._higher_order_ops.while_loop
        first = torch.zeros((), dtype=torch.int64)
        rows = x.log_softmax(-1)
        loss = F.ctc_loss(rows, targets, torch.tensor([4, 3]), torch.tensor([2, 1]))
        chosen = torch.cond(x.sum() < 100, inner, lambda x: x + torch.tensor(3.0), (x,))
        last = loop(lambda at, x: at < 3, step, (first, x))[1]
        return loss, chosen, last, targets.gcd(targets[0])

    given = torch.randn(4, 2, 5), torch.tensor([[1, 2], [4, 1]])
    kernel = neptune_mlir.compile(from_torch(program, given))
    for got, want in zip(kernel(*given), program(*given), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
