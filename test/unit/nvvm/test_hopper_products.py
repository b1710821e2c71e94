# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that are not attention on specialised warps, without a GPU."""

from __future__ import annotations

import re

import pytest
from test_hopper import disassembly

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation
from neptune_mlir.runtime.plan import evaluate

pytest.importorskip("test_hopper")  # skips without ptxas


def compiled(program):
    return compiler.compile_text(Source.of(program).text, "program", "sm_90a", None, None)


def test_a_norm_before_a_product(tmp_path):
    """The rows' squares are summed and their elements scaled beside the product before."""
    bundle = compiled(ops.rms_norm_matmul(rows=4096, cols=1024, out=1024, dtype="bf16"))
    assert not any("specialised" in r or "pipelined" in r for r in bundle.facts["remarks"])
    image = bundle.facts["images"][0]
    (figures,) = image["kernels"].values()
    assert figures["threads"] == 3 * 128 and figures["spills"] == 0 and image["notes"] == []
    (launch,) = bundle.plan.launches
    maps = [tuple(o[1:]) for o in launch.operands if o[0] == "map"]
    # rows of x, the scales as one row, rows of w
    assert maps == [
        ("argument", 0, 0, 128, 64), ("argument", 1, -1, 1, 64), ("argument", 2, 0, 64, 256)
    ]  # fmt: skip
    sass = disassembly(bundle, tmp_path)
    # in the loop: 64 elements of a row in 4 steps, the left factor in registers
    events = re.findall(r"HGMMA\.64x256x16\.F32\.BF16 R\d+, R\d+|DEPBAR|FFMA|HMUL2", sass)
    first = next(k for k, name in enumerate(events) if name.startswith("HGMMA"))
    wait = events.index("DEPBAR", first)
    assert sum(name.startswith("HGMMA") for name in events[first:wait]) == 4
    assert events[first:wait].count("FFMA") >= 16
    # scaled two at a time, behind the wait: the product before it still reads these registers
    assert events[wait:].count("HMUL2") >= 16
    assert "UTMALDG" in sass and not re.search(r"\b(LDL|STL)\b", sass)


@pytest.mark.nightly
def test_a_factor_computed_ahead():
    """A row at once, in registers; then a product of tiles that are both loaded."""
    bundle = compiled(ops.layer_norm_matmul(cols=4096, out=1024, dtype="f16"))
    assert not any("warps are not specialised" in r for r in bundle.facts["remarks"])
    image, *others = bundle.facts["images"]
    assert all(i["when"] for i in others)
    norm, product = (image["kernels"][launch.kernel] for launch in bundle.plan.launches)
    assert norm["spills"] == product["spills"] == 0 and image["notes"] == []
    assert product["threads"] == 3 * 128 and product["resident"]
    assert [launch.grid for launch in bundle.plan.launches] == [
        (["dim", 0, 0],), (["ceildiv", ["dim", 0, 0], 128], 4)
    ]  # fmt: skip


@pytest.mark.nightly
def test_a_loss_of_deep_products_of_any_shape():
    """Tiles of classes in a loop, each a loop over the width: no spills, and ptxas serialises no
    matmul."""
    bundle = compiled(ops.linear_cross_entropy(width=1024, dtype="f16"))
    image, *others = bundle.facts["images"]
    assert others and all(i["when"] and i["notes"] == [] for i in others)
    assert image["notes"] == [] and not any(k["spills"] for k in image["kernels"].values())
    product = image["kernels"][bundle.plan.launches[0].kernel]
    assert product["threads"] == 3 * 128 and product["resident"]
    assert not any("specialised" in r or "spills" in r for r in bundle.facts["remarks"])
    chunks, rows = bundle.plan.launches[0].grid
    assert rows == ["ceildiv", ["dim", 0, 0], 128] and "multiprocessors" in str(chunks)


def test_a_loss_of_deep_products():
    """Each tile of classes is a program, whose rows are reduced in registers."""
    bundle = compiled(ops.linear_cross_entropy(width=1024, classes=32000, dtype="f16"))
    image = bundle.facts["images"][0]
    product, join = (image["kernels"][launch.kernel] for launch in bundle.plan.launches)
    assert product["threads"] == 3 * 128 and product["resident"] and product["spills"] == 0
    assert join["threads"] < 3 * 128 and join["spills"] == 0
    # nobody expects a join to multiply
    assert not any("specialised" in r for r in bundle.facts["remarks"])
    assert bundle.plan.launches[0].grid == (125, ["ceildiv", ["dim", 0, 0], 128])


@pytest.mark.nightly
def test_classes_that_do_not_fill_the_last_tile():
    bundle = compiled(ops.linear_cross_entropy(width=1024, classes=1000, dtype="f16"))
    image = bundle.facts["images"][0]
    product = image["kernels"][bundle.plan.launches[0].kernel]
    assert product["threads"] == 3 * 128 and product["spills"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    "program",
    [
        ops.absmax_matmul(cols=1024, out=1024, dtype="f16"),  # rows that a product reads too
        ops.rms_norm_matmul(cols=1152, out=1088, dtype="bf16"),  # the last columns fill no tile
        ops.rms_norm_matmul(cols=1024, out=512, dtype="bf16"),  # all columns would be too many
    ],
    ids=["absmax", "ragged", "few columns"],
)
def test_other_shapes_qualify(program):
    bundle = compiled(program)
    (figures,) = bundle.facts["images"][0]["kernels"].values()
    assert figures["threads"] == 3 * 128 and figures["spills"] == 0


def plain(rows, columns, length):
    p = notation.Program("product")
    i, j, k = p.axis("i", rows), p.axis("j", columns), p.axis("k", length)
    x, w = p.input("x", i, k, dtype="f16"), p.input("w", k, j, dtype="f16")
    p.output(notation.sum(x[i, k] * 1.0 * w[k, j], k), i, j, dtype="f16")
    return p


@pytest.mark.parametrize(
    ("extents", "grids"),
    [
        ((4096, 4096, 4096), [(32, 16)]),
        ((512, 1664, 1792), [(8, 13)]),  # smaller tiles
        ((128, 4096, 16384), [(4, 32), (32, 16)]),  # four chunks, and their join
        ((256, 256, 1 << 19), [(33, 2, 2), (256,)]),
    ],
)
def test_known_extents_decide_tiles(extents, grids):
    """The last image serves all calls."""
    bundle = compiled(plain(*extents))
    image = bundle.facts["images"][-1]
    shapes = [(extents[0], extents[2]), (extents[2], extents[1])]
    assert evaluate(image.get("when", True), shapes, (), 132)
    assert [launch.grid for launch in bundle.plan_of(image).launches] == grids
    assert not any(kernel["spills"] for kernel in image["kernels"].values())


def test_products_run_on():
    """One is left to run in the loop, and none is waited for but behind it: the assembler adds no
    wait of its own."""
    for image in compiled(plain(4096, 4096, 4096)).facts["images"]:  # pairs last
        assert image["notes"] == [] and not image["missed"]


def test_neighbours_share_a_factor():
    """Programs run through the tiles of a product before the next one of a batch, whichever axis
    was named first."""
    p = notation.Program("products")
    i, j, k = p.axis("i", 512), p.axis("j", 2048), p.axis("k", 1024)
    b = p.axis("b", 128)
    x, w = p.input("x", b, i, k, dtype="f16"), p.input("w", b, k, j, dtype="f16")
    p.output(notation.sum(x[b, i, k] * 1.0 * w[b, k, j], k), b, i, j, dtype="f16")
    assert compiled(p).plan.launches[0].grid == (128, 4, 8)


def test_a_sum_that_ends_inside_a_panel_has_one_ring():
    """Its last tile has no slots of its own: the loop has as many as where there is none."""
    whole, ragged = (
        image["kernels"][bundle.plan.launches[-1].kernel]["shared"]
        for depth in (2944, 2952)
        for bundle in [compiled(plain(4096, 4096, depth))]
        for image in bundle.facts["images"][:1]
    )
    assert ragged == whole
