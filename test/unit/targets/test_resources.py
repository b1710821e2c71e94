# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What blocks take of a multiprocessor, by hand."""

from dataclasses import replace

import pytest

from neptune_mlir.targets import group_tiles, resources
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.tuned import Choice, Shape

A100, H200, MI300, RDNA = map(gpu_target, ("sm_80", "sm_90a", "gfx942", "gfx1100"))
HEAD = Shape(64, 128, False, True)  # rows of 64, columns of 128
KIB = 1024


@pytest.mark.parametrize(
    ("chip", "rows", "words", "held", "loaded", "warps"),
    [
        (A100, 16, 0, 0, 0, 1),
        (A100, 32, 0, 0, 0, 2),
        (A100, 64, 0, 0, 0, 4),
        (A100, 1024, 0, 0, 0, 4),  # never more than 4 for their rows alone
        (A100, 16, 0, 32 * 144, 0, 1),  # 144 registers of each thread of a warp
        (A100, 16, 0, 32 * 144 + 1, 0, 2),
        (A100, 16, 0, 64 * 144 + 1, 0, 4),
        (A100, 128, 0, 128 * 200, 0, 4),
        (A100, 128, 0, 128 * 200 + 1, 0, 8),
        (A100, 64, 0, 128 * 200 + 1, 0, 8),
        (A100, 32, 0, 128 * 200 + 1, 0, 4),  # fewer rows than warps have
        (A100, 16, 0, 0, 1 << 20, 1),  # copies are asynchronous: nothing is in registers
        (RDNA, 16, 0, 0, 32 * 128 + 1, 2),
        (A100, 0, 2 * 32 * 32, 0, 0, 2),  # no products: 32 words of a lane
        (MI300, 0, 2 * 32 * 32, 0, 0, 1),
        (A100, 0, 0, 0, 0, 1),
    ],
)
def test_warps(chip, rows, words, held, loaded, warps):
    assert resources.warps_of(chip, rows, words, held, loaded) == warps


def test_blocks_beside_each_other():
    """Registers or shared memory, whichever ends first; one block at least."""
    assert resources.blocks_beside(A100, 128, 88, 10 * KIB) == 4  # 128 registers of 512 threads
    assert resources.blocks_beside(A100, 128, 89, 10 * KIB) == 3
    assert resources.blocks_beside(A100, 128, 0, 81 * KIB) == 2  # the system takes 1 KiB of each
    assert resources.blocks_beside(A100, 128, 0, 81 * KIB + 1) == 1
    assert resources.blocks_beside(A100, 1024, 255, 160 * KIB) == 1
    assert resources.threads_with(A100, 128) == 512


def test_slots_of_rings_leave_room_for_results():
    most = (227 - 32) * KIB
    assert resources.ring_slots(227 * KIB, 0, most // 4) == 4
    assert resources.ring_slots(227 * KIB, 0, most // 4 + 1) == 2
    assert resources.ring_slots(227 * KIB, 1, most // 4) == 2


def test_stages():
    assert resources.stages_under_way(32 * KIB) == 2
    assert resources.stages_under_way(16 * KIB) == 3
    assert resources.stages_under_way(16 * KIB - 1) == 4
    assert resources.stages_under_way(1) == resources.MOST_STAGES
    assert resources.fitting_stages(100, 10, 30, 6) == 3
    assert resources.fitting_stages(100, 10, 30, 2) == 2
    assert resources.fitting_stages(100, 99, 30, 6) == 1


def test_programs_that_wait_for_memory():
    """Tiles of half as wide elements have as many bytes, and twice as many programs."""
    assert resources.waiting() == (2, 32)
    assert resources.waiting(8) == (4, 64)


def test_registers_of_warp_groups():
    # half a register a score, a quarter for what is rounded of it; half a register a result
    assert group_tiles.registers(HEAD, 96) == 96 * 3 // 4 + 64
    assert group_tiles.registers(replace(HEAD, size=1), 224) == 224 * 5 // 8 + 64
    both = replace(HEAD, scores=2, results=2)
    assert group_tiles.registers(both, 64) == 64 * 7 // 4 + 128
    assert group_tiles.registers(Shape(1, 0, False, True), 64, 192) == 96 + 32
    assert group_tiles.registers(Shape(4096, 0, False, True), 256) == 128 + 32
    assert group_tiles.has_registers(HEAD, Choice(128, 128))
    assert not group_tiles.has_registers(HEAD, Choice(192, 128))  # 128 of a thread, not 160
    assert not group_tiles.has_registers(HEAD, Choice(128, 64, blocks=2))  # one group has a partner


def test_groups_that_share_rows():
    """Results of 512 columns are two instructions' widths: 64 rows are those of two groups."""
    wide = Shape(512, 512, False, True)
    latent = replace(wide, scores=2, once=576, streamed=576)  # keys that are values, and more
    assert [group_tiles.sharing(n) for n in (0, 256, 257, 512, 513)] == [1, 1, 2, 2, 3]
    assert group_tiles.group_count(wide, 64) == 2
    assert group_tiles.group_count(HEAD, 64) == 1
    assert group_tiles.registers(wide, 64) == 64 * 3 // 4 + 128  # one group has all scores
    assert group_tiles.most_stream(wide, 64) == 32  # whole panels
    assert group_tiles.most_stream(latent, 64) == 64
    assert group_tiles.once_bytes(latent, 64) == 64 * 576 * 2
    exchanged = 64 * 64 * 2
    assert group_tiles.least_bytes(latent, Choice(64, 64)) == 3 * 64 * 576 * 2 + exchanged + 2048
    assert group_tiles.has_registers(latent, Choice(64, 64))
    assert not group_tiles.has_registers(latent, Choice(128, 64))  # there are no four groups


def test_shared_memory_of_warp_groups():
    rows = 128 * 64 * 2
    step = 96 * (64 + 128) * 2
    assert group_tiles.once_bytes(HEAD, 128) == rows
    assert group_tiles.once_bytes(replace(HEAD, scores=2), 128) == rows + 128 * 128 * 2
    assert group_tiles.step_bytes(HEAD, 128, 96) == step
    assert group_tiles.least_bytes(HEAD, Choice(128, 96)) == rows + 2 * step + 2048
    assert group_tiles.slots(H200, HEAD, Choice(128, 96)) == 4
    assert group_tiles.slots(H200, HEAD, Choice(128, 112)) == 2
    # half of a multiprocessor has room for half of the slots
    assert group_tiles.slots(H200, HEAD, Choice(64, 64)) == 4
    assert group_tiles.slots(H200, HEAD, Choice(64, 64, blocks=2)) == 2


def test_what_the_rule_gives_has_room():
    """For every shape that the rule takes for possible, registers and shared memory say so too."""
    for depth in (64, 96, 128, 192, 256):
        for width in (64, 96, 128, 192, 256):
            for groups in (1, 2, 3):
                shape, rows = Shape(depth, width, True, True), 64 * groups
                stream = group_tiles.most_stream(shape, rows)
                if stream == 16:  # the least, whether there is room or not
                    continue
                choice = Choice(rows, stream)
                assert group_tiles.has_registers(shape, choice), (shape, choice)
                assert group_tiles.least_bytes(shape, choice) <= H200.shared_for(1), (shape, choice)


def test_room_for_results_and_for_the_next_program():
    limit = H200.shared_for(1)
    a_panel = 8 * 2048  # of 8 warps, 16 rows of 128 bytes each
    assert group_tiles.staged_panels(H200, 1, 8, limit - 2048 - 2 * a_panel, 4) == 2
    assert group_tiles.staged_panels(H200, 1, 8, limit - 2047 - 2 * a_panel, 4) == 1
    assert group_tiles.staged_panels(H200, 1, 8, 0, 4) == 4
    assert group_tiles.staged_panels(H200, 1, 8, limit, 4) == 0
    assert group_tiles.once_slots(H200, 1, 8, limit - 2048 - a_panel, True) == 2
    assert group_tiles.once_slots(H200, 1, 8, limit - 2047 - a_panel, True) == 1
    assert group_tiles.once_slots(H200, 1, 8, 0, False) == 1
