# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses that a kernel computes before it waits for another one."""

import re

import pytest

from neptune_mlir.codegen.nvidia.nvptx import use_waits
from neptune_mlir.driver.compiler import emit_text
from neptune_mlir.ops import paged_attention

REGISTER = re.compile(r"%(?:r|rd|p)\d+")

KERNEL = """\
.visible .entry f(
	mov.u32 	%r1, %tid.x;
	// begin inline asm
	griddepcontrol.wait;
	// end inline asm
	ld.param.b64 	%rd1, [f_param_0];
	mul.wide.s32 	%rd2, %r1, 4;
	add.s32 	%r9, %r1, 7;
	add.s64 	%rd3, %rd1, %rd2;
	ld.global.b32 	%r2, [%rd3];
	add.s64 	%rd4, %rd1, 64;
	ld.global.v2.b32 	{%r3, %r4}, [%rd4+8];
	{BEHIND}
	st.global.b32 	[%rd3], %r2;
	add.s64 	%rd8, %rd3, 256;
	ld.global.b32 	%r8, [%rd8];
	ret;
}"""
# what addresses depend on that stays: an element that is loaded, halves of a number, a number that
# the block reads before it gets another
STAYS = {
    "loaded": ["mul.wide.s32 	%rd5, %r4, 4;", "add.s64 	%rd6, %rd1, %rd5;",
               "ld.global.b32 	%r5, [%rd6];"],
    "halves": ["mov.b64 	{%r5, %r6}, %rd2;", "mul.wide.s32 	%rd5, %r6, 4;",
               "ld.global.b32 	%r7, [%rd5];"],
    "again": ["mov.b64 	%rd2, %rd1;", "ld.global.b32 	%r7, [%rd2];"],
}  # fmt: skip


def lines_of(behind):
    text = use_waits(KERNEL.replace("{BEHIND}", "\n\t".join(behind)))
    assert text.count("griddepcontrol.wait;") == 1
    return [line.strip() for line in text.split("\n")]


@pytest.mark.parametrize("behind", STAYS)
def test_only_what_no_load_decides_stands_before_the_wait(behind):
    lines = lines_of(STAYS[behind])
    wait, end = lines.index("griddepcontrol.wait;"), lines.index("trap;")
    assert [line.split("\t")[-1] for line in lines[2:6]] == [
        "%rd1, [f_param_0];", "%rd2, %r1, 4;", "%rd3, %rd1, %rd2;", "%rd4, %rd1, 64;"
    ]  # fmt: skip
    assert end < wait and lines[end + 2] == "$neptune_block0:"
    assert all(lines.index(x) > wait for x in [*STAYS[behind], "add.s32 	%r9, %r1, 7;"])
    stored = lines.index("st.global.b32 	[%rd3], %r2;")
    assert lines.index("add.s64 	%rd8, %rd3, 256;") > stored


def test_a_kernel_that_loads_nothing_there_stays_as_it_is():
    text = KERNEL.replace("ld.global", "ld.shared").replace("{BEHIND}", "")
    assert use_waits(text) == text


def test_joins_of_chunks():
    """All loads of the smaller joins of decoding stand together, and registers are made before they
    are used."""
    program = paged_attention(head_dim=64, page_size=16, dtype="f16")
    text, _ = emit_text(program.to_mlir(), "f.mlir", "sm_90a", None, None, "ptx")
    entry = text.split(".entry paged_attention_1_few")[1].split(".entry")[0]
    before, behind = entry.split("griddepcontrol.wait;")
    assert "trap;" in before and before.count("mad.lo.s64") > 10
    seen = set()
    for line in (before + behind).split("bar.sync")[0].split("\n"):
        made, *used = REGISTER.findall(line) or [None]
        if made and ("ld.global.v" in line or "{" in line):
            made, used = None, []
            seen |= set(REGISTER.findall(line.split("[")[0]))
        if made and not line.strip().startswith((".reg", "st.", "@")):
            assert not {u for u in used if u not in seen} - {made}, line
            seen.add(made)
