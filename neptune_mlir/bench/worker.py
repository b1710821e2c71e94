# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that holds candidates. It reads requests and answers them, one JSON line each.

    {"do": "prepare", "problem": {...}, "bundle": PATH}   -> {"errors": {...}, "path": [...]}
    {"do": "warm", ...}                                   called once, nothing measured
    {"do": "round"}                                       -> {"us": [...], "graph", "note"}
    {"do": "finish"}                                      -> {"errors"}: of what was timed
    {"do": "check", "bundle": PATH}                       -> {"cases": {...}, "right": bool}
    {"do": "limits"}, {"do": "device"}

Each request may say "device": "cpu" (else it is a GPU), and "candidate" (else it is the one that
the process was started for). Candidates of one problem share its inputs and its reference; with
another problem all of them are given up.
What fails answers {"failed": why}; when the GPU can no longer be used, the process ends.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neptune_mlir.bench import figures
from neptune_mlir.bench.problem import Problem, from_json
from neptune_mlir.bench.process import serve
from neptune_mlir.bench.rows import Rows


class Session:
    def __init__(self, candidate: str):
        self.candidate = candidate
        self.device: Any = None
        self._loaded: tuple[str, Any] | None = None
        self.clear()

    def clear(self) -> None:
        self.problem: Problem | Rows | None = None
        self.arrays: Any = None
        self.wanted: Any = None
        self.calls: dict[str, Any] = {}  # by candidate
        self.timed: dict[str, Any] = {}

    def named(self, message: dict[str, Any]) -> str:
        return str(message.get("candidate", self.candidate))

    def drop(self, message: dict[str, Any]) -> None:
        """Give up a candidate, and with the last one of a problem its inputs."""
        self.calls.pop(self.named(message), None)
        self.timed.pop(self.named(message), None)
        if not self.calls:
            self.clear()

    def use(self, name: str) -> None:
        """The device that a request is about."""
        from neptune_mlir.bench.device import device_of

        if self.device is None:
            self.device = device_of(name)

    def executable(self, path: str) -> Any:
        from neptune_mlir.runtime.bundle import Bundle

        if self._loaded is None or self._loaded[0] != path:
            bundle = Bundle.from_bytes(Path(path).read_bytes())
            self._loaded = (path, self.device.load(bundle))
        return self._loaded[1]

    def _call(self, message: dict[str, Any]) -> tuple[Any, list[str]]:
        """A call, and of ours how its kernels run."""
        from neptune_mlir.bench.check import poison
        from neptune_mlir.bench.peers import PEERS

        assert self.problem is not None
        if "bundle" not in message:
            return PEERS[self.named(message)].make(self.problem, self.arrays), []
        out = poison(self.problem.result(self.arrays))
        prepared = self.device.prepare(self.executable(message["bundle"]), self.arrays, out)

        def call() -> Any:
            prepared()
            return out

        return call, self.device.path(prepared)

    def _take(self, problem: Problem | Rows) -> None:
        """Have the inputs of a problem, if they are not those at hand."""
        if self.problem != problem:
            self.clear()
            self.device.forget()
            self.problem = problem
            self.arrays = problem.inputs(self.device.name)

    def warm(self, message: dict[str, Any]) -> dict[str, Any]:
        self._take(from_json(message["problem"]))
        call, _ = self._call(message)
        call()
        self.device.synchronize()
        self.clear()
        return {}

    def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        from neptune_mlir.bench.check import doubles

        self._take(from_json(message["problem"]))
        assert self.problem is not None
        if self.wanted is None:
            self.wanted = doubles(self.problem.expected(self.arrays))
        call, path = self._call(message)
        self.calls[self.named(message)] = call
        self._poison_free_memory()
        errors = self._errors(call())
        self.device.synchronize()
        return {"errors": errors, **({"path": path} if path else {})}

    def round(self, message: dict[str, Any]) -> dict[str, Any]:
        name = self.named(message)
        if name not in self.timed:  # now, with the device to itself
            self.timed[name] = self.device.timed(self.calls[name])
        timed = self.timed[name]
        return {"us": timed.round_us(), "graph": timed.graph is not None, "note": timed.note}

    def finish(self, message: dict[str, Any]) -> dict[str, Any]:
        """Errors of what was timed, after it was."""
        self._poison_free_memory()
        errors = self._errors(self.timed[self.named(message)].poisoned())
        self.drop(message)
        if not self.calls:
            self.device.forget()
        return {"errors": errors}

    def _errors(self, out: Any) -> dict[str, float]:
        from neptune_mlir.bench.check import doubles

        # also where rows are not sampled; an entry of the batch at a time, since this takes memory
        every = out if isinstance(out, tuple) else (out,)
        if not all(bool(one.isfinite().all()) for array in every for one in _parts(array)):
            return dict.fromkeys(("relative", "rms", "p90", "p99", "max"), math.inf)
        assert self.problem is not None
        return figures.worst_errors(doubles(self.problem.picked(out)), self.wanted)

    def _poison_free_memory(self) -> None:
        """What the allocator gives for the next result holds NaN."""
        from neptune_mlir.bench.check import poison

        assert self.problem is not None
        poison(self.problem.result(self.arrays))
        self.device.synchronize()

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        from neptune_mlir.bench.check import check

        return check(message["bundle"], self.executable(message["bundle"]))

    def limits(self, message: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.device.limits()
        self.device.forget()
        return found

    def facts(self, message: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.device.facts()
        return found


def _parts(array: Any) -> Any:
    """The entries of a batch, or the array itself where they are many."""
    return array if array.ndim > 2 else (array,)


# the method that answers each request: of the session's own class
REQUESTS = {"device": "facts"} | {
    name: name for name in ("warm", "prepare", "round", "finish", "check", "limits")
}


def answering(session: Session) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What answers requests, failures too."""

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        try:
            if message["do"] not in REQUESTS:
                raise ValueError(f"no request '{message['do']}'")
            session.use(message.get("device", ""))
            found: dict[str, Any] = getattr(session, REQUESTS[message["do"]])(message)
            return found
        except Exception as error:
            session.drop(message)
            cause: BaseException = error
            while following := cause.__cause__:  # compilers wrap what they mean
                cause = following
            text = " ".join(str(cause).split())
            usable = session.device is None or session.device.is_usable()
            return {"failed": f"{type(cause).__name__}: {text[:300]}", "usable": usable}

    return answer


if __name__ == "__main__":
    sys.exit(serve(answering(Session(sys.argv[1]))))
