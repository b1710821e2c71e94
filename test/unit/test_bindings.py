# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contexts, dialect loading, and parse diagnostics."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from neptune_mlir.dialects.context import load_dialects, make_context, parse
from neptune_mlir.errors import InputError
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
