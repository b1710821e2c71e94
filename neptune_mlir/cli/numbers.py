# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of arguments that are numbers."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that takes whole numbers from `least` on."""

    def number(text: str) -> int:
        found = int(text)
        if found < least:
            raise argparse.ArgumentTypeError(f"{found} is less than {least}")
        return found

    number.__name__ = "int"  # argparse says it of what is no number: invalid int value
    return number


seed = at_least(0)  # NumPy's generators take no other
