# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of maps: read along one axis and written along another, read at quotients, unit axes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation
from neptune_mlir.runtime.arrays import storage_dtype
from neptune_mlir.transforms.schedule import product_axes
from support.chips.run_kernels import Simulated


def transposed(rows, columns, dtype):
    p = notation.Program("transposed")
    i, j = p.axis("i", rows), p.axis("j", columns)
    x = p.input("x", i, j, dtype=dtype)
    p.output(x[i, j] * 2.0, j, i, dtype=dtype)
    return p


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 8), ("f16", 16)])
@pytest.mark.parametrize(("rows", "columns"), [(128, 192), (70, 67)])
def test_lanes_share_sectors_of_both_sides(rows, columns, dtype, lanes):
    text = transposed(rows, columns, dtype).to_mlir()
    module, _ = compiler.lower_text(text, "test", "sm_90a", None, "tile", "")
    kernel = Simulated(module, target="sm_90a")
    # rows are loaded along loop 1, and stored along loop 0
    assert re.search(rf"iteration = .*lane\[0:\d+\*\d+ 1:{lanes}\*1\]", kernel.assigned)
    x = np.random.default_rng(5).standard_normal((rows, columns))
    x = x.astype(dtype.replace("f", "float"))
    assert np.array_equal(kernel(x), 2 * x.T)


def test_a_factor_that_no_instruction_takes_is_copied():
    p = notation.Program("product")
    i, j, k = p.axis("i", 2048), p.axis("j", 1024), p.axis("k", 512)
    x, w = p.input("x", k, i, dtype="f32"), p.input("w", k, j, dtype="f32")
    p.output(notation.sum(x[k, i] * w[k, j], k), i, j, dtype="f32")
    text = compiler.with_options(Source.of(p).text, "product", precision="tf32")
    module, facts = compiler.lower_text(text, "product", "sm_90a", None, "fused", "")
    assert "is copied, transposed, ahead of its product" in str(facts["remarks"])
    copy = next(line for line in str(module).splitlines() if '"neptune.map"' in line)
    assert copy  # the smaller factor, its sum along rows
    assert "tensor<1024x512xf32>" in str(module)


@pytest.mark.parametrize(("columns", "group"), [(512, 128), (96, 16), (60, 12)])
def test_a_tile_lies_within_a_quotient(columns, group):
    """What a group norm does last: a row of threads takes neighbours of one group."""
    p = notation.Program("shifted")
    i, j, g = p.axis("i", 40), p.axis("j", columns), p.axis("g", columns // group)
    x, m = p.input("x", i, j, dtype="f32"), p.input("m", i, g, dtype="f32")
    p.output(x[i, j] - m[i, j // group], i, j, dtype="f32")
    module, _ = compiler.lower_text(p.to_mlir(), "test", "sm_90a", None, "tile", "")
    kernel = Simulated(module, target="sm_90a")
    assert np.prod(kernel.plan.launches[0].grid) <= columns // group * 3
    rng = np.random.default_rng(5)
    x, m = (rng.standard_normal((40, n)).astype(np.float32) for n in (columns, columns // group))
    assert np.array_equal(kernel(x, m), x - np.repeat(m, group, 1))


def test_axes_of_one_point_are_no_rows():
    p = notation.Program("spread")
    b, i, j, c = p.axis("b", 1), p.axis("i", 200), p.axis("j", 300), p.axis("c", 1)
    x, y = p.input("x", i, dtype="f32"), p.input("y", j, dtype="f32")
    p.output(x[i] + y[j], b, i, j, c, dtype="f32")
    module, _ = compiler.lower_text(p.to_mlir(), "test", "sm_90a", None, "tile", "")
    kernel = Simulated(module, target="sm_90a")
    assert np.prod(kernel.plan.launches[0].grid) <= 26
    x, y = np.arange(200, dtype=np.float32), np.arange(300, dtype=np.float32)
    assert np.array_equal(kernel(x, y)[0, :, :, 0], x[:, None] + y)


@pytest.mark.parametrize(("dtype", "rows"), [("f32", 16), ("bf16", 16), ("f32", 15)])
def test_rows_by_a_vector_share_it(dtype, rows, monkeypatch):
    """No tile of a matrix instruction: a row, or two of them of f32, and the vector."""
    monkeypatch.setattr(product_axes, "MULTIPROCESSORS", 1)
    p = notation.Program("by_vector")
    i, k = p.axis("i", rows), p.axis("k", 2500)
    x, v = p.input("x", i, k, dtype=dtype), p.input("v", k, dtype=dtype)
    p.output(notation.sum(x[i, k] * v[k], k) * 2.0, i, dtype="f32")
    module, _ = compiler.lower_text(p.to_mlir(), "test", "sm_90a", None, "tile", "")
    kernel = Simulated(module, target="sm_90a")
    programs = kernel.plan.launches[0].grid
    if dtype == "f32":
        assert programs[-1] == (8 if rows == 16 else 15)  # of each chunk
    rng = np.random.default_rng(5)
    x, v = rng.standard_normal((rows, 2500)), rng.standard_normal(2500)
    x, v = (a.astype(storage_dtype(dtype)) for a in (x, v))
    exact = [a.astype(np.float64) for a in (x, v)]
    found = kernel(x, v)
    assert np.abs(found - 2 * exact[0] @ exact[1]).max() < 1e-3
