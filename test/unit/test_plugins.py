# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What other packages add: that of examples/plugin, installed, and broken packages."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir import plugins
from neptune_mlir.algebra import combiners, functions
from neptune_mlir.cli import doctor, main, opt
from neptune_mlir.driver import compiler
from neptune_mlir.errors import ArgumentError, UsageError
from neptune_mlir.frontend import notation as nt
from neptune_mlir.runtime import images
from neptune_mlir.targets import chips
from neptune_mlir.targets import nvidia as nvidia_targets
from neptune_mlir.targets.nvidia import nvidia
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.patterns import language
from neptune_mlir.transforms.schedule import library

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
FOURTHS = str(EXAMPLE / "fourths.mlir")


def forget():
    plugins.entries.cache_clear()
    plugins.fingerprint.cache_clear()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the example as pip installs it."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation",
         "--target", str(folder / "site"), str(source)],
        check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )  # fmt: skip
    return folder / "site"


@pytest.fixture
def installed(site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    language.names()  # those of this project are there
    tables = (nvidia_targets.TARGETS, functions._FUNCTIONS, combiners._COMBINERS,
              language._PATTERNS)  # fmt: skip
    before = [dict(table) for table in tables]
    yield site
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)
    for name in [n for n in sys.modules if n.partition(".")[0] == "neptune_example"]:
        del sys.modules[name]
    forget()


def test_a_function_goes_by_name(installed, capsys):
    softplus = str(EXAMPLE / "softplus.mlir")
    assert opt.main([softplus, "--expand-calls"]) == 0
    printed = capsys.readouterr().out
    assert "@softplus" not in printed and printed.count("math.log1p") == 1
    assert main.main(["run", softplus, "--check"]) == 0
    assert re.search(r"error \S+ .*unfused|they differ by at most", capsys.readouterr().out)
    assert main.main(["explain", softplus]) == 0
    assert "log1p(exp(" in capsys.readouterr().out


def test_a_pattern_goes_by_name(installed, capsys):
    tanh = str(EXAMPLE / "tanh.mlir")
    assert opt.main([tanh, "--apply-patterns"]) == 0
    printed = capsys.readouterr().out
    assert "math.tanh" in printed and "math.exp" not in printed
    assert opt.main([tanh, "--apply-patterns=only=whole-powers"]) == 0
    assert "math.exp" in capsys.readouterr().out
    assert main.main(["explain", tanh]) == 0
    assert "tanh(" in capsys.readouterr().out
    kernel = neptune_mlir.compile(Path(tanh))
    assert np.allclose(kernel(np.full((8, 3), 60, np.float32)), 3.0)
    assert opt.main(["--list-passes"]) == 0
    assert "(exp(2x) - 1) / (exp(2x) + 1) as tanh(x)." in capsys.readouterr().out
    rows = {row.what: row for row in doctor.findings()}
    assert rows["pattern tanh-by-exponential"].detail == "neptune-example 1.0"


def test_a_function_and_a_combiner_in_notation(installed):
    p = nt.Program("f")
    i, j = p.axes("i j")
    x = p.input("x", i, j)
    p.output(nt.reduce("logaddexp", nt.call("softplus", x[i, j]), j), i)
    values = np.array([[-800.0, 0.5, 90.0], [-math.inf, -3.0, 2.0]], np.float32)
    wide = np.logaddexp(0, values.astype(np.float64))
    found = neptune_mlir.compile(p)(values)
    assert np.allclose(found, np.logaddexp.reduce(wide, axis=1), rtol=1e-6)
    with pytest.raises(UsageError, match=r"'softplus' takes 1 arguments, 2 were given"):
        nt.call("softplus", x[i, j], 1.0)
    with pytest.raises(UsageError, match=r"no scalar function 'softplas'") as caught:
        nt.call("softplas", x[i, j])
    assert "softplus" in caught.value.hint


def test_a_program_with_the_combiner(installed, tmp_path, capsys):
    """MLIR that names it goes through every command."""
    mixture = str(EXAMPLE / "mixture.mlir")
    assert main.main(["run", mixture, "--check"]) == 0
    assert re.search(r"error against float64.*: ok", capsys.readouterr().out)
    assert main.main(["explain", mixture]) == 0
    assert "logaddexp over j: x[i, j] + w[j]" in capsys.readouterr().out
    x = np.array([[-800.0, 0.5, 90.0], [-math.inf, -3.0, 2.0]], np.float32)
    w = np.log(np.array([0.5, 0.25, 0.25], np.float32))
    wanted = np.logaddexp.reduce(x + w.astype(np.float64), axis=1)
    assert np.allclose(neptune_mlir.compile(Path(mixture))(x, w), wanted, rtol=1e-6)


SHORT = ["--evaluations", "2", "--rounds", "2"]


@pytest.mark.parametrize(
    ("program", "more", "seen"),
    [("mixture", ["--extent", "x.1=64", "--lengths", "128"], {"rows", "stream"}),
     ("fourths", ["--schedule", "powers"], {"rows", "largest_power"})],
)  # fmt: skip
def test_programs_of_a_package_are_searched(installed, tmp_path, capsys, program, more, seen):
    out = tmp_path / "found.json"
    files = ["--table", str(tmp_path / "t.json"), "--json", str(out)]
    source = str(EXAMPLE / f"{program}.mlir")
    assert main.main(["tune", "search", source, *more, *SHORT, *files]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 and all(seen <= set(row["knobs"]) for row in rows)
    assert all(row["cost"] for row in rows), "both are right, and have a time"


def test_a_chip_of_a_package_is_a_target(installed):
    softplus = (EXAMPLE / "softplus.mlir").read_text()
    bundle = compiler.compile_text(softplus, "softplus.mlir", "sm_87", None, None)
    assert bundle.facts["images"][0]["target"] == "sm_87"
    assert images.choose_images(bundle.facts["images"], "sm_87")
    with pytest.raises(ArgumentError, match=r"holds code for sm_87; this device is sm_86"):
        images.choose_images(bundle.facts["images"], "sm_86")
    assert [t.name for t in chips.running_on("sm_87")] == ["sm_80", "sm_86", "sm_87"]
    with pytest.raises(UsageError, match="there is a target 'sm_80' already"):
        chips.register(replace(nvidia("sm_80"), threads=1))
    with pytest.raises(UsageError, match=r"unknown GPU target 'sm_88'"):
        chips.gpu_target("sm_88")


def test_the_pass_is_one_of_neptune_opt(installed, capsys):
    assert "whole-powers" in registry.names()
    assert opt.main([FOURTHS, "--whole-powers=up-to=4"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("arith.mulf") == 3
    assert "math.powf" not in printed
    assert opt.main([FOURTHS, "--raise-linalg", "--whole-powers=up-to=3"]) == 0
    assert "math.powf" in capsys.readouterr().out
    assert opt.main(["--list-passes"]) == 0
    assert "turn powers with whole exponents into products [up-to=int]" in capsys.readouterr().out
    assert opt.main([FOURTHS, "--whole-power"]) == 2
    assert "did you mean 'whole-powers'" in capsys.readouterr().err
    rows = {row.what: row for row in doctor.findings()}
    assert rows["pass whole-powers"].detail == rows["schedule powers"].detail
    assert rows["pass whole-powers"].detail == "neptune-example 1.0"


def test_the_schedule_runs_and_its_knobs_can_be_set(installed, capsys):
    assert main.main(["run", FOURTHS, "--check", "--schedule", "powers", "--repeat", "1"]) == 0
    assert "schedule 'powers'" in capsys.readouterr().out
    for largest, shown in ((4, "x[i, j] * x[i, j] * x[i, j] * x[i, j]"), (3, "pow(x[i, j], 4)")):
        arguments = ["--schedule", "powers", "--knob", f"largest_power={largest}"]
        assert main.main(["explain", FOURTHS, *arguments]) == 0
        assert f"sum over j: {shown}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("knob", "message", "hint"),
    [
        ("larges_power=3", "no knob 'larges_power'", "did you mean 'largest_power'?"),
        ("largest_power=9", "cannot be 9", "options: 1, 2, 3, 4"),
        ("largest_power", "is not NAME=NUMBER", ""),
        ("largest_power=many", "is not NAME=NUMBER", ""),
    ],
)
def test_wrong_knobs(installed, capsys, knob, message, hint):
    assert main.main(["compile", FOURTHS, "--schedule", "powers", "--knob", knob, "-o", "-"]) != 0
    printed = capsys.readouterr().err
    assert message in printed
    assert hint in printed


def test_compiled_programs_depend_on_knobs_and_on_packages(installed, monkeypatch):
    program = Path(FOURTHS)
    one = neptune_mlir.compile(program, schedule="powers", knobs={"largest_power": 3})
    assert "pow(" in one.explain()
    same = neptune_mlir.compile(program, schedule="powers", knobs={"largest_power": 3})
    other = neptune_mlir.compile(program, schedule="powers", knobs={"largest_power": 4})
    assert (one.cached, same.cached, other.cached) == (False, True, False)
    with monkeypatch.context() as patch:
        patch.setattr(plugins, "fingerprint", lambda group: "another version")
        again = neptune_mlir.compile(program, schedule="powers", knobs={"largest_power": 3})
        assert not again.cached
    with pytest.raises(UsageError, match="takes a whole number"):
        neptune_mlir.compile(program, knobs={"rows": "many"})


def test_knobs_of_the_schedule_that_the_rule_chooses(capsys):
    knobs = ["--knob", "rows=32", "--knob", "stream=16,rows=16"]  # the last one holds
    assert main.main(["compile", FOURTHS, "--emit", "fused", *knobs]) == 0
    assert "neptune.tile = array<i64: 16, 16>" in capsys.readouterr().out


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes the metadata of an installed package, and its files."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, entries, files=None):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entries)
        for path, text in (files or {}).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        forget()

    yield write
    forget()


PASS = "[neptune_mlir.passes]\n{} = {}\n"


def test_broken_packages_are_named(package):
    package("broken", PASS.format("lost-pass", "not_there"))
    package("silent", PASS.format("silent-pass", "silent_module"), {"silent_module.py": ""})
    with pytest.raises(UsageError, match=r"'lost-pass' of broken 1.0 cannot be imported"):
        registry.lookup("lost-pass")
    with pytest.raises(UsageError, match="registers no pass of that name"):
        registry.lookup("silent-pass")
    assert opt.main(["--list-passes"]) == 0
    states = {row.what: row.state for row in doctor.findings()}
    assert states["pass lost-pass"] == states["pass silent-pass"] == "missing"


def test_a_schedule_without_a_file(package):
    package("empty", "[neptune_mlir.schedules]\nabsent = empty_package\n",
            {"empty_package/__init__.py": ""})  # fmt: skip
    with pytest.raises(UsageError, match=r"'absent' of empty 1.0 cannot be read"):
        library.read("absent")


def test_two_packages_with_one_name(package):
    package("first", PASS.format("same", "first_module"))
    package("second", PASS.format("same", "second_module"))
    with pytest.raises(UsageError, match=r"first 1.0 and second 1.0 both have an entry 'same'"):
        registry.names()


SCRIPT = """
module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%m: !transform.any_op {{transform.readonly}}) {{
    %f = transform.structured.match ops{{["func.func"]}} in %m
        : (!transform.any_op) -> !transform.any_op
    %n = transform.param.constant 2 : i64 -> !transform.any_param
    {step}
    transform.yield
  }}
}}"""
ONE = '"transform.neptune.apply_pass"(%f) {} : (!transform.any_op) -> !transform.any_op'
TWO = ONE.replace("(%f)", "(%f, %n)").replace("_op)", "_op, !transform.any_param)")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ONE.format('{name = "inline-map"}'), "unknown pass 'inline-map'"),
        (ONE.format('{name = "tile", with = "row=4"}'), "no option 'row=4'"),
        (ONE.format('{name = "tile", options = ["rows"]}'), "0 numbers for 1 options"),
        (TWO.format('{name = "tile", options = ["rowz"]}'), "no option 'rowz'"),
        (ONE.format("{}"), "unknown pass ''"),
    ],
)
def test_steps_that_run_any_pass_check_what_they_are_given(tmp_path, capsys, step, message):
    (tmp_path / "s.mlir").write_text(SCRIPT.format(step=f"%g = {step}"))
    assert opt.main([FOURTHS, f"--schedule={tmp_path / 's.mlir'}"]) != 0
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed


def test_a_step_runs_a_pass_with_numbers_and_text(tmp_path, capsys):
    step = TWO.format('{name = "tile", options = ["rows"], with = "stream=16"}')
    (tmp_path / "s.mlir").write_text(SCRIPT.format(step=f"%g = {step}"))
    schedule = f"--schedule={tmp_path / 's.mlir'}"
    assert opt.main([FOURTHS, "--raise-linalg", "--rolling-update", schedule]) == 0
    assert "neptune.tile = array<i64: 2, 16>" in capsys.readouterr().out
