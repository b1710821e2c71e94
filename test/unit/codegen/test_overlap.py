# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels wait for nothing when they start: what they touch, and launches that are left
out."""

from __future__ import annotations

import pytest

from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.overlap import given, independent
from neptune_mlir.runtime.plan import Buffer

X, Y = ("argument", 0), ("argument", 1)
ROWS, KEYS, ALL = ["dim", 0, 0], ["dim", 1, 0], 8


def buffer(number):
    return "buffer", number


CASES = {
    # each kernel as its grid, what it reads, what it writes
    "reads what the one before wrote": ([(ALL, [X], [0]), (ALL, [buffer(0)], [1])], [0, 0]),
    "reads what one before that wrote": (
        [(ALL, [X], [0]), (ALL, [buffer(0)], [1]), (ALL, [buffer(0)], [2])], [0, 0, 1],
    ),
    "nothing of any": ([(ALL, [X], [0]), (ALL, [X], [1]), (ALL, [X], [2])], [0, 1, 1]),
    "both of them": (
        [(ALL, [X], [0]), (ALL, [X], [1]), (ALL, [buffer(0), buffer(1)], [2])], [0, 1, 0],
    ),
    "writes what the one before reads": (
        [(ALL, [X], [0]), (ALL, [buffer(0), buffer(1)], [2]), (ALL, [X], [1])], [0, 0, 0],
    ),
    "the same memory under another shape": ([(ALL, [X], [0]), (ALL, [buffer(3)], [1])], [0, 0]),
    "what stands between has programs where the first has": (
        [(ROWS, [X], [0]), (["ceildiv", ROWS, 128], [buffer(0)], [1]), (KEYS, [buffer(0)], [2])],
        [0, 0, 1],
    ),
    "what stands between may be left out alone": (
        [(ROWS, [X], [0]), (KEYS, [buffer(0)], [1]), (ROWS, [buffer(0)], [2])], [0, 0, 0],
    ),
    "nobody waits in between": (
        [(ALL, [X], [0]), (ALL, [X], [1]), (ALL, [buffer(0)], [2])], [0, 1, 0],
    ),
}  # fmt: skip


BUFFERS = [Buffer("f32", (8,)) for _ in range(3)] + [Buffer("f32", (2, 4), ("buffer", 0))]


def signature(name, read, made):
    places = [*read, *map(buffer, made)]
    return KernelSignature(name, None, places, [], [], len(made), places)


@pytest.mark.parametrize("case", CASES)
def test_kernels(case):
    listed, wanted = CASES[case]
    kernels = [signature(str(k), read, made) for k, (_, read, made) in enumerate(listed)]
    assert independent(kernels, [(grid,) for grid, *_ in listed], BUFFERS) == wanted


# kernels that read sums, the last one; which of its sums it awaits by words
SUMS = {
    "of the one before": ([(KEYS, [X], [0]), (ROWS, [X], [0]), (ALL, [buffer(0)], [2])], [0], 1),
    "and of none by words": ([(KEYS, [X], [0]), (ROWS, [X], [0]), (ALL, [buffer(0)], [2])], [], 0),
    "and another result of that one": (
        [(KEYS, [X], [0]), (ROWS, [X], [0, 1]), (ALL, [buffer(0), buffer(1)], [2])], [0], 0,
    ),
    "and one of a kernel behind it": (
        [(ROWS, [X], [0]), (ALL, [X], [1]), (ALL, [buffer(0), buffer(1)], [2])], [0], 0,
    ),
    "and one of a kernel before it": (
        [(KEYS, [X], [1]), (ROWS, [buffer(1)], [0]), (ALL, [buffer(0), buffer(1)], [2])], [0], 1,
    ),
    "in memory that the one before reads": (
        [(KEYS, [X], [2]), (ROWS, [buffer(2)], [0]), (ALL, [buffer(0)], [2])], [0], 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SUMS)
def test_sums_that_are_awaited_by_words(case):
    """Who adds has waited for all before, so nothing else is to be waited for, but what that kernel
    or one behind it makes."""
    listed, words, wanted = SUMS[case]
    kernels = [signature(str(k), read, made) for k, (_, read, made) in enumerate(listed)]
    kernels[-1].awaited = list(map(buffer, words))
    found = independent(kernels, [(grid,) for grid, *_ in listed], BUFFERS)
    assert found[-1] == wanted


def test_what_no_kernel_before_writes():
    """Whose memory has another shape is what it is in; what a kernel writes itself is there."""
    kernels = [
        signature("a", [X], [0]), signature("b", [X, buffer(3)], [1]),
        signature("c", [buffer(1), Y], [2]),
    ]  # fmt: skip
    found = list(given(kernels, BUFFERS))
    assert found == [[X, buffer(0)], [X, buffer(1)], [Y, buffer(2)]]
