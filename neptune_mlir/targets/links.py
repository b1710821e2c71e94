# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Links between devices, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Bytes a second from a device to the next one, and seconds until the first of them are
    there."""

    name: str
    bandwidth: float
    latency: float
    origin: str


NVLINK_4 = Link("NVLink 4, 18 links", 360e9, 10e-6, "measured: two H200s, copy engines")
NDR_400 = Link("InfiniBand NDR, one adapter a device", 45e9, 10e-6, "nominal 50 GB/s, 90% of it")
LINKS = {"nvlink4": NVLINK_4, "ndr400": NDR_400}
