# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tasks of which each may crash, hang or eat its process: one child a task, with a time limit."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PRELOADED = ["torch", "torch_mlir.fx", "neptune_mlir.frontend.from_torch"]
Task = tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]


def run_all(tasks: Iterable[Task], limit: float) -> Iterator[dict[str, Any]]:
    """What each task returns, with its name and its seconds; `status` is "died" or "timeout" where
    it returned nothing.

    Args:
        tasks: a name, a function of some module, and its arguments.
        limit: seconds that a task may take.
    """
    context = multiprocessing.get_context("forkserver")  # imports torch once, not once a task
    context.set_forkserver_preload(PRELOADED)
    for name, function, arguments in tasks:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(theirs, function, arguments))
        started = time.monotonic()
        child.start()
        theirs.close()
        row = _answer(ours, limit)
        if row["status"] == "timeout" and child.pid:
            child.kill()
            with contextlib.suppress(ProcessLookupError):  # it had not begun
                os.killpg(child.pid, signal.SIGKILL)  # what it started
        child.join()
        if row["status"] == "died":
            row["message"] = f"exit code {child.exitcode}"
        yield {"name": name, **row, "seconds": round(time.monotonic() - started, 2)}


def report(rows: Iterable[dict[str, Any]], path: Path | None) -> list[dict[str, Any]]:
    """The rows; each is printed, and written as a line of JSON, when it comes."""
    counts: dict[str, int] = {}
    seen = []
    with open(path or os.devnull, "a") as file:
        for row in rows:
            seen.append(row)
            counts[row["status"]] = counts.get(row["status"], 0) + 1
            print(json.dumps(row), file=file, flush=True)
            first = str(row.get("message", "")).strip().partition("\n")[0]
            print(f"{row['status']:>8} {row['seconds']:7.2f} s  {row['name']}  {first}", flush=True)
    print(", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    return seen


def _child(pipe: Connection, function: Callable[..., dict[str, Any]], arguments: Any) -> None:
    os.setsid()
    try:
        row = function(*arguments)
    except Exception as error:
        row = {"status": "failed", "message": f"{type(error).__name__}: {error}"}
    with contextlib.suppress(BrokenPipeError):  # who asked is gone
        pipe.send(row)
    pipe.close()
    os._exit(0)  # threads of a compiler do not hold the answer back


def _answer(pipe: Connection, limit: float) -> dict[str, Any]:
    if not pipe.poll(limit):
        return {"status": "timeout", "message": f"not done in {limit:g} s"}
    try:
        row: dict[str, Any] = pipe.recv()
    except EOFError:
        return {"status": "died"}
    return row
