# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The model of programs that have whole rows, beside times of an H200."""

from __future__ import annotations

import pytest

from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.row_model import RowForm, RowWork, best, microseconds

RMS_NORM, LAYER_NORM, LOSS, SOFTMAX = (
    RowWork(2, 8, *what)
    for what in ((True, 1, True), (True, 2, True), (False, 2, True), (True, 2, True, True))
)
# us by rows and warps of a program ("k": it keeps its row), bf16
TIMES = [
    (RMS_NORM, 16384, 2048, {"1 4": 33.72, "1 2": 34.65, "1 8": 35.11}),
    (RMS_NORM, 20000, 768, {"1 1": 16.74, "4 4": 17.32, "2 2": 17.36, "2 1": 18.24}),
    (RMS_NORM, 4096, 8192, {"1 8": 33.54, "1 8 k": 34.82, "1 16": 35.28, "1 4": 35.54}),
    (RMS_NORM, 2048, 16384, {"1 16 k": 35.24, "1 16": 36.92, "1 8 k": 38.8}),
    (RMS_NORM, 1024, 32768, {"1 32 k": 35.9, "1 32": 39.82, "1 16 k": 41.05}),
    (LAYER_NORM, 500, 1024, {"1 4": 2.39, "1 2": 2.39, "1 1": 2.66, "2 2": 2.89}),
    (LAYER_NORM, 6000, 512, {"2 1": 5.14, "4 2": 5.36, "2 2": 5.55, "4 4": 5.56, "1 1": 5.91}),
    (LAYER_NORM, 65536, 512, {"2 1": 34.0, "4 2": 34.11, "2 2": 36.28, "1 1": 41.65}),
    (LAYER_NORM, 20000, 768, {"1 1": 18.03, "2 2": 18.34, "2 1": 18.43}),
    (LAYER_NORM, 32768, 1024, {"1 2": 34.78, "2 2": 35.13, "1 1": 35.27, "1 4": 40.26}),
    (LAYER_NORM, 8192, 4096, {"1 4": 37.5, "1 2": 38.2, "1 8": 41.8, "1 16": 64.96}),
    (LAYER_NORM, 2048, 16384, {"1 16 k": 37.21, "1 16": 37.28, "1 8 k": 41.52}),
    (LOSS, 131072, 512, {"4 2": 38.11, "2 1": 42.25, "2 2": 45.4, "4 4": 45.48}),
    (LOSS, 32768, 2048, {"1 2": 37.7, "1 4": 44.98}),
    (LOSS, 8192, 8192, {"1 4": 34.94, "1 8": 37.73, "1 4 k": 42.32}),
    (LOSS, 2048, 32768, {"1 8 k": 42.8, "1 16 k": 46.4}),
    (SOFTMAX, 6000, 512, {"2 2": 4.92, "4 4": 4.97, "2 4": 5.38, "1 1": 5.54, "1 2": 5.58}),
    (SOFTMAX, 5494, 920, {"1 1": 6.95, "4 4": 7.0, "2 2": 7.04, "1 2": 7.23, "1 4": 7.67}),
    (SOFTMAX, 2000, 16384, {"1 8 k": 34.35, "1 16 k": 34.86, "1 16": 37.16}),
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
