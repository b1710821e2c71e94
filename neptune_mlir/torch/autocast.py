# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands of ours inside of `torch.autocast`: as torch's own products and attention take them."""

from __future__ import annotations

import torch

# torch.compile of torch before 2.13 cannot trace `torch.amp.is_autocast_available`, and a device
# without autocast (meta) may not be asked whether it is on
_DEVICES = ("cpu", "cuda")


def cast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Tensors; where autocast is on for the first one's device, floats of up to 32 bits in its
    type."""
    device = tensors[0].device.type
    if device not in _DEVICES or not torch.is_autocast_enabled(device):
        return tensors
    kind = torch.get_autocast_dtype(device)
    return tuple(
        x.to(kind) if x.is_floating_point() and x.dtype is not torch.float64 else x
        for x in tensors
    )  # fmt: skip
