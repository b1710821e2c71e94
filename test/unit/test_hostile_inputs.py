# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that lost their numbers once, on every input that hurts, by the rule of `--check`.

Each file of test/inputs/hostile is what torch-mlir makes of a few lines of PyTorch. Tiles are
small, so that rows take many steps and a ragged last one.
"""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from neptune_mlir.dialects.context import parse
from support.hostile_runs import cases_of, failures, programs_of

FOLDER = Path(__file__).parents[1] / "inputs" / "hostile"
NAMES = sorted(path.stem for path in FOLDER.glob("*.mlir"))
pytestmark = pytest.mark.usefixtures("small_tiles")


@functools.cache
def program(name):
    """The program three ways, and its cases."""
    text = (FOLDER / f"{name}.mlir").read_text()
    found = programs_of(text)
    function = parse(text).body.operations[0]
    return found, cases_of(found, [tuple(t.shape) for t in function.type.inputs])


# "shows" and "count" are for conditions and integers, which not every program has
KINDS = ("as", "mask", "mean", "magnitude", "weights", "one", "moves", "shows", "count")


def test_there_are_programs():
    assert len(NAMES) >= 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_inputs(name, kind):
    programs, cases = program(name)
    found = failures(programs, [case for case in cases if case.kind == kind])
    assert not found, "\n".join(map(str, found))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["logsumexp", "masked_variance_count"])
def test_a_tree_is_judged_from_outside(name):
    """By the tool that judges older trees; this one is right."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "tools/judge_old_tree.py", root, "cpu", FOLDER / f"{name}.mlir"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert ": wrong on 0 of " in run.stdout
