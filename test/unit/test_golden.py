# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/golden.py: records of one tree are equal, and what differs is named."""

import copy
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "inputs/reduce_several_axes"
TOOL = ROOT / "tools" / "golden.py"
LEVELS = {"program": "p", "tile": "t", "text": "x", "code": "c", "plan": "l"}


@pytest.fixture
def golden(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import golden

    return golden


def record_of(programs, targets=("cpu", "sm_80"), only="*"):
    found = {name: {target: dict(LEVELS) for target in targets} for name in programs}
    return {"tree": "", "only": only, "targets": list(targets), "tools": {}, "programs": found}


def test_levels_that_differ_are_named(golden):
    before = record_of(["zoo/a", "zoo/b"])
    after = copy.deepcopy(before)
    assert golden.differences(before, after) == []
    after["programs"]["zoo/b"]["sm_80"] |= {"text": "other", "code": "other"}
    after["programs"]["zoo/a"]["cpu"] = {"program": "p", "error": "LoweringError: no"}
    assert golden.differences(before, after) == [
        {"program": "zoo/a", "target": "cpu", "levels": ["tile", "text", "code", "plan", "error"]},
        {"program": "zoo/b", "target": "sm_80", "levels": ["text", "code"]},
    ]


def test_only_what_both_records_asked_for_counts(golden):
    before = record_of(["zoo/a", "inputs/b", "zoo/c"])
    after = record_of(["zoo/a", "zoo/d"], targets=("sm_80", "gfx942"), only="zoo/*")
    assert golden.differences(before, after) == [
        {"program": "zoo/c", "target": "sm_80", "levels": ["gone"]},
        {"program": "zoo/d", "target": "sm_80", "levels": ["new"]},
    ]
    assert golden.asked(before, after) == [("sm_80", f"zoo/{name}") for name in "acd"]


def test_a_compiler_before_the_floors_is_its_own(golden, tmp_path, monkeypatch):
    (tmp_path / "neptune_mlir").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(golden.importlib, "import_module", lambda name: name)
    assert golden.compiler() == "neptune_mlir.compiler"
    (tmp_path / "neptune_mlir" / "driver").mkdir()
    assert golden.compiler() == "neptune_mlir.driver.compiler"


def test_compare_exits_with_1_where_code_differs(golden, tmp_path, capsys):
    paths = [tmp_path / f"{k}.json" for k in range(2)]
    same = record_of(["zoo/a"])
    for path in paths:
        path.write_text(json.dumps(same))
    command = ["compare", *map(str, paths)]
    assert golden.main(command) == 0
    assert capsys.readouterr().out == "0 of 2 differ\n"
    same["programs"]["zoo/new"] = same["programs"]["zoo/a"]
    paths[1].write_text(json.dumps(same))
    assert golden.main(command) == 0
    same["programs"]["zoo/a"] = {"cpu": LEVELS, "sm_80": LEVELS | {"plan": "other"}}
    paths[1].write_text(json.dumps(same))
    assert golden.main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["differ"] == 1
    paths[1].write_text("[]")
    assert golden.main(command) == 2
    assert "not two records" in capsys.readouterr().err


def test_the_tree_is_the_first_on_pythonpath(golden, tmp_path, monkeypatch):
    (tmp_path / "other" / "neptune_mlir").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{tmp_path / 'other'}:{ROOT}")
    assert golden.tree() == tmp_path / "other"
    monkeypatch.delenv("PYTHONPATH")
    assert golden.tree() == ROOT


def test_programs_do_not_depend_on_where_the_tool_builds_them(golden):
    (text,) = golden.programs("zoo/softmax").values()
    assert 'loc("program":1:1)' in text and "golden.py" not in text


def test_the_sources_of_a_tool_are_those_it_imports(golden, tmp_path):
    import golden_tools

    package = tmp_path / "made"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "used.py").write_text("A = 1\n")
    (package / "unused.py").write_text("B = 1\n")
    (package / "tool.py").write_text("import sys\ndef run():\n    from made.used import A\n")

    def found():
        golden_tools.sources.cache_clear()
        return golden_tools.sources("made.tool", tmp_path)

    first = found()
    (package / "unused.py").write_text("B = 2\n")
    assert found() == first
    (package / "used.py").write_text("A = 2\n")
    assert found() != first


def test_failures_are_not_kept(golden, tmp_path):
    import golden_tools

    given, made = tmp_path / "given", tmp_path / "made"
    given.write_text("import shutil, sys; shutil.copy(sys.argv[0], sys.argv[2])")
    (tmp_path / "wrong").write_text("raise SystemExit(1)")
    with golden_tools.Tools(tmp_path / "kept", ROOT).installed():
        for name, kept in (("wrong", 0), ("given", 1)):
            subprocess.run([sys.executable, str(tmp_path / name), "-o", str(made)], check=False)
            assert len(list((tmp_path / "kept").glob("*"))) == kept


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the two kinds of CPU are x86's")
def test_records_of_one_program(golden, tmp_path, monkeypatch, capsys):
    def record(name, cpu):
        monkeypatch.setenv("NEPTUNE_CPU", cpu)
        folders = ("--cache", str(tmp_path / "cache"), "--keep", str(tmp_path / "kept"))
        asked = ("--only", PROGRAM, "--targets", "cpu,gfx942", "--json", *folders)
        assert golden.main(["record", str(tmp_path / name), *asked]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["failed"] == 0
        return (tmp_path / name).read_bytes()

    first = record("first.json", "x86-64-v3")
    for suffix in ("cpu.tile.mlir", "cpu.0.ll", "gfx942.0.ll"):
        assert (tmp_path / "kept" / f"{PROGRAM}.{suffix}").is_file()
    entries = sorted((tmp_path / "cache").iterdir())
    assert len(entries) == 2  # LLVM's object file for gfx942, and the linked one
    stamps = [p.stat().st_mtime_ns for p in entries]
    assert record("again.json", "x86-64-v3") == first
    assert [p.stat().st_mtime_ns for p in sorted((tmp_path / "cache").iterdir())] == stamps
    record("other.json", "x86-64-v4")
    assert golden.main(["compare", *(str(tmp_path / f"{n}.json") for n in ("first", "other"))]) == 1
    said = capsys.readouterr().out
    assert f"cpu      {PROGRAM}" in said and "code" in said
    assert "gfx942" not in said
    assert "1 of 2 differ" in said
