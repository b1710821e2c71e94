# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floats of 8 bits in programs of torch: where they are rounded, and what is too large."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.errors import InputError  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402

E4M3 = torch.float8_e4m3fn


def run(program, *arguments):
    return neptune_mlir.compile(from_torch(program, arguments, raised=False))(*arguments)


def test_rows_are_divided_before_they_are_rounded():
    """Rounded first, and divided behind the sum, they were 4% off: as much as the rounding."""
    torch.manual_seed(0)
    x, w = torch.randn(6, 64), torch.randn(64, 5)

    def program(x, w):
        scale = x.abs().amax(-1, keepdim=True) / 448
        weights = torch.softmax(x, -1).to(E4M3).float()
        bytes_ = (x / scale).to(E4M3)
        return bytes_, (bytes_.float() @ w) * scale, weights.sum(-1), weights @ w

    wanted = program(x, w)
    stored, *found = run(program, x, w)
    assert stored.dtype == E4M3 and torch.equal(stored.float(), wanted[0].float())
    for got, want in zip(found, wanted[1:], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_too_large():
    """As torch has it, which changed; a StableHLO program and the algebra's own have other ends."""
    ends = [448, 463, 464, 465, 480, 1e9, torch.inf, torch.nan, 17.5, 18.5, 0.1, 2**-10, 0.0]
    x = torch.tensor([*ends, *(-x for x in ends)])
    found = run(lambda x: (x * 1).to(E4M3).float(), x)
    torch.testing.assert_close(found, x.to(E4M3).float(), rtol=0, atol=0, equal_nan=True)


def test_other_floats_of_8_bits_are_named():
    with pytest.raises(InputError, match=r"makes numbers of torch\.float8_e5m2") as caught:
        run(lambda x: x.to(torch.float8_e5m2).float(), torch.randn(4))
    assert "test_torch_narrow.py" in str(caught.value)


def test_numbers_are_not_always_equal_to_themselves():
    x = torch.tensor([1.0, torch.nan, torch.inf])
    found = run(lambda x: (x == x, torch.where(x == x.clone(), x, 0.0)), x)
    np.testing.assert_array_equal(found[0].numpy(), [True, False, True])
    np.testing.assert_array_equal(found[1].numpy(), [1, 0, np.inf])


def test_whole_quotients_and_what_is_left():
    """1 / 0.1 is 10 and 0.1 is nine times in 1: torch-mlir rounded the quotient first."""
    inf = torch.inf
    x = torch.tensor([1.0, 1.5, -1.5, 3.2, -7, 1e9, inf, -inf, -0.0, 449, -449, 6, 0, 2])
    y = torch.tensor([0.1, -0.1, 0.1, -0.3, 2, 0.3, 2, 2, 5, inf, inf, -2, 0, 0])

    def program(x, y):
        roots = x**0.5, (x.abs() + 1) ** -0.5
        return x // y, x // 0.1, torch.fmod(x, y), torch.fmod(x, 0.3), x % y, *roots

    for got, want in zip(run(program, x, y), program(x, y), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-7, atol=0, equal_nan=True)


def test_signs_shifts_windows_and_the_inverse_of_erf():
    x = torch.tensor([0.5, -0.5, 0.0, -0.0, torch.inf, -torch.inf, 0.9999, -0.97, 1.0, -1.0])
    n = torch.tensor([5, -5, 0, 1 << 40])

    def program(x, n):
        windows = [f(9, periodic=p) for p in (True, False)
                   for f in (torch.hann_window, torch.hamming_window, torch.blackman_window)]
        shifts = n >> 1, n << 2, 3 << (n & 7), n >> torch.tensor([0, 1, 2, 3])
        signs = torch.copysign(x + 1, x) * 1, torch.copysign(x, -2.0)
        return torch.signbit(x) & True, *signs, *shifts, torch.erfinv(x.clamp(-1, 1)), *windows

    for got, want in zip(run(program, x, n), program(x, n), strict=True):
        torch.testing.assert_close(got, want, rtol=3e-6, atol=1e-6)
