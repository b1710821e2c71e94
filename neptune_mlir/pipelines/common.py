# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of every pipeline that no target changes, as data.

    program   IMPORT     array constants become arguments, linalg and friends become nests
    fused     a schedule (transforms/schedule/shipped/), chosen by `scripts.choose` unless given:
              `apply-schedule` once for what its numbers do not change, then for each set of them
    tile      TO_TILES   a grid of programs over static tiles

What follows is the target's own: pipelines/cpu.py and its siblings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import legal, runner
from neptune_mlir.pipelines.runner import Step

FEW_STEPS = 4  # of a loop that is written out where loops run, too

LIFT = (Step("lift-constants"),)

RAISE = (
    Step("apply-patterns"),
    Step("convert-elementwise-to-linalg"),
    Step("split-concats"),
    Step("raise-linalg"),
    Step("widen-sums"),
)

IMPORT = (
    Step("write-out-loops"),
    Step("expand-calls"),
    Step("apply-patterns"),
    Step("lower-tm-tensor"),
    *LIFT,
    Step("canonicalize"),  # branches become choices between tensors, which are nests too
    *LIFT,  # and some of what was built from numbers becomes array constants
    *RAISE,
    Step("unit-reductions"),
    Step("canonicalize"),
    Step("cse"),
    Step("equal-extents"),
)



def import_steps(scan: int, loops: bool) -> tuple[Step, ...]:
    """IMPORT for a target.

    Args:
        scan: elements of a scan that its programs compute in one pass; 0: none.
        loops: whether it runs loops over tensors.
    """
    options: dict[str, dict[str, Any]] = {}
    if scan:
        options["lower-tm-tensor"] = {"most": scan}
    if loops:
        options["write-out-loops"] = {"most": FEW_STEPS}
    return tuple(Step(s.name, options[s.name]) if s.name in options else s for s in IMPORT)


TO_TILES = (
    Step("free-references"),
    Step("final-counts"),
    Step("lower-correct"),
    Step("skip-dead-tiles"),
    Step("cut-rows"),
    Step("lower-to-tiles"),
    Step("widen-factors"),
    Step("float8-bits"),
    Step("canonicalize"),
    Step("cse"),
)


def to_tiles(bytes_: bool) -> tuple[Step, ...]:
    """TO_TILES, for a target whose products take factors of 8 bits or not."""
    some = ("widen-factors", "float8-bits")
    options = {"products": True}
    return tuple(Step(s.name, options) if bytes_ and s.name in some else s for s in TO_TILES)


def run(module: Any, steps: Sequence[Step], done: Collection[str] = ()) -> None:
    """Run the steps on a module that has been through `done`, and verify what they leave in the
    end. What others wrote, passes and scripts, is verified where it ends; NEPTUNE_VERIFY: each.

    Raises:
        LoweringError: a step failed, or the program has something that it cannot lower.
    """
    if not steps:
        return
    instruments = runner.Instruments(verify=legal.is_asked() or runner.is_of_others)
    runner.run(module, steps, instruments=instruments, done=done)
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise LoweringError(f"'{steps[-1]}' left IR that does not verify: {error}") from None


# What was begun in this compilation, by the chip and the text of a tile program. Ways that are
# tried one after the other share many of these: what some calls take is the same for all.
Begun = dict[tuple[str, str], Any]
_begun: ContextVar[Begun | None] = ContextVar("begun", default=None)


@contextlib.contextmanager
def once(kept: Begun | None = None) -> Iterator[None]:
    """Within: a tile program is compiled once, however often it is asked for. `kept`: what an
    earlier compilation of the same program has begun, and where this one adds to it."""
    token = _begun.set({} if kept is None else kept)
    try:
        yield
    finally:
        _begun.reset(token)


def begun(chip: str, tiles: str, begin: Callable[[], Any]) -> Any:
    """What `begin` makes of a tile program for a chip, or made of it before (`once`)."""
    known = _begun.get()
    if known is None:
        return begin()
    if (chip, tiles) not in known:
        known[chip, tiles] = begin()
    return known[chip, tiles]
