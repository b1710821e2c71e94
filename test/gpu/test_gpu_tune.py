# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tuner on a GPU: candidates that are right, one that is not, and what is kept of them."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from neptune_mlir.bench.results import to_json
from neptune_mlir.cli.main import main
from neptune_mlir.targets import tuned
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.tune.manifest import NAME, RULE
from support.gpu_programs import bundle

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0),
        reason="needs sm_90a",
    ),
]
CANDIDATES = {RULE: ("d64", 128), "192x128": ("d64-hopper", 192), "64x64": ("d64-causal", 64)}


def attention(q, k, v):
    s = q @ k.swapaxes(-1, -2) / 8
    p = np.exp(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


@pytest.mark.parametrize("kind", ["operator", "program"])
def test_tuning(kind, tmp_path, capsys):
    candidates = {}
    for label, (name, rows) in CANDIDATES.items():
        (tmp_path / name).write_bytes(bundle(name).to_bytes())
        candidates[label] = {"bundle": name, "choice": Choice(rows, 64).as_json()}
    random = np.random.default_rng(0)
    own = [random.standard_normal((1, 2, 70, 64)).astype(np.float16) for _ in range(3)]
    stored = {f"0:arg{n}": x for n, x in enumerate(own)}
    stored["0:out0"] = attention(*(x.astype(np.float64) for x in own))
    np.savez(tmp_path / "small.npz", calls=1, **stored)
    first = bundle("d64").plan.arguments[0].name
    spec = {
        "operator": {"kind": "operator", "operator": "global", "dtype": "f16", "head_dim": 64,
                     "settings": {"heads": 2, "kv_heads": 2}},
        "program": {"kind": "program", "fixed": {f"{first}.0": 2}, "stored": "small.npz",
                    "tolerance": 4e-3},
    }[kind]  # fmt: skip
    job = {"name": "attention", "spec": spec, "shape": asdict(Shape(64, 64, False, True)),
           "stream": 0, "candidates": candidates}  # fmt: skip
    (tmp_path / NAME).write_text(json.dumps({
        "target": "sm_90a", "tools": {"neptune-mlir": "1"}, "build": "", "lengths": [2048],
        "jobs": [job],
    }))  # fmt: skip
    assert main(["tune", "run", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    found = {row["candidate"]: row for row in rows}
    assert found[RULE]["right"] and found["192x128"]["right"] and found["192x128"]["us"] > 1
    assert not found["64x64"]["right"] and found["64x64"]["errors"]["relative"] > 0.1
    assert found["192x128"]["errors"]["relative"] < 1e-3
    assert len(found["192x128"]["rounds_us"]) == len(found[RULE]["rounds_us"]) >= 4
    # here specialised warps stand against portable kernels: they win
    table = tmp_path / "table.json"
    assert main(["tune", "record", str(tmp_path), "--table", str(table)]) == 0
    (entry,) = tuned.read(table).entries
    assert entry.choice == Choice(192, 64) and entry.measured["gain"] > 0.1
    assert "192x64: " in capsys.readouterr().out  # what run said
    assert to_json({"rows": rows})
