# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over rows, on the simulator: reductions that are not fused share a kernel, rows that one
tile has all of are loaded once, and rows are asked for ahead."""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from neptune_mlir.pipelines import nvvm
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.transforms.schedule.row_tiles import SHORT_ROWS
from support.chips import simt
from support.chips.run_kernels import Simulated
from support.chips.scalar_ops import bf16_round
from support.variants import Variants

CUT = "columns:64"
LONG, MORE = "length:8192;few:1", "length:8192;few:2"


@cache
def lowered(name, cols=None, dtype="f32"):
    """The tile programs of an operator by knob."""
    size = {"classes" if name == "cross_entropy" else "cols": cols}
    program = getattr(ops, name)(dtype=dtype, **size)
    raised = RaisedProgram(program.to_mlir(), name)
    base = next(raised.lowerings("sm_90a", nvvm.ways("sm_90a")[-2:-1]))
    return program, Variants(raised, base, "sm_90a")


def close(name, knob, rows, cols, *, known=False, dtype="f32", **choices):
    """Check an operator's kernels for some calls; returns them."""
    program, found = lowered(name, cols if known else None, dtype)
    run = Simulated(found[knob].copy().module, target="sm_90a", **choices)
    random = np.random.default_rng(cols)
    vectors = {"layer_norm": 2, "rms_norm": 1}.get(name, 0)
    shapes = [(rows, cols), *[cols] * vectors]
    given = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    if dtype == "bf16":
        given = [bf16_round(x) for x in given]
    if name == "cross_entropy":
        given.append(random.integers(0, cols, rows))
    wanted = program.reference(*(g if g.dtype == np.int64 else g.astype(float) for g in given))
    found = run(*given)
    limit = 5e-3 if dtype == "bf16" else 1e-5
    assert np.linalg.norm(found - wanted) <= limit * np.linalg.norm(wanted)
    return run


def test_a_mean_and_what_is_normalised_by_it_are_one_kernel():
    run = close("layer_norm", "", 5, 264, dtype="bf16")
    assert len(run.plan.launches) == 1 and len(run.plan.buffers) == 1  # the result
    run = close("layer_norm", "", 3, 520, known=True, dtype="bf16")
    assert len(run.plan.launches) == 1
    loads = [line for line in run.assigned.splitlines() if "extract_slice %arg0" in line]
    assert len(loads) == 1  # each row stays in registers


def test_warps_meet_once_for_each_sum():
    """What warps leave for each other has bytes of its own where no code is run twice: nobody waits
    before these are written."""
    run = close("layer_norm", "", 3, 4096, known=True, dtype="bf16")
    code = str(run.module)
    assert len(re.findall(r"gpu\.barrier|nvvm\.barrier", code)) == 2


@pytest.mark.first_of_each("name")
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "cross_entropy"])
@pytest.mark.parametrize(("knob", "cols"), [("most:512", 311), ("most:256", 7), ("most:256", 256)])
def test_rows_that_one_tile_has_all_of(name, knob, cols):
    run = close(name, knob, 5, cols)
    assert "scf.for " not in run.assigned
    loads = [line for line in run.assigned.splitlines() if "extract_slice %arg0" in line]
    assert len(loads) == 1


def test_lanes_have_two_rows_that_are_read_once():
    """Rows a little longer than short ones, of whole chunks: all of each at once."""
    run = close("cross_entropy", "", 20, 320, known=True, dtype="bf16")
    (launch,) = run.plan.launches
    assert simulated_programs(run, launch, 20, 320) == 2 and "scf.for " not in run.assigned
    loads = [line for line in run.assigned.splitlines() if "extract_slice %arg0" in line]
    assert len(loads) == 1


def test_more_warps_share_no_longer_row():
    """Of a row of more elements than 16 warps have 1024 each, a warp has more."""
    _, found = lowered("layer_norm", 21440, "bf16")
    assert "warps = 16" in str(found[""].module)


@pytest.mark.parametrize(("rows", "cols", "each"), [(9, 600, 4), (9, 1000, 2)])
def test_a_warp_has_a_row_that_is_read_once(rows, cols, each):
    """Nothing is joined between warps, and what is one number a row is asked for with the row."""
    run = close("cross_entropy", "", rows, cols, known=True, dtype="bf16")
    (launch,) = run.plan.launches
    assert simulated_programs(run, launch, rows, cols) == -(-rows // each)
    assert "scf.for " not in run.assigned
    code = str(run.module)
    assert "barrier" not in code
    target = re.search(r"vector<2xi32> to i64|!llvm.ptr<1> -> i64", code)
    assert target is not None
    assert target.start() < code.index("nvvm.shfl")


@pytest.mark.parametrize(
    ("name", "cols", "rows", "exchanges"),
    [
        ("softmax", 72, 32, 2 * 2),  # of 4 lanes, each with 3 chunks
        ("cross_entropy", 256, 16, 3 * 3),
        ("rms_norm", 136, 8, 4),  # of 16 lanes, one with two chunks
        ("softmax", 89, 16, 2 * 2 * 4),  # of 16 lanes with two rows, moved element by element
    ],
)
def test_lanes_have_short_rows_of_their_own(name, cols, rows, exchanges):
    """A tile has as many rows as four warps have at once, and little passes between lanes."""
    run = close(name, "", 2 * rows + 3, cols, known=True, dtype="bf16")
    (launch,) = run.plan.launches
    assert simulated_programs(run, launch, 2 * rows + 3, cols) == 3
    assert "neptune.warps = 4" in run.assigned
    assert str(run.module).count("nvvm.shfl") == exchanges


@pytest.mark.parametrize(
    ("name", "cols", "tile"),
    [
        ("rms_norm", 65536, 32768),
        ("layer_norm", 98304, 32768),
        ("rms_norm", 90112, 8192),
        ("softmax", 131072, 8192),
    ],
)
def test_long_rows_in_parts_of_many_warps(name, cols, tile):
    """Where a large tile divides a row, and no functions are held: so few programs run at once that
    near caches have the rows of all when these are read again."""
    program = getattr(ops, name)(dtype="bf16", cols=cols)
    module, _ = compiler.lower_text(program.to_mlir(), name, "sm_90a", None, "fused", "")
    assert f"neptune.tile = array<i64: 1, {tile}>" in str(module)
    assert ("warps = 16" in str(module)) == (tile == 32768)


def test_which_calls_take_them():
    _, found = lowered("softmax")
    assert {f"most:{n}" for n, short in SHORT_ROWS.items() if short.single} <= set(found)
    assert not any("most" in knob for knob in lowered("layer_norm", 520)[1])
    assert max(n for n in SHORT_ROWS if f"most:{n}" in lowered("cross_entropy")[1]) == 1024


@pytest.mark.first_of_each()
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "cross_entropy"])
def test_few_and_long_rows_are_cut(name):
    run = close(name, CUT, 2, 8500)
    chunks, *joins = run.plan.launches
    assert len(joins) >= 2  # for few chunks and for more; one of them has programs
    assert sum(simulated_programs(run, join, 2, 8500) > 0 for join in joins) == 1
    assert simulated_programs(run, chunks, 2, 8500) == 2 * 3  # tiles of 4096


def test_few_and_long_rows_of_a_norm_are_cut():
    run = close("layer_norm", CUT, 2, 4200, dtype="bf16")
    assert simulated_programs(run, run.plan.launches[0], 2, 4200) == 2 * 2


def simulated_programs(run, launch, rows, cols):
    shapes = [(rows, cols) if len(a.shape) == 2 else (cols,) for a in run.plan.arguments]
    return math.prod(evaluate(e, shapes, [], MULTIPROCESSORS) for e in launch.grid)


@pytest.mark.parametrize(("name", "most"), [("softmax", 3 * 132), ("logsumexp", 132)])
def test_which_calls_have_few_and_long_rows(name, most):
    """More of those that are read again."""
    program, found = lowered(name)
    raised = RaisedProgram(program.to_mlir(), name)
    cases = [case for case, _ in raised.variants(found[""], "", "sm_90a") if case.exact]
    assert [case.knob for case in cases] == [CUT]
    for shape, taken in (((1, 10**6), True), ((most, 1 << 15), True), ((most + 1, 1 << 15), False),
                         ((1, (1 << 15) - 1), False)):  # fmt: skip
        assert bool(evaluate(cases[0].condition, [shape], [], MULTIPROCESSORS)) == taken
    assert CUT in lowered("layer_norm", dtype="bf16")[1]


def test_rows_are_asked_for_ahead(monkeypatch):
    asked = []
    monkeypatch.setattr(simt.Memory, "bring", lambda _, *part: asked.append(part))
    close("rms_norm", "", 5, 1100, known=True, ahead=2)
    first = min(asked)[0]
    assert sorted(asked) == [(first + row * 4400, 4400) for row in range(3)]  # not of the last two


@pytest.mark.parametrize(
    ("name", "cols", "wanted"),
    [
        ("rms_norm", 100523, {LONG, CUT}),
        ("rms_norm", 32767, set()),
        ("rms_norm", 4096, set()),
        ("rms_norm", 4097, set()),
        ("logsumexp", 100523, {LONG, MORE, CUT}),  # read once: tiles are small for many rows
        ("logsumexp", 100528, {LONG, MORE, CUT}),  # of whole chunks
    ],
)
def test_long_rows_that_are_compiled_in_may_be_few(name, cols, wanted):
    """A call with fewer rows than multiprocessors has a program of many warps for each. (A row of
    4096 elements always has.) Of rows that are moved element by element, or
    read once, more than those are few."""
    _, found = lowered(name, cols, "f16")
    assert {LONG, MORE, CUT} & set(found) == wanted
    sizes = {knob: f"tensor<{n}xf16>" for knob, n in ((LONG, 16384), (MORE, 8192))}
    assert all(sizes[knob] in str(found[knob].module) for knob in wanted & set(sizes))
    assert found.get(CUT) is None or list(found).index(CUT) > list(found).index(LONG)


@pytest.mark.parametrize(
    ("name", "wanted"), [("layer_norm", {"": 16, LONG: 32}), ("rms_norm", {"": 32})]
)
def test_a_multiprocessor_with_one_long_row_has_all_warps_for_it(name, wanted):
    """Where registers hold it; more rows are read by half as many warps each, but for those with
    one sum and one vector of scales, which is asked for first where a thread has few elements."""
    _, found = lowered(name, 31424, "f16")
    warps = {knob: int(re.search(r"warps = (\d+)", str(found[knob].module))[1]) for knob in found}
    assert warps == wanted


@pytest.mark.parametrize(("name", "elements"), [("rms_norm", 8192), ("layer_norm", 4096)])
def test_tiles_of_rows_that_are_moved_element_by_element(name, elements):
    """Larger where these are read again, with few arrays beside them."""
    text = getattr(ops, name)(dtype="f16", cols=100523).to_mlir()
    module, _ = compiler.lower_text(text, name, "sm_90a", "streamed", "tile", nvvm.HELD)
    assert f"tensor<{elements}xf16>" in str(module)


@pytest.mark.parametrize(("cols", "most"), [(None, 2), (100528, 4)])
def test_calls_with_few_rows_that_are_read_once(cols, most):
    """Up to `most` rows a multiprocessor take tiles of 8192 elements (None: moved one by one)."""
    program, found = lowered("logsumexp", cols, "f16")
    raised = RaisedProgram(program.to_mlir(), "logsumexp")
    rules = {c.knob: c.condition for c, _ in raised.variants(found[""], "", "sm_90a")}
    for knob, rows in ((LONG, MULTIPROCESSORS), (MORE, most * MULTIPROCESSORS)):
        for n, taken in ((rows, True), (rows + 1, False)):
            assert bool(evaluate(rules[knob], [(n, 100528)], [], MULTIPROCESSORS)) == taken
    close("logsumexp", MORE, 2, 8200, dtype="bf16")


def test_a_long_row_that_is_compiled_in():
    close("softmax", LONG, 1, 16501, known=True)


@pytest.mark.parametrize(
    ("name", "knob", "cols"),
    [
        ("layer_norm", "most:3072", 2049),
        ("softmax", "most:2048", 1025),
        ("rms_norm", "most:768", 513),
        ("rms_norm", "most:4096", 3090),  # one sum, 8 warps
    ],
)
def test_rows_of_any_length_that_one_tile_has_all_of(name, knob, cols):
    close(name, knob, 3, cols, dtype="bf16")


@pytest.mark.parametrize(("cols", "rows"), [(1, 3), (645, 5), (1023, 2)])
def test_rows_that_end_in_a_tile_are_accessed_under_conditions(cols, rows):
    close("rms_norm", "most:1024", rows, cols, dtype="bf16")
    text = nvvm.emit_tiles(
        lowered("rms_norm", None, "bf16")[1]["most:1024"].copy().module, "ptx", target="sm_90a"
    )
    lines = text.splitlines()
    loads = [line for line in lines if "ld.global" in line]
    stores = [line for line in lines if "st.global" in line]
    assert all("@p ld.global.b16" in line for line in loads)
    assert (len(loads), len(stores)) == (64, 32)  # a row a warp, and the weights
    assert all("@p st.global.b16" in line for line in stores)


@pytest.mark.parametrize(("rows", "cols"), [(18, 320), (5, 704), (3, 2072)])
def test_a_class_is_picked_by_its_bits(rows, cols):
    """Not compared with each position of a row."""
    run = close("cross_entropy", "", rows, cols, known=True, dtype="bf16")
    assert 0 < len(re.findall("cmpi eq", str(run.module))) <= 16


@pytest.mark.parametrize("known", [True, False])
def test_a_class_that_no_position_has(known):
    _, found = lowered("cross_entropy", 320 if known else None, "bf16")
    run = Simulated(found["" if known else "most:384"].copy().module, target="sm_90a")
    x = bf16_round(np.random.default_rng(3).standard_normal((5, 320)).astype(np.float32))
    target = np.array([0, 319, 320, -1, -100])
    top = x.max(axis=1)
    sums = top + np.log(np.exp(x - top[:, None].astype(float)).sum(axis=1))
    wanted = sums - np.where((target >= 0) & (target < 320), x[range(5), target.clip(0, 319)], 0)
    assert np.allclose(run(x, target), wanted, rtol=1e-4)


def test_rows_that_may_not_exist_come_with_their_zeros():
    """A load under a condition for each chunk, not a choice for each element."""
    run = close("cross_entropy", "", 18, 320, known=True, dtype="bf16")
    assert not re.search("select.*: bf16", str(run.module))


@pytest.mark.parametrize(("cols", "tile"), [(6049, 0), (8193, 4096)])
def test_rows_that_are_moved_one_by_one_and_read_once(cols, tile):
    """All of a row (0) is asked for at once, where four warps have registers for it."""
    program = ops.logsumexp(dtype="bf16", cols=cols)
    module, _ = compiler.lower_text(program.to_mlir(), "logsumexp", "sm_90a", None, "fused", "")
    assert f"neptune.tile = array<i64: 1, {tile}>" in str(module)
