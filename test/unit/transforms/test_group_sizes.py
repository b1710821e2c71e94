# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile sizes for warp groups: the table, the rule, and kernels for long streams in a bundle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neptune_mlir import ops, vjp
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import ToolError
from neptune_mlir.pipelines import lowering
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets import group_tiles, tuned
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.tuned import Choice, Entry, Shape, Table
from neptune_mlir.transforms.schedule import group_sizes
from neptune_mlir.tune.candidates import unfit
from support.machine_code import check_operator

TRIANGLE = Shape(64, 64, True, True)
LONG = Table((Entry("sm_90a", TRIANGLE, 8192, Choice(192, 64)),))  # far from spilling


@pytest.fixture(autouse=True)
def table():
    with tuned.using(LONG):
        yield


@pytest.mark.parametrize("entry", tuned.shipped().entries, ids=str)
def test_the_shipped_table_fits_the_chips(entry):
    rule = group_sizes.rule(entry.shape)
    assert entry.choice == rule or not unfit(gpu_target(entry.chip), entry.shape, entry.choice)


@pytest.mark.parametrize(
    ("shape", "length", "sizes"),
    [
        (Shape(64, 64, False, True), 0, (192, 128)),
        (TRIANGLE, 0, (128, 128)),
        (TRIANGLE, 8191, (128, 128)),
        (TRIANGLE, 8192, (192, 64)),
        (Shape(64, 64, True, False), 8192, (128, 128)),  # not in the table: the rule
        (Shape(128, 128, True, True), 1 << 20, (128, 128)),
        (Shape(256, 256, False, True), 1 << 20, (128, 64)),
        (Shape(80, 80, False, True), 2047, (128, 128)),
        (Shape(80, 80, False, True), 2048, (192, 112)),  # long: a group more
        (Shape(96, 96, True, True), 8191, (128, 128)),
        (Shape(96, 96, True, True), 8192, (192, 96)),
        (Shape(96, 96, True, True, True), 8192, (128, 128)),  # a band is as long as it is wide
        (Shape(72, 72, True, True), 2048, (192, 112)),  # rows that are not aligned
        (Shape(160, 160, False, True), 0, (128, 128)),  # panels of 32 columns are filled
        (Shape(152, 152, False, True), 0, (128, 96)),  # ... if those of the tensor do, too
        (Shape(1, 0, False, True), 4096, (128, 64)),  # a plain product
        (Shape(4096, 0, False, False), 32000, (128, 256)),  # deep products
    ],
)
def test_sizes(shape, length, sizes):
    choice = group_sizes.choose("sm_90a", shape, length)
    assert (choice.rows, choice.stream) == sizes


@pytest.mark.parametrize(("width", "apart"), [(64, False), (128, False), (160, False),
                                              (192, True), (224, True)])  # fmt: skip
def test_wide_results_are_faster_apart(width, apart):
    """As measured on an H200 (gradients of attention; 256 does not fit side by side at all)."""
    def cycles(scores, results):
        shape = Shape(width, width, False, True, False, scores, results)
        return group_tiles.cycles(shape, group_sizes.rule(shape))

    assert (cycles(1, 1) + cycles(2, 1) < cycles(2, 2)) == apart


def test_loads_beside_products_take_registers():
    plain, biased = (Shape(64, 64, False, True, loads=n) for n in (0, 1))
    assert group_sizes.rule(biased).stream < group_sizes.rule(plain).stream
    assert Entry.from_json(Entry("sm_90a", biased, 0, Choice(128, 64)).as_json()).shape == biased


@pytest.mark.parametrize(("settings", "marks"), [({"documents": True}, 1), ({"causal": True}, 0)])
def test_numbers_that_masks_compare_take_registers_of_three_groups(settings, marks):
    text = Source.of(ops.attention(head_dim=64, dtype="f16", **settings)).text
    with tuned.questions() as asked:
        compiler.lower_text(text, "attention", "sm_90a", None, "fused")
    assert {q.shape.marks for q in asked} == {marks}


def test_documents_have_two_groups_or_narrower_tiles():
    marked = Shape(64, 64, False, True, marks=1)  # 192x128 spilled 1204 bytes a thread
    sizes = [group_sizes.choose("sm_90a", marked, n) for n in (0, 2048)]
    assert [(c.rows, c.stream) for c in sizes] == [(128, 128), (192, 96)]
    measured = Entry("sm_90a", TRIANGLE, 8192, Choice(192, 112))  # without documents
    with tuned.using(Table((measured,))):
        marked = Shape(64, 64, True, True, marks=1)
        assert group_sizes.choose("sm_90a", marked, 8192).stream < 112
    assert Entry.from_json(Entry("sm_90a", marked, 0, Choice(128, 64)).as_json()).shape == marked


def test_another_chip_has_other_entries():
    assert group_sizes.choose("sm_100a", TRIANGLE, 8192) == group_sizes.rule(TRIANGLE, 0, 8192)
    assert group_sizes.lengths("sm_90a", TRIANGLE) == [8192]
    assert group_sizes.lengths("", Shape(128, 128, True, True)) == []


@pytest.mark.parametrize(("head", "start"), [(32, 2048), (48, 8192), (56, 2048), (128, 0)])
def test_from_which_length_on_triangles_have_three_groups(head, start):
    """Registers hold a mask beside the widest tile (32), or rows are no whole sectors (56)."""
    assert group_sizes.lengths("sm_90a", Shape(head, head, True, True)) == [start] * bool(start)


@pytest.mark.parametrize(
    ("settings", "light"), [({"return_lse": True}, True), ({"softcap": 9.0}, False)]
)
def test_functions_of_points_of_the_stream(settings, light):
    """The logarithm of a sum is none."""
    text = Source.of(ops.attention(head_dim=64, dtype="f16", **settings)).text
    with tuned.questions() as asked:
        compiler.lower_text(text, "attention", "sm_90a", None, "fused")
    assert {q.shape.light for q in asked} == {light}


def module_of(level="fused", **settings):
    text = Source.of(ops.attention(causal=True, dtype="f16", **settings)).text
    module, _ = compiler.lower_text(text, "attention", "sm_90a", None, level)
    return str(module)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, (False, False)),
        ({"causal": True, "alibi": True}, (True, False)),
        ({"causal": True, "window": 512}, (True, True)),
        ({"window": 512}, (True, False)),
    ],
)
def test_masks(settings, wanted):
    text = Source.of(ops.attention(head_dim=64, dtype="f16", **settings)).text
    with tuned.questions() as asked:
        compiler.lower_text(text, "attention", "sm_90a", None, "fused")
    assert {(q.shape.triangle, q.shape.band) for q in asked} == {wanted}


def test_an_impossible_entry_is_not_taken():
    with tuned.using(Table((Entry("sm_90a", TRIANGLE, 0, Choice(192, 256)),))):
        text = Source.of(ops.attention(head_dim=64, causal=True, dtype="f16")).text
        module, facts = compiler.lower_text(text, "attention", "sm_90a", None, "fused")
    assert "neptune.tile = array<i64: 1, 1, 128, 128, 0, 0>" in str(module)
    assert any("192x256 for 64x64 triangle light, which registers" in r for r in facts["remarks"])


def test_the_lengths_are_noted():
    text = module_of(head_dim=64)
    assert "neptune.tile = array<i64: 1, 1, 128, 128, 0, 0>" in text
    assert "neptune.longer = array<i64: 8192>" in text


def test_what_goes_beyond_sizes_reaches_the_kernel():
    choice = Choice(128, 96, slots=3, turns=True, skew=False, resident=False)
    with tuned.using(Table((Entry("sm_90a", TRIANGLE, 0, choice),))):
        text = module_of("tile", head_dim=64)
    line = next(x for x in text.splitlines() if "neptune.tuned" in x)
    assert "neptune.turns" in line and "neptune.resident" not in line
    assert "slots = 3 : i64" in line and "skew = 0 : i64" in line


@pytest.mark.parametrize("in_two", [{}, {"k": 2, "v": 2}])
def test_rounds_of_a_device_s_rows_are_not_known(in_two, monkeypatch):
    """Rows that end a triangle are all long, so fewer of them in a tile are no gain."""
    asked = []
    monkeypatch.setattr(lowering, "tiles_of", lambda stream, **k: asked.append(k) or ())
    program = ops.attention(head_dim=64, causal=True, dtype="f16")
    program.in_two = in_two
    compiler.lower_text(Source.of(program).text, "attention", "sm_90a", None, "fused")
    assert ({"few": 1} in asked) == (not in_two)


@pytest.fixture(scope="module")
def assembler():
    try:
        ptxas.find_ptxas()
    except ToolError:
        pytest.skip("no ptxas here")


@pytest.fixture(scope="module")
def causal(assembler):
    text = Source.of(ops.attention(head_dim=64, causal=True, dtype="f16")).text
    with tuned.using(LONG):
        return compiler.compile_text(text, "attention", "sm_80,sm_90a", None, None)


def test_machine_code_of_an_operator(causal, tmp_path):
    check_operator(causal, tmp_path)


def test_a_bundle_has_kernels_for_long_streams_and_few_programs(causal):
    bundle = causal
    images = bundle.facts["images"]
    assert [i["target"] for i in images] == [*["sm_80"] * 4, *["sm_90a"] * 9]
    cut = [i for i in images if "when" in i and len(i["kernels"]) > 1]  # streams in chunks
    assert len(cut) == 5
    behind = [i for k, i in enumerate(images[1:]) if images[k] in cut]
    whole = [i for i in behind if i not in cut and "when" in i]
    assert len(whole) == 2  # the smallest tiles, where there would be one chunk
    for image in whole:
        before = images[images.index(image) - 1]
        assert image["when"][1] == before["when"] and image["when"][2][::2] == ["le", 1]
        parts, own = (bundle.plan_of(i).launches[0].grid for i in (before, image))
        assert (own, image["when"][2][1]) == (parts[1:], parts[0])
    images = [i for i in images if i not in cut and i not in whole]
    long = images[2]["when"]  # and many: else the rounds of fewer rows are over sooner
    assert "when" not in images[1] and long[:2] == ["and", ["le", 8192, ["dim", 1, 2]]]
    for n, wanted in ((8191, False), (8192, True)):
        assert bool(evaluate(long, [(4, 8, n, 64)] * 2, [], 132)) == wanted
    part = images[3]["when"]  # of 64 keys, where the last one of 128 would be half empty
    for n, wanted in ((64, True), (128, False), (180, True), (2000, False)):
        assert bool(evaluate(part, [(4, 8, n, 64)] * 2, [], 132)) == wanted, n
    assert "plan" in images[2] and "plan" in images[4]  # of another grid
    rows = [bundle.plan_of(i).launches[0].grid[-1] for i in images[1:]]
    assert rows == [["ceildiv", ["dim", 0, 2], size] for size in (128, 192, 128, 64, 64)]
    few, short = images[4]["when"], images[5]["when"]
    # whose longest programs, of half the rows, are not followed by many
    for chip, b, n, wanted in (  # the device says how many
        (132, 1, 1728, True), (132, 1, 1729, False), (132, 2, 512, True),
        (114, 1, 1536, False), (114, 1, 1472, True),
    ):  # fmt: skip
        assert bool(evaluate(few, [(b, 8, n, 64)] * 2, [], chip)) == wanted, (chip, b, n)
    for b, n, keys, wanted in (  # 64 rows are all: many programs, too
        (90, 64, 1024, True), (90, 65, 1024, False), (90, 64, 1025, True)
    ):  # fmt: skip
        shapes = [(b, 8, n, 64), (b, 8, keys, 64)]
        assert bool(evaluate(few, shapes, [], 132)) == wanted, (b, n, keys)
    for b, n, keys, wanted in (  # short streams, and all programs run at once
        (1, 1025, 1024, True), (2, 1024, 1024, True), (3, 1024, 1024, False), (2, 1024, 1025, False)
    ):  # fmt: skip
        shapes = [(b, 8, n, 64), (b, 8, keys, 64)]
        assert bool(evaluate(short, shapes, [], 132)) == wanted, (b, n, keys)
    (kernel,) = images[5]["kernels"].values()
    assert kernel["blocks_per_sm"] == 2 and not kernel["resident"]
    assert all(k["spills"] == 0 for i in images for k in i["kernels"].values())
    images = bundle.facts["images"]
    ends = [i["offset"] + i["size"] for i in images]
    assert [i["offset"] for i in images] == [0, *ends[:-1]] and ends[-1] == len(bundle.code)
    assert bundle.facts["provenance"]["tuned"] == [LONG.entries[0].as_json()]


def test_fewer_slots_take_less_memory(assembler):
    text = Source.of(ops.attention(head_dim=64, q_len=4096, kv_len=4096, dtype="f16")).text
    shape, shared = Shape(64, 64, False, True), {}
    for slots in (2, 3):
        choice = Choice(128, 64, slots=slots)
        with tuned.using(Table((Entry("sm_90a", shape, 0, choice),))):
            bundle = compiler.compile_text(text, "attention", "sm_90a", None, None)
        image = bundle.facts["images"][0]
        (kernel,) = image["kernels"].values()
        shared[slots] = kernel["shared"]
    assert shared[3] - shared[2] == 64 * 2 * 64 * 2  # a tile of each of two rings


def test_streams_whose_programs_add_take_wide_tiles_where_few_are_masked():
    """Two slots a ring, for all tiles of an iteration are read in it; with a window or documents
    masked loops run often, and wide tiles would spill in them."""
    plain = Shape(64, 64, True, True, scores=2, results=2, shared=1)
    choice = group_sizes.rule(plain)
    assert (choice.stream, choice.slots, choice.late) == (128, 2, 0)
    assert choice.beside == group_sizes.HALF  # with all ahead masked loops spill
    for masked in (replace(plain, band=True), replace(plain, marks=1)):
        assert group_sizes.rule(masked).stream == 64


def test_streams_whose_points_have_vectors():
    """A log-sum-exp and a row sum for each streamed query take registers in the streams of dK and
    dV, so these have entries of their own; what has another number of them takes the nearest."""
    _, backward = vjp(ops.attention(head_dim=256, dtype="f16"))
    with tuned.questions() as asked, tuned.using(tuned.shipped()):
        compiler.lower_text(Source.of(backward).text, "backward", "sm_90a", None, "fused")
    found = {(q.shape.scores, q.shape.vectors): q.choice for q in asked}
    assert sorted(found) == [(1, 1), (2, 0), (2, 2)]  # dV, dQ, dK
    assert found[2, 0].stream > found[2, 2].stream
    shape = Shape(256, 256, False, True, scores=2, vectors=1)
    with tuned.using(tuned.shipped()):
        assert group_sizes.choose("sm_90a", shape, 4096) == found[2, 2]
    entry = Entry("sm_90a", shape, 0, Choice(128, 64))
    assert Entry.from_json(entry.as_json()) == entry
