# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune tune search`: what is proposed, what a table keeps of it, and a search on the CPU."""

import json
import math
import re
import time

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.cli.main import main
from neptune_mlir.driver.compiler import compile_text
from neptune_mlir.errors import UsageError
from neptune_mlir.pipelines import cpu
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.targets import tuned
from neptune_mlir.targets.findings import ProgramFinding, program_digest
from neptune_mlir.transforms.schedule import library
from neptune_mlir.tune import session, trial
from neptune_mlir.tune.search import Point, Search, expected_improvement, nest_of, posterior

SPACE = {
    "one": {"rows": (1, 2, 4, 8, 16, 32, 64, 128), "stream": range(16, 257, 16)},
    "two": {"rows": (1, 2, 4, 8, 16, 32, 64, 128), "chunks": (2, 4, 8, 16, 32, 64),
            "stream": (16, 32, 64, 128, 256)},
}  # fmt: skip


def bowl(point):
    """A cost with one valley, in the second script; some points fail."""
    knobs = dict(point.knobs)
    if point.script == "one":
        return None if knobs["stream"] > 240 else 3 + abs(math.log2(knobs["rows"]) - 5)
    valley = {"rows": 5, "chunks": 4, "stream": 7}
    apart = sum((math.log2(knobs[name]) - at) ** 2 for name, at in valley.items())
    return 1 + 0.1 * apart


def found(seed, count, search=None):
    search = search or Search(SPACE, seed)
    costs = []
    for _ in range(count):
        point = search.propose()
        cost = bowl(point)
        search.tell(point, cost)
        costs.append(math.inf if cost is None else cost)
    return search, costs


def test_it_finds_the_valley_sooner_than_chance():
    ours = [min(found(seed, 30)[1]) for seed in range(8)]
    rng = np.random.default_rng(0)
    chance = []
    for _ in range(200):
        search = Search(SPACE, int(rng.integers(1 << 30)))
        search.start = 30  # only random points
        chance.append(min(found(0, 30, search)[1]))
    assert np.mean(ours) < 1.1 and np.mean(chance) > 1.2


def test_the_same_seed_proposes_the_same():
    assert found(3, 25)[1] == found(3, 25)[1] != found(4, 25)[1]


def test_each_point_is_proposed_once_until_none_is_left():
    search = Search({"s": {"a": (1, 2, 3), "b": (0, 1)}}, first=[Point.of("s", {"a": 2, "b": 1})])
    points = []
    while (point := search.propose()) is not None:
        points.append(point)
        search.tell(point, None if point.knobs[0] == ("a", 1) else 1.0)
    assert len(points) == len(set(points)) == search.size == 6
    assert points[0] == Point.of("s", {"a": 2, "b": 1})
    assert len(search.best(10)) == 4, "what failed is not among the best"


def test_loop_nests_are_crossed_whole():
    knobs = ("rows_1", "stream_1", "rows_2", "stream_2", "held")
    search = Search({"s": dict.fromkeys(knobs, (0, 1))})
    one, other = (Point.of("s", dict.fromkeys(knobs, n)) for n in (0, 1))
    seen = {search._crossed(one, other).knobs for _ in range(200)}
    made = [dict(point) for point in seen]
    assert all(k["rows_1"] == k["stream_1"] and k["rows_2"] == k["stream_2"] for k in made)
    assert len(made) == 8, "two nests and a knob of none, each from either"
    assert (nest_of("rows_12"), nest_of("warp_groups")) == ("_12", "warp_groups")


def test_the_process_goes_through_its_points():
    x = np.linspace(0, 1, 6)[:, None]
    y = np.sin(6 * x[:, 0])
    y = (y - y.mean()) / y.std()
    mean, spread = posterior(x, y, x)
    np.testing.assert_allclose(mean, y, atol=0.02)
    between = posterior(x, y, np.array([[0.5], [3.0]]))[1]
    assert max(spread) < between[0] < between[1] <= 1.001


def test_expected_improvement():
    gain = expected_improvement(0.0, np.array([-1.0, 1.0, 1.0]), np.array([1e-6, 1e-6, 2.0]))
    np.testing.assert_allclose(gain[:2], [1, 0], atol=1e-6)
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(
        gain[2], np.maximum(0 - rng.normal(1, 2, 400_000), 0).mean(), rtol=0.02
    )  # of its definition


# ---- findings

PROGRAM = ops.softmax().to_mlir()
FOUND = ProgramFinding(
    "cpu", program_digest(PROGRAM), "", "streamed", "rows:16;stream:32", {"gain": 0.1}
)


def test_a_program_is_known_by_its_text_without_places():
    spaced = "// a comment\n" + PROGRAM.replace("\n", "\n\n") + ' loc(#loc1)\n#loc1 = loc("a":1:2)'
    assert program_digest(spaced) == FOUND.program
    assert program_digest(PROGRAM.replace("max", "min")) != FOUND.program
    assert program_digest('f() loc(fused["a", "b"("c.py":1:2)]) {}') == program_digest("f() {}")


def test_long_blanks_take_no_time():
    started = time.process_time()
    program_digest(" " * 200_000 + "x")
    assert time.process_time() - started < 1  # 30 s where each blank looks at all that follow


def test_tables_keep_findings(tmp_path):
    table = tuned.shipped().with_finding(FOUND)
    path = tmp_path / "t.json"
    path.write_text(table.to_json())
    assert tuned.read(path) == table and table.finding("cpu", FOUND.program, "") == FOUND
    other = ProgramFinding("cpu", FOUND.program, "", "streamed", "rows:8")
    assert table.with_finding(other).findings == (other,)
    assert tuned.Table((), (other,)).over(table).findings == (other,)
    for damage in ('"rows:"', '"rows 16"', "7"):
        path.write_text(table.to_json().replace('"rows:16;stream:32"', damage))
        with pytest.raises(neptune.NeptuneError, match="finding 0"):
            tuned.read(path)


def tile_of(bundle):
    return bundle.facts["provenance"]["schedule"]["knobs"]


def compiled(knobs="", schedule=None, program=PROGRAM):
    return compile_text(program, "p.mlir", "cpu", schedule, None, knobs=knobs)


def test_the_compiler_takes_what_was_found():
    rule = library.knob_values(tile_of(compiled()))
    del rule["length"]  # of streams that the rule's own sizes are for
    with tuned.using(tuned.shipped().with_finding(FOUND)):
        taken = compiled()
        assert library.knob_values(tile_of(taken)) == rule | {"rows": 16, "stream": 32}
        assert taken.facts["provenance"]["tuned"] == [FOUND.as_json()]
        own = library.knob_values(tile_of(compiled("rows:8")))
        assert own == rule | {"rows": 8, "stream": 32}, "what the user binds comes first"
        assert tile_of(compiled(schedule="streamed")) == "", "another schedule was asked for"


def test_code_for_few_rows_keeps_its_size():
    attention = ops.attention(head_dim=16, dtype="f32").to_mlir()
    found = ProgramFinding("cpu", program_digest(attention), "", "streamed", "rows:16")
    with tuned.using(tuned.shipped().with_finding(found)):
        program = RaisedProgram(attention, "a.mlir")
        (way,) = program.ways("cpu", cpu.ways("cpu"))
        (base,) = program.lowerings("cpu", [way])
        (few,) = [v for _, v in program.variants(base, str(base.module), "cpu")]
    bound = [v.facts["provenance"]["schedule"]["knobs"] for v in (base, few)]
    assert [library.knob_values(b)["rows"] for b in bound] == [16, 1]


def test_the_cache_knows_findings_apart():
    shipped = tuned.shipped()
    table = shipped.with_finding(FOUND)
    assert table.digest(PROGRAM, "cpu") != shipped.digest(PROGRAM, "cpu")
    assert table.digest("another", "cpu") == shipped.digest("another", "cpu")


# ---- a search

SCRIPT = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %fused = "transform.neptune.rolling_update"(%f) : (!transform.any_op) -> !transform.any_op
    %rows = transform.tune.knob<"rows"> = 1 from options = [1, 16] -> !transform.any_param
    %free = transform.tune.knob<"wide"> = 64 from options = i64 -> !transform.any_param
    %tiled = "transform.neptune.tile"(%fused, %rows, %free) {axes = ["rows", "stream"]}
        : (!transform.any_op, !transform.any_param, !transform.any_param) -> !transform.any_op
    transform.yield
  }
}
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "own.mlir"
    path.write_text(SCRIPT)
    return str(path)


def test_options(script):
    assert trial.options_of(script, {}) == {"rows": [1, 16]}
    assert trial.options_of(script, {"wide": [32, 64]}) == {"rows": [1, 16], "wide": [32, 64]}
    shipped = trial.options_of("private", {})
    assert set(shipped) == {"rows", "stream", "chunks", "columns"}
    for name, chosen, said in (
        (script, {"rows": [3]}, "cannot be 3"), (script, {"row": [1]}, "no knob 'row'"),
        ("streamd", {}, "no schedule"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            trial.options_of(name, chosen)


SWITCH = """
    %fused = transform.tune.alternatives<"fuse"> -> !transform.any_op {
      %0 = "transform.neptune.rolling_update"(%f) : (!transform.any_op) -> !transform.any_op
      transform.yield %0 : !transform.any_op
    }, {
      transform.yield %f : !transform.any_op
    }
"""


def test_alternatives_switch_a_rewrite(tmp_path, capsys):
    path = tmp_path / "switch.mlir"
    path.write_text(re.sub(r"\n    %fused = .*\n", SWITCH, SCRIPT))
    assert trial.options_of(str(path), {}) == {"fuse": [0, 1], "rows": [1, 16]}
    source = tmp_path / "p.mlir"
    source.write_text(PROGRAM)

    def shown(*knobs):
        assert main(["explain", str(source), "--schedule", str(path), *knobs]) == 0
        return capsys.readouterr().out

    assert "stream over" in shown(), "without a choice the first one"
    assert "stream over" not in shown("--knob", "fuse=1")
    assert main(["explain", str(source), "--schedule", str(path), "--knob", "fuse=2"]) != 0
    assert "knob 'fuse' cannot be 2" in capsys.readouterr().err
    path.write_text(path.read_text().replace('<"fuse">', '<"fuse"> selected_region = 1'))
    assert "stream over" not in shown(), "what the script says"
    assert "stream over" in shown("--knob", "fuse=0")


def test_ranges():
    found = library.knob_ranges(["rows=16,32:96:32,16", "chunks=4"])
    assert found == {"rows": [16, 32, 64, 96], "chunks": [4]}
    for wrong in ("rows", "rows=", "rows=a", "rows=1:2", "=4", "rows=1:9:0"):
        with pytest.raises(UsageError, match="is not NAME="):
            library.knob_ranges([wrong])


class Slow(trial.Host):
    """The CPU, but for times: a call of a kernel with 16 rows a tile takes half of the others'."""

    def call(self, kernel, given):
        rows = library.knob_values(tile_of(kernel.bundle)).get("rows")
        return lambda: 0.5 if rows == 16 else 1.0

    def seconds(self, call):
        return call()


def test_a_script_of_the_user_is_searched(script, tmp_path, monkeypatch, capsys):
    """From the command line to what `compile` takes."""
    source = tmp_path / "p.mlir"
    source.write_text(PROGRAM)
    monkeypatch.setattr(trial, "Host", Slow)
    table, out = tmp_path / "t.json", tmp_path / "out.json"
    monkeypatch.setenv(tuned.ENVIRONMENT, str(table))  # a table that the search begins
    command = ["tune", "search", str(source), "--schedule", script, "--lengths", "40",
               "--json", str(out), "--rounds", "3"]  # fmt: skip
    assert main(command) == 0
    rows = json.loads(out.read_text())["rows"]
    assert sorted((row["knobs"]["rows"], row["cost"]) for row in rows) == [(1, 1.0), (16, 0.5)]
    assert rows[-1]["best"] == 0.5 and "every point was tried" in capsys.readouterr().out
    (finding,) = tuned.read(table).findings
    assert finding.knobs == "rows:16" and finding.schedule == script
    bundle = str(tmp_path / "p.bundle")
    assert main(["compile", str(source), "--schedule", script, "-o", bundle]) == 0
    assert main(["inspect", bundle]) == 0
    assert "tuned for cpu, this program: rows 16 (+100% when measured)" in capsys.readouterr().out
    assert main(["explain", str(source), "--schedule", script]) == 0
    assert f"schedule: {script} with rows 16" in capsys.readouterr().out
    with tuned.using(tuned.read(table)):
        assert library.knob_values(tile_of(compiled(schedule=script)))["rows"] == 16
        assert tile_of(compiled()) != tile_of(compiled(schedule=script))


def test_points_that_are_wrong_or_do_not_compile_do_not_count(monkeypatch):
    subject = trial.Trial(
        neptune.driver.kernel.Source(PROGRAM, "p.mlir"), "cpu", None, [40], {},
        Slow(),
    )  # fmt: skip
    space = {"streamed": {"rows": (8, 16), "stream": (32, 7)}}  # 7 is no option
    whole = Slow.results

    def results(self, kernel, given):
        made = whole(self, kernel, given)
        rows = library.knob_values(tile_of(kernel.bundle)).get("rows")
        return [m * (np.nan if rows == 16 else 1.0) for m in made]

    monkeypatch.setattr(Slow, "results", results)
    found, winner = session.run(subject, space, session.Budget(rounds=2), 0, lambda text: None)
    why = {(r["knobs"]["rows"], r["knobs"]["stream"]): r["why"] for r in found["rows"]}
    assert why[8, 32] == "" and why[16, 32].startswith("wrong: ")
    assert "cannot be 7" in why[8, 7] and "cannot be 7" in why[16, 7]
    assert winner is None, "the only one that works is no faster"


def test_bad_commands(tmp_path, script, capsys):
    source = tmp_path / "p.mlir"
    source.write_text(PROGRAM)
    search = ["tune", "search", str(source), "--table", str(tmp_path / "t.json")]
    assert main([*search, "--schedule", script, "--schedule", "private"]) == 2
    assert "stands beside other schedules" in capsys.readouterr().err
    assert main([*search, "--evaluations", "0"]) == 2
    assert main(["tune", "search", "nowhere.mlir"]) != 0
    (tmp_path / "file").touch()
    assert main([*search, "--json", str(tmp_path / "file" / "out.json")]) != 0
    assert "cannot write" in capsys.readouterr().err
    assert main([*search[:-1], str(tmp_path)]) != 0  # a folder
    assert "cannot write" in capsys.readouterr().err


def test_a_gpu_that_is_not_there(tmp_path, monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "p.mlir").write_text(PROGRAM)
    table = ["--table", str(tmp_path / "t.json")]
    assert main(["tune", "search", str(tmp_path / "p.mlir"), "--target", "sm_80", *table]) != 0
    printed = capsys.readouterr().err
    assert "finds no GPU" in printed and "neptune tune build" in printed
