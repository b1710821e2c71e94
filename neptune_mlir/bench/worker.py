# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that holds one candidate. It reads requests and answers them, one JSON line each.

    {"do": "prepare", "problem": {...}, "bundle": PATH}   -> {"errors": {...}}
    {"do": "warm", ...}                                   called once, nothing measured
    {"do": "round"}                                       -> {"us": [...], "graph", "note"}
    {"do": "finish"}                                      -> {"errors"}: of what was timed
    {"do": "check", "bundle": PATH}                       -> {"cases": {...}, "right": bool}
    {"do": "limits"}, {"do": "device"}

What fails answers {"failed": why}; when the GPU can no longer be used, the process ends.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from neptune_mlir.bench import figures
from neptune_mlir.bench.problem import Problem, from_json
from neptune_mlir.bench.process import serve
from neptune_mlir.bench.rows import Rows


class Session:
    def __init__(self, candidate: str):
        self.candidate = candidate
        self._loaded: tuple[str, Any] | None = None
        self.clear()

    def clear(self) -> None:
        self.problem: Problem | Rows | None = None
        self.arrays: Any = None
        self.call: Any = None
        self.timed: Any = None
        self.wanted: Any = None

    def executable(self, path: str) -> Any:
        from neptune_mlir.runtime.bundle import Bundle
        from neptune_mlir.runtime.gpu import GpuExecutable

        if self._loaded is None or self._loaded[0] != path:
            self._loaded = (path, GpuExecutable(Bundle.from_bytes(Path(path).read_bytes())))
        return self._loaded[1]

    def _call(self, message: dict[str, Any]) -> Any:
        from neptune_mlir.bench.check import workspace
        from neptune_mlir.bench.peers import PEERS

        assert self.problem is not None
        if "bundle" not in message:
            return PEERS[self.candidate].make(self.problem, self.arrays)
        out = self.problem.result(self.arrays).fill_(math.nan)
        run = self.executable(message["bundle"])
        scratch = workspace(run, self.arrays)
        prepared = run.prepare(*self.arrays, out=out, workspace=scratch)

        def call() -> Any:
            prepared()
            return out

        return call

    def _set(self, message: dict[str, Any]) -> Any:
        import torch

        self.clear()
        torch.cuda.empty_cache()
        self.problem = from_json(message["problem"])
        self.arrays = self.problem.inputs("cuda")
        return self._call(message)

    def warm(self, message: dict[str, Any]) -> dict[str, Any]:
        import torch

        self._set(message)()
        torch.cuda.synchronize()
        self.clear()
        return {}

    def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        import torch

        self.call = self._set(message)
        assert self.problem is not None
        self.wanted = self.problem.expected(self.arrays).cpu()
        _poison_free_memory(self.problem.result(self.arrays))
        errors = self._errors(self.call())
        torch.cuda.synchronize()
        return {"errors": errors}

    def round(self, message: dict[str, Any]) -> dict[str, Any]:
        from neptune_mlir.bench.timing import Timed

        if self.timed is None:  # now, with the GPU to itself
            self.timed = Timed(self.call)
        return {"us": self.timed.round_us(), "graph": self.timed.graph is not None,
                "note": self.timed.note}  # fmt: skip

    def finish(self, message: dict[str, Any]) -> dict[str, Any]:
        """Errors of what was timed, after it was."""
        assert self.problem is not None
        _poison_free_memory(self.problem.result(self.arrays))
        errors = self._errors(self.timed.poisoned())
        self.clear()
        return {"errors": errors}

    def _errors(self, out: Any) -> dict[str, float]:
        # also where rows are not sampled; an entry of the batch at a time, since this takes memory
        if not all(bool(one.isfinite().all()) for one in out):
            return dict.fromkeys(("relative", "rms", "p90", "p99", "max"), math.inf)
        assert self.problem is not None
        return figures.errors(self.problem.picked(out).double().cpu(), self.wanted)

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        from neptune_mlir.bench.check import check

        return check(message["bundle"], self.executable(message["bundle"]))

    def limits(self, message: dict[str, Any]) -> dict[str, Any]:
        import torch

        from neptune_mlir.bench.timing import limits

        found = limits()
        torch.cuda.empty_cache()
        return found

    def device(self, message: dict[str, Any]) -> dict[str, Any]:
        import torch

        p = torch.cuda.get_device_properties(0)
        found = {
            "name": p.name, "multiprocessors": p.multi_processor_count,
            "capability": [p.major, p.minor], "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
        }  # fmt: skip
        for package in ("triton", "flash-attn-4", "nvidia-cutlass-dsl"):
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        return found


def _poison_free_memory(result: Any) -> None:
    """What the allocator gives for the next result holds NaN."""
    import torch

    result.fill_(math.nan)
    torch.cuda.synchronize()


REQUESTS = ("warm", "prepare", "round", "finish", "check", "limits", "device")


def answering(session: Session) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What answers requests, failures too."""

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        try:
            if message["do"] not in REQUESTS:
                raise ValueError(f"no request '{message['do']}'")
            found: dict[str, Any] = getattr(session, message["do"])(message)
            return found
        except Exception as error:
            session.clear()
            cause: BaseException = error
            while following := cause.__cause__:  # compilers wrap what they mean
                cause = following
            text = " ".join(str(cause).split())
            return {"failed": f"{type(cause).__name__}: {text[:300]}", "usable": _is_gpu_usable()}

    return answer


def _is_gpu_usable() -> bool:
    """A kernel that faulted leaves its process without a GPU."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


if __name__ == "__main__":
    sys.exit(serve(answering(Session(sys.argv[1]))))
