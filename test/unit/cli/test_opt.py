# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exit codes and outputs of `neptune-opt` (what it prints is tested with lit)."""

import resource
import subprocess
import sys

import pytest

from neptune_mlir.cli import opt
from neptune_mlir.transforms import registry

GOOD = "func.func @f(%x: i32) -> i32 {\n  return %x : i32\n}\n"
BAD = "func.func @f() -> i32 {\n  return %nobody : i32\n}\n"


@pytest.fixture
def file(tmp_path):
    def write(text, name="in.mlir"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [
        (GOOD, [], 0),
        (GOOD, ["--cse", "--canonicalize"], 0),
        (BAD, [], 1),
        (GOOD, ["--no-such-pass"], 2),
        (BAD, ["--no-such-pass"], 2),
        (GOOD, ["--privatize=chunks=many"], 2),
        (GOOD, ["--privatize=pieces=2"], 2),
        (GOOD, ["--pass-pipeline=builtin.module(cse"], 2),
        (GOOD, ["--cse", "--stop-after=canonicalize"], 2),
        (GOOD, ["--schedule=nowhere"], 2),
        (GOOD, ["-o", "/no/such/folder/out.mlir"], 2),
        (GOOD, ["--verify-diagnostics"], 0),
        (BAD, ["--verify-diagnostics"], 1),
    ],
)
def test_exit_codes(file, capsys, text, arguments, code):
    assert opt.main([file(text), *arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert bool(captured.err) == (code != 0)


def test_missing_file(capsys):
    assert opt.main(["/no/such/file.mlir"]) == 1
    assert "cannot open input file" in capsys.readouterr().err


def test_output_file(file, tmp_path):
    assert opt.main([file(GOOD), "-o", str(tmp_path / "out.mlir")]) == 0
    assert "func.func @f" in (tmp_path / "out.mlir").read_text()


def test_one_bad_piece_does_not_hide_the_others(file, capsys):
    assert opt.main([file(f"{BAD}// -----\n{GOOD}"), "--split-input-file"]) == 1
    captured = capsys.readouterr()
    assert "return %arg0" in captured.out
    assert "in.mlir:2:" in captured.err


def test_a_defect_in_a_pass_shows_no_traceback(file, capsys):
    registry.register("broken", "raises")(lambda module: {}["key"])
    assert opt.main([file(GOOD), "--broken"]) == 1
    assert "internal error, please report it: KeyError" in capsys.readouterr().err


def test_a_pass_that_leaves_invalid_ir_is_named(file, capsys):
    def spoil(module):
        function = module.body.operations[0]
        function.regions[0].blocks[0].operations[0].operation.erase()

    registry.register("spoil", "leaves no terminator")(spoil)
    assert opt.main([file("func.func @f() {\n  return\n}\n"), "--spoil"]) == 1
    assert "note: pass 'spoil' failed" in capsys.readouterr().err


def test_dump(file, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NEPTUNE_DUMP", str(tmp_path / "dump"))
    assert opt.main([file(GOOD), "--cse", "--canonicalize"]) == 0
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert names == ["000-cse.mlir", "001-canonicalize.mlir"]


def test_start_up_time(file):
    path = file(GOOD)
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "neptune_mlir.cli.opt", path]
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert 0 < min(times) < 1.0  # of processor time: 0.25 s on an idle machine
