# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every example chain is solved, proved, and right on adversarial inputs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from chains import AXIS, UNFUSABLE, ZOO

from neptune_mlir.algebra.solver import Unsolvable, solve_chain
from neptune_mlir.algebra.stress import stress


@pytest.mark.parametrize("name", ZOO)
def test_chain_is_solved_and_proved(name):
    solution = solve_chain(ZOO[name], AXIS)
    assert not [str(o) for o in solution.obligations if o.status != "proved"]
    assert set(solution.finals) == {r.name for r in ZOO[name]}


@pytest.mark.parametrize("name", ZOO)
def test_chain_is_right_on_adversarial_inputs(name):
    chain = ZOO[name]
    report = stress(chain, solve_chain(chain, AXIS), AXIS, length=12, chunks=(1, 2, 3, 5, 12))
    assert report.ok, str(report.failure)


@pytest.mark.parametrize("name", UNFUSABLE)
def test_unfusable_chain_says_why(name):
    chain, obligation, op = UNFUSABLE[name]
    with pytest.raises(Unsolvable) as caught:
        solve_chain(chain, AXIS)
    reason = caught.value
    assert reason.reduction == chain[-1].name
    assert reason.obligation == obligation
    assert reason.subterm.op == op
    assert reason.hint


def test_solving_is_fast():
    solve_chain(ZOO["causal"], AXIS)
    start = time.process_time()
    solve_chain(ZOO["causal"], AXIS)
    attention = time.process_time() - start
    start = time.process_time()
    for chain in ZOO.values():
        solve_chain(chain, AXIS)
    assert attention < 0.05
    assert time.process_time() - start < 2.0
