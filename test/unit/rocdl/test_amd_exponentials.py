# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMD machine code on scores and rows that are hard on exponentials, executed by an emulator."""

from __future__ import annotations

import numpy as np
import pytest

from support import gpu_hostile as hostile
from support.chips.emulator import Emulator, Process, compiled, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "found")
HEAD, ROWS, KEYS, TILE = 64, 20, 140, 64
CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


# test_amd_machine.py has rows of each kind, and of scores the simulators have them all
@pytest.mark.nightly
@pytest.mark.parametrize("chip", CHIPS)
def test_masks_and_rows(chip, tmp_path):
    masks = hostile.masks(ROWS, KEYS, TILE)
    mask = np.stack([masks[name] for name in hostile.FEW])
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((len(mask), 1, n, HEAD)).astype(np.float16) for n in (ROWS, KEYS, KEYS)
    )
    rows = hostile.rows(1, 500)
    process = Process(tmp_path)
    emulator = Emulator(chip, process)
    try:
        program = hostile.attention(HEAD, "f16", causal=True)
        code = compiled(program, chip)
        ((found, sums),), _ = emulator.results(code, [q, k, v, mask], ("down",))
        softmax = compiled(hostile.row_program("softmax"), chip)
        ((weights,),), _ = emulator.results(softmax, [np.concatenate([*rows.values()])], ("up",))
    finally:
        process.close()
    kinds = (np.float64, np.float32)
    with np.errstate(all="ignore"):
        want, unfused = (
            hostile.attention_unfused(q, k, v, mask[:, None], kind, True) for kind in kinds
        )
        for b, name in enumerate(hostile.FEW):
            hostile.check(found[b], want[0][b], unfused[0][b], hostile.UNITS["f16"], name)
            hostile.check(sums[b], want[1][b], unfused[1][b], hostile.UNITS["f32"], name)
        for b, (name, x) in enumerate(rows.items()):
            exact, other = (hostile.UNFUSED["softmax"](x.astype(kind)) for kind in kinds)
            hostile.check(weights[b : b + 1], exact, other, hostile.UNITS["f32"], name)
