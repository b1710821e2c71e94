# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The sweep: draws, what is made of its results, and a tiny one on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from neptune_mlir import ops
from neptune_mlir.bench import draws, figures, plot, sweep
from neptune_mlir.bench.peers import PEERS, bias_of
from neptune_mlir.bench.problem import Problem, from_json
from neptune_mlir.bench.rows import PROGRAMS, Rows
from neptune_mlir.bench.worker import Session, answering
from neptune_mlir.cli import main

torch = pytest.importorskip("torch")
DRAWN = {device: list(draws.draws(7, 400, device)) for device in draws.ROOM}


@pytest.mark.parametrize("device", list(draws.ROOM))
def test_draws_cover_the_distribution(device: str) -> None:
    drawn, room = DRAWN[device], draws.ROOM[device]
    assert {d.kind for d in drawn} == set(draws.KINDS)
    problems = [d.problem for d in drawn]
    assert {p.dtype for p in problems} == set(room.dtypes)
    assert all(p.flops <= room.flops and p.keys >= 1 for p in problems)
    assert {p.program for p in problems if isinstance(p, Rows)} == set(PROGRAMS)
    assert {d.fixed for d in drawn if isinstance(d.problem, Rows)} == {False, True}
    attention = [p for p in problems if isinstance(p, Problem)]
    names = {name for p in attention for name, value in p.settings.items() if value}
    assert names >= {*draws.MODIFIERS, "causal", "lse", "v_dim"}
    assert len({p.head_dim for p in attention}) > 20
    assert {p.heads // p.kv_heads for p in attention} >= set(range(1, 17))
    assert any(draws.is_prime(p.keys) for p in attention)
    assert any(p.keys > room.length // 2 for p in attention)
    assert all(max(p.queries, p.keys) <= room.length for p in attention)
    cols = [p.settings["cols"] for p in problems if isinstance(p, Rows) and not p.flops]
    assert any(n % 2 for n in cols) and max(cols) > 50_000 and min(cols) < 200


def test_masks_of_draws_leave_each_query_a_key() -> None:
    for d in DRAWN["gpu"]:
        p = d.problem
        if isinstance(p, Problem) and p.settings.get("causal"):
            assert p.queries <= p.keys
        if isinstance(p, Problem) and p.settings.get("documents"):
            assert p.queries == p.keys


def test_a_draw_follows_from_its_seed_and_number() -> None:
    assert draws.draw(7, 12, "gpu") == DRAWN["gpu"][12]
    assert draws.draw(8, 12, "gpu").problem != DRAWN["gpu"][12].problem
    spec = DRAWN["gpu"][12].spec
    assert from_json(json.loads(json.dumps(spec["problem"]))) == DRAWN["gpu"][12].problem


def row(name: str, candidate: str, us: float, **more: Any) -> dict[str, Any]:
    return {
        "operator": name, "dtype": "f16", "length": 1, "batch": 1, "candidate": candidate,
        "ours": candidate == "neptune", "suite": "sweep", "sweep": False, "right": True, "us": us,
        "title": name, "drawn": "rows", "sol": 0.5, "why": [f"because of {name}"], **more,
    }  # fmt: skip


def test_what_is_reported() -> None:
    rows = [row("fast", "neptune", 10), row("fast", "a", 30), row("fast", "b", 20)]
    rows += [row("slow", "neptune", 10), row("slow", "a", 5)]
    rows += [row("wrong peer", "neptune", 10), row("wrong peer", "a", 1, right=False)]
    rows += [row("wrong", "neptune", 1, right=False), row("wrong", "a", 1)]
    placed = sweep.standings(rows)
    assert [(r["title"], r["speed"], r["peer"]) for r in placed] == [
        ("slow", 0.5, "a"), ("fast", 2.0, "b")
    ]  # fmt: skip
    assert sweep.figures_of([0.5, 2.0]) == pytest.approx(
        {"count": 2, "mean": 1.0, "p5": 0.575, "least": 0.5}
    )
    text = sweep.report({"rows": rows, "skipped": ["draw-1-9"]})
    assert "because of slow" in text and "wrong (wrong): wrong" in text
    assert "4 draws, 3 right" in text and "1 that no peer got right" in text
    assert "want of time: draw-1-9" in text
    assert sweep.report({"rows": rows[:1], "skipped": []}).count("nan") == 3


def test_a_plot_of_draws(tmp_path: Path) -> None:
    """A panel for each draw, with a dot in it, was drawn."""
    rows = [row("fast & <good>", "neptune", 10, drawn="prefill", tflops=1.0),
            row("fast & <good>", "a", 20, tflops=0.5),
            row("slow", "neptune", 10, tflops=1.0), row("slow", "a", 5, tflops=2.0)]  # fmt: skip
    path, out = tmp_path / "r.json", tmp_path / "o.svg"
    measured = {"device": {}, "rounds": 1, "limits": {}, "rates": {}, "seconds": 1}
    path.write_text(json.dumps({**measured, "rows": rows, "skipped": []}))
    assert main.main(["bench", "show", str(path), "--plot", str(out)]) == 0
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(out.read_text())
    slow, fast = root.findall(f"{space}circle")
    assert [c.find(f"{space}title").text for c in (slow, fast)] == [
        "slow: 0.50 of a", "fast & <good>: 2.00 of a"
    ]  # fmt: skip
    (even,) = root.findall(f"{space}line[@class='bound']")
    middle = float(even.get("y1"))
    assert float(slow.get("cy")) - middle == pytest.approx(middle - float(fast.get("cy")), abs=0.1)
    assert float(fast.get("cy")) < middle and slow.get("fill") != fast.get("fill")
    ElementTree.fromstring(plot.plot_draws([]))


SETTINGS: list[dict[str, Any]] = [
    {"causal": True, "window": 5, "softcap": 20.0}, {"alibi": True, "bias": True, "causal": True},
    {"documents": 6, "lse": True}, {"sink": True, "lse": True, "causal": True}, {"v_dim": 24},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s))
def test_the_reference_is_what_the_program_means(settings: dict[str, Any]) -> None:
    """Ours, evaluated in float64, and torch with one bias for all that it can express."""
    queries = 23 if "documents" in settings else 11
    p = Problem("x", "f32", queries, 23, {"heads": 4, "kv_heads": 2, **settings}, 16, 2)
    arrays = p.inputs("cpu")
    from neptune_mlir.bench.build import drawn_program

    found = drawn_program(p).reference(*[a.numpy() for a in arrays])
    heads, rows = [0, 3], [0, 4, 10]
    wanted, sums = p.both(arrays, heads, rows)
    out, lse = found if isinstance(found, tuple) else (found, None)
    assert figures.errors(out[-1][heads][:, rows], wanted)["relative"] < 1e-6
    assert lse is None or figures.errors(lse[-1][heads][:, rows], sums)["relative"] < 1e-6
    if PEERS["sdpa"].can(p):
        made = PEERS["sdpa"].make(p, arrays)()[-1][heads][:, rows].double()
        assert figures.errors(made, wanted)["relative"] < 1e-5
        assert (bias_of(p, arrays) is None) == (settings == {"v_dim": 24})


def test_pairs_of_documents() -> None:
    p = Problem("x", "f32", 40, 40, {"heads": 1, "kv_heads": 1, "documents": 5, "causal": True}, 8)
    of = p.documents
    assert p.pairs == sum(of[i] == of[j] for i in range(40) for j in range(i + 1))


@pytest.mark.parametrize("program", ["softmax", "logsumexp", "rms_norm", "cross_entropy"])
def test_rows_without_a_product(program: str) -> None:
    p = Rows("x", program, "f32", 5, {"cols": 7})
    arrays = p.inputs("cpu")
    extents = {"classes": 7} if program == "cross_entropy" else {"cols": 7}
    made = getattr(ops, program)(**extents).reference(*[a.numpy() for a in arrays])
    assert figures.errors(made, p.expected(arrays, whole=True))["relative"] < 1e-6
    assert p.flops == 0 and p.bytes > 4 * 35 and p.result(arrays).shape == made.shape


def test_a_sweep_on_the_cpu_and_its_resumption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiles two programs of rows and measures them twice; the second time has all but one."""
    kinds = {"rows": 1}
    monkeypatch.setattr(draws, "KINDS", kinds)
    monkeypatch.setenv("NEPTUNE_NUM_THREADS", "2")
    out = tmp_path / "sweep.json"
    asked = ["bench", "--suite", "sweep", "--target", "cpu", "--seed", "3", "--count", "2",
             "--folder", str(tmp_path / "b"), "--json", str(out), "--rounds", "1",
             "--peers", "eager"]  # fmt: skip
    assert main.main(asked) == 0
    text = capsys.readouterr().out
    assert "2 draws, 2 right" in text and "time of the best peer / ours" in text
    found = json.loads(out.read_text())
    assert {r["candidate"] for r in found["rows"]} == {"neptune", "eager"}
    assert found["device"]["threads"] == 2
    found["rows"] = [r for r in found["rows"] if r["operator"] == "draw-3-0"]
    kept = found["rows"][0]["us"]
    out.write_text(json.dumps(found))
    assert main.main([*asked, "--resume"]) == 0
    again = json.loads(out.read_text())["rows"]
    assert len(again) == 4 and kept in [r["us"] for r in again]
    assert main.main(["bench", "show", str(out), "--markdown"]) == 0
    assert "| all | 2 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "said"),
    [(["bench"], "no action"), (["bench", "--suite", "sweep", "--count", "0"], "--count is 0")],
)
def test_what_cannot_be_asked(
    asked: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(asked) != 0
    assert said in capsys.readouterr().err


def test_requests_are_answered_by_the_class_of_the_session():
    """The tuner's session knows programs that the benchmark's does not."""

    class Own(Session):
        def use(self, name):
            self.device = name

        def prepare(self, message):
            return {"own": message["program"]}

    assert answering(Own("x"))({"do": "prepare", "program": 3}) == {"own": 3}
    assert answering(Own("x"))({"do": "sleep"})["failed"] == "ValueError: no request 'sleep'"
