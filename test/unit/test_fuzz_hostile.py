# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`tools/fuzz_hostile.py`: processes that die or hang cost their seed only, and runs go on."""

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "fuzz_hostile.py"
# 3 ends its process, 4 never answers, 5 is wrong
STUB = """
import json, os, sys, time
for line in sys.stdin:
    seed = int(line)
    if seed == 3:
        sys.stdout.close()
        print("a module is missing", file=sys.stderr)
        sys.exit(7)
    if seed == 4:
        time.sleep(60)
    row = {"verdict": "wrong", "reason": "9 ulps"} if seed == 5 else {"verdict": "right"}
    row["path"] = os.environ["PYTHONPATH"]
    print(json.dumps(row), flush=True)
"""


@pytest.fixture
def tool(monkeypatch):
    spec = importlib.util.spec_from_file_location("fuzz_hostile", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    honest = module.Worker.__init__

    def stubbed(worker, options):
        honest(worker, options)
        worker.command = [sys.executable, "-c", STUB]

    monkeypatch.setattr(module.Worker, "__init__", stubbed)
    return module


def options(path, seeds):
    return Namespace(file=path, seeds=seeds, target="cpu", cases=None, jobs=2, timeout=3.0)


def test_every_seed_has_a_row(tool, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    assert tool.run(options(path, "0:8")) == 1
    rows = {r["seed"]: r for r in map(json.loads, path.read_text().splitlines())}
    assert sorted(rows) == list(range(8))
    odd = {3: "crash", 4: "timeout", 5: "wrong"}
    assert {s: r["verdict"] for s, r in rows.items() if s in odd} == odd
    assert all(r["verdict"] == "right" for s, r in rows.items() if s not in odd)
    assert rows[3]["reason"] == "exit status 7: a module is missing"
    assert "8 programs: 1 crash, 5 right, 1 timeout, 1 wrong" in capsys.readouterr().out


def test_workers_find_what_their_parent_finds(tool, tmp_path, monkeypatch):
    """The bindings may be on the path of the caller alone."""
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    path = tmp_path / "rows.jsonl"
    tool.run(options(path, "0:1"))
    assert json.loads(path.read_text())["path"].endswith(":/somewhere/else")


def test_a_run_goes_on(tool, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    assert tool.run(options(path, "0:3")) == 0
    with path.open("a") as file:
        file.write('{"seed": 6, "targ')  # the machine went down here
    assert tool.run(options(path, "0:4")) == 1
    assert "1 programs in" in capsys.readouterr().out
    assert sorted(r["seed"] for r in tool.rows_of(path)) == [0, 1, 2, 3]
