# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose columns are reduced to numbers of each row: where tiles of rows leave
multiprocessors idle, columns are cut into chunks of tiles as large, for warp groups."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.frontend import notation as N
from neptune_mlir.pipelines import gpu, nvvm
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from support.chips.run_kernels import Variant

CHIP = "sm_90a"


def distances(width, rows=None):
    """The logarithm of a sum over all columns, and the greatest of them."""
    p = N.Program("distances")
    i, j, k = p.axis("i", rows), p.axis("j"), p.axis("k", width)
    x, w = p.input("x", i, k, dtype="f16"), p.input("w", j, k, dtype="f16")
    s = N.sum(x[i, k] * w[j, k], k) * 0.25
    m = N.max(s, j)
    p.output(m + N.log(N.sum(N.exp(s - m), j)), i, dtype="f32")
    p.output(m, i, dtype="f32")
    return p


PROGRAMS = {
    "classes": lambda: ops.linear_cross_entropy(width=64, dtype="f16"),
    "known classes": lambda: ops.linear_cross_entropy(width=256, classes=32000, dtype="f16"),
    "distances": lambda: distances(128),
    "2000": lambda: distances(128, 2000),
    "16384": lambda: distances(128, 16384),
    "deep": lambda: ops.linear_cross_entropy(width=1024, dtype="f16"),
}


@cache
def images(name):
    """The schedule for any call, and for some calls the knob, the condition, and the program."""
    raised = RaisedProgram(PROGRAMS[name]().to_mlir(), name)
    base = next(raised.lowerings(CHIP, nvvm.ways(CHIP)))
    conditions = Conditions(gpu.sketch(base.copy().module, CHIP, None))
    found = []
    for case, variant in raised.variants(base, str(base.module), CHIP):
        when = conditions.of(case, gpu.sketch(variant.copy().module, CHIP, None))
        found.append((case, when, variant))
    return base.facts["schedule"], found


def taken(name, rows, columns, depth):
    """Rows of a tile in chunks, for a call on 132 multiprocessors; 0: it is not cut."""
    shapes = [(rows, depth), (columns, depth), (rows,)]
    serve = [case for case, when, _ in images(name)[1]
             if when is not None and evaluate(when, shapes, (), 132)]  # fmt: skip
    return serve[-1].rows if serve and serve[-1].cuts else 0


@pytest.mark.parametrize(("name", "depth"), [
    ("classes", 64), ("known classes", 256), ("distances", 128),
])  # fmt: skip
@pytest.mark.parametrize(("rows", "tile"), [
    (16, 16), (64, 64), (100, 128), (2000, 128), (6912, 128),
    (12800, 128),  # 100 programs
    (16384, 0),  # 128 programs keep all multiprocessors but 4 busy
    (17024, 128),  # a second round of one program
    (33792, 0),
])  # fmt: skip
def test_chunks_by_how_many_tiles_of_rows_there_are(name, depth, rows, tile):
    assert taken(name, rows, 32000, depth) == tile


@pytest.mark.parametrize(("rows", "tile"), [(2000, 128), (16384, 0)])
def test_rows_that_the_program_knows(rows, tile):
    assert taken(str(rows), rows, 32000, 128) == tile


def test_short_streams_have_nothing_to_join():
    assert taken("classes", 1000, 128, 64) == 0


def test_programs_for_each_tile_have_no_other_chunks_of_many_rows():
    schedule, found = images("deep")
    assert schedule == "apart"
    assert not [case for case, *_ in found if case.cuts and case.rows > 16]


@pytest.mark.parametrize("name", ["classes", "distances"])
def test_large_tiles_in_chunks_are_right(name):
    (variant,) = (v for case, _, v in images(name)[1] if case.cuts and case.rows == 128)
    assert "neptune.consumers" in str(variant.module)
    rng = np.random.default_rng(3)
    rows, columns, depth = 150, 700, {"classes": 64, "distances": 128}[name]
    x, w = (rng.standard_normal((n, depth)).astype(np.float16) for n in (rows, columns))
    w[5] *= 40  # far larger than all before and behind, in one of the chunks
    more = [rng.integers(0, columns, rows)] if name == "classes" else []
    kernel = Variant(variant.copy().module)
    found = kernel(x, w, *more)
    wanted = PROGRAMS[name]().reference(x.astype(float), w.astype(float), *more)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for ours, right in pairs:
        assert np.linalg.norm(ours - right) <= 1e-5 * np.linalg.norm(right)
    assert evaluate(kernel.plan.launches[0].grid[0], [x.shape, w.shape], (), 132) > 1
