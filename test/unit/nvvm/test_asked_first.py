# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs that wait for memory ask for first: parts that they join, rows of tables, and the
numbers that say how long their streams are."""

from __future__ import annotations

import re

import pytest

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from neptune_mlir.pipelines import nvvm

GLOBAL = re.compile(r"llvm\.load .*ptr<1>|ld\.global")
COPIES = re.compile(r"cp\.async\.bulk\.tensor\.\dd\.shared")
WAITS = re.compile(r"gpu\.barrier|nvvm\.shfl|gpu\.shuffle|nvvm\.barrier")


def kernels_of(program, target, schedule=None, knobs=""):
    """The lines of each kernel of a program, by its name."""
    module, _ = compiler.lower_text(program.to_mlir(), "test", target, schedule, "tile", knobs)
    text = nvvm.emit_tiles(module, "target", target=target)
    found = re.split(r"gpu\.func @", text)[1:]
    return {part.split("(")[0]: part.splitlines() for part in found}


def places(lines, what):
    return [k for k, line in enumerate(lines) if what.search(line)]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_joins_ask_for_all_parts_before_they_wait(target):
    program = ops.paged_attention(head_dim=64, page_size=16, group=4, dtype="f16")
    kernels = kernels_of(program, target)
    joins = {name: lines for name, lines in kernels.items() if "attention_1" in name}
    assert len(joins) == 3
    for lines in joins.values():
        assert places(lines, GLOBAL) and max(places(lines, GLOBAL)) < min(places(lines, WAITS))
        assert "nvvm.minctasm" in "".join(lines)


def test_rows_of_tables_are_asked_for_first():
    """Once a program, in front of all that its producer brings."""
    program = ops.latent_attention(latent_dim=128, page_size=64, scale=0.1, dtype="bf16")
    lines = next(x for n, x in kernels_of(program, "sm_90a").items() if n.endswith("attention_0"))
    (asked,) = places(lines, re.compile(r"prefetch\.global\.L1"))
    assert asked < min(places(lines, COPIES))


def test_a_producer_reads_once_how_long_its_loops_are():
    """And does so before its first copy. The length and, where there is one, the order of the
    sequences; then a page for each loop."""
    program = ops.latent_attention(latent_dim=128, page_size=64, scale=0.1, dtype="bf16")
    lines = next(x for n, x in kernels_of(program, "sm_90a").items() if n.endswith("attention_0"))
    producer = lines[max(places(lines, re.compile("setmaxnreg"))) :]
    loads = places(producer, GLOBAL)
    first = min(places(producer, COPIES))
    assert [k < first for k in loads] == [True, True, False, False]


@pytest.mark.parametrize(("chunks", "stores"), [(0, 16), (4, 32)])
def test_wide_results_leave_in_chunks_of_16_bytes(chunks, stores):
    """A thread has 128 elements: of bf16, or of f32 where chunks are joined. What is left are the
    maxima and sums of two rows."""
    program = ops.latent_attention(latent_dim=256, page_size=64, scale=0.1, dtype="bf16")
    knobs = f"chunks:{chunks};warp_groups:1" if chunks else ""
    kernels = kernels_of(program, "sm_90a", "private" if chunks else None, knobs)
    lines = next(x for n, x in kernels.items() if n.endswith("attention_0"))
    assert len(places(lines, re.compile(r"st\.global\.v4\.b32"))) == stores
    assert len(places(lines, re.compile(r"llvm\.store .*ptr<1>"))) == (4 if chunks else 0)
