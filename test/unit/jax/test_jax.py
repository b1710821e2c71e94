# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""neptune in JAX: functions and programs as calls, under jit, grad, vmap and scan."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import neptune_mlir as neptune  # noqa: E402
from neptune_mlir.errors import ArgumentError, NeptuneError, UsageError  # noqa: E402
from neptune_mlir.frontend.notation import Program, sum  # noqa: E402

nj = pytest.importorskip("neptune_mlir.jax")

pytestmark = pytest.mark.usefixtures("small_tiles")  # what a result is, not its speed


def attention(q, k, v, scale=0.25):
    scores = jnp.where(jnp.tril(jnp.ones((q.shape[-2], k.shape[-2]), bool)),
                       jnp.einsum("hqd,hkd->hqk", q, k) * scale, -jnp.inf)  # fmt: skip
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def arrays(count=3, shape=(2, 40, 16), dtype="f4", seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape).astype(dtype)) for _ in range(count)]


def close(got, wanted, tolerance=2e-6):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max(initial=0) <= tolerance * max(1, np.abs(wanted).max(initial=0))


def test_a_function_is_one_kernel_anywhere():
    inputs, fused = arrays(), nj.jit(attention)
    wanted = attention(*inputs)
    assert neptune.compile(jax.jit(attention).lower(*inputs)).facts["kernels"] == 1
    close(fused(*inputs), wanted)
    close(jax.jit(lambda *a: 2 * fused(*a))(*inputs), 2 * wanted)
    many = arrays(shape=(3, 2, 40, 16))
    close(jax.vmap(fused)(*many), jax.vmap(attention)(*many))
    _, steps = jax.lax.scan(lambda c, q: (c, fused(q, *inputs[1:])), 0, many[0])
    close(steps, jnp.stack([attention(q, *inputs[1:]) for q in many[0]]))


def test_a_function_of_trees_with_static_arguments():
    def norm(tree, eps, kind):
        scale = 2.0 if kind == "double" else 1.0
        x = tree["x"]
        mean = x.mean(-1, keepdims=True)
        return {"y": scale * (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + eps), "mean": mean}

    (x,) = arrays(1, (5, 70))
    fused = nj.jit(norm, static_argnums=(1, 2))
    for kind in ("double", "single"):
        got, wanted = fused({"x": x}, 1e-5, kind), norm({"x": x}, 1e-5, kind)
        assert set(got) == {"y", "mean"}
        close(got["y"], wanted["y"], 1e-5)
        close(got["mean"], wanted["mean"])


def test_gradients():
    inputs = arrays()
    fused, program = nj.jit(attention), neptune.ops.attention(head_dim=16, causal=True, dtype="f32")

    def own(*given):
        return nj.call(program, *(a[None] for a in given))[0]

    for function in (fused, own):
        def loss(*given, function=function):
            return (function(*given) ** 2).sum()

        wanted = jax.grad(lambda *given: (attention(*given) ** 2).sum(), (0, 1, 2))(*inputs)
        for got, true in zip(jax.jit(jax.grad(loss, (0, 1, 2)))(*inputs), wanted, strict=True):
            close(got, true, 2e-5)


def test_integer_and_16_bit_arguments():
    program = Program("rows")
    i, j = program.axes("i j")
    x, live = program.input("x", i, j, dtype="bf16"), program.input("live", i, dtype="i32")
    program.output(sum(x[i, j], j) * live[i], i)
    (x,) = arrays(1, (4, 33))
    x, live = x.astype(jnp.bfloat16), jnp.arange(4, dtype=jnp.int32)
    wanted = np.asarray(x, np.float64).sum(1) * np.arange(4)
    close(nj.call(program, x, live), wanted, 1e-2)
    slope = jax.grad(lambda x: nj.call(program, x, live).sum().astype(jnp.float32))(x)
    close(slope, np.broadcast_to(np.arange(4.0)[:, None], (4, 33)))


def test_numbers_are_static_or_traced():
    program = Program("scaled")
    (i,) = program.axes("i")
    x, factor = program.input("x", i), program.scalar("factor")
    program.output(x[i] * factor, i)
    (x,) = arrays(1, (7,))
    close(nj.call(program, x, 3.0), 3 * x)
    close(jax.jit(lambda x, f: nj.call(program, x, f))(x, jnp.float32(2.5)), 2.5 * x)


def test_what_is_wrong_is_said_when_traced():
    program = neptune.ops.attention(head_dim=16, dtype="f32")
    q, k, v = (a[None] for a in arrays())
    with pytest.raises(ArgumentError, match="takes 3 arguments, 2 were given"):
        nj.call(program, q, k)
    with pytest.raises(ArgumentError, match=r"k has shape .*, not \[\?, \?, \?, 16\]"):
        jax.jit(lambda *a: nj.call(program, *a))(q, k[..., :8], v)
    with pytest.raises(ArgumentError, match="q has type f16"):
        nj.call(program, q.astype(jnp.float16), k, v)
    with pytest.raises(NeptuneError):
        nj.jit(jnp.linalg.svd)(q[0])
    with pytest.raises(UsageError, match="cannot compile a dict"):
        nj.call({}, q)


def test_what_fails_in_a_call_is_an_error_of_the_computation():
    from neptune_mlir.jax import calls

    kernel = neptune.compile(neptune.ops.attention(head_dim=16, dtype="f32"))
    q, k, v = (a[None] for a in arrays())
    close(nj.call(kernel, q, k, v), kernel(*map(np.asarray, (q, k, v))))
    run = jax.ffi.ffi_call(calls.CALL, jax.ShapeDtypeStruct((1,), jnp.float32))
    with pytest.raises(Exception, match="another process compiled"):
        run(q, site=np.int64(10**9)).block_until_ready()
