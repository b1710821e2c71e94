# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One program, several tile programs: fused once, and each as if it were the only one."""

from __future__ import annotations

import pytest

from neptune_mlir import ops
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import UsageError
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.lowering import Lowering, RaisedProgram
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.transforms.registry import remark

TEXT = Source.of(ops.attention(head_dim=64, causal=True, dtype="f16")).text
WAYS = [Way({"streamed": knobs}) for knobs in ("rows:32;stream:16", "rows:64", "rows:32;stream:16")]


def tiles(ways, level="tile"):
    found = RaisedProgram(TEXT, "attention").lowerings("sm_80", ways, level)
    return [(str(x.module), x.facts) for x in found]


def test_ways_do_not_see_each_other():
    together = tiles(WAYS)
    assert together == [tiles([way])[0] for way in WAYS]
    assert together[0] == together[2]
    assert len({text for text, _ in together}) == 2


def test_a_program_is_fused_once(monkeypatch, tmp_path):
    monkeypatch.setenv("NEPTUNE_DUMP", str(tmp_path))
    tiles(WAYS)
    stages = [path.stem.partition("-")[2] for path in sorted(tmp_path.iterdir())]
    assert stages.count("raise-linalg") == 1
    assert stages.count("apply-schedule") == 1 + 2  # what the knobs change: two ways are the same
    assert stages.count("lower-to-tiles") == 2


def test_a_fused_program_is_lowered_once(monkeypatch, tmp_path):
    """Numbers that decide nothing about a program cost no passes, and stand in its facts."""
    more = Way({"streamed": f"{WAYS[0].knobs['streamed']};least:8"})
    monkeypatch.setenv("NEPTUNE_DUMP", str(tmp_path))
    program = RaisedProgram(TEXT, "attention")
    first, second = program.lowerings("sm_80", [WAYS[0], more])
    stages = [path.stem.partition("-")[2] for path in sorted(tmp_path.iterdir())]
    assert stages.count("lower-to-tiles") == stages.count("cut-rows") == 1
    assert str(first.module) == str(second.module)
    ((text, facts),) = tiles([more])
    assert (str(second.module), second.facts) == (text, facts)
    assert "least:8" in second.facts["provenance"]["schedule"]["knobs"]
    for op in list(first.module.body.operations):  # what is handed out may be changed
        op.operation.erase()
    (third,) = program.lowerings("sm_80", [more])
    assert str(third.module) == text


def test_refused_ways_leave_their_reasons():
    def refuse(module):
        remark(module.operation.location, "too large")
        return False

    ((text, facts),) = tiles([Way(suits=refuse), WAYS[0]])
    ((alone, without),) = tiles([WAYS[0]])
    assert text == alone
    (more,) = [r for r in facts["remarks"] if r not in without["remarks"]]
    assert more.endswith("remark: too large")


def test_programs_for_some_calls_are_not_asked_for_more_of_them(monkeypatch):
    asked = []
    find = Lowering.find_cases
    monkeypatch.setattr(Lowering, "find_cases", lambda self: asked.append(1) or find(self))
    program = RaisedProgram(TEXT, "attention")
    base = next(program.lowerings("sm_80", nvvm.ways("sm_80")))
    assert len(list(program.variants(base, str(base.module), "sm_80"))) > 1
    assert len(asked) == 1


def test_no_such_level():
    with pytest.raises(UsageError, match="no level 'llvm'"):
        tiles(WAYS, "llvm")


def test_factors_that_stay_f32_are_not_computed_ahead():
    """What is computed ahead of a product is written in the 16 bits of its partner."""
    text = Source.of(ops.layer_norm_matmul(dtype="f16")).text
    way = Way({"ahead": ""})
    for knobs, schedule in (("", "ahead"), ("narrow:0", "streamed")):
        program = RaisedProgram(text, "norm", knobs=knobs)
        assert program.by("sm_80", way, "fused").facts["schedule"] == schedule


def test_a_program_for_any_call_is_bound_once(monkeypatch):
    """It is looked at for kernels that only some calls have, and then lowered."""
    bound = []
    fuse = Lowering.to_fused
    monkeypatch.setattr(
        Lowering, "to_fused", lambda self, knobs: bound.append(knobs) or fuse(self, knobs)
    )
    program = RaisedProgram(TEXT, "attention")
    looked = next(program.lowerings("sm_80", WAYS, "fused"))
    text, cases = str(looked.module), looked.cases
    for op in list(looked.module.body.operations):  # what is handed out may be changed
        op.operation.erase()
    again = program.by("sm_80", WAYS[0], "fused")
    assert len(bound) == 1
    assert (str(again.module), again.cases) == (text, cases)
    program.by("sm_80", WAYS[0], "fused", some_calls=True)
    program.by("sm_80", WAYS[1], "fused")
    assert len(bound) == 3
