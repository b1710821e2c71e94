# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune compile --emit`: kernels for some calls are shown beside those for any."""

from __future__ import annotations

import re

import pytest

from neptune_mlir import ops
from neptune_mlir.cli.main import main
from neptune_mlir.dialects.context import parse
from neptune_mlir.pipelines.gpu import plan_of

# and the rounds of their programs are not over later than those of others
LENGTH = "select((k.shape[2] <= (2 * "  # of programs: rows that end a triangle are all long
LONG, LONGER = (f"calls where and(({n} <= k.shape[2]), ((9 * {LENGTH}" for n in (2048, 8192))
PART = f"calls where ((10 * {LENGTH}"  # of a tile, or over sooner by it
PROGRAMS = "((q.shape[0] * q.shape[1]) * ceildiv(q.shape[2], {}))"
FEW = f"calls where or(((10 * {LENGTH}"  # the rounds of their programs are over sooner
SHORT = f"calls where and((k.shape[2] <= 1024), ({PROGRAMS.format(64)} <= (2 * multiprocessors)))"
# streams in chunks
ANY, LARGE, SMALL = (PROGRAMS.format(n) for n in (128, 64, 16))
LARGE = f"calls where and(((4 * {LARGE}) <= multiprocessors), lt(1, "  # chunks that are joined
SMALL = (
    f"calls where or(({SMALL} <= {ANY}), "
    f"and(lt(256, k.shape[2]), and(((8 * {ANY}) <= multiprocessors), "
    f"({SMALL} <= multiprocessors))))"
)
CALLS = ("other calls", LONG, LONGER, PART, FEW, SHORT, LARGE, SMALL)
# of SMALL those whose stream has one chunk: nothing to join
ONE_CHUNK = f"calls where and({SMALL.removeprefix('calls where ')}, ("


def of_calls(found, wanted):
    """Whether programs are for calls that begin so, and the last for those of one chunk."""
    *others, last = found
    for calls, start in zip(others, wanted, strict=True):
        assert calls.startswith(start)
    assert last.startswith(ONE_CHUNK) and last.endswith(" <= 1))")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "attention.mlir"
    path.write_text(ops.attention(head_dim=64, causal=True, dtype="f16").to_mlir())
    return str(path)


def emitted(capsys, program, level, target="sm_90a"):
    assert main(["compile", program, "--target", target, "--emit", level]) == 0
    return capsys.readouterr()


@pytest.mark.first_of_each()
@pytest.mark.parametrize("level", ["tile", "fused", "target"])
def test_every_program_is_shown(capsys, program, level):
    shown = emitted(capsys, program, level)
    parts = shown.out.split("// -----\n")
    of_calls([part.split("\n")[0].removeprefix("// ") for part in parts], CALLS)
    rows = {"fused": r"neptune.tile = array<i64: 1, 1, (\d+),",
            "tile": r"to tensor<(\d+)x64xf16>"}  # fmt: skip
    sizes = ("128", "192", "192", "128", "64", "64", "64", "16", "16")
    for part, wanted in zip(parts, sizes, strict=True):
        module = parse(part)
        if level == "target":
            assert plan_of(module).launches[0].grid[-1] == ["ceildiv", ["dim", 0, 2], int(wanted)]
        else:
            assert re.search(rows[level], part)[1] == wanted
    assert "fused 3 reductions" in shown.err


def test_comments_of_the_language(capsys, program):
    text = emitted(capsys, program, "llvm", "sm_80").out
    calls = re.findall(r"^; ((?:other )?calls.*)$", text, re.MULTILINE)
    of_calls(calls, ("other calls", LARGE, SMALL))


def test_chunks_for_few_rows_on_any_chip(capsys, program):
    parts = emitted(capsys, program, "tile", "sm_80").out.split("// -----\n")
    calls = [part.split("\n")[0].removeprefix("// ") for part in parts]
    of_calls(calls, ("other calls", LARGE, SMALL))


@pytest.mark.parametrize(("target", "level"), [("gfx942", "tile"), ("sm_90a", "neptune")])
def test_one_program_has_no_comment(capsys, program, target, level):
    text = emitted(capsys, program, level, target).out
    assert "calls" not in text
    assert text.count("module ") == 1


def test_unknown_precision(capsys, program):
    assert main(["compile", program, "--precision", "fp4"]) == 2
    assert "choose from 'tf32'" in capsys.readouterr().err
