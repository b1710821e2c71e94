# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of whole chunks of 16 bytes whose length only a call knows: right on the simulators, by 16
bytes at a time and by the copy engine, where tiles end beyond rows, columns and sums."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from support.chips.run_kernels import Simulated, Variant
from support.variants import Variants

PROGRAMS = {
    name: getattr(ops, name)(dtype="f16")
    for name in ("softmax", "rms_norm", "cross_entropy", "rms_norm_matmul", "layer_norm_matmul")
}


@cache
def lowered(name):
    """The tile program for rows of whole chunks, its condition, and its variants by knob."""
    raised, when = RaisedProgram(PROGRAMS[name].to_mlir(), name).of_chunks()
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
    return Variants(raised, base, "sm_90a"), when


@cache
def kernel(name, knob=""):
    module = lowered(name)[0][knob].copy().module
    special = "neptune.consumers" in str(module)
    return (Variant(module) if special else Simulated(module, target="sm_90a")), special


def f16(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float16)


def close(name, knob, *given):
    found = kernel(name, knob)[0](*given)
    wide = [x if x.dtype == np.int64 else x.astype(float) for x in given]
    wanted = PROGRAMS[name].reference(*wide)
    assert np.linalg.norm(found - wanted) <= 2e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize(("knob", "length"), [("", 8), ("", 264), ("length:513", 1032)])
def test_rows(knob, length):
    rows = 5
    close("softmax", knob, f16(rows, length))
    close("rms_norm", knob, f16(rows, length), f16(length))
    close("cross_entropy", "", f16(rows, length), np.arange(rows, dtype=np.int64))


@pytest.mark.parametrize("length", [72, 104, 128])
def test_a_maximum_and_its_sum_have_one_mask(length):
    close("cross_entropy", "most:128", f16(3, length), np.array([0, length - 1, length]) % length)
    text = str(kernel("cross_entropy", "most:128")[0].module)
    assert len(re.findall("select.*: f32", text)) <= 32 + 16  # what is one a row, too


@pytest.mark.parametrize(("length", "most", "rows"), [(584, 768, 2), (1000, 1024, 2)])
def test_a_warp_has_a_row_that_is_read_once(length, most, rows):
    """All of it at once, whatever the length, and it leaves nothing in the first-level cache."""
    close("cross_entropy", f"most:{most}", f16(5, length), np.arange(5, dtype=np.int64))
    run = kernel("cross_entropy", f"most:{most}")[0]
    (launch,) = run.plan.launches
    assert evaluate(launch.grid[0], [(5, length), (5,)], ()) == -(-5 // rows)
    assert "scf.for " not in run.assigned and "barrier" not in str(run.module)
    assert re.findall(r"ld\.global[.:\w]*v4", str(run.module))[0] == "ld.global.L1::no_allocate.v4"


def test_rows_move_sixteen_bytes_at_a_time():
    text = nvvm.emit_tiles(
        lowered("softmax")[0]["length:513"].copy().module, "ptx", target="sm_90a"
    )
    loads = [line for line in text.splitlines() if "ld.global" in line]
    stores = [line for line in text.splitlines() if "st.global" in line]
    assert loads and all("v4.b32" in line for line in loads)
    assert stores and all("v4.b32" in line for line in stores)


def test_which_calls_have_rows_of_whole_chunks():
    _, when = lowered("rms_norm_matmul")
    for inner, out, whole in ((64, 24, True), (64, 20, False), (60, 24, False)):
        assert bool(evaluate(when, [(3, inner), (inner,), (inner, out)], ())) == whole
    attention = ops.attention(head_dim=64, dtype="f16", alibi=True)
    assert RaisedProgram(attention.to_mlir(), "attention").of_chunks() is None  # nothing to assume


@pytest.mark.parametrize(
    ("name", "knob", "rows"),
    [
        ("rms_norm_matmul", "", 130), ("layer_norm_matmul", "", 70),
        ("rms_norm_matmul", "product_rows:128;product_columns:192", 130),
        ("rms_norm_matmul", "rows:16", 5),
        *(pytest.param(*more, marks=pytest.mark.nightly) for more in (
            ("rms_norm_matmul", "product_rows:64;product_columns:64", 70),
            ("layer_norm_matmul", "product_rows:64;product_columns:128", 70),
            ("layer_norm_matmul", "product_rows:128;product_columns:128", 70),
            ("rms_norm_matmul", "rows:64", 70), ("layer_norm_matmul", "rows:64", 70),
            ("layer_norm_matmul", "rows:16", 5),
        )),
    ],
)  # fmt: skip
def test_products(name, knob, rows):
    """Extents that end within a tile, and within a panel, along all axes."""
    inner, out = 136, 328
    vectors = [f16(inner)] * (2 if name.startswith("layer") else 1)
    close(name, knob, f16(rows, inner), *vectors, f16(inner, out))
    assert kernel(name, knob)[1] == (knob != "rows:16")  # warps are specialised


@pytest.mark.parametrize(("length", "tile"), [(136, 1024), (1032, 2048), (4104, 0)])
def test_rows_beside_products_have_kernels_by_their_length(length, tile):
    """One of them runs; up to a length its tile has all of a row."""
    rows, out = 3, 8
    close("layer_norm_matmul", "rows:16", f16(rows, length), *[f16(length)] * 2, f16(length, out))
    run = kernel("layer_norm_matmul", "rows:16")[0]
    shapes = [(rows, length), (length,), (length,), (length, out)]
    norms = {
        launch.kernel: evaluate(launch.grid[0], shapes, ())
        for launch in run.plan.launches if "matmul_0" in launch.kernel
    }  # fmt: skip
    name = "layer_norm_matmul_0" + (f"_{tile}" if tile else "")
    assert len(norms) == 4 and {k: n for k, n in norms.items() if n} == {name: rows}
