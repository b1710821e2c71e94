# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of JAX with loops, branches and what its conversion to linalg has no form for."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.driver import compiler, foreign
from neptune_mlir.errors import InputError, NeptuneError

jax = pytest.importorskip("jax")
pytest.importorskip("torch_mlir")

import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

from support.jax_programs import agrees, f32  # noqa: E402


def test_counted_loops_and_branches():
    def function(x, w):
        def step(h, row):
            h = jnp.tanh(h * w + row)
            return h, h.sum()

        last, sums = lax.scan(step, jnp.zeros(8), x)
        last = lax.fori_loop(2, 4, lambda i, h: h + i, last)
        return lax.cond(sums[0] > 0, lambda h: -h, lambda h: h * 2, last), sums

    agrees(function, f32(3, 8), f32(8))


def test_long_loops_are_loops():
    """Of known numbers of steps, of a test of data, one in another, and one of mapped data."""

    def function(x, w):
        def step(h, row):
            h = jnp.tanh(row + h @ w)
            return h, h[0]

        last, firsts = lax.scan(step, jnp.zeros((3, 4)), x, reverse=True)
        table = lax.fori_loop(0, 30, lambda i, t: lax.fori_loop(
            0, 20, lambda j, u: u.at[i, j].set(0.1 * (i + 2 * j)), t), jnp.zeros((30, 20)))
        near = lax.while_loop(lambda s: (s[1] < 40) & (jnp.abs(s[0] ** 2 - x[0]).max() > 1e-3),
                              lambda s: (0.5 * (s[0] + x[0] / s[0]), s[1] + 1), (x[0], 0))
        grown = jax.vmap(lambda v: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 1.5, v))
        return last, firsts, table, *near, grown(x[0])

    agrees(function, abs(f32(60, 3, 4)) + 0.5, f32(4, 4))
    text = jax.jit(lambda x: lax.while_loop(lambda h: h.sum() > 1, lambda h: h / 2, x))
    with pytest.raises(NeptuneError, match=r"'scf\.while' outside of any kernel"):
        neptune_mlir.compile(text.lower(f32(4, 4)), "sm_90a")


def test_loops_that_read_and_write_where_data_say():
    """Ways back through tables: written out from the last step on, and in loops."""

    def path(first, table):
        return lax.scan(lambda at, row: (row[at], row[at]), first, table, reverse=True)[1]

    def function(x, start):
        table = (x * 9).astype(jnp.int32)
        first = start.argmax().astype(jnp.int32)
        marked = lax.while_loop(
            lambda c: c[0] < 9, lambda c: (c[0] + c[1][c[0]] + 1, c[1], c[2].at[c[0]].set(7)),
            (first % 3, table[0] % 2, jnp.zeros(10, jnp.int32)))  # fmt: skip
        return path(first, table[:3]), path(first, table), marked[2]

    agrees(function, abs(f32(40, 10)) % 1, f32(10))


def test_gamma_functions():
    """Beside XLA's, with poles, infinities and no number; a length that only a call knows."""

    def function(x):
        return lax.lgamma(x), lax.digamma(x), lax.erf_inv(x / 9)

    x = np.linspace(-8.7, 8.7, 59, dtype=np.float32)
    x = np.concatenate([x, np.float32([0, 1, 2, -3, 1e-30, 1e4, np.inf, -np.inf, np.nan])])
    (n,) = export.symbolic_shape("n")
    made = export.export(jax.jit(function))(jax.ShapeDtypeStruct((n,), np.float32))
    kernel = neptune_mlir.compile(made.mlir_module())
    for got, want in zip(kernel(x), jax.jit(function)(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)


def test_random_numbers_and_the_inverse_of_erf():
    agrees(lambda x: lax.erf_inv(x), np.linspace(-1, 1, 101, dtype=np.float32))
    text = jax.jit(lambda: jax.random.normal(jax.random.key(0), (4,))).lower().as_text()
    assert "scf.for" not in foreign.from_text(text, "f") and "stablehlo.while" in text


def test_floats_of_8_bits():
    """What is too large is NaN in XLA. Rows are divided before they are rounded."""

    def function(x):
        narrow = x.astype(jnp.float8_e4m3fn)
        rows = (x[:3] / x[:3].max()).astype(jnp.float8_e4m3fn).astype("float32")
        return narrow, narrow.astype("float32"), rows.sum()

    x = np.array([0.3, 1.7, 1.1, 448, 464, 465, -1e9, np.inf, -np.inf, 2**-10], np.float32)
    kernel = neptune_mlir.compile(jax.jit(function).lower(x))
    for got, want in zip(kernel(x), jax.jit(function)(x), strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype("float32"), want.astype("float32"))


def test_parts_that_are_put_where_data_say():
    def function(cache, new, at):
        whole = lax.dynamic_update_slice(cache, new, (at[0], 1))
        row = lax.dynamic_update_slice(whole[0], new[0], (at[1],))
        return whole, row * row[::-1], cache.at[at[1]].set(0)

    for at in ([2, 0], [9, -1], [-7, 3]):  # those beyond the ends begin there
        agrees(function, f32(5, 6), f32(2, 4), np.array(at, np.int32))


def test_slices_of_no_element():
    agrees(lambda x: lax.associative_scan(jnp.add, x, axis=1), f32(2, 5))


def test_two_steps_of_a_recurrence_make_no_cycle():
    def step(h, x, w, r):
        z = jax.nn.sigmoid(x @ w[0] + h @ r[0])
        u = jax.nn.sigmoid(x @ w[1] + h @ r[1])
        return (1 - z) * jnp.tanh(x @ w[2] + u * (h @ r[2])) + z * h

    def function(x, w, r, h):
        h = step(h, x[0], w, r)
        return jnp.stack([h, step(h, x[1], w, r)])

    lowered = jax.jit(function).lower(f32(2, 2, 4), f32(3, 4, 8), f32(3, 8, 8), f32(2, 8))
    compiler.lower_text(foreign.from_text(lowered.as_text(), "f"), "f", "cpu", None, "fused")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: jnp.fft.rfft(jnp.zeros(1031) + x[0, 0]).real, r"'stablehlo\.fft' has no"),
        (lambda x: jnp.linalg.cholesky(x), r"'stablehlo\.custom_call @\w+' has no lowering"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_where_it_stands(function, said):
    text = jax.jit(function).lower(f32(4, 4)).as_text()
    with pytest.raises(InputError, match=said):
        foreign.from_text(text, "f.mlir")


def test_a_padded_array_is_filled_before_it_is_written():
    """A tile that is made where an array lies was there before the fill of the pad, and lost."""
    agrees(lambda x: [jnp.pad(v, ((0, 0), (0, 4))) for v in (x, x[::-1])], f32(2, 8))


def test_complex_numbers_are_pairs():
    """Transforms of each kind, of many elements by rows; angles of what has no imaginary part."""

    def function(x, h):
        spectrum, long = jnp.fft.fft(x), jnp.fft.rfft(h)
        return (
            jnp.abs(spectrum), jnp.angle(spectrum), jnp.fft.fft2(x).real, jnp.abs(x + 1j * x),
            jnp.fft.ifft(jnp.conj(spectrum * (1 + 2j))).imag, jnp.exp(1j * x).real, long.imag,
            jnp.fft.irfft(jnp.fft.rfft(x, 12) / (jnp.fft.rfft(x[::-1], 12) + 9), 12),
            jnp.fft.irfft2(jnp.fft.rfft2(x), (2, 7)), jnp.fft.irfft(long), (long @ long.T).real,
        )  # fmt: skip

    agrees(function, f32(2, 8), f32(3, 132))


def test_constants_of_complex_numbers():
    weights = np.arange(4) * (1 + 2j)
    with pytest.raises(InputError, match="complex numbers"):
        neptune_mlir.compile(jax.jit(lambda x: jnp.abs(x * weights)).lower(f32(4)))
