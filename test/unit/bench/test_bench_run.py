# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conducting a measurement: turns, processes that die or hang, tables and the plot."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from neptune_mlir.bench import peers, plot, report, results, run
from neptune_mlir.bench.problem import Problem
from neptune_mlir.bench.process import Worker
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan

# stands for a worker: times by candidate, and ways to fail
FAKE = '''
import json, sys, time
name = sys.argv[1]
errors = dict(relative=2e-4, rms=1e-5, p90=2e-5, p99=3e-5, max=1e-4)
us = {"neptune": 200.0, "flash2": 240.0, "cudnn": 180.0, "fast": 1e-6}.get(name, 300.0)
for line in sys.stdin:
    m = json.loads(line)
    with open(sys.argv[0] + ".log", "a") as log:
        log.write(f"{name} {m['do']}\\n")
    answer = {"errors": errors} if m["do"] in ("prepare", "finish") else {}
    if m["do"] == "device":
        answer = {"name": open(sys.argv[0] + ".gpu").read()}
    if m["do"] == "limits":
        answer = {"matmul_bf16": 8e14, "copy": 4e12, "read": 4.4e12}
    if m["do"] == "round":
        answer = {"us": [us, us * 1.01, us * 0.99], "graph": False, "note": ""}
    if name == "flex" and m["do"] == "finish":
        answer = {"errors": {**errors, "relative": float("inf")}}
    if name == "triton" and m["do"] == "round":
        print("the kernel faulted", file=sys.stderr); sys.exit(7)
    if name == "slow":
        time.sleep(60)
    if name == "unusable":
        answer = {"failed": "CUDA error", "usable": False}
    print(json.dumps(answer), flush=True)
'''


@pytest.fixture
def fake(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "fake.py"
    path.write_text(FAKE)
    (tmp_path / "fake.py.gpu").write_text("a GPU")
    return (sys.executable, str(path))


def cell(operator: str = "prefill_causal", length: int = 1024, queries: int = 0) -> run.BenchCell:
    settings = {"heads": 32, "kv_heads": 32, "causal": True}
    return run.BenchCell(
        Problem(operator, "f16", queries or length, length, settings), {"neptune": "x.bundle"}
    )


CELLS = [cell(), cell(length=4096), cell("decode_causal", 4096, 1)]


def measured(
    fake: tuple[str, ...], tmp_path: Path, cells: Any = None, before: Any = None, **options: Any
) -> dict[str, Any]:
    wanted = run.BenchOptions(peers=("flash2", "cudnn", "flex", "triton"), **options)
    log = tmp_path / "log"
    conductor = run.Conductor(CELLS if cells is None else cells, wanted, log, lambda _: None, fake)
    return conductor.run(lambda _: None, before)


def test_a_measurement(fake: tuple[str, ...], tmp_path: Path) -> None:
    found = measured(fake, tmp_path)
    rows = {(r["operator"], r["length"], r["candidate"]): r for r in found["rows"]}
    ours = rows["prefill_causal", 4096, "neptune"]
    assert ours["us"] == 200 and len(ours["rounds_us"]) == 3 and ours["right"]
    p = cell(length=4096).problem
    assert ours["bound_us"] == pytest.approx(max(p.flops / 8e14, p.bytes / 4.4e12) * 1e6)
    assert ours["sol"] == pytest.approx(ours["bound_us"] / 200)
    bound = ours["bound_us"]
    assert ours["score"] == pytest.approx(1 / (1 + (200 - bound) / (180 - bound)))
    # NaN after the timing counts, a process that died is one row's failure
    assert not rows["prefill_causal", 1024, "flex"]["right"]
    assert "the kernel faulted" in rows["prefill_causal", 1024, "triton"]["failed"]
    assert ("decode_causal", 4096, "triton") not in rows
    same = [r for r in found["rows"] if results.cell_of(r) == results.cell_of(ours)]
    assert results.best_peer(same)["candidate"] == "cudnn"
    assert results.best_of_ours(same) is ours
    assert results.error_ratio(ours, same) == 1
    json.loads(results.to_json(found), parse_constant=lambda name: pytest.fail(name))


def test_results_in_a_file_go_on(fake: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(results.to_json(measured(fake, tmp_path, CELLS[:2])))
    asked = Path(fake[1] + ".log")
    asked.unlink()
    found = measured(fake, tmp_path, before=results.read(path))
    assert asked.read_text().count("neptune prepare") == 1  # of the third cell
    assert {r["operator"] for r in found["rows"]} == {"prefill_causal", "decode_causal"}
    assert len(found["limits"]) == 4
    wrong = [r for r in found["rows"] if r.get("right") is False]
    assert wrong and all(r["errors"]["relative"] == float("inf") for r in wrong)
    Path(fake[1] + ".gpu").write_text("another")
    with pytest.raises(UsageError, match="cannot go on"):
        measured(fake, tmp_path, before=found)
    for text in ("{", "[1]", '{"rows": []}'):
        path.write_text(text)
        with pytest.raises(InputError):
            results.read(path)


def test_candidates_take_turns(fake: tuple[str, ...], tmp_path: Path) -> None:
    wanted = run.BenchOptions(peers=("flash2", "cudnn"))
    run.Conductor([cell()], wanted, tmp_path / "log", lambda text: None, fake).run(lambda f: None)
    log = Path(fake[1] + ".log").read_text().split("\n")
    turns = [line.split()[0] for line in log if line.endswith(" round")]
    assert turns == ["neptune", "flash2", "cudnn", "flash2", "cudnn", "neptune", "cudnn",
                     "neptune", "flash2"]  # fmt: skip


def test_what_is_compiled_before(fake: tuple[str, ...], tmp_path: Path) -> None:
    """Every candidate once, and what a compilation does not serve."""
    lengths = [cell(length=n) for n in (512, 1024, 2048)]
    wanted = run.BenchOptions(peers=("flash2", "flex", "triton"))
    run.Conductor(lengths, wanted, tmp_path / "log", lambda _: None, fake)._warm(lengths)
    warm = [x.split()[0] for x in Path(fake[1] + ".log").read_text().split("\n") if "warm" in x]
    assert sorted(warm) == ["flash2", "flex", "flex", "flex", "neptune", "triton"]


def test_a_candidate_that_tunes_has_the_gpu_to_itself(
    fake: tuple[str, ...], tmp_path: Path
) -> None:
    assert peers.PEERS["triton"].tunes
    wanted = run.BenchOptions(peers=("triton", "flash2"))
    run.Conductor([cell()], wanted, tmp_path / "log", lambda _: None, fake).run(lambda _: None)
    log = Path(fake[1] + ".log").read_text().split("\n")
    prepared = [x.split()[0] for x in log if x.endswith(" prepare")]
    assert prepared[-1] == "triton" and len(prepared) == 3


def test_the_budget(fake: tuple[str, ...], tmp_path: Path) -> None:
    found = measured(fake, tmp_path, budget=0)
    assert not found["rows"] and len(found["skipped"]) == 3
    assert "for want of time" in report.tables(found)


def test_a_time_under_the_bound_is_an_audit_failure() -> None:
    row = {"operator": "x", "dtype": "f16", "length": 1, "batch": 1, "candidate": "neptune",
           "ours": True, "suite": "operators", "sweep": False, "flops": 1e12, "bytes": 1,
           "us": 9.0, "right": True}  # fmt: skip
    found = {"limits": [{"matmul_bf16": 1e17, "copy": 1e12, "sm_mhz": 1e30}], "rows": [row]}
    results.conclude(found)
    assert row["audit_failure"] and row["bound_us"] == pytest.approx(10)


def test_a_worker_that_hangs_or_cannot_go_on(fake: tuple[str, ...], tmp_path: Path) -> None:
    slow = Worker("slow", tmp_path / "log", command=fake)
    assert slow.ask(0.5, do="round") == {"failed": "no answer in 0.5 s"}
    broken = Worker("unusable", tmp_path / "log", command=fake)
    assert broken.ask(20, do="round")["failed"] == "CUDA error"
    assert broken._process is None
    assert broken.ask(20, do="round")["failed"] == "CUDA error"  # started again
    broken.stop()


def test_tables(fake: tuple[str, ...], tmp_path: Path) -> None:
    found = measured(fake, tmp_path)
    text = report.tables(found)
    line = next(x for x in text.splitlines() if x.startswith("prefill_causal f16") and "4096" in x)
    ours = next(r for r in found["rows"] if r["length"] == 4096)
    assert f"{ours['tflops']:.0f}±0" in line and " 0.90 " in line and "failed" in line
    assert "WRONG" in line and " 2.0e-04 " in line
    [error] = [x for x in text.splitlines() if x.startswith("decode_causal f16 neptune")]
    assert error.split()[3:] == ["2.0e-04", "1.0e-05", "2.0e-05", "3.0e-05", "1.00"]
    [all_of] = [x for x in text.splitlines() if x.startswith("all of operators, prefill, neptune")]
    assert all_of.split()[-5:] == ["2", "0.90", "0.90", "0.90", "1.20"]
    assert "failed: prefill_causal f16 1024 1 triton" in text
    markdown = report.tables(found, markdown=True).splitlines()
    assert sum(x.startswith("| --- | ---:") for x in markdown) == 4


def test_plot(fake: tuple[str, ...], tmp_path: Path) -> None:
    found = measured(fake, tmp_path)
    root = ElementTree.fromstring(plot.plot(found))
    space = "{http://www.w3.org/2000/svg}"
    panels = root.findall(f"{space}g")
    assert len(panels) == 2
    titles = [p.find(f"{space}text").text for p in panels]
    assert titles == ["prefill_causal, f16, TFLOP/s", "decode_causal, f16, GB/s"]
    # a higher throughput is drawn higher up: cudnn, ours, flash2
    heights = {
        c.get("fill"): float(c.get("cy")) for c in panels[0].findall(f"{space}circle")
        if float(c.get("cx")) > 200
    }  # fmt: skip
    ours, flash2, cudnn = (heights[c] for c in plot.COLOURS[:3])
    assert cudnn < ours < flash2
    for circle in root.iter(f"{space}circle"):
        assert plot.TOP <= float(circle.get("cy")) <= plot.HEIGHT - plot.BOTTOM


def test_a_plot_of_nothing() -> None:
    ElementTree.fromstring(plot.plot({"rows": []}))


def test_a_plot_of_a_sweep(fake: tuple[str, ...], tmp_path: Path) -> None:
    sweep = [cell(length=512), cell(length=1024)]
    for batch in (2, 4):
        p = replace(sweep[1].problem, batch=batch)
        sweep.append(replace(sweep[1], problem=p, sweep=True))
    text = plot.plot(measured(fake, tmp_path, sweep))
    space = "{http://www.w3.org/2000/svg}"
    lengths, batches = ElementTree.fromstring(text).findall(f"{space}g")
    low = str(plot.HEIGHT - plot.BOTTOM + 14)
    labels = [
        [t.text for t in g.findall(f"{space}text") if t.get("y") == low]
        for g in (lengths, batches)
    ]
    assert labels == [["512", "1k"], ["1", "2", "4"]]
    assert "over batch" in batches.find(f"{space}text").text


@pytest.mark.parametrize(("value", "top"), [(0.9, 1), (1, 1), (1.1, 1.2), (650, 800), (4100, 6000)])
def test_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert plot.nice(value) == pytest.approx(top)


def test_cells_of_a_folder(tmp_path: Path) -> None:
    plan = Plan("f", (), (), (), (), ())
    for label in ("neptune", "other"):
        for name in ("prefill_global", "decode_causal"):
            spec = {"kind": "operator", "operator": name, "dtype": "f16", "label": label,
                    "suite": "prefill" if name.startswith("prefill") else "operators",
                    "head_dim": 128, "settings": {"heads": 2, "kv_heads": 2}}  # fmt: skip
            if name.startswith("decode"):
                spec["settings"]["q_len"] = 1
            else:
                spec |= {"tokens": 4096, "lengths": [512, 8192]}
            path = tmp_path / f"{name}-{label}.bundle"
            path.write_bytes(Bundle("sm_90a", plan, b"", {"bench": spec}).to_bytes())
    (tmp_path / "not-ours.bundle").write_bytes(Bundle("sm_90a", plan, b"").to_bytes())
    options = run.BenchOptions(lengths=(256, 512), batches=(2, 4), dtypes=("f16",), operators="de")
    cells = run.cells_of(tmp_path, options)
    sizes = [(c.problem.queries, c.problem.keys, c.problem.batch, c.sweep) for c in cells]
    assert sizes == [(1, 256, 1, False), (1, 512, 1, False), (1, 8192, 2, True),
                     (1, 8192, 4, True)]  # fmt: skip
    assert cells[0].candidates(("flash2", "triton")) == ["neptune", "other", "flash2"]
    options.operators = "global,missing"
    cells = run.cells_of(tmp_path, options)
    assert [(c.problem.keys, c.problem.batch, c.suite) for c in cells] == [(512, 8, "prefill")]
    with pytest.raises(UsageError, match="no bundles"):
        run.bundles_of(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no bundles of missing"):
        run.bundles_of(tmp_path, "missing")
