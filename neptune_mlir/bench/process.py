# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Worker processes that are spoken to in lines of JSON: both sides."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "neptune_mlir.bench.worker")


def message_of(failed: str) -> str:
    """What an answer's `failed` says, without the name of the exception."""
    return re.sub(r"^\w+(Error|Exception): ", "", failed)


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """The side of the process: answers requests until there are no more, or until one is answered
    `"usable": False`. Returns an exit code."""
    # libraries may print: what they write to stdout goes to stderr
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        found = answer(json.loads(line))
        print(json.dumps(found), file=answers, flush=True)
        if not found.get("usable", True):
            return 1
    return 0


class Worker:
    """One candidate in a process of its own, started when first asked and again after it died."""

    def __init__(self, candidate: str, log: Path, environment: dict[str, str] | None = None,
                 command: tuple[str, ...] = COMMAND):  # fmt: skip
        self.candidate = candidate
        self._log, self._environment, self._command = log, environment or {}, command
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def ask(self, timeout: float = 120, **message: Any) -> dict[str, Any]:
        """The answer; {"failed": why} also where the process died or gave none in time."""
        self.send(**message)
        return self.answer(timeout)

    def send(self, **message: Any) -> None:
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it died: the end of its output says so

    def answer(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            return {"failed": f"no answer in {timeout:g} s"}
        if line is None:
            code = self._process.wait() if self._process else None
            self._process = None
            return {"failed": f"the process ended ({code}): {self._last_words()}"}
        answer: dict[str, Any] = json.loads(line)
        if not answer.get("usable", True):
            self.stop()
        return answer

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _start(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*self._command, self.candidate], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, env={**os.environ, "PYTHONPATH": path, **self._environment},
            )  # fmt: skip
        self._lines = queue.Queue()
        threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), daemon=True
        ).start()

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "it said nothing"


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
