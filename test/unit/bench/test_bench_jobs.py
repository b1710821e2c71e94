# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several processes prepare cells, one cell is timed at a time; none needs a GPU here."""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from neptune_mlir.bench import run
from neptune_mlir.bench.jobs import JobConductor
from neptune_mlir.bench.problem import Problem
from neptune_mlir.bench.worker import Session, answering
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan

# stands for a process that holds a cell: it says what it does and when, and fails where it is told
FAKE = '''
import json, os, sys, time
errors = dict(relative=2e-4, rms=1e-5, p90=2e-5, p99=3e-5, max=1e-4)
held = set()
def log(*words):
    with open(sys.argv[0] + ".log", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")
for line in sys.stdin:
    m = json.loads(line)
    name, do = m.get("candidate"), m["do"]
    operator = m.get("problem", {}).get("operator", "")
    answer = {}
    if do == "device":
        answer = {"name": "a GPU"}
    if do == "limits":
        answer = {"matmul_bf16": 8e14, "copy": 4e12}
    if do == "prepare":
        log(os.getpid(), operator, name)
        time.sleep(60 if operator == "endless" else 0.2)
        held.add(name)
        answer = {"errors": errors}
    if do == "round":
        begun = time.time(); time.sleep(0.02); log("round", begun, time.time())
        if name == "cudnn":
            print("an illegal address", file=sys.stderr); sys.exit(7)
        answer = {"us": [100.0] * 3} if name in held else {"failed": "it is not held"}
    if do == "finish":
        answer = {"errors": errors}
    print(json.dumps(answer), flush=True)
'''
BUILDER = '''
import json, pathlib, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["spec"] == "bad":
        print(json.dumps({"failed": "no such program"}), flush=True); continue
    pathlib.Path(m["path"]).write_bytes(pathlib.Path(sys.argv[0] + ".bundle").read_bytes())
    print(json.dumps({"said": "compiled"}), flush=True)
'''


@pytest.fixture
def fakes(tmp_path: Path) -> dict[str, tuple[str, str]]:
    said = {"remarks": ["slow for a reason"]}
    bundle = Bundle("sm_90a", Plan("f", (), (), (), (), ()), b"", said)
    (tmp_path / "builder.py.bundle").write_bytes(bundle.to_bytes())
    for name, text in (("fake.py", FAKE), ("builder.py", BUILDER)):
        (tmp_path / name).write_text(text)
    return {"command": (sys.executable, str(tmp_path / "fake.py")),
            "builder": (sys.executable, str(tmp_path / "builder.py"))}  # fmt: skip


def cell(name: str, folder: Path, spec: str = "good") -> run.BenchCell:
    p = Problem(name, "f16", 64, 64, {"heads": 1, "kv_heads": 1})
    path = folder / f"{name}.bundle"
    return run.BenchCell(
        p, {"neptune": str(path)}, "sweep", facts={"why": []},
        build={"do": "build", "path": str(path), "spec": spec},
    )  # fmt: skip


def measured(cells: Any, fakes: Any, tmp_path: Path, **options: Any) -> dict[str, Any]:
    wanted = run.BenchOptions(peers=("flash2", "cudnn"), rounds=2, **options)
    conductor = JobConductor(cells, wanted, tmp_path / "log", lambda _: None, 3, **fakes)
    return conductor.run(lambda _: None)


def test_cells_are_prepared_together_and_timed_one_by_one(fakes: Any, tmp_path: Path) -> None:
    cells = [cell(f"c{k}", tmp_path) for k in range(5)]
    found = measured(cells, fakes, tmp_path)
    rows = {(r["operator"], r["candidate"]): r for r in found["rows"]}
    assert len(rows) == 15 and not found["skipped"]
    # what a candidate did to its process is its own fault; the others are held by the next one
    for c in cells:
        name = c.problem.operator
        assert "an illegal address" in rows[name, "cudnn"]["failed"]
        assert rows[name, "neptune"]["us"] == rows[name, "flash2"]["us"] == 100
        assert rows[name, "neptune"]["why"] == ["slow for a reason"]
    said = [line.split() for line in Path(fakes["command"][1] + ".log").read_text().splitlines()]
    assert len({line[0] for line in said if line[0] != "round"}) >= 3
    turns = sorted(tuple(map(float, line[1:])) for line in said if line[0] == "round")
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(turns))


def test_what_does_not_compile_is_a_row_that_failed(fakes: Any, tmp_path: Path) -> None:
    found = measured([cell("c", tmp_path, "bad")], fakes, tmp_path)
    rows = {r["candidate"]: r for r in found["rows"]}
    assert rows["neptune"]["failed"] == "no such program" and rows["flash2"]["us"] == 100


def test_the_budget_ends_what_is_in_preparation(fakes: Any, tmp_path: Path) -> None:
    begun = time.monotonic()
    cells = [cell(name, tmp_path) for name in ("endless", "c1", "c2")]
    found = measured(cells, fakes, tmp_path, budget=5.0)
    assert time.monotonic() - begun < 30
    assert {r["operator"] for r in found["rows"]} == {"c1", "c2"}
    assert len(found["skipped"]) == 1
    json.dumps(found)


def test_candidates_of_a_problem_share_its_inputs() -> None:
    """A process is asked for two candidates, then for another problem."""
    torch = pytest.importorskip("torch")
    session = Session("x")
    answer = answering(session)
    first, second = (
        Problem("x", "f32", 8, n, {"heads": 2, "kv_heads": 1}, 16).as_json() for n in (8, 9)
    )

    def ask(do: str, problem: dict[str, Any] | None = None, candidate: str = "sdpa") -> Any:
        more = {"problem": problem} if problem else {}
        return answer({"do": do, "device": "cpu", "candidate": candidate, **more})

    assert ask("prepare", first)["errors"]["relative"] < 1e-5
    held = session.arrays
    assert ask("prepare", first, "no such peer")["failed"].startswith("KeyError")
    assert session.arrays is held and list(session.calls) == ["sdpa"]
    assert ask("round")["us"] and ask("finish")["errors"]["relative"] < 1e-5
    assert session.arrays is None  # the last candidate is done
    assert ask("prepare", second)["errors"]["relative"] < 1e-5
    assert session.arrays[1].shape[2] == 9 and torch.is_tensor(session.arrays[0])
