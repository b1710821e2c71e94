# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the lit tests, so that `pytest` alone runs every test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIT = Path(__file__).parent / "lit"
SUITES = sorted(p.name for p in LIT.iterdir() if p.is_dir() and p.name != "Output")


ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def server():
    """A process that runs suites (`support/lit_process.py`)."""
    paths = (ROOT, ROOT / "test", ROOT / "test" / "support" / "lit_package")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", "support.lit_process"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("suite", SUITES)
def test_lit(suite, tmp_path, server):
    print(LIT / suite, tmp_path, file=server.stdin)
    failed = server.stdout.readline()
    assert failed == "0\n", (tmp_path / "said").read_text()


RIGHT = """func.func @f() { return }
// CHECK: func.func @f
// UNKNOWN: no-such-pass
// NAME: given
// RUN: neptune-opt %s | filecheck %s
// RUN: neptune-opt - < %s | filecheck %s
// RUN: neptune-opt %s -o %t && filecheck %s --input-file %t
// RUN: not neptune-opt %s --pass-pipeline='builtin.module(no-such-pass)' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: env NAME=given %python -c "import os; print(os.environ['NAME'])" | filecheck %s --check-prefix=NAME
"""  # noqa: E501
WRONG = {
    "text": "// RUN: neptune-opt %s | filecheck %s\n// CHECK: no_such_text",
    "nothing": "// RUN: neptune-opt %s -o %t | filecheck %s\n// CHECK: func",
    "status": "// RUN: neptune-opt %s --no-such-pass",
    "no-error": "// RUN: not neptune-opt %s",
    "an-error-in-a-pipe": "// RUN: neptune-opt %s --no-such-pass 2>&1 | filecheck %s\n// CHECK: no",
    "one-that-dies": '// RUN: %python -c "import os; os.abort()"',
    "one-that-dies-where-none-should": '// RUN: not %python -c "import os; os.abort()"',
    "the-environment-of-another": "// RUN: %python -c \"import os; os.environ['NAME']\"",
}


def test_what_fails_is_said(tmp_path, server):
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "lit.cfg.py").write_text((LIT / "lit.cfg.py").read_text())
    (suite / "right.mlir").write_text(RIGHT)
    for name, text in WRONG.items():
        (suite / f"{name}.mlir").write_text(f"func.func @f() {{ return }}\n{text}\n")
    print(suite, tmp_path, file=server.stdin)
    failed, said = server.stdout.readline(), (tmp_path / "said").read_text()
    assert failed == "1\n"
    begun = re.split(r"^neptune-mlir :: ", said, flags=re.MULTILINE)[1:]
    failures = {part.partition(".mlir")[0] for part in begun if "RUN: at line" in part}
    assert failures == set(WRONG), said
