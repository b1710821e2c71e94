# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMD machine code of this tree's bundles, executed by an emulator (see `emulator.py`).

Registers, local memory, results and workspace begin as NaN, arrays end at a page that nobody may
touch, and waves run up, down and in random turns between barriers. Waits and hazards are not
modelled: these rest on LLVM.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from neptune_mlir import ops, zoo
from neptune_mlir.codegen.amd.instructions import Amd
from neptune_mlir.driver.inputs import bf16_bits
from support import ten_operators as ten
from support.chips.emulator import Emulator, OutOfBounds, compiled, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "found")
CHIPS = ("gfx942", "gfx1100")
ALL_CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
TOLERANCE = {"f32": 1e-6, "f16": 6e-4, "bf16": 5e-3}
HARD = 2e-4  # in f32, of inputs on which the definition in f32 loses digits, too


@pytest.fixture(scope="module")
def emulators(tmp_path_factory):
    """One process for each chip, whatever the order of the tests is."""
    found = {chip: Emulator(chip, tmp_path_factory.mktemp(chip)) for chip in ALL_CHIPS}
    yield found
    for one in found.values():
        one.close()


@pytest.fixture
def emulator(request, emulators):
    return emulators[request.param]


def on(chips):
    return pytest.mark.parametrize("emulator", chips, indirect=True)


def array(*shape, dtype="f32", scale=1.0):
    values = np.random.default_rng(len(shape)).standard_normal(shape) * scale
    if dtype == "bf16":
        return bf16_bits(values)
    return values.astype({"f32": np.float32, "f16": np.float16}[dtype])


def attention(dtype="f16", q_len=97, kv_len=97, heads=1, kv_heads=1, head_dim=64, **options):
    program = ops.attention(
        head_dim=head_dim, dtype=dtype, heads=heads, kv_heads=kv_heads, **options
    )
    return program, [
        array(1, h, n, head_dim, dtype=dtype)
        for h, n in ((heads, q_len), (kv_heads, kv_len), (kv_heads, kv_len))
    ]


def matmul_inputs(dtype, rows, cols, out, vectors):
    """A matrix, `vectors` of its columns, and the matrix that it is multiplied with."""
    return [array(rows, cols, dtype=dtype), *(array(cols, dtype=dtype) for _ in range(vectors)),
            array(cols, out, dtype=dtype, scale=cols**-0.5)]  # fmt: skip


def labels(rows, classes):
    return np.random.default_rng(0).integers(0, classes, rows)


# by name: the element type, the program and its inputs
PROGRAMS = {
    "attention": ("f16", lambda: attention(causal=True, heads=2, kv_heads=1, kv_len=131)),
    "decode": ("f16", lambda: (
        ten.small("decode_gqa", head_dim=64), ten.inputs("decode_gqa", 133, 64))),
    "rms norm matmul": ("f16", lambda: (
        ops.rms_norm_matmul(dtype="f16"), matmul_inputs("f16", 70, 136, 72, 1))),
    "softmax": ("f32", lambda: (ops.softmax(), [array(21, 301)])),
}  # fmt: skip

MORE = {
    "attention bf16": ("bf16", lambda: attention("bf16", causal=True, q_len=133, kv_len=133)),
    "attention f32": ("f32", lambda: attention("f32", causal=True, q_len=70, kv_len=70)),
    "attention f32 128": ("f32", lambda: attention("f32", head_dim=128, q_len=66, kv_len=66)),
    "attention 32": ("f16", lambda: attention(head_dim=32, q_len=64, kv_len=65)),
    "attention 96": ("f16", lambda: attention(head_dim=96, causal=True)),
    "attention 256": ("bf16", lambda: attention("bf16", head_dim=256, q_len=70, kv_len=70)),
    "attention with log-sum-exp": ("f16", lambda: attention(causal=True, return_lse=True)),
    "rows that see no key": ("f16", lambda: attention(causal=True, q_len=101, kv_len=37)),
    "one tile": ("f16", lambda: attention(q_len=64, kv_len=64)),
    "one query": ("f16", lambda: attention(q_len=1, kv_len=31)),
    "rms norm matmul f32": ("f32", lambda: (
        ops.rms_norm_matmul(), matmul_inputs("f32", 35, 67, 41, 1))),
    "rms norm matmul bf16": ("bf16", lambda: (
        ops.rms_norm_matmul(dtype="bf16"), matmul_inputs("bf16", 70, 136, 72, 1))),
    "layer norm matmul": ("f16", lambda: (
        ops.layer_norm_matmul(dtype="f16"), matmul_inputs("f16", 66, 128, 88, 2))),
    "absmax matmul": ("f16", lambda: (
        ops.absmax_matmul(dtype="f16"), matmul_inputs("f16", 40, 96, 80, 0))),
    "layer norm f16": ("f16", lambda: (
        ops.layer_norm(dtype="f16"),
        [array(19, 320, dtype="f16"), *(array(320, dtype="f16") for _ in "wb")])),
    "softmax bf16": ("bf16", lambda: (ops.softmax(dtype="bf16"), [array(21, 203, dtype="bf16")])),
    "softmax weighted sum": ("f16", lambda: (
        ops.softmax_weighted_sum(width=64, dtype="f16"),
        [array(45, 99, dtype="f16"), array(99, 64, dtype="f16")])),
    "linear cross entropy": ("f16", lambda: (
        ops.linear_cross_entropy(width=64, dtype="f16"),
        [array(50, 64, dtype="f16"), array(150, 64, dtype="f16"), labels(50, 150)])),
}  # fmt: skip


def check(emulator, program, inputs, tolerance, strided=False):
    for run in emulator.check(program, inputs, strided=strided):
        assert max(run.errors) < tolerance, run
        assert run.instructions > 0


@on(CHIPS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(emulator, name):
    dtype, make = PROGRAMS[name]
    check(emulator, *make(), TOLERANCE[dtype])


@on(["gfx1100"])
def test_rows_apart(emulator):
    """Strides are those of the arrays; what is between rows is neither read nor written."""
    check(emulator, *PROGRAMS["softmax"][1](), TOLERANCE["f32"], strided=True)


@on(["gfx942"])
def test_missing_barriers_are_seen(emulator, monkeypatch):
    program, inputs = PROGRAMS["attention"][1]()
    monkeypatch.setattr(Amd, "barrier", lambda self: None)
    runs = emulator.compare(compiled(program, emulator.chip), program, inputs)
    assert max(max(run.errors) for run in runs) > 0.02


@on(["gfx1100"])
def test_an_access_past_the_end_is_seen(emulator):
    program, inputs = PROGRAMS["softmax"][1]()
    bundle = compiled(program, emulator.chip)
    with pytest.raises(OutOfBounds):
        emulator.results(bundle, inputs, "up", short=1)


@functools.cache
def softmax_of(chip):
    return compiled(ops.softmax(), chip)


def softmax_errors(emulator, x):
    (run,) = emulator.compare(softmax_of(emulator.chip), ops.softmax(), [x], orders=("up",))
    return run.errors


@on(CHIPS)
@pytest.mark.parametrize("offset", [1e3, 1e4, 1e5, 1e6])
def test_softmax_far_from_zero(emulator, offset):
    assert max(softmax_errors(emulator, array(8, 600) + np.float32(offset))) < TOLERANCE["f32"]


def masked(hidden):
    return np.where(hidden, np.finfo(np.float32).min, array(8, 600))


@on(CHIPS)
def test_elements_masked_with_the_smallest_float(emulator):
    hidden = np.random.default_rng(5).random((8, 600)) < 0.5
    assert max(softmax_errors(emulator, masked(hidden))) < TOLERANCE["f32"]


@on(CHIPS)
@pytest.mark.parametrize("hidden", ["first tiles", "whole rows"])
def test_tiles_masked_with_the_smallest_float(emulator, hidden):
    """A row whose maximum is the smallest float, at first or to the end."""
    where = np.arange(600)[None] < 500 if hidden == "first tiles" else np.arange(8)[:, None] < 4
    assert max(softmax_errors(emulator, masked(where))) < TOLERANCE["f32"]


@pytest.mark.nightly
@on(ALL_CHIPS)
@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_every_program(emulator, name):
    dtype, make = (PROGRAMS | MORE)[name]
    check(emulator, *make(), TOLERANCE[dtype])
    check(emulator, *make(), TOLERANCE[dtype], strided=True)


@pytest.mark.nightly
@on(ALL_CHIPS)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("name", ops.OPERATORS)
def test_every_operator(emulator, name, head_dim):
    program = ten.small(name, head_dim=head_dim)
    bundle = compiled(program, emulator.chip)
    for length in (64, 97, 131, 200):
        for run in emulator.compare(bundle, program, ten.inputs(name, length, head_dim, seed=1)):
            assert max(run.errors) < TOLERANCE["f16"], (length, run)


@pytest.mark.nightly
@on(ALL_CHIPS)
@pytest.mark.parametrize("example", zoo.ZOO, ids=lambda e: e.name)
def test_zoo(emulator, example):
    for inputs, tolerance in ((example.inputs, TOLERANCE["f32"]), (example.hard, HARD)):
        if inputs:
            arrays = list(inputs(np.random.default_rng(0)))
            check(emulator, example.build(), arrays, tolerance)


@pytest.mark.nightly
@on(ALL_CHIPS)
def test_each_missing_barrier_is_seen(emulator, monkeypatch):
    """By one order of waves at least: none of the three sees all of them. The keys are so many that
    each loop over them, with a mask and without, takes several tiles."""
    program, inputs = attention(causal=True, q_len=130, kv_len=400)
    whole, real = compiled(program, emulator.chip).code, Amd.barrier
    counter, skipped, seen = itertools.count(), 0, 0

    def barrier(self):
        if next(counter) != skipped:
            real(self)

    monkeypatch.setattr(Amd, "barrier", barrier)
    while True:
        bundle = compiled(program, emulator.chip)
        if next(counter) <= skipped:  # that many barriers were made, over all candidates
            break
        if bundle.code != whole:  # else the candidate was not taken
            runs = emulator.compare(bundle, program, inputs)
            assert max(max(run.errors) for run in runs) > 3 * TOLERANCE["f16"], skipped
            seen += 1
        counter, skipped = itertools.count(), skipped + 1
    assert seen >= 2
