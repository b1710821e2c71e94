# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlashInfer-Trace data: definitions of operators and workloads for them, as JSON.

    DIR/definitions/<op_type>/<name>.json       axes, inputs, outputs, and a reference in PyTorch
    DIR/workloads/<op_type>/<name>.jsonl        a line each: the axes' extents and where inputs come
                                                from (random, a number, a tensor in a file)

`run` computes each workload with our programs and with the definition's own reference, and
compares. A reference is code: it runs as it stands in the data.
"""

from __future__ import annotations

import json
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from neptune_mlir.algebra.numerics.accuracy import TOLERANCE
from neptune_mlir.bench.trace_ops import RUNNERS, Unsupported
from neptune_mlir.errors import InputError

_TYPES = {
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn, "int64": torch.int64, "int32": torch.int32,
    "int16": torch.int16, "int8": torch.int8, "bool": torch.bool,
}  # fmt: skip
_STORED = {
    "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "BOOL": "bool",
}  # fmt: skip
_NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
REPEAT = 5


@dataclass(frozen=True)
class TraceDefinition:
    """An operator; `data` is its JSON."""

    name: str
    op_type: str
    data: dict[str, Any]

    @staticmethod
    def read(path: Path) -> TraceDefinition:
        """Raises InputError."""
        try:
            data = json.loads(path.read_text())
            return TraceDefinition(data["name"], data["op_type"], data)
        except (json.JSONDecodeError, KeyError) as error:
            raise InputError(f"no definition: {error!r}", loc=str(path)) from None

    def reference(self) -> Callable[..., Any]:
        """The function `run` of its code."""
        space: dict[str, Any] = {}
        exec(compile(self.data["reference"], f"<reference of {self.name}>", "exec"), space)
        found: Callable[..., Any] = space["run"]
        return found


def definitions(folder: Path) -> dict[str, TraceDefinition]:
    """All definitions by name. Raises InputError."""
    found = [TraceDefinition.read(p) for p in sorted((folder / "definitions").rglob("*.json"))]
    if not found:
        raise InputError("no definitions", loc=str(folder), hint="DIR/definitions/**/*.json")
    return {d.name: d for d in found}


def workloads(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of a definition and a workload for it, in the order of the files."""
    for path in sorted((folder / "workloads").rglob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                yield entry["definition"], entry["workload"]
            except (json.JSONDecodeError, KeyError) as error:
                raise InputError(f"no workload: {error!r}", loc=f"{path}:{number}:1") from None


def inputs_of(
    definition: TraceDefinition, workload: dict[str, Any], folder: Path, device: Any
) -> dict[str, Any]:
    """The inputs of a workload by name: tensors, and numbers. Raises InputError."""
    axes = {n: a["value"] for n, a in definition.data["axes"].items() if a["type"] == "const"}
    axes |= workload["axes"]
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {}
    for name, wanted in definition.data["inputs"].items():
        source = workload["inputs"].get(name, {"type": "random"})
        if source["type"] == "scalar":
            found[name] = source["value"]
        elif source["type"] == "safetensors":
            found[name] = _stored(folder / source["path"], source["tensor_key"]).to(device)
        elif source["type"] == "random" and wanted["shape"] is not None:
            shape, kind = [axes[a] for a in wanted["shape"]], _TYPES[wanted["dtype"]]
            values = torch.randn(shape, generator=generator)
            found[name] = values.to(kind).to(device)
        else:
            raise InputError(
                f"input '{name}' of '{definition.name}' comes from '{source['type']}'",
                loc=str(folder), hint="random, scalar and safetensors are known",
            )  # fmt: skip
    return found


def _stored(path: Path, key: str) -> torch.Tensor:
    """A tensor of a safetensors file: a length, a table in JSON, bytes. Raises InputError."""
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            entry = json.loads(file.read(size))[key]
            first, last = entry["data_offsets"]
            file.seek(8 + size + first)
            raw = bytearray(file.read(last - first))
        kind = _TYPES[_STORED[entry["dtype"]]]
    except (OSError, KeyError, ValueError, struct.error) as error:
        raise InputError(f"no tensor '{key}': {error!r}", loc=str(path)) from None
    if not raw:
        return torch.empty(entry["shape"], dtype=kind)
    return torch.frombuffer(raw, dtype=torch.uint8).view(kind).reshape(entry["shape"])


def run(
    folder: Path, device: Any, only: str = "", limit: int = 0,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each workload of a known kind: `right`, the errors, and seconds of a call.

    Args:
        only: part of the definitions' names.
        limit: workloads of a definition; 0: all.

    Raises:
        InputError: data that is not as described above.
    """
    known, rows = definitions(folder), []
    counts: dict[str, int] = {}
    for name, workload in workloads(folder):
        if only not in name:
            continue
        counts[name] = counts.get(name, 0) + 1
        if limit and counts[name] > limit:
            continue
        if name not in known:
            raise InputError(f"a workload of '{name}', which is not defined", loc=str(folder))
        row = _row(known[name], workload, folder, device)
        rows.append(row)
        say(_line(row))
    return rows


def _row(
    definition: TraceDefinition, workload: dict[str, Any], folder: Path, device: Any
) -> dict[str, Any]:  # fmt: skip
    row = {"definition": definition.name, "uuid": workload["uuid"], "axes": workload["axes"]}
    given = inputs_of(definition, workload, folder, device)
    try:
        call = RUNNERS[definition.op_type](definition.data, given)
    except KeyError:
        return {**row, "skipped": f"op_type '{definition.op_type}'"}
    except Unsupported as reason:
        return {**row, "skipped": str(reason)}
    wanted = definition.reference()(**given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    results = call()[: len(wanted)]
    errors = [_error(a, b) for a, b in zip(results, wanted, strict=True)]
    allowed = [TOLERANCE[_NAMES.get(results[0].dtype, "f32")]] * len(errors)
    right = all(e <= t for e, t in zip(errors, allowed, strict=True))
    return {**row, "errors": errors, "right": right, "seconds": _seconds(call, device)}


def _error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative, over the whole result (Frobenius); infinite where infinities differ."""
    a, b = got.double().cpu(), wanted.double().cpu()
    if a.shape != b.shape or not torch.equal(a.isinf(), b.isinf()):
        return float("inf")
    a, b = a.masked_fill(a.isinf(), 0), b.masked_fill(b.isinf(), 0)
    norm = float(b.norm())
    return float((a - b).norm()) / norm if norm else float(a.norm())


def _seconds(call: Callable[[], Any], device: Any) -> float:
    """The median of REPEAT calls behind one that is not counted."""
    gpu = torch.device(device).type == "cuda"
    found = []
    for _ in range(REPEAT + 1):
        started = time.perf_counter()
        call()
        if gpu:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def _line(row: dict[str, Any]) -> str:
    axes = " ".join(f"{n}={v}" for n, v in row["axes"].items())
    if "skipped" in row:
        return f"{row['definition']} {axes}: skipped, {row['skipped']}"
    errors = ", ".join(f"{e:.1e}" for e in row["errors"])
    word = "right" if row["right"] else "WRONG"
    return f"{row['definition']} {axes}: {word} ({errors}), {row['seconds'] * 1e6:.0f} us"
