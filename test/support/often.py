# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of the programs of test/inputs run on targets other than the CPU with each change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def often(inputs: Sequence[Path]) -> list[Any]:
    """All, those that torch wrote nightly: they are further spellings of what the others say, and
    `test_inputs.py` runs each of them on the CPU with each change."""
    return [
        pytest.param(path, marks=[pytest.mark.nightly] if path.stem.startswith("torch_") else [])
        for path in inputs
    ]
