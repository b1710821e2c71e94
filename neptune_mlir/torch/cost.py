# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a call of attention is big enough for a kernel of ours, and what runs it if not."""

from __future__ import annotations

import math

import torch
from torch._subclasses.fake_tensor import FakeTensor

from neptune_mlir.targets.roofline import roof_of

# torch's own `scaled_dot_product_attention`, whatever overrides it
by_torch = torch.ops.aten.scaled_dot_product_attention.default.decompose

_KNOWN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def is_worth_a_call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether our kernel may be sooner done than torch's. Of extents that a call decides, of other
    devices than CPUs, of tensors over several devices, and of what `sdpa` refuses, yes."""
    if q.device.type != "cpu" or type(q) not in _KNOWN or not q.ndim == k.ndim == v.ndim == 4:
        return True
    sizes = [n for x in (q, k, v) for n in x.shape]
    roof = roof_of("cpu")
    if any(isinstance(n, torch.SymInt) for n in sizes) or 0 in sizes or roof is None:
        return True
    points = math.prod(q.shape[:3]) * k.shape[2]
    flops = 2 * points * (q.shape[3] + v.shape[3])
    elements = q.numel() + k.numel() + v.numel() + math.prod(q.shape[:3]) * v.shape[3]
    programs = math.prod(q.shape[:2])
    moved = elements * q.element_size()
    return roof.is_worth_a_call(flops, moved, programs, torch.get_num_threads())
