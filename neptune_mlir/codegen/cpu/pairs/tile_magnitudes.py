# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The least and the largest magnitude of a tile, as code for a CPU: by the bits of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, VectorEmitter
from neptune_mlir.ir.bindings import arith, ir, vector

EXPONENT = 23  # where the exponent of an f32 begins
NORMAL = 1  # the least that a number has which is not denormal


def integer(width: int) -> Any:
    return ir.IntegerType.get_signless(width)


def bits_of(em: VectorEmitter, value: Any, width: int) -> Any:
    return vector.bitcast(em.vector_type(integer(width)), value)


def exponent(em: VectorEmitter, bits: Any) -> Any:
    return arith.shrui(bits, em.constant(EXPONENT, bits.type))


def at_least(em: VectorEmitter, number: Any, least: int) -> Any:
    return arith.cmpi(arith.CmpIPredicate.uge, number, em.constant(least, number.type))


def folded(
    em: VectorEmitter, ranges: list[tuple[Index, int]],
    body: Callable[[list[Index], Any, int | None], Any], width: int = 16, largest: bool = False,
) -> Any:  # fmt: skip
    """Two loops that carry a vector of magnitudes, the inner one by vectors of which the last may
    be a part; the least of these, as the bits of an f32 less 1 (0 less 1 is the largest number, so
    zeros do not count), or the `largest`."""
    extent, step = ranges[1]
    whole = extent // step * step

    def outer(i: Index, carried: list[Any]) -> list[Any]:
        def inner(j: Index, held: list[Any]) -> list[Any]:
            return [body([i, j], held[0], None)]

        held = em.loop(0, whole, step, inner, carried)
        return held if whole == extent else [body([i, whole], held[0], extent - whole)]

    every = em.constant(largest - 1, em.vector_type(integer(width), em.lanes * 32 // width))
    found = em.loop(0, ranges[0][0], ranges[0][1], outer, [every])[0]
    kind = ir.Attribute.parse(f"#vector.kind<{'maxui' if largest else 'minui'}>")
    least = vector.reduction(integer(width), kind, found)
    if width == 32:
        return least
    word = integer(32)
    return arith.shli(arith.extui(word, least), em.constant(16, word))


def least_with(em: VectorEmitter, bits: Any, least: Any) -> Any:
    """With the magnitudes of numbers, or of both numbers of words, in the type of `least`."""
    size = _magnitudes(em, bits, least.type)
    return arith.minui(least, arith.subi(size, em.constant(1, size.type)))


def most_with(em: VectorEmitter, bits: Any, most: Any) -> Any:
    return arith.maxui(most, _magnitudes(em, bits, most.type))


def _magnitudes(em: VectorEmitter, bits: Any, kind: Any) -> Any:
    numbers = bits if bits.type == kind else vector.bitcast(kind, bits)
    return arith.andi(numbers, em.constant((1 << kind.element_type.width - 1) - 1, kind))
