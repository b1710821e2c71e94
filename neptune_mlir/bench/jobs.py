# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conducts a measurement of cells that have little in common: several are prepared at a time.

Most of the time of a random draw is spent in compilers, ours and the peers'. So each of several
processes holds a whole cell: its inputs, its reference and the calls of all candidates, which it
makes one after the other while other processes do the same. A cell that is ready waits for its
turn, and is timed while no other one is. (What those in preparation run meanwhile are single calls;
medians over rounds do not see them.)

A candidate that ends the process has failed; the others of its cell are prepared once more.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from neptune_mlir.bench.process import COMMAND, Worker
from neptune_mlir.bench.run import (
    COMPILE_TIMEOUT,
    HELPER,
    TIMEOUT,
    BenchCell,
    BenchOptions,
    Conductor,
)
from neptune_mlir.bench.sweep import OURS, remarks_of

BUILDER = (sys.executable, "-m", "neptune_mlir.bench.builder")
BUILD_TIMEOUT = 600.0
ONE_THREAD = {**HELPER, "OMP_NUM_THREADS": "1"}

Row = dict[str, Any]


class _Lost(Exception):
    """The process of a cell ended: the candidate's row says why, and the others are gone."""


class JobConductor(Conductor):
    def __init__(
        self, cells: Sequence[BenchCell], options: BenchOptions, log: Path,
        say: Callable[[str], None], jobs: int, command: tuple[str, ...] = COMMAND,
        builder: tuple[str, ...] = BUILDER,
    ):  # fmt: skip
        super().__init__(cells, options, log, say, command)
        environment = ONE_THREAD if jobs > 1 else {}
        self._jobs = [
            (Worker("cell", log, environment, command), Worker("builder", log, command=builder))
            for _ in range(jobs)
        ]
        self._done: queue.SimpleQueue[tuple[BenchCell, list[Row] | Exception]] = queue.SimpleQueue()
        self._turn = threading.Lock()  # of the device
        self._over = threading.Event()

    def begin(self, left: Sequence[BenchCell]) -> None:
        """Starts to prepare; nothing is timed until the chip's rates are known."""
        waiting: queue.SimpleQueue[BenchCell] = queue.SimpleQueue()
        for cell in left:
            waiting.put(cell)
        self._turn.acquire()
        for worker, builder in self._jobs[: len(left)]:
            threading.Thread(
                target=self._work, args=(waiting, worker, builder), daemon=True
            ).start()

    def measured(self, left: Sequence[BenchCell]) -> Iterator[tuple[BenchCell, list[Row]]]:
        """In the order in which they are ready."""
        self._turn.release()
        for _ in left:
            seconds = self.options.budget - self.spent()
            try:
                limit = None if seconds > threading.TIMEOUT_MAX else max(seconds, 0.0)
                found = self._done.get(timeout=None if self._over.is_set() else limit)
            except queue.Empty:
                self._over.set()
                with self._turn:  # what is being timed ends
                    self._stop_jobs()
                found = self._done.get()
            cell, rows = found
            if isinstance(rows, Exception):
                raise rows
            yield cell, rows

    def stop(self) -> None:
        self._over.set()
        self._stop_jobs()
        super().stop()

    def _stop_jobs(self) -> None:
        for pair in self._jobs:
            for worker in pair:
                worker.stop()

    def _work(
        self, waiting: queue.SimpleQueue[BenchCell], worker: Worker, builder: Worker
    ) -> None:
        while True:
            try:
                cell = waiting.get_nowait()
            except queue.Empty:
                builder.stop()
                return worker.stop()
            try:
                self._done.put(
                    (cell, [] if self._over.is_set() else self._cell(cell, worker, builder))
                )
            except Exception as error:  # for the thread that waits
                self._done.put((cell, error))

    def _cell(self, cell: BenchCell, worker: Worker, builder: Worker) -> list[Row]:
        """The rows of a cell; none once time is over."""
        failed: dict[str, str] = {}
        bundle = Path(cell.bundles[OURS])
        if cell.build and not bundle.exists():
            answer = builder.ask(BUILD_TIMEOUT, **cell.build)
            if "failed" in answer:
                failed[OURS] = answer["failed"]
        if cell.build and OURS not in failed:
            cell.facts["why"] = remarks_of(bundle)
        while not self._over.is_set():
            rows = {n: cell.row(n) for n in cell.candidates(self.options.peers)}
            for name, why in failed.items():
                rows[name]["failed"] = why
            try:
                self._prepare(cell, worker, rows)
                with self._turn:
                    if self._over.is_set():
                        break
                    self.take_turns(rows, _asking(cell, worker, rows, TIMEOUT))
                return list(rows.values())
            except _Lost:
                failed = {n: row["failed"] for n, row in rows.items() if "failed" in row}
        return []

    def _prepare(self, cell: BenchCell, worker: Worker, rows: dict[str, Row]) -> None:
        ask = _asking(cell, worker, rows, COMPILE_TIMEOUT)
        for name, row in rows.items():
            if "failed" not in row:
                row |= ask(name, do="prepare", **cell.request(name))


def _asking(
    cell: BenchCell, worker: Worker, rows: dict[str, Row], timeout: float
) -> Callable[..., dict[str, Any]]:
    def ask(name: str, **request: Any) -> dict[str, Any]:
        answer = worker.ask(timeout, candidate=name, **request)
        if not worker.is_running:
            rows[name] |= answer
            raise _Lost
        return answer

    return ask
