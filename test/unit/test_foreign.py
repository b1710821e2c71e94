# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of other exporters: StableHLO, bytecode, ONNX; and what torch-mlir cannot lower."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.cli.main import main
from neptune_mlir.driver import foreign, torch_mlir_opt, torch_views
from neptune_mlir.errors import InputError, ToolError

pytest.importorskip("torch_mlir")

SOFTMAX = """\
module @jit_f {
  func.func public @main(%x: tensor<3x40xf32>) -> tensor<3x40xf32> {
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
        : (tensor<3x40xf32>, tensor<f32>) -> tensor<3xf32>
    %e = call @weights(%x, %m) : (tensor<3x40xf32>, tensor<3xf32>) -> tensor<3x40xf32>
    %l = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<3x40xf32>, tensor<f32>) -> tensor<3xf32>
    %t = stablehlo.broadcast_in_dim %l, dims = [0] : (tensor<3xf32>) -> tensor<3x40xf32>
    %p = stablehlo.divide %e, %t : tensor<3x40xf32>
    return %p : tensor<3x40xf32>
  }
  func.func private @weights(%x: tensor<3x40xf32>, %m: tensor<3xf32>) -> tensor<3x40xf32> {
    %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<3xf32>) -> tensor<3x40xf32>
    %d = stablehlo.subtract %x, %b : tensor<3x40xf32>
    %e = stablehlo.exponential %d : tensor<3x40xf32>
    return %e : tensor<3x40xf32>
  }
}
"""
X = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)


def softmax(x):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_stablehlo_is_one_kernel():
    kernel = neptune_mlir.compile(SOFTMAX)
    assert len(kernel.plan.launches) == 1
    np.testing.assert_allclose(kernel(X), softmax(X), atol=1e-6)
    (said,) = (r for r in kernel.facts["remarks"] if "fused 2" in r)
    assert said.startswith("<program>:8:26: remark")  # the second reduction, where it was written


def test_portable_artifacts_and_bytecode(tmp_path):
    from neptune_mlir.dialects.context import make_context
    from neptune_mlir.ir.bindings import ir

    stablehlo = foreign._stablehlo()
    with make_context() as context:
        stablehlo.register_dialect(context, True)
        module = ir.Module.parse(SOFTMAX)
        oldest = stablehlo.get_minimum_version()
        portable = stablehlo.serialize_portable_artifact(module, oldest, True)
    files = {"portable": portable, "bytecode": foreign.to_bytecode(foreign.from_text(SOFTMAX, "f"))}
    for name, data in files.items():
        path = tmp_path / f"{name}.mlirbc"
        path.write_bytes(data)
        assert data.startswith(foreign.BYTECODE)
        np.testing.assert_allclose(neptune_mlir.compile(path)(X), softmax(X), atol=1e-6)
    assert files["bytecode"] == foreign.to_bytecode(foreign.from_text(SOFTMAX, "f"))


def test_bytecode_of_a_program_with_a_sort():
    text = """
    func.func @f(%x: tensor<3x9xf32>) -> tensor<3x9xf32> {
      %0 = tm_tensor.sort dimension(1) outs(%x : tensor<3x9xf32>) {
      ^bb0(%a: f32, %b: f32):
        %c = arith.cmpf olt, %a, %b : f32
        tm_tensor.yield %c : i1
      } -> tensor<3x9xf32>
      return %0 : tensor<3x9xf32>
    }"""
    assert "tm_tensor.sort" in foreign.from_bytecode(foreign.to_bytecode(text), "f")


def test_bytecode_from_the_command_line(tmp_path, capsys):
    source, made = tmp_path / "f.stablehlo.mlir", tmp_path / "f.mlirbc"
    source.write_text(SOFTMAX)
    assert main(["compile", str(source), "--emit", "neptune", "-o", str(made)]) == 0
    assert made.read_bytes().startswith(foreign.BYTECODE)
    assert main(["compile", str(made), "--emit", "fused"]) == 0
    assert "neptune.stream" in capsys.readouterr().out
    assert main(["compile", str(made), "--emit", "llvm", "-o", str(tmp_path / "o.mlirbc")]) != 0
    assert "--emit llvm has no bytecode" in capsys.readouterr().err


def test_an_op_without_lowering_is_named_where_it_stands(tmp_path, capsys):
    path = tmp_path / "f.mlir"
    path.write_text(
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = stablehlo.custom_call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  return %y : tensor<4xf32>\n}\n"
    )
    assert main(["run", str(path)]) != 0
    said = capsys.readouterr().err
    assert f"{path}:2:8: error: 'stablehlo.custom_call @g' has no lowering to linalg" in said


@pytest.mark.parametrize("data", [b"ML\xefR", b"ML\xefR\x06MLIR", b"ML\xefR\x01StableHLO_v0.9.0"])
def test_damaged_bytecode_is_an_error(tmp_path, data):
    path = tmp_path / "f.mlirbc"
    path.write_bytes(data)
    with pytest.raises(InputError):
        foreign.program_text(path)


UNKNOWN = """
func.func @f(%x: !torch.vtensor<[3],f32>) -> !torch.vtensor<[3],f32> {

  %y = "torch.op"(%x) : (!torch.vtensor<[3],f32>) -> !torch.vtensor<[3],f32>
  return %y : !torch.vtensor<[3],f32>
}
"""


def test_what_torch_mlir_cannot_lower_is_an_error_of_the_program(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"f\.mlir:4:8: .*torch-mlir cannot lower 'torch\.op'"):
        torch_mlir_opt.lower(UNKNOWN, torch_views.TO_LINALG, "f.mlir")
    dies = tmp_path / "opt"
    dies.write_text("#!/bin/sh\nkill -FPE $$\n")
    dies.chmod(0o755)
    monkeypatch.setattr(torch_mlir_opt, "_executable", lambda: dies)
    with pytest.raises(InputError, match="torch-mlir died of SIGFPE") as caught:
        torch_mlir_opt.lower(UNKNOWN, torch_views.TO_LINALG, "f.mlir")
    assert caught.value.loc == "f.mlir"
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ToolError, match="needs torch-mlir"):
        torch_mlir_opt.lower(UNKNOWN, torch_views.TO_LINALG, "f.mlir")


def test_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    w = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)
    graph = h.make_graph(
        [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Softmax", ["a"], ["y"], axis=-1)],
        "f",
        [h.make_tensor_value_info("x", kind, ["batch", 40])],
        [h.make_tensor_value_info("y", kind, ["batch", 8])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    opset = [h.make_opsetid("", 17)]
    onnx.save(h.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "f.onnx")
    kernel = neptune_mlir.compile(tmp_path / "f.onnx")
    assert len(kernel.plan.launches) == 1
    np.testing.assert_allclose(kernel(X), softmax(X @ w), atol=1e-5)


def test_onnx_that_is_none(tmp_path, monkeypatch):
    path = tmp_path / "f.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises((InputError, ToolError), match="onnx"):
        foreign.program_text(path)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ToolError, match="needs 'onnx'"):
        foreign.program_text(path)


@pytest.mark.parametrize("attributes", ["", "attributes {a.b = {c = 1 : i64}} "])
def test_unsigned_results_of_stablehlo(attributes):
    results = '(tensor<4xi32> {a.b = "c"}, tensor<4xui8>)'
    kernel = neptune_mlir.compile(f"""\
func.func public @main(%x: tensor<4xi32>) -> {results} {attributes}{{
  %y = stablehlo.add %x, %x : tensor<4xi32>
  %z = stablehlo.convert %y : (tensor<4xi32>) -> tensor<4xui8>
  return %y, %z : tensor<4xi32>, tensor<4xui8>
}}""")
    wide, bytes_ = kernel(np.array([1, 100, 120, 7], np.int32))
    assert (wide.dtype, bytes_.dtype) == (np.int32, np.uint8)
    np.testing.assert_array_equal(bytes_, [2, 200, 240, 14])
    out = np.zeros(4, np.int32), np.zeros(4, np.uint8)
    kernel(np.array([1, 100, 120, 7], np.int32), out=out)
    np.testing.assert_array_equal(out[1], [2, 200, 240, 14])
