# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of the kinds that models are made of, exported with their weights as constants."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.driver.kernel import Source  # noqa: E402
from neptune_mlir.errors import LoweringError  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402
from support.torch_modules import PROGRAMS  # noqa: E402

OFTEN = (
    "cosine", "cumsum_beside_its_end", "cumsum_masked", "frobenius_norm", "group_norm", "huber",
    "logsumexp_gelu", "mish", "multihead", "sigmoid_logsumexp", "sum_scale",
)  # fmt: skip
REFUSED = pytest.mark.xfail(
    reason="a minimum over channels of what is read by groups of channels: no tile fits both",
    raises=LoweringError, strict=True,
)  # fmt: skip


def marks(name):
    """When a program is tried, and whether it is known to be refused."""
    often = () if name in OFTEN else (pytest.mark.nightly,)
    return (*often, REFUSED) if name == "group_norm_min" else often


RARELY = [pytest.param(name, marks=marks(name)) for name in PROGRAMS]
TOLERANCE = 1e-5  # of the largest element: f32 against float64, sums of at most 120 terms


def in_float64(program, arguments):
    if isinstance(program, torch.nn.Module):
        program = copy.deepcopy(program).double()
    with torch.no_grad():
        return program(*(a.double() if a.is_floating_point() else a for a in arguments))


@pytest.mark.parametrize("name", RARELY)
def test_agrees_with_torch(name):
    program, arguments = PROGRAMS[name]
    kernel = neptune_mlir.compile(from_torch(program, arguments, raised=False))
    got, wanted = kernel(*arguments).numpy(), in_float64(program, arguments).numpy()
    assert got.shape == wanted.shape
    scale = max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE * scale)


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "group_norm_min"])
def test_compiles_for_gpus(name, target):
    program, arguments = PROGRAMS[name]
    text = Source.of(from_torch(program, arguments, raised=False))
    assert neptune_mlir.compile(text, target).bundle.plan.launches
