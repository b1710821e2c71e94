# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose factor matrix instructions round to f16, on data near both ends of its range: rows
are stored normalised, or sums are corrected as they run. What constants keep in range stays so, in
gradients too."""

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.driver.compiler import compile_unfused, lower_text
from neptune_mlir.frontend.notation import Program, cast
from neptune_mlir.frontend.notation import sum as total
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


def test_a_constant_keeps_products_in_range():
    """Of 40 x 40 x 64 f16 has no room, of a 64th it has."""
    p = Program("linear")
    i, j, d, e = p.axes("i j d e", d=64, e=16)
    q, k, v = (p.input(n, *axes, dtype="f16")
               for n, *axes in (("q", i, d), ("k", j, d), ("v", j, e)))  # fmt: skip
    score = total(cast(q[i, d], "f32") * cast(k[j, d], "f32"), d) / 64.0
    p.output(total(score * cast(v[j, e], "f32"), j), i, e, dtype="f16")
    module, _ = lower_text(p.to_mlir(), "linear", "sm_80", "streamed", "tile", "rows:16;stream:16")
    generator = np.random.default_rng(1)
    arrays = [(generator.standard_normal((20, n)) * scale + offset).astype("f2")
              for n, scale, offset in ((64, 1, 40), (64, 1, 40), (16, 1e-2, 0))]  # fmt: skip
    found = np.asarray(Simulated(module, target="sm_80")(*arrays)).astype("f8")
    wanted = p.reference(*(a.astype("f8") for a in arrays))
    assert np.linalg.norm(found - wanted) <= 2e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("heads", [1, 2])
def test_gradients_keep_the_scale_of_scores(heads):
    """The adjoint of a score is 3e5, that of q k a 48th of it; the bias reads the former. Sums over
    the heads of a group stand between a sum and its constant."""
    program = ops.attention(
        head_dim=16, dtype="f16", scale=1 / 48, heads=heads, kv_heads=1, batch=1,
        score_mod=lambda s, b, h, q, kv, bias: s + bias[h, kv],
        inputs={"bias": ops.Extra("h kv")},
    )  # fmt: skip
    backward = neptune.grad(program)
    generator = np.random.default_rng(1)
    q, k, v, out = (generator.standard_normal((1, h, n, 16))
                    for h, n in ((heads, 9), (1, 7), (1, 7), (heads, 9)))  # fmt: skip
    arrays = [a.astype("f2") for a in (q, k, v * 2e4)]
    arrays += [generator.standard_normal((heads, 7)).astype("f4"), (out * 8).astype("f2")]
    wanted = backward.reference(*(a.astype("f8") for a in arrays))
    assert 2e5 < np.abs(wanted[3]).max() and np.abs(wanted[0]).max() < 6e4
    unfused = compile_unfused(backward.to_mlir(), "gradient", None, vectorize=False)
    for found, exact in zip(unfused(*arrays), wanted, strict=True):
        assert np.linalg.norm(found - exact) <= 2e-3 * np.linalg.norm(exact)
