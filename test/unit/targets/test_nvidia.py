# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of NVIDIA chips against NVIDIA's published limits."""

from __future__ import annotations

import pytest

from neptune_mlir.errors import UsageError
from neptune_mlir.targets.nvidia import TARGETS, nvidia


def test_names_are_their_keys():
    assert all(name == target.name for name, target in TARGETS.items())


def test_code_runs_where_cuda_says():
    assert nvidia("sm_80").runs_on("sm_80")
    assert nvidia("sm_80").runs_on("sm_89")  # same major, newer minor
    assert not nvidia("sm_89").runs_on("sm_86")
    assert not nvidia("sm_80").runs_on("sm_90")  # machine code does not cross majors
    assert nvidia("sm_90a").runs_on("sm_90")
    assert not nvidia("sm_90a").runs_on("sm_100")


def test_unknown_target():
    with pytest.raises(UsageError, match="sm_12"):
        nvidia("sm_12")


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (128, 128, 0, 4),  # registers: 4 * 128 * 128 = 65536
        (128, 168, 0, 3),
        (128, 32, 100 * 1024, 2),  # shared memory
        (1024, 32, 0, 2),  # threads
        (32, 16, 0, 32),  # resident blocks
    ],
)
def test_occupancy(threads, registers, shared, blocks):
    assert nvidia("sm_90a").blocks_per_sm(threads, registers, shared) == blocks
