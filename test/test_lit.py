# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the lit tests, so that `pytest` alone runs every test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIT = Path(__file__).parent / "lit"
SUITES = sorted(p.name for p in LIT.iterdir() if p.is_dir() and p.name != "Output")


@pytest.mark.parametrize("suite", SUITES)
def test_lit(suite, tmp_path):
    environment = {**os.environ, "NEPTUNE_LIT_OUTPUT": str(tmp_path)}
    program = "import sys; from lit.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "-sv", str(LIT / suite)],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
