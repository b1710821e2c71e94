# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a bundle says of the paths that its calls take, and of those that they miss."""

from __future__ import annotations

from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.paths import paths
from neptune_mlir.runtime.plan import Argument, Plan

PLAN = Plan("f", (Argument("tensor", "f16", (None,), "x"),), (), (), (), ())
MISS = {"path": "one pass", "condition": "no correction", "change": "another program"}
TEXT = "  missed: one pass: no correction; what would change it: another program"


def test_each_image_says_which_calls_it_is_for_and_how_they_run() -> None:
    images = [
        {"target": "sm_90a", "missed": [],
         "kernels": {"f_0": {"threads": 384, "consumers": 2, "registers": 168, "spills": 8,
                             "blocks_per_sm": 1, "resident": 1, "shared": 4096}}},
        {"target": "sm_90a", "when": ["le", 512, ["dim", 0, 0]], "missed": [MISS],
         "kernels": {"f_0": {"threads": 64, "registers": 40}}},
    ]  # fmt: skip
    assert paths(Bundle("sm_90a", PLAN, b"", {"images": images})) == [
        "other calls on sm_90a",
        "  f_0: specialised warps: a group that loads, 2 that compute, resident blocks, "
        "1 blocks a multiprocessor, 168 registers a thread, 8 bytes spilled a thread, "
        "4 KiB of shared memory",
        "calls where (512 <= x.shape[0]) on sm_90a",
        "  f_0: 64 threads, 40 registers a thread",
        TEXT,
    ]


def test_a_bundle_for_cpus_says_what_it_misses() -> None:
    facts = {"missed": [MISS], "kernels": 2}
    assert paths(Bundle("cpu", PLAN, b"", facts)) == ["other calls", TEXT]
    assert paths(Bundle("cpu", PLAN, b"", {})) == ["other calls"]
