# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`sm_87`, Jetson AGX Orin: as sm_80, with fewer threads on a multiprocessor."""

from __future__ import annotations

from dataclasses import replace

from neptune_mlir.targets.chips import register
from neptune_mlir.targets.nvidia import nvidia

register(replace(nvidia("sm_80"), name="sm_87", threads=1536))
