# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads of reshapes: positions in few digits, and programs that are what they were."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import position_of
from neptune_mlir.transforms.fusion.reshaped_reads import _simplified

TEXT = Path(__file__).parents[2] / "lit" / "transforms" / "inline-maps-reshaped.mlir"


def value(position, at):
    """The number that a position is where the axes have these values."""
    if position.is_const:
        return int(position.value)
    if position.op == "index":
        return at[position.attr]
    a, b = (value(x, at) for x in position.args)
    return {"add": a + b, "mul": a * b, "floordiv": a // max(b, 1), "rem": a % max(b, 1)}[
        position.op
    ]


@pytest.mark.parametrize("seed", range(40))
def test_positions_stay(seed):
    """Any sums, quotients and remainders of two axes."""
    rng = random.Random(seed)
    extents = {0: rng.randint(1, 7), 1: rng.randint(1, 7)}
    position = T.index(rng.randint(0, 1))
    for _ in range(4):
        c = T.const(rng.randint(1, 6), "index")
        op = rng.choice(("mul", "floordiv", "rem", "add", "axis"))
        if op == "axis":
            op, c = "add", T.make("mul", T.index(rng.randint(0, 1)), c)
        position = T.make(op, position, c)
    found = _simplified(position, extents)
    for at in itertools.product(*(range(n) for n in extents.values())):
        assert value(found, at) == value(position, at)


def test_digits_join():
    g, e, j, c = T.index(0), T.index(1), T.index(2), T.const(16, "index")
    extents = {0: 8, 1: 16, 2: 128}
    flat = T.make("add", T.make("mul", g, c), e)
    assert _simplified(T.make("floordiv", flat, c), extents) is g
    assert _simplified(T.make("rem", flat, c), extents) is e
    split = T.make("add", T.make("mul", T.make("floordiv", j, c), c), T.make("rem", j, c))
    assert _simplified(split, extents) is j
    assert position_of(_simplified(flat, extents)) is None


@pytest.mark.parametrize("name", ["centred", "product"])
def test_values(name):
    text = TEXT.read_text()
    maps = [line for line in text.splitlines() if line.startswith("#")]
    body = text[text.index(f"\nfunc.func @{name}") :].split("\n}\n")[0] + "\n}\n"
    kernel = neptune_mlir.compile("\n".join(maps) + "\n" + body)
    rng = np.random.default_rng(0)
    if name == "centred":
        x = rng.standard_normal((4, 128), np.float32)
        groups = x.reshape(4, 8, 16).astype(np.float64)
        means = groups.sum(-1, keepdims=True)
        squares, centred = kernel(x)
        np.testing.assert_allclose(squares, ((groups - means) ** 2).sum(-1), rtol=1e-5)
        np.testing.assert_allclose(centred, (groups - means).reshape(4, 128), rtol=1e-4, atol=1e-5)
        return
    x, w = rng.standard_normal((4, 32), np.float32), rng.standard_normal((128, 32), np.float32)
    y = np.tanh(x.astype(np.float64) @ w.T.astype(np.float64))
    means = y.reshape(4, 8, 16).sum(-1, keepdims=True)
    want = (y.reshape(4, 8, 16) - means).reshape(4, 128)
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-5)
