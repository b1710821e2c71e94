# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program over the processes of a group: computes, passes on, joins.

One sharded axis: each process reduces its piece, parts are gathered, and each joins all of them.
Two: the data of the last axis travel, each process computes with those of every other, joins the
parts that it keeps, and gives the others back to those whose data they are of. Parts are joined in
the order of `ShardSchedule`, whoever came first, so results have the same bits in every run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from neptune_mlir.errors import ArgumentError, UsageError
from neptune_mlir.runtime.shards.in_two import ArraysInTwo
from neptune_mlir.runtime.shards.layout import Call, ShardLayout
from neptune_mlir.runtime.shards.order import LeftOver
from neptune_mlir.runtime.shards.plan import (
    FEW,
    ChainLink,
    ShardArray,
    ShardPart,
    ShardSchedule,
    Stretch,
)
from neptune_mlir.torch.distributed.beside import Beside
from neptune_mlir.torch.distributed.exchange import (
    WORDS,
    CopyExchange,
    CopyGifts,
    Exchange,
    Gather,
    Gifts,
    Offer,
    Open,
    RingExchange,
    RingGifts,
    all_gather,
    answering,
    groups_of,
)
from neptune_mlir.torch.distributed.kernels import ShardKernels, call
from neptune_mlir.torch.distributed.pieces import (
    by_name,
    bytes_of,
    ends_of,
    extents_of,
    narrow,
    side_by_side,
    start_of,
    unpacked,
)

_DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "i1": torch.bool, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip
_SCHEDULES = 64  # that a kernel keeps
AUTO, TOGETHER, CARRY, JOIN = "auto", "together", "carry", "join"  # forms of a call
Slots: TypeAlias = Sequence[torch.Tensor] | torch.Tensor  # parts, one after the other


class ShardedKernel:
    """A program over the processes of a group; called with each process's pieces of its arguments.

    Attributes:
        kernels: what runs on each device.
        group: of torch.distributed.
        layouts: the pieces of each sharded axis; None where they are one a process, in the order of
            ranks, whose lengths each call asks for.
        transport: "ring" by torch.distributed, "copy" by copy engines from symmetric memory (CUDA).
        gathers: whether each process takes all of the data that travel and runs the program on
            them at once, where its results allow that: for short lengths on many devices.
        form: how the runs of a call meet, where the data travel.
    """

    def __init__(
        self, kernels: ShardKernels, group: dist.ProcessGroup,
        layouts: Mapping[str, ShardLayout] | None = None, transport: str = "ring",
        gathers: bool = False, form: str = AUTO,
    ):  # fmt: skip
        if transport not in ("ring", "copy"):
            raise UsageError(f"no transport '{transport}'", hint="ring or copy")
        self.kernels, self.plan = kernels, kernels.plan
        self.group, self.transport = group, transport
        traveling = self.plan.axes[-1]
        results = [r for join in self.plan.joins.values() for r in join.results]
        self.gathers = gathers and len(self.plan.axes) == 2 and [*self.plan.joins] == [
            traveling
        ] and not any(traveling in (r.axes or ()) for r in results)  # fmt: skip
        self.layouts, self.form = layouts, form
        self._schedules: dict[Any, ShardSchedule] = {}
        self.beside = functools.cache(Beside)

    def __call__(self, *arguments: Any, layouts: Mapping[str, ShardLayout] | None = None) -> Any:
        """This process's pieces of the results.

        Raises:
            ArgumentError: arguments that are not the pieces that a layout says.
            PeerError: another process did not answer.
        """
        if len(arguments) != len(self.plan.arguments):
            raise ArgumentError(
                f"'{self.plan.name}' takes {len(self.plan.arguments)} arguments, got "
                f"{len(arguments)}"
            )
        layouts = layouts or self.layouts or self._asked(arguments)
        return _ShardCall(self, arguments, self._schedule(layouts)).run()

    def _schedule(self, layouts: Mapping[str, ShardLayout]) -> ShardSchedule:
        key = tuple(layouts[a] for a in self.plan.axes)
        if key not in self._schedules:
            if len(self._schedules) >= _SCHEDULES:
                self._schedules.clear()
            self._schedules[key] = ShardSchedule(self.plan, dict(layouts))
        return self._schedules[key]

    def _asked(self, arguments: Sequence[Any]) -> dict[str, ShardLayout]:
        """Contiguous layouts of what the processes have."""
        extents = extents_of(self.plan.arguments, arguments)
        device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
        mine = torch.tensor([extents[a] for a in self.plan.axes], device=device)
        every = mine.new_empty(self.group.size(), len(self.plan.axes))
        with answering("asking for lengths", self.group):
            all_gather(every.view(-1), mine, self.group)
        lengths = every.T.tolist()
        return {a: ShardLayout.contiguous(n) for a, n in zip(self.plan.axes, lengths, strict=True)}


class _ShardCall:
    """One call: the buffers of the parts, and what is done when."""

    def __init__(self, kernel: ShardedKernel, arguments: Sequence[Any], schedule: ShardSchedule):
        self.kernel, self.kernels, self.plan = kernel, kernel.kernels, kernel.plan
        self.group, self.schedule = kernel.group, schedule
        self.rank, self.size = self.group.rank(), self.group.size()
        self.traveling = self.plan.axes[-1]
        self.arguments = {a.name: x for a, x in zip(self.plan.arguments, arguments, strict=True)}
        self.arguments = {
            n: x.detach() if isinstance(x, torch.Tensor) else x for n, x in self.arguments.items()
        }
        self.extents = dict(self.plan.extents) | extents_of(self.plan.arguments, arguments)
        tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
        self.device = tensors[0].device
        self.copies, self.gathers = kernel.transport == "copy", kernel.gathers
        self.meeting: tuple[int, ...] = ()  # with what a join meets the other process
        self._open: list[Open] = []
        if schedule.devices != self.size:
            raise UsageError(f"a layout for {schedule.devices} of {self.size} processes")
        for axis, layout in schedule.layouts.items():
            if layout.lengths[self.rank] != self.extents[axis]:
                raise ArgumentError(
                    f"process {self.rank} has {self.extents[axis]} positions of '{axis}', and "
                    f"{layout.lengths[self.rank]} by its layout"
                )

    def run(self) -> Any:
        results: dict[str, torch.Tensor] = {}
        if self.gathers:
            self._at_once(results)
        elif self._is_together():
            self._together(results)
        elif self.plan.carries and self.kernel.form != JOIN:
            self._along(results)
        else:
            alone = len(self.plan.axes) == 1
            parts: Mapping[str, Slots] = self._alone(results) if alone else self._around()
            for over in self.plan.joins:
                self._join(over, parts, results)
        for exchange in self._open:
            exchange.done()
        found = tuple(results[name] for name in self.plan.results)
        return found[0] if len(found) == 1 else found

    def _shape(self, axes: Sequence[str], owner: int) -> list[int]:
        """The extents of axes where the traveling one is `owner`'s."""
        lengths = self.schedule.layouts[self.traveling].lengths
        return [lengths[owner] if a == self.traveling else self.extents[a] for a in axes]

    def _buffer(self, part: ShardPart, count: int, owner: int) -> torch.Tensor:
        shape = [count, *self._shape(part.axes, owner)]
        return torch.empty(shape, dtype=_DTYPES[part.dtype], device=self.device)

    # one sharded axis

    def _alone(self, results: dict[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        """The parts of all processes, one by one; results that need no other go to `results`."""
        (axis,) = self.plan.axes
        for array in self.plan.here:
            shape = self._shape(array.axes or (), self.rank)
            results[array.name] = torch.empty(
                shape, dtype=_DTYPES[array.dtype], device=self.device
            )
        counts = [self.schedule.count(axis, r, [r]) for r in range(self.size)]
        room = max(1, *counts)
        kinds = [((room, *self._shape(p.axes, self.rank)), _DTYPES[p.dtype])
                 for p in self.plan.parts]  # fmt: skip
        packed = Gather(bytes_of(kinds), self.group, self.device, self.copies)
        mine = unpacked(packed.mine, kinds)
        self._compute(self.rank, self.arguments, dict(zip(self._names(), mine, strict=True)),
                      results)  # fmt: skip
        every = [unpacked(x, kinds) for x in packed.every(self._meets(packed))]
        return {
            part.name: [x for r, n in enumerate(counts) for x in every[r][k][:n]]
            for k, part in enumerate(self.plan.parts)
        }  # fmt: skip

    def _meets(self, packed: Gather) -> bool:
        """Whether the join's programs wait for the other process themselves."""
        (axis,) = self.plan.axes
        stretches, join = self.schedule.stretches(axis, self.rank), self.plan.joins[axis]
        most = max(math.prod(self._shape(r.axes or (), self.rank)) for r in join.results)
        alone = len(stretches) == 1 and not stretches[0].missing and stretches[0].count > 0
        if packed.memory is None or self.size != 2 or most > WORDS or not alone:
            return False
        if join.arguments:  # which may have to be copied (`call`)
            return False
        if self.kernels.meeting(axis, stretches[0].count) is None:
            return False
        self.meeting = packed.memory.meeting()
        return True

    def _names(self) -> list[str]:
        return [p.name for p in self.plan.parts]

    # two sharded axes

    def _exchange(self, counted: bool = False) -> tuple[list[ShardArray], Exchange]:
        """The arguments that travel, on their way."""
        moving = [a for a in self.plan.arguments if a.axes and self.traveling in a.axes]
        exchange = (CopyExchange if self.copies else RingExchange)(self.group, self.device)
        self._open.append(exchange)

        def shapes(owner: int) -> list[tuple[torch.Size, torch.dtype]]:
            return [(torch.Size(self._shape(a.axes or (), owner)), self.arguments[a.name].dtype)
                    for a in moving]  # fmt: skip

        exchange.start(Offer(
            [self.arguments[a.name] for a in moving],
            [(a.axes or ()).index(self.traveling) for a in moving], shapes, self._needed,
            counted, self._step_at_once,
        ))  # fmt: skip
        return moving, exchange

    def _needed(self, reader: int, owner: int) -> tuple[int, int]:
        """What a process asks for of an owner's data."""
        if self.gathers:
            return 0, self.schedule.layouts[self.traveling].lengths[owner]
        return self.schedule.needed(reader, owner)

    def _step_at_once(self, reader: int) -> int:
        """How many positions of all lanes a process gets first; 0: it gets lanes."""
        return self.schedule.step_at_once(reader, self._lanes)

    def _last_lanes(self, coming: Sequence[torch.Tensor]) -> int:
        """See `ShardSchedule.last_lanes`."""
        if not self._multiprocessors:
            return 0
        groups = groups_of(self._lanes, sum(x.numel() * x.element_size() for x in coming))
        return self.schedule.last_lanes(self.rank, self._lanes, groups, self._multiprocessors)

    @property
    def _multiprocessors(self) -> int:
        if self.device.type != "cuda":
            return 0
        return torch.cuda.get_device_properties(self.device).multi_processor_count

    @property
    def _lanes(self) -> int:
        axes = self.plan.joins[self.traveling].results[0].axes or ()
        return math.prod(self.extents[a] for a in axes[: axes.index(self.plan.axes[0])])

    def _at_once(self, results: dict[str, torch.Tensor]) -> None:
        """The program on all of the data that travel, for each piece of what stays."""
        moving, exchange = self._exchange()
        staying, layouts = self.plan.axes[0], self.schedule.layouts
        got = {self.rank: [self.arguments[a.name] for a in moving]}
        for owner in list(self.schedule.owners(self.rank))[1:]:
            got[owner] = exchange.get(owner)
        pieces = sorted(
            (start, at, end - start, owner)
            for owner, own in enumerate(layouts[self.traveling].pieces)
            for (start, end), at in zip(own, [0, *ends_of(own)], strict=False)
        )
        data = dict(self.arguments)
        for k, a in enumerate(moving):
            dim = (a.axes or ()).index(self.traveling)
            data[a.name] = torch.cat(
                [got[owner][k].narrow(dim, at, n) for _, at, n, owner in pieces], dim
            )
        arrays = {r.name: r for r in self.plan.joins[self.traveling].results}
        self._make(self.traveling, results)
        at = 0
        for start, end in layouts[staying].pieces[self.rank]:
            spans = {staying: (at, at + end - start)}
            at += end - start
            starts = {staying: start, self.traveling: 0}
            numbers = self.plan.numbers(starts, self.schedule.sizes)
            arguments = [narrow(data[a.name], a.axes, spans) for a in self.plan.arguments]
            out = [narrow(results[n], arrays[n].axes, spans) for n in self.plan.results]
            if end > start:
                call(self.kernels.whole, [*arguments, *numbers.values()], out)

    def _is_together(self) -> bool:
        """Whether one kernel runs over the data of both devices: every process finds the same."""
        calls = [self.schedule.together(rank) for rank in range(self.size)]
        if not all(calls) or self.kernel.form not in (AUTO, TOGETHER):
            return False
        moving = [a.axes for a in self.plan.arguments if a.axes and self.traveling in a.axes]
        front = {axes[: axes.index(self.traveling)] for axes in moving}
        if len(front) > 1:
            return False
        return self.kernels.takes_two if self.copies else self.kernel.form == TOGETHER

    def _together(self, results: dict[str, torch.Tensor]) -> None:
        """The results, each in one run over the data of both devices, which begins before the
        other one's have come."""
        plan, found, rank = self.plan, self.schedule.together(self.rank), self.rank
        assert found is not None
        moving, exchange = self._exchange(counted=self.copies)
        self._make(self.traveling, results)
        made = {r.name: r.axes for r in plan.joins[self.traveling].results}
        if isinstance(exchange, CopyExchange):
            got, word, timeout = exchange.coming(1 - rank)
        else:
            got, word, timeout = exchange.get(1 - rank), 0, 0
        start, end = found.needed
        theirs = {a.name: narrow(x, a.axes, {self.traveling: (start, end)})
                  for a, x in zip(moving, got, strict=True)}  # fmt: skip

        def given(a: ShardArray, span: tuple[int, int]) -> Any:
            """Positions of an argument that travels, of both devices' data one behind the other."""
            first, second = self.arguments[a.name], theirs[a.name]
            if not found.own_first:
                first, second = second, first
            dim, (low, high) = (a.axes or ()).index(self.traveling), span
            if high <= found.border:
                return first.narrow(dim, low, high - low)
            if low >= found.border:
                return second.narrow(dim, low - found.border, high - low)
            pair = (first.narrow(dim, low, found.border - low),
                    second.narrow(dim, 0, high - found.border))  # fmt: skip
            if not self.copies:
                return torch.cat(pair, dim)
            return ArraysInTwo(pair, dim, int(found.own_first), word, timeout, step, last)

        def is_both(call: Call) -> bool:
            return found.has_both(call, self.traveling)

        # where all programs that wait run at once, those that wait for nobody are first, and they
        # take over where these end; else they are first, and the others fill their end
        rest, calls = self._left_over(), found.calls
        if rest is not None:
            calls = tuple(c.on(plan.axes[0], (0, rest.start)) for c in calls)
        step = self._step_at_once(rank)
        last = 0 if step else self._last_lanes(list(theirs.values()))
        beside = self._beside(len(calls) > 1)
        if isinstance(exchange, CopyExchange) and not step:
            beside.follow(exchange.side)  # in graphs nothing else says which is first
        for run in sorted(calls, key=lambda c: is_both(c) == bool(step)):
            spans = {a: span for a, span in run.spans.items() if a != self.traveling}
            numbers = plan.numbers(run.starts, self.schedule.sizes)
            arguments = [
                given(a, run.spans[self.traveling]) if a.name in theirs
                else narrow(self.arguments[a.name], a.axes, spans) for a in plan.arguments
            ]  # fmt: skip
            out = [narrow(results[n], axes, spans) for n, axes in made.items()]
            with beside.last() if is_both(run) == bool(step) else beside.first():
                call(self.kernels.whole, [*arguments, *numbers.values()], out)
        beside.meet()
        if rest is not None:
            self._in_chunks(rest, [self.arguments, self.arguments | theirs], results)

    def _left_over(self) -> LeftOver | None:
        """What a run together leaves to chunks of both devices' data, which become points of the
        first axis of all arguments."""
        axes = [*(a.axes for a in self.plan.arguments), *(p.axes for p in self.plan.parts)]
        first = {(a or ("",))[0] for a in axes}
        one = len(first) == 1 and self.extents.get(first.pop()) == 1
        if not one or not self._multiprocessors:
            return None
        return self.schedule.left_over(
            self.rank, self.kernels.rows, self._lanes, self._multiprocessors
        )

    def _in_chunks(
        self, rest: LeftOver, data: Sequence[Mapping[str, Any]], results: dict[str, torch.Tensor]
    ) -> None:  # fmt: skip
        """The results of the rows that are left over."""
        rows, chunks = self.plan.axes[0], rest.chunks
        spans = {rows: (rest.start, self.extents[rows])}
        sizes = self.extents | {rows: self.extents[rows] - rest.start}
        slots: dict[str, list[torch.Tensor]] = {p.name: [] for p in self.plan.parts}
        for arrays in data:
            given = [
                side_by_side(narrow(arrays[a.name], a.axes, spans), a.axes or (), self.traveling,
                             chunks) for a in self.plan.arguments
            ]  # fmt: skip
            made = [
                torch.empty([chunks, *(sizes[a] for a in p.axes[1:])], dtype=_DTYPES[p.dtype],
                            device=self.device) for p in self.plan.parts
            ]  # fmt: skip
            call(self.kernels.local, given, made)
            for p, x in zip(self.plan.parts, made, strict=True):
                slots[p.name] += x.split(1)
        self._join_slots(self.traveling, len(data) * chunks, slots, spans, results)

    def _along(self, results: dict[str, torch.Tensor]) -> None:
        """The results, each run beginning with the parts of those before: parts go from one of two
        buffers to the other."""
        plan, schedule, kernels = self.plan, self.schedule, self.kernels
        moving, exchange = self._exchange()
        self._make(self.traveling, results)
        made = {r.name: r.axes for r in plan.joins[self.traveling].results}
        sides = [{p.name: self._buffer(p, 1, self.rank)[0] for p in plan.parts} for _ in "ab"]
        every = [(o, link) for o, links in schedule.chain(self.rank).items() for link in links]
        chained = [link for _, link in every if not link.alone]
        beside = self._beside(0 < len(chained) < len(every))

        def run(owner_data: Mapping[str, Any], link: ChainLink) -> None:
            spans = link.call.spans
            numbers = plan.numbers(link.call.starts, schedule.sizes)
            given = [narrow(owner_data[a.name], a.axes, spans) for a in plan.arguments]
            there, to = sides[(link.before + 1) % 2], sides[link.before % 2]
            before = [narrow(there[p.name], p.axes, spans) for p in plan.parts]
            out = [narrow(to[p.name], p.axes, spans) for p in plan.parts]
            if link.last:
                out = [narrow(results[n], axes, spans) for n, axes in made.items()]
            call(
                kernels.link(not link.before, link.last),
                [*given, *numbers.values(), *(before if link.before else ())], out,
            )

        data = {self.rank: self.arguments}
        with beside.first():
            for owner, link in every:
                if owner not in data:
                    got = exchange.get(owner)
                    data[owner] = self.arguments | {
                        a.name: x for a, x in zip(moving, got, strict=True)
                    }
                if link.alone:
                    continue
                if link is chained[-1]:
                    beside.catch_up()
                run(data[owner], link)
        with beside.last():  # these fill the end of the last one
            for owner, link in every:
                if link.alone:
                    run(data[owner], link)
        beside.meet()
        for span in schedule.unseen(self.rank):
            for p in plan.parts:
                narrow(sides[0][p.name], p.axes, {plan.axes[0]: span}).fill_(p.empty)
            parts = {name: [x] for name, x in sides[0].items()}
            self._join_stretch(self.traveling, Stretch(span, 1, ()), parts, results)

    def _beside(self, wanted: bool) -> Beside:
        """Two streams that begin here; the current one for both where they are not wanted."""
        made = self.kernel.beside(self.device if wanted else torch.device("cpu"))
        made.begin()
        return made

    def _around(self) -> dict[str, Slots]:
        """The parts that this process joins: its own runs' over the traveling axis, all processes'
        over the other."""
        schedule, rank = self.schedule, self.rank
        moving, exchange = self._exchange()
        leaving = [p for p in self.plan.parts if p.over != self.traveling]

        def given(giver: int, reader: int) -> list[tuple[torch.Size, torch.dtype]]:
            return [
                (torch.Size([schedule.count(p.over, giver, [reader]),
                             *self._shape(p.axes, reader)]), _DTYPES[p.dtype])
                for p in leaving
            ]  # fmt: skip

        gifts: Gifts | None = None
        if leaving and self.size > 1:
            gifts = (CopyGifts if self.copies else RingGifts)(self.group, self.device, given)
            self._open.append(gifts)
        parts = {
            p.name: self._buffer(p, schedule.count(p.over, rank, list(schedule.owners(rank))), rank)
            for p in self.plan.parts if p not in leaving
        }  # fmt: skip
        own: list[torch.Tensor] = []
        for owner in schedule.owners(rank):
            data = self.arguments
            if owner != rank:
                got = exchange.get(owner)
                data = data | {a.name: x for a, x in zip(moving, got, strict=True)}
            gone = [torch.empty(shape, dtype=kind, device=self.device)
                    for shape, kind in given(rank, owner)]  # fmt: skip
            self._compute(owner, data, parts | by_name(leaving, gone), {})
            if owner == rank:
                own = gone
            elif gifts is not None:
                start, end = self._needed(rank, owner)
                axes = [p.axes.index(self.traveling) if self.traveling in p.axes else None
                        for p in leaving]  # fmt: skip
                gifts.post(owner, gone, [
                    (0, 0, len(x)) if axis is None else (1 + axis, start, end - start)
                    for x, axis in zip(gone, axes, strict=True)
                ])  # fmt: skip
        self._compute(rank, self.arguments, parts | by_name(leaving, own), {}, late=True)
        found: dict[str, Slots] = dict(parts)
        if leaving:
            every = [own if r == rank or gifts is None else gifts.take(r) for r in range(self.size)]
            for k, p in enumerate(leaving):
                found[p.name] = [slot for received in every for slot in received[k]]
        return found

    def _compute(
        self, owner: int, data: Mapping[str, Any], parts: Mapping[str, torch.Tensor],
        here: Mapping[str, torch.Tensor], late: bool = False,
    ) -> None:  # fmt: skip
        """The runs with the data of one process, into the slots of the parts."""
        for run in self.schedule.runs(self.rank, owner):
            if run.late != late:
                continue
            spans = run.call.spans
            numbers = self.plan.numbers(run.call.starts, self.schedule.sizes)
            arguments = [narrow(data[a.name], a.axes, spans) for a in self.plan.arguments]
            out = [narrow(parts[p.name][run.slots[p.over]], p.axes, spans)
                   for p in self.plan.parts]  # fmt: skip
            out += [narrow(here[a.name], a.axes, spans) for a in self.plan.here]
            call(self.kernels.local, [*arguments, *numbers.values()], out)

    # joins

    def _join(
        self, over: str, parts: Mapping[str, Slots], results: dict[str, torch.Tensor]
    ) -> None:
        """The results over an axis, stretch by stretch of the positions that keep it."""
        join, kept = self.plan.joins[over], self.schedule.kept(over)
        told = [p for p in self.plan.positions if p.name in join.arguments]
        self._make(over, results)
        pieces = self.schedule.layouts[kept or over].pieces[self.rank]
        cuts = ends_of(pieces) if kept and told else []
        if told and kept is None and len(pieces) > 1:
            raise UsageError(f"results along '{over}' need one piece of it on each device")
        for stretch in self.schedule.stretches(over, self.rank, cuts):
            self._join_stretch(over, stretch, parts, results)

    def _make(self, over: str, results: dict[str, torch.Tensor]) -> None:
        """Room for the results over an axis."""
        for array in self.plan.joins[over].results:
            shape = self._shape(array.axes or (), self.rank)
            results[array.name] = torch.empty(
                shape, dtype=_DTYPES[array.dtype], device=self.device
            )

    def _join_stretch(
        self, over: str, stretch: Stretch, parts: Mapping[str, Slots],
        results: Mapping[str, torch.Tensor],
    ) -> None:  # fmt: skip
        kept = self.schedule.kept(over)
        spans = {kept: stretch.span} if kept else {}
        found = {}
        for p in self.plan.parts_over(over):
            slots = [narrow(x, p.axes, spans) for x in parts[p.name][: stretch.count]]
            if not slots:  # nobody saw anything
                slots = [narrow(self._buffer(p, 1, self.rank)[0], p.axes, spans)]
            for slot in stretch.missing:
                slots[slot].fill_(p.empty)
            found[p.name] = slots
        self._join_slots(over, stretch.count, found, spans, results)

    def _join_slots(
        self, over: str, count: int, slots: Mapping[str, Sequence[torch.Tensor]],
        spans: Mapping[str, tuple[int, int]], results: Mapping[str, torch.Tensor],
    ) -> None:  # fmt: skip
        join, given = self.plan.joins[over], []
        for p in self.plan.parts_over(over):
            some = slots[p.name]
            given += some if len(some) <= FEW else [torch.stack(list(some))]
        pieces = {a: layout.pieces[self.rank] for a, layout in self.schedule.layouts.items()}
        starts = {a: start_of(p, ends_of(p), spans.get(a, (0, 0))[0]) for a, p in pieces.items()}
        numbers = self.plan.numbers(starts, self.schedule.sizes)
        axes = {a.name: a.axes for a in self.plan.arguments}
        more = [numbers[n] if n in numbers else narrow(self.arguments[n], axes[n], spans)
                for n in join.arguments]  # fmt: skip
        out = [narrow(results[a.name], a.axes, spans) for a in join.results]
        meets = self.kernels.meeting(over, count) if self.meeting else None
        if meets is not None:  # nothing may be read before
            meets(*given, *more, *self.meeting, out=out)
        else:
            call(self.kernels.join(over, count), [*given, *more], out)
