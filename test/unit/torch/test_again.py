# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of attention that are like an earlier one: they reach the kernel by addresses alone, and
say what a first call would say."""

import sys

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.driver.kernel import Kernel  # noqa: E402
from neptune_mlir.errors import ArgumentError  # noqa: E402
from neptune_mlir.torch import again, attention, op  # noqa: E402
from neptune_mlir.torch.trace import trace  # noqa: E402

SCALE = 0.25


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Two kernels for the module: with a modifier, and without."""
    before = dict(op._kernels)
    yield
    op._kernels.clear()
    op._kernels.update(before)


@pytest.fixture
def whole(monkeypatch):
    """The calls that went through all checks."""
    again.forget()
    seen = []
    call = Kernel.__call__

    def count(self, *arguments, **named):
        seen.append(arguments)
        return call(self, *arguments, **named)

    monkeypatch.setattr(Kernel, "__call__", count)
    return seen


def tensors(seed=0, rows=9):
    torch.manual_seed(seed)
    return [torch.randn(2, 3, rows, 16) for _ in range(3)]


def wanted(q, k, v, bias=0):
    s = q.double() @ k.double().mT * SCALE + bias
    return (s.softmax(-1) @ v.double()).float()


def agree(found, expected):
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=2e-6)


def test_other_tensors_of_the_same_shapes(whole):
    for seed in range(3):
        q, k, v = tensors(seed)
        agree(attention(q, k, v, scale=SCALE), wanted(q, k, v))
    assert len(whole) == 1
    agree(attention(q.transpose(0, 1).contiguous().transpose(0, 1), k, v, scale=SCALE),
          wanted(q, k, v))  # fmt: skip
    q, k, v = tensors(3, rows=8)
    agree(attention(q, k, v, scale=SCALE), wanted(q, k, v))
    assert len(whole) == 3, "other strides, and another length"


def test_one_tensor_for_all_is_no_example(whole):
    """Its address does not say which argument it was."""
    x, *_ = tensors()
    for _ in range(2):
        agree(attention(x, x, x, scale=SCALE), wanted(x, x, x))
    q, k, v = tensors(1)
    agree(attention(q, k, v, scale=SCALE), wanted(q, k, v))


def test_what_a_tensor_does_not_hold_itself(whole):
    op._kernels.clear()  # of other tests, which take more arguments
    q, k, v = tensors()
    agree(attention(q, k, v, scale=SCALE), wanted(q, k, v))
    negated = torch._neg_view(q)
    agree(attention(negated, k, v, scale=SCALE), wanted(-q, k, v))
    (kernel, *_) = op._kernels.values()
    with pytest.raises(ArgumentError, match="negated lazily"):
        kernel(negated, k, v)
    columns = q.mT.contiguous().mT  # no kernel reads along rows of stride 9
    for _ in range(2):
        agree(attention(columns, k, v, scale=SCALE), wanted(q, k, v))


def test_another_number_of_threads(whole, monkeypatch):
    q, k, v = tensors()
    attention(q, k, v, scale=SCALE)
    monkeypatch.setenv("NEPTUNE_NUM_THREADS", "1")
    agree(attention(q, k, v, scale=SCALE), wanted(q, k, v))
    assert len(whole) == 2


def test_gradients_and_traces_see_the_operation(whole):
    q, k, v = tensors()
    attention(q, k, v, scale=SCALE)
    learned = q.clone().requires_grad_()
    assert attention(learned, k, v, scale=SCALE).grad_fn is not None
    traced = torch.fx.experimental.proxy_tensor.make_fx(
        lambda q: attention(q, k, v, scale=SCALE)
    )(q)  # fmt: skip
    assert torch.ops.neptune.attention.default in {n.target for n in traced.graph.nodes}


@pytest.fixture
def signatures(monkeypatch):
    """The signatures that were made: what ran last needs none."""
    seen = []
    signature = again.signature
    monkeypatch.setattr(again, "signature", lambda *given: seen.append(given) or signature(*given))
    return seen


def by_operation(q, k, v, scale=SCALE):
    """As compiled graphs do."""
    return torch.ops.neptune.attention.default(q, k, v, None, [], "", scale, False, False)[0]


@pytest.mark.parametrize("door", [attention, by_operation])
def test_the_call_that_ran_last_is_asked_first(whole, signatures, door):
    for seed in range(4):
        q, k, v = tensors(seed)
        agree(door(q, k, v, scale=SCALE), wanted(q, k, v))
    assert len(signatures) == 1 == len(whole)
    fewer = tensors(5, rows=8)
    for given in (fewer, (q, k, v), fewer):
        agree(door(*given, scale=SCALE), wanted(*given))
    assert len(signatures) == 4 and len(whole) == 2


def steps_to_the_launch(call):
    """How many functions, of Python and of C, are called before what is kept of a call runs."""
    return steps_of(call).index(True)


def steps_of(call):
    """The functions, of Python and of C, that are called: whether each is what is kept of a call.
    (Last of all the end of this.)"""
    seen = []

    def watch(frame, event, _):
        if event in ("call", "c_call"):
            seen.append(frame.f_code is again._Call.run.__code__)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen[:-1]


@pytest.mark.parametrize(("door", "most"), [(attention, 10), (by_operation, 14), ("sdpa", 10)])
def test_what_stands_before_a_repeated_launch(whole, door, most):
    """On a GPU a step is about half a microsecond of host time, and 15 are what a call may take
    beside its launch."""
    q, k, v = tensors()

    def call():
        if door != "sdpa":
            return door(q, k, v, scale=SCALE)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=SCALE)

    import neptune_mlir.torch as package

    if door == "sdpa":
        package.register()
    try:
        for _ in range(3):
            call()
        assert steps_to_the_launch(call) <= most
    finally:
        package.unregister()
    assert len(whole) == 1


@pytest.mark.parametrize("door", [attention, by_operation])
def test_a_repeated_call_on_a_cpu(whole, door, monkeypatch):
    """Its results are torch's memory from the start: an array of NumPy as a tensor takes as long as
    all that stands before the launch. (A step is about a quarter of a microsecond.)"""
    from neptune_mlir.runtime import host_memory

    q, k, v = tensors()
    for _ in range(3):
        out = door(q, k, v, scale=SCALE)
    assert out.stride() == torch.empty(2, 9, 3, 16).transpose(1, 2).stride()
    monkeypatch.setattr(host_memory, "unwritten", None)
    monkeypatch.setattr(host_memory, "tensor_over", None)
    agree(door(q, k, v, scale=SCALE), wanted(q, k, v))
    steps = len(steps_of(lambda: door(q, k, v, scale=SCALE)))
    assert steps <= 40, steps


def test_tensors_that_the_operation_has_in_another_form_are_found_again(whole, signatures):
    """A mask of fewer dimensions; keys and values of one batch for all."""
    import neptune_mlir.torch as package

    package.register()
    try:
        for seed in range(3):
            q, k, v = tensors(seed)
            mask = torch.randn(9, 9)
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=SCALE)
            agree(found, wanted(q, k, v, mask))
        assert len(signatures) == 1 == len(whole)
    finally:
        package.unregister()
    for seed in range(3):
        q, k, v = tensors(seed)
        agree(attention(q, k[:1], v[:1], scale=SCALE), wanted(q, k[:1], v[:1]))
    assert len(signatures) == 2 == len(whole)


@pytest.mark.parametrize("door", [attention, by_operation])
def test_what_ran_without_gradients_is_no_example_for_them(whole, signatures, door):
    q, k, v = (x.requires_grad_() for x in tensors())
    with torch.no_grad():
        for _ in range(3):
            assert door(q, k, v, scale=SCALE).grad_fn is None
    for _ in range(3):
        out = door(q, k, v, scale=SCALE)
        assert out.grad_fn is not None
    out.sum().backward()
    agree(v.grad.sum((2, 3)), torch.full((2, 3), 9.0 * 16))
    plain = [x.detach() for x in (q, k, v)]
    assert door(*plain, scale=SCALE).grad_fn is None
    assert door(q, *plain[1:], scale=SCALE).grad_fn is not None


@pytest.mark.parametrize("door", [attention, by_operation])
def test_modes_and_transforms_see_what_ran_last(whole, door):
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v = tensors()
    for _ in range(2):
        door(q, k, v, scale=SCALE)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert type(door(q, k, v, scale=SCALE)) is not torch.Tensor
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda q: door(q, k, v, scale=SCALE))(q)
    assert torch.ops.neptune.attention.default in {n.target for n in traced.graph.nodes}
    if door is by_operation:  # which `torch.func` does not take
        return

    def one(x):
        return attention(x, k, v, scale=SCALE).sum()

    found = torch.func.grad(one)(q)
    expected = torch.func.grad(lambda x: wanted_single(x, k, v).sum())(q)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_torch_compile_does_not_look_into_a_repeated_call(whole):
    """Where a function that it leaves alone calls the operation, nothing behind that is traced."""
    from torch._dynamo.utils import counters

    q, k, v = tensors()

    def call(x):
        return torch.ops.neptune.attention.default(x, k, v, None, [], "", SCALE, False, False)[0]

    for _ in range(3):
        call(q)
    left_alone = torch._dynamo.disable(call, recursive=False)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(lambda x: left_alone(x + 0), backend="eager")
    for _ in range(3):
        agree(compiled(q), wanted(q, k, v))
    assert counters["stats"]["calls_captured"] == 1, "the addition"


def wanted_single(q, k, v):
    return (q @ k.mT * SCALE).softmax(-1) @ v


def test_without_guards_of_torch(whole, signatures, monkeypatch):
    monkeypatch.setattr(again, "_Guards", None)
    for seed in range(3):
        q, k, v = tensors(seed)
        agree(attention(q, k, v, scale=SCALE), wanted(q, k, v))
    assert len(signatures) == 3 and len(whole) == 1


def test_modifiers_are_what_they_are_now(whole):
    """A closure that has another tensor, the same one with other numbers, or another number."""
    slopes, factor = torch.tensor([0.5, 0.25, 0.125]), 1.0
    q, k, v = tensors()
    i = torch.arange(9)

    def sloped(s, b, h, i, j):
        return s + slopes[h] * factor * (j - i)

    def check():
        bias = (slopes[:3, None, None] * factor * (i - i[:, None])).double()
        agree(attention(q, k, v, score_mod=sloped, scale=SCALE), wanted(q, k, v, bias))

    check()
    check()
    assert len(whole) == 1
    slopes = torch.tensor([0.1, 0.2, 0.3])
    check()
    slopes.mul_(-1)
    check()
    assert len(whole) == 1
    steps = steps_to_the_launch(lambda: attention(q, k, v, score_mod=sloped, scale=SCALE))
    assert steps <= 20, steps  # (half of them tell that the modifier is what it was)
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])[::2]
    check()
    slopes.resize_(4)  # the same tensor: its shape and strides are others
    check()
    factor = 2.0
    check()


def test_a_trace_is_kept_for_a_function():
    table, number = torch.rand(4), 3

    def helper(x):
        return x * number

    def mod(s, b, h, i, j):
        return helper(s) + table[h]

    first = trace(mod, torch.float32)
    assert trace(mod, torch.float32).graph is first.graph
    assert trace(mod, torch.float64).graph is not first.graph
    table = torch.rand(4)
    other = trace(mod, torch.float32)
    assert other.graph is first.graph and next(iter(other.tensors.values())) is table
    table.resize_(2)
    assert trace(mod, torch.float32).graph is not first.graph
    number = 4
    assert trace(mod, torch.float32).graph is not first.graph


def test_a_list_is_looked_into_each_time():
    factors = [2.0]

    def mod(s, b, h, i, j):
        return s * factors[0]

    first = trace(mod, torch.float32)
    factors[0] = 3.0
    assert trace(mod, torch.float32).graph is not first.graph


def test_nothing_is_kept_alive():
    import gc
    import weakref

    def make():
        table = torch.rand(4)

        def mod(s, b, h, i, j):
            return s + table[h]

        return mod, table

    mod, table = make()
    trace(mod, torch.float32)
    gone = weakref.ref(mod), weakref.ref(table)
    del mod, table
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
