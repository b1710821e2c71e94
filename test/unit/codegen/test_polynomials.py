# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions in f32: within 2 ulp of double precision, and IEEE at the edges."""

import math

import numpy as np
import pytest
from tile_programs import single

from neptune_mlir.bindings import parse
from neptune_mlir.pipelines import cpu
from neptune_mlir.runtime import CpuExecutable
from neptune_mlir.targets.cpu import NAMED, describe, host

REFERENCES = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh, "erf": np.vectorize(math.erf),
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
}  # fmt: skip
COUNT = 6000
LIMIT = 2.0  # units in the last place


def arguments() -> np.ndarray:
    """Numbers of every magnitude, and more of them where functions bend."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1, -1, 88.8, -87.4, -103.9, 128.5]
    parts = [bits, rng.uniform(-110, 110, COUNT), rng.uniform(-2, 2, COUNT),
             1 + rng.standard_normal(COUNT) * 1e-3, special]  # fmt: skip
    return np.concatenate([np.asarray(p, np.float32) for p in parts])


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_within_two_units(name):
    x = arguments()
    check(name, x, host())


@pytest.mark.parametrize("chip", sorted(NAMED))
@pytest.mark.parametrize("name", ["exp", "log"])
def test_without_wide_instructions(name, chip):
    if chip != "x86-64" and not host().has("avx512f" if chip == "x86-64-v4" else "avx2"):
        pytest.skip("this machine lacks the instructions")
    check(name, arguments()[:COUNT], describe(chip, NAMED[chip], host().triple))


def check(name, x, target):
    text = single(f"%y = math.{name} %a0 : f32\nlinalg.yield %y : f32", ["(i) -> (i)"] * 2, "p",
                  [([len(x)], "f32")], ([len(x)], "f32"))  # fmt: skip
    got = CpuExecutable(cpu.compile_tiles(parse(text), target=target))(x)
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(rounded))
    same = np.isnan(rounded) | (got == rounded)
    unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1))).astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(got.astype(np.float64) - exact) / unit)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMIT, (x[worst], got[worst], exact[worst])
    zero = got == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))


@pytest.mark.parametrize(("op", "numpy"), [("maximumf", np.maximum), ("minimumf", np.minimum)])
def test_maximum_keeps_nan(op, numpy):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 100)).astype(np.float32)
    a[::7], b[::5], a[3], b[4] = np.nan, np.nan, np.inf, -np.inf
    text = single(f"%y = arith.{op} %a0, %a1 : f32\nlinalg.yield %y : f32", ["(i) -> (i)"] * 3, "p",
                  [([100], "f32"), ([100], "f32")], ([100], "f32"))  # fmt: skip
    got = CpuExecutable(cpu.compile_tiles(parse(text)))(a, b)
    np.testing.assert_array_equal(got, numpy(a, b))
