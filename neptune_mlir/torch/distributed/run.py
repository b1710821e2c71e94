# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program over the processes of a group: computes, passes on, joins.

One sharded axis: each process reduces its piece, parts are gathered, and each joins all of them.
Two: the data of the last axis travel, each process computes with those of every other, joins the
parts that it keeps, and gives the others back to those whose data they are of. Parts are joined in
the order of `ShardSchedule`, whoever came first, so results have the same bits in every run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from neptune_mlir.errors import ArgumentError, UsageError
from neptune_mlir.runtime.shards.layout import Piece, ShardLayout
from neptune_mlir.runtime.shards.plan import (
    FEW,
    MET,
    ChainLink,
    ShardArray,
    ShardPart,
    ShardSchedule,
    Stretch,
)
from neptune_mlir.torch.distributed.beside import Beside
from neptune_mlir.torch.distributed.exchange import (
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
)
from neptune_mlir.torch.distributed.kernels import ShardKernels, call
from neptune_mlir.torch.distributed.pieces import (
    DTYPES,
    Kinds,
    by_name,
    bytes_of,
    ends_of,
    extents_of,
    narrow,
    start_of,
    unpacked,
)
from neptune_mlir.torch.distributed.together import AUTO, JOIN, TogetherCall
from neptune_mlir.torch.distributed.trade import LARGEST, TradeMemory, trade_bytes

_SCHEDULES = 64  # that a kernel keeps
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
        return ShardCall(self, arguments, self._schedule(layouts)).run()

    def _schedule(self, layouts: Mapping[str, ShardLayout]) -> ShardSchedule:
        key = tuple(layouts[a] for a in self.plan.axes)
        if key not in self._schedules:
            if len(self._schedules) >= _SCHEDULES:
                self._schedules.clear()
            self._schedules[key] = ShardSchedule(self.plan, dict(layouts), self._adds)
        return self._schedules[key]

    @functools.cached_property
    def _adds(self) -> bool:
        """Whether the runs of a device add to the same parts: where its kernel adds to some anyhow,
        and parts travel, so that runs are several."""
        staying = {p.name for p in self.plan.parts if p.over == self.plan.axes[-1]}
        leaving = len(self.plan.parts) - len(staying)
        return bool(leaving and staying) and staying <= {*self.kernels.added}

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


class ShardCall:
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
        self.meeting: tuple[int, ...] = ()  # with what a join's programs trade parts
        self._open: list[Open] = []
        self._common: list[torch.Tensor] = []  # what runs that add have in common
        self._gifts: Gifts | None = None
        self._kept: list[torch.Tensor] = []  # parts of this process's own data, made here
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
        elif (together := TogetherCall(self)).is_possible():
            together.run(results)
        elif self.plan.carries and self.kernel.form != JOIN:
            self._along(results)
        else:
            alone = len(self.plan.axes) == 1
            parts: dict[str, Slots] = {**(self._alone(results) if alone else self._around())}
            self._rest(parts, results)
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
        return torch.empty(shape, dtype=DTYPES[part.dtype], device=self.device)

    # one sharded axis

    def _alone(self, results: dict[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        """The parts of all processes, one by one; results that need no other go to `results`."""
        (axis,) = self.plan.axes
        for array in self.plan.here:
            shape = self._shape(array.axes or (), self.rank)
            results[array.name] = torch.empty(
                shape, dtype=DTYPES[array.dtype], device=self.device
            )
        counts = [self.schedule.count(axis, r, [r]) for r in range(self.size)]
        room = max(1, *counts)
        kinds = [((room, *self._shape(p.axes, self.rank)), DTYPES[p.dtype])
                 for p in self.plan.parts]  # fmt: skip
        if self._trades(kinds):
            mine = [torch.empty(shape, dtype=d, device=self.device) for shape, d in kinds]
            self._compute_parts(mine, results)
            every = [mine] * self.size
        else:
            packed = Gather(bytes_of(kinds), self.group, self.device, self.copies)
            self._compute_parts(unpacked(packed.mine, kinds), results)
            every = [unpacked(x, kinds) for x in packed.every()]
        return {
            part.name: [x for r, n in enumerate(counts) for x in every[r][k][:n]]
            for k, part in enumerate(self.plan.parts)
        }  # fmt: skip

    def _compute_parts(
        self, parts: Sequence[torch.Tensor], results: Mapping[str, torch.Tensor]
    ) -> None:
        named = by_name(self.plan.parts, parts)
        self._compute(self.rank, self.arguments, named, results)

    def _trades(self, kinds: Kinds) -> bool:
        """Whether the join's programs trade parts with those of the other process themselves:
        each has its own in the place of both, then."""
        (axis,) = self.plan.axes
        stretches, join = self.schedule.stretches(axis, self.rank), self.plan.joins[axis]
        alone = len(stretches) == 1 and not stretches[0].missing and stretches[0].count == MET
        if not self.copies or self.size != MET or not alone:
            return False
        if join.arguments:  # which may have to be copied (`call`)
            return False
        kernel = self.kernels.meeting(axis, MET)
        if kernel is None:
            return False
        shapes = [shape[1:] for shape, _ in kinds for _ in range(MET)]
        programs, words = self.kernels.traded(kernel, shapes)
        if trade_bytes(programs, words) > LARGEST:
            return False
        self.meeting = TradeMemory.of(self.group, self.device, programs, words).arguments
        return True

    def _names(self) -> list[str]:
        return [p.name for p in self.plan.parts]

    # two sharded axes

    @property
    def _moving(self) -> list[ShardArray]:
        """The arguments that travel."""
        return [a for a in self.plan.arguments if a.axes and self.traveling in a.axes]

    def exchange(
        self, counted: bool = False, step: Callable[[int], int] = lambda reader: 0
    ) -> Exchange:
        """What brings them, which are on their way then (see `Offer`)."""
        moving = self._moving
        exchange = (CopyExchange if self.copies else RingExchange)(self.group, self.device)
        self._open.append(exchange)

        def shapes(owner: int) -> list[tuple[torch.Size, torch.dtype]]:
            return [(torch.Size(self._shape(a.axes or (), owner)), self.arguments[a.name].dtype)
                    for a in moving]  # fmt: skip

        exchange.start(Offer(
            [self.arguments[a.name] for a in moving],
            [(a.axes or ()).index(self.traveling) for a in moving], shapes, self._needed,
            counted, step,
        ))  # fmt: skip
        return exchange

    def _needed(self, reader: int, owner: int) -> tuple[int, int]:
        """What a process asks for of an owner's data."""
        if self.gathers:
            return 0, self.schedule.layouts[self.traveling].lengths[owner]
        return self.schedule.needed(reader, owner)

    def _at_once(self, results: dict[str, torch.Tensor]) -> None:
        """The program on all of the data that travel, for each piece of what stays."""
        moving, exchange = self._moving, self.exchange()
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
        self.make(self.traveling, results)
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

    def _along(self, results: dict[str, torch.Tensor]) -> None:
        """The results, each run beginning with the parts of those before: parts go from one of two
        buffers to the other."""
        plan, schedule, kernels = self.plan, self.schedule, self.kernels
        moving, exchange = self._moving, self.exchange()
        self.make(self.traveling, results)
        made = {r.name: r.axes for r in plan.joins[self.traveling].results}
        sides = [{p.name: self._buffer(p, 1, self.rank)[0] for p in plan.parts} for _ in "ab"]
        every = [(o, link) for o, links in schedule.chain(self.rank).items() for link in links]
        chained = [link for _, link in every if not link.alone]
        beside = self.beside(0 < len(chained) < len(every))

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

    def beside(self, wanted: bool) -> Beside:
        """Two streams that begin here; the current one for both where they are not wanted."""
        made = self.kernel.beside(self.device if wanted else torch.device("cpu"))
        made.begin()
        return made

    def _around(self) -> dict[str, Slots]:
        """The parts over the traveling axis that this process joins; those over the other one are
        on their way then (`_given`)."""
        schedule, rank = self.schedule, self.rank
        moving, exchange = self._moving, self.exchange()
        leaving = [p for p in self.plan.parts if p.over != self.traveling]

        def given(giver: int, reader: int) -> list[tuple[torch.Size, torch.dtype]]:
            return [
                (torch.Size([schedule.count(p.over, giver, [reader]),
                             *self._shape(p.axes, reader)]), DTYPES[p.dtype])
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
        if schedule.adds:
            for x in parts.values():
                x.zero_()
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
        self._gifts, self._kept = gifts, own
        return parts

    def _rest(self, parts: dict[str, Slots], results: dict[str, torch.Tensor]) -> None:
        """What is met late, and the joins. Those of positions that were met before wait for other
        processes alone: they fill the end of what is met late."""
        others = [a for a in self.plan.joins if a != self.traveling]
        late = self.schedule.late(self.rank, self.rank)
        for over in self.plan.joins:
            self.make(over, results)
        beside = self.beside(late > 0)
        with beside.first():
            if late:
                leaving = [p for p in self.plan.parts if p.over != self.traveling]
                own = by_name(leaving, self._kept)
                self._compute(self.rank, self.arguments, {**parts, **own}, {}, late=True)
            if self.traveling in self.plan.joins:  # these wait for nobody
                self._join(self.traveling, parts, results)
        with beside.last():
            parts |= self._given() if others else {}
            for over in others:
                self._join(over, parts, results, (late, self.extents[self.traveling]))
        beside.meet()
        for over in others if late else ():
            self._join(over, parts, results, (0, late))

    def _given(self) -> dict[str, Slots]:
        """The parts of all processes' runs that are of this one's data, which it waits for."""
        leaving = [p for p in self.plan.parts if p.over != self.traveling]
        every = [
            self._kept if r == self.rank or self._gifts is None else self._gifts.take(r)
            for r in range(self.size)
        ]
        return {
            p.name: [slot for received in every for slot in received[k]]
            for k, p in enumerate(leaving)
        }

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
            if not self.schedule.adds:
                call(self.kernels.local, [*arguments, *numbers.values()], out)
                continue
            made = [narrow(x, a.axes, spans) for a, x in self._in_common(numbers)]
            call(self.kernels.adding, [*arguments, *numbers.values(), *made], out)

    def _in_common(self, numbers: Mapping[str, int]) -> list[tuple[ShardArray, torch.Tensor]]:
        """What all runs with this process's rows take, made by the first of them (whose numbers do
        not matter)."""
        arrays = self.kernels.in_common
        if arrays and not self._common:
            self._common = [
                torch.empty([self.extents[x] for x in a.axes or ()], dtype=DTYPES[a.dtype],
                            device=self.device) for a in arrays
            ]  # fmt: skip
            given = [*self.arguments.values(), *numbers.values()]
            call(self.kernels.once, given, self._common)
        return list(zip(arrays, self._common, strict=True))

    # joins

    def _join(
        self, over: str, parts: Mapping[str, Slots], results: dict[str, torch.Tensor],
        within: Piece | None = None,
    ) -> None:  # fmt: skip
        """The results over an axis, stretch by stretch of the positions that keep it: all of them,
        or those `within` two of them."""
        join, kept = self.plan.joins[over], self.schedule.kept(over)
        told = [p for p in self.plan.positions if p.name in join.arguments]
        pieces = self.schedule.layouts[kept or over].pieces[self.rank]
        cuts = ends_of(pieces) if kept and told else []
        if told and kept is None and len(pieces) > 1:
            raise UsageError(f"results along '{over}' need one piece of it on each device")
        for stretch in self.schedule.stretches(over, self.rank, [*cuts, *(within or ())]):
            if within is None or within[0] <= stretch.span[0] < within[1]:
                self._join_stretch(over, stretch, parts, results)

    def make(self, over: str, results: dict[str, torch.Tensor]) -> None:
        """Room for the results over an axis."""
        for array in self.plan.joins[over].results:
            shape = self._shape(array.axes or (), self.rank)
            results[array.name] = torch.empty(
                shape, dtype=DTYPES[array.dtype], device=self.device
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
        self.join_slots(over, stretch.count, found, spans, results)

    def join_slots(
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
        if meets is not None:
            meets(*given, *more, *self.meeting, out=out)
        else:
            call(self.kernels.join(over, count), [*given, *more], out)
