# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled gradients of attention: every option, against the gradient program in float64 (which
`test_gradient` compares with autograd), and against the unfused float32 gradient.

What a backward pass saves of a softmax is one f32 number a row, the log-sum-exp. It is rounded by
half a unit in its last place, and each weight of the row changes by as much, relatively; so errors
may be twice those of the unfused gradient, and that.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.driver.compiler import compile_unfused
from neptune_mlir.zoo import relative_error

ULP = 2.0**-23
HEAD_DIM = 16
BIAS = {
    "score_mod": lambda s, b, h, q, kv, bias: s + bias[h, q, kv],
    "inputs": {"bias": ops.Extra("h q kv")},
}
GROUPS = {"heads": 4, "kv_heads": 2}
OPTIONS = {
    "all": {**GROUPS, **BIAS, "causal": True, "softcap": 3.0, "sink": True, "documents": True},
    "plain": {}, "causal": {"causal": True}, "start": {"causal": True, "align": "start"},
    "window": {"causal": True, "window": 5}, "window_at_run_time": {"causal": True, "window": "w"},
    "band": {"window": 4}, "softcap": {"softcap": 2.0, "causal": True},
    "alibi": {"alibi": True, "causal": True, "heads": 4}, "sink": {"sink": True, "heads": 4},
    "documents": {"documents": True}, "lse": {"return_lse": True}, "gqa": GROUPS,
    "group_at_run_time": {"group": 2}, "mqa": {"heads": 4, "kv_heads": 1, "causal": True},
    "v_dim": {"v_dim": 24}, "bias": BIAS,
    "bias_of_keys": {"score_mod": lambda s, b, h, q, kv, bias: s + bias[h, kv],
                     "inputs": {"bias": ops.Extra("h kv")}},
    "temperature": {"score_mod": lambda s, b, h, q, kv, t: s * t, "inputs": {"t": ops.Extra("")}},
}  # fmt: skip
SHAPES = {"tiles": (2, 70, 70), "short": (1, 37, 23), "one": (1, 1, 1), "one query": (1, 1, 67),
          "one key": (1, 65, 1)}  # fmt: skip


def inputs_of(program, shape, rng, hostile):
    """Random; hostile: scores of some hundreds, biases of -inf, rows of them."""
    batch, queries, keys = shape
    sizes = {"b": batch, "h": 4, "hk": 2, "i": queries, "j": keys}
    made = []
    for name, argument in program.inputs.items():
        if isinstance(argument, str):
            made.append(5 if argument == "index" else 0.7)
            continue
        lengths = [sizes[a.name] if a.static is None else a.static for a in argument.shape]
        if argument.dtype == "i32":
            made.append(np.sort(rng.integers(0, 3, lengths), -1).astype(np.int32))
            continue
        array = rng.standard_normal(lengths) * (8 if hostile else 1)
        if hostile and name == "bias":
            array.flat[::3] = -np.inf
            array[..., 2 % lengths[-2], :] = -np.inf
        made.append(array.astype(np.float32))
    return made


def as_list(value):
    return list(value) if isinstance(value, tuple | list) else [value]


@pytest.mark.nightly
@pytest.mark.parametrize("name", OPTIONS)
def test_attention(name):
    program = ops.attention(head_dim=HEAD_DIM, **OPTIONS[name])
    whole, (forward, backward) = neptune.grad(program), neptune.vjp(program)
    unfused = compile_unfused(whole.to_mlir(), whole.name, None, vectorize=False)
    kernels = neptune.compile(forward), neptune.compile(backward)
    saved = [k for k, o in enumerate(forward.outputs) if o.name in backward.inputs]
    for shape in SHAPES.values():
        for hostile in (False, True):
            rng = np.random.default_rng(3)
            arrays = inputs_of(program, shape, rng, hostile)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # -inf - -inf, in rows without a live key
                results = as_list(program.reference(*arrays))
                cotangents = [
                    np.where(np.isfinite(r), rng.standard_normal(r.shape), 0).astype(np.float32)
                    for r in results
                ]
                wanted = as_list(whole.reference(*arrays, *cotangents))
                made = as_list(kernels[0](*arrays))
            rest = [made[k] for k in saved]
            found = as_list(kernels[1](*arrays, *rest, *cotangents))
            plain = as_list(unfused(*arrays, *cotangents))
            # (the reference of a row that sees nothing is infinite)
            lse = max(np.abs(made[-1][np.isfinite(made[-1])]).max(initial=0), 1)
            largest = max(np.abs(x[np.isfinite(x)]).max(initial=0) for x in map(np.asarray, arrays))
            for f, p, w in zip(found, plain, wanted, strict=True):
                assert np.isfinite(f).all()
                if np.linalg.norm(w) < 1e-9:  # one key, or none: what is left is rounding
                    assert np.abs(f).max() <= ULP * HEAD_DIM * max(largest, 1) ** 2
                else:
                    assert relative_error(f, w) <= 2 * relative_error(p, w) + ULP * (1 + lse)
