# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory that processes share, and signals in it, with threads for processes: who writes where,
what is counted, and graphs of calls."""

import collections
import contextlib
import threading
import time

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch has no torch.distributed", allow_module_level=True)


from neptune_mlir.torch.distributed import exchange, trade  # noqa: E402


class Stream:
    """Everything has happened when a call returns: what is tested is who writes where."""

    def __init__(self, *device):
        self.record = self.wait_stream = self.wait_event = lambda *other: None


class SharedMemory:
    """Symmetric memory and signals of threads."""

    def __init__(self, size):
        self.barrier, self.change = threading.Barrier(size), threading.Condition()
        self.size = size
        self.memory, self.made, self.met = {}, collections.Counter(), collections.Counter()
        self.pads = {}

    def empty(self, room, dtype, device):
        return torch.zeros(room, dtype=dtype)

    def rendezvous(self, memory, group):
        rank, size = group.rank(), group.size()
        number = self.made[rank]
        self.made[rank] += 1
        self.memory[rank, number] = memory
        self.pads[rank, number] = torch.zeros(8 * size, dtype=torch.int64)
        self.barrier.wait(10)
        return Handle(self, number, rank, size)

    def write(self, pad, place, value):
        with self.change:
            counts = place >= exchange._COUNTS * self.size
            assert not pad[place] or counts, "a signal that nobody took back"
            pad[place] = value
            self.change.notify_all()

    def next_value(self, pad, place, known):
        """What a word holds when it is no longer what is known."""
        with self.change:
            assert self.change.wait_for(lambda: int(pad[place]) != known, 5)
            return int(pad[place])


class Handle:
    def __init__(self, memory, number, rank, size):
        self.of, self.number, self.rank, self.size = memory, number, rank, size

    def get_buffer(self, rank, shape, dtype):
        return self.of.memory[rank, self.number]

    def get_signal_pad(self, rank):
        return self.of.pads[rank, self.number]

    def barrier(self, channel, timeout_ms):
        self.of.met[self.rank] += 1
        self.of.barrier.wait(timeout_ms / 1000)

    def wait_signal(self, source, channel, timeout_ms):
        pad, place = self.get_signal_pad(self.rank), channel * self.size + source
        with self.of.change:
            if not self.of.change.wait_for(lambda: bool(pad[place]), timeout_ms / 1000):
                raise TimeoutError(f"process {self.rank} waits for {source}")
            pad[place] = 0


class Group:
    """`late`: seconds that a process takes before each of its calls."""

    def __init__(self, rank, size, of, late=0.0):
        self.of = of
        self.rank, self.size = (lambda: rank), (lambda: size)
        self.group_name, self.late = f"thread {rank}", late

    def _get_backend(self, device):
        from datetime import timedelta
        from types import SimpleNamespace

        return SimpleNamespace(options=SimpleNamespace(_timeout=timedelta(seconds=5)))


def copying(group, seen):
    """Six calls of growing tensors, a gather after each."""
    device, rank, size = torch.device("cpu"), group.rank(), group.size()
    for call in range(6):
        group.call = call

        def shapes(owner, call=call):
            return [(torch.Size((2, 3 + owner)), torch.float32),
                    (torch.Size((2, (1 + call) * 20000 + owner)), torch.int64)]  # fmt: skip

        def values(owner, call=call, shapes=shapes):
            return [torch.full(shape, 10 * call + owner, dtype=kind)
                    for shape, kind in shapes(owner)]  # fmt: skip

        time.sleep(group.late * (call % 2))
        def needed(reader, owner):
            return [(0, 2), (1, 2), (0, 0)][(reader + 2 * owner) % 3]

        around = exchange.CopyExchange(group, device)
        around.start(exchange.Offer(values(rank), [0, 0], shapes, needed))
        for step in range(1, size):
            owner = (rank - step) % size
            a, b = needed(rank, owner)
            if a < b:
                got = around.get(owner)
                time.sleep(group.late)
                pairs = zip(got, values(owner), strict=True)
                seen.append(all(torch.equal(x[a:b], y[a:b]) for x, y in pairs))
        around.done()

        def given(giver, reader, call=call):
            return [(torch.Size((1 + call, giver, 3 + reader)), torch.float32)]

        gifts = exchange.CopyGifts(group, device, given)
        for step in range(1, size):
            owner = (rank - step) % size
            gifts.post(owner, [torch.full(shape, 10.0 * call + rank, dtype=kind)
                               for shape, kind in given(rank, owner)], [(2, 1, 2)])  # fmt: skip
        for giver in set(range(size)) - {rank}:
            (x,) = gifts.take(giver)
            right = (x[:, :, 1:3] == 10 * call + giver).all()
            seen.append(x.shape == given(giver, rank)[0][0] and right)
        gifts.done()
        parts = exchange.Gather(64, group, device, copies=True)
        parts.mine.fill_(call + rank)
        seen.append([int(x[0]) for x in parts.every()] == [call + r for r in range(size)])


def counting(group, seen):
    """Calls whose lanes are counted, or whose positions are, from the last one down, some between
    others: what is counted is there."""
    device, rank, size = torch.device("cpu"), group.rank(), group.size()
    lanes = 8
    for call in range(9):
        group.call = call

        def shapes(owner):
            return [(torch.Size((2, 4, 3 + owner, 5)), torch.float32)] * 2

        def values(owner, call=call, shapes=shapes):
            return [torch.full(shape, 10.0 * call + owner, dtype=kind)
                    for shape, kind in shapes(owner)]  # fmt: skip

        time.sleep(group.late * (call % 2))
        around = exchange.CopyExchange(group, device)
        counted, rows = call % 4 != 3, int(call % 3 == 1)
        offer = exchange.Offer(
            values(rank), [2, 2], shapes, lambda a, b: (1, 3), counted,
            lambda reader, rows=rows: rows,  # of two positions
        )
        around.start(offer)
        for owner in (r for r in range(size) if r != rank):
            if not counted:
                got = around.get(owner)
            else:
                got, address, _ = around.coming(owner)
                pad = around._memory._handle.get_signal_pad(rank)
                place = (address - pad.data_ptr()) // pad.element_size()
                count = 0
                while count < (2 if rows else lanes):
                    count = group.of.next_value(pad, place, count)
                    lane, first = (lanes, 3 - count) if rows else (count, 1)
                    there = [x.flatten(0, 1)[:lane, first:3] == 10.0 * call + owner for x in got]
                    seen.append(all(bool(x.all()) for x in there))
            time.sleep(group.late)
            seen.append(all(torch.equal(x[:, :, 1:3], y[:, :, 1:3])
                            for x, y in zip(got, values(owner), strict=True)))  # fmt: skip
        around.done()


def trading(group, seen):
    """Memory that programs trade in: the same on both sides, zeros, of its own by slots; where more
    programs come, larger, and what was there stays."""
    device, kept = torch.device("cpu"), []
    for programs, words, new in ((4, 160, True), (3, 160, False), (4, 96, True), (9000, 160, True)):
        made = trade.TradeMemory.of(group, device, programs, words)
        (own, other, rank, timeout), memory = made.arguments, group.of.memory
        places = {(r, n): x for (r, n), x in memory.items() if x.data_ptr() in (own, other)}
        (number,) = {n for _, n in places}
        seen.append(own == memory[rank, number].data_ptr() and rank == group.rank())
        seen.append(other == memory[1 - rank, number].data_ptr() and timeout > 0)
        room = len(memory[rank, number]) >= trade.trade_bytes(programs, words)
        seen.append(room and not memory[rank, number].any() and new == (made not in kept))
        kept.append(made)


def test_programs_trade_in_memory_of_both(monkeypatch):
    monkeypatch.setattr(trade.TradeMemory, "_known", {})
    seen = with_threads(trading, 2, None, monkeypatch)
    assert len(seen) == 24 and all(seen)


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("late", [None, 0, 1])
@pytest.mark.parametrize("do", [counting, copying])
def test_graphs_with_an_odd_number_of_calls(do, late, calls, monkeypatch):
    """Replayed one after the other: the first call of each knows nothing of the turns before, nor
    do calls outside of graphs behind them."""
    monkeypatch.setattr(exchange, "GROUP", 100)
    seen = with_threads(do, 2, late, monkeypatch, lambda call: call < 5 and 1 + call // calls)
    assert seen and all(seen)


def meeting(group, seen):
    for group.call in range(4):
        for use in ("ring", "gifts", "gather"):
            exchange._Shared.of(group, torch.device("cpu"), 64, use)
    seen.append(group.of.met[group.rank()])


def test_processes_meet_once_in_a_graph(monkeypatch):
    """Whatever memory they share: graphs of two calls, and of three."""
    assert with_threads(meeting, 2, None, monkeypatch, lambda call: 1 + call // 2) == [2, 2]
    assert with_threads(meeting, 3, None, monkeypatch, lambda call: 1 + call // 3) == [2, 2, 2]


@pytest.mark.parametrize("size, late", [(2, None), (2, 0), (2, 1), (3, 2)])
def test_lanes_are_counted_behind_their_copies(size, late, monkeypatch):
    monkeypatch.setattr(exchange, "GROUP", 100)
    seen = with_threads(counting, size, late, monkeypatch)
    assert seen and all(seen)


@pytest.mark.parametrize("size, late", [(2, None), (2, 0), (2, 1), (4, 2)])
def test_copies_go_to_their_readers(size, late, monkeypatch):
    """Whoever is late: nobody reads what has not come, or writes over what is still read."""
    seen = with_threads(copying, size, late, monkeypatch)
    asked = sum([1, 1, 0][(a + 2 * b) % 3] for a in range(size) for b in range(size) if a != b)
    assert len(seen) == 6 * (asked + size * size) and all(seen)


def with_threads(do, size, late, monkeypatch, capture=lambda call: 0):
    """What threads saw that are processes with symmetric memory. `capture`: of which replay of a
    graph a call is."""
    import torch.distributed._symmetric_memory as symmetric

    memory, seen, failed = SharedMemory(size), [], []
    for name in ("empty", "rendezvous"):
        monkeypatch.setattr(symmetric, name, getattr(memory, name))
    monkeypatch.setattr(
        torch.ops.symm_mem, "stream_write_value32_", memory.write, raising=False
    )
    monkeypatch.setattr(exchange._Shared, "_known", {})
    monkeypatch.setattr(exchange._Shared, "_met", {})
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda x, stream: None)
    for name in ("current_stream", "Stream"):
        monkeypatch.setattr(torch.cuda, name, Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())

    groups = threading.local()
    monkeypatch.setattr(exchange, "capture_of", lambda device: capture(groups.own.call))

    def one(rank):
        groups.own = Group(rank, size, memory, 0.01 * (rank == late))
        try:
            do(groups.own, seen)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(r,)) for r in range(size)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert not failed, failed
    return seen
