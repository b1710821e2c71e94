# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the lit tests, so that `pytest` alone runs every test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIT = Path(__file__).parent / "lit"
SUITES = sorted(p.name for p in LIT.iterdir() if p.is_dir() and p.name != "Output")


ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server that runs the tools (`support/tool_server.py`)."""
    address = str(tmp_path_factory.mktemp("tools") / "socket")
    command = [sys.executable, "-m", "support.tool_server", address]
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    paths = os.pathsep.join(
        map(str, (ROOT, ROOT / "test", ROOT / "test" / "support" / "lit_package"))
    )
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, **given) as process:
        assert process.stdout.readline() == "ready\n"
        yield address
        process.stdin.close()


@pytest.mark.parametrize("suite", SUITES)
def test_lit(suite, tmp_path, server):
    environment = {
        **os.environ, "NEPTUNE_LIT_OUTPUT": str(tmp_path), "NEPTUNE_TOOL_SERVER": server
    }  # fmt: skip
    program = "import sys; from lit.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "-sv", str(LIT / suite)],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
