# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What moves between processes: by torch.distributed, or by the GPUs' copy engines from memory that
torch has shared among them.

An exchange of one call has three steps. `start` offers this process's tensors; `get` waits for
those of another one, in the order of `ShardSchedule.owners`, while the next are on their way;
`done` ends the call. Whoever does not answer within the group's time-out is a `PeerError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import torch
import torch.distributed as dist

from neptune_mlir.errors import PeerError
from neptune_mlir.runtime.drivers.cuda import CudaDriver
from neptune_mlir.runtime.drivers.makers import driver
from neptune_mlir.torch.distributed.copies import copy, copy_all

Shapes = Callable[[int], list[tuple[torch.Size, torch.dtype]]]  # of what a process offers
# of what a reader needs of an owner's tensors: positions along a dimension of each
Needed = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Offer:
    """What processes give each other in a call: `tensors` are this process's, and travel along
    `dims`. `counted`: kernels begin before all has come; so lanes go one group after the other (of
    all tensors those points of the dimensions in front of that one), and a word in the reader's
    memory says how many have come. To a reader that `step` has a number for, positions of all lanes
    go, from the last one down: so many, then the rest."""

    tensors: Sequence[torch.Tensor]
    dims: Sequence[int]
    shapes: Shapes
    needed: Needed
    counted: bool = False
    step: Callable[[int], int] = lambda reader: 0


class Open(Protocol):
    """What has to be told when a call has read everything."""

    def done(self) -> None:
        """Nobody will read any more what came from others."""


class Exchange(Open, Protocol):
    """How the data of one call travel."""

    def start(self, offer: Offer) -> None:
        """Begin to send."""

    def get(self, owner: int) -> list[torch.Tensor]:
        """What a process offered, of which what is needed is there."""


@contextmanager
def answering(what: str, group: dist.ProcessGroup) -> Iterator[None]:
    """Failures of torch.distributed as errors that say what was waited for."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        raise PeerError(
            f"{what}: no answer from a process of the group of {group.size()}: "
            f"{lines[0] if lines else type(error).__name__}",
            hint="a process died, is late, or has other shapes; the time-out is the group's",
        ) from error


def _flat(x: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor: every backend can send these."""
    return x.contiguous().view(-1).view(torch.uint8)


def _empty(kind: tuple[torch.Size, torch.dtype], device: torch.device) -> torch.Tensor:
    return torch.empty(kind[0], dtype=kind[1], device=device)


class Batch:
    """Sends and receptions that are under way."""

    def __init__(self, group: dist.ProcessGroup):
        self.group = group
        self.received: list[torch.Tensor] = []
        self._kept: list[torch.Tensor] = []  # what is being sent has to live
        self._works: list[Any] = []

    def post(
        self, to: int, tensors: Sequence[torch.Tensor], source: int, into: list[torch.Tensor]
    ) -> Batch:
        """Send `tensors` to one process and receive contiguous ones from another."""
        peers = [dist.get_global_rank(self.group, r) for r in (to, source)]
        self._kept = [_flat(x) for x in tensors if x.numel()]
        self.received = into
        wanted = [_flat(x) for x in self.received if x.numel()]
        ops = [dist.P2POp(dist.isend, x, peers[0], self.group) for x in self._kept]
        ops += [dist.P2POp(dist.irecv, x, peers[1], self.group) for x in wanted]
        if ops:
            with answering("sending to the next process", self.group):
                self._works = dist.batch_isend_irecv(ops)
        return self

    def wait(self) -> list[torch.Tensor]:
        with answering("waiting for the previous process", self.group):
            for work in self._works:
                work.wait()
        self._works, self._kept = [], []
        return self.received


class RingExchange:
    """Tensors go round: each process passes on what it has, while it computes with it."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device):
        self.group, self.device = group, device
        self.rank, self.size = group.rank(), group.size()
        self._under_way: Batch | None = None
        self._shapes: Shapes = lambda owner: []
        self._at, self._got = self.rank, list[torch.Tensor]()  # whose tensors came last

    def start(self, offer: Offer) -> None:
        self._shapes = offer.shapes
        self._pass_on(self.rank, list(offer.tensors))

    def get(self, owner: int) -> list[torch.Tensor]:
        while self._at != owner:  # those that this process does not need are passed on
            self._at = (self._at - 1) % self.size
            assert self._under_way is not None
            self._got = self._under_way.wait()
            self._under_way = None
            if (self._at - 1) % self.size != self.rank:
                self._pass_on(self._at, self._got)
        return self._got

    def done(self) -> None:
        while self.size > 1 and self._at != (self.rank + 1) % self.size:
            self.get((self._at - 1) % self.size)

    def _pass_on(self, owner: int, tensors: Sequence[torch.Tensor]) -> None:
        """Send what is `owner`'s to the next process, and receive what the previous one has."""
        if self.size > 1:
            before, behind = (self.rank - 1) % self.size, (self.rank + 1) % self.size
            into = [_empty(k, self.device) for k in self._shapes((owner - 1) % self.size)]
            self._under_way = Batch(self.group).post(behind, tensors, before, into)


class CopyExchange:
    """Each process writes its tensors into the others' memory by copy engines, on a stream beside
    that of the kernels. What a stream has to run on multiprocessors there (a copy inside of one
    GPU, a barrier) would come behind kernels that occupy all of them; so nothing is staged, and
    the copy's stream itself writes the signal that the reader's kernels wait for."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device):
        self.group, self.device = group, device
        self.rank, self.size = group.rank(), group.size()
        self._memory: _Shared | None = None
        self._found: dict[int, list[torch.Tensor]] = {}

    def start(self, offer: Offer) -> None:
        given, shapes = [x.contiguous() for x in offer.tensors], offer.shapes
        room = max(sum(_room(k) for k in shapes(r)) for r in range(self.size))
        room_of_all = room * (self.size - 1)
        self._memory = memory = _Shared.of(self.group, self.device, room_of_all, _COUNTED)

        def slot(reader: int, owner: int) -> torch.Tensor:
            at = (owner - reader - 1) % self.size
            return memory.at(reader)[at * room : (at + 1) * room]

        memory.side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(memory.side):
            for owner in range(self.size):
                memory.forget(owner)
            for step in range(1, self.size):
                reader, owner = (self.rank + step) % self.size, (self.rank - step) % self.size
                there = list(_views(slot(reader, self.rank), shapes(self.rank)))
                start, end = offer.needed(reader, self.rank)
                both = [
                    (to.narrow(dim, start, end - start), x.narrow(dim, start, end - start))
                    for x, to, dim in zip(given, there, offer.dims, strict=True)
                ]
                for x in given:
                    x.record_stream(memory.side)
                self._found[owner] = list(_views(slot(self.rank, owner), shapes(owner)))
                if offer.counted:
                    if step := offer.step(reader):
                        _send_positions(memory, reader, both, offer.dims, step)
                    else:
                        _send_lanes(memory, reader, both, offer.dims)
                    continue
                for to, x in both:
                    copy(to, x)
                memory.tell(reader)  # in any case: see `_Shared`

    def get(self, owner: int) -> list[torch.Tensor]:
        assert self._memory is not None
        self._memory.wait(owner)
        return self._found.pop(owner)

    @property
    def side(self) -> torch.cuda.Stream:
        """The stream of this process's copies."""
        assert self._memory is not None
        return self._memory.side

    def coming(self, owner: int) -> tuple[list[torch.Tensor], int, int]:
        """What a process offered, counted, on its way; the address of the word that counts its
        lanes, and milliseconds in which they have to come."""
        assert self._memory is not None
        return self._found.pop(owner), self._memory.counter(owner), self._memory.timeout

    def done(self) -> None:
        """The copies of what this process offered are part of the call, as a graph that captures it
        asks for."""
        assert self._memory is not None
        for owner in list(self._found):  # signals of what nobody asked for
            self.get(owner)
        torch.cuda.current_stream(self.device).wait_stream(self._memory.side)


def groups_of(lanes: int, size: int) -> int:
    """In how many groups lanes of so many bytes go."""
    return max(1, min(lanes, GROUPS, size // GROUP))


def _send_lanes(
    memory: _Shared, reader: int, both: Sequence[tuple[torch.Tensor, torch.Tensor]],
    dims: Sequence[int],
) -> None:  # fmt: skip
    """Copy lanes group by group, and let the reader know."""
    flat = [tuple(t.flatten(0, dim - 1) if dim else t[None] for t in pair)
            for pair, dim in zip(both, dims, strict=True)]  # fmt: skip
    lanes = len(flat[0][0])
    size = sum(x.numel() * x.element_size() for _, x in both)
    groups = groups_of(lanes, size)
    cuts = [lanes * g // groups for g in range(groups + 1)]
    for begin, end in pairwise(cuts):
        for to, x in flat:
            copy(to[begin:end], x[begin:end])
        memory.count(reader, end)


def _send_positions(
    memory: _Shared, reader: int, both: Sequence[tuple[torch.Tensor, torch.Tensor]],
    dims: Sequence[int], step: int,
) -> None:  # fmt: skip
    """Copy positions of all lanes, from the last one down, `step` and then the rest, and let the
    reader know."""
    size = both[0][1].shape[dims[0]]
    for begin, end in ((size - step, size), (0, size - step)):
        copy_all([(to.narrow(dim, begin, end - begin), x.narrow(dim, begin, end - begin))
                   for (to, x), dim in zip(both, dims, strict=True)])  # fmt: skip
        memory.count(reader, size - begin)


class Gifts(Open, Protocol):
    """How parts reach the process whose data they are of."""

    def post(self, to: int, tensors: Sequence[torch.Tensor], spans: Sequence[Span]) -> None:
        """Send what a process is given; all do so in the order of `ShardSchedule.owners`. Of each
        tensor the span matters, the rest may stay behind."""

    def take(self, giver: int) -> list[torch.Tensor]:
        """What a process gave this one."""


Span = tuple[int, int, int]  # a dimension, where it begins, how long it is
Given = Callable[[int, int], list[tuple[torch.Size, torch.dtype]]]  # by giver and receiver


class RingGifts:
    """By torch.distributed."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device, given: Given):
        self.group, self.device, self.given = group, device, given
        self._batches: dict[int, Batch] = {}

    def post(self, to: int, tensors: Sequence[torch.Tensor], spans: Sequence[Span]) -> None:
        rank, size = self.group.rank(), self.group.size()
        giver = (2 * rank - to) % size  # as far behind as `to` is ahead
        into = [_empty(kind, self.device) for kind in self.given(giver, rank)]
        self._batches[giver] = Batch(self.group).post(to, tensors, giver, into)

    def take(self, giver: int) -> list[torch.Tensor]:
        return self._batches[giver].wait()

    def done(self) -> None:
        self._batches.clear()


class CopyGifts:
    """By copy engines, into the memory of the receiver."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device, given: Given):
        self.group, self.device, self.given = group, device, given
        room = max(self._begin(group.size(), reader) for reader in range(group.size()))
        self._memory = _Shared.of(group, device, room, "gifts")

    def _begin(self, giver: int, reader: int) -> int:
        """Where a giver's parts begin in a receiver's memory: behind those of lower rank."""
        others = (r for r in range(giver) if r != reader)
        return sum(_room(kind) for r in others for kind in self.given(r, reader))

    def _views(self, giver: int, reader: int) -> list[torch.Tensor]:
        memory = self._memory.at(reader)[self._begin(giver, reader) :]
        return list(_views(memory, self.given(giver, reader)))

    def post(self, to: int, tensors: Sequence[torch.Tensor], spans: Sequence[Span]) -> None:
        memory, rank = self._memory, self.group.rank()
        memory.side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(memory.side):
            for x, there, span in zip(tensors, self._views(rank, to), spans, strict=True):
                copy(there.narrow(*span), x.narrow(*span))
                x.record_stream(memory.side)
            memory.tell(to)

    def take(self, giver: int) -> list[torch.Tensor]:
        self._memory.wait(giver)
        return self._views(giver, self.group.rank())

    def done(self) -> None:
        torch.cuda.current_stream(self.device).wait_stream(self._memory.side)


FAILING = 1000  # milliseconds that an error may take to reach the host
_FIRST = 1  # channel of signals; torch's barrier has 0
_COUNTS = 3  # channel of counts
_COUNTED = "ring"  # the use whose calls may count
GROUP, GROUPS = 1 << 23, 8  # least bytes of lanes that are told at once, and how often at most


class _Shared:
    """Memory of a group that every process of it can read and write: two halves in turns.

    A process says to each other one when its data are there (`tell`), and waits in each call for
    all of them. So who begins the call after the next may write over what came in this one: the
    others' signals of the call between came when their kernels of this one, which read it, were
    done. A signal is a word in the reader's memory, which the writer's stream sets and the reader's
    takes back.

    What ran before a graph is replayed nobody knows when it is captured: perhaps itself, or others,
    with a number of calls that is odd. So turns begin anew with the first call of each capture, all
    processes meet there, and what counts forget is set back before; the same for each call outside
    of graphs, once there is one. Where they have met in a capture for other memory, nothing is left
    to wait for.
    """

    _known: ClassVar[dict[Any, list[_Shared]]] = {}
    _met: ClassVar[dict[Any, int]] = {}  # the capture in which the processes of a group met last

    def __init__(self, group: dist.ProcessGroup, device: torch.device, room: int, use: str):
        import torch.distributed._symmetric_memory as symmetric

        self.room, self._group, self._use = room, (group.group_name, device), use
        self._memory = symmetric.empty(2 * room, dtype=torch.uint8, device=device)
        with answering("sharing memory", group):
            self._handle = symmetric.rendezvous(self._memory, group)
        self.rank, self.size = group.rank(), group.size()
        self.side = torch.cuda.Stream(device)
        self._turn, self._counts = 0, False
        self._forgotten: list[tuple[torch.Tensor, int, int]] = []
        self._capture, self._captured = 0, False
        self.timeout = timeout_of(group, device)

    @classmethod
    def of(cls, group: dist.ProcessGroup, device: torch.device, room: int, use: str) -> _Shared:
        """The group's memory for a use, with at least `room` bytes a turn; the next turn."""
        kept = cls._known.setdefault((group.group_name, device, use), [])
        if not kept or kept[-1].room < room:  # smaller ones stay: others may be writing into them
            least = max(room, 2 * kept[-1].room if kept else 0)
            kept.append(cls(group, device, -(-least // 2**20) * 2**20, use))
        found = kept[-1]
        found._take_turn(capture_of(device))
        return found

    def _take_turn(self, capture: int) -> None:
        self._turn = 1 - self._turn
        anew = capture != self._capture if capture else self._captured
        self._capture, self._captured = capture, self._captured or capture > 0
        if not anew:
            return
        self._turn = 0
        if capture and self._use != _COUNTED and self._met.get(self._group) == capture:
            return
        pad, others = self._handle.get_signal_pad(self.rank), range(self.size)
        self._write_words([
            (pad, (_COUNTS + turn) * self.size + source, 0)
            for turn in (0, 1) for source in others if source != self.rank
        ])  # fmt: skip
        self.barrier()
        self._met[self._group] = capture

    def at(self, rank: int) -> torch.Tensor:
        """The bytes of this turn in a process's memory."""
        whole: torch.Tensor = self._handle.get_buffer(rank, (2 * self.room,), torch.uint8)
        return whole[self._turn * self.room :][: self.room]

    def barrier(self) -> None:
        """Let the current stream wait until all processes' are here."""
        self._handle.barrier(channel=0, timeout_ms=self.timeout)

    def tell(self, to: int) -> None:
        """Set a signal for a process, behind all that is on the current stream."""
        self._write(to, _FIRST + self._turn, 1)

    def count(self, to: int, lanes: int) -> None:
        """Tell a process how many lanes are there, behind all that is on the current stream."""
        self._counts = True
        self._write(to, _COUNTS + self._turn, lanes)

    def _write(self, to: int, channel: int, value: int) -> None:
        """Write to a word in a process's memory, and before that what is to be forgotten. (Of
        words one by one, each takes 2.5 us of a stream.)"""
        mine = self._handle.get_signal_pad(to), channel * self.size + self.rank, value
        words, self._forgotten = [*self._forgotten, mine], []
        self._write_words(words)

    def _write_words(self, words: Sequence[tuple[torch.Tensor, int, int]]) -> None:
        if self._memory.is_cuda and len(words) > 1:
            stream = torch.cuda.current_stream(self._memory.device)
            cuda = driver(CudaDriver)
            assert isinstance(cuda, CudaDriver)
            cuda.write_words(
                [(pad.data_ptr() + at * pad.element_size(), x) for pad, at, x in words],
                stream.device_index, stream.cuda_stream,
            )  # fmt: skip
            return
        for word in words:
            torch.ops.symm_mem.stream_write_value32_(*word)

    def counter(self, source: int) -> int:
        """The address of the word in which a process counts."""
        pad = self._handle.get_signal_pad(self.rank)
        at = (_COUNTS + self._turn) * self.size + source
        return int(pad.data_ptr() + at * pad.element_size())

    def forget(self, source: int) -> None:
        """Set the word of the turn before to 0 again, in front of what this process tells the
        others next: it is written in the next turn, by who has read that. (In each call since one
        counted: which call is the one before, a graph does not know.)"""
        if not self._counts or source == self.rank:
            return
        place = (_COUNTS + 1 - self._turn) * self.size + source
        self._forgotten.append((self._handle.get_signal_pad(self.rank), place, 0))

    def wait(self, source: int) -> None:
        """Let the current stream wait for a signal, and take it back. The wait is a kernel, which
        ends in an error within the group's time-out."""
        channel = _FIRST + self._turn
        self._handle.wait_signal(source, channel=channel, timeout_ms=self.timeout)


def timeout_of(group: dist.ProcessGroup, device: torch.device) -> int:
    """Milliseconds that a wait of a GPU may take."""
    options = getattr(group._get_backend(device), "options", None)
    timeout = getattr(options, "_timeout", dist.default_pg_timeout)
    whole = int(timeout.total_seconds() * 1000)
    return whole - min(FAILING, whole // 4)


def capture_of(device: torch.device) -> int:
    """The number of the graph that captures the current stream; 0: none does."""
    if device.type != "cuda":
        return 0
    stream, cuda = torch.cuda.current_stream(device), driver(CudaDriver)
    assert isinstance(cuda, CudaDriver)
    return cuda.capture(stream.device_index, stream.cuda_stream)


def _room(kind: tuple[torch.Size, torch.dtype]) -> int:
    return -(-kind[0].numel() * kind[1].itemsize // 256) * 256


def _views(
    memory: torch.Tensor, kinds: Sequence[tuple[torch.Size, torch.dtype]]
) -> Iterator[torch.Tensor]:
    """Tensors that lie one after the other in bytes."""
    at = 0
    for kind in kinds:
        size = kind[0].numel() * kind[1].itemsize
        yield memory[at : at + size].view(kind[1]).view(kind[0])
        at += _room(kind)


class Gather:
    """Bytes of all processes: `mine` is to be filled, then `every` has those of each process.

    They are few: with shared memory each process reads them where they are."""

    def __init__(self, size: int, group: dist.ProcessGroup, device: torch.device, copies: bool):
        self.group, self.size = group, size
        self.memory: _Shared | None = None
        if copies:
            self.memory = _Shared.of(group, device, size, "gather")
            self.mine = self.memory.at(group.rank())[:size]
        else:
            self.mine = torch.empty(size, dtype=torch.uint8, device=device)

    def every(self) -> list[torch.Tensor]:
        processes = self.group.size()
        if self.memory is not None:
            self.memory.barrier()
            return [self.memory.at(r)[: self.size] for r in range(processes)]
        made = torch.empty(processes, self.size, dtype=torch.uint8, device=self.mine.device)
        with answering("gathering parts", self.group):
            all_gather(made.view(-1), self.mine, self.group)
        return list(made)


def all_gather(into: torch.Tensor, mine: torch.Tensor, group: dist.ProcessGroup) -> None:
    """torch's all-gather of equal shapes, by the name that this torch has for it."""
    gathers = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    gathers(into, mine, group=group)
