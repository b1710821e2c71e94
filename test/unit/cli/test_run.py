# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune run`: inputs, errors, reports."""

import json

import numpy as np
import pytest

from neptune_mlir.cli import inputs, main
from neptune_mlir.cli.run import Error
from neptune_mlir.runtime.plan import Argument, Plan

ROWS = """
func.func @sums(%x: tensor<?x8xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.reduce { arith.addf } ins(%x : tensor<?x8xf32>) outs(%f : tensor<?xf32>)
      dimensions = [1]
  return %s : tensor<?xf32>
}
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "sums.mlir"
    path.write_text(ROWS)
    return str(path)


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_check_and_json(program, capsys):
    assert main.main(["run", program, "--check", "--json", "--size", "5", "--repeat", "1"]) == 0
    report = last_line(capsys)
    promised = {"target", "nests", "kernels", "corrections", "compile_s", "run_s",
                "max_abs", "max_rel", "tolerance"}  # fmt: skip
    assert promised <= set(report)
    assert report["target"] == "cpu" and report["kernels"] == 1
    assert report["max_rel"] <= report["tolerance"]


def test_inputs_and_outputs(program, tmp_path, capsys):
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.savez(tmp_path / "in.npz", arg0=x)
    out = str(tmp_path / "out.npz")
    assert main.main(["run", program, "--inputs", str(tmp_path / "in.npz"), "--outputs", out]) == 0
    np.testing.assert_allclose(np.load(out)["ret0"], x.sum(axis=1))


def test_a_failed_check_exits_1(program, capsys, monkeypatch):
    from neptune_mlir import compiler

    honest = compiler.compile_unfused
    monkeypatch.setattr(
        compiler, "compile_unfused", lambda *a: lambda *x: honest(*a)(*x) * np.float32(1.001)
    )
    assert main.main(["run", program, "--check", "--json"]) == 1
    report = last_line(capsys)
    assert report["max_rel"] == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--repeat", "0"], 2),
        (["--target", "z80"], 2),
        (["--entry", "nobody"], 1),
        (["--inputs", "/no/such.npz"], 1),
        (["--schedule", "fastest"], 2),
    ],
)
def test_exit_codes(program, capsys, arguments, code):
    assert main.main(["run", program, *arguments]) == code
    error = capsys.readouterr().err
    assert error and "Traceback" not in error


def test_missing_array(program, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", x=np.zeros(3))
    assert main.main(["run", program, "--inputs", str(tmp_path / "in.npz")]) == 1
    assert "has no arg0" in capsys.readouterr().err


def plan(*arguments, equal=()):
    return Plan("f", arguments, tuple(equal), (), (), ())


def test_random_inputs_satisfy_the_equalities():
    matrix = Argument("tensor", "f32", (None, None), "a")
    fixed = Argument("tensor", "f16", (None, 12), "b")
    equal = [(["dim", 0, 1], ["dim", 1, 0]), (["dim", 0, 0], 3), (["dim", 1, 1], ["dim", 2, 0])]
    third = Argument("tensor", "i64", (None,), "c")
    drawn = inputs.random_inputs(plan(matrix, fixed, third, equal=equal), size=7)
    assert [x.shape for x in drawn] == [(3, 7), (7, 12), (12,)]
    assert [x.dtype.name for x in drawn] == ["float32", "float16", "int64"]


def test_random_inputs_are_seeded():
    one = plan(Argument("tensor", "f32", (4,), "a"), Argument("scalar", "f32", (), "s"))
    first, second = inputs.random_inputs(one, 1), inputs.random_inputs(one, 1)
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1] and isinstance(first[1], float)


def test_bf16_bits_round_to_nearest_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, np.inf, np.nan], np.float32)
    assert [hex(b) for b in inputs.bf16_bits(values)] == [
        "0x3f80", "0x3f80", "0x3f82", "0xc020", "0x7f80", "0x7fc0",
    ]  # fmt: skip


def test_error_measures():
    wanted = np.array([3.0, 4.0])
    assert Error.between(wanted, wanted).relative == 0
    off = Error.between(np.array([3.0, 4.5]), wanted)
    assert off.absolute == 0.5 and off.relative == pytest.approx(0.1)
    nan, inf = np.nan, np.inf
    assert Error.between(np.array([0.0, 4.0]), np.array([nan, 4.0])).undefined == 1
    assert Error.between(np.array([nan, 4.0]), wanted).relative == inf
    assert Error.between(np.array([inf, 4.0]), np.array([inf, 4.0])).relative == 0
    assert Error.between(np.array([inf, 4.0]), np.array([-inf, 4.0])).relative == inf
    assert Error.between(np.zeros(2), np.zeros(3)).relative == inf
