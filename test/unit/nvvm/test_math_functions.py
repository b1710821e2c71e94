# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions in GPU kernels, on simulators: within their bounds of double precision."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import LoweringError
from neptune_mlir.frontend import notation as N
from support import math_functions as M
from support.chips.run_kernels import Simulated
from support.chips.scalar_kernels import Case, simulate

BY_NAME = {f.name: f for f in M.FUNCTIONS}


def as_given(values, kind):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return values.astype(np.float16) if kind == "f16" else values


def check(f, got, x, y, kind, *, flushes=False):
    error = M.errors(f, got.astype(np.float32), x, y, kind, flushes=flushes)
    worst = int(np.argmax(error))
    bound = M.bound(f, kind, gpu=True)
    assert error[worst] <= bound, (f.name, kind, x[worst], y[worst], got[worst], error[worst])


def expanded(f, x, y, kind):
    """What `math-to-gpu` makes of a function."""
    case = Case(f.text.replace(" T", f" {kind}"), (kind,) * f.operands, kind)
    return simulate(case, [as_given(v, kind) for v in (x, y)[: f.operands]])


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_expansions(kind):
    x, y = M.operands(kind)
    for f in M.FUNCTIONS:
        check(f, expanded(f, x, y, kind), x, y, kind)


IN_DOUBLES = [f for f in M.FUNCTIONS if f.name == "remf" or (not f.body and f.gpu > 0.5)]


@pytest.mark.parametrize("f", IN_DOUBLES, ids=lambda f: f.name)
def test_expansions_in_doubles(f):
    rng = np.random.default_rng(1)
    edges = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-310, 1.7976931348623157e308, 1e22,
             0.5, 709.78, 710.1, -745.1, -746, 1024, -1074, 26.5, 1 + 2.0**-52, 22, 2.0**30]
    scales = 10.0 ** rng.uniform(-300, 300, 60)
    x = np.concatenate([edges, rng.uniform(-30, 30, 200), rng.uniform(-1, 1, 100), scales,
                        rng.uniform(-745, 710, 60)])  # fmt: skip
    given = [x] if f.operands == 1 else [x, rng.permutation(x)]
    with np.errstate(all="ignore"):
        want = f.exact(*given)
        got = simulate(Case(f.text.replace(" T", " f64"), ("f64",) * f.operands, "f64"), given)
        assert np.array_equal(np.isnan(got), np.isnan(want)), f.name
        same = (got == want) | np.isnan(want)
        # as far as the C library's own are exact
        off = np.abs(got - want) / np.maximum(np.spacing(np.abs(want)), 2.0**-1074)
    assert off[~same].max(initial=0) <= 4, (f.name, given[0][~same][off[~same].argmax()])


def test_the_hardest_angle():
    """The f64 number nearest to a multiple of pi/2 (the C library is 8 units off)."""
    x = np.array([6381956970095103 * 2.0**797, 2.0**30])
    got = simulate(Case("%y = math.cos %a0 : f64", ("f64",), "f64"), [x])
    np.testing.assert_allclose(got, [-4.68716592425462761112e-19, np.cos(2.0**30)], rtol=3e-16)


@pytest.mark.nightly
@pytest.mark.parametrize("f", M.FUNCTIONS, ids=lambda f: f.name)
def test_expansions_on_dense_samples(f):
    x, y = M.operands("f32", 300_000)
    check(f, expanded(f, x, y, "f32"), x, y, "f32")


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_any_size(name):
    """The angles of rotary positions and larger ones: no error that grows with the angle."""
    rng = np.random.default_rng(2)
    x = np.concatenate([
        np.arange(0, 131072, 7), 10.0 ** rng.uniform(0, 38.5, 20000),
        [1e5, 1e9, 3.4e38, 105614.99, 16367173 * 2.0**72],  # the last is the hardest
    ]).astype(np.float32)  # fmt: skip
    check(BY_NAME[name], expanded(BY_NAME[name], x, x, "f32"), x, x, "f32")


@pytest.mark.parametrize(("target", "kind"), [("sm_80", "f32"), ("gfx1100", "f16")])
def test_kernels(target, kind):
    """Programs of these functions as users compile them."""
    x, y = M.operands(kind)
    few = np.linspace(0, len(x) - 1, 500).astype(int)
    x, y = np.concatenate([M.EDGES, x[few]]), np.concatenate([M.EDGES, y[few]])
    with np.errstate(over="ignore"):
        x, y = (as_given(v, kind).astype(np.float32) for v in (x, y))
    module, _ = compiler.lower_text(M.program(kind), "test", target, None, "tile")
    results = Simulated(module, target=target)(*(as_given(v, kind) for v in (x, y)))
    for f, got in zip(M.FUNCTIONS, results, strict=True):
        check(f, got, x, y, kind, flushes=f.flushes)


@pytest.mark.parametrize(("name", "dtype", "rough"), [
    ("prefill_softcap", "f16", True), ("decode_softcap", "bf16", True),
    ("prefill_softcap", "f32", False),
])  # fmt: skip
def test_capped_scores_need_few_digits(name, dtype, rough):
    program = ops.operator(name, heads=2, kv_heads=2, head_dim=32, dtype=dtype)
    module, _ = compiler.lower_text(program.to_mlir(), "test", "sm_80", None, "tile")
    text = Simulated(module).assigned
    assert text.count("math.tanh") > 0
    marked = [line for line in text.splitlines() if "math.tanh" in line and "neptune.rough" in line]
    assert len(marked) == (text.count("math.tanh") if rough else 0)


def decay(dtype):
    """Retention without queries and keys: weights that fall with the distance."""
    p = N.Program("decay")
    h, i, j, d = p.axes("h i j d", d=16)
    v, g = p.input("v", j, d, dtype=dtype), p.input("g", h)
    u = p.input("u", i, d, dtype=dtype)
    weight = N.where(j <= i, N.exp(-abs(g[h]) * N.cast(i - j, "f32")), 0.0)
    total = N.sum(weight * N.cast(v[j, d], "f32"), j)
    p.output(N.cast(N.cast(u[i, d], "f32") + total, dtype), h, i, d)
    return Source.of(p).text


@pytest.mark.parametrize("target", ["sm_80", "gfx1100"])
def test_multiples_of_distances_are_right_near_the_diagonal(target):
    module, _ = compiler.lower_text(decay("f32"), "test", target, None, "tile")
    run = Simulated(module, target=target)
    v, u = np.random.default_rng(3).standard_normal((2, 29, 16)).astype(np.float32)
    g = np.array([0.37, 1e9], np.float32)
    distance = np.arange(29)[:, None] - np.arange(29)
    fallen = np.exp(-g.astype(np.float64)[:, None, None] * np.maximum(distance, 0))
    expected = u + np.where(distance >= 0, fallen, 0) @ v.astype(np.float64)
    np.testing.assert_allclose(run(v, g, u), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("dtype", "rough"), [("f16", True), ("f32", False)])
def test_slopes_of_scores_need_few_digits(dtype, rough):
    program = ops.attention(head_dim=32, dtype=dtype, causal=True, alibi=True)
    assert has_rough_products(program.to_mlir()) == rough
    assert not has_rough_products(decay(dtype))


def has_rough_products(text):
    module, _ = compiler.lower_text(text, "test", "sm_80", None, "tile")
    lines = Simulated(module).assigned.splitlines()
    return any("arith.mulf" in line and "neptune.rough" in line for line in lines)


def element_wise(body, kind="f32", result=None):
    result = result or kind
    return f"""func.func @f(%x: tensor<?x{kind}>) -> tensor<?x{result}> {{
      %c0 = arith.constant 0 : index
      %extent = tensor.dim %x, %c0 : tensor<?x{kind}>
      %e = tensor.empty(%extent) : tensor<?x{result}>
      %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
          iterator_types = ["parallel"]}}
          ins(%x : tensor<?x{kind}>) outs(%e : tensor<?x{result}>) {{
      ^bb0(%a: {kind}, %u: {result}):
        {body}
        linalg.yield %y : {result}
      }} -> tensor<?x{result}>
      return %r : tensor<?x{result}>
    }}"""


@pytest.mark.parametrize("scale", [1.0, 4096.0])
def test_tanh_that_is_no_exponent_is_right_near_zero(scale):
    """Scaled, returned as f16: what is small still has its digits."""
    body = f"""%w = arith.extf %a : f16 to f32
        %t = math.tanh %w : f32
        %k = arith.constant {scale} : f32
        %s = arith.mulf %t, %k : f32
        %y = arith.truncf %s : f32 to f16"""
    x = (2.0 ** np.arange(-24, 0, 0.25)).astype(np.float16)
    module, _ = compiler.lower_text(element_wise(body, "f16"), "test", "sm_80", None, "tile")
    got = Simulated(module)(x).astype(np.float64)
    want = (scale * np.tanh(x.astype(np.float64))).astype(np.float16).astype(np.float64)
    assert (np.abs(got - want) <= np.spacing(want.astype(np.float16))).all()


WHOLE = {
    "absi": lambda x: np.abs(x), "ctpop": lambda x: np.bitwise_count(x.view(np.uint32)),
    "ctlz": lambda x: 32 - np.array([int(v).bit_length() for v in x.view(np.uint32)]),
    "cttz": lambda x: np.array([(int(v) & -int(v)).bit_length() - 1 if v else 32
                                for v in x.view(np.uint32)]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_functions_of_integers(name):
    x = np.array([0, 1, -1, 2, -8, 1 << 30, -(1 << 31), 12345678, -(1 << 31) + 1], np.int32)
    got = simulate(Case(f"%y = math.{name} %a0 : i32", ("i32",), "i32"), [x])
    np.testing.assert_array_equal(got, WHOLE[name](x).astype(np.int32))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_classes_of_floats(kind):
    x = M.every_value(kind) if kind != "f32" else M.EDGES
    wanted = {"isnan": np.isnan(x), "isinf": np.isinf(x), "isfinite": np.isfinite(x),
              "isnormal": np.isfinite(x) & (np.abs(x) >= M.LEAST[kind])}  # fmt: skip
    for name, want in wanted.items():
        case = Case(f"%y = math.{name} %a0 : {kind}", (kind,), "i1")
        np.testing.assert_array_equal(simulate(case, [as_given(x, kind)]) != 0, want, err_msg=name)


@pytest.mark.parametrize("width", [32, 64])
def test_powers_of_integers(width):
    kind, numpy = f"i{width}", np.int32 if width == 32 else np.int64
    base, exponent = (v.ravel() for v in np.meshgrid(np.arange(-9, 10), np.arange(-5, 70)))
    case = Case(f"%y = math.ipowi %a0, %a1 : {kind}", (kind, kind), kind)
    got = simulate(case, [base.astype(numpy), exponent.astype(numpy)])
    half = 1 << width - 1
    for b, n, found in zip(base.tolist(), exponent.tolist(), got.tolist(), strict=True):
        wanted = b**n if n >= 0 else {1: 1, -1: 1 if n % 2 == 0 else -1}.get(b, 0)
        assert found == (wanted + half) % (2 * half) - half, (b, n)


def test_sine_and_cosine_at_once():
    x = M.samples(500)
    for result, name in (("%y, %z", "sin"), ("%z, %y", "cos")):
        got = simulate(Case(f"{result} = math.sincos %a0 : f32", ("f32",), "f32"), [x])
        check(BY_NAME[name], got, x, x, "f32")
    text = element_wise("%y, %z = math.sincos %a : f32")
    module, _ = compiler.lower_text(text, "test", "sm_80", None, "tile")
    check(BY_NAME["sin"], Simulated(module)(x), x, x, "f32")


def test_what_has_no_gpu_code_is_said():
    with pytest.raises(LoweringError, match=r"no GPU code for 'math\.sin' on f128"):
        simulate(Case("%w = arith.extf %a0 : f64 to f128\n%s = math.sin %w : f128\n"
                      "%y = arith.truncf %s : f128 to f64", ("f64",), "f64"), [np.zeros(1)])
