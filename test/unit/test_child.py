# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Child processes that files feed: what they make, how they die, and when they are too slow."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

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


@pytest.fixture
def forks(tmp_path, monkeypatch):
    """Runs the body of a function `main(arguments)` as forks of one process."""

    def begin(body):
        name = f"child_module_{tmp_path.name}"
        lines = ["import os, sys, time", "SET = []", "def prepare(): SET.append(os.getpid())",
                 "def main(arguments):", *(f"    {line}" for line in body.split("\n"))]  # fmt: skip
        (tmp_path / f"{name}.py").write_text("\n".join(lines))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        return lambda *given, data=b"", timeout=60.0: child.forked(
            name, given, data, timeout, "too slow"
        )

    return begin


def test_forks_read_write_and_fail(forks):
    run = forks(
        "print(SET[0], os.getpid(), *arguments, sys.stdin.read()[::-1])\n"
        "if arguments == ['die']: sys.stdout.flush(); os.abort()\n"
        "if arguments == ['fail']: raise ValueError('no such thing')\n"
        "return int(arguments[0])"
    )
    first = run("0", data="é".encode() * 100_000)
    server, fork, *rest = first.made.decode().split()
    assert rest == ["0", "é" * 100_000] and server != fork
    assert (first.said, first.status, first.signal) == ("", 0, "")
    second = run("3")
    assert second.status == 3 and second.made.split()[0].decode() == server
    died, failed = run("die"), run("fail")
    assert (died.signal, died.made.split()[2]) == ("SIGABRT", b"die")
    assert (failed.status, failed.said.strip()) == (1, "ValueError: no such thing")
    os.kill(int(server), signal.SIGKILL)  # whoever needs it starts another one
    again = run("0")
    assert again.status == 0 and again.made.split()[0].decode() != server


def test_forks_run_side_by_side_and_not_for_ever(forks):
    run = forks("print(time.monotonic()); time.sleep(float(arguments[0])); return 0")
    with pytest.raises(ToolError, match=r"^too slow$"):
        run("60", timeout=0.2)
    began = time.monotonic()
    with ThreadPoolExecutor() as threads:
        ends = list(threads.map(lambda _: run("0.5"), range(4)))
    assert [e.status for e in ends] == [0] * 4
    starts = [float(e.made) for e in ends]
    assert max(starts) - min(starts) < 0.5 or time.monotonic() - began < 2


def test_the_process_that_forks_ends_with_its_user(tmp_path):
    (tmp_path / "one.py").write_text(
        "import os\ndef prepare(): pass\ndef main(arguments): print(os.getppid()); return 0\n"
    )
    program = (
        "from neptune_mlir import child\n"
        "import os, pathlib\n"
        "parent = int(child.forked('one', [], b'', 60, 'late').made)\n"
        "print(pathlib.Path(f'/proc/{parent}/stat').read_text().split()[3])\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
