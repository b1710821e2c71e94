# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images that are made when a call takes them are those of the whole bundle."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re

import pytest

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import nvptx, ptxas
from neptune_mlir.codegen.nvidia.ptxas import Cubin, Figures
from neptune_mlir.driver import compiler
from neptune_mlir.driver.family import Family
from neptune_mlir.driver.kernel import Source
from neptune_mlir.driver.on_demand import LATER, Asked, Coming, OnDemand
from neptune_mlir.driver.recipe import Recipe
from neptune_mlir.frontend.notation import Program, sum
from neptune_mlir.pipelines import gpu, nvvm
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets import tuned
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from support import kept_code

KERNEL = re.compile(r"define ptx_kernel void @(\w+)")
ROWS = [[(100, n)] for n in (100, 300, 301, 700, 2000, 4097, 1 << 18)] + [[(1, 1 << 18)]]
HEADS = [
    [(1, 32, n, 128), (1, 32, m, 128), (1, 32, m, 128)]
    for n, m in ((4096, 4096), (1, 8192), (16, 16), (512, 512), (100, 8000))
]
PROGRAMS = {
    "softmax": (ops.softmax, ROWS),
    "prefill_causal": (lambda: ops.operator("prefill_causal"), HEADS),
}


@pytest.fixture(autouse=True)
def assembled(monkeypatch, tmp_path):
    """Nothing is assembled: machine code is the hash of what it would be made from."""

    def assemble(code, _):
        figures = {n: Figures(64, 0, 0, 0) for n in KERNEL.findall(code)}
        return Cubin(hashlib.sha256(code.encode()).digest(), figures, (), "")

    monkeypatch.delenv(kept_code.ENVIRONMENT, raising=False)
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvptx, "ptx", lambda code, _: code)
    monkeypatch.setattr(ptxas, "assemble_without_spills", assemble)


def text_of(name):
    return Source.of(PROGRAMS[name][0]()).text


def asked(text, name):
    return Asked(text, name, "sm_90a", None, "", None, tuned.current(), 3)


def begin(name, coming=None):
    return OnDemand.begin(name, lambda: Recipe(asked(text_of(name), "<program>")), coming)[0]


@functools.cache
def whole_bundle(name):
    return compiler.compile_text(text_of(name), "<program>", "sm_90a", None, None)


def taken(bundle, shapes):
    """What a call takes: code, plan, alignment; None, where there is nothing for it yet."""
    serve = [
        i for i in bundle.facts["images"]
        if evaluate(i.get("when", 1), shapes, [], MULTIPROCESSORS)
    ]  # fmt: skip
    if not serve:
        return None
    image = serve[-1]
    code = bundle.code[image["offset"] :][: image["size"]]
    return code, bundle.plan_of(image), image.get("alignment", bundle.facts["alignment"])


def call(images, shapes):
    """The image for a call, as the runtime asks for it."""
    before = None
    while images.bundle is not before:
        before = images.bundle
        code, *_ = taken(before, shapes) or [None]
        place = next(
            (i["offset"] for i in before.facts["images"]
             if before.code[i["offset"] :][:32] == code), None
        )  # fmt: skip
        images.grow(place, shapes, [], MULTIPROCESSORS)
    return taken(images.bundle, shapes)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_take_the_images_of_the_whole_bundle(name):
    whole = whole_bundle(name)
    _, calls = PROGRAMS[name]
    for order in (calls, calls[::-1]):
        images = begin(name)
        assert len(images.bundle.facts["images"]) < 3
        for shapes in order:
            assert call(images, shapes) == taken(whole, shapes)
        assert len(images.bundle.facts["images"]) < len(whole.facts["images"])


@pytest.mark.parametrize("first", HEADS[:2])
def test_calls_take_them_whichever_was_told_to_come(first):
    """Its image is made alone, unless it is that for any call, which comes when a call takes it."""
    name = "prefill_causal"
    whole = whole_bundle(name)
    images = begin(name, Coming(first, [], MULTIPROCESSORS))
    assert len(images.bundle.facts["images"]) == 1
    assert taken(images.bundle, first) == taken(whole, first)
    again = begin(name, Coming(first, [], MULTIPROCESSORS))  # another process
    for shapes in (first, *HEADS):
        assert call(images, shapes) == call(again, shapes) == taken(whole, shapes)
    assert "when" not in images.bundle.facts["images"][0], "that for any call is the first"


@pytest.fixture
def said(monkeypatch):
    """The tile programs whose images are begun, and when one is waited for."""
    found, begin_tiles, finish = [], nvvm.begin_tiles, gpu.Begun.finish
    monkeypatch.setattr(
        nvvm, "begin_tiles", lambda m, **given: found.append(str(m)) or begin_tiles(m, **given)
    )
    monkeypatch.setattr(gpu.Begun, "finish", lambda b: found.append("wait") or finish(b))
    return found


def test_both_images_for_any_call_are_begun_before_one_is_waited_for(said):
    """That for rows of whole chunks and the other: it is text while the first one is assembled."""
    begin("softmax")
    chunked, other, wait, *_ = said
    assert chunked != other and wait == "wait" and "wait" not in (chunked, other)


@pytest.mark.parametrize(
    ("name", "shapes", "begun"),
    [
        ("softmax", [(100, 100)], 3),  # the last of several that serve it
        ("prefill_causal", HEADS[1], 1),  # one query: the one in chunks, alone
        ("prefill_causal", HEADS[0], 1),
    ],
)
def test_the_image_of_a_call_that_comes_is_begun_before_one_is_waited_for(
    name, shapes, begun, said
):
    coming = Coming(shapes, [], MULTIPROCESSORS)
    recipe = Recipe(asked(text_of(name), "<program>"))
    images = OnDemand.begin(name, lambda: recipe, coming)[0]
    assert len({*said[: said.index("wait")]}) == begun
    call(images, shapes)
    assert len({*said} - {"wait"}) == begun  # it needs nothing else


def test_what_was_made_is_kept(monkeypatch):
    name, shapes = "softmax", ROWS[0]
    first = begin(name)
    wanted = call(first, shapes)
    monkeypatch.setattr(Recipe, "begun", None)
    monkeypatch.setattr(Recipe, "made", None)
    again = begin(name)
    assert call(again, shapes) == wanted
    assert again.bundle.to_bytes() == first.bundle.to_bytes()


def test_kept_without_the_rest():
    """Another process makes an image that the one before did not: by the same text and ways."""
    name = "softmax"
    begin(name)
    assert call(begin(name), ROWS[1]) == taken(whole_bundle(name), ROWS[1])


def test_the_bundle_has_all():
    kernel = neptune_mlir.compile(text_of("softmax"), "sm_90a")
    assert not kernel.cached
    bundle = kernel.bundle.to_bytes()
    assert bundle == whole_bundle("softmax").to_bytes()
    kernel = neptune_mlir.compile(text_of("softmax"), "sm_90a")
    assert kernel.cached and kernel.bundle.to_bytes() == bundle


def test_the_tuning_table_stays(monkeypatch):
    """An image that is made after `tuned.using` is by that table."""
    table = tuned.Table(())
    with tuned.using(table):
        images = begin("softmax")
    seen = []
    whole = Family.finished
    monkeypatch.setattr(
        Family, "finished", lambda *given: seen.append(tuned.current()) or whole(*given)
    )
    call(images, ROWS[0])
    assert seen and all(found is table for found in seen)


def test_products_by_the_copy_engine():
    """Where it moves rows of whole chunks, other rows have kernels for any call alone."""
    text = Source.of(ops.rms_norm_matmul(dtype="bf16")).text
    begun = Recipe(asked(text, "x")).begun()
    assert len(begun.facts["images"]) == 2
    plain, chunked, *later = begun.facts[LATER]["order"]
    assert plain < chunked and later and all(x["chunks"] for x in later)
    # a call that comes with such rows waits for no other image, and other rows get theirs
    shapes, odd = ([(512, n), (n,), (n, m)] for n, m in ((256, 256), (257, 129)))
    recipe = Recipe(asked(text, "x"))
    images = OnDemand.begin("chunks", lambda: recipe, Coming(shapes, [], MULTIPROCESSORS))[0]
    assert "when" in images.bundle.facts["images"][0]
    wanted = taken(begun, shapes)
    assert taken(images.bundle, shapes) == wanted
    images.grow(None, odd, [], MULTIPROCESSORS)
    assert taken(images.bundle, odd) == taken(begun, odd)
    assert taken(images.bundle, shapes) == wanted
    assert "when" not in images.bundle.facts["images"][0]


def test_tiles_of_a_product_say_their_calls_before_they_are_made(monkeypatch):
    """By what they take, so a first call waits for none of them. Those that were looked at are tile
    programs of their own, and the calls are those that the whole bundle asks for."""
    text = Source.of(ops.layer_norm_matmul(dtype="bf16")).text
    variant, lowered = RaisedProgram.variant, []

    def noted(program, base, target, case, knob=""):
        lowered.append(case)
        return variant(program, base, target, case, knob)

    monkeypatch.setattr(RaisedProgram, "variant", noted)
    recipe = Recipe(asked(text, "x"))
    *_, later = (x for x in recipe.begun().facts[LATER]["order"] if isinstance(x, dict))
    assert lowered and not any(case.is_by_time for case in lowered)
    program, calls = RaisedProgram(text, "x", target="sm_90a").of_chunks()
    base = next(program.lowerings("sm_90a", nvvm.ways("sm_90a")))
    cases = program.cases(base)
    known = Conditions(gpu.sketch(base.module, "sm_90a", None)).known(cases)
    assert [case for n, case in enumerate(cases) if n in known] == [
        case for case in cases if case.is_by_time
    ]
    assert later["when"][:2] == ["and", calls] and len(known) > 9
    made = itertools.islice(program.variants(base, str(base.module), "sm_90a"), 4)
    conditions = Conditions(gpu.sketch(base.module, "sm_90a", None))
    found = [conditions.of(case, base) for case, _ in made]
    assert found == [*known.values()][:4]


def test_programs_that_have_no_such_images():
    """Products in f32 whose rows may have whole chunks: what other rows get depends on these."""
    assert Recipe(asked(Source.of(ops.rms_norm_matmul()).text, "x")).begun() is None


def test_products_of_rows_along_two_axes():
    """A product that sums few elements streams nothing, whose chunks a schedule could cut."""
    p = Program("rows")
    b, i, j, k = p.axis("b", 4), p.axis("i", 16), p.axis("j", 12), p.axis("k", 16)
    x, y = p.input("x", b, i, k), p.input("y", k, j)
    p.output(sum(x[b, i, k] * y[k, j], k), b, i, j)
    text = Source.of(p).text
    found = OnDemand.begin("rows", lambda: Recipe(asked(text, "rows")))[0]
    whole = compiler.compile_text(text, "rows", "sm_90a", None, None)
    assert len(found.facts["images"]) == len(whole.facts["images"]) == 1


@pytest.mark.nightly
def test_a_sketch_has_the_grids_of_the_plan():
    name = "prefill_windowed"
    program = compiler.RaisedProgram(Source.of(ops.operator(name)).text, name)
    base = next(program.lowerings("sm_90a", nvvm.ways("sm_90a")))
    made = [low for _, low in program.variants(base, str(base.module), "sm_90a")]
    for lowering in (base, *made):
        sketch = gpu.sketch(lowering.module, "sm_90a", None)
        nvvm.emit_tiles(lowering.module, "target", None, "sm_90a")
        plan = gpu.plan_of(lowering.module)
        found, wanted = ([(x.kernel, x.grid) for x in p.launches] for p in (sketch, plan))
        assert found == wanted
