# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune run`: inputs, errors, reports."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neptune_mlir.algebra.numerics import hostile
from neptune_mlir.cli import main
from neptune_mlir.driver import inputs
from neptune_mlir.runtime import machine
from neptune_mlir.runtime.plan import Argument, Plan
from neptune_mlir.targets.roofline import Roof

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
                "max_abs", "max_rel", "check"}  # fmt: skip
    assert promised <= set(report)
    assert report["target"] == "cpu" and report["kernels"] == 1
    found = report["check"]
    assert found["ok"] and found["fused_ulps"] <= found["bound_ulps"]
    assert found["bound_ulps"] == 2 * found["unfused_ulps"] + 4
    assert "hostile" not in report


def test_running_sums_of_torch_are_checked(program, capsys):
    """The program as written and its reference have loops for them, too."""
    pytest.importorskip("torch_mlir")
    Path(program).write_text(
        """func.func @sums(%x: tensor<4x9xf32>, %o: tensor<4x9xf32>, %a: tensor<4xf32>)
    -> tensor<4x9xf32> {
  %s:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%x : tensor<4x9xf32>)
      outs(%o, %a : tensor<4x9xf32>, tensor<4xf32>) {
  ^bb0(%l: f32, %r: f32):
    %t = arith.addf %l, %r : f32
    tm_tensor.yield %t : f32
  } -> tensor<4x9xf32>, tensor<4xf32>
  return %s#0 : tensor<4x9xf32>
}"""
    )
    assert main.main(["run", program, "--check", "--json", "--repeat", "1"]) == 0
    report = last_line(capsys)
    assert report["check"]["ok"] and report["check"]["unfused_ulps"] < 10


def test_check_times_kernels_that_fuse_nothing(program, capsys):
    """Softmax is one kernel; what it is compared with has one for each reduction."""
    softmax = Path(__file__).parents[2] / "inputs" / "softmax_generic.mlir"
    given = ["--schedule", "unfused", "--json", "--repeat", "1"]
    assert main.main(["run", str(softmax), *given]) == 0
    report = last_line(capsys)
    assert report["kernels"] >= 3 and report["corrections"] == 0
    assert main.main(["run", str(softmax), "--check", "--json", "--repeat", "1"]) == 0
    printed = capsys.readouterr().out
    assert "the same kernels, not fused, run in" in printed
    report = json.loads(printed.splitlines()[-1])
    assert report["kernels"] == 1 and report["unfused_s"] > 0


def test_figures_of_each_kernel(program, monkeypatch, capsys):
    roof = Roof("a machine", 4e14, 4e14, 2e14, "made up")
    monkeypatch.setattr(machine, "roof", lambda: roof)
    given = ["run", program, "--json", "--figures", "--size", "4096", "--repeat", "1"]
    assert main.main(given) == 0
    printed = capsys.readouterr().out
    assert "this machine: 400 TFLOP/s, 200 TB/s (made up)" in printed
    (row,) = json.loads(printed.splitlines()[-1])["figures"]["kernels"]
    assert row["kernel"] == "sums_0" and row["s"] > 0
    assert (row["flop"], row["bytes"]) == (4096 * 8, 4 * (4096 * 8 + 4096))
    assert row["gbs"] == pytest.approx(row["bytes"] / row["s"] / 1e9)
    # eight bytes a sum and four operations: memory is the limit
    assert row["of_roof"] == pytest.approx(row["bytes"] / roof.bytes / row["s"])
    assert main.main(["run", program, "--figures", "--target", "sm_90a"]) != 0


def test_the_machine_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine, "measure", lambda: Roof("m", 1.0, 1.0, 2.0, "made up"))
    assert machine.roof().bytes == 2.0
    monkeypatch.setattr(machine, "measure", lambda: pytest.fail("measured again"))
    assert machine.roof().bytes == 2.0
    (kept,) = tmp_path.iterdir()
    kept.write_text("{")
    monkeypatch.setattr(machine, "measure", lambda: Roof("m", 1.0, 1.0, 3.0, "made up"))
    assert machine.roof().bytes == 3.0


def test_limits_that_a_kernel_exceeds_are_measured_again(program, tmp_path, monkeypatch, capsys):
    """A machine that is busy when it is measured seems slow, and that was kept for good."""
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    slow = Roof("a machine", 1.0, 1.0, 1e15, "made up")
    monkeypatch.setattr(machine, "measure", lambda: slow)
    given = ["run", program, "--json", "--figures", "--size", "4096", "--repeat", "1"]
    assert main.main(given) == 0
    printed = capsys.readouterr().out
    assert "a kernel is faster than NumPy's matmul" in printed
    (row,) = json.loads(printed.splitlines()[-1])["figures"]["kernels"]
    assert row["of_roof"] == pytest.approx(1)
    assert machine.roof().flops == pytest.approx(row["gflops"] * 1e9), "it is kept"
    monkeypatch.setattr(machine, "measure", lambda: replace(slow, flops=1e15, source="NumPy"))
    found = machine.raised(machine.roof(), 2.0)
    assert (found.flops, found.source, found.bytes) == (1e15, "NumPy", 1e15)


def test_perf_learns_the_names_of_kernels(program, monkeypatch):
    monkeypatch.setenv("NEPTUNE_PERF_MAP", "1")
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    path.unlink(missing_ok=True)
    try:
        assert main.main(["run", program, "--repeat", "1"]) == 0
        found = {name: int(size, 16) for _, size, name in map(str.split, path.open())}
    finally:
        path.unlink(missing_ok=True)
    assert found["sums_0"] > 16


def test_inputs_and_outputs(program, tmp_path, capsys):
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.savez(tmp_path / "in.npz", arg0=x)
    out = str(tmp_path / "out.npz")
    assert main.main(["run", program, "--inputs", str(tmp_path / "in.npz"), "--outputs", out]) == 0
    np.testing.assert_allclose(np.load(out)["ret0"], x.sum(axis=1))


def changed(monkeypatch, change):
    """Kernels whose results are wrong in some way."""
    from neptune_mlir.driver.kernel import Kernel

    honest = Kernel.__call__
    monkeypatch.setattr(Kernel, "__call__", lambda self, *a, **k: change(honest(self, *a, **k)))


def test_a_failed_check_exits_1(program, capsys, monkeypatch):
    changed(monkeypatch, lambda r: r * np.float32(1.001))
    assert main.main(["run", program, "--check", "--json", "--size", "5"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out.splitlines()[-1])
    assert report["max_rel"] == pytest.approx(1e-3, rel=0.01)
    assert report["check"]["fused_ulps"] == pytest.approx(1e-3 * 2**23, rel=0.01)
    assert not report["check"]["ok"] and "FAILED" in captured.out
    assert "the check failed" in captured.err


@pytest.mark.first_of_each()
@pytest.mark.parametrize(("value", "named"), [(np.nan, "nan"), (np.inf, "inf")])
def test_a_stray_nan_or_inf_fails(program, capsys, monkeypatch, value, named):
    def one_element(result):
        result[1] = value
        return result

    changed(monkeypatch, one_element)
    assert main.main(["run", program, "--check", "--repeat", "1"]) == 1
    assert f"element [1] is {named}, unfused" in capsys.readouterr().out


def test_a_lost_nan_fails(program, tmp_path, capsys, monkeypatch):
    """Elements that are NaN in the program as written are no exception."""
    x = np.ones((3, 8), np.float32)
    x[1, 2] = np.nan
    np.savez(tmp_path / "in.npz", arg0=x)
    arguments = ["run", program, "--check", "--inputs", str(tmp_path / "in.npz"), "--repeat", "1"]
    assert main.main(arguments) == 0
    changed(monkeypatch, np.nan_to_num)
    assert main.main(arguments) == 1
    assert "element [1] is 0, unfused nan" in capsys.readouterr().out


def test_hostile_inputs(program, capsys):
    assert main.main(["run", "--check=hostile", program, "--json", "--repeat", "1"]) == 0
    captured = capsys.readouterr().out
    report = json.loads(captured.splitlines()[-1])
    names = [row["case"] for row in report["hostile"]]
    assert len(names) == len(set(names)) > 30 and all(row["ok"] for row in report["hostile"])
    assert any("mean 1e+06" in n for n in names)
    assert f"{len(names)} cases, 0 failed" in captured
    assert re.search(r"^hostile inputs +fused +unfused", captured, re.M)
    assert re.search(r"^as given .* ok$", captured, re.M)


def test_hostile_inputs_fail_where_plain_ones_do_not(program, capsys, monkeypatch):
    changed(monkeypatch, lambda r: np.where(np.abs(r) > 1e5, np.float32(0), r))
    # (what fails is looked at in many orders; `test_hostile_inputs` has all cases)
    every, chosen = hostile.cases, ("mean 1e+06", "sum to 1")
    monkeypatch.setattr(
        hostile, "cases", lambda *g: [c for c in every(*g) if any(n in c.name for n in chosen)]
    )
    few = ["--json", "--repeat", "1", "--size", "3"]
    assert main.main(["run", program, "--check", *few]) == 0
    assert main.main(["run", program, "--check=hostile", *few]) == 1
    failed = [row["case"] for row in last_line(capsys)["hostile"] if not row["ok"]]
    assert any("mean 1e+06" in n for n in failed) and not any("sum to 1" in n for n in failed)


def test_a_file_may_follow_check(program, capsys):
    assert main.main(["run", "--check", program, "--repeat", "1"]) == 0
    assert main.main(["run", program, "--check=friendly"]) == 2


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


def test_extents_of_hostile_inputs():
    """The last two dimensions are long, a batch and what equals one are small."""
    scores = Argument("tensor", "f32", (None, 4, None, None), "a")
    lengths = Argument("tensor", "i64", (None,), "b")
    rows = Argument("tensor", "f32", (None, None), "c")
    equal = [(["dim", 0, 0], ["dim", 1, 0]), (["dim", 0, 3], ["dim", 2, 1])]
    made = plan(scores, lengths, rows, equal=equal)
    known, size = inputs.hostile_extents(made)
    few, long = inputs.FEW, inputs.LONG
    assert inputs.shapes(made, size, known) == [[few, 4, long, long], [few], [long, long]]


def test_stored_arrays():
    bits = inputs.stored(np.array([1.0, -2.5]), Argument("tensor", "bf16", (2,), "x"))
    assert inputs.to_float64(bits, "bf16").tolist() == [1.0, -2.5]
    assert inputs.stored(np.float64(0.5), Argument("scalar", "f32", (), "s")) == 0.5
    half = inputs.stored(np.array([1e30, 0.1]), Argument("tensor", "f16", (2,), "x"))
    assert half.dtype == np.float16 and np.isinf(half[0])


@pytest.mark.parametrize("name", [
    "masked_variance_count", pytest.param("masked_variance_weights", marks=pytest.mark.nightly),
])  # fmt: skip
def test_verify_passes_what_compile_accepts(name, tmp_path, monkeypatch, capsys):
    """Squares around a weighted mean were multiplied out, and counts of 0 divided by."""
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    path = Path(__file__).parents[2] / "inputs" / "hostile" / f"{name}.mlir"
    assert main.main(["verify", str(path)]) == 0
    assert "worst" in capsys.readouterr().out
