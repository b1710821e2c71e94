# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What people get wrong on the command line: one line that names it, and never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.cli import main, opt
from neptune_mlir.runtime.bundle import Bundle

PROGRAM = """
func.func @sums(%x: tensor<8x8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.reduce { arith.addf } ins(%x : tensor<8x8xf32>) outs(%f : tensor<8xf32>)
      dimensions = [1]
  return %s : tensor<8xf32>
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.mlir").write_text(PROGRAM)
    Path("noise").write_bytes(bytes(range(256)))
    Path("x.bundle").write_bytes(neptune_mlir.compile(Path("p.mlir")).bundle.to_bytes())
    return tmp_path


def said(arguments, capsys):
    """The exit code and what came on stderr."""
    code = main.main(arguments)
    printed = capsys.readouterr().err
    assert "internal error" not in printed and "Traceback" not in printed
    return code, printed


@pytest.mark.parametrize(
    "command",
    ["run p.mlir", "verify p.mlir", "zoo softmax", "tune search p.mlir",
     "bench --suite sweep --target cpu"],
)  # fmt: skip
def test_a_seed_is_not_negative(folder, capsys, command):
    code, printed = said([*command.split(), "--seed", "-1"], capsys)
    assert code == 2 and "argument --seed: -1 is less than 0" in printed
    code, printed = said([*command.split(), "--seed", "x"], capsys)
    assert code == 2 and "argument --seed: invalid int value: 'x'" in printed


def test_a_length_is_positive(folder, capsys):
    code, printed = said(["verify", "p.mlir", "--length", "0"], capsys)
    assert code == 2 and "argument --length: 0 is less than 1" in printed


@pytest.mark.parametrize(
    ("command", "verb"),
    [("explain p.mlir --html", "write"), ("verify p.mlir --smt2", "write"), ("tune build", "open")],
)
def test_files_that_cannot_be_written_are_named(folder, capsys, command, verb):
    more = ["p.mlir"] if command.startswith("tune") else []
    code, printed = said([*command.split(), "noise/out", *more], capsys)
    assert code != 0 and f"cannot {verb} 'noise" in printed and "directory" in printed


def test_files_of_another_kind_are_told_apart(folder, capsys):
    for command in ("compile", "run", "explain", "verify", "tune search --table t"):
        code, printed = said([*command.split(), "x.bundle"], capsys)
        assert code == 1, (command, printed)
        assert "'x.bundle' is a compiled bundle, not a program" in printed
        assert "neptune inspect" in printed
        code, printed = said([*command.split(), "noise"], capsys)
        assert code == 1 and "'noise' is neither text nor MLIR bytecode" in printed
    assert opt.main(["noise", "--canonicalize"]) == 1
    assert "'noise' is neither text nor MLIR bytecode" in capsys.readouterr().err
    with pytest.raises(neptune_mlir.NeptuneError, match="is a compiled bundle"):
        neptune_mlir.compile(Path("x.bundle"))
    code, printed = said(["inspect", "p.mlir"], capsys)
    assert code == 1 and "'p.mlir': not a compiled bundle" in printed
    assert Bundle.begins(Path("x.bundle").read_bytes())


def test_inputs_are_an_npz_file(folder, capsys):
    for name in ("p.mlir", "noise"):
        code, printed = said(["run", "p.mlir", "--inputs", name], capsys)
        assert code == 1 and f"'{name}' is no npz file" in printed and "pickle" not in printed
    np.save("one.npy", np.zeros(3))
    assert "is one array" in said(["run", "p.mlir", "--inputs", "one.npy"], capsys)[1]
    np.savez("other.npz", x=np.zeros(3))
    printed = said(["run", "p.mlir", "--inputs", "other.npz"], capsys)[1]
    assert "no arg0" in printed and "it has x; the program takes arg0: f32[8, 8]" in printed


def test_arrays_that_no_memory_holds(folder, capsys):
    program = PROGRAM.replace("8x8xf32", "8x?xf32")
    Path("q.mlir").write_text(program)
    code, printed = said(["run", "q.mlir", "--size", "9" * 18], capsys)
    assert code == 1 and f"argument 0 has shape [8, {'9' * 18}]" in printed and "hint" in printed
    Path("q.mlir").write_text(program.replace("?", "9" * 18))
    code, printed = said(["compile", "q.mlir"], capsys)
    assert code == 1 and "q.mlir:2:17: error: argument 0 has 7" in printed and "hint" in printed


def test_a_diagnostic_of_several_lines_has_one_place(folder, capsys):
    Path("q.mlir").write_text(PROGRAM + PROGRAM)
    code, printed = said(["compile", "q.mlir"], capsys)
    assert code == 1 and printed.startswith("q.mlir:11:1: error: redefinition of symbol")
    assert "q.mlir:2:1: note: see existing symbol" in printed


@pytest.mark.parametrize("module", ["main", "opt"])
def test_standard_output_that_takes_nothing(module):
    command = [sys.executable, "-m", f"neptune_mlir.cli.{module}", "--version"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "error: cannot write to standard output: No space" in done.stderr.splitlines()[-1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as read_no_more:
        read_no_more.stdout.close()
        assert read_no_more.stderr.read() == b""
    assert read_no_more.returncode == 0


def test_standard_input_that_is_no_program(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it where a shell closed it
    for main_of, arguments in ((main.main, ["compile", "-"]), (opt.main, ["-"])):
        assert main_of(arguments) == 1
        assert "standard input is closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("tune search p.mlir --table t.json", "--json"),
        ("tune search p.mlir", "--table"),
        ("bench run .", "--json"),
        ("bench run .", "--plot"),
        ("bench run . --profile", "--perfetto"),
        ("bench --suite sweep --target cpu", "--json"),
        ("bench show x.json", "--plot"),
        ("bench trace .", "--json"),
        ("explain p.mlir", "--html"),
        ("compile p.mlir", "-o"),
        ("run p.mlir", "--outputs"),
    ],
)
def test_folders_of_results_have_to_be_there(folder, capsys, command, option):
    """Everywhere the same, and where work takes minutes, before it."""
    code, printed = said([*command.split(), option, "no/such/out.npz"], capsys)
    assert code == 2 and "cannot write 'no/such/out.npz': No such file" in printed
    assert not Path("no").exists()


def test_a_file_stays_that_cannot_be_used(folder, capsys):
    Path("kept.json").write_text("mine")
    assert said(["bench", "run", ".", "--json", "kept.json"], capsys)[0] != 0
    assert said(["bench", "run", ".", "--json", "new.json"], capsys)[0] != 0
    assert Path("kept.json").read_text() == "mine" and not Path("new.json").exists()


@pytest.mark.parametrize(
    ("extents", "more"), [("8x8", []), ("?x8", ["--extent", "0.0=4"])], ids=["static", "fixed"]
)
def test_lengths_that_decide_nothing(folder, capsys, extents, more):
    program = PROGRAM.replace("tensor<8x8xf32>", f"tensor<{extents}xf32>")
    if extents[0] == "?":
        program = (
            program.replace("%e = tensor.empty()", """%c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%d)""").replace("tensor<8xf32>", "tensor<?xf32>")
        )  # fmt: skip
    Path("q.mlir").write_text(program)
    search = ["tune", "search", "q.mlir", "--table", "t.json", *more]
    code, printed = said([*search, "--lengths", "64,128"], capsys)
    assert code == 2 and "no extent of the program is left for --lengths" in printed
    short = ["--evaluations", "1", "--rounds", "2", "--knob", "rows=8"]
    assert said([*search, *short], capsys)[0] == 0


def test_extents_of_arguments_without_names(folder, capsys):
    """MLIR keeps no names of arguments, so they go by position."""
    Path("q.mlir").write_text(PROGRAM.replace("x8xf32", "x?xf32"))
    search = ["tune", "search", "q.mlir", "--table", "t.json", "--evaluations", "1",
              "--rounds", "2", "--knob", "rows=8"]  # fmt: skip
    code, printed = said([*search, "--extent", "x.1=4"], capsys)
    assert code == 2 and "hint: 0.1" in printed
    assert said([*search, "--extent", "0.1=4"], capsys)[0] == 0


def test_what_names_nothing(folder, capsys):
    build = ["bench", "build", "b", "--suite", "prefill", "--only", "no such"]
    code, printed = said(build, capsys)
    assert code == 2 and "no program of prefill has 'no such' in its name" in printed
    code, printed = said(["tune", "p.mlir", "--target", "cpu"], capsys)  # `search` has it
    assert code == 2 and "unknown argument '--target'" in printed and "another action" in printed


FAILING = {
    "compile p.mlir --target z80 --json": (2, "target 'z80'", ""),
    "compile wrong.mlir --json": (1, "undeclared SSA value", "wrong.mlir:2:"),
    "compile p.mlir -o - --json": (2, "leaves no line for --json", ""),
    "inspect noise --json": (1, "'noise'", ""),
    "run wrong.mlir --json": (1, "undeclared SSA value", "wrong.mlir:2:"),
    "run --json": (2, "required: input", ""),
    "explain gone.mlir --json": (1, "cannot read 'gone.mlir'", ""),
    "verify gone.mlir --json": (1, "cannot read 'gone.mlir'", ""),
    "zoo sofmax --json": (2, "sofmax", ""),
    "bench show noise --json=x": (2, "--json", ""),
    "bench run gone --json gone/x.json": (2, "cannot write", ""),
    "tune run gone --json x.json": (2, "gone", ""),
    "doctor --jsn --json": (2, "unknown argument '--jsn'", ""),
    "completion tcsh --json": (2, "tcsh", ""),
}


@pytest.mark.parametrize("command", FAILING)
def test_what_fails_is_json_too(folder, capsys, command):
    Path("wrong.mlir").write_text("func.func @f() -> f32 {\n  return %x : f32\n}")
    wanted, message, loc = FAILING[command]
    code = main.main(command.split())
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    said = json.loads(line)
    assert code == said["exit_code"] == wanted
    assert message in said["error"] and said["error"] in captured.err
    assert said["loc"].startswith(loc) and bool(said["loc"]) == bool(loc)
    assert {"kind": "error", "loc": said["loc"], "message": said["error"]} in said["diagnostics"]
    if said["hint"]:
        assert said["hint"] in captured.err


def test_every_command_fails_in_json():
    assert {command.split()[0] for command in FAILING} == set(main.COMMANDS)


@pytest.mark.parametrize(
    ("command", "key"),
    [("compile p.mlir -o p.bundle", "kernels"), ("compile p.mlir --emit fused", "text"),
     ("explain p.mlir", "schedule")],
)  # fmt: skip
def test_json_of_commands_that_write(folder, capsys, command, key):
    assert main.main([*command.split(), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)[key]
