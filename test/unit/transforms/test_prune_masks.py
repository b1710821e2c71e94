# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When may a masked point be skipped: only where every running value provably gets nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir.algebra import terms as T
from neptune_mlir.analysis.fused_nests import read_live
from neptune_mlir.dialects.context import make_context
from neptune_mlir.dialects.nests import Values
from neptune_mlir.dialects.scalars import mlir_type
from neptune_mlir.frontend import notation as N
from neptune_mlir.ir.bindings import func, ir
from neptune_mlir.transforms.registry import collect_remarks
from neptune_mlir.transforms.schedule.prune_masks import prune_masks
from support.fused_programs import DYNAMIC, Attention, Fused, produce, tensor_of

op = T.make
MINUS_INF = T.const(-math.inf)


def live_of(module: Any) -> str:
    found: list[Any] = []

    def collect(operation: Any) -> Any:
        if operation.name == "neptune.stream":
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    (stream,) = found
    assert module.operation.verify()
    return T.show(read_live(stream.opview, Values()))


def sum_stream(body: Callable[[Fused, T.Term], T.Term], combiner: str = "add") -> Any:
    """One running reduction over j of `body(f, x[i, j])`, pruned."""
    context = make_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            kinds = [tensor_of([8, 8], "f32")], [tensor_of([8], "f32")]
            block = func.FuncOp("f", kinds).add_entry_block()
        f = Fused("ij", [8, 8], [], (4, 4))

        def step(before: Any) -> None:
            element = f.at(block.arguments[0], "ij")
            produce(f.reduce(combiner, "ij", "i", body(f, element), init=before))

        with ir.InsertionPoint(block):
            axis = {"axis": ir.IntegerAttr.get(mlir_type("i64"), 1)}
            running = [tensor_of([8], "f32")]
            regions = [(running, step), (running, produce), None]
            func.ReturnOp(f.op("stream", running, regions, axis))
        prune_masks(module)
    return module


def causal(f: Fused) -> T.Term:
    return op("le", f.index("j"), f.index("i"))


CAUSAL = "((i0 + (i1 * -1)) >= 0)"


@pytest.mark.parametrize(
    "body",
    [
        lambda f, x: op("select", causal(f), x, T.const(0.0)),
        lambda f, x: op("mul", x, op("select", causal(f), T.const(1.0), T.const(0.0))),
        lambda f, x: op("exp", op("select", causal(f), x, MINUS_INF)),
        lambda f, x: op("exp", op("add", x, op("select", causal(f), T.const(0.0), MINUS_INF))),
        lambda f, x: op("exp", op("sub", op("select", causal(f), x, MINUS_INF), op("tanh", x))),
        # a division by a number keeps a finite value finite (a capped score)
        lambda f, x: op(
            "exp", op("sub", op("select", causal(f), x, MINUS_INF), op("div", x, T.const(-50.0)))
        ),
    ],
)
def test_masks_that_silence_a_sum(body: Any) -> None:
    assert live_of(sum_stream(body)) == CAUSAL


@pytest.mark.parametrize(
    "body",
    [
        lambda f, x: op("select", causal(f), x, T.const(1.0)),
        lambda f, x: op("select", causal(f), x, MINUS_INF),  # -inf is not the sum's identity
        lambda f, x: op("exp", op("sub", op("select", causal(f), x, T.const(-1e9)), x)),
        lambda f, x: op("tanh", op("select", causal(f), x, MINUS_INF)),
        lambda f, x: op("add", x, op("select", causal(f), x, T.const(0.0))),
        # a division by 0 is infinite
        lambda f, x: op(
            "exp", op("sub", op("select", causal(f), x, MINUS_INF), op("div", x, T.const(0.0)))
        ),
        # exp may overflow, and 0 * inf is not 0
        lambda f, x: op("mul", op("exp", x), op("select", causal(f), x, T.const(0.0))),
        # log may be -inf, and -inf - -inf is not -inf
        lambda f, x: op("exp", op("sub", op("select", causal(f), x, MINUS_INF), op("log", x))),
        lambda f, x: op("select", op("lt", x, T.const(1.0)), x, T.const(0.0)),
    ],
)  # fmt: skip
def test_masks_that_do_not(body: Any) -> None:
    assert live_of(sum_stream(body)) == "true"


def test_a_disjunction_is_kept_whole() -> None:
    first = lambda f: op("lt", f.index("j"), T.const(2, "index"))  # noqa: E731
    module = sum_stream(lambda f, x: op("select", op("or", causal(f), first(f)), x, T.const(0.0)))
    assert live_of(module) == "((i1 <= i0) | (i1 < 2))"


def test_the_identity_depends_on_the_combiner() -> None:
    def body(f: Fused, x: T.Term) -> T.Term:
        return op("select", causal(f), x, MINUS_INF)

    assert live_of(sum_stream(body, "max")) == CAUSAL
    assert live_of(sum_stream(body, "min")) == "true"


def test_attention_with_a_guarded_maximum() -> None:
    def window(f: Fused, s: dict[str, T.Term]) -> T.Term:
        back = op("sub", f.index("i"), f.index("j"))
        return op("and", op("le", f.index("j"), f.index("i")), op("lt", back, s["s0"]))

    program = Attention([DYNAMIC] * 4 + [8, 8], mask=window, scalars=1)
    with program.context, ir.Location.unknown(), collect_remarks() as remarks:
        prune_masks(program.module)
    assert "live only where (j <= i) and ((i - j) < " in remarks[0].message
    once = live_of(program.module)
    assert once.count(">= 0") == 2
    with program.context, ir.Location.unknown(), collect_remarks() as remarks:
        prune_masks(program.module)  # nothing new the second time
    assert not remarks and live_of(program.module) == once


def test_private_streams_are_pruned_too() -> None:
    program = Attention([2, 2, 64, 64, 8, 8], mask=lambda f, _: causal(f), chunks=2)
    with program.context, ir.Location.unknown():
        prune_masks(program.module)
    assert live_of(program.module) == "((i2 + (i3 * -1)) >= 0)"


def test_a_conjunction_is_taken_as_far_as_it_is_affine() -> None:
    def body(f: Fused, x: T.Term) -> T.Term:
        both = op("and", causal(f), op("lt", x, T.const(0.5)))
        return op("select", both, x, T.const(0.0))

    assert live_of(sum_stream(body)) == CAUSAL


def softmax_of_shown():
    """Sums of a softmax over what `pad` shows; its maximum is a loop of its own."""
    p = N.Program("shown")
    i, j = p.axis("i"), p.axis("j")
    x, v, pad = p.input("x", i, j), p.input("v", i, j), p.input("pad", j, dtype="i1")
    scores = N.where(pad[j], x[i, j], -N.inf)
    weights = N.exp(scores - N.max(scores, j))
    p.output(N.sum(weights, j), i)
    p.output(N.sum(weights * v[i, j], j), i)
    return p.to_mlir().replace('combiner = "max"', 'combiner = "max", neptune.apart = "asked"')


def test_a_row_that_sees_nothing_is_a_nan_where_its_maximum_was_made_before():
    # (0 before: a point that no mask lets in adds exp(-inf - m), which is no 0 if m is -inf)
    kernel = neptune.compile(softmax_of_shown(), numerics="fast")
    x, v = np.random.default_rng(0).standard_normal((2, 5, 2500)).astype("f4")
    for shown in (0, 1, 600, 2500):  # tiles of the stream
        pad = np.arange(2500) < shown
        sums = kernel(x, v, pad)
        if not shown:
            assert np.isnan(sums).all()
            continue
        weights = np.exp(x[:, :shown] - x[:, :shown].max(1, keepdims=True))
        wanted = weights.sum(1), (weights * v[:, :shown]).sum(1)
        np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-4)
