# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which reductions share a loop nest, where the answer is not plain."""

from neptune_mlir.frontend.notation import Program, exp, inf, max, sum, where
from neptune_mlir.zoo import fusions


def test_two_sets_of_queries_are_two_kernels():
    """They read the same keys, but one grid over both would do everything once for each pair."""
    p = Program("two")
    i, c, j, d, e = p.axes("i c j d e", d=16, e=16)
    k, v = p.input("k", j, d), p.input("v", j, e)

    def attention(name, row):
        s = sum(p.input(name, row, d)[row, d] * k[j, d], d)
        w = exp(s - max(s, j))
        p.output(sum(w / sum(w, j) * v[j, e], j), row, e)

    attention("q", i)
    attention("r", c)
    found = fusions(p)
    assert [len(f.group.running) for f in found] == [3, 3]
    assert [len(f.group.axes) for f in found] == [4, 4]


def test_members_line_up_where_they_read_each_other():
    """`v` alone says nothing about rows; the sum's read of the maximum does."""
    p = Program("rows")
    i, j, e = p.axes("i j e")
    p.input("x", i, j)
    v = p.input("v", j, e)[j, e]
    logits = where(j <= i, v, -inf)
    total = sum(exp(logits - max(logits, j)), j)
    p.output(sum(v * total, j), i, e)
    for fusion in fusions(p):
        rows = [k for k, axis in enumerate(fusion.group.axes) if axis.name == "i"]
        assert len(rows) <= 1


def test_another_width_joins_where_it_is_not_cut():
    """Two value matrices under one softmax: the weights are computed once."""
    p = Program("values")
    i, j, d, e = p.axes("i j d e", d=8, e=16)
    x = p.input("x", i, j)[i, j]
    w = exp(x - max(x, j))
    w = w / sum(w, j)
    p.output(sum(w * p.input("u", j, d)[j, d], j), i, d)
    p.output(sum(w * p.input("v", j, e)[j, e], j), i, e)
    assert [len(f.group.running) for f in fusions(p)] == [4]
