# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which image serves arrays that lie in memory otherwise than some kernels need."""

from __future__ import annotations

from dataclasses import replace

from neptune_mlir.runtime.gpu import GpuExecutable
from support.chips.axpy import BUNDLE, FACTS, KERNELS, PLAN, arrays
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import FakeArray, aligned


def test_an_image_whose_alignment_arrays_lack_is_not_taken():
    """One for rows of whole chunks: other addresses and strides have the kernels for any call."""
    image = {**FACTS["images"][1], "when": 1, "plan": PLAN.to_json(),
             "alignment": [["argument", 0, 64], ["buffer", 1, 64]]}  # fmt: skip
    facts = {**FACTS, "images": [*FACTS["images"], image]}
    run = GpuExecutable(replace(BUNDLE, facts=facts), FakeGpu(KERNELS).driver)
    _, y, _, scratch = arrays(32)

    def at(offset, step):
        memory = aligned((33 * 40,), "f2")[offset:]
        return FakeArray(memory[: 32 * step].reshape(32, step)[:, :8])

    for x, out, taken in (
        (at(0, 32), at(0, 32), True), (at(8, 32), at(0, 32), False), (at(0, 40), at(0, 32), False),
        (at(0, 32), at(8, 32), False), (at(0, 32), at(0, 32), True),
    ):  # fmt: skip
        prepared = run.prepare(x, y, 2.0, out=out, workspace=scratch)
        assert bool(prepared.image.when) == taken
