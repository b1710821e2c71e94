# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measuring candidates with a stand-in for the GPU, and what becomes of the times in the table."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from neptune_mlir.bench.results import to_json
from neptune_mlir.cli.main import main
from neptune_mlir.errors import UsageError
from neptune_mlir.targets import tuned
from neptune_mlir.targets.tuned import Choice, Entry, Shape, Table
from neptune_mlir.tune import record, run
from neptune_mlir.tune.manifest import NAME, RULE

SHAPE = Shape(64, 64, True, True)
CHOICES = {RULE: Choice(128, 128), **{str(c): c for c in (
    *(Choice(128, n) for n in (96, 112, 144, 160, 176)), Choice(192, 128)
)}}  # fmt: skip
SPEC = {"kind": "operator", "operator": "causal_d64", "dtype": "f16", "head_dim": 64,
        "settings": {"heads": 2, "kv_heads": 2, "causal": True}}  # fmt: skip

# stands for a worker: time by bundle and length, and ways to fail
FAKE = '''
import json, sys
errors = lambda e: {"errors": dict(relative=e)}
for line in sys.stdin:
    m = json.loads(line)
    with open(sys.argv[0] + ".log", "a") as log:
        log.write(f"{m['do']} {m.get('bundle', '')}\\n")
    answer = {}
    if m["do"] == "device":
        answer = json.load(open(sys.argv[0] + ".gpu"))
    if m["do"] == "prepare":
        name, length = m["bundle"].rpartition("/")[2], m["problem"]["keys"]
        us = {"128x96": 90.0, "192x128": 95.0 if length >= 4096 else 120.0}.get(name, 100.0)
        answer = errors(float("nan") if name == "128x112" else 2e-4)
    if m["do"] == "round":
        if name == "128x144":
            print("the kernel faulted", file=sys.stderr); sys.exit(7)
        answer = {"us": [us, us * 1.01, us * 0.99]}
    if m["do"] == "finish":
        answer = errors(1.0 if name == "128x96" else 2e-4)
    print(json.dumps(answer), flush=True)
'''


def manifest(lengths: tuple[int, ...] = (1024, 4096)) -> dict[str, Any]:
    candidates = {n: {"choice": c.as_json(), "bundle": n} for n, c in CHOICES.items()}
    job = {"name": "causal_d64", "program": "p.mlir", "spec": SPEC, "shape": asdict(SHAPE),
           "stream": 0, "rule": CHOICES[RULE].as_json(), "candidates": candidates,
           "pruned": {}}  # fmt: skip
    return {"target": "sm_90a", "tools": {"neptune-mlir": "1"}, "lengths": list(lengths),
            "jobs": [job], "build": "b"}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "shipped", Table)


@pytest.fixture
def fake(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "fake.py"
    path.write_text(FAKE)
    (tmp_path / "fake.py.gpu").write_text('{"name": "a GPU", "capability": [9, 0]}')
    return (sys.executable, str(path))


def measured(
    fake: tuple[str, ...], tmp_path: Path, before: Any = None, save: Any = None, **options: Any
) -> dict[str, Any]:
    found, wanted = manifest(), run.Options(**options)
    cells = run.cells_of(tmp_path, found, wanted)
    tuner = run.Tuner(found, cells, wanted, tmp_path / "log", lambda _: None, fake)
    return tuner.run(save or (lambda _: None), before)


def test_a_tuning(fake: tuple[str, ...], tmp_path: Path) -> None:
    found = measured(fake, tmp_path)
    rows = {(r["length"], r["candidate"]): r for r in found["rows"]}
    assert len(rows) == 2 * len(CHOICES)
    # NaN before the rounds, an error behind them, a process that died
    assert not rows[1024, "128x112"]["right"] and not rows[1024, "128x112"]["rounds_us"]
    assert not rows[1024, "128x96"]["right"]
    assert "the kernel faulted" in rows[4096, "128x144"]["failed"]
    assert rows[4096, "192x128"]["us"] == 95 and rows[4096, "192x128"]["right"]
    # 5 of 7 could run a round, then 4; the rule stays
    assert [len(rows[1024, n]["rounds_us"]) for n in (RULE, "192x128")] == [5, 1]
    assert len(rows[4096, "192x128"]["rounds_us"]) == len(rows[4096, RULE]["rounds_us"]) == 5
    assert record.entries([found]) == [Entry("sm_90a", SHAPE, 4096, Choice(192, 128))]
    assert record.winners([found]) == {"causal_d64": {"192x128"}}
    json.loads(to_json(found), parse_constant=lambda name: pytest.fail(name))


def test_results_in_a_file_go_on(fake: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    found = measured(fake, tmp_path, budget=-1)
    assert found["skipped"] == [["causal_d64", 1024], ["causal_d64", 4096]] and not found["rows"]
    measured(fake, tmp_path, save=lambda some: path.write_text(to_json(some)), lengths=(1024,))
    asked = Path(fake[1] + ".log")
    asked.unlink()
    found = measured(fake, tmp_path, before=run.read(path))
    assert asked.read_text().count(f"prepare {tmp_path}/{RULE}\n") == 1
    assert {r["length"] for r in found["rows"]} == {1024, 4096}
    Path(fake[1] + ".gpu").write_text('{"name": "another", "capability": [9, 0]}')
    with pytest.raises(UsageError, match="cannot go on"):
        measured(fake, tmp_path, before=found)


def test_a_device_that_does_not_run_the_code(fake: tuple[str, ...], tmp_path: Path) -> None:
    Path(fake[1] + ".gpu").write_text('{"name": "old", "capability": [8, 0]}')
    with pytest.raises(UsageError, match="does not run code for sm_90a"):
        measured(fake, tmp_path)


def test_again_measures_the_winners_alone(tmp_path: Path) -> None:
    only = run.Options(only={"causal_d64": {"192x128"}})
    cells = run.cells_of(tmp_path, manifest(), only)
    assert [list(c.bundles) for c in cells] == [[RULE, "192x128"]] * 2
    assert not run.cells_of(tmp_path, manifest(), run.Options(only={}))


# ---- records


def rows(length: int, times: dict[str, list[float]], job: str = "j") -> list[dict[str, Any]]:
    return [
        {"job": job, "length": length, "stream": length, "shape": asdict(SHAPE), "tolerance": 2e-3,
         "candidate": name, "choice": CHOICES[name].as_json(), "rounds_us": us, "right": True,
         "us": us[0]} for name, us in times.items()
    ]  # fmt: skip


def results(*cells: list[dict[str, Any]]) -> dict[str, Any]:
    return {"device": {"name": "a GPU"}, "target": "sm_90a", "tools": {"neptune-mlir": "1"},
            "build": "b", "rows": [row for cell in cells for row in cell]}  # fmt: skip


def test_noise_wins_nothing() -> None:
    for times in ([99.5, 99.5], [97.0, 102.0], [101.0, 101.0]):
        assert not record.entries([results(rows(1024, {RULE: [100.0, 100.0], "128x96": times}))])
    # a slow drift that both share is no noise
    found = record.entries([results(rows(1024, {RULE: [100.0, 110.0], "128x96": [97.0, 106.7]}))])
    assert found == [Entry("sm_90a", SHAPE, 0, CHOICES["128x96"])]
    assert found[0].measured["gain"] == pytest.approx(0.031, abs=1e-3)


def test_buckets() -> None:
    def cell(length: int, **gains: float) -> list[dict[str, Any]]:
        names = {"a": "128x96", "b": "192x128"}
        return rows(length, {RULE: [100.0] * 2, **{
            names[k]: [100 / (1 + g)] * 2 for k, g in gains.items()
        }})  # fmt: skip

    found = record.entries([results(
        cell(512, a=0.05), cell(1024, a=0.03, b=0.02), cell(2048, a=0.03, b=0.03),
        cell(4096, a=0.02, b=0.06), cell(8192, a=0.0, b=0.0), cell(16384, b=-0.1),
    )])  # fmt: skip
    a, b, rule = (CHOICES[n] for n in ("128x96", "192x128", RULE))
    assert [(e.start, e.choice) for e in found] == [(0, a), (4096, b), (8192, rule)]
    assert "rule" in found[-1].measured


def test_several_jobs_and_runs_must_agree() -> None:
    won = rows(1024, {RULE: [100.0] * 2, "128x96": [95.0] * 2})
    lost = rows(1024, {RULE: [100.0] * 2, "128x96": [100.0] * 2}, job="other")
    alone = rows(1024, {RULE: [100.0] * 2, "192x128": [90.0] * 2})
    assert record.entries([results(won)]) and record.entries([results(won), results(won)])
    assert not record.entries([results(won, lost)]) and not record.entries([results(lost, won)])
    assert not record.entries([results(won), results(lost)])
    assert not record.entries([results(won), results(alone)])


def test_merge_keeps_what_was_not_measured() -> None:
    other = Entry("sm_90a", Shape(128, 128, True, True), 0, Choice(128, 96))
    table = Table((
        Entry("sm_90a", SHAPE, 2048, Choice(192, 64)), Entry("sm_100a", SHAPE, 0, Choice(64, 16)),
        Entry("sm_90a", SHAPE, 8192, Choice(192, 128)), other,
    ))  # fmt: skip
    run_ = results(rows(4096, {RULE: [100.0] * 2, "128x96": [90.0] * 2}))
    found = record.merge(table, [run_])
    assert found.of("sm_90a", other.shape) == [other] and len(found.of("sm_100a", SHAPE)) == 1
    assert [(e.start, e.choice) for e in found.of("sm_90a", SHAPE)] == [
        (0, CHOICES["128x96"]), (8192, Choice(192, 128))
    ]  # fmt: skip
    again = results(rows(4096, {RULE: [100.0] * 2, "192x128": [90.0] * 2}))
    assert [e.start for e in record.merge(table, [again]).of("sm_90a", SHAPE)] == [0]
    nothing = results(rows(4096, {RULE: [100.0] * 2, "128x96": [110.0] * 2}))
    assert [e.start for e in record.merge(table, [nothing]).of("sm_90a", SHAPE)] == [8192]


def test_the_command_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, found = tmp_path / "user" / "table.json", tmp_path / "results.json"
    monkeypatch.setenv(tuned.ENVIRONMENT, str(table))
    found.write_text(to_json(results(rows(4096, {RULE: [100.0] * 2, "128x96": [90.0] * 2}))))
    assert main(["tune", "record", str(found)]) == 0
    assert f"{table}: entries 1, of these results 1" in capsys.readouterr().out
    (first, *_) = tuned.read(table).of("sm_90a", SHAPE)
    assert first.choice == CHOICES["128x96"] and first.measured["device"] == "a GPU"
    before = table.read_text()
    assert main(["tune", "record", str(tmp_path), "--table", str(table)]) == 0  # a folder's
    assert table.read_text() == before
    table.write_text("{}")
    assert main(["tune", "record", str(found)]) == 1
    monkeypatch.setenv(tuned.ENVIRONMENT, "none")
    assert main(["tune", "record", str(found)]) == 2
    assert main(["tune", "run", str(tmp_path)]) == 2
    (tmp_path / "tune.json").write_text("[]")
    assert main(["tune", "run", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "cannot be read" in said and "no user's table" in said and "has no tune.json" in said
    assert "has no 'target'" in said


def test_all_of_it(
    fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`neptune tune PROGRAM`: built for the device that is there, measured, recorded."""
    program, table = tmp_path / "p.mlir", tmp_path / "table.json"
    program.write_text("")
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(tuned.ENVIRONMENT, str(table))
    asked: list[Any] = []

    def built(folder: Path, subjects: Any, target: str, knobs: Any, lengths: Any, say: Any) -> Any:
        asked.append((subjects[0].name, subjects[0].spec, target, lengths))
        (folder / NAME).write_text(json.dumps(manifest(lengths)))

    monkeypatch.setattr("neptune_mlir.tune.build.build", built)
    monkeypatch.setattr(run, "Tuner", partial(run.Tuner, command=fake))
    monkeypatch.setattr(run, "device", lambda log: {"name": "a GPU", "capability": [9, 0]})
    command = ["tune", str(program), "--extent", "q.0=2", "--lengths", "1024,4096"]
    assert main(command) == 0 and main(command) == 0  # results of an earlier build do not count
    assert asked[0] == ("p", {"kind": "program", "fixed": {"q.0": 2}}, "sm_90a", (1024, 4096))
    assert [e.choice for e in tuned.read(table).entries] == [Choice(192, 128)]
    said = capsys.readouterr().out
    assert said.count("device: ") == said.count("192x128: 95.0 us, rule 100.0 us, +5.3%") == 2
    monkeypatch.setattr(run, "device", lambda log: {"name": "old", "capability": [5, 0]})
    assert main(command) == 2
    assert "nothing to tune for old" in capsys.readouterr().err


def test_a_program_whose_extents_are_fixed_is_measured_once() -> None:
    made = manifest((64, 128))
    (job,) = made["jobs"]
    program = {"kind": "program", "fixed": {}, "stored": "a.npz", "tolerance": 1e-3}
    made["jobs"] = [job, {**job, "name": "static", "spec": {**program, "once": True}},
                    {**job, "name": "open", "spec": {**program, "once": False}}]  # fmt: skip
    found = [cell.key for cell in run.cells_of(Path("d"), made, run.Options())]
    assert found == [("causal_d64", 64), ("static", 64), ("open", 64),
                     ("causal_d64", 128), ("open", 128)]  # fmt: skip
    asked = run.cells_of(Path("d"), made, run.Options(lengths=(32, 256)))
    assert [cell.key for cell in asked if cell.key[0] == "static"] == [("static", 32)]
