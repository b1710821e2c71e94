# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a call of attention is big enough for a kernel of ours, and what runs it if not."""

from __future__ import annotations

import math

import torch
from torch._subclasses.fake_tensor import FakeTensor

from neptune_mlir.targets.roofline import KEYS, roof_of

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
    each = 2 * math.prod(q.shape[:3]) * (q.shape[3] + v.shape[3])  # operations for a key
    flops, computed = each * k.shape[2], each * KEYS * -(-k.shape[2] // KEYS)
    elements = q.numel() + k.numel() + v.numel() + math.prod(q.shape[:3]) * v.shape[3]
    programs = math.prod(q.shape[:2])
    moved = elements * q.element_size()
    return roof.is_worth_a_call(flops, computed, moved, programs, torch.get_num_threads())
