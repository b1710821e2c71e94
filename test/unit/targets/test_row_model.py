# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The model of programs that have whole rows, beside times of an H200."""

from __future__ import annotations

import pytest

from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.row_model import RowForm, RowWork, best, microseconds

RMS_NORM, LAYER_NORM, LOSS = (
    RowWork(2, 8, *what, True) for what in ((True, 1), (True, 2), (False, 2))
)
# us by rows and warps of a program ("k": it keeps its row), bf16
TIMES = [
    (RMS_NORM, 300, 3072, {"1 4": 3.39, "1 8": 3.03, "1 2": 4.49}),
    (RMS_NORM, 16384, 2048, {"1 4": 33.19, "1 2": 34.79, "1 8": 35.12, "2 4": 35.56}),
    (RMS_NORM, 70, 8192, {"1 16": 2.78, "1 8": 3.69, "1 4": 4.83, "1 8 k": 4.24}),
    (RMS_NORM, 4096, 8192, {"1 8 k": 35.08, "1 8": 35.88, "1 4": 36.51, "1 16": 41.65}),
    (LAYER_NORM, 32768, 1024, {"1 1": 35.59, "2 2": 37.76, "4 4": 38.24, "1 4": 45.35}),
    (LAYER_NORM, 8192, 4096, {"1 4": 36.83, "1 2": 38.81, "1 8": 42.26, "1 16": 68.31}),
    (LAYER_NORM, 2048, 16384, {"1 16 k": 41.38, "1 8 k": 42.12, "1 16": 61.8, "1 8": 59.42}),
    (LOSS, 131072, 512, {"8 8": 51.24, "4 4": 50.54, "2 2": 49.93, "1 1": 81.73, "2 4": 68.4}),
    (LOSS, 1000, 4096, {"1 4": 5.68, "1 8": 5.94, "1 2": 6.22, "1 2 k": 6.49, "1 16": 9.72}),
    (LOSS, 2048, 32768, {"1 8 k": 42.8, "1 16 k": 46.4}),
]  # fmt: skip


def form(text):
    rows, warps, *kept = text.split()
    return RowForm(int(rows), int(warps), bool(kept))


@pytest.mark.parametrize(("row", "rows", "elements", "times"), TIMES)
def test_what_takes_least_by_the_model_is_near_the_least_measured(row, rows, elements, times):
    chip = gpu_target("sm_90a")
    chosen = min(times, key=lambda text: microseconds(chip, row, form(text), elements, rows))
    assert times[chosen] <= 1.05 * min(times.values())


def test_a_row_that_no_program_has_room_for():
    chip = gpu_target("sm_90a")
    assert microseconds(chip, RMS_NORM, RowForm(1, 1, True), 1 << 17, 10) == float("inf")
    assert best(chip, RMS_NORM, 1 << 18) is None
