# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose streamed arguments lie in two arrays, one of which is on its way as they begin."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.runtime.shards.in_two import ArraysInTwo, can_take
from neptune_mlir.targets.tuned import Choice
from support.chips import simt
from support.chips.run_kernels import Specialised

HEAD, STREAM, LANES = 64, 64, 2
WORD = 1 << 20  # an address that the simulator's memory does not have


@cache
def kernel_of(causal, resident=False, group=1):
    program = ops.attention(head_dim=HEAD, dtype="f16", causal=causal, group=group)
    program.in_two = {"k": 2, "v": 2}
    return program, Specialised(program, Choice(128, STREAM, resident=resident), 2)


class Coming:
    """Lanes of two arrays, or positions of all lanes from the last one down, come when a kernel has
    waited for them; before, they are no numbers."""

    def __init__(self, kernel, arrays, first=False, rows=0):
        self.kernel, self.asked = kernel, []
        self.arrays = arrays  # by argument, which has a word of its own
        self.first, self.rows = first, rows
        self.most = dict.fromkeys(arrays, -1)

    def __call__(self, word, passed):
        self.asked.append(passed)
        memory, number = self.kernel.memory, word - WORD
        self.most[number] = passed = max(passed, self.most[number])
        x = self.arrays[number]
        address = self.kernel.behind[number][0]
        if self.first:
            address = self.kernel.placed["argument", number][0]
        there = np.full_like(x, np.nan).reshape(-1, *x.shape[2:])
        lanes = x.reshape(there.shape)
        if self.rows:
            come = (passed // self.rows + 1) * self.rows  # by steps, from the last one down
            there[:, -come:] = lanes[:, -come:]
        else:
            there[: passed + 1] = lanes[: passed + 1]
        raw = simt.to_bytes(there.reshape(1, -1), "f16").reshape(-1)
        memory.heap[address : address + len(raw)] = raw


@pytest.mark.first_of_each("resident")
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("causal, group", [(False, 1), (False, 2), (True, 1)])
@pytest.mark.parametrize("rows, cut", [(130, 128), (128, 192)])
def test_the_second_array_comes_late(causal, group, resident, rows, cut):
    """The results have the bits that one array gives, and nobody reads what has not come."""
    _, kernel = kernel_of(causal, resident, group)
    rng = np.random.default_rng(cut)
    q = rng.standard_normal((1, LANES * group, rows, HEAD)).astype(np.float16)
    k, v = rng.standard_normal((2, 1, LANES, 300 if not causal else rows, HEAD)).astype(np.float16)
    cut = min(cut, (rows - 1) // STREAM * STREAM if causal else cut)
    kernel.come = None
    want = kernel(q, k, v)
    pairs = [(x[:, :, :cut], x[:, :, cut:]) for x in (k, v)]
    words = [WORD + 1, WORD + 2]
    late = [ArraysInTwo((a, np.full_like(b, np.nan)), 2, 1, word, 1000)
            for (a, b), word in zip(pairs, words, strict=True)]  # fmt: skip
    kernel.come = coming = Coming(kernel, {n + 1: b for n, (_, b) in enumerate(pairs)})
    np.testing.assert_array_equal(kernel(q, *late), want)
    assert set(coming.asked) == set(range(LANES))
    programs = -(-rows // 128) * LANES * group
    assert len(coming.asked) <= 2 * programs  # once for each tensor
    for step in (0, 64, 128):  # the first one, by lanes or by positions; lanes in another order
        late = [ArraysInTwo((np.full_like(a, np.nan), b), 2, 0, word, 1000, step, 1)
                for (a, b), word in zip(pairs, words, strict=True)]  # fmt: skip
        first = {n + 1: a for n, (a, _) in enumerate(pairs)}
        kernel.come = coming = Coming(kernel, first, True, step)
        np.testing.assert_array_equal(kernel(q, *late), want)
        last = cut - 1 if step else LANES - 1  # nobody asks for what is known to be there
        ends = {min(cut, n) - 1 for n in range(step, cut + step, step or cut)}
        assert set(coming.asked) <= (ends if step else {*range(LANES)})
        assert max(coming.asked) == last
    both = [ArraysInTwo(pair, 2) for pair in pairs]
    kernel.come = None
    np.testing.assert_array_equal(kernel(q, *both), want)


def test_what_kernels_say_that_they_take():
    _, kernel = kernel_of(False)
    assert can_take(kernel.plan, [1, 2], 128)
    assert not can_take(kernel.plan, [1, 2], 32)  # tiles have 64 rows
    assert not can_take(kernel.plan, [0], 128)
