# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SM clock and power of the GPU while something runs on it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from neptune_mlir.bench.figures import median

INTERVAL_S = 0.01


class Clocks:
    """`with Clocks() as c: ...`, then `c.figures()`; empty without nvidia-ml-py."""

    def __init__(self, device: int = 0):
        self._samples: list[tuple[int, float]] = []
        self._stop = threading.Event()
        self._handle: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(device)
            self._nvml = pynvml
        except Exception:
            return

    def __enter__(self) -> Clocks:
        if self._handle is not None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._stop.set()
        if self._handle is not None:
            self._thread.join()

    def _watch(self) -> None:
        nvml = self._nvml
        while True:
            try:
                self._samples.append((
                    nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM), self._watts(),
                ))  # fmt: skip
            except nvml.NVMLError:
                return
            if self._stop.wait(INTERVAL_S):
                return

    def _watts(self) -> float:
        """Of this moment where the driver has it, else its average over a second."""
        nvml = self._nvml
        field = getattr(nvml, "NVML_FI_DEV_POWER_INSTANT", None)
        if field is not None:
            [value] = nvml.nvmlDeviceGetFieldValues(self._handle, [field])
            if value.nvmlReturn == nvml.NVML_SUCCESS and value.value.uiVal:
                return float(value.value.uiVal) / 1000
        return float(nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1000

    def figures(self) -> dict[str, float]:
        """Median SM clock (MHz) and power (W)."""
        if not self._samples:
            return {}
        clocks, watts = zip(*self._samples, strict=True)
        return {"sm_mhz": median(clocks), "watts": median(watts)}
