# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that programs keep in shared memory while they read them again, on the simulator."""

from __future__ import annotations

import re

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.frontend.notation import Program, exp, max, sum
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets import row_model
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.nvidia import nvidia
from neptune_mlir.targets.resources import kept_row_warps
from neptune_mlir.transforms.schedule import row_tiles
from support.chips import simt
from support.chips.run_kernels import Simulated
from support.variants import Variants

COLS = 2312  # 289 chunks of 16 bytes: the last of two that a thread has may not exist


@pytest.fixture(autouse=True)
def short_rows_are_kept(monkeypatch):
    for name in ("KEPT_WITH_FUNCTIONS", "KEPT_FROM"):
        monkeypatch.setattr(row_tiles, name, 2049)

    def best(target, row, elements, rows=0):
        if row.again and row.keeps and elements >= 2049:
            return row_model.RowForm(1, 8, True)
        return row_model.best(target, row, elements, rows)

    monkeypatch.setattr(row_tiles, "best", best)


def program_of(name, dtype, cols, knob="", **choices):
    """What an operator is, and its kernels: for a known length, or for whole chunks (no `cols`)."""
    program = getattr(ops, name)(dtype=dtype, **({"cols": cols} if cols else {}))
    raised = RaisedProgram(program.to_mlir(), name)
    if not cols:
        raised, _ = raised.of_chunks()
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    found = Variants(raised, base, "sm_90a")[knob]
    return program, Simulated(found.module, target="sm_90a", **choices)


def check(program, run, name, rows, cols, dtype=np.float16):
    random = np.random.default_rng(cols)
    vectors = {"layer_norm": 2, "rms_norm": 1}.get(name, 0)
    given = [random.standard_normal(n).astype(dtype) for n in ((rows, cols), *[cols] * vectors)]
    wanted = program.reference(*(x.astype(float) for x in given))
    limit = 1e-5 if dtype == np.float32 else 2e-3
    assert np.linalg.norm(run(*given) - wanted) <= limit * np.linalg.norm(wanted)


def loads(run, space):
    """Loads of chunks in the code of a thread."""
    return len(re.findall(rf"llvm\.load .*ptr<{space}>.*vector<", str(run.module)))


@pytest.mark.parametrize(
    ("name", "passes"), [("softmax", 3), ("rms_norm", 2), ("layer_norm", 3)]
)  # fmt: skip
def test_each_pass_reads_what_a_thread_copied(name, passes):
    """LayerNorm's differences from the mean are no tile that registers hold: their squares and the
    result make them anew. Vectors come from global memory where they are used."""
    program, run = program_of(name, "f16", COLS)
    check(program, run, name, 3, COLS)
    text = str(run.module)
    assert len(re.findall(r"nvvm\.cp\.async\.shared\.global", text)) == 2
    assert text.count("nvvm.cp.async.wait.group") == passes
    assert loads(run, 3) >= 2 * passes


@pytest.mark.parametrize(("cols", "copies"), [(12296, 7), (COLS, 0)])
def test_vectors_that_all_rows_share_are_not_kept(cols, copies):
    """Both passes read scales from near caches: in shared memory they would take the room of other
    programs' rows. Rows that registers hold are there, with the scales."""
    p = Program("scaled_softmax")
    i, j = p.axis("i", None), p.axis("j", cols)
    x = p.input("x", i, j, dtype="f16")[i, j] * p.input("scale", j, dtype="f16")[j]
    w = exp(x - max(x, j))
    p.output(w / sum(w, j), i, j, dtype="f16")
    base = next(RaisedProgram(p.to_mlir(), "x").lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    run = Simulated(base.module, target="sm_90a")
    random = np.random.default_rng(0)
    given = [random.standard_normal(n).astype(np.float16) for n in ((2, cols), cols)]
    wanted = p.reference(*(a.astype(float) for a in given))
    assert np.linalg.norm(run(*given) - wanted) <= 2e-3 * np.linalg.norm(wanted)
    assert len(re.findall(r"nvvm\.cp\.async\.shared\.global", str(run.module))) == copies


def test_rows_of_f32():
    program, run = program_of("softmax", "f32", 2060)
    check(program, run, "softmax", 2, 2060, np.float32)
    assert "cp.async" in str(run.module)


@pytest.mark.parametrize("cols", [12296, pytest.param(16384, marks=pytest.mark.nightly)])
def test_rows_whose_length_a_call_knows(cols):
    program, run = program_of("softmax", "f16", 0, "most:16384")
    check(program, run, "softmax", 2, cols)
    assert len(re.findall(r"nvvm\.cp\.async\.shared\.global", str(run.module))) == 8


@pytest.mark.parametrize(
    ("knob", "cols", "copies"),
    [("most:8192", 7000, 0), ("most:12288", 9000, 12), ("most:3072;few:1", 2200, 0)],
)
def test_rows_that_are_read_once(knob, cols, copies):
    """Of over 8192 elements kept by few warps, so that many are under way; others, and few rows,
    are in registers."""
    program, run = program_of("logsumexp", "f16", 0, knob)
    x = np.random.default_rng(0).standard_normal((3, cols)).astype(np.float16)
    wanted = program.reference(x.astype(float))
    assert np.linalg.norm(run(x) - wanted) <= 2e-3 * np.linalg.norm(wanted)
    assert len(re.findall(r"nvvm\.cp\.async\.shared\.global", str(run.module))) == copies


def test_large_rows_that_are_read_once_are_kept_where_they_are_many():
    raised, _ = RaisedProgram(ops.logsumexp(dtype="f16").to_mlir(), "x").of_chunks()
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    (rule,) = (case.condition for case in base.cases if case.knob == "most:32768")
    for shape, kept in (
        ((1057, 32768), True), ((1056, 32768), False), ((5000, 20480), False),
        ((5000, 32776), False),
    ):  # fmt: skip
        assert bool(evaluate(rule, [shape], [], MULTIPROCESSORS)) == kept


def test_few_rows_have_more_warps():
    """Each waits for its own: their sums are joined sooner than a warp sums up more."""
    program, run = program_of("rms_norm", "f16", 0, "most:768;few:1")
    check(program, run, "rms_norm", 5, 704)
    assert run.plan.launches[0].grid == (["dim", 0, 0],)
    assert "warps = 2" in run.assigned and "scf.for " not in run.assigned
    raised, _ = RaisedProgram(ops.rms_norm(dtype="f16").to_mlir(), "x").of_chunks()
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    found = str(Variants(raised, base, "sm_90a")["most:768"].module)
    assert "warps = 1 " in found or "warps = 1}" in found or "warps = 1," in found
    rule = next(case.condition for case in base.cases if case.knob == "most:768;few:1")
    shapes = ((2112, 704), True), ((2113, 704), False), ((100, 512), False), ((100, 776), False)
    for shape, few in shapes:
        assert bool(evaluate(rule, [shape, shape[1:]], [], MULTIPROCESSORS)) == few


def test_rows_whose_length_a_call_knows_are_brought_ahead(monkeypatch):
    asked = []
    monkeypatch.setattr(simt.Memory, "bring", lambda _, *part: asked.append(part))
    program, run = program_of("rms_norm", "f16", 0, "most:768", ahead=2)
    check(program, run, "rms_norm", 5, 712)
    first = min(asked)[0]
    assert sorted(asked) == [(first + row * 1424, 1424) for row in range(3)]  # not of the last two


def test_scales_are_asked_for_before_a_row_is_reduced():
    """The first of two sums waits for them, too, or an assembler would move their loads behind it;
    an only sum does not wait for a few. Rows of a warp share them. Differences from the mean are
    summed up once, squared."""
    for name, few, loads, sums, waits in (
        ("layer_norm", "", 8, 4, True), ("rms_norm", "", 6, 2, True),
        ("rms_norm", ";few:1", 4, 1, False),
    ):  # fmt: skip
        program, run = program_of(name, "f16", 0, f"most:512{few}")
        check(program, run, name, 5, 488)
        text = str(run.module)
        assert text.count("nvvm.shfl.sync") == 5 * sums
        assert text[: text.index("nvvm.shfl.sync")].count("ld.global.v4") == loads
        assert bool(re.search(r"gpu\.block_id +z", text)) == waits


@pytest.mark.parametrize(
    ("name", "dtype", "cols"),
    [("softmax", "f16", 2313), ("logsumexp", "f16", COLS), ("logsumexp", "f16", 3084)],
)
def test_others_are_not_kept(name, dtype, cols):
    """Rows that are moved one by one, or of which a warp has all."""
    assert "cp.async" not in str(program_of(name, dtype, cols)[1].module)


@pytest.mark.parametrize(
    ("chip", "functions", "warps"),
    [
        ("sm_90a", True, {24: 8, 40: 8, 64: 16, 80: 16, 112: 16, 113: 16, 224: 16, 225: 0}),
        ("sm_90a", False, {24: 8, 32: 16, 40: 16, 64: 32, 112: 32, 113: 0}),
        ("sm_80", False, {24: 16, 40: 32, 64: 32, 96: 0}),
    ],
)
def test_programs_have_the_warps_that_a_multiprocessor_has_threads_for(chip, functions, warps):
    """By KiB of a row. Of longer rows a multiprocessor has not two, or with functions not one."""
    found = {size: kept_row_warps(nvidia(chip), size << 10, functions) for size in warps}
    assert found == warps


@pytest.mark.parametrize(
    ("name", "cols", "kept"),
    [
        ("softmax", 8192, True), ("softmax", 8184, False), ("layer_norm", 16384, True),
        ("rms_norm", 4096, False), ("rms_norm", 32768, True), ("rms_norm", 65536, False),
    ],
)  # fmt: skip
def test_which_rows_are_kept(monkeypatch, name, cols, kept):
    """Softmax waits least; of RMS norm, with one sum, registers hold most."""
    monkeypatch.undo()
    raised = RaisedProgram(getattr(ops, name)(dtype="f16", cols=cols).to_mlir(), name)
    lowered = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    assert ("stash = 1" in str(lowered.module)) == kept


@pytest.mark.parametrize(
    ("name", "most", "longest", "read_once"),
    [("softmax", 12288, 110592, {"most:8192"}), ("layer_norm", 20480, 57344, set())],
)
def test_which_rows_are_kept_whose_length_a_call_knows(
    monkeypatch, name, most, longest, read_once
):
    """Those without functions that registers could hold are padded for more than they gain, but
    the longest. (Softmax of 6145 to 8192 elements is kept as rows are that are read once.)"""
    monkeypatch.undo()
    raised, _ = RaisedProgram(getattr(ops, name)(dtype="f16").to_mlir(), name).of_chunks()
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    variants = raised.variants(base, str(base.module), "sm_90a")
    kept = {case.knob for case, low in variants if "stash = 1" in str(low.module)}
    lengths = (n for n, more in row_tiles.KEPT_ROWS.items() if more >= most and n <= longest)
    assert kept == {f"most:{n}" for n in lengths} | read_once
