# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results in the memory of arguments: which may be, and that they are right there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import quad_rows
from neptune_mlir.frontend.gradient.added import adding
from neptune_mlir.frontend.notation import Program, sum
from neptune_mlir.runtime.memory import Sizes
from neptune_mlir.targets.tuned import Choice
from support.chips.run_kernels import Specialised

ROWS, WIDTH, CLASSES = 20, 136, 72


def in_place(plan, pairs):
    """A plan whose results are in the memory of arguments."""
    moved = {tuple(plan.results[n]): ["argument", k] for n, k in pairs}

    def place(operand):
        if operand[0] == "map":
            here = moved.get((operand[1], operand[2]), operand[1:3])
            return ["map", *here, *operand[3:]]
        return moved.get(tuple(operand), operand) if operand[0] == "buffer" else operand

    launches = [replace(x, operands=tuple(map(place, x.operands))) for x in plan.launches]
    results = [moved.get(tuple(r), r) for r in plan.results]
    return replace(plan, launches=tuple(launches), results=tuple(results))


def test_a_gradient_in_parts():
    """What there is of a sum is far larger than what is added: half of the digits are in the rest,
    which an f32 that is rounded and widened again has to have."""
    forward, backward = neptune.vjp(
        ops.linear_cross_entropy(width=WIDTH, classes=CLASSES, dtype="f16")
    )
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((n, WIDTH)).astype(np.float16) for n in (ROWS, CLASSES))
    w *= np.float16(WIDTH**-0.5)
    target = rng.integers(0, CLASSES, ROWS)
    _, lse = forward.reference(x.astype(float), w.astype(float), target)
    d_out = rng.standard_normal(ROWS).astype(np.float32)
    arrays = [x, w, target, lse.astype(np.float32), d_out]
    part = backward.reference(*(a.astype(float) if a.dtype.kind == "f" else a for a in arrays))[0]
    there = (100 * rng.standard_normal((ROWS, WIDTH))).astype(np.float16)
    rest = (0.01 * rng.standard_normal((ROWS, WIDTH))).astype(np.float16)

    kernel = Specialised(adding(backward, "d_x"), Choice(128, 64, resident=False))
    pairs = ((0, 5), (1, 6))
    assert {*pairs} <= {*kernel.plan.in_place}
    kernel.plan = in_place(kernel.plan, pairs)
    total, small, _ = kernel(*arrays, there, rest)
    more = total.astype(float) + small - there.astype(float) - rest
    assert np.abs(more - part).max() < 2e-3 * np.abs(part).max() + 2**-5 * 2**-11


def test_a_gradient_over_its_logits():
    forward, backward = neptune.vjp(ops.cross_entropy(classes=CLASSES, dtype="f16"), wrt=["x"])
    rng = np.random.default_rng(2)
    x = rng.standard_normal((ROWS, CLASSES)).astype(np.float16)
    target = rng.integers(-3, CLASSES, ROWS)
    _, lse = forward.reference(x.astype(float), target)
    arrays = [x, target, lse.astype(np.float32), rng.standard_normal(ROWS).astype(np.float32)]
    wanted = backward.reference(*(a.astype(float) if a.dtype.kind == "f" else a for a in arrays))

    kernel = Specialised(backward)
    assert (0, 0) in kernel.plan.in_place
    kernel.plan = in_place(kernel.plan, [(0, 0)])
    found = kernel(*arrays)
    assert found.shape == wanted.shape == (ROWS, CLASSES)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-4)


def product(read, dtype="f32", rows=256):
    """o[i, j] = a(i, j) + x w, where `read` says what of a is read."""
    p = Program("product")
    i, j, k = p.axis("i", rows), p.axis("j", 256), p.axis("k", 64)
    x, w = p.input("x", i, k, dtype="f16"), p.input("w", k, j, dtype="f16")
    a = p.input("a", i, j, dtype=dtype)
    p.output(sum(x[i, k] * w[k, j], k) + read(a, i, j), i, j, dtype="f32")
    return p


@pytest.mark.parametrize(
    ("read", "dtype", "wanted"),
    [
        (lambda a, i, j: a[i, j], "f32", ((0, 2),)),
        (lambda a, i, j: a[i, 0], "f32", ()),  # by all columns
        (lambda a, i, j: a[i, j] + a[j, i], "f32", ()),
        (lambda a, i, j: a[i, j], "f16", ()),  # of another type
    ],
    ids=["the same", "a column", "another tile", "other type"],
)
def test_which_may_be(read, dtype, wanted):
    assert Specialised(product(read, dtype)).plan.in_place == wanted


@pytest.mark.parametrize(("dtype", "rows"), [("f16", 200), ("f32", 256)])
def test_what_is_added_comes_in_chunks(dtype, rows, monkeypatch):
    """Lanes of a quad give each other what they load for them; rows that are not there are none."""
    taken = []
    spread = quad_rows._spread
    monkeypatch.setattr(quad_rows, "_spread", lambda *a: taken.append(1) or spread(*a))
    kernel = Specialised(product(lambda a, i, j: a[i, j], dtype, rows))
    assert len(taken) == {"f16": 16, "f32": 32}[dtype]  # of a thread, 16 bytes each
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(n).astype(np.float16) for n in ((rows, 64), (64, 256)))
    a = rng.standard_normal((rows, 256)).astype({"f16": np.float16, "f32": np.float32}[dtype])
    wanted = x.astype(float) @ w.astype(float) + a
    assert np.abs(kernel(x, w, a) - wanted).max() < 1e-4


@pytest.mark.nightly
def test_an_even_number_of_programs_in_pairs_may():
    """Of an odd number two blocks run the last one, and both would add."""
    p = Program("linear")
    i, j, d = p.axis("i"), p.axis("j"), p.axis("d", 1024)
    x, w = p.input("x", i, d, dtype="f16"), p.input("w", j, d, dtype="f16")
    p.output(sum(x[i, d] * w[j, d], d), i, j, dtype="f16", name="y")
    program = adding(neptune.vjp(p, wrt=["x"])[1], "d_x")
    kernel = neptune.compile(program, target="sm_90a", knobs={"pairs": 2})
    plans = {
        any(k.get("cluster") for k in image["kernels"].values()): kernel.bundle.plan_of(image)
        for image in kernel.facts["images"]
    }
    for paired, plan in plans.items():
        for rows in (256, 257, 300):  # programs of 128
            shapes = [(rows, 640), (640, 1024), (rows, 1024), (rows, 1024)]
            found = Sizes(plan, shapes, [None] * 4, 132).requirements.in_place
            assert bool(found) == (not paired or -(-rows // 128) % 2 == 0), (paired, rows)
