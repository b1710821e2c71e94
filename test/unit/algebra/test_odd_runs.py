# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NaNs that a fused program makes of inputs near an input, and of the input itself not."""

import numpy as np

from neptune_mlir.algebra.numerics.floats import EPSILON
from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.programs import Programs


def nan_where(sign):
    """A NaN where one element is less than the other, or the reverse; else 40 ulps off."""
    number = 1 + 40 * EPSILON["f32"]
    return lambda x: [np.where(sign * (x[0][:, 0] - x[0][:, 1]) < 0, np.nan, number)]


def test_they_are_luck_where_the_program_as_written_makes_some():
    x, one = np.array([[0.75, 0.75]]), lambda x: [np.ones(len(x[0]))]
    near = lambda x: [one(x)[0] * (1 - 1e-7)]  # noqa: E731
    for unfused, right in ((nan_where(-1), True), (near, False)):
        (found,) = judge(Programs(nan_where(1), unfused, one, ("f32",), ("f32",)), [x])
        assert found.ok == right and bool(found.strangers) != right
