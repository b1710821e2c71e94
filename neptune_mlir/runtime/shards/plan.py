# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program over devices consists of, as data: its local kernel, the parts that travel, the
joins. `frontend.shard` makes it; whoever has processes runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.shards.layout import Call, Form, Masks, Piece, ShardLayout
from neptune_mlir.runtime.shards.order import LeftOver, Queue, last_lanes, left_over, tiles

START, SIZE = "start", "size"
FEW = 8  # parts that a join takes one by one and joins by an expression; of more it takes a stack
# scalar arguments of a join that trades parts with another device (`codegen.gpu.meeting`):
# addresses of memory for that here and there, which part of two is this device's, milliseconds
MEETING = {"meet_own": "i64", "meet_other": "i64", "meet_first": "i32", "meet_timeout": "i32"}
MET = 2  # parts that such a join has
TRADE_HEAD, TRADE_WORD = 16, 8  # bytes in front of a program's two slots, and of a word of these
ALIGNED = 128  # what a number of rows that is chosen is a multiple of
AT_ONCE = 128  # programs of a kernel that a GPU runs side by side, about
PARTS = 4  # of data that come in two steps: the last step is one of them
LATE = 4  # of so many of its own positions one waits for parts to travel


@dataclass(frozen=True)
class ShardArray:
    """An argument or a result: its axes, None for a number."""

    name: str
    dtype: str
    axes: tuple[str, ...] | None


@dataclass(frozen=True)
class ShardPart:
    """A result of the local program that is joined over an axis. `empty` is what a device gives
    that has nothing to reduce."""

    name: str
    dtype: str
    axes: tuple[str, ...]
    over: str
    empty: float


@dataclass(frozen=True)
class ShardPosition:
    """An argument behind the program's own: where the piece of `axis` starts, or how long the axis
    is in all (`kind`)."""

    name: str
    axis: str
    kind: str


@dataclass(frozen=True)
class Join:
    """The join over an axis: what it takes behind the parts, and the results that it gives."""

    arguments: tuple[str, ...]
    results: tuple[ShardArray, ...]


@dataclass(frozen=True)
class ShardPlan:
    """A program whose axes `axes` are in pieces; the data of the last one travel.

    Attributes:
        arguments: of the program. The local kernel takes them and the `positions`, and gives the
            `parts`, then the results `here` that need no other device.
        joins: by the axis whose parts they take.
        results: names of the program's results, in order.
        extents: of the axes whose size is compiled in.
    """

    name: str
    axes: tuple[str, ...]
    arguments: tuple[ShardArray, ...]
    positions: tuple[ShardPosition, ...]
    parts: tuple[ShardPart, ...]
    here: tuple[ShardArray, ...]
    joins: Mapping[str, Join]
    results: tuple[str, ...]
    masks: Masks
    extents: Mapping[str, int]

    def __post_init__(self) -> None:
        both = [a.name for a in self.arguments if len(set(a.axes or ()) & set(self.axes)) > 1]
        if both or (len(self.axes) > 1 and self.here) or len(self.axes) > 2:
            what = f"'{both[0]}' has several sharded axes" if both else "too many axes"
            raise UsageError(
                f"'{self.name}' over {', '.join(self.axes)}: {what}",
                hint="one sharded axis an argument, two in all, and results that reduce one",
            )

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ShardPlan:
        d = json.loads(text)

        def array(x: Mapping[str, object]) -> ShardArray:
            axes = x["axes"]
            return ShardArray(x["name"], x["dtype"], None if axes is None else tuple(axes))  # type: ignore

        joins = {
            axis: Join(tuple(j["arguments"]), tuple(map(array, j["results"])))
            for axis, j in d["joins"].items()
        }
        parts = tuple(ShardPart(**{**p, "axes": tuple(p["axes"])}) for p in d["parts"])
        masks = Masks(tuple(Form(**f) for f in d["masks"]["forms"]), d["masks"]["movable"])
        return cls(
            d["name"], tuple(d["axes"]), tuple(map(array, d["arguments"])),
            tuple(ShardPosition(**p) for p in d["positions"]), parts, tuple(map(array, d["here"])),
            joins, tuple(d["results"]), masks, d["extents"],
        )  # fmt: skip

    @property
    def carries(self) -> bool:
        """Whether runs take the parts of the runs before along, so that nothing is left to join:
        where all parts stay, and nothing behind the reductions asks for positions (those that a
        run is told may be moved)."""
        traveling = self.axes[-1]
        if len(self.axes) < 2 or [*self.joins] != [traveling]:
            return False
        join = self.joins[traveling]
        told = {p.name for p in self.positions} & set(join.arguments)
        return not told and not any(traveling in (r.axes or ()) for r in join.results)

    def parts_over(self, axis: str) -> list[ShardPart]:
        return [p for p in self.parts if p.over == axis]

    def numbers(self, call: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
        """The positions of a run, by their names."""
        return {p.name: (call if p.kind == START else sizes)[p.axis] for p in self.positions}


@dataclass(frozen=True)
class Run:
    """A call of the local kernel for the data of one owner, and the slot that its parts take among
    those that are joined over each axis. `late`: after those for all others' data, whose parts are
    on their way to their owners meanwhile."""

    call: Call
    slots: Mapping[str, int]
    late: bool = False


@dataclass(frozen=True)
class ChainLink:
    """A call of a kernel for the data of one owner, on positions that `before` calls have had
    before it; `last`: and none after it."""

    call: Call
    before: int
    last: bool

    @property
    def alone(self) -> bool:
        """Whether no other call has its positions."""
        return self.last and not self.before


@dataclass(frozen=True)
class Together:
    """Calls for a device's own data and what is `needed` of the other one's, one behind the other
    along the traveling axis: the second ones begin at `border`. `own_first`: which they are."""

    calls: tuple[Call, ...]
    own_first: bool
    border: int
    needed: Piece

    def has_both(self, call: Call, traveling: str) -> bool:
        """Whether a call has data of both devices."""
        return call.spans[traveling][0] < self.border < call.spans[traveling][1]


@dataclass(frozen=True)
class Stretch:
    """Positions whose parts are joined together: `count` slots, of which some saw nothing."""

    span: Piece
    count: int
    missing: tuple[int, ...]


class ShardSchedule:
    """The runs of every device: what `rank` computes with the data of `owner`.

    Parts over an axis lie in slots: no two runs write the same positions of one. A device joins the
    parts over the traveling axis of its own runs, those over the other one of all devices' runs
    with its data. `adds`: runs add to what parts over the traveling axis have, so one slot is all
    that these take.
    """

    def __init__(
        self, plan: ShardPlan, layouts: Mapping[str, ShardLayout], adds: bool = False
    ):  # fmt: skip
        self.plan, self.layouts, self.adds = plan, layouts, adds
        self.devices = len(next(iter(layouts.values())).pieces)
        if any(len(layout.pieces) != self.devices for layout in layouts.values()):
            raise UsageError("the layouts of the axes are for different numbers of devices")
        for layout in layouts.values():
            layout.checked()
        self.sizes = {a: layout.size for a, layout in layouts.items()}
        self._calls: dict[tuple[int, int], list[Call]] = {}
        self._runs: dict[int, dict[int, list[Run]]] = {}  # by rank and owner
        self._chains: dict[int, dict[int, list[ChainLink]]] = {}
        self._together: dict[int, Together | None] = {}

    def owners(self, rank: int) -> Iterator[int]:
        """Whose data a device computes with, in order: its own first."""
        if len(self.plan.axes) == 1:
            return iter([rank])
        return ((rank - step) % self.devices for step in range(self.devices))

    def runs(self, rank: int, owner: int) -> list[Run]:
        if rank not in self._runs:
            taken: list[list[Piece]] = []  # of the parts that stay, over all owners
            self._runs[rank] = {o: self._placed(rank, o, taken) for o in self.owners(rank)}
        return self._runs[rank][owner]

    def calls(self, rank: int, owner: int) -> list[Call]:
        key = rank, owner
        if key not in self._calls:
            columns, late = self.plan.axes[-1], self.late(rank, owner)
            if late:
                end = self.layouts[columns].lengths[rank]
                found = [c for span in ((late, end), (0, late))
                         for c in self._calls_on(rank, owner, columns, span)]  # fmt: skip
            else:
                found = self.plan.masks.calls(self.pieces(rank, owner), self.sizes)
            self._calls[key] = found
        return self._calls[key]

    def late(self, rank: int, owner: int) -> int:
        """How much of a device's own data is met only after all others', where the parts of these
        have to travel: 0 or some of the first positions, which causal masks let most rows see. (A
        program for them is as long as for others; with rows that are met late it is not.)"""
        if owner != rank or self.devices == 1 or not set(self.plan.joins) - {self.plan.axes[-1]}:
            return 0
        length = self.layouts[self.plan.axes[-1]].lengths[rank]
        return length // LATE // ALIGNED * ALIGNED

    def pieces(self, rank: int, owner: int) -> dict[str, tuple[Piece, ...]]:
        *staying, traveling = self.plan.axes
        own = {a: self.layouts[a].pieces[rank] for a in staying}
        return own | {traveling: self.layouts[traveling].pieces[owner]}

    def _placed(self, rank: int, owner: int, staying: list[list[Piece]]) -> list[Run]:
        left = self._leaving(rank, owner)
        found = []
        for call, slot in zip(self.calls(rank, owner), left, strict=True):
            slots = dict.fromkeys(self.plan.joins, slot)
            if self.plan.axes[-1] in slots:
                kept = self.kept(self.plan.axes[-1])
                span = call.spans[kept] if kept else (0, 1)
                slots[self.plan.axes[-1]] = 0 if self.adds else _place(span, staying)
            late = call.spans[self.plan.axes[-1]][1] <= self.late(rank, owner)
            found.append(Run(call, slots, late))
        return found

    def _leaving(self, rank: int, owner: int) -> list[int]:
        """The slots of the parts that go to the owner, one a call."""
        taken: list[list[Piece]] = []
        kept = self.plan.axes[-1]
        return [_place(call.spans[kept], taken) for call in self.calls(rank, owner)]

    def needed(self, rank: int, owner: int) -> Piece:
        """What a device needs of an owner's data: positions in the owner's own order."""
        spans = [call.spans[self.plan.axes[-1]] for call in self.calls(rank, owner)]
        return min((a for a, _ in spans), default=0), max((b for _, b in spans), default=0)

    def chain(self, rank: int) -> dict[int, list[ChainLink]]:
        """What a device computes with each owner's data where `plan.carries`: calls of which each
        has positions with the same calls before, and after."""
        if rank not in self._chains:
            kept = self.plan.axes[0]
            found: dict[int, list[ChainLink]] = {o: [] for o in self.owners(rank)}
            calls = [(links, c) for o, links in found.items() for c in self.calls(rank, o)]
            spans = [call.spans[kept] for _, call in calls]
            cuts = sorted({end for span in spans for end in span})
            for k, (links, call) in enumerate(calls):
                a, b = spans[k]
                for span in pairwise([x for x in cuts if a <= x <= b]):
                    having = [n for n, s in enumerate(spans) if s[0] <= span[0] and span[1] <= s[1]]
                    _extend(links, ChainLink(
                        call.on(kept, span), sum(n < k for n in having), having[-1] == k
                    ), kept)  # fmt: skip
            self._chains[rank] = found
        return self._chains[rank]

    def together(self, rank: int) -> Together | None:
        """The calls of a device for all data of two devices, one behind the other: each of its rows
        is in one of them. None where that cannot be."""
        if rank not in self._together:
            self._together[rank] = self._found_together(rank)
        return self._together[rank]

    def step_at_once(self, rank: int, lanes: int) -> int:
        """How many positions of all lanes, from the last one down, come first to a device that
        reduces the other one's data in so many lanes by `together`; then the rest comes. (A step
        costs as much as copying some megabytes, and the last one is waited for.) 0: they come lane
        by lane, which is right where the programs of some lanes follow those of others."""
        found = self.together(rank)
        if found is None or found.own_first:
            return 0
        rows, columns = self.plan.axes
        spans = [c.spans[rows] for c in found.calls if found.has_both(c, columns)]
        programs = lanes * sum(-(-(b - a) // ALIGNED) for a, b in spans)
        length = found.needed[1] - found.needed[0]
        last = length // PARTS // ALIGNED * ALIGNED
        return length - last if programs <= AT_ONCE and last else 0

    def last_lanes(self, rank: int, lanes: int, groups: int, multiprocessors: int) -> int:
        """Of how many of the last lanes a device's programs come longest first by `together`, where
        the other one's data come lane by lane in so many groups; 0: any. Runs for its own data
        alone fill the end."""
        found = self.together(rank)
        if found is None or found.own_first:
            return 0
        columns = self.plan.axes[-1]
        both = [c for c in found.calls if found.has_both(c, columns)]
        if len(both) > 1:
            return 0

        def of(call: Call, part: Piece) -> tuple[int, ...]:
            return tiles(self.plan.masks, call, self.sizes, part)

        (low, high), border = both[0].spans[columns], found.border
        fill = (of(c, c.spans[columns]) for c in found.calls if c is not both[0])
        return last_lanes(Queue(
            of(both[0], (border, high)), of(both[0], (low, border)), lanes, groups,
            tuple(n for rows in fill for n in rows[::-1] for _ in range(lanes)),
        ), multiprocessors)  # fmt: skip

    def left_over(
        self, rank: int, rows: int, lanes: int, multiprocessors: int
    ) -> LeftOver | None:
        """What a device's run by `together`, whose programs have so many rows each, is to leave to
        chunks of both devices' data; None: nothing."""
        found = self.together(rank)
        if found is None or len(found.calls) > 1 or self.plan.masks.forms or self.plan.positions:
            return None
        columns, length = self.plan.axes[-1], self.layouts[self.plan.axes[0]].lengths[rank]
        parts = self.layouts[columns].lengths[rank], found.needed[1] - found.needed[0]
        return left_over(length, rows, lanes, parts, multiprocessors) if rows else None

    def _found_together(self, rank: int) -> Together | None:
        if self.devices != 2 or not self.plan.carries:
            return None
        (rows, columns), other = self.plan.axes, 1 - rank
        needed = self.needed(rank, other)
        own = self.pieces(rank, rank)
        theirs = _within(self.layouts[columns].pieces[other], needed)
        lengths = self.layouts[columns].lengths[rank], needed[1] - needed[0]
        # kernels begin with their own: at the end, where a mask ends what they read
        ends = any(f.positions.get(columns, 0) < 0 for f in self.plan.masks.forms)
        for own_first in (False, True) if ends else (True, False):
            pair = (own[columns], theirs) if own_first else (theirs, own[columns])
            calls = self.plan.masks.calls({**own, columns: (*pair[0], *pair[1])}, self.sizes)
            border = lengths[not own_first]
            spans = sorted(c.spans[rows] for c in calls)
            ends = [0, *(x for span in spans for x in span), self.layouts[rows].lengths[rank]]
            inside = [c.spans[columns] for c in calls]
            both = [border - a for a, b in inside if a < border < b]
            alone = [b <= border if own_first else a >= border for a, b in inside]
            if len(both) + sum(alone) < len(calls):
                continue
            if ends[::2] == ends[1::2] and both and not any(n % ALIGNED for n in both):
                return Together(tuple(calls), own_first, border, needed)
        return None

    def _calls_on(self, rank: int, owner: int, axis: str, span: Piece) -> list[Call]:
        """The calls for some of the positions that the devices have of an axis."""
        pieces = self.pieces(rank, owner)
        cut = _within(pieces[axis], span)
        found = []
        for call in self.plan.masks.calls({**pieces, axis: cut}, self.sizes):
            a, b = call.spans[axis]
            spans = {**call.spans, axis: (a + span[0], b + span[0])}
            found.append(Call(spans, call.starts))
        return found

    def unseen(self, rank: int) -> list[Piece]:
        """The positions of a device that no call of its `chain` has."""
        kept = self.plan.axes[0]
        links = [link for found in self.chain(rank).values() for link in found]
        spans = sorted(link.call.spans[kept] for link in links if not link.before)
        ends = [0, *(x for span in spans for x in span), self.layouts[kept].lengths[rank]]
        return [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b]

    def kept(self, over: str) -> str | None:
        """The sharded axis that parts over an axis keep."""
        return next((a for a in self.plan.axes if a != over), None)

    def slots(self, over: str, rank: int, owner: int) -> list[tuple[int, Call]]:
        """The slots of the parts over an axis that a device makes with the data of one owner."""
        if over == self.plan.axes[-1]:
            return [(run.slots[over], run.call) for run in self.runs(rank, owner)]
        return list(zip(self._leaving(rank, owner), self.calls(rank, owner), strict=True))

    def count(self, over: str, rank: int, owners: Sequence[int]) -> int:
        """How many slots the parts of a device have."""
        found = (slot + 1 for o in owners for slot, _ in self.slots(over, rank, o))
        return max(found, default=0)

    def stretches(self, over: str, at: int, cuts: Sequence[int] = ()) -> list[Stretch]:
        """The positions of device `at` by which slots have them, in its own order; slots of
        several devices come one device after the other. `cuts` are further ends."""
        kept = self.kept(over)
        length = self.layouts[kept].lengths[at] if kept else 1
        written: list[tuple[int, Piece]] = []
        base = 0
        for rank, owners in self.givers(over, at):
            for owner in owners:
                for slot, call in self.slots(over, rank, owner):
                    written.append((base + slot, call.spans[kept] if kept else (0, 1)))
            base += self.count(over, rank, owners)
        ends = sorted({0, length, *cuts, *(e for _, span in written for e in span)})
        found: list[Stretch] = []
        for span in pairwise(ends):
            there = {slot for slot, (a, b) in written if a <= span[0] and span[1] <= b}
            count = max(there, default=0) + 1
            missing = tuple(k for k in range(count) if k not in there)
            last = found[-1] if found and span[0] not in cuts else None
            if last and (last.count, last.missing) == (count, missing):
                found[-1] = Stretch((last.span[0], span[1]), count, missing)
            else:
                found.append(Stretch(span, count, missing))
        return found

    def givers(self, over: str, at: int) -> list[tuple[int, list[int]]]:
        """The devices whose parts device `at` joins, each with the owners of the data that they are
        of."""
        if len(self.plan.axes) == 1:
            return [(rank, [rank]) for rank in range(self.devices)]
        if over == self.plan.axes[-1]:
            return [(at, list(self.owners(at)))]
        return [(rank, [at]) for rank in range(self.devices)]


def _within(pieces: Sequence[Piece], span: Piece) -> tuple[Piece, ...]:
    """The pieces of an axis that a span of a device's own positions has."""
    at, cut = 0, []
    for start, end in pieces:
        a, b = max(at, span[0]), min(at + end - start, span[1])
        if a < b:
            cut.append((start + a - at, start + b - at))
        at += end - start
    return tuple(cut)


def _extend(links: list[ChainLink], new: ChainLink, kept: str) -> None:
    """Append a link, as one with the link before where that ends where it begins."""
    if links:
        old = links[-1]
        (a, b), (c, d) = old.call.spans[kept], new.call.spans[kept]
        whole = old.call.on(kept, (a, d))
        if (old.before, old.last, b) == (new.before, new.last, c) and whole.on(
            kept, (c, d)
        ) == new.call:
            links[-1] = ChainLink(whole, old.before, old.last)
            return
    links.append(new)


def _place(span: Piece, taken: list[list[Piece]]) -> int:
    """The first slot in which nothing overlaps, which is taken."""
    for slot, spans in enumerate(taken):
        if all(span[1] <= a or b <= span[0] for a, b in spans):
            spans.append(span)
            return slot
    taken.append([span])
    return len(taken) - 1
