#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU tests on a machine that has a GPU and no compiler.

    python tools/gpu_tests.py build DIR            anywhere: compile the tests' programs
    python tools/gpu_tests.py run DIR [...]        on a GPU: pytest over test/gpu, [...] goes to it
    python tools/gpu_tests.py sanitize DIR [-o LOG]  on a GPU: each program under compute-sanitizer

`run` needs torch and pytest (CuPy and JAX are tested where they are installed). `sanitize` needs
NumPy only, so that the sanitizer sees our kernels alone: memcheck, racecheck and synccheck over
small shapes, each in a process of its own; it fails where one of them reports anything. Controls
show that it would see what it looks for: kernels without barriers, and too little memory.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

TOOLS = ("memcheck", "racecheck", "synccheck")
# batch and length: less than a tile, ragged, several rounds of a ring, more programs than the
# chip runs at once
CASES = ((1, 1), (1, 70), (2, 600), (40, 300))
# what results hold before a launch: NaNs that no instruction makes
POISON = {
    "f16": (0x7E5A, "u2"), "bf16": (0x7FDA, "u2"), "f32": (0x7FDABEEF, "u4"),
    "i64": (2**64 - 1, "u8"),
}  # fmt: skip
# controls: program, the tool that must report it, what its PTX loses
CONTROLS = {
    "control-bounds": ("d64", "memcheck", None),
    "control-barriers": ("d64", "racecheck", (r"bar\.sync\s+\d+;", "")),
    "control-ring": (
        "d64-hopper", "racecheck",
        (r"mbarrier\.try_wait\.parity\.shared::cta\.b64 p, [^;]*;", "setp.eq.u32 p, 0, 0;"),
    ),
}  # fmt: skip


def build(folder: Path) -> int:
    from support import c_runtime
    from support import gpu_programs as programs

    folder.mkdir(parents=True, exist_ok=True)
    if c_runtime.compiler():
        c_runtime.build(folder)
    for name, bundle in programs.build():
        (folder / f"{name}.bundle").write_bytes(bundle.to_bytes())
        for image in bundle.facts["images"]:
            print(f"{name:20} {image['target']:8} {image['kernels']}", flush=True)
    for name, (of, tool, loss) in CONTROLS.items():
        bundle = _build_without(of, loss) if loss else programs.bundle(of)
        bundle.facts["control"] = tool
        (folder / f"{name}.bundle").write_bytes(bundle.to_bytes())
    return 0


def _build_without(name: str, loss: tuple[str, str]) -> Any:
    """A program whose PTX lost something on the way to the assembler."""
    from neptune_mlir.codegen.nvidia import nvptx
    from support import gpu_programs as programs

    whole, lost = nvptx.ptx, 0

    def less(*arguments: Any, **named: Any) -> str:
        nonlocal lost
        text, count = re.subn(*loss, whole(*arguments, **named))
        lost += count
        return text

    nvptx.ptx = less
    try:
        return programs.bundle.__wrapped__(name)
    finally:
        nvptx.ptx = whole
        assert lost, f"{name} has nothing to lose"


def run(folder: Path, rest: list[str]) -> int:
    environment = {**os.environ, "NEPTUNE_GPU_BUNDLES": str(folder.resolve())}
    plain = ["-o", "addopts=-q"]  # one process has the GPU
    command = [sys.executable, "-m", "pytest", *plain, "test/gpu", "-m", "gpu", *rest]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


# ---- compute-sanitizer


def sanitize(folder: Path, log: Path, timeout: float) -> int:
    jobs = [
        (tool, path)
        for path in sorted(folder.glob("*.bundle"))
        for tool in ([CONTROLS[path.stem][1]] if path.stem in CONTROLS else TOOLS)
    ]
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda job: _sanitize_one(*job, timeout), jobs))
    right = True
    with log.open("w") as file:
        for (tool, path), (verdict, output) in zip(jobs, rows, strict=True):
            control = path.stem in CONTROLS
            wanted = "report" if control else "clean"
            right &= (verdict == "clean") != control
            print(f"{path.stem:20} {tool:10} {verdict} (wanted: {wanted})")
            if verdict != "clean":
                file.write(f"==== {path.stem} {tool}: {verdict}\n{output}\n")
    return 0 if right else 1


def _sanitize_one(tool: str, path: Path, timeout: float) -> tuple[str, str]:
    command = [_sanitizer(), "--tool", tool, "--print-limit", "8", sys.executable,
               __file__, "one", str(path)]  # fmt: skip
    if tool == "racecheck":
        command[3:3] = ["--racecheck-report", "all"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the sanitizer and the program under it
        return f"no answer in {timeout:g} s", process.communicate()[0]
    if "no code for this device" in output:
        return "clean", output  # nothing ran
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", output)
    if not summary or (re.match("0 ", summary[-1]) and "all launches done" not in output):
        return f"failed ({process.returncode})", output
    return ("clean" if re.match("0 ", summary[-1]) else summary[-1]), output


def _sanitizer() -> str:
    found = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"
    )
    if found is None:
        raise SystemExit("no compute-sanitizer found; it is part of the CUDA toolkit")
    return found


class Memory:
    """An array on the GPU, without any library."""

    def __init__(self, driver: Any, array: Any, part: float = 1):
        self.driver, self.array = driver, array
        self.size = int(array.nbytes * part)  # a part is too little, for a control
        address = ctypes.c_void_p()
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(self.size or 16))
        data = array.ctypes.data_as(ctypes.c_void_p)
        driver.call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(self.size))
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "version": 3,
            "data": (address.value, False),
        }  # fmt: skip

    def numpy(self) -> Any:
        found = self.array.copy()
        address = ctypes.c_void_p(self.__cuda_array_interface__["data"][0])
        data = found.ctypes.data_as(ctypes.c_void_p)
        self.driver.call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(self.size))
        return found


def one(path: Path) -> int:
    """Launch a bundle's kernels on random inputs of each size; all of their results must be
    written. (Functions give NaN outside their domain; tests compare values.)"""
    import numpy as np

    from neptune_mlir.errors import ArgumentError
    from neptune_mlir.runtime.bundle import Bundle
    from neptune_mlir.runtime.drivers.cuda import CudaDriver
    from neptune_mlir.runtime.gpu import GpuExecutable

    cuda = CudaDriver()
    cuda.call("cuCtxSetCurrent", ctypes.c_void_p(cuda.context(0)))
    bundle = Bundle.from_bytes(path.read_bytes())
    execute = GpuExecutable(bundle)
    kinds = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "i64": np.int64}
    draw = np.random.default_rng(0)
    for b, n in CASES[:1] if "control" in bundle.facts else CASES:
        arrays = []
        for shape, argument in zip(bundle.facts["shapes"], bundle.plan.arguments, strict=True):
            extents = [{"b": b, "h": 2, "n": n}.get(x, x) for x in shape]
            values = draw.standard_normal(extents, np.float32)
            if argument.dtype == "i64":  # positions
                values = abs(values)
            if argument.dtype == "bf16":
                values = (values.view(np.uint32) >> 16).astype(np.uint16)
            arrays.append(Memory(cuda, values.astype(kinds[argument.dtype])))
        try:
            needs = execute.requirements(*arrays)
        except ArgumentError as error:
            if "this device is" in str(error):
                print("no code for this device")
                return 0
            raise
        part = 0.5 if bundle.facts.get("control") == "memcheck" else 1
        out = [
            Memory(cuda, np.full(shape, *POISON[kind]).view(kinds[kind]), part)
            for shape, kind in needs.results
        ]
        workspace = Memory(cuda, np.zeros(needs.workspace, np.uint8))
        execute(*arrays, out=out, workspace=workspace)
        cuda.call("cuCtxSynchronize")
        if "control" in bundle.facts:
            continue
        for result, (_, kind) in zip(out, needs.results, strict=True):
            value, unsigned = POISON[kind]
            written = result.numpy().view(unsigned) != value
            assert written.all(), f"{path.stem} at {b}, {n}: not written"
    print("all launches done")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("build", "run", "sanitize", "one"))
    parser.add_argument("path", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("sanitizer.log"))
    parser.add_argument("--timeout", type=float, default=60, help="seconds a process")
    options, rest = parser.parse_known_args()
    if options.action == "build":
        return build(options.path)
    if options.action == "run":
        return run(options.path, rest)
    if options.action == "one":
        return one(options.path)
    return sanitize(options.path, options.output, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
