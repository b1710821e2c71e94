# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lanes of vectors combined: of one vector, or of as many as it has lanes.

A vector alone is folded by halves. A square of vectors takes two shuffles and one combination for
each pair: what pairs of lanes make of two vectors fits one. In the end lane r holds what the lanes
of vector r make.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import arith, ir, vector

_BEYOND = {
    "arith.maximumf": arith.CmpFPredicate.OGT,
    "arith.minimumf": arith.CmpFPredicate.OLT,
}


def extreme(name: str, a: Any, b: Any) -> Any:
    """The maximum or minimum of two vectors of floats, a NaN where one is; None: of another op.

    x86 has one instruction for the inner choice, which gives `a` where either is a NaN. So only
    `b` is tested for one, which does not wait for `a`, the value that a reduction carries. The NaN
    is a constant: LLVM would join two choices of the same value into one of two comparisons.
    """
    if name not in _BEYOND:
        return None
    nan = arith.constant(a.type, ir.DenseElementsAttr.get_splat(
        a.type, ir.FloatAttr.get(a.type.element_type, float("nan"))
    ))  # fmt: skip
    chosen = arith.select(arith.cmpf(_BEYOND[name], b, a), b, a)
    return arith.select(arith.cmpf(arith.CmpFPredicate.UNO, b, b), nan, chosen)


def combine(name: str, a: Any, b: Any) -> Any:
    """`a` and `b` by the op of this name."""
    if isinstance(a.type, ir.VectorType) and (made := extreme(name, a, b)) is not None:
        return made
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
