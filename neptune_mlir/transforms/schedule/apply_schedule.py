# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`apply-schedule`: run a transform-dialect script on the module.

    neptune-opt IN.mlir --schedule=streamed            a shipped one by name
    neptune-opt IN.mlir --schedule=my.mlir             a file
    neptune-opt IN.mlir --apply-schedule=file=streamed,knobs=rows:32;stream:64

`part=fixed` runs the steps before the first that takes a number, whatever the knobs are, and
`part=bound` on what they leave the others: one after the other they do what the script does.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.errors import UsageError
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.schedule import library


@register("apply-schedule", "run a transform-dialect schedule (file=, or a shipped name)")
def apply_schedule(module: Any, *, file: str = "", knobs: str = "", part: str = "") -> None:
    from neptune_mlir.transforms.schedule import scripts

    if not file:
        raise UsageError(
            "apply-schedule needs file=", hint=f"shipped: {', '.join(library.shipped())}"
        )
    if part not in scripts.PARTS:
        raise UsageError(f"a schedule has no part '{part}'", hint="fixed, or bound")
    values = library.knob_values(knobs)
    scripts.apply(module, library.read(file), values, file, part)
