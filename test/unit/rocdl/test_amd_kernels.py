# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Distributed kernels for AMD chips on the simulator, against float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir import ops, zoo
from neptune_mlir.codegen.amd.instructions import Amd
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.driver.kernel import Source
from support import ten_operators as ten
from support.chips.run_kernels import Simulated
from support.often import nightly_if


def run(program, target, arguments):
    module, _ = lower_text(Source.of(program).text, "test", target, None, "tile")
    kernel = Simulated(module, target=target)
    return kernel, kernel(*arguments)


def error(got, want):
    return np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)


# test_amd_machine.py executes the same as machine code: of each kind one is simulated by default.
QUICK = {("prefill_causal", "gfx1100"), ("prefill_alibi", "gfx942"), ("decode_gqa", "gfx942")}
TWO = ("gfx942", "gfx1100")


@pytest.mark.parametrize(
    ("name", "target"),
    nightly_if(lambda pair: pair not in QUICK, itertools.product(ops.OPERATORS, TWO)),
)
def test_operator(name, target):
    arguments = ten.inputs(name, 80)
    _, got = run(ten.small(name), target, arguments)
    assert error(got, ten.reference(name, *arguments)) < 5e-4


OTHER_CHIPS = {("gfx950", "bf16"), ("gfx1201", "f16")}


@pytest.mark.parametrize(
    ("target", "dtype"),
    nightly_if(
        lambda pair: pair not in OTHER_CHIPS,
        itertools.product(("gfx90a", "gfx950", "gfx1201"), ("f16", "bf16")),
    ),
)
def test_other_chips(target, dtype):
    arguments = ten.inputs("prefill_causal", 70)
    program = ten.small("prefill_causal", dtype=dtype)
    _, got = run(program, target, arguments)
    want = ten.reference("prefill_causal", *arguments)
    assert error(got, want) < (5e-4 if dtype == "f16" else 5e-3)


def test_instructions_of_either_shape():
    """128 rows are 32 for each of 4 waves; 64 are 16."""
    arguments = ten.inputs("prefill_causal", 130)
    text = Source.of(ten.small("prefill_causal")).text
    for schedule, instruction in ((None, "32x32x8 f16"), ("streamed", "16x16x16 f16")):
        module, _ = lower_text(text, "test", "gfx942", schedule, "tile")
        kernel = Simulated(module, target="gfx942")
        assert instruction in kernel.assigned
        want = ten.reference("prefill_causal", *arguments)
        assert error(kernel(*arguments), want) < 5e-4


def loaded(target):
    """A kernel that nobody runs."""
    text = Source.of(ten.small("prefill_global")).text
    return Simulated(lower_text(text, "test", target, None, "tile")[0], target=target)


def test_probabilities_stay_in_registers():
    """The accumulator of one product is the operand of the next: nothing moves."""
    for target in ("gfx90a", "gfx942", "gfx950", "gfx1201"):
        assert not loaded(target).remarks, target
    kernel = loaded("gfx1100")
    assert "shared memory" not in "".join(map(str, kernel.remarks))
    assert "rocdl.permlanex16" in str(kernel.module)


RNG = np.random.default_rng(1)


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


OTHERS = {
    "f32 attention": lambda: (
        ops.attention(head_dim=32), [array(1, 1, 70, 32) for _ in "qkv"]),
    "softmax": lambda: (ops.softmax(), [array(5, 300)]),
    "layer norm": lambda: (ops.layer_norm(), [array(5, 200), array(200), array(200)]),
    "cross entropy": lambda: (ops.cross_entropy(), [array(5, 100), RNG.integers(0, 100, 5)]),
    "a loss of deep products": lambda: (
        ops.linear_cross_entropy(width=576, dtype="f16"),
        [array(20, 576, dtype=np.float16), array(70, 576, dtype=np.float16),
         RNG.integers(0, 70, 20)]),
    "rms norm matmul": lambda: (
        ops.rms_norm_matmul(), [array(20, 70), array(70), array(70, 40)]),
    "layer norm matmul": lambda: (
        ops.layer_norm_matmul(dtype="f16"),
        [array(20, 70, dtype=np.float16), *(array(70, dtype=np.float16) for _ in "ab"),
         array(70, 40, dtype=np.float16)]),
    "other v dim": lambda: (
        ops.attention(head_dim=32, v_dim=16, dtype="f16"),
        [array(1, 1, 70, 32, dtype=np.float16), array(1, 1, 70, 32, dtype=np.float16),
         array(1, 1, 70, 16, dtype=np.float16)]),
}  # fmt: skip


OTHERS_QUICK = {
    ("f32 attention", "gfx942"), ("cross entropy", "gfx1100"), ("layer norm matmul", "gfx942"),
    ("a loss of deep products", "gfx1100"), ("other v dim", "gfx1100"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "target"),
    nightly_if(lambda pair: pair not in OTHERS_QUICK, itertools.product(OTHERS, TWO)),
)
def test_programs_without_matrix_instructions_too(name, target):
    program, arguments = OTHERS[name]()
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arguments]
    want = program.reference(*wide)
    _, got = run(program, target, arguments)
    several = isinstance(want, tuple)
    for g, w in zip(got if several else [got], want if several else [want], strict=True):
        assert error(g, w) < 2e-3


def test_the_simulator_sees_a_missing_barrier(monkeypatch):
    monkeypatch.setattr(Amd, "barrier", lambda self: None)
    with pytest.raises(AssertionError, match="no barrier before a read"):
        run(ten.small("prefill_global"), "gfx942", ten.inputs("prefill_global", 64))


def test_smaller_tiles_where_memory_is_short():
    """Keys and values of 256 elements: 32 at once fit 64 KiB beside queries in registers (gfx942),
    not beside queries in shared memory (gfx1100)."""
    program = ops.attention(head_dim=256, dtype="f16")
    for target, streamed in (("gfx942", "32x256"), ("gfx1100", "16x256")):
        module, facts = lower_text(Source.of(program).text, "test", target, None, "tile")
        assert f"tensor<{streamed}xf16>" in str(module)
        assert any("smaller tiles" in r for r in facts["remarks"]) == (target == "gfx1100")


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", [example.name for example in zoo.find([])])
def test_the_zoo(name, target):
    (example,) = zoo.find([name])
    program = example.build()
    arguments = [np.asarray(a) for a in example.inputs(np.random.default_rng(0))]
    want = neptune_mlir.compile(program)(*arguments)
    _, got = run(program, target, [a if a.ndim else a.item() for a in arguments])
    several = isinstance(want, tuple)
    for g, w in zip(got if several else [got], want if several else [want], strict=True):
        assert np.allclose(g.astype(np.float64), w, rtol=1e-4, atol=1e-5)
