# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over processes give what one process gives: with gloo, kernels evaluated as defined.

`test_shard.py` has the compiled kernels. All cases of a number of processes run in one group.
"""

import contextlib
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
from neptune_mlir.torch.distributed.kernels import ShardKernels  # noqa: E402
from neptune_mlir.torch.distributed.run import ShardCall  # noqa: E402
from neptune_mlir.torch.distributed.together import TOGETHER, TogetherCall  # noqa: E402
from support.adding import ROWS, Adding, row_sums, staying  # noqa: E402
from support.processes import run  # noqa: E402

LENGTH, DIM = 17, 4
TOLERANCE = 2e-6  # of f32, all of whose sums are exact but for the parts' rounding
HALF = 2e-3  # of f16: results up to 2, and what the forward pass saved is rounded, too


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


def all_first(size, devices):
    return nd.ShardLayout.contiguous([size] + [0] * (devices - 1))


def nothing_here(group):
    """A process with no keys at all, or no classes."""
    q, k, v, d = data()
    layout = all_first(LENGTH, group.size())
    k1, v1 = (cut(x, layout, group.rank()) for x in (k, v))
    out = nd.decode_attention(q[:, :, :1], k1, v1, group)
    want = defined(q[:, :, :1], k, v, d[:, :, :1], False)[0]
    return max(worst([out], [want]), loss(group, all_first))


def loss(group, layout=uneven):
    torch.manual_seed(1)
    x, w, d = torch.randn(5, DIM), torch.randn(13, DIM), torch.randn(5)
    target = torch.tensor([0, 12, 5, 7, 2])
    made = layout(13, group.size())
    mine = [x.clone().requires_grad_(), cut(w, made, group.rank(), 0).requires_grad_()]
    out = nd.linear_cross_entropy(*mine, target, group)
    out.backward(d)
    x, w = (y.double().requires_grad_() for y in (x, w))
    want = F.cross_entropy(x @ w.T, target, reduction="none")
    want.backward(d.double())
    got = [out.detach(), *(y.grad for y in mine)]
    return worst(got, [want.detach(), x.grad, cut(w.grad, made, group.rank(), 0)])


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


class Streams:
    """Which of two streams what a process does is on."""

    def __init__(self, device):
        self.on, self.begin, self.catch_up = "", lambda: None, lambda: None
        self.first, self.last = (lambda name=name: self.within(name) for name in ("first", "last"))

    @contextlib.contextmanager
    def within(self, name):
        self.on = name
        yield
        self.on = ""

    def meet(self):
        assert not self.on


def met_late(group):
    """Some of a process's own data is met last, also where parts of gradients travel. What it met
    before is joined beside that."""
    seen, real, streams = [], ShardCall._join_stretch, Streams(None)

    def join(self, over, stretch, *rest):
        if over != self.traveling:
            seen.append((streams.on, stretch.span[1] <= self.schedule.late(self.rank, self.rank)))
        real(self, over, stretch, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "ALIGNED", 1)
        patch.setattr(ShardCall, "_join_stretch", join)
        patch.setattr(ShardCall, "beside", lambda self, wanted: streams)
        found = gradients_at_once(group)
    assert {("last", False), ("", True)} == {*seen}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "ALIGNED", 1)
        return max(found, attention(True, backwards, heads=4)(group))


def few(group):
    """Fewer positions than processes: one of them has nothing."""
    size, found = group.size(), []
    q, k, v, d = (x[:, :, : size - 1] for x in data())
    first, both = nd.ShardLayout.contiguous([1] * (size - 1) + [0]), nd.ShardLayout.zigzag
    for causal, layout in ((False, first), (True, first), (True, both(size - 1, size))):
        want = [cut(x, layout, group.rank()) for x in defined(q, k, v, d, causal)]
        mine = [cut(x, layout, group.rank()).requires_grad_() for x in (q, k, v)]
        out = nd.attention(*mine, group, is_causal=causal, layout=layout)
        out.backward(cut(d, layout, group.rank()))
        found.append(worst([out.detach(), *(x.grad for x in mine)], want))
    return max(found)


def other_keys(group):
    """As many pieces of keys as of queries, but of another length, in f16 with grouped heads."""
    size, rank = group.size(), group.rank()
    q, _, _, d = (x.half() for x in data(heads=4))
    torch.manual_seed(4)
    k, v = torch.randn(2, 1, 2, 11, DIM).half().unbind(0)
    rows, columns = uneven(LENGTH, size), nd.ShardLayout.even(11, size)
    placed = (rows, columns, columns)
    out, *gradients = defined(q, k, v, d, False)
    gradients = [cut(x, y, rank) for x, y in zip(gradients, placed, strict=True)]
    mine = [cut(x, y, rank).requires_grad_() for x, y in zip((q, k, v), placed, strict=True)]
    got = nd.attention(*mine, group, layout=rows, kv_layout=columns)
    got.backward(cut(d, rows, rank))
    off = worst([got.detach(), *(x.grad for x in mine)], [cut(out, rows, rank), *gradients])
    assert off < HALF, off
    return off * TOLERANCE / HALF


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
    "wrong layout": wrong_layout, "gradients at once": gradients_at_once, "few": few,
    "other keys": other_keys,
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
    """Forward and backward, of uneven lengths; all other cases run nightly."""
    check(2, cases=("global, uneven", "causal, zigzag, grouped heads", "decode",
                    "linear and cross-entropy", "met late"))  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_four_processes():
    """The same of four."""
    check(4, cases=("global, uneven", "decode", "linear and cross-entropy", "few", "no keys"))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size, compiled", [(2, False), (4, False), (2, True)])
def test_more_processes_and_compiled_kernels(size, compiled):
    check(size, compiled)
