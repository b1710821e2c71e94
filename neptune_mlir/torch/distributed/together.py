# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of two processes in which each row is in one run over the data of both, one behind the
other (`ShardSchedule.together`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from neptune_mlir.runtime.shards.gift import Gift
from neptune_mlir.runtime.shards.in_two import ArraysInTwo
from neptune_mlir.runtime.shards.layout import Piece
from neptune_mlir.runtime.shards.order import LeftOver
from neptune_mlir.runtime.shards.plan import SIZE, Stack, Together
from neptune_mlir.torch.distributed.exchange import CopyExchange, groups_of
from neptune_mlir.torch.distributed.kernels import call
from neptune_mlir.torch.distributed.pieces import DTYPES, narrow, side_by_side

if TYPE_CHECKING:
    from neptune_mlir.torch.distributed.run import ShardCall

AUTO, TOGETHER, CARRY, JOIN = "auto", "together", "carry", "join"  # forms of a call


@dataclass
class _Coming:
    """What travels, of both processes: how kernels get it.

    Attributes:
        dims: of each argument that travels, by name, where it does.
        own, theirs: its tensors, by name.
        word, timeout, step, last, gift: see `ArraysInTwo`.
    """

    found: Together
    dims: Mapping[str, int]
    own: Mapping[str, torch.Tensor]
    theirs: dict[str, torch.Tensor]
    copies: bool
    word: int = 0
    timeout: int = 0
    step: int = 0
    last: int = 0
    gift: Gift | None = None

    def of(self, name: str, span: Piece) -> Any:
        """Positions of an argument, of both one behind the other."""
        first, second = self.own[name], self.theirs[name]
        if not self.found.own_first:
            first, second = second, first
        dim, border, (low, high) = self.dims[name], self.found.border, span
        if high <= border:
            return first.narrow(dim, low, high - low)
        if low >= border:
            return second.narrow(dim, low - border, high - low)
        pair = first.narrow(dim, low, border - low), second.narrow(dim, 0, high - border)
        if not self.copies:
            return torch.cat(pair, dim)
        return ArraysInTwo(
            pair, dim, int(self.found.own_first), self.word, self.timeout, self.step, self.last,
            self.gift,
        )  # fmt: skip


class TogetherCall:
    """Runs such a call."""

    def __init__(self, call: ShardCall):
        self.call, self.plan, self.kernels = call, call.plan, call.kernels
        self.schedule, self.rank, self.traveling = call.schedule, call.rank, call.traveling
        self.moving = [a for a in self.plan.arguments if a.axes and self.traveling in a.axes]

    def is_possible(self) -> bool:
        """Whether one kernel runs over the data of both devices: every process finds the same."""
        calls = [self.schedule.together(rank) for rank in range(self.call.size)]
        form = self.call.kernel.form
        if not all(calls) or form not in (AUTO, TOGETHER) or len(self._front()) > 1:
            return False
        return self.kernels.takes_two if self.call.copies else form == TOGETHER

    def run(self, results: dict[str, torch.Tensor]) -> None:
        """The results, each in one run over the data of both devices, which begins before the
        other one's have come."""
        call_, plan, found = self.call, self.plan, self.schedule.together(self.rank)
        assert found is not None
        exchange = call_.exchange(call_.copies, self.step_at_once, self._gives(found))
        call_.make(self.traveling, results)
        made = {r.name: r.axes for r in plan.joins[self.traveling].results}
        # where all programs that wait run at once, those that wait for nobody are first, and they
        # take over where these end; else they are first, and the others fill their end
        rest, calls = self._left_over(), found.calls
        if rest is not None:
            calls = tuple(c.on(plan.axes[0], (0, rest.start)) for c in calls)
        coming = self._coming(found, exchange)
        late = coming.step > 0
        if late and (stack := self._stack()):
            self._run_stacked(stack, coming, results)
            return
        beside = call_.beside(len(calls) > 1)
        if isinstance(exchange, CopyExchange) and not late:
            beside.follow(exchange.side)  # in graphs nothing else says which is first
        for run in sorted(calls, key=lambda c: found.has_both(c, self.traveling) == late):
            spans = {a: span for a, span in run.spans.items() if a != self.traveling}
            numbers = plan.numbers(run.starts, self.schedule.sizes)
            arguments = [
                coming.of(a.name, run.spans[self.traveling]) if a.name in coming.dims
                else narrow(call_.arguments[a.name], a.axes, spans) for a in plan.arguments
            ]  # fmt: skip
            out = [narrow(results[n], axes, spans) for n, axes in made.items()]
            waits = found.has_both(run, self.traveling)
            with beside.last() if waits == late else beside.first():
                call(self.kernels.whole, [*arguments, *numbers.values()], out)
        beside.meet()
        if rest is not None:
            data = call_.arguments
            self._in_chunks(rest, [data, data | coming.theirs], results)

    def _stack(self) -> Stack | None:
        """The runs as one, where there are several and a kernel for that."""
        found, first = self.schedule.stack(self.rank), (self.moving[0].axes or ("",))[0]
        if found is None or self.call.extents[first] != 1:
            return None
        kernels = self.kernels
        is_there = kernels.stacked_takes_two if self.call.copies else kernels.stacked is not None
        return found if is_there else None

    def _run_stacked(
        self, stack: Stack, coming: _Coming, results: dict[str, torch.Tensor]
    ) -> None:
        """All runs as one, whose long programs come first, whatever piece they are of."""
        plan, count = self.plan, len(stack.starts)
        rows, found = plan.axes[0], coming.found
        total = self.call.extents[self.traveling] + found.needed[1] - found.needed[0]
        one = replace(
            coming, dims={n: dim - 1 for n, dim in coming.dims.items()},
            own={n: x[0] for n, x in coming.own.items()},
            theirs={n: x[0] for n, x in coming.theirs.items()}, last=-1,
        )  # fmt: skip

        def points(x: torch.Tensor, axes: Sequence[str]) -> torch.Tensor:
            at = axes.index(rows) - 1
            return x[0].unflatten(at, (count, stack.length)).movedim(at, 0)

        arguments = [
            one.of(a.name, (0, total)) if a.name in one.dims
            else points(self.call.arguments[a.name], a.axes or ()) for a in plan.arguments
        ]  # fmt: skip
        sizes = [self.schedule.sizes[p.axis] for p in plan.positions if p.kind == SIZE]
        made = {r.name: r.axes or () for r in plan.joins[self.traveling].results}
        told = self.call.kernel.told(stack, self.call.device)
        out = [points(results[n], axes) for n, axes in made.items()]
        assert self.kernels.stacked is not None
        call(self.kernels.stacked, [*arguments, *sizes, *told], out)

    def _coming(self, found: Together, exchange: Any) -> _Coming:
        """What travels, which an exchange has begun to bring."""
        dims = {a.name: (a.axes or ()).index(self.traveling) for a in self.moving}
        if isinstance(exchange, CopyExchange):
            got, word, timeout = exchange.coming(1 - self.rank)
        else:
            got, word, timeout = exchange.get(1 - self.rank), 0, 0
        start, end = found.needed
        theirs = {name: x.narrow(dim, start, end - start)
                  for (name, dim), x in zip(dims.items(), got, strict=True)}  # fmt: skip
        own = {name: self.call.arguments[name] for name in dims}
        made = _Coming(found, dims, own, theirs, self.call.copies, word, timeout)
        made.gift = exchange.gift if isinstance(exchange, CopyExchange) else None
        made.step = self.step_at_once(self.rank)
        made.last = 0 if made.step else self._last_lanes(list(theirs.values()))
        return made

    def _gives(self, found: Together) -> bool:
        """Whether the run of a process sends what the other one waits for: it is the only one, so
        it begins at once."""
        one = len(found.calls) == 1 and found.has_both(found.calls[0], self.traveling)
        return self.call.copies and one and self.kernels.gives

    def _front(self) -> set[tuple[str, ...]]:
        """The axes of the lanes of what travels."""
        axes = [a.axes or () for a in self.moving]
        return {tuple(x[: x.index(self.traveling)]) for x in axes}

    def step_at_once(self, reader: int) -> int:
        """How many positions of all lanes a process gets first; 0: it gets lanes."""
        return self.schedule.step_at_once(reader, self.lanes)

    def _last_lanes(self, coming: Sequence[torch.Tensor]) -> int:
        """See `ShardSchedule.last_lanes`."""
        if not self._multiprocessors:
            return 0
        groups = groups_of(self.lanes, sum(x.numel() * x.element_size() for x in coming))
        return self.schedule.last_lanes(self.rank, self.lanes, groups, self._multiprocessors)

    @property
    def _multiprocessors(self) -> int:
        device = self.call.device
        if device.type != "cuda":
            return 0
        return torch.cuda.get_device_properties(device).multi_processor_count

    @property
    def lanes(self) -> int:
        """Of the results."""
        axes = self.plan.joins[self.traveling].results[0].axes or ()
        return math.prod(self.call.extents[a] for a in axes[: axes.index(self.plan.axes[0])])

    def _left_over(self) -> LeftOver | None:
        """What a run together leaves to chunks of both devices' data, which become points of the
        first axis of all arguments."""
        axes = [*(a.axes for a in self.plan.arguments), *(p.axes for p in self.plan.parts)]
        first = {(a or ("",))[0] for a in axes}
        one = len(first) == 1 and self.call.extents.get(first.pop()) == 1
        if not one or not self._multiprocessors:
            return None
        return self.schedule.left_over(
            self.rank, self.kernels.rows, self.lanes, self._multiprocessors
        )

    def _in_chunks(
        self, rest: LeftOver, data: Sequence[Mapping[str, Any]], results: dict[str, torch.Tensor]
    ) -> None:  # fmt: skip
        """The results of the rows that are left over."""
        rows, chunks, extents = self.plan.axes[0], rest.chunks, self.call.extents
        spans = {rows: (rest.start, extents[rows])}
        sizes = extents | {rows: extents[rows] - rest.start}
        slots: dict[str, list[torch.Tensor]] = {p.name: [] for p in self.plan.parts}
        for arrays in data:
            given = [
                side_by_side(narrow(arrays[a.name], a.axes, spans), a.axes or (), self.traveling,
                             chunks) for a in self.plan.arguments
            ]  # fmt: skip
            made = [
                torch.empty([chunks, *(sizes[a] for a in p.axes[1:])], dtype=DTYPES[p.dtype],
                            device=self.call.device) for p in self.plan.parts
            ]  # fmt: skip
            call(self.kernels.local, given, made)
            for p, x in zip(self.plan.parts, made, strict=True):
                slots[p.name] += x.split(1)
        self.call.join_slots(self.traveling, len(data) * chunks, slots, spans, results)
