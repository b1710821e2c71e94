# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Portable kernels that keep references, right on the simulator whatever the scores do."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines.common import TO_TILES
from neptune_mlir.pipelines.lowering import Lowering
from neptune_mlir.pipelines.runner import Step
from support.chips.run_kernels import Simulated
from support.moving_scores import KINDS, inputs

HEAD, STREAM, ROWS, KEYS = 32, 32, 64, 200
WARPS = {"sm_80": 4, "gfx942": 4}  # of 16 rows
PRODUCT = (STREAM // 8) * (HEAD // 16), (STREAM // 16) * (HEAD // 16)  # instructions of a warp


class Counted(Simulated):
    """Counts the matrix instructions of warps."""

    products = 0

    def block(self, *arguments):
        self.products += super().block(*arguments).products


def kernel_of(program, target, **options):
    with bindings.source_name("test"):
        lowering = Lowering.of_text(program.to_mlir(), "test")
        lowering.to_program()
        knobs = {"file": "streamed", "knobs": f"rows:{ROWS};stream:{STREAM};least:16"}
        lowering.run([Step("apply-schedule", knobs), *TO_TILES])
        return Counted(lowering.module, target=target, **options)


@cache
def known(target, keeps, **settings):
    """A kernel for all scores that tests give it."""
    return kernel_of(ops.attention(head_dim=HEAD, dtype="f16", **settings), target, keeps=keeps)


def extra_products(kind, target, **settings):
    """Compare with float64; how many products of warps there are because tries failed."""
    program = ops.attention(head_dim=HEAD, dtype="f16", **settings)
    given = inputs(kind, KEYS, head=HEAD, stream=STREAM, rows=ROWS)
    want = program.reference(*(x.astype(float) for x in given))
    counts = []
    for keeps in (True, False):
        kernel = known(target, keeps, **settings)
        kernel.products = 0
        assert ("neptune.keeps" in kernel.assigned) == keeps and not kernel.remarks
        found = kernel(*given)
        if settings.get("return_lse"):
            assert np.abs(found[1] - want[1]).max() < 1e-4
        one, other = (x[0] if settings.get("return_lse") else x for x in (found, want))
        assert np.linalg.norm(one - other) / np.linalg.norm(other) < 1e-3
        counts.append(kernel.products)
    return (counts[0] - counts[1]) / PRODUCT[target.startswith("gfx")]


@pytest.mark.first_of_each("kind")
@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_that_move(kind, target):
    extra = extra_products(kind, target)
    if kind in ("plain", "falling"):
        assert extra == 0
    elif kind == "rising":  # each warp tries once, and then looks for maxima
        assert extra == WARPS[target]
    elif kind == "some":  # row 0 is one warp's
        assert extra == 1
    else:
        assert extra > 0


@pytest.mark.first_of_each("kind")
@pytest.mark.parametrize("kind", ["plain", "rising"])
@pytest.mark.parametrize("window", [None, 20, 90])
def test_rows_without_keys_in_the_first_tile(kind, window):
    """And loops that carry on with each other's references."""
    extra_products(kind, "sm_80", causal=True, window=window, return_lse=window is None)


@pytest.mark.parametrize(
    ("reason", "settings", "warps"),
    [("its rows are those of several warps", {}, 8), ("which no mask ends", {"alibi": True}, 4)],
)
def test_loops_that_look_for_every_maximum(reason, settings, warps):
    program = ops.attention(head_dim=HEAD, dtype="f16", **settings)
    kernel = kernel_of(program, "sm_80", warps=warps)
    assert "neptune.keeps" not in kernel.assigned
    assert any(reason in str(remark) for remark in kernel.remarks)
