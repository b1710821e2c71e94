# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune bench trace` on a small set of definitions written here, in the public schema."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

pytest.importorskip("torch")

from neptune_mlir.bench import trace
from neptune_mlir.cli.main import main
from neptune_mlir.errors import InputError

NORM = """
import torch

def run(hidden_states, weight):
    EPS = 1e-5
    x = hidden_states.double()
    y = x / torch.sqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.double()
    return y.to(hidden_states.dtype)
"""
PAGED = """
import math
import torch

def run(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    out, lse = torch.zeros_like(q), torch.full(q.shape[:2], -math.inf)
    size = k_cache.shape[1]
    for b in range(len(q)):
        pages = kv_indices[kv_indptr[b] : kv_indptr[b + 1]].long()
        if len(pages) == 0:
            continue
        count = (len(pages) - 1) * size + int(kv_last_page_len[b])
        k, v = (x[pages].flatten(0, 1)[:count].float() for x in (k_cache, v_cache))
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        s = torch.einsum("hd,nhd->hn", q[b].float(), k) * sm_scale
        lse[b] = torch.logsumexp(s, -1) / math.log(2)
        out[b] = torch.einsum("hn,nhd->hd", torch.softmax(s, -1), v).to(q.dtype)
    return out, lse
"""


def definition(name, op_type, reference, inputs, axes):
    kinds = {n: {"type": "var"} if v is None else {"type": "const", "value": v}
             for n, v in axes.items()}  # fmt: skip
    given = {n: {"shape": shape, "dtype": dtype} for n, (shape, dtype) in inputs.items()}
    return {"name": name, "op_type": op_type, "axes": kinds, "inputs": given, "outputs": {},
            "reference": reference}  # fmt: skip


def safetensors(**arrays):
    table, raw = {}, b""
    for name, array in arrays.items():
        data = array.tobytes()
        table[name] = {"dtype": "I32", "shape": list(array.shape),
                       "data_offsets": [len(raw), len(raw) + len(data)]}  # fmt: skip
        raw += data
    header = json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + raw


def write(folder, entry, workload):
    for kind, suffix in (("definitions", "json"), ("workloads", "jsonl")):
        place = folder / kind / entry["op_type"]
        place.mkdir(parents=True, exist_ok=True)
        line = entry if kind == "definitions" else {
            "definition": entry["name"], "workload": workload, "solution": None,
        }  # fmt: skip
        (place / f"{entry['name']}.{suffix}").write_text(json.dumps(line))


@pytest.fixture
def folder(tmp_path):
    cache = (["pages", "size", "kv_heads", "dim"], "bfloat16")
    write(
        tmp_path,
        definition(
            "paged", "gqa_paged", PAGED,
            {"q": (["batch", "heads", "dim"], "bfloat16"), "k_cache": cache, "v_cache": cache,
             "kv_indptr": (["ends"], "int32"), "kv_indices": (["used"], "int32"),
             "kv_last_page_len": (["batch"], "int32"), "sm_scale": (None, "float32")},
            {"batch": None, "heads": 4, "kv_heads": 2, "dim": 16, "size": 4, "pages": None,
             "ends": None, "used": None},
        ),
        {"uuid": "one", "axes": {"batch": 3, "pages": 9, "ends": 4, "used": 6},
         "inputs": {"sm_scale": {"type": "scalar", "value": 0.25}, "q": {"type": "random"},
                    **{n: {"type": "safetensors", "path": "blob.safetensors", "tensor_key": n}
                       for n in ("kv_indptr", "kv_indices", "kv_last_page_len")}}},
    )  # fmt: skip
    (tmp_path / "blob.safetensors").write_bytes(safetensors(
        kv_indptr=np.array([0, 4, 4, 6], np.int32),
        kv_indices=np.array([8, 0, 3, 5, 2, 7], np.int32),
        kv_last_page_len=np.array([3, 0, 4], np.int32),
    ))  # fmt: skip
    rows, width = (["rows", "width"], "float16"), (["width"], "float16")
    norm = {"hidden_states": rows, "weight": width}
    axes = {"rows": None, "width": 24}
    workload = {"uuid": "two", "axes": {"rows": 5}, "inputs": {}}
    write(tmp_path, definition("norm", "rmsnorm", NORM, norm, axes), workload)
    wrong = NORM.replace("1e-5", "1.0").replace("EPS = 1.0", "EPS = 1e-5").replace("+ EPS", "+ 1.0")
    write(tmp_path, definition("other_norm", "rmsnorm", wrong, norm, axes), workload)
    write(tmp_path, definition("product", "gemm", NORM, norm, axes), workload)
    return tmp_path


def test_each_workload_beside_its_reference(folder, capsys):
    out = folder / "rows.json"
    assert main(["bench", "trace", str(folder), "--json", str(out)]) == 1  # one is wrong
    text = capsys.readouterr().out
    assert "paged batch=3 pages=9 ends=4 used=6: right" in text
    assert "norm rows=5: right" in text
    assert "other_norm rows=5: WRONG" in text
    assert "product rows=5: skipped, op_type 'gemm'" in text
    assert "2 of 3 workloads right, 1 skipped" in text
    assert "paged" in out.read_text()
    assert main(["bench", "trace", str(folder), "--only", "paged"]) == 0


def test_data_that_is_not_as_described(folder, tmp_path):
    with pytest.raises(InputError, match="no definitions"):
        trace.definitions(tmp_path / "nowhere")
    (folder / "blob.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match="no tensor 'kv_indptr'"):
        trace.run(folder, "cpu", only="paged")
    (folder / "workloads" / "bad.jsonl").write_text("{")
    with pytest.raises(InputError, match=r"no workload.*") as caught:
        trace.run(folder, "cpu", only="none")
    assert "bad.jsonl:1:1" in str(caught.value)
