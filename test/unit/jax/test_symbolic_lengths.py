# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that JAX exports with symbolic lengths: one kernel for all of them."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.driver import foreign
from neptune_mlir.driver.stablehlo.polynomials import ONE, ZERO, Length, LengthFacts
from neptune_mlir.errors import ArgumentError, InputError

jax = pytest.importorskip("jax")
pytest.importorskip("torch_mlir")

import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402

from support.jax_programs import RNG, f32  # noqa: E402

LENGTHS = ({"b": 2, "n": 3, "m": 7}, {"b": 1, "n": 33, "m": 2}, {"b": 5, "n": 18, "m": 40})


def exported(function, *shapes, constraints=()):
    scope = export.SymbolicScope(constraints)
    types = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), kind)
        for shape, kind in ((s, np.float32) if isinstance(s, str) else s for s in shapes)
    ]
    return export.export(jax.jit(function))(*types)


def agrees_for_all(function, *shapes):
    """A kernel, after it agrees with JAX for each of the lengths."""
    made = exported(function, *shapes)
    kernel = neptune_mlir.compile(foreign.from_text(str(made.mlir_module()), "f.mlir"))
    for lengths in LENGTHS:
        arguments = []
        for aval in made.in_avals:
            extents = [n if isinstance(n, int) else n._evaluate(lengths) for n in aval.shape]
            whole = aval.dtype == np.int32
            arguments.append(RNG.integers(0, 2, extents, np.int32) if whole else f32(*extents))
        found, wanted = kernel(*arguments), jax.jit(function)(*arguments)
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)
    return kernel


def _attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    far = jnp.arange(q.shape[2])[:, None] - jnp.arange(k.shape[2])[None]
    weights = jax.nn.softmax(jnp.where(far >= 0, scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bhkd->bqhd", weights, v).reshape(q.shape[0], -1, 32)


def _norm_and_loss(x, chosen):
    x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    picked = jnp.take_along_axis(jax.nn.log_softmax(x), chosen[:, None], axis=-1)
    return -picked.mean()


def _mlp(x, w, v):
    b, n, d = x.shape
    return (jax.nn.gelu(x.reshape(b * n, d) @ w) @ v).reshape(b, n, -1)[:, -1] / n


def _scan(x, w):
    def step(h, row):
        h = jnp.tanh(h @ w + row)
        return h, h.sum(-1)

    return jax.lax.scan(step, jnp.zeros((x.shape[0], 4)), x.transpose(1, 0, 2))


def _convolution(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME").max((2, 3))


def test_attention_is_one_kernel_of_any_lengths():
    kernel = agrees_for_all(_attention, "b, 4, n, 8", "b, 4, m, 8", "b, 4, m, 8")
    assert len(kernel.plan.launches) == 1


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        pytest.param(_norm_and_loss, ("n, m", ("n", np.int32)), marks=pytest.mark.nightly),
        pytest.param(_mlp, ("b, n, 8", "8, 16", "16, 4"), marks=pytest.mark.nightly),
        (lambda x: jnp.pad(x, ((0, 0), (1, 2)))[:, ::2], ("b, n",)),
        (lambda x, y: (jnp.concatenate([x, y], 1)[:, 1:], x.shape[0] * 2 + y), ("b, n", "b, m")),
        (lambda x: x.reshape(x.shape[0] // 2, 2, 4).max(0), ("2*b, 4",)),
        (lambda x: (jnp.sort(x, 1)[:, ::-1], jax.lax.top_k(x, 2)[0]), ("b, n, 4",)),
        (_scan, ("b, 3, 4", "4, 4")),
        (_convolution, ("b, 3, 5, 5", "4, 3, 3, 3")),
    ],
)  # fmt: skip
def test_programs_of_any_lengths(function, shapes):
    agrees_for_all(function, *shapes)


def test_calls_are_checked():
    made = exported(lambda x, y: x.reshape(-1, 2).sum(1) + y, "2*b", "b")
    kernel = neptune_mlir.compile(foreign.from_text(str(made.mlir_module()), "f.mlir"))
    np.testing.assert_allclose(kernel(np.ones(6, np.float32), np.ones(3, np.float32)), [3, 3, 3])
    for n, m in ((5, 2), (6, 2)):
        with pytest.raises(ArgumentError, match="they must be equal"):
            kernel(np.ones(n, np.float32), np.ones(m, np.float32))


def test_a_size_that_is_not_known_is_refused_by_name():
    text = """
    func.func @f(%x: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
      %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %1 = stablehlo.dynamic_reshape %x, %n : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
      return %1 : tensor<?xf32>
    }"""
    with pytest.raises(InputError, match=r"'stablehlo\.dynamic_reshape' has no lowering"):
        foreign.from_text(text, "f.mlir")


def test_what_follows_of_sizes():
    sizes = LengthFacts()
    n, m, two = Length.atom("n"), Length.atom("m"), Length.of(2)
    assert (n + m) * (n - m) == n * n - m * m
    assert (n * m * two).over(n * two) == m and (n + ONE).over(n) is None
    assert sizes.are("GE", n, ZERO) is True and sizes.are("GE", n, ONE) is None
    assert sizes.assume("GE", n, ONE) and sizes.are("LT", ZERO, n * n) is True
    assert sizes.result("maximum", n + m, m) == n + m
    rest = sizes.result("remainder", n, two)
    assert rest is not None and rest.number is None and sizes.assume("EQ", rest, ZERO)
    half = sizes.result("divide", n, two)
    assert half is not None and sizes.resolved(n) == half * two
    assert sizes.result("subtract", n, half * two) == ZERO
    assert sizes.result("divide", n - m, two) is None
