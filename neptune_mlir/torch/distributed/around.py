# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls whose data travel and whose parts do: over one axis they stay, over the other one they go
to those whose data they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from neptune_mlir.runtime.shards.layout import Piece
from neptune_mlir.runtime.shards.plan import Run, ShardPart
from neptune_mlir.torch.distributed.exchange import CopyGifts, Gifts, RingGifts, Span
from neptune_mlir.torch.distributed.kernels import call
from neptune_mlir.torch.distributed.pieces import DTYPES, by_name, narrow

if TYPE_CHECKING:
    from neptune_mlir.torch.distributed.run import ShardCall

Slots: TypeAlias = Sequence[torch.Tensor] | torch.Tensor  # parts, one after the other


class AroundCall:
    """Runs such a call: with some of a process's own data, with the others', with the rest of its
    own, and joins."""

    def __init__(self, call: ShardCall):
        self.call, self.plan, self.kernels = call, call.plan, call.kernels
        self.schedule, self.rank, self.traveling = call.schedule, call.rank, call.traveling
        self._gifts: Gifts | None = None
        self._kept: list[torch.Tensor] = []  # parts of this process's own data, made here

    def run(self, results: dict[str, torch.Tensor]) -> None:
        """All results."""
        for over in self.plan.joins:
            self.call.make(over, results)
        self._rest(self._met(), results)

    def _met(self) -> dict[str, Slots]:
        """The parts over the traveling axis of all but what is met late; those over the other one
        are on their way then (`_given`)."""
        schedule, rank, leaving = self.schedule, self.rank, self._leaving
        moving, exchange = self.call.moving, self.call.exchange()

        def given(giver: int, reader: int) -> list[tuple[torch.Size, torch.dtype]]:
            return [
                (torch.Size([schedule.count(p.over, giver, [reader]),
                             *self.call.shape(p.axes, reader)]), DTYPES[p.dtype])
                for p in leaving
            ]  # fmt: skip

        if leaving and self.call.size > 1:
            self._gifts = (CopyGifts if self.call.copies else RingGifts)(
                self.call.group, self.call.device, given, self._parcels
            )
            self.call.open.append(self._gifts)
        owners = list(schedule.owners(rank))
        parts = {
            p.name: self.call.buffer(p, schedule.count(p.over, rank, owners), rank)
            for p in self.plan.parts if p not in leaving
        }  # fmt: skip
        if schedule.adds:
            for x in parts.values():
                x.zero_()
        for owner in owners:
            data = self.call.arguments
            if owner != rank:
                got = exchange.get(owner)
                data = data | {a.name: x for a, x in zip(moving, got, strict=True)}
            gone = [torch.empty(shape, dtype=kind, device=self.call.device)
                    for shape, kind in given(rank, owner)]  # fmt: skip
            runs = [r for r in schedule.runs(rank, owner) if not r.late]
            if owner == rank:
                self._kept = gone
                self.call.compute(runs, data, parts | by_name(leaving, gone), {})
            else:
                self._give(owner, runs, data, parts, gone)
        return {**parts}

    def _give(
        self, owner: int, runs: Sequence[Run], data: Mapping[str, Any],
        parts: Mapping[str, torch.Tensor], gone: Sequence[torch.Tensor],
    ) -> None:  # fmt: skip
        """Runs with another process's data, each parcel of whose parts goes to it as soon as no run
        adds to it."""
        left, sent = list(runs), 0
        leaving = by_name(self._leaving, gone)
        parcels = self.schedule.parcels(self.rank, owner) if self._gifts is not None else []
        while left or sent < len(parcels):
            if left:
                self.call.compute([left.pop(0)], data, {**parts, **leaving}, {})
            spans = [r.call.spans[self.traveling] for r in left]
            while sent < len(parcels) and not any(_meet(parcels[sent], x) for x in spans):
                assert self._gifts is not None
                self._gifts.post(owner, gone, sent)
                sent += 1

    @property
    def _leaving(self) -> list[ShardPart]:
        """The parts that go to those whose data they are of."""
        return [p for p in self.plan.parts if p.over != self.traveling]

    def _parcels(self, giver: int, reader: int) -> list[list[Span]]:
        """The spans of parts in each parcel; what does not have the axis goes with the last."""
        parcels = self.schedule.parcels(giver, reader)
        whole = [self.schedule.count(p.over, giver, [reader]) for p in self._leaving]
        return [
            [(1 + p.axes.index(self.traveling), start, end - start)
             if self.traveling in p.axes else (0, 0, n if k + 1 == len(parcels) else 0)
             for p, n in zip(self._leaving, whole, strict=True)]
            for k, (start, end) in enumerate(parcels)
        ]  # fmt: skip

    def _rest(self, parts: dict[str, Slots], results: dict[str, torch.Tensor]) -> None:
        """What is met late, and the joins. Those of positions that were met before wait for other
        processes alone: they fill the end of what is met late. What is met late gives results where
        it can begin with the parts of another process: these wait for no join."""
        others = [a for a in self.plan.joins if a != self.traveling]
        late = self.schedule.late_spans(self.rank)
        beside, own = self.call.beside(bool(late)), by_name(self._leaving, self._kept)
        taken: list[int] = []  # parcels
        with beside.first():
            for turn, _ in enumerate(late, 1):
                runs = [r for r in self.schedule.runs(self.rank, self.rank) if r.late == turn]
                if self.schedule.is_finished(self.rank, turn):
                    self._finish(runs[0], turn - 1, parts, results)
                    taken.append(turn - 1)
                else:
                    self.call.compute(runs, self.call.arguments, {**parts, **own}, {})
            if self.traveling in self.plan.joins:  # these wait for nobody
                self.call.join(self.traveling, parts, results)
        with beside.last():
            parts |= self._given(taken) if others else {}
            for over in others:
                within = late[-1][1] if late else 0, self.call.extents[self.traveling]
                self.call.join(over, parts, results, within)
        beside.meet()
        for turn, span in enumerate(late):
            for over in others if turn not in taken else ():
                self.call.join(over, parts, results, span)

    def _finish(
        self, run: Run, parcel: int, parts: Mapping[str, Slots],
        results: Mapping[str, torch.Tensor],
    ) -> None:  # fmt: skip
        """Results over the first axis, by a run that begins with the parts that the other process
        has of them."""
        assert self._gifts is not None and self.kernels.finishing is not None
        received = self._gifts.take(1 - self.rank, parcel)
        first, spans = self.plan.axes[0], run.call.spans
        numbers = self.plan.numbers(run.call.starts, self.schedule.sizes)
        given = [narrow(self.call.arguments[a.name], a.axes, spans) for a in self.plan.arguments]
        before = [narrow(x[0], p.axes, spans)
                  for x, p in zip(received, self._leaving, strict=True)]  # fmt: skip
        out = [narrow(results[r.name], r.axes, spans) for r in self.plan.joins[first].results]
        out += [narrow(parts[p.name][run.slots[p.over]], p.axes, spans)
                for p in self.plan.parts if p.over != first]  # fmt: skip
        made = []
        if self.schedule.adds:
            made = [narrow(x, a.axes, spans) for a, x in self.call.in_common(numbers)]
        call(self.kernels.finishing, [*given, *numbers.values(), *before, *made], out)

    def _given(self, taken: Sequence[int]) -> dict[str, Slots]:
        """The parts of all processes' runs that are of this one's data, which it waits for, but for
        parcels that were taken."""
        every = []
        for r in range(self.call.size):
            received = self._kept
            if r != self.rank and self._gifts is not None:
                parcels = range(len(self.schedule.parcels(r, self.rank)))
                received = [self._gifts.take(r, k) for k in parcels if k not in taken][-1]
            every.append(received)
        return {
            p.name: [slot for received in every for slot in received[k]]
            for k, p in enumerate(self._leaving)
        }


def _meet(one: Piece, other: Piece) -> bool:
    """Whether two spans have a position in common."""
    return max(one[0], other[0]) < min(one[1], other[1])
