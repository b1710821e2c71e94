# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joins whose programs trade parts with those of another device."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.driver.kernel import compile
from neptune_mlir.frontend.shard import split
from neptune_mlir.torch.distributed.kernels import ShardKernels
from support.chips import simt
from support.chips.link import Link
from support.chips.run_kernels import Simulated

HEADS, DIM = 3, 80
MEMORY = 1 << 20, 1 << 21  # addresses that the simulator's memory does not have


def simulated(meets):
    made = split(ops.attention(head_dim=DIM, q_len=1, dtype="f16"), ["j"])
    program = made.join("j", 2, meets)
    found = Simulated(lower_text(program.to_mlir(), program.name, "sm_80", None, "tile")[0])
    found.kernels()
    return found


def parts_of(rng, heads=HEADS):
    return [rng.standard_normal(s).astype(np.float32) for s in [(1, heads, 1), (1, heads, 1, DIM)]]


class Device(threading.Thread):
    """Calls a join with its own parts, one call after the other; `late`: seconds before each."""

    def __init__(self, kernel, rank, calls, late, timeout=1000):
        super().__init__()
        self.kernel, self.rank, self.calls = kernel, rank, calls
        self.late, self.timeout = late, timeout
        self.results, self.error = [], None

    def run(self):
        try:
            for parts in self.calls:
                time.sleep(self.late)
                both = [x for own in parts for x in (own, own)]
                own, other = MEMORY[self.rank], MEMORY[1 - self.rank]
                self.results.append(self.kernel(*both, own, other, self.rank, self.timeout))
        except AssertionError as error:
            self.error = error


def run(monkeypatch, late, calls, kernels, link):
    monkeypatch.setattr(simt.Memory, "link", link)
    devices = [Device(kernels[r], r, calls[r], late[r]) for r in (0, 1)]
    for d in devices:
        d.start()
    for d in devices:
        d.join(60)
    return devices


@pytest.fixture(scope="module")
def kernels():
    return [simulated(True) for _ in range(2)]


@pytest.mark.parametrize("late", [(0, 0), (0.05, 0), (0, 0.05)])
def test_whoever_is_late_each_has_the_bits_of_a_join(monkeypatch, kernels, late):
    plain, rng = simulated(False), np.random.default_rng(0)
    calls = [[parts_of(rng) for _ in range(5)] for _ in range(2)]
    devices = run(monkeypatch, late, calls, kernels, Link())
    for d in devices:
        assert d.error is None
        for n, made in enumerate(d.results):
            (t0, a0), (t1, a1) = calls[0][n], calls[1][n]
            np.testing.assert_array_equal(made, plain(t0, t1, a0, a1))


def test_a_slot_is_not_written_while_it_is_read(monkeypatch, kernels):
    """Calls take two in turns: with one, who is ahead writes over what the other has not read."""

    class OneSlot(Link):
        def count(self, address):
            return 2 * super().count(address)  # flags differ, the slot does not

        def give(self, address, value, flag):
            super().give(address, (flag or value + 1) // 2 if address in MEMORY else value, flag)

    class Slow(OneSlot):
        def take(self, address, flag, timeout):
            if address < MEMORY[1]:  # the first device reads late
                time.sleep(0.002)
            return super().take(address, flag, timeout)

    rng = np.random.default_rng(0)
    calls = [[parts_of(rng, 1) for _ in range(3)] for _ in range(2)]
    devices = run(monkeypatch, (0, 0), calls, kernels, Slow())
    assert any("nobody has read" in str(d.error) for d in devices)


def test_a_device_that_does_not_come_ends_in_an_error(monkeypatch, kernels):
    monkeypatch.setattr(simt.Memory, "link", Link())
    alone = Device(kernels[0], 0, [parts_of(np.random.default_rng(0))], 0, timeout=50)
    alone.start()
    alone.join(10)
    assert "ends in an error" in str(alone.error)


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


def test_what_a_join_trades():
    made = split(ops.attention(head_dim=16, q_len=1), ["j"])
    assert ShardKernels.of(made, "cpu").meeting("j", 2) is None
    kernels = ShardKernels.of(made, "sm_90a")
    assert kernels.meeting("j", 3) is None
    shapes = [(2, HEADS, 1), (2, HEADS, 1), (2, HEADS, 1, 16), (2, HEADS, 1, 16)]
    kernel = kernels.meeting("j", 2)
    # a program for each row; of each part a register of 32 threads
    assert kernel is not None and kernels.traded(kernel, shapes) == (2 * HEADS, 64)
