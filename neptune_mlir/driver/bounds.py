# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Debug builds: positions that a program looks up are checked before it runs.

A release build clamps what a table says to what exists, and says nothing. Here a second program
(`check-bounds`) runs in front of it on the same arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neptune_mlir.dialects.attributes import BOUNDS
from neptune_mlir.dialects.program import functions
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.driver.kernel import Kernel, Source, compile
from neptune_mlir.errors import ArgumentError, UsageError
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import runner
from neptune_mlir.pipelines.runner import Step


class CheckedKernel:
    """A kernel whose calls check what they look up, and then run.

    Attributes:
        checker: takes the kernel's arguments, and `judge` its results; None of a program that
            looks nothing up.
        checks: how many positions are looked up.
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self._texts, text = _checker(kernel)
        source = Source(text, kernel.source.name)
        self.checker = compile(source, kernel.target) if text else None

    @property
    def checks(self) -> int:
        return len(self._texts)

    def judge(self, results: Sequence[Any]) -> None:
        """Raises ArgumentError for a position outside of a tensor."""
        found = [_number(x) for x in results]
        for k, text in enumerate(self._texts):
            _judge(text, *found[3 * k : 3 * k + 3])

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """As the kernel's; waits for the check.

        Raises:
            ArgumentError: a position outside of a tensor, with the op, the position and the bound.
        """
        if self.checker is not None:
            self.judge(self.checker(*arguments))
        return self.kernel(*arguments, **named)


def checked(kernel: Kernel) -> CheckedKernel:
    """A kernel as a debug build.

    Raises:
        UsageError: the kernel comes from a file, which has no program to look into.
    """
    if not kernel.source.text:
        raise UsageError("a bundle without its program cannot be checked", hint="compile it here")
    return CheckedKernel(kernel)


def _checker(kernel: Kernel) -> tuple[list[str], str]:
    """What each check is of, and the program that makes the numbers for it."""
    source = kernel.source
    module, _ = lower_text(
        source.text, source.name, kernel.target, kernel.schedule, "fused", kernel.knobs
    )
    with bindings.source_name(source.name):
        runner.run(module, (Step("check-bounds"),))
    with module.context:
        (function,) = functions(module)
        texts = list(BOUNDS.of(function.operation))
    return texts, str(module.operation.get_asm(enable_debug_info=True)) if texts else ""


def _number(value: Any) -> int:
    value = value.cpu() if hasattr(value, "cpu") else value
    return int(np.asarray(value).reshape(()))


def _judge(text: str, least: int, greatest: int, bound: int) -> None:
    if least > greatest:  # none is used
        return
    wrong = least if least < 0 else greatest
    if 0 <= wrong < bound:
        return
    place, _, rest = text.rpartition(": ")
    name, dim, position = rest.split(" ", 2)
    raise ArgumentError(
        f"{place}: position {wrong} in dimension {dim} of '{name}', which has {bound}",
        hint=f"it comes from {position}; a release build reads some element that exists",
    )
