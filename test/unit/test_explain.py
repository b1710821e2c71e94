# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pseudo-code: brackets, guards, inequalities, names."""

import pytest

from neptune_mlir import ops
from neptune_mlir.algebra import terms as T
from neptune_mlir.cli import main
from neptune_mlir.dialects.context import parse
from neptune_mlir.driver import explain
from neptune_mlir.driver.explain import _show

A, B, C = (T.read(name, T.index(0)) for name in "abc")
ROW, COL = T.index(0), T.index(1)
NEG_INF = T.const(float("-inf"))


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (T.make("sub", A, T.make("sub", B, C)), "a[i] - (b[i] - c[i])"),
        (T.make("sub", T.make("sub", A, B), C), "a[i] - b[i] - c[i]"),
        (T.make("mul", T.make("add", A, B), C), "(a[i] + b[i]) * c[i]"),
        (T.make("add", T.make("mul", A, B), C), "a[i] * b[i] + c[i]"),
        (T.make("div", A, T.make("mul", B, C)), "a[i] / (b[i] * c[i])"),
        (T.make("exp", T.make("sub", A, B)), "exp(a[i] - b[i])"),
        (T.make("select", T.make("le", COL, ROW), A, NEG_INF), "where(j <= i, a[i], -inf)"),
        (T.make("select", T.make("eq", A, NEG_INF), T.const(0.0), A), "guard(a[i])"),
        (T.make("select", T.make("eq", A, T.const(1.0)), T.const(0.0), A),
         "where(a[i] == 1, 0, a[i])"),
        (T.make("cast", A, dtype="f16"), "f16(a[i])"),
        (T.make("and", T.make("le", COL, ROW), T.make("lt", ROW, T.const(4, "index"))),
         "j <= i and i < 4"),
    ],
)  # fmt: skip
def test_show(term, text):
    assert _show(term, ["i", "j"]) == text


def linear(constant, **coefficients):
    total = None
    for name, factor in coefficients.items():
        axis = {"i": ROW, "j": COL}[name]
        part = (
            axis if factor == 1 else T.term("mul", (axis, T.const(factor, "index")), None, "index")
        )
        total = part if total is None else T.make("add", total, part)
    if constant:
        total = T.make("add", total, T.const(constant, "index"))
    return T.make("ge", total, T.const(0, "index"))


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (linear(0, i=1, j=-1), "i >= j"),
        (linear(7, j=1, i=-1), "j + 7 >= i"),
        (linear(-3, i=2, j=-4), "i * 2 >= j * 4 + 3"),
    ],
)
def test_inequalities(condition, text):
    assert _show(condition, ["i", "j"]) == text


def test_a_nest_without_short_form_says_so():
    module = parse("""
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = "neptune.map"() ({
        %a = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
        %c = arith.constant 2 : i32
        %b = math.fpowi %a, %c : f32, i32
        "neptune.yield"(%b) : (f32) -> ()
      }) {domain = array<i64: 4>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
      return %y : tensor<4xf32>
    }""")
    assert "'math.fpowi' has no term form" in explain.explain(module)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_with_a_target_it_says_how_fast_a_program_can_be(target, tmp_path, capsys):
    path = tmp_path / "sums.mlir"
    path.write_text(ops.logsumexp(cols=1000, dtype="f16").to_mlir())
    assert main.main(["explain", str(path), "--target", target, "--size", "64"]) == 0
    text = capsys.readouterr().out
    assert "bound of" in text and "by bytes" in text and "x.0 = 64" in text
    assert f"other calls on {target}" in text if target != "cpu" else "other calls" in text
    assert "logsumexp_0: " in text or target == "cpu"


def test_sizes_ask_for_a_target(tmp_path, capsys):
    path = tmp_path / "sums.mlir"
    path.write_text(ops.logsumexp().to_mlir())
    assert main.main(["explain", str(path), "--size", "64"]) != 0
    assert "add --target" in capsys.readouterr().err
