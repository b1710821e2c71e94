# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose streamed arguments lie in two arrays, one of which is on its way as they begin."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.frontend.shard import split
from neptune_mlir.runtime.shards.gift import Gift
from neptune_mlir.runtime.shards.in_two import ArraysInTwo, can_give, can_take
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
        self.arrays = arrays  # by argument
        self.first, self.rows = first, rows
        self.most = -1

    def __call__(self, word, passed):
        self.asked.append(passed)
        self.most = passed = max(passed, self.most)
        memory = self.kernel.memory
        for number, x in self.arrays.items():
            address = self.kernel.behind[number][0]
            if self.first:
                address = self.kernel.placed["argument", number][0]
            there = np.full_like(x, np.nan).reshape(-1, *x.shape[2:])
            lanes = x.reshape(there.shape)
            if self.rows:
                begin = x.shape[2] - self.rows if passed < self.rows else 0  # two steps
                there[:, begin:] = lanes[:, begin:]
            else:
                there[: passed + 1] = lanes[: passed + 1]
            raw = simt.to_bytes(there.reshape(1, -1), "f16").reshape(-1)
            memory.heap[address : address + len(raw)] = raw
        assert word == WORD


@pytest.mark.first_of_each("resident")
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("causal, group", [(False, 1), (False, 2), (True, 1)])
@pytest.mark.parametrize("rows, cut", [(130, 64), (128, 192)])
def test_the_second_array_comes_late(causal, group, resident, rows, cut):
    """The results have the bits that one array gives, and nobody reads what has not come."""
    _, kernel = kernel_of(causal, resident, group)
    rng = np.random.default_rng(cut)
    q = rng.standard_normal((1, LANES * group, rows, HEAD)).astype(np.float16)
    k, v = rng.standard_normal((2, 1, LANES, 300 if not causal else rows, HEAD)).astype(np.float16)
    cut = min(cut, 64 if causal else cut)
    kernel.come = None
    want = kernel(q, k, v)
    pairs = [(x[:, :, :cut], x[:, :, cut:]) for x in (k, v)]
    late = [ArraysInTwo((a, np.full_like(b, np.nan)), 2, 1, WORD, 1000) for a, b in pairs]
    kernel.come = coming = Coming(kernel, {n + 1: b for n, (_, b) in enumerate(pairs)})
    np.testing.assert_array_equal(kernel(q, *late), want)
    assert set(coming.asked) == set(range(LANES))
    programs = -(-rows // 128) * LANES * group
    assert len(coming.asked) <= programs  # not for each tensor
    for step in (0, 64):  # the first one, by lanes or by positions; lanes in another order
        late = [ArraysInTwo((np.full_like(a, np.nan), b), 2, 0, WORD, 1000, step, 1)
                for a, b in pairs]  # fmt: skip
        first = {n + 1: a for n, (a, _) in enumerate(pairs)}
        kernel.come = coming = Coming(kernel, first, True, step)
        np.testing.assert_array_equal(kernel(q, *late), want)
        last = cut - 1 if step else LANES - 1  # nobody asks for what is known to be there
        assert set(coming.asked) <= ({63, last} if step else {*range(LANES)})
        assert max(coming.asked) == last
    both = [ArraysInTwo(pair, 2) for pair in pairs]
    kernel.come = None
    np.testing.assert_array_equal(kernel(q, *both), want)


class Given:
    """What a kernel sends: half of the positions of its own arrays, twice as far apart there."""

    def __init__(self, arrays, step):
        self.arrays, self.step = arrays, step

    def __call__(self, kernel):
        self.kernel, lanes = kernel, self.arrays[0].shape[1]
        _, _, size, width = self.arrays[0].shape
        self.row, self.size = width * 2, size
        places = [kernel.behind[n + 1][0] for n in range(len(self.arrays))]
        room = np.full(2 * self.arrays[0].size * 2, 0x55, np.uint8)
        self.there = [kernel.memory.put(room) for _ in self.arrays]
        self.words = kernel.memory.put(np.array([0, 0, 7, 7], np.int32).view(np.uint8))
        made = Gift(
            tuple(zip(places, self.there, strict=True)), lanes, size * self.row,
            2 * size * self.row, size, self.row, self.step, self.words + 8, self.words,
            self.words + 12,
        )  # fmt: skip
        assert made.is_possible()
        return made

    def check(self):
        heap, lane = self.kernel.memory.heap, self.size * self.row
        for x, at in zip(self.arrays, self.there, strict=True):
            found = heap[at : at + 4 * x.size].reshape(-1, 2 * lane)
            np.testing.assert_array_equal(found[:, :lane], x.reshape(len(found), -1).view(np.uint8))
            assert (found[:, lane:] == 0x55).all()
        words = heap[self.words : self.words + 16].view(np.int32)
        assert [*words] == [0, 0, self.size, 0]


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("step", [128, 64])
def test_idle_warps_send_positions(resident, step):
    """They write into the other device's memory what it waits for, and say how much; results are
    those of a kernel that sends nothing."""
    _, kernel = kernel_of(True, resident)
    assert can_give(kernel.plan)
    rng = np.random.default_rng(step)
    q, k, v = rng.standard_normal((3, 1, LANES, 192, HEAD)).astype(np.float16)
    kernel.come = None
    want = kernel(q, k, v)
    pairs = [(np.ascontiguousarray(x[:, :, :64]), np.ascontiguousarray(x[:, :, 64:]))
             for x in (k, v)]  # fmt: skip
    given = Given([b for _, b in pairs], step)
    both = [ArraysInTwo(pair, 2, gift=given) for pair in pairs]
    np.testing.assert_array_equal(kernel(q, *both), want)
    given.check()


def test_kernels_without_a_mask_send_nothing():
    _, kernel = kernel_of(False)
    assert not can_give(kernel.plan)


@pytest.mark.parametrize("other", [
    {"row": 24}, {"step": 0}, {"step": 260}, {"lanes": 1 << 24}, {"source_lane": 8},
    {"pairs": ((16, 24),)}, {"pairs": ((16, 16),) * 5},
])  # fmt: skip
def test_gifts_that_no_kernel_sends(other):
    """Parts of a chunk, more bytes than 32 bits reach, addresses that are not aligned."""
    gift = Gift(((16, 32),), 2, 1 << 16, 1 << 16, 256, 256, 128, 4, 8)
    assert gift.is_possible() and not replace(gift, **other).is_possible()


def test_what_kernels_say_that_they_take():
    _, kernel = kernel_of(False)
    assert can_take(kernel.plan, [1, 2], 128)
    assert not can_take(kernel.plan, [1, 2], 32)  # tiles have 64 rows
    assert not can_take(kernel.plan, [0], 128)


def test_pieces_as_points():
    """Runs of two pieces as one: each has its own start, and columns that it does not see."""
    program = split(
        ops.attention(head_dim=HEAD, v_dim=HEAD, dtype="f16", causal=True), ["i", "j"]
    ).stacked  # fmt: skip
    kernel = Specialised(program, Choice(128, STREAM), 2)
    rng, rows, cut = np.random.default_rng(1), 128, 192
    q = rng.standard_normal((2, LANES, rows, HEAD)).astype(np.float16)
    k, v = rng.standard_normal((2, LANES, cut + 2 * rows, HEAD)).astype(np.float16)
    starts, lows = np.array([cut, cut + rows]), np.array([cut, 0])
    told = (4096, 4096, starts, lows)
    want = kernel(q, k, v, *told)
    for b in (0, 1):
        i, j = np.arange(rows)[:, None] + starts[b], np.arange(cut + 2 * rows)
        s = np.einsum("hid,hjd->hij", q[b].astype(float), k.astype(float)) * HEAD**-0.5
        s = np.where((j <= i) & (j >= lows[b]), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        right = np.einsum("hij,hjd->hid", p / p.sum(-1, keepdims=True), v.astype(float))
        assert abs(want[b] - right).max() < 2e-3
    for step in (0, 64):
        late = [ArraysInTwo((np.full_like(x[:, :cut], np.nan), x[:, cut:]), 1, 0, WORD, 1000,
                            step, -1) for x in (k, v)]  # fmt: skip
        first = {n + 1: x[None, :, :cut] for n, x in enumerate((k, v))}
        kernel.come = Coming(kernel, first, True, step)
        np.testing.assert_array_equal(kernel(q, *late, *told), want)
        assert set(kernel.come.asked) == ({63, cut - 1} if step else {*range(LANES)})
