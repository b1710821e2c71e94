# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks that read data: the tiles that they leave out change no bit, and are left out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from neptune_mlir.driver.inputs import Source
from neptune_mlir.driver.kernel import Kernel
from neptune_mlir.frontend.notation import Program
from neptune_mlir.ops.attention import Extra
from neptune_mlir.pipelines import common
from support.chips.run_kernels import Simulated, Specialised
from support.often import nightly_if

KINDS = {"of_q": Extra("b q", "i32"), "of_kv": Extra("b kv", "i32"), "end": Extra("b", "i32"),
         "ok": Extra("b kv", "i1"), "low": Extra("b q", "i64"), "high": Extra("b q", "i64"),
         "pair": Extra("q kv", "i1")}  # fmt: skip

MASKS = {
    "documents": lambda b, h, q, kv, of_q, of_kv: of_q[b, q] == of_kv[b, kv],
    "prefix": lambda b, h, q, kv, end: (kv < end[b]) | (kv <= q),
    "padding and sums": lambda b, h, q, kv, ok, of_q, of_kv: (
        ok[b, kv] & (of_q[b, q] + 1 >= of_kv[b, kv] * 2)
    ),
    "intervals": lambda b, h, q, kv, low, high: (kv >= low[b, q]) & (kv < high[b, q]),
    "pairs": lambda b, h, q, kv, pair: pair[q, kv] | (q - kv == 64),
}


@contextlib.contextmanager
def everything_visited() -> Iterator[None]:
    """Compilations without the pass."""
    steps = common.TO_TILES
    common.TO_TILES = tuple(s for s in steps if s.name != "skip-dead-tiles")
    try:
        yield
    finally:
        common.TO_TILES = steps


def program_of(name: str, dtype: str = "f32", **options: Any) -> Program:
    mod = MASKS[name]
    used = mod.__code__.co_varnames[4 : mod.__code__.co_argcount]
    inputs = {k: KINDS[k] for k in used}
    return ops.attention(mask_mod=mod, inputs=inputs, dtype=dtype, **{"head_dim": 16, **options})


def compiled(name: str) -> Kernel:
    source = Source.of(program_of(name))
    bundle = compiler.compile_text(
        source.text, source.name, "cpu", "streamed", None, knobs="rows:16;stream:16"
    )
    return Kernel(source, "cpu", "streamed", bundle)


skipping = functools.cache(compiled)


def data_of(name: str, rng: np.random.Generator, batch: int, n_q: int, n_kv: int) -> list[Any]:
    mod = MASKS[name]

    def ids(n: int, sort: bool) -> Any:
        found = rng.integers(-2, 4, (batch, n)).astype(np.int32)
        return np.sort(found) if sort else found

    sort = bool(rng.integers(2))
    low = rng.integers(0, n_kv, (batch, n_q))
    made = {
        "of_q": ids(n_q, sort), "of_kv": ids(n_kv, sort),
        "end": rng.integers(0, n_kv, batch).astype(np.int32),
        "ok": np.repeat(rng.integers(0, 2, (batch, -(-n_kv // 16))), 16, 1)[:, :n_kv].astype(bool),
        "low": low, "high": low + rng.integers(0, 40, low.shape),
        "pair": np.kron(rng.integers(0, 3, (n_q // 16 + 1, n_kv // 16 + 1)),
                        np.ones((16, 16)))[:n_q, :n_kv] == 0,
    }  # fmt: skip
    return [made[k] for k in mod.__code__.co_varnames[4 : mod.__code__.co_argcount]]


def expected(name: str, q: Any, k: Any, v: Any, data: list[Any]) -> Any:
    mod = MASKS[name]
    (b, _, n_q, d), n_kv = q.shape, k.shape[2]
    q_at, kv_at = np.arange(n_q)[None, :, None], np.arange(n_kv)[None, None, :]
    keep = mod(np.arange(b)[:, None, None], None, q_at, kv_at, *data)
    keep = np.broadcast_to(keep, (b, n_q, n_kv))
    scores = q.astype(float) @ k.astype(float).swapaxes(2, 3) / d**0.5
    s = np.where(keep[:, None], scores, -np.inf)
    m = s.max(-1, keepdims=True)
    w = np.exp(s - np.where(np.isinf(m), 0, m))
    total = w.sum(-1, keepdims=True)
    return np.where(total == 0, 0, w @ v / np.where(total == 0, 1, total))


def arguments(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: Any, dim: int = 16
) -> list[Any]:
    batch, heads, n_q, n_kv = shape
    q, k, v = (rng.standard_normal((batch, heads, n, dim)).astype(dtype) for n in (n_q, n_kv, n_kv))
    return [q, k, v, *data_of(name, rng, batch, n_q, n_kv)]


def runs(name: str, kernel: Kernel) -> Iterator[tuple[list[Any], Any]]:
    """Arguments of several sizes, and what a kernel makes of them."""
    for seed, (n_q, n_kv) in enumerate([(64, 64), (33, 70), (1, 90), (70, 15)]):
        given = arguments(np.random.default_rng(seed), name, (2, 2, n_q, n_kv), np.float32)
        yield given, np.asarray(kernel(*given))


# two ids that are equal, and what is known only of a whole tile
QUICK = ("documents", "pairs")


@pytest.mark.parametrize("name", nightly_if(lambda name: name not in QUICK, MASKS))
def test_tiles_without_a_live_point(name: str) -> None:
    kernel = skipping(name)
    by_tiles = len(kernel.plan.launches) > 1
    assert by_tiles == (name != "intervals"), "rows that bound their own keys need no tiles"
    for given, got in runs(name, kernel):
        np.testing.assert_allclose(got, expected(name, *given[:3], given[3:]), atol=2e-6)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("name", ["documents", "pairs"])
def test_no_bit_changes(name: str) -> None:
    with everything_visited():
        visits_all = compiled(name)
    found = runs(name, skipping(name)), runs(name, visits_all)
    for (_, got), (_, wanted) in zip(*found, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_documents_on_simulated_chips(target: str) -> None:
    rng, dim = np.random.default_rng(0), 64 if target == "sm_90a" else 16
    given = arguments(rng, "documents", (1, 1, 130, 300), np.float16, dim)
    program = program_of("documents", "f16", head_dim=dim)
    if target == "sm_90a":
        kernel: Any = Specialised(program)
        assert not [r for r in kernel.remarks if "not specialised" in r.message]
    else:
        module, _ = compiler.lower_text(program.to_mlir(), "test", target, None, "tile")
        kernel = Simulated(module, target=target)
    wanted = expected("documents", *given[:3], given[3:])
    np.testing.assert_allclose(kernel(*given), wanted, atol=3e-3)
