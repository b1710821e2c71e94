# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 by pairs: AMX, the chip's own where it has it, and `vdpbf16ps`, else emulated in
LLVM IR."""

import dataclasses
from contextlib import contextmanager

import ml_dtypes
import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.codegen.cpu import native
from neptune_mlir.codegen.cpu.pairs import tile_pairs
from neptune_mlir.driver.inputs import bf16_bits
from neptune_mlir.frontend.notation import Program, cast, exp, sum
from neptune_mlir.pipelines import cpu
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets.cpu import CpuTarget, host
from support.pair_instructions import emulated


@contextmanager
def compiling_for(how, folder):
    """Compile for a chip with these instructions; gives the texts that were compiled."""
    ranks = ("none", "dots", "tiles")
    real = how == "tiles" and ranks.index(host().pairs) == 2
    wide = dataclasses.replace(host(), vector_bits=512, vector_registers=32)
    made = []
    compiled = native.object_code

    def object_code(text, target, **options):
        made.append(text)
        return compiled(text if real else emulated(text), target, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuTarget, "pairs", how)
        patch.setattr(cpu, "host", lambda: wide)
        patch.setenv("NEPTUNE_CACHE_DIR", str(folder))
        patch.setattr(native, "object_code", object_code)
        if not real:
            patch.setenv("NEPTUNE_NUM_THREADS", "1")
        yield made


@pytest.fixture(scope="module", params=["dots", "tiles"])
def kernel(request, tmp_path_factory):
    with compiling_for(request.param, tmp_path_factory.mktemp("cache")) as made:
        found = neptune.compile(ops.attention(head_dim=64, dtype="bf16"))
        run(found, *(np.zeros((1, 1, 160, 64), np.uint16) for _ in range(3)))
        name = {"dots": "dpbf16ps.512", "tiles": "tdpbf16ps"}[request.param]
        assert any(name in text for text in made)
        yield found


def rounded(values):
    return bf16_bits(np.asarray(values, np.float32))


def wide(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def attention(q, k, v, causal, slope=0):
    """In f64, of bf16 numbers as bits."""
    q, k, v = map(wide, (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    rows, columns = s.shape[-2:]
    s += slope * (np.arange(columns) - (columns - rows) - np.arange(rows)[:, None])
    if causal:
        seen = np.tri(rows, columns, columns - rows, dtype=bool)
        s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def run(kernel, *arrays, more=()):
    made = kernel(*(x.view(ml_dtypes.bfloat16) for x in arrays), *more)
    return wide(np.asarray(made).view(np.uint16))


def close(kernel, queries, keys, causal, width=64, slope=None):
    random = np.random.default_rng(queries)
    q, k, v = (rounded(random.standard_normal((1, 2, n, width))) for n in (queries, keys, keys))
    more = () if slope is None else (np.full(2, slope, np.float32),)
    wanted = attention(q, k, v, causal, slope or 0)
    return np.abs(run(kernel, q, k, v, more=more) - wanted).max() < 0.02


def test_attention(kernel):
    """Queries and keys that end within tiles."""
    assert all(close(kernel, *shape, False) for shape in ((150, 150), (128, 256), (40, 131)))


def leave_out_f32(monkeypatch):
    """Without the code for what pairs cannot multiply: a product that takes it is wrong."""
    multiply = tile_pairs.PairProducts.multiply
    monkeypatch.setattr(
        tile_pairs.PairProducts, "multiply",
        lambda self, c, start, scratch, otherwise: multiply(
            self, c, start, scratch, lambda **_: None
        ),
    )  # fmt: skip


def test_no_number_needs_f32(tmp_path, monkeypatch):
    """Neither ordinary numbers nor small weights take the code for others. Zeros fill sums of 80
    products."""
    leave_out_f32(monkeypatch)
    with compiling_for("tiles", tmp_path):
        program = ops.attention(head_dim=80, dtype="bf16", causal=True, alibi=True)
        kernel = neptune.compile(program)
        for slope in (0, 2):  # with weights down to the least numbers of f32
            assert close(kernel, 150, 150, True, 80, slope)
            assert close(kernel, 40, 131, True, 80, slope)


# what q, k and v are multiplied by, so that one is denormal; and weights of 1 and e^-88
DENORMAL = {"v": (1, 1, 2.0**-127), "q": (2.0**-127, 2.0**125, 1), "p": None}


def test_left_factor_whose_rows_are_summed_over(tmp_path, monkeypatch):
    """As of a backward pass: p^T g is no product in f32. Rows of p that do not exist hold
    anything."""
    leave_out_f32(monkeypatch)
    p = Program("weighted")
    i, j, d, e = p.axes("i j d e", d=32, e=32)
    x, y, g = (p.input(name, *axes, dtype="bf16")
               for name, axes in (("x", (i, d)), ("y", (j, d)), ("g", (i, e))))  # fmt: skip
    weights = cast(exp(sum(x[i, d] * y[j, d], d)), "bf16")
    p.output(sum(weights * g[i, e], i), j, e, dtype="f32")
    random = np.random.default_rng(0)
    with compiling_for("tiles", tmp_path):
        kernel = neptune.compile(p)
        for rows, columns in ((300, 140), (150, 5)):
            case = [rounded(random.standard_normal((n, 32)) / 2) for n in (rows, columns, rows)]
            got = kernel(*(a.view(ml_dtypes.bfloat16) for a in case))
            left = wide(rounded(np.exp(wide(case[0]) @ wide(case[1]).T)))
            wanted = left.T @ wide(case[2])
            assert np.abs(got - wanted).max() < 1e-2 * np.abs(wanted).max()


def test_tiles_are_larger_where_amx_multiplies(monkeypatch):
    """But not for streams that they are mostly empty for, or rows that leave threads idle."""
    monkeypatch.setattr(CpuTarget, "pairs", "tiles")
    sizes, rules = [], []
    cases = (("bf16", {}), ("bf16", {"kv_len": 512}), ("bf16", {"kv_len": 100}), ("f32", {}))
    for dtype, known in cases:
        program = RaisedProgram(ops.attention(head_dim=64, dtype=dtype, **known).to_mlir(), "x")
        base = next(program.lowerings("cpu", cpu.ways("cpu"), "tile"))
        sizes.append(max(n for n in (128, 256) if f"tensor<{n}x64x{dtype}>" in str(base.module)))
        rules += [c.condition for c in program.cases(base) if c.knob == cpu.SHORT_PAIRS[1]]
    assert sizes == [256, 256, 128, 128] and len(rules) == 2

    def taken(rule, heads, rows, length, threads):
        shape = 1, heads, rows, 64
        return evaluate(rule, [shape, (1, heads, length, 64), shape], (), threads)

    for rule, length in zip(rules, (129, 512), strict=True):
        assert taken(rule, 8, 512, length, 17) and not taken(rule, 8, 512, length, 16)
    assert taken(rules[0], 8, 512, 128, 1)


@pytest.mark.parametrize("which", DENORMAL)
def test_denormal_numbers(kernel, which):
    """Neither a value nor a weight that is denormal counts as zero."""
    random = np.random.default_rng(2)
    if DENORMAL[which] is not None:
        case = [random.standard_normal((160, 64)) * scale for scale in DENORMAL[which]]
    else:
        case = [np.zeros((160, 64)), np.zeros((160, 64)), np.full((160, 64), 1e38)]
        case[0][:, 0], case[1][1:, 0], case[2][0] = 88 * 8, -1, 0
    q, k, v = (rounded(x.reshape(1, 1, 160, 64)) for x in case)
    wanted = attention(q, k, v, False)
    assert np.abs(run(kernel, q, k, v) - wanted).max() < 0.02 * np.abs(wanted).max() + 2.0**-133
