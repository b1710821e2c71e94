# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`final-counts`: what a stream counted is the extent, once it has ended.

A loop that sums (x - a)^2 takes for `a` the mean of what it has read, r / count. Its end re-bases
the sum from there to the mean of the program, r / extent, by moments of the difference of both:

    s2 + 2 s1 (r / count - r / extent) + count (r / count - r / extent)^2

Where a count is the sum of ones over the whole axis, and nothing is skipped, both are one number,
and the difference is 0 (or s2 is no finite number either: data was infinite, or r is). So the end
reads s2 alone, and a program that has a row in one tile needs no s1: a sum of all elements, and
what joins it over lanes and warps.

Only in maps over the streamed axis: where they have an element, the extent is no 0.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.attributes import AXES
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.dialects.op_names import ACCUMULATE, MAP, READ
from neptune_mlir.dialects.program import streams
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register

COUNT, EMPTY, DIVIDED = "the extent", "it is 0", "by the extent"
ROUNDING = 2.0**-23
CASTS = ("arith.index_cast", "arith.sitofp", "arith.uitofp")
ORDERED_EQUAL = 1  # of arith.cmpf


@register("final-counts", "let what streams counted be their extents once they have ended")
def final_counts(module: Any) -> None:
    for stream in streams(module):
        if not len(stream.operation.regions[2].blocks):
            _end(stream.operation)


def _end(stream: Any) -> None:
    body, finish = (stream.regions[k].blocks[0] for k in (0, 1))
    axis = ir.IntegerAttr(stream.attributes["axis"]).value
    domain = list(ir.DenseI64ArrayAttr(stream.attributes["domain"]))
    known = iter(stream.operands)
    extent = [next(known) if n == DYNAMIC else n for n in domain][axis]
    produced = list(body.operations)[-1].operation.operands
    counts = {
        argument for made, argument in zip(produced, finish.arguments, strict=False)
        if _is_count(defining_op(made), axis, extent)
    }  # fmt: skip
    for op in list(finish.operations) if counts else ():
        if op.operation.name == MAP and axis in list(AXES.of(op.operation)):
            _settle(op.operation.regions[0].blocks[0], counts, extent)


def _is_count(op: Any, axis: int, extent: Any) -> bool:
    """Whether an op adds 1 for each element of the axis."""
    if op is None or op.name != ACCUMULATE or len(op.regions[1].blocks):
        return False
    (*_, end) = op.regions[0].blocks[0].operations
    one = _number(end.operation.operands[0])
    text = str(op.attributes["combiner"]).strip('"')
    along = list(AXES.of(op)) == [axis]
    own = list(ir.DenseI64ArrayAttr(op.attributes["domain"]))
    same = own == [extent] if isinstance(extent, int) else op.operands[1] == extent
    return along and same and text == "add" and one == 1


def _settle(block: Any, counts: set[Any], extent: Any) -> None:
    """Let differences be 0 of which both sides are the same, but for counts and the extent."""
    for op in list(block.operations):
        if op.operation.name == "arith.subf":
            one, other = op.operation.operands
            same = _form(one, counts, extent) == _form(other, counts, extent)
            if same and _form(one, set(), None) != _form(other, set(), None):
                _vanish(op.operation.results[0])


def _form(value: Any, counts: set[Any], extent: Any) -> Any:
    """What a value is, with one form for each way to say the extent."""
    op, number = defining_op(value), _number(value)
    if number is not None:
        return COUNT if number == extent else number
    if isinstance(extent, ir.Value) and value == extent:
        return COUNT
    if op is None:
        return value
    if op.name == READ:
        return COUNT if op.operands[0] in counts else (op.operands[0], str(op.attributes["map"]))
    given = [_form(v, counts, extent) for v in op.operands]
    if op.name in CASTS and given == [COUNT]:
        return COUNT
    if op.name == "arith.cmpf" and given == [COUNT, 0] and _predicate(op) == ORDERED_EQUAL:
        return EMPTY
    if op.name == "arith.select" and given[0] == EMPTY:
        return given[2]
    if op.name == "arith.mulf":
        for number, other in (given, given[::-1]):
            if _is_inverse(number, extent):
                return DIVIDED, other
    if op.name == "arith.divf" and given[1] == COUNT:
        return DIVIDED, given[0]
    attributes = tuple(sorted(str(a) for a in op.attributes))
    return op.name, str(op.results[0].type), attributes, tuple(given)


def _is_inverse(number: Any, extent: Any) -> bool:
    """Whether a product with a number is a quotient by the extent, but for its rounding."""
    known = isinstance(number, float) and isinstance(extent, int)
    return known and abs(number * extent - 1) < ROUNDING


def _predicate(op: Any) -> int:
    return int(ir.IntegerAttr(op.attributes["predicate"]).value)


def _number(value: Any) -> float | None:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    return float(op.attributes["value"].value)


def _vanish(value: Any) -> None:
    """Let a value be 0: products with it are 0, and sums are what else they have."""
    for use in list(value.uses):
        user, place = use.owner.operation, use.operand_number
        if user.name == "arith.mulf":
            _vanish(user.results[0])
        elif user.name == "arith.addf" or (user.name == "arith.subf" and place == 1):
            user.results[0].replace_all_uses_with(user.operands[1 - place])
    op = defining_op(value)
    with ir.InsertionPoint(op), op.location:
        zero = arith.ConstantOp(value.type, ir.FloatAttr.get(value.type, 0.0))
    value.replace_all_uses_with(zero.result)
