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
    (RMS_NORM, 16384, 2048, {"1 2": 33.93, "1 4": 34.01, "1 8": 35.97}),
    (RMS_NORM, 20000, 768, {"1 1": 16.88, "2 2": 16.97, "4 4": 17.36}),
    (RMS_NORM, 70, 8192, {"1 16": 2.83, "1 8": 2.85, "1 16 k": 3.05, "1 8 k": 4.25, "1 4": 4.5}),
    (RMS_NORM, 4096, 8192, {"1 8": 33.54, "1 8 k": 34.82, "1 16": 35.28, "1 4": 35.54}),
    (RMS_NORM, 1024, 32768, {"1 32 k": 35.9, "1 32": 39.82, "1 16 k": 41.05}),
    (LAYER_NORM, 6000, 512, {"2 2": 5.7, "4 4": 5.8, "1 1": 5.87, "2 4": 6.3}),
    (LAYER_NORM, 20000, 768, {"1 1": 18.01, "4 4": 18.45, "2 2": 18.48}),
    (LAYER_NORM, 32768, 1024, {"1 1": 35.61, "2 2": 35.96, "1 2": 37.67, "1 4": 43.07}),
    (LAYER_NORM, 8192, 4096, {"1 4": 37.5, "1 2": 38.2, "1 8": 41.8, "1 16": 64.96}),
    (LAYER_NORM, 2048, 16384, {"1 16": 37.12, "1 16 k": 37.26, "1 8 k": 41.44, "1 32": 50.49}),
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
