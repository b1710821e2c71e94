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
from neptune_mlir.runtime.plan import Argument, Buffer, Launch, Plan
from neptune_mlir.torch.distributed.kernels import ShardKernels

PARTS = [["buffer", n] for n in (1, 2)]
ZEROS = Launch("zeros", (1,), (PARTS[1], ["value", "i32", 1]))
LAST = Launch("parts", (1,), (["buffer", 0], ["map", "buffer", 0, 2], *PARTS))


def kernels_of(rows, *launches, number=1):
    """Kernels whose local one has a buffer of so many rows, which the first launch makes."""
    first = Launch("sums", (1,), (["argument", 0], ["buffer", 0], ["value", "i32", number]))
    program = ops.attention(head_dim=4, v_dim=4, dtype="f32")
    shared = plan_of(split_vjp(program, ["i", "j"])[1])
    arguments = tuple(Argument("tensor", a.dtype, (None,) * 4, a.name) for a in shared.arguments)
    shape = (["dim", 0, 0], ["dim", 0, 1], rows)
    buffers = (Buffer("f32", shape), *[Buffer("f32", (1,))] * 3)
    rest = (first, *launches, LAST)
    adds = Plan("f", arguments, (), buffers, (ZEROS, *rest), tuple(PARTS))
    other = replace(adds, launches=rest)
    facts = {"images": [{"target": "sm_90a"}, {"when": 1, "plan": other.to_json()}],
             "alignment": [["buffer", 0, 8]]}  # fmt: skip
    bundle = Bundle("sm_90a", adds, b"", facts)
    return ShardKernels(shared, lambda name: Kernel.of_bundle(bundle, name), "sm_90a"), rest


def test_a_kernel_that_adds_lacks_what_sets_to_0():
    """Of the images, those that add to a result; the others would write over it."""
    kernels, rest = kernels_of(["dim", 1, 2])  # rows of what travels: all in each run
    assert kernels.added == (kernels.plan.parts[1].name,)
    (image,) = kernels.adding.bundle.facts["images"]
    assert kernels.adding.bundle.plan_of(image).launches == rest
    assert kernels.in_common == ()


def test_what_stays_is_made_once():
    """The second half of the plan takes it behind its arguments, as aligned as it was there."""
    kernels, (first, last) = kernels_of(["dim", 0, 2])
    assert [(a.dtype, a.axes) for a in kernels.in_common] == [("f32", ("b", "h", "i"))]
    (image,) = kernels.once.bundle.facts["images"]
    once = kernels.once.bundle.plan_of(image)
    assert (once.launches, [*once.results]) == ((first,), [["buffer", 0]])
    (image,) = kernels.adding.bundle.facts["images"]
    each, place = kernels.adding.bundle.plan_of(image), len(kernels.plan.arguments)
    assert each.launches == (replace(last, operands=(
        ["argument", place], ["map", "argument", place, 2], *PARTS
    )),)  # fmt: skip
    assert each.arguments[place].shape == (None, None, None) and [*each.results] == PARTS
    assert ["argument", place, 8] in image["alignment"]


@pytest.mark.parametrize("launches, number", [
    ((), ["argument", 0]),  # a number of a run
    ((), ["add", 1, ["dim", 1, 2]]),  # the extent of what travels
    ((Launch("more", (1,), (["buffer", 0], ["argument", 1])),), 1),  # it may write over it
])  # fmt: skip
def test_what_runs_may_change_is_made_in_each(launches, number):
    kernels, rest = kernels_of(["dim", 0, 2], *launches, number=number)
    assert kernels.in_common == () and kernels.adding.bundle.plan.launches == rest
