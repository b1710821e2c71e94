# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose factor matrix instructions round to f16, on data near both ends of its range: rows
are stored normalised, or sums are corrected as they run."""

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver.compiler import lower_text
from support.chips.run_kernels import Simulated

ROWS, COLS, OUT = 18, 128, 32


def inputs():
    generator = np.random.default_rng(1)
    x, weight = generator.standard_normal((ROWS, COLS)), generator.standard_normal(COLS)
    column, late = x * 1e-2, x * 1e-6
    column[:, COLS // 2], late[:, -8:] = 6e4, 3e4
    w = generator.standard_normal((COLS, OUT)) * COLS**-0.5
    found = {
        "large": (x * 1e4, weight * 10), "the largest": (np.clip(x * 2e4, -6e4, 6e4), weight * 30),
        "small": (x * 1e-6, weight), "small twice": (x * 1e-3, weight * 1e-3),
        "one column": (column, weight), "large at last": (late, weight * 10),
        "zeros": (0 * x, weight),
    }  # fmt: skip
    return {name: [a.astype("f2") for a in (*pair, w)] for name, pair in found.items()}


@pytest.mark.first_of_each()
@pytest.mark.parametrize(("target", "schedule", "knobs"), [
    ("sm_80", "private", "rows:16"), ("sm_80", "streamed", ""), ("gfx1100", None, ""),
])  # fmt: skip
def test_rows_of_any_size(target, schedule, knobs):
    text = ops.rms_norm_matmul(cols=COLS, out=OUT, dtype="f16").to_mlir()
    module, _ = lower_text(text, "norm", target, schedule, "tile", knobs)
    run = Simulated(module, target=target)
    for name, arrays in inputs().items():
        found = np.asarray(run(*arrays)).astype("f8")
        x, weight, w = (a.astype("f8") for a in arrays)
        wanted = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * weight @ w
        error = np.linalg.norm(found - wanted, axis=1)
        assert (error <= 1e-3 * np.linalg.norm(wanted, axis=1)).all(), name
