# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of legal dialects, against what the pipeline makes."""

from pathlib import Path

import pytest

from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import LoweringError
from neptune_mlir.pipelines import legal
from neptune_mlir.pipelines.lowering import COMMON_LEVELS, RaisedProgram
from neptune_mlir.pipelines.ways import Way

EXAMPLE = Path(__file__).parents[3] / "examples" / "attention.mlir"


@pytest.mark.parametrize("schedule", ["streamed", "private"])
def test_levels_hold_what_they_may(schedule):
    text = EXAMPLE.read_text()
    for level in COMMON_LEVELS:
        program = RaisedProgram(text, "attention.mlir", schedule)
        lowering = next(program.lowerings("cpu", [Way()], level))
        legal.check(lowering.module, level)


def test_a_stranger_is_named():
    module = parse(
        "func.func @f(%x: index) {\n  scf.for %i = %x to %x step %x {}\n  return\n}"
    )
    with pytest.raises(LoweringError, match=r"'scf.for' does not belong to the level 'fused'"):
        legal.check(module, "fused")


def test_asked_by_the_environment(monkeypatch):
    module = parse(
        "func.func @f(%x: index) {\n  scf.for %i = %x to %x step %x {}\n  return\n}"
    )
    legal.check_when_asked(module, "fused")
    monkeypatch.setenv("NEPTUNE_VERIFY", "1")
    with pytest.raises(LoweringError):
        legal.check_when_asked(module, "fused")
