# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which driver runs code: by the names of the chips that it is for."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.drivers.cuda import CudaDriver
from neptune_mlir.runtime.drivers.driver import Driver
from neptune_mlir.runtime.drivers.hip import HipDriver

DRIVERS: tuple[type[Driver], ...] = (CudaDriver, HipDriver)


@functools.cache
def driver(kind: type[Driver]) -> Driver:
    """The driver of a maker that has a device here.

    Raises:
        ToolError: there is no driver or no device, or none that this user may open.
    """
    found = kind()
    if not found.device_names():
        message = f"the {kind.maker.library} finds no {kind.maker.name} GPU"
        raise ToolError(message, hint=kind.why_no_device() or None)
    return found


def driver_for(chips: Sequence[str]) -> Driver:
    """The driver that runs code for one of these chips (`sm_90a`, `gfx942`): where they are of
    several makers, of the first one that has a device here.

    Raises:
        ToolError: there is none; it says why.
    """
    reasons: list[ToolError] = []
    for kind in DRIVERS:
        if any(chip.startswith(kind.maker.prefix) for chip in chips):
            try:
                return driver(kind)
            except ToolError as error:
                reasons.append(error)
    hints = [reason.hint for reason in reasons if reason.hint]
    raise ToolError("; ".join(r.message for r in reasons), hint="; ".join(hints) or None)
