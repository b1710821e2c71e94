# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a worker does otherwise on a GPU and on the CPU: load, call, wait, time."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch

from neptune_mlir.bench import timing
from neptune_mlir.bench.figures import median
from neptune_mlir.runtime import workers
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.paths import path_of

Call = Callable[[], Any]
PACKAGES = ("triton", "flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels")


def device_of(name: str) -> OnGpu | OnCpu:
    return OnCpu() if name == "cpu" else OnGpu()


class OnGpu:
    name = "cuda"

    def load(self, bundle: Bundle) -> Any:
        from neptune_mlir.runtime.gpu import GpuExecutable

        return GpuExecutable(bundle)

    def prepare(self, run: Any, arrays: Any, out: Any) -> Any:
        from neptune_mlir.bench.check import workspace

        return run.prepare(*arrays, out=out, workspace=workspace(run, arrays))

    def path(self, prepared: Any) -> list[str]:
        """How the kernels of a call run, and what they miss."""
        return path_of(prepared.image.facts)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def forget(self) -> None:
        torch.cuda.empty_cache()

    def timed(self, call: Call) -> Any:
        return timing.Timed(call)

    def limits(self) -> dict[str, float]:
        return timing.limits()

    def facts(self) -> dict[str, Any]:
        p = torch.cuda.get_device_properties(0)
        return {
            "name": p.name, "multiprocessors": p.multi_processor_count,
            "capability": [p.major, p.minor], "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), **_versions(),
        }  # fmt: skip

    def is_usable(self) -> bool:
        """A kernel that faulted leaves its process without a GPU."""
        try:
            torch.cuda.synchronize()
        except Exception:
            return False
        return True


class OnCpu:
    """With as many threads as the runtime takes (NEPTUNE_NUM_THREADS), torch too."""

    name = "cpu"

    def __init__(self) -> None:
        torch.set_num_threads(workers.count())

    def load(self, bundle: Bundle) -> Any:
        from neptune_mlir.runtime.cpu import CpuExecutable

        return CpuExecutable(bundle)

    def prepare(self, run: Any, arrays: Any, out: Any) -> Any:
        return run.prepare(*arrays, out=out)

    def path(self, prepared: Any) -> list[str]:
        return []

    def synchronize(self) -> None: ...

    def forget(self) -> None: ...

    def timed(self, call: Call) -> CpuTimed:
        return CpuTimed(call)

    def limits(self) -> dict[str, float]:
        """Products of f32 and a copy, as torch does them."""
        a, b = (torch.randn(1024, 1024) for _ in range(2))
        out = torch.empty_like(a)
        product = median(CpuTimed(lambda: torch.mm(a, b, out=out)).round_us())
        source, target = (torch.zeros(1 << 24) for _ in range(2))
        copied = median(CpuTimed(lambda: target.copy_(source)).round_us())
        size = source.numel() * source.element_size()
        return {"matmul_f32": 2 * 1024**3 / product * 1e6, "copy": 2 * size / copied * 1e6}

    def facts(self) -> dict[str, Any]:
        return {
            "name": platform.processor() or platform.machine(), "threads": workers.count(),
            "cores": os.cpu_count(), "torch": torch.__version__, **_versions(),
        }  # fmt: skip

    def is_usable(self) -> bool:
        return True


class CpuTimed:
    """A call that was warmed up; a sample is the mean of enough calls for a millisecond."""

    SAMPLES, SAMPLE_US, ROUND_US = 7, 1e3, 1e5

    graph = None
    note = ""

    def __init__(self, call: Call):
        self.call = call
        self.output = call()
        estimate = min(self._sample(1) for _ in range(2))
        self.repeats = max(1, math.ceil(self.SAMPLE_US / max(estimate, 0.1)))
        each = max(estimate, 0.1) * self.repeats
        self.samples = int(min(self.SAMPLES, max(2, self.ROUND_US / each)))

    def _sample(self, repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            self.output = self.call()
        return (time.perf_counter() - start) / repeats * 1e6

    def round_us(self) -> list[float]:
        """The samples of one round."""
        return [self._sample(self.repeats) for _ in range(self.samples)]

    def poisoned(self) -> Any:
        """The result of another call, into memory that held NaN."""
        for one in self.output if isinstance(self.output, tuple) else (self.output,):
            one.fill_(math.nan)
        return self.call()


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
