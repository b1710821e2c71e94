# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile sizes for warp groups: the table, the rule, and kernels for long streams in a bundle."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from neptune_mlir import compiler, ops
from neptune_mlir.codegen import ptxas
from neptune_mlir.errors import ToolError
from neptune_mlir.kernel import Source
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.transforms import group_sizes
from neptune_mlir.transforms.group_sizes import Shape


def entries():
    text = resources.files("neptune_mlir.transforms").joinpath(group_sizes.TABLE).read_text()
    return json.loads(text)["entries"]


def test_the_table_fits_the_chip():
    for entry in entries():
        assert entry["rows"] in (64, 128, 192) and entry["stream"] % 16 == 0
        groups = entry["rows"] // 64
        held = 3 * entry["stream"] // 4 + entry["width"] // 2
        assert held <= group_sizes.REGISTERS[groups], entry
        keys = [(e["depth"], e["width"], e["triangle"], e["light"], e["from"]) for e in entries()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("shape", "length", "sizes"),
    [
        (Shape(64, 64, False, True), 0, (192, 128)),
        (Shape(64, 64, True, True), 0, (128, 128)),
        (Shape(64, 64, True, True), 8191, (128, 128)),
        (Shape(64, 64, True, True), 8192, (192, 128)),
        (Shape(64, 64, True, False), 8192, (128, 128)),  # not in the table: the rule
        (Shape(128, 128, True, True), 1 << 20, (128, 128)),
        (Shape(256, 256, False, True), 1 << 20, (128, 64)),
    ],
)
def test_sizes(shape, length, sizes):
    assert group_sizes.sizes(shape, length) == sizes


def tiles_of(**settings):
    text = Source.of(ops.attention(causal=True, dtype="f16", **settings)).text
    module, _ = compiler.lower_text(text, "attention", "sm_90a", None, "fused")
    return str(module)


def test_the_lengths_are_noted():
    assert "neptune.tile = array<i64: 1, 1, 128, 128, 0, 0>" in tiles_of(head_dim=64)
    assert "neptune.longer = array<i64: 8192>" in tiles_of(head_dim=64)


def test_a_bundle_has_kernels_for_long_streams_and_few_programs():
    try:
        ptxas.find_ptxas()
    except ToolError:
        pytest.skip("no ptxas here")
    text = Source.of(ops.attention(head_dim=64, causal=True, dtype="f16")).text
    bundle = compiler.compile_text(text, "attention", "sm_80,sm_90a", None, None)
    images = bundle.facts["images"]
    assert [i["target"] for i in images] == ["sm_80", "sm_90a", "sm_90a", "sm_90a"]
    assert "when" not in images[1] and images[2]["when"] == ["le", 8192, ["dim", 1, 2]]
    rows = [bundle.plan_of(i).launches[0].grid[-1] for i in images[1:]]
    assert rows == [["ceildiv", ["dim", 0, 2], size] for size in (128, 192, 64)]
    few = images[3]["when"]  # half as many programs as the chip has multiprocessors, or fewer
    assert [evaluate(few, [(b, 8, n, 64)], []) for b, n in ((1, 1024), (1, 1025), (2, 512))] == [
        True, False, True
    ]  # fmt: skip
    assert all(k["spills"] == 0 for i in images for k in i["kernels"].values())
    ends = [i["offset"] + i["size"] for i in images]
    assert [i["offset"] for i in images] == [0, *ends[:-1]] and ends[-1] == len(bundle.code)
