# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Child processes that files feed: what they make, how they die, and when they are too slow."""

import sys

import pytest

from neptune_mlir import child
from neptune_mlir.errors import ToolError


def run(program, given=b"", timeout=60.0):
    return child.run([sys.executable, "-I", "-S", "-c", program], given, timeout, "too slow")


def test_a_child_reads_more_than_a_pipe_holds_before_it_writes():
    given = bytes(range(256)) * 4096
    ended = run("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", given)
    assert (ended.made, ended.said, ended.status, ended.signal) == (given[::-1], "", 0, "")


def test_a_child_that_fails_says_why():
    ended = run("print('half'); raise SystemExit('no such thing')")
    assert (ended.made, ended.said.strip(), ended.status) == (b"half\n", "no such thing", 1)
    assert ended.signal == ""


def test_a_child_that_dies_has_a_signal():
    ended = run("import os; os.abort()")
    assert (ended.signal, ended.status) == ("SIGABRT", -6)


def test_a_child_that_takes_too_long_is_an_error():
    with pytest.raises(ToolError, match=r"^too slow$"):
        run("import time; time.sleep(60)", timeout=0.2)
