# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Child processes that files feed.

What LLVM and the passes of other projects cannot handle ends their process, so they run in one of
their own. Files feed it, not pipes: who waits for it is often a thread, and to feed a pipe would
have to interrupt the one that compiles the next kernel again and again.

A child in Python takes longer to start than LLVM does for a short kernel, and a bundle may have
twenty of these. So `forked` starts a process once that imports what the children need, and each
child is a fork of it. That process has one thread. It ends when whoever started it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from neptune_mlir.errors import ToolError

_MOST = 1 << 16  # bytes of a request: the arguments of a child
_FILES = 4  # its standard input, output and error, and the socket for its exit status


@dataclass(frozen=True)
class Ended:
    """How a child ended: what it wrote, what it said on standard error, and its exit status (as
    `subprocess` has it: less than 0 for a signal)."""

    made: bytes
    said: str
    status: int

    @property
    def signal(self) -> str:
        """The name of the signal that it died of, "" where it ended by itself."""
        return signal.Signals(-self.status).name if self.status < 0 else ""


@contextlib.contextmanager
def _files(given: bytes) -> Iterator[tuple[IO[bytes], IO[bytes], IO[bytes]]]:
    """Standard input, output and error of a child."""
    with (
        tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as made,
        tempfile.TemporaryFile() as said,
    ):  # fmt: skip
        source.write(given)
        source.seek(0)
        yield source, made, said


def run(command: Sequence[str], given: bytes, timeout: float, late: str) -> Ended:
    """Run a command that reads standard input and writes standard output.

    Args:
        given: its standard input.
        timeout: seconds.
        late: the message where it takes longer.

    Raises:
        ToolError: it took longer.
    """
    with _files(given) as (source, made, _):
        try:
            done = subprocess.run(
                command, stdin=source, stdout=made, stderr=subprocess.PIPE, timeout=timeout,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ToolError(late) from None
        made.seek(0)
        return Ended(made.read(), done.stderr.decode(errors="replace"), done.returncode)


def forked(
    module: str, arguments: Sequence[str], given: bytes, timeout: float, late: str
) -> Ended:  # fmt: skip
    """As `run`, of `python -m MODULE ARGUMENT...`, as a fork of a process that has called
    `prepare` of the module. Its `main` takes the arguments and returns an exit status."""
    with _files(given) as (source, made, said):
        request = json.dumps([timeout, *arguments]).encode()
        status = _server(module).ask(request, [f.fileno() for f in (source, made, said)])
        if status == -signal.SIGALRM:
            raise ToolError(late)
        made.seek(0)
        said.seek(0)
        return Ended(made.read(), said.read().decode(errors="replace"), status)


@functools.cache
def _server(module: str) -> _Server:
    return _Server(module)


def start(module: str) -> None:
    """Have the process that `forked` asks import what it needs, while something else is done."""
    _server(module).started()


class _Server:
    """The side of whoever asks for forks."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._control: socket.socket | None = None

    def started(self) -> socket.socket:
        """The socket that takes requests."""
        with self._lock:
            if self._control is None:
                self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    command = [sys.executable, "-m", __name__, str(theirs.fileno()), self._module]
                    process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                    )  # fmt: skip
                atexit.register(_end, self._control, process)
            return self._control

    def ask(self, request: bytes, files: Sequence[int]) -> int:
        """The exit status of a fork."""
        for _ in range(2):  # somebody may have ended the process
            control = self.started()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                answer = _answer(control, request, files)
                if answer:
                    return int(answer)
            with self._lock:
                if self._control is control:
                    self._control = None
        return -signal.SIGKILL


def _answer(control: socket.socket, request: bytes, files: Sequence[int]) -> bytes:
    """What a fork says when it ends; nothing where it was ended, or its parent was."""
    mine, theirs = socket.socketpair()
    with mine:
        with theirs:
            socket.send_fds(control, [request], [*files, theirs.fileno()])
        return mine.recv(16)


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Before whoever started it ends, so that its time counts as a child's."""
    control.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)


def _serve(number: int, name: str) -> None:
    """Fork for each request, until whoever may ask has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the asker decides
    module = importlib.import_module(name)
    module.prepare()
    with socket.socket(fileno=number) as control:
        while True:
            request, files, *_ = socket.recv_fds(control, _MOST, _FILES)
            if not request:
                break
            if os.fork() == 0:
                _attend(module, request, files)
            for file in files:
                os.close(file)
            _take_leave(os.WNOHANG)
    _take_leave(0)


def _take_leave(options: int) -> None:
    """Wait for the forks that have ended, or for all: their time counts as this process's then."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while os.waitpid(-1, options)[0]:
            pass


def _attend(module: Any, request: bytes, files: Sequence[int]) -> None:
    """In a fork: run the child in another one, and say how it ended."""
    *streams, answers = files
    child = os.fork()
    if child == 0:
        _run(module, request, streams)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):  # nobody waits for it any more
        os.write(answers, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(module: Any, request: bytes, streams: Sequence[int]) -> None:
    """In a fork: `main` of the module."""
    status = 1
    try:
        for stream, file in enumerate(streams):
            os.dup2(file, stream)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        timeout, *arguments = json.loads(request)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        status = module.main(arguments)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
