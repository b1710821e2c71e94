# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hostile inputs on the simulators: the arithmetic of GPUs (exp2, fused multiply-add).

The rule is that of CPUs. See test_hostile_inputs.py and test_hostile_property.py.
"""

import functools
import os
from pathlib import Path

import pytest

from neptune_mlir.algebra import contractions
from neptune_mlir.transforms.fusion import defer
from support.hostile_programs import Choices
from support.hostile_runs import attempt, cases_of, described, failures, programs_of

FOLDER = Path(__file__).parents[2] / "inputs" / "hostile"
CHIPS = ("sm_80", "gfx942")
SIZES = {"softmax": ("1000", "200"), "sum_exp": ("1000", "200"), "logsumexp": ("300", "200"),
         "entropy": ("520", "200")}  # fmt: skip
KINDS = ("mask", "mean", "moves", "one")
START = int(os.environ.get("NEPTUNE_SEED", "0"))
QUICK, NIGHTLY, BATCH, CASES = 3, 300, 20, 12


@functools.cache
def program(name, chip):
    long, short = SIZES[name]
    text = (FOLDER / f"{name}.mlir").read_text()
    assert f"4x{long}x" in text
    return programs_of(text.replace(f"4x{long}x", f"4x{short}x"), chip), int(short)


@pytest.mark.first_of_each("name", "kind")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", SIZES)
def test_hostile_inputs(name, chip, kind):
    programs, length = program(name, chip)
    cases = [case for case in cases_of(programs, [(4, length)]) if case.kind == kind]
    found = failures(programs, cases, 1)
    assert not found, str(found[0])


def wrong_with(seed, chip):
    choices = Choices(seed)
    found = attempt(choices, chip, CASES).found
    return f"program {seed}\n{described(choices.taken)}\n{found[0]}" if found else ""


@pytest.mark.first_of_each("chip")
@pytest.mark.parametrize("seed", range(QUICK))
@pytest.mark.parametrize("chip", CHIPS)
def test_hostile_program(chip, seed):
    wrong = wrong_with(seed, chip)
    assert not wrong, wrong


SCALED = 127, 160, 421, 482  # what divides rows keeps a factor in the range of f16


@pytest.mark.nightly
@pytest.mark.usefixtures("small_tiles")
def test_a_factor_out_of_the_range_of_f16_is_seen(monkeypatch):
    monkeypatch.setattr(contractions, "SMALL_RANGE", "none")
    defer.forget()
    wrong = wrong_with(SCALED[0], "sm_80")
    defer.forget()
    assert "element [0, 0] is" in wrong  # not a number


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SCALED)
def test_factors_stay_in_the_range_of_f16(seed):
    wrong = wrong_with(seed, "sm_80")
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(NIGHTLY // BATCH))
@pytest.mark.parametrize("chip", CHIPS)
def test_hostile_programs(chip, batch):
    first = START + QUICK + batch * BATCH
    wrong = [w for seed in range(first, first + BATCH) if (w := wrong_with(seed, chip))]
    assert not wrong, "\n\n".join(wrong)
