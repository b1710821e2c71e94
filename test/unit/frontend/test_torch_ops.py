# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of torch that we write as others, and constants that we fold."""

import operator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.errors import LoweringError  # noqa: E402
from neptune_mlir.frontend import torch_graph, torch_linalg  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402

torch.manual_seed(0)
X = torch.randn(3, 4, 6)
X[0, 0, 3], X[1, 2], X[2, 1, 2:4], X[2, 2, :3] = torch.nan, 2.0, torch.inf, -torch.inf
Y = torch.randn(3, 5, 6)
WHOLE = torch.randint(-5, 5, (4, 9))
AT = torch.randint(0, 4, (3, 6, 6))
UPDATES = torch.randn(3, 7, 6)


def agrees(program, *arguments, target=None):
    module = from_torch(program, arguments)
    if target:
        return neptune_mlir.compile(module, target=target, on_demand=False)
    found, wanted = neptune_mlir.compile(module)(*arguments), program(*arguments)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-5)
    return None


def scatters(x, y, whole, at, updates):
    return (
        x.scatter(1, at, updates), x.scatter(-2, at, 2.0), x.scatter_add(1, at, updates),
        x.scatter_reduce(1, at, updates, "amax"), (x > 0).scatter(1, at, True),
        x.scatter_reduce(1, at, updates, "amin", include_self=False),
        y.index_add(1, at[0, :4, 0], x, alpha=2), whole.scatter(0, at[0, :, :3], 7).view(-1),
        y.index_add(1, at[0, :4, 0], x).view(-1), x.logcumsumexp(1).view(-1),  # rows as torch's
        x.index_put((at[:, 0] % 3, at[:, 1] - 3), updates[0, :6]),
        y.index_copy(1, at[0, :3, 1], x[:, 1:]),
        x.index_put((at[0, :3, 2] % 3,), x, accumulate=True),
    )  # fmt: skip


def powers(x, y, whole, at, updates):
    up = torch.arange(6)
    return (
        y.abs() ** up, 0.9**up, torch.tensor(1.5) ** whole, 2**up, whole ** whole.clamp(max=3),
        (whole & 7) | 8, whole ^ 3,
    )  # fmt: skip


def extrema(x, y, whole, at, updates):
    functional, y = torch.nn.functional, y[:, :4]
    return (
        torch.maximum(x, y), torch.minimum(y, x), x.clamp(-1, 1), torch.clamp(x, max=y),
        functional.hardtanh(x), functional.relu6(x), functional.hardsigmoid(x), x.argmin(),
        x.argmax(1, keepdim=True), *x.max(-1), x.isfinite(), whole.clamp(0, 2),
        torch.isclose(x, x * (1 + 1e-6)), torch.hypot(x, y), whole.clamp(min=0.5),
    )  # fmt: skip


def gathered(x, y, whole, at, updates):
    """Rows of rows: what is gathered again reads its own positions."""
    order, back = whole.argsort(1)[0, :3], torch.arange(2, -1, -1)
    both = torch.cat([y, updates[order % 3][:, :5]], -1)
    return updates[back][back] @ y[0].mT, both[back] @ torch.ones(12, 2), both.mean(0)


def shifted(x, y, whole, at, updates):
    """What is cut off at one side and padded at the other; a GELU by tanh."""
    pad, gelu = torch.nn.functional.pad, torch.nn.functional.gelu
    return (
        pad(y, (0, 0, 1, -1)) - y, pad(y, (-2, 1, 3, -2, -1, 0), value=2.5), pad(whole, (-1, -2)),
        gelu(y, approximate="tanh"), gelu(updates.mT, approximate="tanh").sum(-1),
    )  # fmt: skip


def written(x, at, values):
    x = x.clone()
    x[at] = values
    return x


def put(x, y, whole, at, updates):
    """Masks and rows that choose where to write; numbers without a dimension."""
    seen, row = y[0, :, 0] > 0, updates[0, 0]
    one, first = updates[0, 0, 0], torch.tensor(0)
    lists = torch.tensor([0, -1, 0]), torch.tensor([-2, 1, -2])
    return (
        written(y, lists, y[0, :3]), y.index_put(lists, one, accumulate=True),
        torch.ops.aten.index_put(y, [lists[0], None, lists[1]], y[0, :3, :1]),
        torch.zeros(300).index_put((torch.arange(250) - 300,), one),  # a loop over updates
        written(y[0], seen, row), written(y, (slice(None), seen), row),
        written(y[0], y[0] > 0, 2.0), y.put(at[0], updates[0, :6]),
        y[0].index_put((y[0] > 0,), updates[0, 1, :1], accumulate=True),
        row.masked_scatter(y[0] > 0, updates), y.scatter_reduce(1, at, updates, "mean"),
        y.scatter(1, at, updates[:, :6], reduce="multiply"), whole.scatter_reduce(
            1, at[0, :4], whole.flip(1), "prod", include_self=False),
        one.scatter_reduce(0, first, one + 1, "sum"), one.index_add(0, first[None], one),
        y.index_reduce(1, at[0, 0], updates[:, :6], "amax"), *whole.sort(dim=1, stable=True),
        whole.cumprod(1, dtype=torch.float32),
        torch.searchsorted(y, updates[:, :5], sorter=y.argsort(-1)),
        torch.searchsorted(y[0, 0].sort()[0], updates, right=True),
    )  # fmt: skip


def bags(x, y, whole, at, updates):
    """Bags of rows; what torch.export or torch-mlir refuse as they are written."""
    functional, rows, starts = torch.nn.functional, at[0, :2].reshape(-1), torch.tensor([0, 4, 4])
    table, weights = updates[0], y[0, :, 0]
    image = updates[:1]
    return (
        functional.embedding_bag(rows, table, torch.tensor([0, 4, 12]), mode="sum",
                                 padding_idx=1, include_last_offset=True),
        functional.embedding_bag(rows, table, starts), functional.embedding_bag(
            at[0, 0, :5], table, starts, mode="sum", per_sample_weights=weights),
        functional.embedding_bag(rows, table, starts, mode="max", padding_idx=1),
        functional.gaussian_nll_loss(y[0], updates[0, :5], y[1].abs(), full=True),
        functional.gaussian_nll_loss(y, updates[:, :5], y[..., 0].abs(), reduction="none"),
        y.narrow(1, at[0, 0, 0], 1), y.narrow(2, at[0, 0, 1] - 6, 2), y.narrow(0, 1, 2),
        functional.avg_pool2d(image, (2,), stride=(2,)), functional.max_pool2d(image, 2),
        whole.mode(1)[0], *y.mode(-1, True),
        y.cumprod(1, dtype=torch.float32),
    )  # fmt: skip


def zeros(x, y, whole, at, updates):
    """Signs of zeros as torch has them, by what 1 over each is; and numbers near 0."""
    functional, x = torch.nn.functional, torch.where(x.abs() < 0.3, x * 0, x).nan_to_num(0, 9, -9)
    signed = x / 3, torch.trunc(x), functional.elu(x), torch.fmod(x, 0.7), x // 0.5
    near = y * 1e-6
    return *(1 / s for s in signed), functional.elu(near) * 1e6, functional.selu(near) * 1e6


def odd_numbers(x, y, whole, at, updates):
    """The other number beside a NaN, and places of a NaN among ordered numbers."""
    row = torch.tensor([-1.0, 0.0, 0.0, 2.0])
    return (
        torch.fmax(x, y[0, 0]), torch.fmin(x, x.flip(0)), torch.searchsorted(row, x),
        torch.bucketize(x, row, right=True), torch.nn.functional.rrelu(y),
    )  # fmt: skip


PROGRAMS = {
    "signs of zeros": zeros,
    "NaN beside numbers": odd_numbers,
    "what is put where": put,
    "bags": bags,
    "pads below 0, GELU by tanh": shifted,  # torch-mlir: shifts lost, off by 5e-5
    "a gather of a gather": gathered,
    "NaN in extrema": extrema,  # torch-mlir loses it
    "extrema so far": lambda x, y, whole, at, updates: (
        *torch.cummax(x, -1), *torch.cummin(x, 1), *torch.cummax(whole, 1), *torch.cummin(whole, 0)
    ),
    "medians": lambda x, y, whole, at, updates: (
        x.median(), *x.median(1), *y.median(-1, keepdim=True), whole.median(), y[0, 0, 0].median(),
        x.nanmedian(), x.nanmedian(-1)[0], *y.kthvalue(2, 1),
    ),
    "distances": lambda x, y, whole, at, updates: tuple(
        torch.cdist(y, updates, p=p) for p in (0.0, 1.0, 2.0, 3.0, torch.inf)
    ),
    "scatters": scatters,
    "powers": powers,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_torch(name):
    agrees(PROGRAMS[name], X, Y, WHOLE, AT, UPDATES)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_gates_and_decays_compile_for_gpus(target):
    """A scatter of one update a row was a loop for CPUs alone, a power of positions in float64."""

    def program(x):
        best = x.topk(2, -1, sorted=False)[1]
        order = x[:, 0].argsort()
        place = torch.empty_like(order)
        place[order] = torch.arange(5)  # into what nobody wrote
        x = x[place]
        return torch.zeros_like(x).scatter(1, best, 1.0) * 0.9 ** torch.arange(6)

    agrees(program, torch.randn(5, 6), target=target)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "grouped_mm"), reason="torch has none")
def test_products_in_groups():
    """torch's own looks at the offsets, and is exported for bfloat16 alone."""
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)  # of 8 rows the last has no group
    x, w, z, v = (torch.randn(n) for n in ((8, 4), (3, 4, 8), (3, 5, 4), (4, 8)))
    w[1] = torch.nan  # a group without rows

    def program(x, w, z, v, ends):
        product = torch.nn.functional.grouped_mm
        summed = product(x.mT, x @ v, offs=ends)
        return (
            product(x, w, offs=ends), product(z, v, offs=ends), summed,
            product(x[:3], w, offs=ends.clamp(max=3)), product(w.mT, w),
        )  # fmt: skip

    found = neptune_mlir.compile(from_torch(program, (x, w, z, v, ends)))(x, w, z, v, ends)
    parts = [slice(0, 2), slice(2, 2), slice(2, 7)]
    rows, columns = torch.zeros(8, 8), torch.zeros(5, 8)
    for k, part in enumerate(parts):
        rows[part], columns[:, part] = x[part] @ w[k], z[k] @ v[:, part]
    summed = torch.stack([x[part].mT @ (x @ v)[part] for part in parts])
    few = torch.cat([x[:2] @ w[0], x[2:3] @ w[2]])
    for got, want in zip(found, (rows, columns, summed, few, w.mT @ w), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_and_sums_of_products_of_16_bits(dtype):
    """torch-mlir refuses some, and rounds each power of others, or each square."""
    x, a, b = (t.to(dtype) for t in (Y[0], Y[:, :, :4].contiguous(), Y[:, :4].contiguous()))

    def program(x, a, b):
        return (
            torch.linalg.vector_norm(x, 0.9, 0, True), torch.dist(x, x.flip(0), 1.5),
            torch.addbmm(x, a, b, beta=0.6, alpha=0.2),
            torch.nn.functional.rms_norm(x * 300, (6,), x[0]),  # squares above 65504
        )  # fmt: skip

    found = neptune_mlir.compile(from_torch(program, (x, a, b)))(x, a, b)
    for got, want in zip(found, program(x.double(), a.double(), b.double()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=4 * torch.finfo(dtype).eps, atol=0.05)


COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
ARITHMETIC = (
    operator.mul, operator.sub, operator.mod, lambda x, s: torch.add(x, x, alpha=s),
    lambda x, s: torch.sign(x) + s, lambda x, s: x.masked_fill(x > 0, s), torch.fmod,
)  # fmt: skip


@pytest.mark.first_of_each()
@pytest.mark.parametrize("value", [-3.0, 2.5, 2, -3])
def test_constants_and_numbers_of_another_kind(value):
    """torch-mlir's folding takes -3 for 2^64 - 3, compares bits, and dies of a few."""
    numbers = (2, -3) if isinstance(value, float) else (2, -3, 2.0, 1.5)

    def program(x):
        constant = torch.full((2,), value)
        made = [f(constant, s) for f in COMPARISONS for s in numbers]
        whole = [s for s in numbers if isinstance(value, float) or isinstance(s, int)]
        return *made, *(f(constant, s) for f in ARITHMETIC for s in whole), constant.sum() + x

    agrees(program, torch.randn(2))


def test_a_tile_of_unknown_shape_is_a_diagnostic(monkeypatch):
    """An exception in a function of MLIR's walk came out as a RuntimeError. (A determinant, as
    torch-mlir makes it, has such a tile.)"""
    monkeypatch.setattr(torch_graph, "_refuse_determinants", lambda graph: None)
    monkeypatch.setattr(torch_linalg, "MOST", 0)
    with pytest.raises(LoweringError, match="a tile of dynamic shape"):
        neptune_mlir.compile(from_torch(torch.linalg.det, (torch.randn(4, 8, 8),)))


class Held(torch.nn.Module):
    """Parameters and buffers in lists: torch-mlir takes results of operations there alone."""

    def __init__(self):
        super().__init__()
        self.q, self.v = (torch.nn.Parameter(torch.randn(5)) for _ in range(2))
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.table = torch.nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        bias = torch.cat((self.q, torch.zeros_like(self.v), self.v)).view(5, 3)
        stacked = torch.stack([self.q, x[0], self.v])
        return x[:, self.order], x @ bias, stacked, torch.cat([self.q, self.v]), self.table[
            self.order
        ]


def test_parameters_in_lists():
    agrees(Held(), torch.randn(4, 5))


def test_heads_of_one_element():
    """A product over one element of several is a kernel without parallel axes on some tiles."""
    weight, bias = torch.randn(36, 12), torch.randn(36)
    seen = torch.ones(16, 16).tril()[None, None]

    def program(x):
        made = torch.nn.functional.linear(x, weight, bias).split(12, 2)
        q, k, v = (y.view(4, 16, 12, 1).transpose(1, 2) for y in made)
        s = (q @ k.mT).masked_fill(seen == 0, -torch.inf).relu()
        return (s @ v).transpose(1, 2).reshape(4, 16, 12)

    agrees(program, torch.randn(4, 16, 12), target="sm_90a")


def test_views_that_merge_lengths_of_calls():
    def rows(x):
        return x.reshape(-1, 32) * 2, x.reshape(-1, 16)

    lengths = {0: torch.export.Dim("a"), 1: torch.export.Dim("b")}
    kernel = neptune_mlir.compile(from_torch(rows, (torch.rand(3, 4, 32),), (lengths,)))
    x = torch.rand(5, 2, 32)
    for got, want in zip(kernel(x), rows(x), strict=True):
        torch.testing.assert_close(got, want)


def test_buffers_that_are_not_persistent():
    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("read", torch.randn(4), persistent=False)
            self.register_buffer("written", torch.randn(4), persistent=False)

        def forward(self, x):
            self.written.add_(1)
            return x + self.read * self.written

    module, x = Shifted(), torch.randn(3, 4)
    with pytest.warns(UserWarning, match="result 0 is buffer 'written'"):
        kernel = neptune_mlir.compile(from_torch(module, (x,)))
    (written, found), want = kernel(x), module(x)
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(written, module.written)


def test_positions_along_dimensions_that_calls_know():
    def last(x, lengths):
        return x[torch.arange(x.shape[0]), lengths - 1]

    batch, n = torch.export.Dim("batch"), torch.export.Dim("n")
    given = torch.randn(3, 7, 4), torch.tensor([3, 7, 0])
    kernel = neptune_mlir.compile(from_torch(last, given, [{0: batch, 1: n}, {0: batch}]))
    for x, lengths in (given, (torch.randn(2, 12, 4), torch.tensor([12, 5]))):
        assert torch.equal(kernel(x, lengths), last(x, lengths))


def test_results_lie_in_memory_as_those_of_torch():
    def program(a, put, at, rows):
        q, k, v = a.view(2, 3, 3, 2, 4).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        whole = torch.zeros(2, 3, 8)
        whole.view(2, 3, 2, 4)[:, :, 1].scatter_(2, at, put)
        return seen.transpose(1, 2).contiguous().view(-1, 8) * 2, whole * rows

    a, put = torch.randn(2, 3, 24), torch.randn(2, 3, 1)
    agrees(program, a, put, torch.randint(0, 4, (2, 3, 1)), torch.randn(2, 3, 8))


def test_modules_that_a_program_converts():
    class Converts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.norm = torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4)

        def forward(self, x):
            self.gate = self.gate.to(torch.bfloat16)
            return self.norm.float()(self.gate(x.bfloat16()).float()).softmax(-1)

    model, x = Converts().eval(), torch.randn(5, 8)
    kernel = neptune_mlir.compile(from_torch(model, (x,)))
    assert model.gate.weight.dtype is torch.float32
    torch.testing.assert_close(kernel(x), model(x), rtol=1e-5, atol=1e-5)
