# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inner loops read from assembly: which loop, which way through it, what it asks of its units."""

from __future__ import annotations

from neptune_mlir.codegen.amd.loops import MATRIX, SHARED, SLOW, VECTOR, inner_loops
from neptune_mlir.targets.amd import amd

KERNEL = """
rows_0:
\tv_mov_b32_e32 v0, 0
.LBB0_1:
\tds_read_b64 v[2:3], v1
\tds_read2_b64 v[4:7], v1 offset0:1 offset1:2
\ts_waitcnt lgkmcnt(1)
\tv_mfma_f32_32x32x8_f16 v[8:23], v[2:3], v[2:3], v[8:23]
\ts_waitcnt lgkmcnt(0)
\tv_mfma_f32_32x32x8_f16 v[8:23], v[4:5], v[6:7], v[8:23]
\ts_cbranch_vccnz .LBB0_3
\tv_exp_f32_e32 v30, v31
\tv_exp_f32_e32 v30, v31
.LBB0_3:
\tv_pk_fma_f32 v[32:33], v[32:33], v[34:35], v[32:33]
\ts_cbranch_scc1 .LBB0_1
.LBB0_4:
\tv_add_f32_e32 v40, v41, v42
\ts_cbranch_scc1 .LBB0_4
\ts_endpgm
\t.section .AMDGPU.csdata
"""


def test_the_shortest_and_the_longest_way_of_the_loop_with_products():
    (loop,) = inner_loops(KERNEL, amd("gfx942"))
    short, long = loop.shortest, loop.longest
    assert loop.kernel == "rows_0"
    assert (short.counts[MATRIX], short.counts[VECTOR], short.counts[SLOW]) == (2, 1, 0)
    assert (long.counts[MATRIX], long.counts[VECTOR], long.counts[SLOW]) == (2, 1, 2)
    # 2 * 32 * 32 * 8 operations of 512 a cycle; 24 bytes of 64 lanes, of 128 a cycle
    assert short.busy[MATRIX] == 64 and short.busy[SHARED] == 12
    assert long.busy[SLOW] == 32 and long.alone > short.alone
    assert long.issue == long.busy[VECTOR] + 32 == 36


def test_loads_between_products_hide_their_time():
    """The second load's wait falls into the first product."""
    chip = amd("gfx942")
    early = inner_loops(KERNEL, chip)[0].shortest
    moved = KERNEL.replace("\tds_read2_b64 v[4:7], v1 offset0:1 offset1:2\n", "").replace(
        "\ts_waitcnt lgkmcnt(0)\n",
        "\tds_read2_b64 v[4:7], v1 offset0:1 offset1:2\n\ts_waitcnt lgkmcnt(0)\n",
    ).replace("lgkmcnt(1)", "lgkmcnt(0)")  # fmt: skip
    late = inner_loops(moved, chip)[0].shortest
    assert late.alone > early.alone + chip.issue.shared_latency / 2
    assert late.busy == early.busy


def test_a_loop_without_products_counts_too():
    text = KERNEL.replace("v_mfma_f32_32x32x8_f16", "v_add_f32")
    (loop,) = inner_loops(text, amd("gfx1100"))
    assert loop.shortest.counts[MATRIX] == 0
    assert loop.longest.busy[SLOW] == 2 * amd("gfx1100").issue.slow


def test_branches_behind_a_loop_do_not_count():
    """Results are stored under conditions: 2^50 ways out of the loop, none of them back."""
    stores = "".join(
        f"\ts_cbranch_execz .LBB0_{k}\n\tglobal_store_dword v1, v2, off\n.LBB0_{k}:\n"
        for k in range(10, 60)
    )
    (loop,) = inner_loops(KERNEL.replace("\ts_endpgm", stores + "\ts_endpgm"), amd("gfx942"))
    assert loop == inner_loops(KERNEL, amd("gfx942"))[0]
