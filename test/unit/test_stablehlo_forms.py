# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorts, scatters and windows of StableHLO, as JAX writes them, beside JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("torch_mlir")

import jax.numpy as jnp  # noqa: E402

from support.jax_programs import agrees, f32  # noqa: E402


def cross_entropy(x, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), targets[:, None], 1).mean()


def test_the_gradient_of_a_cross_entropy_is_one_kernel():
    """It scatters one update for each row: a choice by position, which fuses."""
    kernel = agrees(jax.grad(cross_entropy), f32(6, 20), np.array([0, 3, 19, 19, 7, 3], np.int32))
    assert len(kernel.plan.launches) == 1


def test_sorts_keep_equal_elements_in_order_and_nan_last():
    x = np.round(f32(3, 17) * 2) / 2
    x[0, 3], x[1, 0], x[2, 5], x[2, 9] = np.nan, np.inf, -0.0, 0.0
    agrees(lambda x: (jnp.argsort(x), jnp.argsort(x, descending=True)), x)
    agrees(lambda a, b: jnp.lexsort((b, a)), np.round(f32(17)), f32(17))
    agrees(lambda x: jnp.sort(x, 0), (np.abs(f32(9, 2)) * 90).astype(np.int32))
    agrees(lambda x: jnp.sort(x), np.array([7, 2**31, 0, 2**32 - 1, 1], np.uint32))


def test_top_k_and_its_gradient():
    # (no -0, which XLA puts behind 0, though they are equal)
    agrees(lambda x: jax.lax.top_k(x, 4), np.round(f32(3, 17)) + 0.0)
    agrees(jax.grad(lambda x: (jax.lax.top_k(x, 4)[0] ** 2).sum()), f32(3, 17))


@pytest.mark.parametrize("way", ["add", "max", "set", "multiply"])
def test_scatters(way):
    """Rows at positions, some of which are outside; a position that two updates have."""
    places = np.array([1, 9, -1, 4, 12], np.int32)
    if way != "set":  # which leaves open which of two updates wins
        places[3] = 1
    kernel = agrees(lambda x, i, u: getattr(x.at[i], way)(u), f32(10, 3), places, f32(5, 3))
    assert "tm_tensor.scatter" not in kernel.source.text  # a loop, which CPUs alone run


def test_elements_at_positions_of_several_dimensions():
    """Also outside, and where two updates are for one element."""
    rows, columns = np.array([0, 3, 1, 1, -9, 1], np.int32), np.array([2, 4, 0, 0, 1, 9], np.int32)

    def program(x, i, j, u):
        whole = x.reshape(4, 5, 2)
        return (
            x.at[i, 2 * j].set(7.0), x.at[i, 2 * j + 1].multiply(u), jnp.diagflat(x[0]),
            whole.at[i, :, j % 2].max(u[:5]), x.astype(jnp.int32).at[i, j].add(j),
        )  # fmt: skip

    kernel = agrees(program, f32(4, 10), rows, columns, f32(6))
    assert "tm_tensor.scatter" not in kernel.source.text


def test_windows_of_several_rows_at_several_columns():
    """One that does not fit is left out as a whole."""

    def program(x, u, i):
        return (
            x.at[1:3, ::2].set(u), x.at[:, ::3, 1:].add(1.0), x.at[0, 2:4, i].max(u[0, :3, :2]),
            x.at[jnp.array([1, 1, 9])].multiply(2.0),
            jax.lax.scatter_mul(
                x, 2 * i[:, None] + 1, jnp.broadcast_to(u[0, :2], (3, 4, 2, 3)),
                jax.lax.ScatterDimensionNumbers((1, 2, 3), (), (1,)),
            ),
        )  # fmt: skip

    kernel = agrees(program, f32(4, 6, 3), f32(2, 3, 3), np.array([2, 0, 1], np.int32))
    assert "tm_tensor.scatter" not in kernel.source.text


def test_rows_that_are_looked_up_and_joined():
    """The gradient of a table: what updates it sums is looked up too, one row for each point of the
    pass, which is no tile of all points."""
    places = np.array([3, 0, 3, 1, 15, 3, 0, 8], np.int32)
    kernel = agrees(jax.grad(lambda w, i: (w[i] ** 2).sum()), f32(16, 8), places)
    assert len(kernel.plan.launches) == 2


def test_an_element_without_updates_keeps_its_sign():
    x = np.array([[-0.0, 0.0], [1.0, -0.0], [-0.0, -0.0]], np.float32)
    kernel = agrees(lambda x, i, u: x.at[i].add(u), x, np.array([0, 0], np.int32), f32(2, 2))
    got = np.asarray(kernel(x, np.array([0, 0], np.int32), f32(2, 2)))
    assert np.signbit(got[1:]).tolist() == np.signbit(x[1:]).tolist()


def test_numbers_without_signs_fuse():
    """(The upper half of such a type are numbers below 0 to a machine.)"""

    def program(q, zero, scale):
        x = (q.astype(jnp.float32) - zero.astype(jnp.float32)) * scale
        return jax.nn.softmax(x), (q.astype(jnp.int32) - zero.astype(jnp.int32)).sum(-1)

    q, zero = (np.arange(n, dtype=np.uint8).reshape(8, -1) for n in (256, 8))
    kernel = agrees(program, q, zero * np.uint8(30), np.abs(f32(8, 1)) / 50)
    assert len(kernel.plan.launches) == 1
    agrees(lambda x: x.astype(jnp.float32), np.array([0, 2**31, 2**32 - 1], np.uint32))


def test_sums_of_segments_along_a_later_dimension():
    kernel = agrees(
        lambda x, i, u: x.at[:, i].min(u), f32(2, 4, 3), np.array([3, 0, 3, 1], np.int32),
        f32(2, 4, 3),
    )  # fmt: skip
    assert "tm_tensor.scatter" not in kernel.source.text


def test_windows_at_positions():
    """One window, whole or not within the tensor, and one for each element of a batch."""
    for place in (2, 7):
        kernel = agrees(
            lambda x, u, k: jax.lax.scatter_add(
                x, k, u, jax.lax.ScatterDimensionNumbers((0, 1), (), (1,))
            ),
            f32(3, 9), f32(3, 4), np.array([place], np.int32),
        )  # fmt: skip
        assert "tm_tensor.scatter" not in kernel.source.text
    # (reduces along no dimension)
    agrees(lambda x: jnp.unique(x, size=5, fill_value=-1), np.array([3, 1, 3, 7], np.int32))
    agrees(
        jax.vmap(lambda x, k, u: x.at[k].add(u)),
        f32(2, 6), np.array([[1, 5], [5, 0]], np.int32), f32(2, 2),
    )  # fmt: skip


def test_gradients_of_pooling():
    def pooled(steps, padding):
        window = (1, 3, 2)
        return lambda x: (
            jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, steps, padding) ** 2
        ).sum()

    agrees(jax.grad(pooled((1, 3, 2), "VALID")), np.round(f32(2, 7, 6)))
    agrees(jax.grad(pooled((1, 2, 1), "SAME")), f32(2, 7, 6))


def test_a_checkpoint_is_nothing():
    def f(w, x):
        return jnp.tanh(jax.nn.softmax(x @ w))

    agrees(jax.grad(lambda w, x: jax.checkpoint(f)(w, x).sum()), f32(5, 4), f32(3, 5))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_reductions_of_nothing_are_what_they_begin_with(shape):
    x = np.zeros(shape, np.float32)
    agrees(lambda x: (x.sum(0), x.sum(1), jax.nn.softmax(x, 1), (x @ x.T).max(0, initial=-1)), x)
    agrees(lambda x: jnp.argmax(x, int(x.shape[0] == 0)), x)
