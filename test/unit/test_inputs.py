# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as users have them: linalg by hand, from array languages, and from PyTorch.

Each file of test/inputs says what becomes of it: `// kernels: 1`. Every program is compiled with
small tiles, so that even these small tensors take several steps of the stream, a ragged last one
and all corrections, and is compared with the program as written.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.algebra.numerics.accuracy import TOLERANCE
from neptune_mlir.algebra.numerics.norms import frobenius, kinds
from neptune_mlir.cli.run import result_dtype
from neptune_mlir.driver.compiler import compile_unfused
from neptune_mlir.driver.inputs import random_inputs, to_float64
from support.often import nightly_if

INPUTS = sorted((Path(__file__).parents[1] / "inputs").glob("*.mlir"))
SIZE = 37  # of dimensions that are `?`: a multiple of no tile
pytestmark = pytest.mark.usefixtures("small_tiles")


def as_list(value):
    return list(value) if isinstance(value, tuple) else [value]


def results(path, change=lambda arguments: None):
    """The kernel, and pairs of results (fused, unfused) in float64 with their element types."""
    kernel = neptune_mlir.compile(path)
    plan = kernel.plan
    arguments = random_inputs(plan, SIZE)
    change(arguments)
    unfused = compile_unfused(kernel.source.text, str(path), None, vectorize=False)
    got, wanted = as_list(kernel(*arguments)), as_list(unfused(*arguments))
    assert len(got) == len(wanted)
    dtypes = [result_dtype(plan, k) for k in range(len(got))]
    return kernel, [
        (to_float64(a, dtype), to_float64(b, dtype), dtype)
        for a, b, dtype in zip(got, wanted, dtypes, strict=True)
    ]


def test_there_are_inputs():
    assert len(INPUTS) >= 50


# of any lengths, where there is the same with these written down, but one
DYNAMIC = {p.stem for p in INPUTS if p.stem.endswith("_dynamic")} - {"torch_softmax_dynamic"}


@pytest.mark.parametrize(
    "path", nightly_if(lambda p: p.stem in DYNAMIC, INPUTS), ids=lambda p: p.stem
)
def test_fuses_and_is_right(path):
    kernel, pairs = results(path)
    said = dict(re.findall(r"^// kernels(.*): (\d+)", path.read_text(), re.M))
    expected = int(said.get(" on CPUs", said[""]))
    assert len(kernel.plan.launches) == expected
    for got, wanted, dtype in pairs:
        assert not np.isnan(wanted).any()
        assert (kinds(got) == kinds(wanted)).all()
        assert frobenius(got[None], wanted[None]) <= TOLERANCE.get(dtype, 0.0)


def test_row_that_sees_nothing_is_zero():
    """PyTorch's attention gives 0 for a query whose keys are all masked."""

    def mask_a_row(arguments):
        arguments[3][2] = False

    path = next(p for p in INPUTS if p.stem == "torch_sdpa_bool_mask")
    _, ((got, wanted, _),) = results(path, mask_a_row)
    assert (got[:, :, 2] == 0).all() and (wanted[:, :, 2] == 0).all()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
