# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joins whose programs meet those of another device before they read its parts."""

from __future__ import annotations

import numpy as np

from neptune_mlir import ops
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.driver.kernel import compile
from neptune_mlir.frontend.shard import split
from support.chips import simt
from support.chips.run_kernels import Simulated

HEADS, OWN, OTHER = 40, 1 << 20, 1 << 21  # addresses that the simulator's memory does not have


def joins():
    made = split(ops.attention(head_dim=64, q_len=1, dtype="f16"), ["j"])
    found = []
    for meets in (False, True):
        program = made.join("j", 2, meets)
        text = lower_text(program.to_mlir(), program.name, "sm_80", None, "tile")[0]
        found.append(Simulated(text))
    return found


def test_nothing_is_read_before_the_other_device_is_met(monkeypatch):
    plain, meeting = joins()
    rng = np.random.default_rng(0)
    shapes = [(1, HEADS, 1), (1, HEADS, 1), (1, HEADS, 1, 64), (1, HEADS, 1, 64)]
    parts = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    want = plain(*parts)
    met = []

    def come(memory, own, other):
        met.append((own - OWN, other - OTHER))
        for k in (1, 3):  # its kernels before the join are done
            address = meeting.placed["argument", k][0]
            raw = simt.to_bytes(parts[k].reshape(1, -1), "f32").reshape(-1)
            memory.heap[address : address + len(raw)] = raw

    monkeypatch.setattr(simt.Memory, "met", come)
    late = [x if k in (0, 2) else np.full_like(x, np.nan) for k, x in enumerate(parts)]
    np.testing.assert_array_equal(meeting(*late, OWN, OTHER, 900), want)
    # a word for each row, which is a program of its own
    assert met == [(4 * k, 4 * k) for k in range(len(met))] and len(met) == HEADS
    monkeypatch.setattr(simt.Memory, "met", None)
    np.testing.assert_array_equal(meeting(*parts, 0, 0, 0), want)  # nobody is to be met


def test_it_starts_while_what_was_launched_before_runs():
    made = split(ops.attention(head_dim=64, q_len=1, dtype="f16"), ["j"])
    for meets, follows in ((False, 0), (True, 2)):
        bundle = compile(made.join("j", 2, meets), "sm_90a", on_demand=False).bundle
        (image,) = bundle.facts["images"]
        assert [k["follows"] for k in image["kernels"].values()] == [follows]


def test_the_last_kernel_in_front_of_it_lets_it_start():
    local = split(ops.attention(head_dim=16, q_len=1, dtype="f16"), ["j"]).local
    text = str(lower_text(local.to_mlir(), local.name, "sm_90a", None, "tile")[0])
    for told, lets in ((text, True), (text.replace(", neptune.followed", ""), False)):
        *_, last = str(Simulated(told, target="sm_90a").module).split("gpu.func ")
        assert ("griddepcontrol.launch_dependents" in last) == lets


def test_cpus_meet_nobody():
    from neptune_mlir.torch.distributed.kernels import ShardKernels

    made = split(ops.attention(head_dim=16, q_len=1), ["j"])
    assert ShardKernels.of(made, "cpu").meeting("j", 2) is None
