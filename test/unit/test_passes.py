# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes as functions and in upstream's pass managers (a whole pipeline: docs/embedding.md)."""

import gc
import inspect
import weakref

import pytest

import neptune_mlir
from neptune_mlir import passes
from neptune_mlir.errors import UsageError
from neptune_mlir.ir.bindings import ir, passmanager
from neptune_mlir.transforms import registry

SUMS = """
func.func @f(%x: tensor<8x16xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.reduce ins(%x : tensor<8x16xf32>) outs(%i : tensor<8xf32>) dimensions = [1]
    (%a: f32, %b: f32) { %c = arith.addf %a, %b : f32  linalg.yield %c : f32 }
  return %s : tensor<8xf32>
}"""


@pytest.fixture
def module():
    context = ir.Context()
    neptune_mlir.register(context)
    neptune_mlir.register(context)  # a second time does nothing
    with context:
        return ir.Module.parse(SUMS)


def test_a_pass_is_a_function(module):
    passes.raise_linalg(module)
    assert '"neptune.reduce"' in str(module)
    passes.tile(module, rows=4)
    assert "neptune.tile = array<i64: 4, 0>" in str(module)
    assert list(inspect.signature(passes.tile).parameters)[:3] == ["module", "sizes", "rows"]
    assert "Fuse dependent reductions" in passes.rolling_update.__doc__
    assert {name.replace("-", "_") for name in passes.names()} <= set(dir(passes))


def test_a_context_is_registered_on_the_way():
    with ir.Context():
        module = ir.Module.parse(SUMS)
    passes.run(module, "builtin.module(func.func(cse),raise-linalg)")
    assert '"neptune.reduce"' in str(module)


def test_an_upstream_pass_manager_takes_our_passes(module):
    manager = passmanager.PassManager("builtin.module", module.context)
    manager.add("canonicalize")
    passes.add(manager, "raise-linalg")
    passes.add(manager, "tile", rows=4)
    manager.add("func.func(cse)")
    assert "raise-linalg,tile{rows=4},func.func(cse)" in str(manager)
    manager.run(module.operation)
    assert "neptune.tile = array<i64: 4, 0>" in str(module)


def test_text_of_both_kinds(module):
    text = "builtin.module(cse,raise-linalg,func.func(canonicalize))"
    manager = passes.parse(text, module.context)
    manager.run(module.operation)
    assert '"neptune.reduce"' in str(module)


def test_what_a_pass_starts_from_comes_before_it(module):
    manager = passmanager.PassManager("builtin.module", module.context)
    passes.add(manager, "rolling-update")
    names = str(manager).removeprefix("builtin.module(").removesuffix(")").split(",")
    assert names[-1] == "rolling-update"
    assert set(registry.prerequisites("rolling-update", ())) == set(names[:-1]) != set()
    manager.run(module.operation)
    assert "linalg" not in str(module)
    text = passes.parse("raise-linalg,rolling-update", module.context)
    assert str(text).count("raise-linalg") == 1


def test_a_failure_in_an_upstream_pass_manager_says_why(module):
    def refuse(module):
        raise UsageError("not this one", hint="another")

    registry.register("refuse-all", "for this test")(refuse)
    manager = passmanager.PassManager("builtin.module", module.context)
    passes.add(manager, "refuse-all")
    with pytest.raises(ir.MLIRError, match="UsageError: not this one"):
        manager.run(module.operation)
    with pytest.raises(UsageError, match="not this one"):
        passes.run(module, "cse,refuse-all")


def test_nothing_keeps_a_pass_manager_alive(module):
    """The bindings cannot break a cycle through a pass, so there must be none."""

    def hold(module):
        pass

    registry.register("hold-on", "for this test")(hold)
    witness = weakref.ref(hold)
    for _ in range(3):
        passes.run(module, "cse,hold-on")
    registry.register("hold-on", "for this test")(lambda module: None)
    del hold
    gc.collect()
    assert witness() is None


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda m: passes.tile(m, row=3), "no option 'row'"),
        (lambda m: passes.tile(m, rows="x"), "takes a int, not 'x'"),
        (lambda m: passes.tile("text"), "tile does not take a builtins.str"),
        (lambda m: passes.run(m, "rolling-updat"), "unknown pass"),
        (lambda m: passes.parse("func.func(tile)", m.context), "not on func.func"),
        (lambda m: passes.add(passes.parse("", m.context), "no-such-pass"), "unknown pass"),
        (lambda m: passes.add("builtin.module", "tile"), "add does not take"),
        (lambda m: neptune_mlir.register(None), "register does not take"),
    ],
)
def test_wrong_use(module, use, message):
    with pytest.raises(UsageError, match=message):
        use(module)


def test_no_such_pass():
    with pytest.raises(AttributeError, match="no pass 'til'"):
        _ = passes.til
