# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelines as text, and running them."""

import pytest

from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import NeptuneError, UsageError
from neptune_mlir.ir.bindings import ir, passmanager
from neptune_mlir.pipelines import common, upstream
from neptune_mlir.pipelines.runner import Instruments, Step, parse_pipeline, run, until
from neptune_mlir.transforms import registry

FUNC = ("func.func",)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        ("cse", [Step("cse")]),
        ("builtin.module(cse, canonicalize)", [Step("cse"), Step("canonicalize")]),
        ("privatize{chunks=4},cse", [Step("privatize", "chunks=4"), Step("cse")]),
        ("func.func(cse,canonicalize{top-down=false}),tile",
         [Step("cse", "", FUNC), Step("canonicalize", "top-down=false", FUNC), Step("tile")]),
        ("any(gpu.module(llvm.func(cse)))", [Step("cse", "", ("gpu.module", "llvm.func"))]),
        ("inline{op-pipelines=func.func(cse,sccp)}",
         [Step("inline", "op-pipelines=func.func(cse,sccp)")]),
    ],
)  # fmt: skip
def test_parse_pipeline(text, steps):
    assert parse_pipeline(text) == steps


@pytest.mark.parametrize("text", ["cse)", "func.func(cse", "tile{rows=4"])
def test_unbalanced_brackets(text):
    with pytest.raises(UsageError, match="brackets"):
        parse_pipeline(text)


def module():
    return parse("func.func @f(%x: i32) -> i32 {\n  return %x : i32\n}")


def test_steps_run_until_the_stop():
    steps = parse_pipeline("cse,llvm-request-c-wrappers,canonicalize,symbol-dce")
    assert until(steps, "canonicalize") == steps[:3]
    assert until(steps, None) == steps
    with pytest.raises(UsageError, match="no such pass in this pipeline") as caught:
        until(steps, "symbol-dc")
    assert caught.value.hint == "did you mean 'symbol-dce'?"


def test_the_table_of_upstream_passes_holds():
    """(`tools/gen_upstream_passes.py` makes it again for other bindings.)"""
    with ir.Context():
        for name, options in upstream.passes().items():
            text = str(passmanager.PassManager.parse(f"any({name})"))
            assert not options or options in " ".join(text.split())
    assert {"canonicalize", "cse", "convert-linalg-to-loops"} <= upstream.passes().keys()


@pytest.fixture
def registered():
    """Passes of a user: one that counts its runs, one that raises."""
    seen = []

    def count(module, *, times=1):
        seen.append((module.operation.name, times))

    def fail(module):
        raise ValueError("said by the pass")

    for name, function in (("count-runs", count), ("fail-always", fail)):
        registry.register(name, "for this test")(function)
    return seen


def test_a_registered_pass_runs_like_any_other(registered):
    run(module(), parse_pipeline("cse,count-runs{times=3},func.func(canonicalize)"))
    assert registered == [("builtin.module", 3)]
    assert "count-runs" in registry.names()
    assert "count-runs" not in registry.built_in()


def test_what_a_pass_raises_comes_out_as_it_is(registered):
    with pytest.raises(ValueError, match="said by the pass"):
        run(module(), parse_pipeline("cse,fail-always"))
    run(module(), parse_pipeline("count-runs"))  # MLIR is still in good order
    assert len(registered) == 1


def test_nothing_runs_when_a_later_step_is_unknown(registered):
    with pytest.raises(UsageError, match="unknown pass 'no-such'"):
        run(module(), parse_pipeline("count-runs,no-such"))
    assert not registered


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("canonicalise", "unknown pass", "did you mean 'canonicalize'"),
        ("rolling-updates", "unknown pass", "did you mean 'rolling-update'?"),
        ("privatize{chunk=2}", "has no option 'chunk=2'", "did you mean 'chunks'?"),
        ("func.func(tile)", "runs on builtin.module, not on func.func", "outside"),
        ("cse x", "cannot read 'cse x'", "PASS"),
    ],
)
def test_wrong_pipelines(text, message, hint):
    with pytest.raises(UsageError, match=message) as caught:
        run(module(), parse_pipeline(text))
    assert hint in caught.value.hint


def test_two_modules_cannot_have_one_name():
    def tile(module):
        pass

    with pytest.raises(UsageError, match="registers pass 'tile', which"):
        registry.register("tile", "another")(tile)


def test_one_report_for_all_passes(registered, capfd):
    steps = parse_pipeline("count-runs,cse,canonicalize")
    run(module(), steps, instruments=Instruments(timing=True))
    report = capfd.readouterr().err
    assert report.count("Execution time report") == 1
    assert all(name in report for name in ("CountRuns", "CSEPass", "CanonicalizerPass"))


@pytest.fixture
def spoiling():
    """A pass that leaves IR which does not verify."""

    def spoil(module):
        module.operation.attributes["no_prefix"] = ir.UnitAttr.get()

    registry.register("spoil-module", "for these tests")(spoil)
    yield Step("spoil-module")
    del registry._PASSES["spoil-module"]


def test_verification_can_be_left_out(spoiling):
    run(module(), [spoiling], instruments=Instruments(verify=False))
    with pytest.raises(NeptuneError, match="pass 'spoil-module' failed"):
        run(module(), [spoiling])


def test_compilations_verify_levels_and_what_others_wrote(spoiling, monkeypatch):
    steps = [spoiling, Step("cse")]
    with pytest.raises(NeptuneError, match="pass 'spoil-module' failed"):
        common.run(module(), steps)
    monkeypatch.setitem(registry._MODULES, "spoil-module", __name__)  # as if it were ours
    with pytest.raises(NeptuneError, match="'cse' left IR that does not verify"):
        common.run(module(), steps)
    monkeypatch.setenv("NEPTUNE_VERIFY", "1")
    with pytest.raises(NeptuneError, match="pass 'spoil-module' failed"):
        common.run(module(), steps)
