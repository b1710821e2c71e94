# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Long expressions of a bundle are said with names for what they repeat."""

from neptune_mlir.cli.wording import LONG, Wording
from neptune_mlir.runtime.plan import describe, evaluate

ROWS = ["dim", 0, 0]


def grown(times):
    """An expression in which one part stands 2 ** `times` times."""
    made = ["ceildiv", ["add", ROWS, ["multiprocessors"]], 64]
    for k in range(times):
        made = ["max", ["add", made, k], ["mul", made, ["multiprocessors"]]]
    return made


def test_a_short_expression_is_said_in_one_piece():
    wording = Wording([ROWS, grown(0), grown(0), 7], ["x"])
    assert wording.say(grown(0)) == "ceildiv((x.shape[0] + multiprocessors), 64)"
    assert wording.say(7) == "7" and not list(wording.definitions())


def test_what_repeats_is_said_once():
    whole, other = grown(12), ["le", grown(12), 5]
    assert len(describe(whole, ["x"])) > 100_000
    wording = Wording([whole, other], ["x"])
    said = [wording.say(whole), wording.say(other)]
    lines = list(wording.definitions())
    assert all(len(line) <= LONG for line in [*lines, *said])
    assert not list(wording.definitions()), "once"
    # the lines mean what the expression does
    places = {"ceildiv": lambda a, b: -(-a // b), "max": max}
    text = "\n".join([*lines, f"whole = {said[0]}"]).replace("$", "part_").replace("  ", "")
    exec(text.replace("x.shape[0]", "1000").replace("multiprocessors", "3"), places)
    assert places["whole"] == evaluate(whole, [(1000,)], [], 3)
