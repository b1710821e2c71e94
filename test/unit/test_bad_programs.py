# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs and files that nothing can be done with: a message that says so, and no traceback; and
arrays without elements, with which nothing is to be done."""

from __future__ import annotations

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir.cli.main import main
from neptune_mlir.driver import compiler
from neptune_mlir.driver.inputs import load_inputs
from neptune_mlir.errors import InputError, LoweringError, NeptuneError, UsageError

TWICE = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = arith.addf %x, %x : tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


@pytest.mark.parametrize("kind", ["complex<f32>", "i4", "f8E5M2"])
def test_elements_that_nothing_holds(kind):
    text = f"func.func @main(%y: f32, %x: tensor<4x{kind}>) -> f32 {{ return %y : f32 }}"
    with pytest.raises(InputError, match=f"argument 1 has elements of type {kind}") as raised:
        neptune.compile(text)
    assert raised.value.loc == "<program>:1:26"
    body = f"%r = tensor.empty() : tensor<4x{kind}> return %r : tensor<4x{kind}>"
    result = f"func.func @main() -> tensor<4x{kind}> {{ {body} }}"
    with pytest.raises(InputError, match=f"result 0 has elements of type {kind}"):
        compiler.compile_unfused(result, "p", None)


def test_complex_numbers_within_a_program():
    """They ended in an error of the code for CPUs."""
    text = """#i = affine_map<(i) -> (i)>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xcomplex<f32>>
  %z = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xcomplex<f32>>) {
  ^bb0(%a: f32, %o: complex<f32>):
    %c = complex.create %a, %a : complex<f32>
    linalg.yield %c : complex<f32>
  } -> tensor<4xcomplex<f32>>
  return %x : tensor<4xf32>
}
"""
    with pytest.raises(InputError, match=r"'linalg\.generic' gives complex numbers") as raised:
        neptune.compile(text)
    assert raised.value.loc == "<program>:4:8"


def test_results_in_8_bits_that_nothing_holds():
    body = "%r = tensor.empty() : tensor<4xf8E5M2> return %r : tensor<4xf8E5M2>"
    with pytest.raises(InputError, match="result 0 has elements of type f8E5M2"):
        neptune.compile(f"func.func @main() -> tensor<4xf8E5M2> {{ {body} }}")


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_a_function_that_nothing_defines(target):
    """It was taken for one that could be compiled; named, it failed behind the last pass."""
    text = """func.func private @softplas(f32) -> f32
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %r = linalg.map ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) (%a: f32, %o: f32) {
    %b = func.call @softplas(%a) : (f32) -> f32
    linalg.yield %b : f32
  }
  return %r : tensor<4x8xf32>
}
"""
    for entry in (None, "main"):
        with pytest.raises(NeptuneError, match="'softplas' is declared, and nothing") as raised:
            compiler.compile_text(text, "p.mlir", target, None, entry)
        assert raised.value.loc == "p.mlir:5:10"
    with pytest.raises(NeptuneError, match="no single function 'softplas' to compile"):
        compiler.compile_text(text, "p.mlir", target, None, "softplas")


def test_tensors_without_a_rank():
    text = "func.func @main(%x: tensor<*xf32>) -> tensor<*xf32> { return %x : tensor<*xf32> }"
    with pytest.raises(InputError, match="argument 0 has no rank"):
        neptune.compile(text)


def test_a_path_as_a_string(tmp_path, monkeypatch):
    (tmp_path / "twice.mlir").write_text(TWICE)
    (tmp_path / "twice.txt").write_text(TWICE)
    monkeypatch.chdir(tmp_path)
    for path in ("twice.mlir", "twice.txt", str(tmp_path / "twice.mlir")):
        kernel = neptune.compile(path)
        assert np.array_equal(kernel(np.ones(4, np.float32)), np.full(4, 2))
        assert kernel.source.name == path
    with pytest.raises(UsageError, match=r"cannot read 'other.mlir': No such file"):
        neptune.compile("other.mlir")
    with pytest.raises(InputError, match="custom op 'other' is unknown"):
        neptune.compile("other")  # no path, no program


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "one.npy", np.ones(4, np.float32))
    np.savez(tmp_path / "good.npz", arg0=np.ones(4, np.float32))
    (tmp_path / "short.npz").write_bytes((tmp_path / "good.npz").read_bytes()[:-60])
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "twice.mlir").write_text(TWICE)
    return tmp_path


@pytest.mark.parametrize("name", ["one.npy", "short.npz", "empty.npz", "none.npz"])
def test_inputs_that_are_no_archive(files, name):
    plan = neptune.compile(TWICE).plan
    assert np.array_equal(load_inputs(str(files / "good.npz"), plan.arguments)[0], np.ones(4))
    with pytest.raises(InputError, match=name):
        load_inputs(str(files / name), plan.arguments)


@pytest.mark.parametrize("place", ["", "nowhere/y.npz"])
def test_outputs_that_cannot_be_written(files, capsys, place):
    program, out = str(files / "twice.mlir"), str(files / place)
    assert main(["run", program, "--outputs", out]) != 0
    said = capsys.readouterr().err
    assert f"cannot write '{out}'" in said and "internal error" not in said
    assert not list(files.parent.glob(f"{files.name}*.npz"))


ROWS = """
func.func @main(%x: tensor<3x0xf32>, %y: tensor<?x0xf32>)
    -> (tensor<3x0xf32>, tensor<3xf32>, tensor<0xf32>, tensor<?x0xf32>) {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %like = tensor.empty() : tensor<3x0xf32>
  %soft = linalg.softmax dimension(1) ins(%x : tensor<3x0xf32>) outs(%like : tensor<3x0xf32>)
      -> tensor<3x0xf32>
  %rows = tensor.empty() : tensor<3xf32>
  %start = linalg.fill ins(%zero : f32) outs(%rows : tensor<3xf32>) -> tensor<3xf32>
  %sum = linalg.reduce { arith.addf } ins(%x : tensor<3x0xf32>) outs(%start : tensor<3xf32>)
      dimensions = [1]
  %none = tensor.empty() : tensor<0xf32>
  %at = linalg.fill ins(%zero : f32) outs(%none : tensor<0xf32>) -> tensor<0xf32>
  %columns = linalg.reduce { arith.addf } ins(%x : tensor<3x0xf32>) outs(%at : tensor<0xf32>)
      dimensions = [0]
  %n = tensor.dim %y, %c0 : tensor<?x0xf32>
  %new = tensor.empty(%n) : tensor<?x0xf32>
  %twice = linalg.add ins(%y, %y : tensor<?x0xf32>, tensor<?x0xf32>) outs(%new : tensor<?x0xf32>)
      -> tensor<?x0xf32>
  return %soft, %sum, %columns, %twice
      : tensor<3x0xf32>, tensor<3xf32>, tensor<0xf32>, tensor<?x0xf32>
}
"""


SCALED = """
func.func @f(%x: tensor<8xf32>, %s: {kind}) -> tensor<8xf32> {{
  %r = "neptune.map"() ({{
    %a = "neptune.read"(%x) {{map = affine_map<(d0) -> (d0)>}} : (tensor<8xf32>) -> f32
    %b = arith.extf %s : {kind} to f32
    %c = arith.mulf %a, %b : f32
    "neptune.yield"(%c) : (f32) -> ()
  }}) {{domain = array<i64: 8>, result_axes = array<i64: 0>}} : () -> tensor<8xf32>
      loc("m.py:3 ('torch.aten.mul')")
  return %r : tensor<8xf32>
}}
"""


@pytest.mark.parametrize(
    ("target", "kind"), [("cpu", "bf16"), ("cpu", "f16"), ("sm_90a", "bf16"), ("gfx942", "bf16")]
)
def test_numbers_that_no_call_passes_are_refused_where_they_are_used(target, kind):
    with pytest.raises(LoweringError, match=f"'argument 1': numbers of type {kind}") as caught:
        neptune.compile(SCALED.format(kind=kind), target)
    assert caught.value.loc == "m.py:3 ('torch.aten.mul')" and "f32" in caught.value.hint


def test_arrays_without_elements():
    x, y = np.zeros((3, 0), np.float32), np.zeros((5, 0), np.float32)
    soft, rows, columns, twice = neptune.compile(ROWS)(x, y)
    assert soft.shape == (3, 0) and columns.shape == (0,) and twice.shape == (5, 0)
    assert np.array_equal(rows, np.zeros(3))
    for target in ("sm_80", "gfx942"):
        assert len(compiler.compile_text(ROWS, "rows", target, None, None).plan.launches) == 1
