# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers and Fourier transforms of torch, in real numbers."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")
pytest.importorskip("torch._subclasses.complex_tensor")

import neptune_mlir  # noqa: E402
from neptune_mlir.errors import InputError  # noqa: E402
from neptune_mlir.frontend import torch_complex  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402

torch.manual_seed(0)
X, H = torch.randn(2, 6, 12), torch.randn(6, 12)


class Spectra(torch.nn.Module):
    """A filter whose weights are pairs, a table of complex numbers, and transforms of each kind."""

    def __init__(self):
        super().__init__()
        self.filter = torch.nn.Parameter(torch.randn(6, 7, 2))
        self.register_buffer("turns", torch.polar(torch.ones(6, 6), torch.randn(6, 6)))

    def forward(self, x, h):
        spectrum = torch.fft.rfft(x, n=24)
        long = torch.nn.functional.pad(x, (0, 248)).transpose(0, 1)  # 260 = 13 * 20
        frames = torch.stft(x[0], 8, 3, 6, torch.hann_window(6), return_complex=True)
        filtered = torch.fft.rfft2(x, norm="ortho") * torch.view_as_complex(self.filter)
        odd = torch.fft.fftn(x[..., :11], dim=(1, 2)) * (2 - 1j) / 3
        return (
            torch.fft.irfft(spectrum * torch.fft.rfft(h, n=24).conj())[..., :12],
            torch.fft.irfft2(filtered, norm="ortho"), frames.abs(), odd.real, odd.angle().cos(),
            torch.fft.ifft(odd, dim=1).imag, torch.fft.fftshift(torch.fft.rfft(long)).abs(), x,
            torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (6, 2))) * self.turns),
        )  # fmt: skip


def test_a_graph_computes_the_same_without_complex_numbers():
    model = Spectra()
    lengths = ({0: torch.export.Dim("batch")}, None)
    exported = torch.export.export(model, (X, H), dynamic_shapes=lengths)
    exported = torch_complex.take_apart(torch, exported)
    values = [node.meta.get("val") for node in exported.graph.nodes]
    assert not any(v.dtype.is_complex for v in values if isinstance(v, torch.Tensor))
    for x in (X, torch.randn(3, 6, 12)):
        with torch.no_grad():
            made = exported.module()(x, H)
        for got, want in zip(made, model(x, H), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


class Written(torch.nn.Module):
    """Parts of spectra that are written one by one; weights that are complex."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.complex64))

    def forward(self, x):
        found = torch.fft.rfft(x)
        made = torch.zeros(2, 6, 7, dtype=found.dtype)
        made[..., :5] = found[..., :5] * self.weights
        made[:, 0] = 1j * found[:, 1]
        made *= 2
        made.real.add_(1)
        made[:, torch.tensor([3, -1])] = found[:, :2]
        made[x[..., :7] > 0] = 3
        return torch.fft.irfft(made, n=12)


def test_parts_that_are_written():
    """torch's rules copied the part, and what was written to it was lost without a word."""
    model = Written()
    with torch.no_grad():
        exported = torch_complex.take_apart(torch, torch.export.export(model, (X,)))
        torch.testing.assert_close(exported.module()(X), model(X), rtol=1e-4, atol=1e-5)
    assert from_torch(model, (X,), raised=False)


def test_rotated_pairs_are_one_kernel():
    turns = torch.polar(torch.ones(6, 6), torch.randn(6, 6))

    def rotated(x):
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (6, 2))) * turns).flatten(2)

    kernel = neptune_mlir.compile(from_torch(rotated, (X,)))
    assert len(kernel.plan.launches) == 1
    torch.testing.assert_close(kernel(X), rotated(X))


def test_a_complex_result_is_refused_at_its_line():
    with pytest.raises(InputError, match=r"test_torch_complex.*complex numbers"):
        from_torch(lambda x: torch.fft.rfft(x), (X,))
