# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lanes of vectors combined: of one vector, or of as many as it has lanes.

A vector alone is folded by halves. A square of vectors takes two shuffles and one combination for
each pair: what pairs of lanes make of two vectors fits one. In the end lane r holds what the lanes
of vector r make.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import ir, vector


def combine(name: str, a: Any, b: Any) -> Any:
    """`a` and `b` by the op of this name."""
    return ir.Operation.create(name, results=[a.type], operands=[a, b]).result


def fold_parts(name: str, parts: list[Any]) -> Any:
    """Vectors combined, by a balanced tree."""
    while len(parts) > 1:
        half = [combine(name, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = half + parts[len(half) * 2 :]
    return parts[0]


def fold(name: str, value: Any) -> Any:
    """All lanes of a vector combined."""
    width = value.type.shape[0]
    while width > 1:
        width //= 2
        low = vector.shuffle(value, value, list(range(width)))
        high = vector.shuffle(value, value, list(range(width, 2 * width)))
        value = combine(name, low, high)
    return vector.extract(value, [], [0])


def fold_lines(name: str, lines: list[Any]) -> Any:
    """A vector with all lanes of line r combined in lane r; as many lines as lanes."""
    size, bit = len(lines), 1
    while len(lines) > 1:
        low = [(lane & ~bit) + (size if lane & bit else 0) for lane in range(size)]
        high = [index + bit for index in low]
        lines = [
            combine(name, vector.shuffle(a, b, low), vector.shuffle(a, b, high))
            for a, b in zip(lines[::2], lines[1::2], strict=True)
        ]
        bit *= 2
    return lines[0]
