# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that hold something for each score, on specialised warps: their tiles come by the copy
engine where rows are aligned, and through the threads that compute elsewhere."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.cases import ALIGNED
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.zoo import relative_error
from support.chips.run_kernels import Specialised

DIM = 64


def biased(dims="h q kv", dtype="f16", **options):
    """Attention of two heads whose scores get an element of a tensor each."""
    size = len(dims.split())

    def score_mod(score, b, h, q, kv, bias):
        return score + bias[(b, h, q, kv)[4 - size :]]

    return ops.attention(
        head_dim=DIM, heads=2, kv_heads=2, dtype=dtype, score_mod=score_mod,
        inputs={"bias": ops.Extra(dims, dtype)}, **options,
    )  # fmt: skip


PROGRAMS = {
    "global": lambda: biased(),
    "causal": lambda: biased(causal=True),
    "batches": lambda: biased("b h q kv"),
}


@cache
def kernel(name):
    return Specialised(PROGRAMS[name](), knobs=ALIGNED)


def f16(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


@pytest.mark.first_of_each()
@pytest.mark.parametrize(
    "name, queries, keys", [("global", 150, 200), ("causal", 130, 136), ("batches", 40, 264)]
)
def test_right(name, queries, keys):
    """Tiles that end in the middle of a box, and rows of another number of elements; a bias that
    moves the reference of some rows by much."""
    made = kernel(name)
    (launch,) = made.plan.launches
    assert any(operand[:3] == ["map", "argument", 3] for operand in launch.operands)
    q, k, v = f16(1, 2, queries, DIM), f16(1, 2, keys, DIM), f16(1, 2, keys, DIM)[..., ::-1]
    bias = 4 * f16(*([1] if name == "batches" else []), 2, queries, keys)
    bias[..., 3, 100:] += 60
    arrays = q, k, np.ascontiguousarray(v), bias
    assert relative_error(made(*arrays), PROGRAMS[name]().reference(*arrays)) < 1e-3


def test_which_calls_have_such_kernels():
    """Those with aligned rows, for any number of rows; streams in chunks go without."""
    raised = RaisedProgram(biased().to_mlir(), "biased")
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
    cases = [(case, str(made.module)) for case, made in raised.variants(base, "", "sm_90a")]
    assert "boxes" not in str(base.module)
    found = {case.knob for case, text in cases if "boxes = 2" in text}
    assert ALIGNED in found and any(knob.startswith("few:") for knob in found)
    assert all(ALIGNED in knob for knob in found)


def test_rows_that_the_program_knows():
    """No call has to be asked where the length of rows is a multiple of 16 bytes; odd ones come
    through the threads."""
    for keys, boxes in ((520, True), (521, False)):
        raised = RaisedProgram(biased(kv_len=keys).to_mlir(), "biased")
        base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")))
        assert ("boxes = 1" in str(base.module)) == boxes
        assert not base.alignable


def test_a_tile_that_is_loaded_once():
    """The gradient of a bias that all batches share reads a tile of it for all of them: it is there
    before the program begins."""
    forward, backward = neptune.vjp(biased(), wrt=("bias",))
    made = Specialised(backward, knobs=ALIGNED)
    bias = ["map", "argument", list(backward.inputs).index("bias")]
    assert any(list(x[:3]) == bias for x in made.plan.launches[-1].operands)
    rows, keys = 72, 136
    q, k, v, d_out = (f16(2, 2, n, DIM) for n in (rows, keys, keys, rows))
    bias = f16(2, rows, keys)
    out, lse = forward.reference(*(x.astype(float) for x in (q, k, v, bias)))
    given = {"q": q, "k": k, "v": v, "bias": bias, "out0": out.astype(np.float16),
             "saved0": lse.astype(np.float32), "d_out0": d_out}  # fmt: skip
    arrays = [given[n] for n in backward.inputs]
    wanted = backward.reference(*(x.astype(float) for x in arrays))
    assert relative_error(made(*arrays), wanted) < 2e-3
