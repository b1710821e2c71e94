# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of a pass that add to parts, as those of GPUs do, on a CPU."""

from __future__ import annotations

import torch

from neptune_mlir.runtime.shards.plan import ShardArray


def staying(kernels):
    return [p.name for p in kernels.plan.parts if p.over == kernels.plan.axes[-1]]


ROWS = (ShardArray("made0", "f32", ("b", "h", "i")),)


def row_sums(kernels):
    """What is in common to runs: q's sums along rows."""
    return lambda q, *rest, out: out[0].copy_(q.sum(-1))


class Adding:
    """A kernel that adds to parts that stay, as those of GPUs do, and takes what is in common."""

    def __init__(self, kernels):
        self.kernels = kernels

    def __call__(self, *arguments, out):
        *arguments, sums = arguments
        assert torch.equal(sums, arguments[0].sum(-1))
        made = [torch.full_like(x, float("nan")) for x in out]
        self.kernels.local(*arguments, out=made)
        for p, x, to in zip(self.kernels.plan.parts, made, out, strict=True):
            to.copy_(to + x if p.name in staying(self.kernels) else x)
