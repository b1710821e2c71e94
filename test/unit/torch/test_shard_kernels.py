# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of several devices that are made of others."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from neptune_mlir import ops
from neptune_mlir.driver.kernel import Kernel
from neptune_mlir.frontend.shard import split_vjp
from neptune_mlir.frontend.shard.plan import plan_of
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Launch, Plan
from neptune_mlir.torch.distributed.kernels import ShardKernels


def test_a_kernel_that_adds_lacks_what_sets_to_0():
    """Of the images, those that add to a result; the others would write over it."""
    query, scratch, parts = ["argument", 0], ["buffer", 0], [["buffer", n] for n in (1, 2)]
    zeros = Launch("zeros", (1,), (parts[1], ["value", "i32", 1]))
    first, last = Launch("sums", (1,), (query, scratch)), Launch("parts", (1,), (scratch, *parts))
    adds = Plan("f", (), (), (), (zeros, first, last), tuple(parts))
    other = replace(adds, launches=(first, last))
    images = [{"target": "sm_90a"}, {"target": "sm_90a", "when": 1, "plan": other.to_json()}]
    bundle = Bundle("sm_90a", adds, b"", {"images": images})
    program = ops.attention(head_dim=4, v_dim=4, dtype="f32")
    shared = plan_of(split_vjp(program, ["i", "j"])[1])
    kernels = ShardKernels(shared, lambda name: Kernel.of_bundle(bundle, name), "sm_90a")
    assert kernels.added == (kernels.plan.parts[1].name,)
    (image,) = kernels.adding.bundle.facts["images"]
    assert kernels.adding.bundle.plan_of(image).launches == (first, last)
