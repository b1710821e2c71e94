# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each Python example runs as its own process and finds its own results right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.often import nightly_if

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


# the others call in a process of their own what other tests call
@pytest.mark.parametrize(
    "path", nightly_if(lambda p: p.stem != "weighted_variance", EXAMPLES), ids=lambda p: p.stem
)
def test_example(path, tmp_path):
    found = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, text=True, capture_output=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "error against float64" in found.stdout
