# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of torch programs: recurrent layers, scans, `while_loop`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import neptune_mlir  # noqa: E402
from neptune_mlir.errors import NeptuneError  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402


def agrees(program, *arguments, shapes=None, others=(), atol=2e-6):
    """A compiled program, which is right for these arguments."""
    with torch.no_grad():
        kernel = neptune_mlir.compile(from_torch(program, arguments, shapes))
        for given in (arguments, *others):
            wanted = torch.utils._pytree.tree_leaves(program(*given))
            results = torch.utils._pytree.tree_leaves(kernel(*given))
            for got, want in zip(results, wanted, strict=True):
                np.testing.assert_allclose(got, want.numpy(), atol=atol, rtol=0)
    return kernel


@pytest.mark.first_of_each()
@pytest.mark.parametrize(
    ("layer", "steps"),
    [
        (lambda: torch.nn.LSTM(3, 8, proj_size=5), 300),
        (lambda: torch.nn.LSTM(3, 8, 2, bidirectional=True), 300),
        (lambda: torch.nn.LSTM(3, 8, bias=False), 2),  # written out
        (lambda: torch.nn.GRU(3, 8), 5000),
        (lambda: torch.nn.GRU(3, 8, bias=False, bidirectional=True), 9),
        (lambda: torch.nn.RNN(3, 8, 3), 40),
        (lambda: torch.nn.RNN(3, 8, nonlinearity="relu", bias=False), 40),
    ],
)
def test_recurrent_layers_are_loops(layer, steps):
    """300 steps would take minutes written out, and were refused."""
    torch.manual_seed(0)
    agrees(layer().eval(), torch.randn(steps, 2, 3))


def test_recurrences_of_lengths_that_calls_know():
    torch.manual_seed(0)
    layer = torch.nn.GRU(3, 8, batch_first=True).eval()
    shapes = ({0: torch.export.Dim("b", min=2), 1: torch.export.Dim("l", min=2)},)
    others = [(torch.randn(b, n, 3),) for b, n in ((2, 7), (9, 400))]

    def program(x):
        return layer(x)[0].mean(1)

    agrees(program, torch.randn(3, 11, 3), shapes=shapes, others=others)


def test_long_loops_are_refused_for_gpus():
    module = from_torch(torch.nn.RNN(3, 4).eval(), (torch.randn(400, 2, 3),))
    with pytest.raises(NeptuneError, match=r"rnn\.py:\d+.*'scf\.for'") as caught:
        neptune_mlir.compile(module, target="sm_90a")
    assert "recurrence" in caught.value.hint


@pytest.mark.nightly
def test_short_loops_are_written_out_for_gpus():
    module = from_torch(torch.nn.RNN(3, 4).eval(), (torch.randn(3, 2, 3),))
    assert "scf.for" in str(module)
    neptune_mlir.compile(module, target="sm_90a")


def test_while_loops():
    """The number of steps depends on data. torch-mlir's own loop does not end."""
    from torch._higher_order_ops import while_loop

    torch.manual_seed(0)
    w = torch.randn(8, 8) * 0.2

    class Grows(torch.nn.Module):
        def forward(self, x, w):
            def goes_on(i, h):
                return (h.abs().max() < 3) & (i < 1000)

            def step(i, h):
                return i + 1, torch.softmax(h @ w, -1) + h * 1.01

            return while_loop(goes_on, step, (torch.zeros((), dtype=torch.int64), x))

    others = [(torch.randn(4, 8), w), (torch.full((4, 8), 4.0), w)]
    agrees(Grows(), torch.randn(4, 8) * 0.1, w, others=others, atol=1e-5)


@pytest.mark.nightly
def test_scans():
    from torch._higher_order_ops.scan import scan

    torch.manual_seed(0)

    class Scan(torch.nn.Module):
        def forward(self, h, x):
            return scan(lambda c, y: (torch.tanh(c + y), torch.cumsum(c, -1)), h, x)

    agrees(Scan(), torch.randn(4, 8), torch.randn(30, 4, 8), atol=1e-5)
