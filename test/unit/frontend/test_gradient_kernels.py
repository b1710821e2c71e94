# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled gradients of attention: every option, against the gradient program in float64 (which
`test_gradient` compares with autograd), and against the unfused float32 gradient.

What a backward pass saves of a softmax is one f32 number a row, the log-sum-exp. It is rounded by
half a unit in its last place, and each weight of the row changes by as much, relatively. So the
unfused gradient is taken as two programs too (`Unfused`).
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.algebra.numerics.orders import ORDERS
from neptune_mlir.driver.compiler import compile_reference, compile_unfused

ULP = 2.0**-23
ROUNDINGS = 8  # ways to round, where orders of sums say too little
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


class Unfused:
    """The unfused float32 gradient: in one program, then as two of which the second reads what the
    first saves (and computes the rest again, rounded otherwise), each in several orders of sums.

    A row that gives all its weight to one key has scores whose adjoints are differences of equal
    sums. In one program, in one order, they are equal to the last digit; that is luck. It is still
    where products are rounded before they are added, as multiply-adds do not. So at last the
    program is rounded in other ways (`round-floats`), which says how large what cancels is.
    """

    def __init__(self, whole, halves):
        self.whole, self.halves = whole, halves
        self.compiled, self.rounded = {}, {}

    def _compile(self, program, order):
        key = program.name, order
        if key not in self.compiled:
            self.compiled[key] = compile_unfused(
                program.to_mlir(), program.name, None, vectorize=False, order=order
            )
        return self.compiled[key]

    def gradients(self, arrays, cotangents):
        """One after the other: the first is compiled as written."""
        forward, backward = self.halves
        kept = [k for k, o in enumerate(forward.outputs) if o.name in backward.inputs]
        for order in range(ORDERS + 1):
            yield as_list(self._compile(self.whole, order)(*arrays, *cotangents))
            made = as_list(self._compile(forward, order)(*arrays))
            for other in range(ORDERS + 1):
                saved = [made[k] for k in kept]
                yield as_list(self._compile(backward, other)(*arrays, *saved, *cotangents))
        wide = [np.asarray(a, float) if np.asarray(a).dtype == np.float32 else a
                for a in (*arrays, *cotangents)]  # fmt: skip
        for number in range(1, ROUNDINGS + 1):
            yield as_list(self._rounded(number % (ORDERS + 1))(*wide, rounding=number))

    def _rounded(self, order):
        if order not in self.rounded:
            self.rounded[order] = compile_reference(
                self.whole.to_mlir(), self.whole.name, None, digits=24, numbered=True, order=order
            )
        return self.rounded[order]


@pytest.mark.nightly
@pytest.mark.parametrize("name", OPTIONS)
def test_attention(name):
    program = ops.attention(head_dim=HEAD_DIM, **OPTIONS[name])
    whole, (forward, backward) = neptune.grad(program), neptune.vjp(program)
    unfused = Unfused(whole, (forward, backward))
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
            found = as_list(kernels[1](*arrays, *(made[k] for k in saved), *cotangents))
            plain = unfused.gradients(arrays, cotangents)
            errors = [0.0] * len(wanted)
            for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
                assert np.isfinite(f).all()
                while np.linalg.norm(f - w) > 2 * errors[k] + ULP * np.linalg.norm(w):
                    others = next(plain, None)
                    assert others is not None, (name, shape, k, np.linalg.norm(f - w), errors[k])
                    errors = [max(e, np.linalg.norm(o - x))
                              for e, o, x in zip(errors, others, wanted, strict=True)]  # fmt: skip
