# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 as TF32 on specialised warps: on the simulator, and as ptxas takes them."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation
from support.chips.run_kernels import Specialised

ROUNDED = 2.0**-11  # of a factor, at most


def product(rows, columns, length, left="mk", right="nk", batch=0, finish=None):
    """`left` and `right`: how the factors lie in memory."""
    p = notation.Program("product")
    own = (p.axis("b", batch),) if batch else ()
    at = {"m": p.axis("i", rows), "n": p.axis("j", columns), "k": p.axis("k", length)}
    x_at, w_at = ((*own, *(at[c] for c in order)) for order in (left, right))
    x, w = p.input("x", *x_at, dtype="f32"), p.input("w", *w_at, dtype="f32")
    found = notation.sum(x[x_at] * w[w_at], at["k"])
    if finish is not None:
        found = finish(p, found, at)
    p.output(found, *own, at["m"], at["n"], dtype="f32")
    return p


def bias_and_relu(p, found, at):
    bias = p.input("bias", at["n"], dtype="f32")
    return notation.maximum(found + bias[at["n"]], 0.0)


def factors(left, right, sizes, batch=()):
    rng = np.random.default_rng(7)
    shapes = [(*batch, *(sizes[c] for c in order)) for order in (left, right)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def expected(x, w, left, right):
    exact = [a.astype(np.float64) for a in (x, w)]
    b = "b" if x.ndim == 3 else ""
    form = f"{b}{left},{b}{right}->{b}mn"
    return np.einsum(form, *exact), np.einsum(form, *map(abs, exact))


def rounds_to_nearest(found, want, size):
    """Factors that are rounded, not cut off: errors that do not add up to one side."""
    bound = 2 * ROUNDED * size
    assert (abs(found - want) <= bound).all()
    assert abs(np.mean((found - want) / size)) < ROUNDED / 16


def run(left, right, sizes, batch=(), finish=None, more=()):
    """What the kernel makes of random factors, and what float64 does."""
    program = product(*sizes.values(), left, right, *batch, finish=finish)
    kernel = Specialised(program, precision="tf32")
    x, w = factors(left, right, sizes, batch)
    found = kernel(x, w, *more)
    assert any(block.products for block in kernel.blocks)
    assert not any(block.products_by_warp for block in kernel.blocks)
    return found, *expected(x, w, left, right)


@pytest.mark.parametrize(("left", "right"), [("mk", "nk"), ("mk", "kn"), ("km", "nk")])
def test_factors_that_lie_either_way(left, right):
    rounds_to_nearest(*run(left, right, {"m": 132, "n": 264, "k": 76}))


@pytest.mark.parametrize("right", ["nk", "kn"])
def test_a_sum_of_one_step(right):
    """The program has no loop; those of a block follow each other."""
    rounds_to_nearest(*run("mk", right, {"m": 264, "n": 132, "k": 32}))


def test_a_batch_and_what_follows_a_product():
    bias = np.linspace(-9, 9, 136).astype(np.float32)
    sizes = {"m": 72, "n": 136, "k": 36}
    found, want, size = run("mk", "kn", sizes, (3,), bias_and_relu, (bias,))
    assert (abs(found - np.maximum(want + bias, 0)) <= 2 * ROUNDED * size + 1e-5).all()
    assert (found == 0).any() and (found > 9).any()


def test_infinities_and_nan():
    x = np.ones((64, 64), np.float32)
    x[3, 5], x[7, 9], x[8, 1] = np.inf, np.nan, -np.inf
    kernel = Specialised(product(64, 64, 64), precision="tf32")
    found = kernel(x, np.ones((64, 64), np.float32))
    assert np.isposinf(found[3]).all() and np.isnan(found[7]).all() and np.isneginf(found[8]).all()


def assembled(program):
    pytest.importorskip("test_hopper")  # skips without ptxas
    text = compiler.with_options(Source.of(program).text, "product", precision="tf32")
    return compiler.compile_text(text, "product", "sm_90a", None, None)


def test_a_right_factor_that_needs_transposing_is_said():
    bundle = assembled(product(128, 128, 64, "km", "kn"))
    assert "whose rows do not run along the sum" in str(bundle.facts["remarks"])


@pytest.mark.parametrize(("left", "right"), [("mk", "nk"), ("mk", "kn"), ("km", "nk")])
def test_the_assembler_takes_them(left, right):
    bundle = assembled(product(4096, 4096, 4096, left, right))
    image = bundle.facts["images"][0]
    (kernel,) = image["kernels"].values()
    assert kernel["threads"] == 3 * 128 and kernel["spills"] == 0 and image["notes"] == []
    maps = [o for o in bundle.plan.launches[0].operands if o[0] == "map"]
    assert all(o[6:] == [32, 1] for o in map(list, maps))  # panels of 32 columns, rounded
