# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers of torch that torch-mlir takes for others: unsigned ones, short ones, large ones by way
of floats. All equal to torch's."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402


def unsigned(u, a):
    return (
        u + 200, u // 7, u % 13, u >> 2, u > 100, u.sum(), u.max(), u.argmax(), u.sort()[0],
        u.clamp(10, 200), u / 255, u + 1.5, torch.where(u > 128, u, 255 - u), u + a, u.view(4, 8)
        .max(1)[1], torch.maximum(u, u.flip(0)), torch.nn.functional.pad(u, (1, 2), value=250),
    )  # fmt: skip


def short(u, a):
    return a + a, a * 3, a // (a.abs() | 1), a % 7, -a, a.clamp(-5, 5), a.prod(), a**2, a / 3


def large(x, y):
    divisors = y[:9].long() - 128
    return (
        -x, x & -x, x**3, (x % 9) ** 0.5, x.abs(), x // 7, x // (divisors | 1), x.max(),
        x.sort()[0],
    )  # fmt: skip


def from_floats(x, y):
    return x.to(torch.uint8), (x * 2).to(torch.int8), x.to(torch.int16), x.to(torch.int32)


@pytest.mark.parametrize("program", [unsigned, short, large, from_floats])
def test_integers_are_those_of_torch(program):
    torch.manual_seed(0)
    u = torch.randint(0, 256, (32,), dtype=torch.uint8)
    given = u, torch.randint(-128, 128, (32,), dtype=torch.int8)
    if program is large:  # above what a float32 tells apart
        given = torch.randint(-(2**60), 2**60, (9,)), u
    elif program is from_floats:
        given = torch.tensor([200.0, -3.7, 300, 255.9, 127.5, -128.5, 7e4, 1e10, torch.nan]), u
    wanted = program(*given)
    if program is from_floats:  # what an integer is of NaN and of 1e10, chips do not agree on
        wanted, kept = [w[:7] for w in wanted], slice(7)
    else:
        kept = ...
    found = neptune_mlir.compile(from_torch(program, given, raised=False))(*given)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype
        assert torch.equal(got[kept] if got.dim() else got, want)


def test_division_by_zero_ends_no_process():
    """torch raises; a kernel cannot, so it has what XLA has. So for the least number by -1."""
    x, y = torch.tensor([7, -7, -(2**63), 9]), torch.tensor([0, 0, -1, -2])
    kernel = neptune_mlir.compile(
        from_torch(lambda x, y: (torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y)), (x, y))
    )
    quotient, rest = kernel(x, y)
    assert quotient.tolist() == [-1, -1, -(2**63), -4]
    assert rest.tolist()[2:] == [0, 1]
