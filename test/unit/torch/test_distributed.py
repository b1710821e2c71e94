# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over processes give what one process gives: with gloo, kernels evaluated as defined.

`test_shard.py` has the compiled kernels. All cases of a number of processes run in one group.
"""

import collections
import contextlib
import threading
import time

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch has no torch.distributed", allow_module_level=True)


import torch.nn.functional as F  # noqa: E402

import neptune_mlir.torch.distributed as nd  # noqa: E402
from neptune_mlir import ops  # noqa: E402
from neptune_mlir.errors import ArgumentError  # noqa: E402
from neptune_mlir.frontend.shard import split, split_vjp  # noqa: E402
from neptune_mlir.runtime.shards import order, plan  # noqa: E402
from neptune_mlir.torch import register, unregister  # noqa: E402
from neptune_mlir.torch.distributed import exchange, trade  # noqa: E402
from neptune_mlir.torch.distributed.kernels import ShardKernels  # noqa: E402
from neptune_mlir.torch.distributed.together import TOGETHER, TogetherCall  # noqa: E402
from support.adding import ROWS, Adding, row_sums, staying  # noqa: E402
from support.processes import run  # noqa: E402

LENGTH, DIM = 17, 4
TOLERANCE = 2e-6  # of f32, all of whose sums are exact but for the parts' rounding


def cut(x, layout, rank, dim=2):
    return torch.cat([x.narrow(dim, a, b - a) for a, b in layout.pieces[rank]], dim)


def uneven(size, devices):
    return nd.ShardLayout.contiguous([size - 3 * (devices - 1)] + [3] * (devices - 1))


def data(kv_heads=2, heads=2):
    torch.manual_seed(0)
    q, d = torch.randn(2, 1, heads, LENGTH, DIM).unbind(0)
    k, v = torch.randn(2, 1, kv_heads, LENGTH, DIM).unbind(0)
    return q, k, v, d


def defined(q, k, v, d, causal, window=None):
    """torch's attention in float64, and its gradients."""
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    at = torch.arange(q.shape[2])
    distance = at[:, None] - at[: k.shape[2]]
    seen = (distance >= 0) if causal else torch.ones_like(distance, dtype=torch.bool)
    if window is not None:
        seen = seen & (distance < window)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    out.backward(d.double())
    return out.detach(), q.grad, k.grad, v.grad


def worst(got, want):
    pairs = [(a, b) for a, b in zip(got, want, strict=True) if a.numel()]
    return max(((a - b).abs().max().item() for a, b in pairs), default=0.0)


def attention(causal, layout=None, heads=2, kv_heads=2, window=None):
    def do(group):
        q, k, v, d = data(kv_heads, heads)
        made = (layout or uneven)(LENGTH, group.size())
        want = [cut(x, made, group.rank()) for x in defined(q, k, v, d, causal, window)]
        mine = [cut(x, made, group.rank()).requires_grad_() for x in (q, k, v)]
        out = nd.attention(*mine, group, is_causal=causal, window=window,
                           layout=made if layout else None)  # fmt: skip
        out.backward(cut(d, made, group.rank()))
        return worst([out.detach(), *(x.grad for x in mine)], want)

    return do


def decode(group):
    q, k, v, d = data()
    layout = uneven(LENGTH, group.size())
    k1, v1 = (cut(x, layout, group.rank()) for x in (k, v))
    out = nd.decode_attention(q[:, :, :1], k1, v1, group)
    return worst([out], [defined(q[:, :, :1], k, v, d[:, :, :1], False)[0]])


def nothing_here(group):
    """A process with no keys at all."""
    q, k, v, d = data()
    layout = nd.ShardLayout.contiguous([LENGTH] + [0] * (group.size() - 1))
    k1, v1 = (cut(x, layout, group.rank()) for x in (k, v))
    out = nd.decode_attention(q[:, :, :1], k1, v1, group)
    return worst([out], [defined(q[:, :, :1], k, v, d[:, :, :1], False)[0]])


def loss(group):
    torch.manual_seed(1)
    x, w, d = torch.randn(5, DIM), torch.randn(13, DIM), torch.randn(5)
    target = torch.tensor([0, 12, 5, 7, 2])
    layout = uneven(13, group.size())
    mine = [x.clone().requires_grad_(), cut(w, layout, group.rank(), 0).requires_grad_()]
    out = nd.linear_cross_entropy(*mine, target, group)
    out.backward(d)
    x, w = (y.double().requires_grad_() for y in (x, w))
    want = F.cross_entropy(x @ w.T, target, reduction="none")
    want.backward(d.double())
    got = [out.detach(), *(y.grad for y in mine)]
    return worst(got, [want.detach(), x.grad, cut(w.grad, layout, group.rank(), 0)])


def softmax(group):
    """A program whose result lies along the sharded axis."""
    torch.manual_seed(2)
    x = torch.randn(3, 9)
    layout = uneven(9, group.size())
    program = ops.softmax()
    axis = program.axis_list[-1].name
    function = nd.compile(program, group, {axis: None}, layouts={axis: layout})
    got = function(cut(x, layout, group.rank(), 1))
    return worst([got], [cut(x.softmax(1), layout, group.rank(), 1)])


def same_bits(group):
    """Whoever is late: the same bits."""
    q, k, v, _ = data()
    layout = nd.ShardLayout.zigzag(LENGTH, group.size())
    mine = [cut(x, layout, group.rank()) for x in (q, k, v)]
    first = nd.attention(*mine, group, is_causal=True, layout=layout)
    for k in range(4):
        time.sleep(0.02 * ((k + group.rank()) % group.size()))
        if not torch.equal(first, nd.attention(*mine, group, is_causal=True, layout=layout)):
            return 1.0
    return 0.0


def by_torch(group):
    """torch's own context_parallel and DTensors, with our kernels registered."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.experimental import context_parallel

    q, k, v, d = (x[:, :, :16] for x in data())
    want = defined(q, k, v, d, True)[0]
    mesh = init_device_mesh("cpu", (group.size(),))
    register()
    try:
        with torch.no_grad():
            sharded = (distribute_tensor(x, mesh, [Shard(2)]) for x in (q, k, v))
            found = F.scaled_dot_product_attention(*sharded, is_causal=True)
            one = worst([found.full_tensor()], [want])
            buffers = [x.clone() for x in (q, k, v)]
            with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, 2]):
                found = F.scaled_dot_product_attention(*buffers, is_causal=True)
    finally:
        unregister()
    layout = nd.ShardLayout.zigzag(16, group.size())
    return max(one, worst([found], [cut(want, layout, group.rank())]))


def at_once(group):
    """All keys to every process, and the program as it is on them."""
    q, k, v, d = data()
    found = []
    for layout in (nd.ShardLayout.zigzag(LENGTH, group.size()), uneven(LENGTH, group.size())):
        mine = (cut(x, layout, group.rank()) for x in (q, k, v))
        out = nd.attention(*mine, group, is_causal=True, layout=layout, gathers=True)
        found.append(worst([out], [cut(defined(q, k, v, d, True)[0], layout, group.rank())]))
    return max(found)


def wrong_layout(group):
    q, k, v, _ = data()
    with pytest.raises(ArgumentError, match="by its layout"):
        nd.attention(q, k, v, group, layout=nd.ShardLayout.even(LENGTH, group.size()))
    return 0.0


def backwards(size, devices):
    return nd.ShardLayout(nd.ShardLayout.zigzag(size, devices).pieces[::-1])


def met_late(group):
    """Some of a process's own data is met last, also where parts of gradients travel."""
    old, plan.ALIGNED = plan.ALIGNED, 1
    try:
        found = gradients_at_once(group)
        return max(found, attention(True, backwards, heads=4)(group))
    finally:
        plan.ALIGNED = old


def together(group):
    """One run over the data of both processes, where there are two."""
    q, k, v, d = data()
    old, plan.ALIGNED = plan.ALIGNED, 1
    found = []
    try:
        for causal, layout in ((False, uneven), (True, nd.ShardLayout.zigzag)):
            pieces = layout(LENGTH, group.size())
            function = nd.compile(
                ops.attention(head_dim=DIM, v_dim=DIM, dtype="f32", causal=causal), group,
                {"i": None, "j": None}, layouts={"i": pieces, "j": pieces},
            )  # fmt: skip
            function.primal.form = TOGETHER
            out = function(*(cut(x, pieces, group.rank()) for x in (q, k, v)))
            want = cut(defined(q, k, v, d, causal)[0], pieces, group.rank())
            found.append(worst([out], [want]))
    finally:
        plan.ALIGNED = old
    return max(found)


def left_over(group):
    """One run together that leaves rows to chunks of both processes' data."""
    size, length = group.size(), 24
    if size != 2:
        return 0.0
    taken = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "TILE", 2)
        patch.setattr(order, "LEAST", 1)
        patch.setattr(plan, "ALIGNED", 1)
        patch.setattr(TogetherCall, "_multiprocessors", 5)
        patch.setattr(ShardKernels, "rows", 2)
        in_chunks = TogetherCall._in_chunks
        patch.setattr(TogetherCall, "_in_chunks",
                      lambda self, rest, *a: (taken.append(rest), in_chunks(self, rest, *a)))
        function = nd.compile(
            ops.attention(head_dim=DIM, v_dim=DIM, dtype="f32"), group, {"i": None, "j": None}
        )
        function.primal.form = TOGETHER
        pieces = nd.ShardLayout.even(length, size)
        torch.manual_seed(3)
        q, k, v, d = (torch.randn(1, 2, length, DIM) for _ in range(4))
        out = function(*(cut(x, pieces, group.rank()) for x in (q, k, v)))
    assert taken == [order.LeftOver(10, 2)]
    return worst([out], [cut(defined(q, k, v, d, False)[0], pieces, group.rank())])


def gradients_at_once(group):
    """All gradients in one pass, whose parts go to those whose data they are of; or each apart."""
    pieces, found = nd.ShardLayout.zigzag(LENGTH, group.size()), []
    q, k, v, d = data()
    want = [cut(x, pieces, group.rank()) for x in defined(q, k, v, d, True)]
    for same in (False, True):
        function = nd.compile(
            ops.attention(head_dim=DIM, v_dim=DIM, dtype="f32", causal=True), group,
            {"i": None, "j": None}, layouts={"i": pieces, "j": pieces},
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShardKernels, "added", property(staying))
            patch.setattr(ShardKernels, "in_common", ROWS)
            patch.setattr(ShardKernels, "once", property(row_sums))
            patch.setattr(ShardKernels, "adding", property(Adding))
            patch.setattr(torch, "are_deterministic_algorithms_enabled", lambda same=same: same)
            assert len(function.backward(same)) == 1 + same
            own = [cut(x, pieces, group.rank()).requires_grad_() for x in (q, k, v)]
            out = function(*own)
            out.backward(cut(d, pieces, group.rank()))
        found.append(worst([out.detach(), *(x.grad for x in own)], want))
    return max(found)


CASES = {
    "global, uneven": attention(False),
    "causal, zigzag, grouped heads": attention(True, nd.ShardLayout.zigzag, heads=4),
    "causal, one piece": attention(True, nd.ShardLayout.even),
    "window": attention(True, nd.ShardLayout.zigzag, window=5),
    "decode": decode, "no keys": nothing_here, "linear and cross-entropy": loss,
    "softmax": softmax, "same bits": same_bits, "context_parallel": by_torch,
    "at once": at_once, "met late": met_late, "together": together, "left over": left_over,
    "wrong layout": wrong_layout, "gradients at once": gradients_at_once,
}  # fmt: skip


def solve():
    """What the processes will ask the solver, once for all of them: they inherit the answers."""
    same = {"head_dim": DIM, "v_dim": DIM, "dtype": "f32"}
    for options in ({}, {"causal": True}, {"causal": True, "group": 2},
                    {"causal": True, "window": 5}):  # fmt: skip
        program = ops.attention(**same, **options)
        split(program, ["i", "j"])
        split_vjp(program, ["i", "j"])
    split(ops.attention(**same, q_len=1), ["j"])
    split_vjp(ops.linear_cross_entropy(width=DIM), ["j"])


def check(size, compiled=False, cases=tuple(CASES)):
    solve()
    found = run(size, [(name, CASES[name]) for name in cases], compiled=compiled)
    wrong = {
        name: values for name, values in found.items()
        if any(not isinstance(x, float) or not x <= TOLERANCE for x in values)
    }  # fmt: skip
    assert not wrong, "\n".join(f"{name}: {v}" for name, values in wrong.items() for v in values)


@pytest.mark.filterwarnings("ignore")
def test_two_processes():
    check(2)


@pytest.mark.filterwarnings("ignore")
def test_four_processes():
    """Forward and backward, of uneven lengths; all other cases of four run nightly."""
    check(4, cases=("global, uneven", "decode", "linear and cross-entropy"))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size, compiled", [(4, False), (2, True)])
def test_more_processes_and_compiled_kernels(size, compiled):
    check(size, compiled)



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
                got, words, _ = around.coming(owner)
                pad = around._memory._handle.get_signal_pad(rank)
                for x, address in zip(got, words, strict=True):  # each counts for itself
                    place, count = (address - pad.data_ptr()) // pad.element_size(), 0
                    while count < (2 if rows else lanes):
                        count = group.of.next_value(pad, place, count)
                        lane, first = (lanes, 3 - count) if rows else (count, 1)
                        there = x.flatten(0, 1)[:lane, first:3] == 10.0 * call + owner
                        seen.append(bool(there.all()))
                seen.append(len({*words}) == 2)
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
