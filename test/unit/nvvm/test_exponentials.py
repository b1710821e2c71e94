# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exponentials of scores and rows that are hard on them, on the simulators of all kinds of GPUs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.frontend.notation import Program, exp
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines.common import TO_TILES
from neptune_mlir.pipelines.lowering import Lowering
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.targets.tuned import Choice
from support import gpu_hostile as hostile
from support.chips import simt
from support.chips.run_kernels import Simulated, Specialised

HEAD, ROWS, KEYS, STREAM = 32, 20, 110, 32
KEPT = Choice(128, 64, resident=False)
MOVED = Choice(64, 64, keeps=False, resident=False, blocks=2)
LONG = pytest.mark.nightly


def streamed(program, target, kind=Simulated, **options):
    """A portable kernel that streams its keys in several tiles."""
    with bindings.source_name("test"):
        lowering = Lowering.of_text(program.to_mlir(), "test")
        lowering.to_program()
        knobs = {"file": "streamed", "knobs": f"rows:64;stream:{STREAM};least:16"}
        lowering.run([Step("apply-schedule", knobs), *TO_TILES])
        return kind(lowering.module, target=target, **options)


def check_attention(kernel, dtype, causal, names):
    masks = hostile.masks(ROWS, KEYS, STREAM)
    masks = {name: masks[name] for name in names or masks}
    rng = np.random.default_rng(0)
    kind = np.float16 if dtype == "f16" else np.float32
    q, k, v = (
        rng.standard_normal((len(masks), 1, n, HEAD)).astype(kind) for n in (ROWS, KEYS, KEYS)
    )
    mask = np.stack(list(masks.values()))
    found = kernel(q, k, v, mask)
    with np.errstate(all="ignore"):
        want, unfused = (
            hostile.attention_unfused(q, k, v, mask[:, None], t, causal)
            for t in (np.float64, np.float32)
        )
    for b, name in enumerate(masks):
        for x, y, z, unit in zip(found, want, unfused, (hostile.UNITS[dtype], 2**-23), strict=True):
            hostile.check(x[b], y[b], z[b], unit, name)


PORTABLE = [
    pytest.param("sm_80", "f16", True, hostile.FEW, id="sm_80"),
    pytest.param("gfx942", "f32", False, hostile.FEW, id="gfx942-f32"),
    *(
        pytest.param(target, dtype, causal, None, id=f"{target}-{dtype}-{causal}", marks=LONG)
        for target in ("sm_80", "gfx942", "gfx1100", "gfx1201")
        for dtype in ("f16", "f32")
        for causal in (False, True)
    ),
]


@pytest.mark.first_of_each()
@pytest.mark.parametrize(("target", "dtype", "causal", "names"), PORTABLE)
def test_masks_that_are_added(target, dtype, causal, names):
    program = hostile.attention(HEAD, dtype, causal=causal)
    check_attention(streamed(program, target), dtype, causal, names)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_masks_without_kept_references(target):
    kernel = streamed(hostile.attention(HEAD, "f16"), target, keeps=False)
    check_attention(kernel, "f16", False, ["lowest left", "-1e9 some rows", "far"])


WARPS = [
    pytest.param(KEPT, False, hostile.FEW[1:6:2], id="kept"),
    pytest.param(MOVED, True, hostile.FEW[1:6:2], id="moved"),
    *(
        pytest.param(choice, causal, None, id=f"{name}-{causal}", marks=LONG)
        for name, choice in (("kept", KEPT), ("moved", MOVED))
        for causal in (False, True)
    ),
]


@pytest.mark.parametrize(("choice", "causal", "names"), WARPS)
def test_masks_that_specialised_warps_add(choice, causal, names):
    kernel = Specialised(hostile.attention(HEAD, "f16", causal=causal), choice)
    check_attention(kernel, "f16", causal, names)


class Counting(simt.Block):
    """Counts the differences that threads take."""

    def __init__(self, *arguments):
        self.differences = 0
        super().__init__(*arguments)

    def step(self, op, mask):
        self.differences += op.name == "arith.subf"
        super().step(op, mask)


class Counted(Simulated):
    differences = 0

    def block(self, *arguments):
        block = Counting(*arguments)
        self.differences += block.differences
        return block


@pytest.mark.parametrize("keeps", [False, True])
def test_small_references_cost_no_operation(keeps):
    """Differences are those of a thread's two references then, not of its 16 weights."""
    kernel = streamed(hostile.attention(HEAD, "f16"), "sm_80", Counted, keeps=keeps)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, KEYS, HEAD)).astype(np.float16)
    tiles, counts = -(-KEYS // STREAM), []
    for mask in (0, -1e9):
        kernel.differences = 0
        kernel(q[:, :, :ROWS], k, v, np.full((1, ROWS, KEYS), mask, np.float32))
        counts.append(kernel.differences / tiles)
    assert counts[0] < 4 < 16 <= counts[1]


@pytest.mark.first_of_each("target")
@pytest.mark.parametrize("name", hostile.UNFUSED)
@pytest.mark.parametrize("target", ["sm_80", "gfx942", pytest.param("gfx1201", marks=LONG)])
def test_rows(name, target):
    module, _ = lower_text(hostile.row_program(name).to_mlir(), "test", target, None, "tile")
    given = hostile.rows(2, 600)
    found = Simulated(module, target=target)(np.concatenate(list(given.values())))
    with np.errstate(all="ignore"):
        for b, (kind, x) in enumerate(given.items()):
            if name == "sum_of_exponentials" and kind in ("-inf all", "-inf some rows"):
                continue  # a row that sees nothing sums to 0 (docs/numerics.md)
            want, unfused = (hostile.UNFUSED[name](x.astype(t)) for t in (np.float64, np.float32))
            hostile.check(found[2 * b : 2 * b + 2], want, unfused, 2**-23, kind)


def test_losses_far_from_zero():
    """Log-sum-exp and an element of the row, in one kernel."""
    module, _ = lower_text(ops.cross_entropy().to_mlir(), "test", "sm_80", None, "tile")
    rng, kernel, rows = np.random.default_rng(0), Simulated(module, target="sm_80"), np.arange(16)
    for at in (0, 1e2, 1e4, 1e6):
        x = (rng.standard_normal((16, 600)) + at).astype(np.float32)
        target = rng.integers(0, 600, 16)
        found = kernel(x, target)
        want, unfused = (
            hostile.UNFUSED["logsumexp"](x.astype(t)) - x.astype(t)[rows, target]
            for t in (np.float64, np.float32)
        )
        hostile.check(found, want, unfused, 2**-23, f"at {at}")


@pytest.mark.parametrize("target", ["sm_80", "gfx1100"])
def test_masks_that_are_scaled(target):
    """What is subtracted is a maximum of rounded products: of the smallest float times a scale an
    exact product may be 1e30 larger, and its exponential infinite."""
    text = """
      func.func @sums(%x: tensor<4x96xf32>) -> tensor<4x96xf32> {
        %scale = arith.constant 0.111803398 : f32
        %e = tensor.empty() : tensor<4x96xf32>
        %s = linalg.map ins(%x : tensor<4x96xf32>) outs(%e : tensor<4x96xf32>)
          (%in: f32, %out: f32) {
            %t = arith.mulf %in, %scale : f32
            linalg.yield %t : f32
          }
        %y = linalg.softmax dimension(1) ins(%s : tensor<4x96xf32>) outs(%e : tensor<4x96xf32>)
            -> tensor<4x96xf32>
        return %y : tensor<4x96xf32>
      }"""
    x = np.random.default_rng(0).standard_normal((4, 96)).astype(np.float32)
    x[:3, :64], x[1], x[2, 95] = -3.4e38, -3.3e38, -3.2e38
    module, _ = lower_text(text, "program", target, None, "tile", "")
    found = Simulated(module, target=target)(x)
    wide = x.astype(np.float64) * np.float32(0.111803398)
    want = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(found, want / want.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("scale", "fused"), [(0.125, True), (-0.25, True), (0.1, False)])
def test_differences_from_scaled_values(scale, fused):
    """x k - g is rounded once where x k has the digits of x. Else a mask of the smallest float,
    whose rounded product g is, would be far from it."""
    p = Program("weights")
    i, j = p.axis("i", 8), p.axis("j", 64)
    x, g = p.input("x", i, j), p.input("g", i)
    p.output(exp(x[i, j] * scale - g[i]), i, j)
    module, _ = lower_text(p.to_mlir(), "test", "sm_80", None, "tile", "")
    kernel = Simulated(module)
    assert ("arith.subf" in str(kernel.module)) != fused
    values = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    values[0] = np.finfo(np.float32).min
    references = (values * np.float32(scale)).max(1)
    wanted = np.exp(values.astype(float) * np.float32(scale) - references[:, None])
    wanted[0] = 1
    np.testing.assert_allclose(kernel(values, references), wanted, rtol=1e-5)


@pytest.mark.parametrize(("head_dim", "causal"), [(64, True), (128, False), (128, True)])
def test_a_first_tile_need_not_ask(head_dim, causal):
    """Weights of a first tile are made of differences: they are right by references that are not
    small, beside later tiles that ask, and where the scale rounds. (Scores are exact, but for that:
    of a row, all that counts have the largest one, 2^21 to 2^25, with both signs.)"""
    program = ops.attention(heads=1, kv_heads=1, head_dim=head_dim, dtype="f16", causal=causal)
    kernel = Specialised(program, KEPT)
    rng = np.random.default_rng(0)
    q, k = (np.full((1, 1, 100, head_dim), 512, np.float16) for _ in range(2))
    q[0, 0] *= (2.0 ** rng.integers(0, 5, (100, 1)) * rng.choice([-1, 1], (100, 1))).astype("f2")
    k[..., 0] = 512 + rng.integers(0, 4, (1, 1, 100)) * 64
    v = rng.standard_normal((1, 1, 100, head_dim)).astype(np.float16)
    scores = q[0, 0].astype(float) @ k[0, 0].T.astype(float) / math.sqrt(head_dim)
    assert np.abs(scores).max() > 2**25
    if causal:
        scores[np.triu_indices(100, 1)] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    want = weights @ v[0, 0].astype(float) / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(kernel(q, k, v)[0, 0], want, atol=2e-3)


def test_a_mask_costs_no_multiplication():
    """Scores are scaled behind their mask, where that is part of what their exponentials multiply
    by. No first tile asks how large its references are, also where the scale rounds."""

    def kernel(head_dim, causal):
        program = ops.attention(heads=1, kv_heads=1, head_dim=head_dim, dtype="f16", causal=causal)
        return str(Specialised(program, KEPT).module)

    exact, rounded, plain = kernel(64, True), kernel(128, True), kernel(64, False)
    assert exact.count("arith.mulf") <= plain.count("arith.mulf")
    assert rounded.count("vote.sync") == exact.count("vote.sync")
