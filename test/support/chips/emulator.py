# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs compiled by this tree, run as AMD machine code in an emulator, against float64.

The emulator is no part of this repository: a folder with `amdemu.py`, a patched copy of tinygrad's
emulator, found by NEPTUNE_AMD_EMULATOR or in `shared/amd_emulator` beside the checkout.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neptune_mlir.driver.compiler import compile_text, with_options
from neptune_mlir.driver.inputs import to_float64
from neptune_mlir.driver.kernel import Source
from neptune_mlir.runtime import cache
from neptune_mlir.zoo import relative_error

ROOT = Path(__file__).resolve().parents[3]
TINYGRAD = "0.14.0"  # the emulator uses what is private in it
ORDERS = ("up", "down", "random")  # in which waves run between barriers
TIMEOUT = 900


@dataclass(frozen=True)
class Run:
    """`errors`: of each result, by every image that the bundle has for the chip."""

    order: str
    errors: list[float]
    instructions: int


class OutOfBounds(Exception):
    """The code touched memory that is no array of the call."""


def folder() -> Path:
    chosen = os.environ.get("NEPTUNE_AMD_EMULATOR")
    return Path(chosen) if chosen else ROOT.parent / "shared" / "amd_emulator"


def missing() -> str:
    """Why the emulator cannot run here, or ""."""
    if not (folder() / "amdemu.py").is_file():
        return "no emulator of AMD machine code (set NEPTUNE_AMD_EMULATOR)"
    try:
        found = importlib.metadata.version("tinygrad")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found != TINYGRAD:
        return f"tinygrad {TINYGRAD} is needed, found {found} (install the extra 'emulator')"
    return ""


class Process:
    """Emulates chips, several of which are of one architecture: what it compiled for one serves
    the others. A new process takes its place after a crash. `scratch`: a folder for files."""

    def __init__(self, scratch: Path):
        self.scratch = scratch
        self._running: subprocess.Popen[str] | None = None

    def close(self) -> None:
        if self._running:
            self._running.kill()
            self._running.communicate()
            self._running = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What it says (see `emulate`).

        Raises:
            OutOfBounds: see there.
            AssertionError: the emulator cannot run the code, or the code wrote to an input.
        """
        running = self._running = self._running or self._start()
        print(json.dumps(request), file=running.stdin, flush=True)
        answer = running.stdout.readline()
        if not answer:
            _, reason = running.communicate()
            self._running = None
            if running.returncode == -signal.SIGSEGV:
                raise OutOfBounds(f"{request['chip']}, one of the orders {request['orders']}")
            raise AssertionError(f"it stopped with {running.returncode}: {reason[-2000:]}")
        said: dict[str, Any] = json.loads(answer)
        assert "error" not in said, said["error"]
        return said

    def _start(self) -> subprocess.Popen[str]:
        own = dict(os.environ, PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'test'}",
                   TMPDIR=str(self.scratch), CACHEDB=str(self.scratch / "tinygrad.db"))  # fmt: skip
        command = [sys.executable, Path(__file__).with_name("emulate.py"), folder(), cache.folder()]
        return subprocess.Popen(
            command, env=own, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip


class Emulator:
    """One chip, by a process that others may share."""

    def __init__(self, chip: str, process: Process):
        self.chip, self._process = chip, process

    def results(
        self, bundle: Any, inputs: Sequence[Any], orders: Sequence[str], strided: bool = False,
        short: int = 0,
    ) -> tuple[list[list[Any]], list[int]]:  # fmt: skip
        """What the kernels computed in each order of waves, one image of the bundle after the
        other, and how many instructions waves executed.

        Raises:
            OutOfBounds, AssertionError: see `Process.answer`.
        """
        names = "program.bundle", "inputs.npz", "results.npz"
        paths = [self._process.scratch / name for name in names]
        paths[0].write_bytes(bundle.to_bytes())
        np.savez(paths[1], **{f"arg{k}": _bits(x) for k, x in enumerate(inputs)})
        request = dict(
            zip(("bundle", "inputs", "output"), map(str, paths), strict=True),
            chip=self.chip, orders=list(orders), strided=strided, short=short,
        )  # fmt: skip
        said = self._process.answer(request)
        counts = said["instructions"]
        with np.load(paths[2]) as archive:
            found = [archive[f"arr_{k}"] for k in range(len(archive))]
        many = len(found) // len(orders)
        assert len(counts) == len(orders) and len(found) == many * len(orders)
        assert many and many % said["images"] == 0
        return [found[k * many : (k + 1) * many] for k in range(len(orders))], counts

    def compare(
        self, bundle: Any, program: Any, inputs: Sequence[Any], orders: Sequence[str] = ORDERS,
        strided: bool = False, wanted: Sequence[Any] | None = None,
    ) -> list[Run]:  # fmt: skip
        """The errors of a bundle's results, against `wanted`: by default, what the program's
        definition gives in float64."""
        if wanted is None:
            given = zip(inputs, bundle.plan.arguments, strict=True)
            defined = program.reference(
                *(to_float64(x, a.dtype) if _is_float(a.dtype) else x for x, a in given)
            )
            wanted = list(defined) if isinstance(defined, tuple) else [defined]
        kinds = [bundle.plan.array(reference).dtype for reference in bundle.plan.results]
        assert len(kinds) == len(wanted)
        results, counts = self.results(bundle, inputs, orders, strided)
        return [
            Run(order, [
                error(to_float64(g, kinds[k % len(wanted)]), wanted[k % len(wanted)])
                for k, g in enumerate(got)
            ], count)
            for order, got, count in zip(orders, results, counts, strict=True)
        ]  # fmt: skip


def compiled(program: Any, chip: str, numerics: str = "default") -> Any:
    text = with_options(Source.of(program).text, program.name, numerics=numerics)
    return compile_text(text, program.name, chip, None, None)


def error(got: Any, wanted: Any) -> float:
    """The relative Frobenius error; infinite where only one of the two is NaN."""
    undefined = np.isnan(wanted)
    if got.shape != wanted.shape or not np.array_equal(np.isnan(got), undefined):
        return float("inf")
    return relative_error(np.where(undefined, 0, got), np.where(undefined, 0, wanted))


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))


def _bits(x: Any) -> Any:
    """An array that .npz files can hold."""
    array = np.asarray(x)
    return array if array.dtype.kind in "fiub" else array.view(np.uint16)
