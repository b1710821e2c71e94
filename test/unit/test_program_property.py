# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of maps, reductions and products over up to three axes, against NumPy.

Everything is f64 and runs in tiny tiles, so an answer that differs in the seventh digit means a
wrong correction, a lost mask or a wrong tail, and no rounding. What cannot fuse has to be right
all the same. `NEPTUNE_EXAMPLES=1000` looks further, at other programs each time.
"""

import os
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import neptune_mlir
from support.effort import code_of
from support.random_programs import arrays, described, programs

pytestmark = pytest.mark.usefixtures("small_tiles")

EXAMPLES = int(os.environ.get("NEPTUNE_EXAMPLES", "0"))


def as_list(value):
    return list(value) if isinstance(value, tuple) else [value]


def draws(number):
    """So many programs, the same each time where nobody asks for more."""
    return settings(
        max_examples=EXAMPLES or number, derandomize=not EXAMPLES, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.mark.nightly
@draws(40)
@given(programs(), st.integers(0, 2**16))
def test_any_program_is_right(program, seed):
    note(described(program))
    data = arrays(program, np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NaN and inf are compared below
        wanted = as_list(program.reference(*data))
    with code_of(seed):
        got = as_list(neptune_mlir.compile(program)(*data))
    for a, b in zip(got, wanted, strict=True):
        a = np.asarray(a)
        assert a.shape == b.shape
        defined = ~np.isnan(b)  # 0/0 of a row that is masked everywhere may become 0
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        np.testing.assert_allclose(a[defined], b[defined], rtol=1e-7, atol=1e-7 * scale)


@draws(12)
@given(programs(), st.integers(0, 2**16))
def test_some_programs_are_right(program, seed):
    test_any_program_is_right.hypothesis.inner_test(program, seed)
