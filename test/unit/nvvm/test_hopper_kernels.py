# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole kernels of specialised warps, right on the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from run_kernels import Specialised

from neptune_mlir import ops
from neptune_mlir.codegen import hopper
from neptune_mlir.transforms import distribute_kept
from neptune_mlir.transforms.distribute_hopper import SpecializedWriter

HEAD, STREAM = 64, 64
AWAIT = SpecializedWriter._await


def inputs(kind, n, heads=1):
    """q, k and v. By kind, the scores rise or fall by 10 a tile of keys for all rows
    or some, and leave the range of weights by the first tile's maximum."""
    rng = np.random.default_rng(n)
    q, k, v = rng.standard_normal((3, heads, n, HEAD))
    along = 10 * np.arange(n)[:, None] / STREAM / HEAD**0.5
    match kind:
        case "rising":
            q, k = 0.3 * q + 1, 0.3 * k + along
        case "falling":
            q, k = 0.3 * q + 1, 0.3 * k - along
        case "both":
            q, k = 0.3 * q + rng.choice([-1, 1], (n, 1)), 0.3 * k + along
        case "some":  # rows of some warps
            q, k = 0.3 * q + (np.arange(n)[:, None] % 97 == 0), 0.3 * k + along
        case "jumps":
            q, k = 0.3 * q + 1, 0.3 * k + np.floor(along) * (rng.random((n, 1)) < 0.1)
        case "large":
            q, k = 25 * q, 4 * k
    return [x[None].astype(np.float16) for x in (q, k, v)]


def check(kind, n, rows=128, stream=STREAM, choice=(), heads=1, **settings):
    """Compare with float64; returns the blocks that ran."""
    program = ops.attention(head_dim=HEAD, dtype="f16", **settings)
    kernel = Specialised(program, rows, stream, **dict(choice))
    assert not kernel.remarks
    given = inputs(kind, n, heads)
    found, want = kernel(*given), program.reference(*(x.astype(float) for x in given))
    if settings.get("return_lse"):
        found, sums = found
        want, sums_wanted = want
        assert np.abs(sums - sums_wanted).max() < 1e-4
    assert np.linalg.norm(found - want) / np.linalg.norm(want) < 1e-3
    groups = rows // 64
    assert all(block.threads == 128 * (groups + 1) for block in kernel.blocks)
    assert all(block.products and block.products % groups == 0 for block in kernel.blocks)
    return kernel.blocks


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 128, 333])
def test_attention(n, causal):
    blocks = check("plain", n, causal=causal)
    assert not any(block.products_by_warp for block in blocks)


@pytest.mark.parametrize("kind", ["rising", "both", "some", "jumps", "large"])
@pytest.mark.parametrize("causal", [False, True])
def test_references_that_cannot_stay(kind, causal):
    """Warps do the first product again on their own."""
    blocks = check(kind, 333, causal=causal)
    assert any(block.products_by_warp for block in blocks)


def test_warps_part():
    blocks = check("some", 333)
    product = (STREAM // 8) * (HEAD // 16)
    # rows 0 and 97, 194, 291: a warp's each (the last rows come first)
    assert [block.products_by_warp for block in blocks] == [product, product, 2 * product]


@pytest.mark.parametrize("causal", [False, True])
def test_references_that_stay(causal):
    blocks = check("falling", 333, causal=causal)
    assert not any(block.products_by_warp for block in blocks)


@pytest.mark.parametrize("kind", ["plain", "rising"])
@pytest.mark.parametrize("window", [40, 200])
def test_rows_without_keys_in_the_first_tile(kind, window):
    """With a wide window, tiles that are not masked follow."""
    check(kind, 450, causal=True, window=window)


@pytest.mark.parametrize("kind", ["plain", "rising"])
def test_log_sum_exp(kind):
    check(kind, 200, return_lse=True)


@pytest.mark.parametrize(
    ("rows", "stream", "choice"),
    [(128, 128, {}), (64, 64, {}), (192, 64, {}), (128, 64, {"turns": True}),
     (128, 64, {"skew": False}), (128, 64, {"boxed": False}), (128, 64, {"slots": 3})],
)  # fmt: skip
def test_schedules(rows, stream, choice):
    check("rising", 300, rows, stream, choice.items(), causal=True)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_resident_blocks(blocks, causal):
    """Blocks that take programs from a queue; rings and turns go on from one to the next."""
    choice = {"resident": blocks, "turns": True}
    ran = check("some", 200, choice=choice.items(), heads=3, causal=causal)
    assert len(ran) == blocks and sum(block.stored for block in ran) == 6 * 8
    assert ran[0].launch.taken == 0  # as the next launch needs it


def test_the_simulator_sees_a_tile_that_is_not_released(monkeypatch):
    monkeypatch.setattr(SpecializedWriter, "_release", lambda *_: None)
    with pytest.raises(AssertionError, match="a wait that does not end"):
        check("plain", 333)


def test_the_simulator_sees_a_tile_that_is_released_too_early(monkeypatch):
    wait = hopper.wait_products
    monkeypatch.setattr(hopper, "wait_products", lambda n, values: wait(n + 1, values))
    with pytest.raises(AssertionError, match="a product reads it"):
        check("plain", 333)


def test_the_simulator_sees_a_tile_that_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(SpecializedWriter, "_await", _await_nothing)
    with pytest.raises(AssertionError):
        check("plain", 333)


def _await_nothing(self, tile, count):
    wait = hopper.wait_barrier
    hopper.wait_barrier = lambda *_: None
    try:
        AWAIT(self, tile, count)
    finally:
        hopper.wait_barrier = wait


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_weights_out_of_range_are_seen(monkeypatch):
    monkeypatch.setattr(distribute_kept, "LARGEST", 2.0**40)
    check("plain", 333)
    with pytest.raises(AssertionError):
        check("rising", 333)
