# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune doctor`: what is installed, which devices, what is missing and how to get it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Finding:
    """One line of the report. `state` is ok or missing; `get` says how to get it."""

    what: str
    state: str
    detail: str
    get: str = ""


# (package, what it is for, extra that brings it; "" where it is always needed)
_PACKAGES = (
    ("numpy", "arrays", ""),
    ("llvmlite", "code generation", ""),
    ("ml-dtypes", "bfloat16 in NumPy arrays", "bf16"),
    ("torch", "comparisons, importing PyTorch code", "torch"),
    ("z3-solver", "deciding proof obligations", "verify"),
    ("nvidia-cuda-nvdisasm", "reading NVIDIA machine code", "nvidia"),
    ("triton", "the Triton backend", "triton"),
    ("lit", "the tests", "test"),
)


def _installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _bindings() -> Finding:
    from neptune_mlir.errors import ToolError

    try:
        from neptune_mlir.ir import bindings
    except ToolError as error:
        return Finding("MLIR bindings", "missing", error.message, "pip install torch-mlir")
    version = _installed_version(bindings.PACKAGE.replace("_", "-")) or "?"
    refused = "".join(f"; not {name}: {why}" for name, why in bindings.REFUSED.items())
    return Finding("MLIR bindings", "ok", f"{bindings.PACKAGE} {version}{refused}")


def _cpu() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        from neptune_mlir.targets.cpu import host
    except ImportError:
        return Finding("CPU", "missing", f"{platform.machine()}, {cores} cores", "llvmlite")
    core = host()
    return Finding("CPU", "ok", f"{core.name}, {core.vector_bits}-bit vectors, {cores} cores")


def _gpus() -> list[Finding]:
    """One line for each maker: its devices, or why there is none that this process can use."""
    from neptune_mlir.errors import ToolError
    from neptune_mlir.runtime.drivers import makers

    rows = []
    for kind in makers.DRIVERS:
        what = f"{kind.maker.name} GPU"
        try:
            found = makers.driver(kind)
            names = found.device_names()
            texts = [f"{name} ({found.architecture(k)})" for k, name in enumerate(names)]
            rows.append(Finding(what, "ok", ", ".join(texts)))
        except ToolError as error:
            # without a library, the machine may lack the device and the permission as well
            reasons = dict.fromkeys([error.message, kind.why_no_device()])
            detail = "; ".join(filter(None, reasons))
            rows.append(Finding(what, "missing", detail, error.hint or ""))
    return rows


def _ptxas() -> Finding:
    from neptune_mlir.codegen.nvidia import ptxas
    from neptune_mlir.errors import ToolError

    what, purpose = "NVIDIA assembler", "assembling NVIDIA code"
    try:
        return Finding(what, "ok", f"{ptxas.version()} ({ptxas.find_ptxas()}): {purpose}")
    except ToolError:
        return Finding(what, "missing", purpose, "pip install 'neptune-mlir[nvidia]'")


def _amd() -> Finding:
    from neptune_mlir.codegen.amd import amdgcn
    from neptune_mlir.errors import ToolError

    what = "AMD linker"
    try:
        return Finding(what, "ok", f"{amdgcn.linker_version()}: linking AMD code (HSACO)")
    except ToolError:
        return Finding(what, "missing", "linking AMD code", "pip install 'neptune-mlir[amd]'")


def _plugins() -> list[Finding]:
    """What installed packages add, and whether it can be used."""
    from neptune_mlir import plugins
    from neptune_mlir.algebra import combiners, functions
    from neptune_mlir.errors import UsageError
    from neptune_mlir.targets import chips
    from neptune_mlir.transforms import registry
    from neptune_mlir.transforms.patterns import language

    rows = []
    uses = (("pass", plugins.PASSES, registry.lookup),
            ("schedule", plugins.SCHEDULES, plugins.schedule_text),
            ("combiner", plugins.COMBINERS, combiners.lookup),
            ("function", plugins.FUNCTIONS, functions.named),
            ("target", plugins.TARGETS, chips.gpu_target),
            ("pattern", plugins.PATTERNS, language.lookup))  # fmt: skip
    for kind, group, use in uses:
        try:
            found = plugins.entries(group)
        except UsageError as error:
            rows.append(Finding(f"added: {kind}", "missing", error.message, error.hint or ""))
            continue
        for name, entry in found.items():
            try:
                use(name)
                rows.append(Finding(f"{kind} {name}", "ok", plugins.owner(entry)))
            except UsageError as error:
                rows.append(Finding(f"{kind} {name}", "missing", error.message, error.hint or ""))
    return rows


def findings() -> list[Finding]:
    """Everything that the report shows, in order."""
    python = Finding("Python", "ok", platform.python_version())
    rows = [python, _bindings(), _cpu(), *_gpus(), _ptxas(), _amd()]
    for package, purpose, extra in _PACKAGES:
        version = _installed_version(package)
        if version:
            rows.append(Finding(package, "ok", f"{version}: {purpose}"))
        else:
            get = f"pip install 'neptune-mlir[{extra}]'" if extra else f"pip install {package}"
            rows.append(Finding(package, "missing", purpose, get))
    return rows + _plugins()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def execute(options: argparse.Namespace) -> int:
    rows = findings()
    if options.json:
        print(json.dumps({row.what: asdict(row) for row in rows}))
        return 0
    width = max(len(row.what) for row in rows)
    for row in rows:
        line = f"{'ok ' if row.state == 'ok' else '-- '} {row.what:{width}}  {row.detail}"
        print(f"{line}   get it: {row.get}" if row.get else line)
    required = {"MLIR bindings", "CPU", "numpy", "llvmlite"}
    return 1 if any(row.what in required and row.state != "ok" for row in rows) else 0
