# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers that a sum adds up, and from which others subtract what they make of the sum.

    d[j] = x[j] / m - (Σ_k w[k] (x[k] / m)) / Σ_k w[k]

x / m is rounded, and so is what the mean is subtracted from: of one element that has all of the
weight nothing is left, and of many that are equal nothing but what the sum rounds. With 1 / m
behind the sum, or x + s added up as Σ x and n s, the mean is that of other numbers, and d shows
the difference. Where sum and difference are one chain, its moments are measured from one reference
(`algebra/moments.py`); elsewhere the sum has to add up what the program says.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import Nest
from neptune_mlir.dialects.program import NestProgram

LINEAR = ("mul", "div", "neg", "cast", "add", "sub", "select")
ROUNDED = ("mul", "div", "add", "sub")

Shared = dict[str, dict[Term, set[str]]]  # by sum, over its loops: who subtracts from the number


def shared_numbers(program: NestProgram) -> Shared:
    found: Shared = defaultdict(lambda: defaultdict(set))
    for reader, nest in program.nests.items():
        for number, sums in _differences(nest.body):
            for read in sums:
                of = program.nests.get(read.attr)
                if of is None or of.combiner != "add":
                    continue
                for g in _over_loops(number, nest, read, of):
                    if g in _summands(of.body):
                        found[read.attr][g].add(reader)
    return found


def _differences(body: Term) -> Iterator[tuple[Term, tuple[Term, ...]]]:
    """What something is subtracted from, or added to, and what that reads."""
    for n in T.walk(body):
        if n.op in ("add", "sub") and T.is_float(n.dtype):
            for number, other in (n.args, n.args[::-1]):
                if any(m.op in ROUNDED for m in T.walk(number)) and T.axes_of(number):
                    yield number, T.reads(other)


def _summands(body: Term) -> set[Term]:
    """The terms that a sum is linear in."""
    found, pending = set(), [body]
    while pending:
        n = pending.pop()
        if n not in found:
            found.add(n)
            pending += n.args if n.op in LINEAR else ()
    return found


def _over_loops(number: Term, nest: Nest, read: Term, of: Nest) -> Iterator[Term]:
    """A number of a nest over the loops of a sum that it reads, whichever of its loops are those
    that the sum reduces."""
    if any(i.op != "index" for i in read.args):
        return
    kept = {i.attr: loop for i, loop in zip(read.args, of.result_axes, strict=True)}
    others = sorted(T.axes_of(number) - kept.keys())
    for loops in itertools.permutations(of.reduced_axes, len(others)):
        at = kept | dict(zip(others, loops, strict=True))
        if others:
            yield T.rename_axes(number, {a: T.index(loop) for a, loop in at.items()})
