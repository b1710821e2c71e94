# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quotients in GPU kernels: right over the whole range, with reciprocals a last place off."""

import numpy as np
import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from support import math_functions as M
from support.chips import scalar_ops
from support.chips.run_kernels import Simulated
from support.math_functions import EDGES

DIVIDE = next(f for f in M.FUNCTIONS if f.name == "divf")


@pytest.fixture(autouse=True)
def approximate_reciprocals(monkeypatch):
    """What chips state of theirs: a unit in the last place, up or down."""
    exact = scalar_ops.reciprocal

    def off(x):
        found = exact(x)
        up = x.view(np.uint32) * np.uint32(2654435761) >> 31 == 0
        with np.errstate(over="ignore"):
            moved = np.nextafter(found, np.where(up, np.inf, -np.inf).astype(np.float32))
        return np.where(np.isfinite(found) & (found != 0), moved, found)

    monkeypatch.setattr(scalar_ops, "reciprocal", off)


def simulated(program, target):
    module, _ = compiler.lower_text(Source.of(program).text, "test", target, None, "tile")
    return Simulated(module, target=target)


def elements():
    p = N.Program("divide")
    i = p.axis("i")
    x, y = p.input("x", i), p.input("y", i)
    return p, i, x[i], y[i]


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_all_ranges(target):
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(50) * 2.0 ** rng.integers(-148, 127, 50)
    values = np.concatenate([EDGES, spread.astype(np.float32)])
    x, y = (v.ravel().copy() for v in np.meshgrid(values, values))
    p, i, a, b = elements()
    p.output(a / b, i)
    got = simulated(p, target)(x, y)
    error = M.errors(DIVIDE, got, x, y, "f32", flushes=False)
    assert error.max() <= DIVIDE.gpu
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) / y
    normal = (np.abs(exact) >= 2.0**-120) & (np.abs(exact) < 3.402823e38)
    assert error[normal].max() <= 0.500001  # near ties, where the reciprocal is off
    same = x[~np.isnan(x) & ~np.isinf(x) & (x != 0)]
    assert (simulated(p, target)(same, same) == 1).all()


@pytest.mark.parametrize(("target", "dtype"), [("sm_80", "f32"), ("sm_80", "bf16"),
                                               ("gfx942", "bf16"), ("sm_90a", "f16")])  # fmt: skip
def test_rows_of_any_size(target, dtype):
    """x / max |x|: rows from the smallest denormal numbers to the largest."""
    p = N.Program("scaled")
    i, j = p.axis("i"), p.axis("j", 48)
    x = p.input("x", i, j, dtype=dtype)
    wide = N.cast(x[i, j], "f32")
    p.output(wide / N.max(abs(wide), j), i, j, dtype=dtype)
    run = simulated(p, target)
    assert ("neptune.rough" in run.assigned) == (dtype != "f32")
    rng = np.random.default_rng(0)
    low = {"f32": -149, "bf16": -133, "f16": -24}[dtype]
    sizes = 2.0 ** np.arange(low, 16 if dtype == "f16" else 127, 3.0)
    data = rng.uniform(-1.9, 1.9, (len(sizes), 48)) * sizes[:, None]
    data = M._to(data.astype(np.float32), dtype) if dtype != "f32" else data.astype(np.float32)
    data = np.concatenate([data, np.full((1, 48), np.inf), np.zeros((1, 48))]).astype(np.float32)
    given = data.astype(np.float16) if dtype == "f16" else data
    got = np.asarray(run(given), np.float64)
    with np.errstate(all="ignore"):
        want = data.astype(np.float64) / np.abs(data).max(1, keepdims=True).astype(np.float64)
    assert (np.isnan(got) == np.isnan(want)).all()
    size = {"f32": 2.0**-24, "bf16": 2.0**-9, "f16": 2.0**-11}[dtype]
    error = np.abs(got - want) / np.maximum(np.abs(want), M.LEAST[dtype])
    assert np.nanmax(error) <= 1.01 * size * (1 if dtype == "f32" else 2)


def test_quotients_that_decide_are_exact():
    """A quotient of 16-bit programs that is rounded to a whole number keeps its last bit."""
    p = N.Program("levels")
    i, j = p.axis("i"), p.axis("j", 64)
    x = p.input("x", i, j, dtype="f16")
    wide = N.cast(x[i, j], "f32")
    p.output(N.floor(wide / N.max(wide, j) * 49.0), i, j, dtype="f16")
    run = simulated(p, "sm_80")
    assert "neptune.rough" not in run.assigned
    top = np.arange(49, 49 * 20, 49, dtype=np.float16)[:, None]
    given = np.minimum(np.arange(64, dtype=np.float16)[None] * top / 49, top)
    got = run(given)
    np.testing.assert_array_equal(got, np.floor(given.astype(np.float32) / top * np.float32(49)))
