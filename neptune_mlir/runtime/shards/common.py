# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the runs of a device have in common.

They differ in the data that travel, and add to the same parts. What a launch of their kernel makes
of arguments that stay is the same in each run, so it is made once: a plan is two, of which the
first gives that, and the second takes it behind its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neptune_mlir.runtime.plan import Argument, Launch, Plan
from neptune_mlir.runtime.shards.plan import ShardArray, ShardPlan


@dataclass(frozen=True)
class InTurns:
    """A plan in two: `once`, whose results are `made`, and `each`, which takes these behind the
    arguments of the plan; `places`: which argument a buffer of the plan is there."""

    once: Plan
    each: Plan
    made: tuple[ShardArray, ...] = ()
    places: Mapping[int, int] = field(default_factory=dict)


def zeroed(plan: Plan) -> dict[int, int]:
    """The launches of a plan that have nothing but a result which a later one has as well, so set
    it to 0: the number of that result."""
    arrays = [{*_arrays(launch)} for launch in plan.launches]
    results = [tuple(r) for r in plan.results]
    return {
        k: results.index(own.copy().pop()) for k, own in enumerate(arrays)
        if len(own) == 1 and own <= {*results} and any(own <= x for x in arrays[k + 1 :])
    }  # fmt: skip


def adding(plan: Plan) -> InTurns:
    """The plan of a local kernel for runs that add to what earlier ones left; nothing is made
    once."""
    skipped = zeroed(plan)
    rest = tuple(x for k, x in enumerate(plan.launches) if k not in skipped)
    return InTurns(replace(plan, launches=(), results=()), replace(plan, launches=rest))


def in_turns(plan: Plan, shared: ShardPlan) -> InTurns:
    """The same, with what is in common."""
    turns, found = adding(plan), _Common(plan, shared)
    common = [x for x in turns.each.launches if found.takes(x)]
    each = [x for x in turns.each.launches if x not in common]
    if not common or len(each) != 1:  # (of several, one might write over what is in common)
        return turns
    made = tuple(
        ShardArray(f"made{k}", plan.buffers[n].dtype, axes)
        for k, (n, axes) in enumerate(found.axes.items())
    )
    taken = tuple(Argument("tensor", a.dtype, (None,) * len(a.axes or ()), a.name) for a in made)
    places = {n: len(plan.arguments) + k for k, n in enumerate(found.axes)}
    operands = tuple(_instead(o, places) for o in each[0].operands)
    return InTurns(
        replace(plan, launches=tuple(common), results=tuple(["buffer", n] for n in places)),
        replace(turns.each, arguments=(*plan.arguments, *taken),
                launches=(replace(each[0], operands=operands),)),
        made, places,
    )  # fmt: skip


@dataclass
class _Common:
    """Finds launches of what stays, in order, and the axes of the buffers that they make. (One that
    reads nothing sets to 0 what others add to.)"""

    plan: Plan
    shared: ShardPlan
    axes: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def takes(self, launch: Launch) -> bool:
        arrays = dict.fromkeys(_arrays(launch))
        read = [self.shared.arguments[n].axes or () for kind, n in arrays if kind == "argument"]
        made = {n: self._axes_of(n) for kind, n in arrays if kind == "buffer"}
        numbers = [*launch.grid, *(o[2] for o in launch.operands if o[0] == "value")]
        along = {a for axes in read for a in axes if a in self.shared.axes}
        if (
            not (read and made) or self.shared.axes[-1] in along
            or any(axes is None or not along <= {*axes} for axes in made.values())
            or not all(map(self._stays, numbers))
        ):  # fmt: skip
            return False
        self.axes |= {n: axes for n, axes in made.items() if axes}
        return True

    def _axes_of(self, number: int) -> tuple[str, ...] | None:
        """The axes whose extents a buffer has; None for a result, and for other extents."""
        buffer = self.plan.buffers[number]
        own = buffer.of is None and buffer.pitch == 1
        if not own or ("buffer", number) in [tuple(r) for r in self.plan.results]:
            return None
        found = [self._axis(extent) for extent in buffer.shape]
        return None if None in found else tuple(a for a in found if a)

    def _axis(self, extent: Any) -> str | None:
        if not isinstance(extent, list) or extent[0] != "dim":
            return None
        return (self.shared.arguments[extent[1]].axes or ())[extent[2]]

    def _stays(self, number: Any) -> bool:
        """Whether an expression is the same in all runs, but for rows that some do not have."""
        if not isinstance(number, list):
            return True
        if number[0] == "argument":
            return False
        if number[0] == "dim":
            return self._axis(number) != self.shared.axes[-1]
        return all(map(self._stays, number[1:]))


def _instead(operand: Sequence[Any], places: Mapping[int, int]) -> Sequence[Any]:
    """An operand, where a buffer is an argument. (Maps and such name the array behind what they
    are.)"""
    for k in (0, 1):
        if operand[k] == "buffer" and operand[k + 1] in places:
            return [*operand[:k], "argument", places[operand[k + 1]], *operand[k + 2 :]]
    return operand


def _arrays(launch: Launch) -> list[tuple[str, int]]:
    """The arrays of a launch."""
    return [tuple(o[:2]) for o in launch.operands if o[0] in ("argument", "buffer")]
