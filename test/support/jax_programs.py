# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of JAX, compiled and run beside JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neptune_mlir

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def agrees(
    function: Callable[..., Any], *arguments: Any, rtol: float = 1e-5, atol: float = 2e-6
) -> Any:
    """A kernel, after its results agree with those of JAX."""
    jax = pytest.importorskip("jax")
    jitted = jax.jit(function, keep_unused=True)
    kernel = neptune_mlir.compile(jitted.lower(*arguments))
    found, wanted = jax.tree.leaves(kernel(*arguments)), jax.tree.leaves(jitted(*arguments))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
    return kernel
