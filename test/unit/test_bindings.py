# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contexts, dialect loading, and parse diagnostics."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from neptune_mlir.cli import doctor, opt_help
from neptune_mlir.dialects.context import load_dialects, make_context, parse
from neptune_mlir.errors import InputError, ToolError
from neptune_mlir.ir import bindings
from neptune_mlir.transforms.schedule import library, scripts, transform_neptune

NEST = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "neptune.map"() ({
    %a = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
    "neptune.yield"(%a) : (f32) -> ()
  }) {domain = array<i64: 4>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
  return %y : tensor<4xf32>
}"""


def test_loading_twice_does_nothing():
    context = make_context()
    for _ in range(3):
        load_dialects(context)
        transform_neptune.load(context)
    assert parse(NEST, context=context).operation.verify()


def test_many_contexts_one_after_another():
    for _ in range(5):
        module = parse(NEST)
        scripts.apply(module, library.read("streamed"), {}, "streamed")
        assert "neptune.tile" in str(module)


def test_many_contexts_in_threads():
    def work(_):
        module = parse(NEST)
        scripts.apply(module, library.read("streamed"), {}, "streamed")
        return "neptune.tile" in str(module)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))


STRANGERS = {
    "a module": ({"mlir.py": "x = 1"}, "mlir.ir cannot be imported"),
    "a folder": ({"mlir/notes.txt": ""}, "mlir.ir cannot be imported"),
    "a package that raises": ({"mlir/__init__.py": "1 / 0"}, "ZeroDivisionError"),
    "another ir": ({"mlir/__init__.py": "", "mlir/ir.py": ""}, "mlir.ir has no Context"),
    "older bindings": (
        {"mlir/__init__.py": "", "mlir/ir.py": "Context = Module = MLIRError = WalkResult = 0",
         "mlir/passmanager.py": "PassManager = 0"},
        "mlir.passmanager has no ExternalPass",
    ),
}  # fmt: skip


@pytest.mark.skipif(bindings.PACKAGE != "torch_mlir", reason="the package mlir is the bindings")
@pytest.mark.parametrize("kind", STRANGERS)
def test_other_packages_called_mlir_are_passed_over(tmp_path, monkeypatch, kind):
    files, why = STRANGERS[kind]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(bindings, "REFUSED", {})
    before = set(sys.modules)
    try:
        assert bindings.choose_package() == "torch_mlir"
        assert why in bindings.REFUSED["mlir"]
        assert why in opt_help.version_text()
        assert kind != "a module" or any(why in row.detail for row in doctor.findings())
    finally:
        for name in {n for n in sys.modules if n.split(".")[0] == "mlir"} - before:
            del sys.modules[name]


def test_no_bindings_at_all(monkeypatch):
    monkeypatch.setattr(bindings, "REFUSED", {})
    with pytest.raises(ToolError, match="no MLIR Python bindings are installed"):
        bindings.choose_package(("no_such_mlir",))


def test_parse_errors_have_places():
    with pytest.raises(InputError) as caught:
        parse(NEST.replace("array<i64: 0>", "array<i64: 1>"), source="f.mlir")
    assert str(caught.value).startswith("f.mlir:3:8: error: 'neptune.map' op result axis 1")


def test_source_name():
    module = parse(NEST)
    location = module.body.operations[0].location
    assert bindings.location_text(location) == "-:2:1"
    with bindings.source_name("f.mlir"):
        assert bindings.location_text(location) == "f.mlir:2:1"
    assert bindings.location_text(location, "g.mlir") == "g.mlir:2:1"
