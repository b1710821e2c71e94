# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs that could lose digits, on inputs that hurt, by the rule of `--check`.

A number stands for a program; `NEPTUNE_SEED=1234 pytest -m nightly` starts elsewhere. What fails
is made smaller, printed in index notation, and written to a folder (`NEPTUNE_FAILURES`, else a
temporary one) as .mlir, .npz and verdict: `neptune run F.mlir --inputs F.npz --check` shows it.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from support.effort import code_of
from support.hostile_programs import Choices, Grammar
from support.hostile_runs import attempt, described, keep, once, shrunk
from support.often import nightly_if

pytestmark = pytest.mark.usefixtures("small_tiles")

NIGHTLY, BATCH = 3000, 50
START = int(os.environ.get("NEPTUNE_SEED", "0"))
# Of the first numbers these run with each change. All of the first reach 26496 lines and branches,
# of which these miss 221 that other tests reach, and two. The others are nightly.
QUICK = (0, 2, 3, 4, 6, 7, 12, 18, 20, 23, 25, 30, 32, 40, 41, 43, 44, 50, 52, 53, 58)
FIRST = range(75)

# Over the bound, and why. What is right has to go from the list.
KNOWN: set[int] = set()

# Wrong once, and right since: one sum rounds otherwise than another one that cancels it, in all
# orders but that of the program; a NaN, or nearly right; whole numbers of 16 bits taken for masks;
# 8044, 9693, 9799: weights that are to sum to 1 and do not; 8585: data times 1e20, squared;
# 21070, 31060: the root of noise; 40201: products of 1e-40; 41145: noise over an overflow;
# 50080: a NaN in some orders of a sum; 40301: a variance around what a mean was before it was
# rounded; 40520: a factor that moved out of one of two sums; 41124, 61180, 62341, 60296: roundings
# that no last place moves; 60001, 60674: noise decides whether it is a number; 61586: the end of
# the range; 61962: the square of noise; 60718, 110020: noise that overflows, or is negative; 70395:
# squares that overflow before a mask shows anything; 70432: five equal numbers, two and three;
# 111692: how far f16 moves; 112534, 113311, 114068: a rounding decides whether it is a NaN; 122594:
# an exponent's data times 1e-20; 122838: zeros of equal numbers; 123766: x x overflows;
# 132343: padding times infinity; 132617, 144505: squares that overflow before weights are divided;
# 144630: exponentials that are denormal; 144255, 147116: a constant that moved; 62504, 144850:
# squares that overflow behind a mask; 147435: a rounding that no input moves; 162514, 163738,
# 164887, 168077: numbers that a sum adds up and others see; 157259: one large weight; 168075: the
# fourth power of an exponential; 160168, 161054, 163735, 165386, 174015: what
# is exact by luck; 177698: a mean whose count is summed in the loop that subtracts it;
# 194929: squares that overflow before weights are divided; 194962: fourth powers, weights of
# any sign; 196659: an infinity that a mask adds -inf to; 198537, 201188: luck of an order of sums;
# 200231: what exponentials of 0 leave of 1; 208798: weights of few digits, hidden by what follows;
# 300145: noise of one row overflows, that of another does not; 342023: deviations from a mean that
# was large; 352401: what a factor makes of the least number; 350831: a mask hides from a variance
# what it is to normalise; 340046: weights that nearly sum to 1, over equal numbers.
KEPT = (486, 654, 805, 875, 1130, 1933, 7183, 8044, 8272, 8319, 8439, 8585, 9693, 9799,
        20474, 21070, 31060, 40201, 40301, 40520, 41124, 41145, 50080, 60001, 60296, 60674, 61180,
        60718, 61586, 61962, 62341, 70395, 70432, 110020, 111692, 112534, 113311, 114068, 122594,
        122838, 123766, 132343, 132617,
        144505, 144630, 144255, 62504, 144850, 147116,
        147435, 157259, 160168, 161054, 162514, 163735, 163738, 164887, 165386, 168075,
        168077, 174015, 177698, 194929, 194962, 196659,
        198537, 200231, 201188, 208798, 300145, 342023, 352401, 350831, 340046)  # fmt: skip


def examine(choices: Choices, name: object, folder: Path, tries: int = 40) -> str:
    """Empty where the program is right, else what is wrong with a smaller one."""
    if not attempt(choices).found:
        return ""

    def fails(smaller):
        try:
            return bool(attempt(Choices(given=smaller)).found)
        except Exception:  # another failure than the one that is looked for
            return False

    best = shrunk(choices.taken, fails, tries)
    last = attempt(Choices(given=best))
    verdict = f"program {name}, made smaller: {best}\n{described(best)}\n{last.found[0]}"
    keep(folder, f"hostile-{name}", last.text, last.found[0], verdict)
    return f"{verdict}\nkept in {folder}"


@pytest.fixture
def folder(tmp_path):
    return Path(os.environ.get("NEPTUNE_FAILURES", tmp_path))


@pytest.mark.parametrize("seed", nightly_if(lambda seed: seed not in QUICK, FIRST))
def test_hostile_program(seed, folder, request):
    if seed in KNOWN:
        known_wrong = {"raises": AssertionError, "reason": "known, see KNOWN"}
        request.applymarker(pytest.mark.xfail(strict=True, **known_wrong))
    with code_of(seed):
        wrong = examine(Choices(seed), seed, folder, 0 if seed in KNOWN else 40)
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("seed", KEPT)
def test_what_was_wrong_once(seed, folder):
    wrong = examine(Choices(seed), seed, folder, 0)
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("batch", range(NIGHTLY // BATCH))
def test_hostile_programs(batch, folder):
    first = START + len(FIRST) + batch * BATCH
    seeds = range(first, first + BATCH)
    wrong = [w for seed in seeds if (w := examine(Choices(seed), seed, folder))]
    assert not wrong, "\n\n".join(wrong)


def test_the_same_number_is_the_same_program():
    one, other = Choices(5), Choices(5)
    Grammar(one).build(), Grammar(other).build()
    assert one.taken == other.taken and described(one.taken) == described(other.taken)
    assert len({described(taken(seed)) for seed in range(50)}) > 45


def taken(seed):
    choices = Choices(seed)
    Grammar(choices).build()
    return choices.taken


def test_shrinking_keeps_what_matters():
    """Of all choices, those stay without which it does not fail."""
    best = shrunk([3, 1, 4, 1, 5, 9], lambda c: 9 in c and 4 in c)
    assert [k for k in best if k] == [4, 9] and len(best) <= 3


def test_a_simulator_runs_once_for_inputs_of_one_content():
    asked = []
    run = once(lambda values: asked.append(values) or [values[0] + 1])
    for value in (1.0, 1.0, 2.0):
        assert run([np.full(3, value), np.ones(2)])[0][0] == value + 1
    assert len(asked) == 2


@pytest.mark.nightly  # test_planted_errors.py and test_fuzz_hostile.py find and keep some, too
def test_a_failure_is_found_and_kept(tmp_path, monkeypatch):
    """The harness itself: a kernel whose numbers are off is noticed, and what is kept shows it."""
    from neptune_mlir.cli import main
    from neptune_mlir.driver.kernel import Kernel

    honest = Kernel.of_bundle

    def off(bundle, name):
        run = honest(bundle, name)
        return lambda *arguments: run(*arguments) * np.float32(1.0001)

    monkeypatch.setattr(Kernel, "of_bundle", off)
    wrong = examine(Choices(given=[]), "simple", tmp_path, 0)
    assert "ulps" in wrong or "element" in wrong
    kept = str(tmp_path / "hostile-simple")
    assert Path(f"{kept}.txt").read_text().startswith("program simple")
    arguments = ["run", f"{kept}.mlir", "--inputs", f"{kept}.npz", "--check", "--repeat", "1"]
    assert main.main(arguments) == 0
    call = Kernel.__call__
    monkeypatch.setattr(
        Kernel, "__call__", lambda self, *a, **k: call(self, *a, **k) * np.float32(1.0001)
    )
    assert main.main(arguments) == 1
