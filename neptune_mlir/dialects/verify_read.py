# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifiers of what stands inside a nest: reads, references and positions; see `verify`."""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.op_names import CORRECT, NESTS, READ, STREAM
from neptune_mlir.dialects.verify import (
    DYNAMIC,
    Rejected,
    checked,
    integer_of,
    needed,
    numbers_of,
    tensor_of,
)
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

_DIGITS = (ir.AffineFloorDivExpr, ir.AffineModExpr)


@checked
def index(op: Any) -> None:
    nest = _enclosing_nest(op)
    dim, loops = integer_of(op, "dim"), len(nest.attributes["domain"])
    if not 0 <= dim < loops:
        raise Rejected(op, f"asks for loop {dim} of a nest with {loops} loops")


@checked
def read(op: Any) -> None:
    parent = op.parent
    if parent is not None and parent.name == STREAM:  # in its `live` region
        return _read(op, parent)
    _read(op, _enclosing_nest(op))


@checked
def reference(op: Any) -> None:
    nest = _enclosing_nest(op)
    if nest.name != CORRECT:
        raise Rejected(op, "stands outside a neptune.correct; use neptune.read")
    if len(op.operands) > 1:
        raise Rejected(op, "reads through a lookup; a reference is indexed by loops")
    _read(op, nest)


def _enclosing_nest(op: Any) -> Any:
    parent = op.parent
    if parent is None or parent.name not in NESTS:
        raise Rejected(op, "stands outside a nest; it means nothing there")
    return parent


def _read(op: Any, nest: Any) -> None:
    if not len(op.operands) or len(op.results) != 1:
        raise Rejected(op, f"takes {len(op.operands)} operands and gives {len(op.results)}; "
                        "it takes a tensor and lookups, and gives an element")  # fmt: skip
    tensor, *lookups = op.operands
    domain = numbers_of(nest, "domain")
    shape, element = tensor_of(op, tensor, "the operand")
    access = needed(op, "map", ir.AffineMapAttr, "an affine map").value
    if access.n_dims != len(domain):
        raise Rejected(
            op, f"map {access} is over {access.n_dims} loops, the nest has {len(domain)}"
        )
    if access.n_symbols != len(lookups):
        raise Rejected(
            op, f"map {access} has {access.n_symbols} symbols for {len(lookups)} lookups"
        )
    for lookup in lookups:
        _check_lookup(op, lookup)
    positions = list(access.results)
    if len(positions) != len(shape):
        raise Rejected(
            op, f"map {access} gives {len(positions)} positions, the tensor has rank {len(shape)}"
        )
    used: dict[int, list[Any]] = {}  # loop -> the digits of it
    for dimension, expression in enumerate(positions):
        last, digit = _last_position(op, expression, domain)
        if digit is not None:
            _use_loop(op, access, used, digit)
        extent = shape[dimension]
        if last is not None and extent != DYNAMIC and last >= extent:
            raise Rejected(
                op, f"'{expression}' reaches position {last} of dimension {dimension}, "
                f"whose extent is {extent}",
            )  # fmt: skip
    if op.results[0].type != element:
        raise Rejected(op, f"gives {op.results[0].type} from a tensor of {element}")


def _check_lookup(op: Any, value: Any) -> None:
    """A lookup is the element of a `neptune.read` in the same region, as index."""
    made = defining_op(value)
    if made is not None and made.name == "arith.index_cast":
        made = defining_op(made.operands[0])
    if made is None or made.name != READ or made.block != op.block:
        raise Rejected(
            op, "has a lookup that is not an arith.index_cast of a neptune.read beside it"
        )


def _use_loop(op: Any, access: Any, used: dict[int, list[Any]], digit: Any) -> None:
    loop, quotient = _quotient(digit)[0].position, str(digit)
    before = used.setdefault(loop, [])
    alone = isinstance(digit, ir.AffineDimExpr) or any("d" + str(loop) == d for d in before)
    if before and (alone or quotient in before):
        raise Rejected(op, f"map {access} uses loop d{loop} twice")
    before.append(quotient)


def _quotient(digit: Any) -> tuple[Any, int, int | None]:
    """The loop, divisor and modulus of a digit, as far as it is one."""
    divisor, modulus = 1, None
    if isinstance(digit, ir.AffineModExpr) and isinstance(digit.rhs, ir.AffineConstantExpr):
        digit, modulus = digit.lhs, digit.rhs.value
    if isinstance(digit, ir.AffineFloorDivExpr) and isinstance(digit.rhs, ir.AffineConstantExpr):
        digit, divisor = digit.lhs, digit.rhs.value
    return digit, divisor, modulus


def _last_position(op: Any, expression: Any, domain: list[int]) -> tuple[int | None, Any]:
    """The largest value of a position (None: known at run time only), and its digit."""
    constant, digit, symbol = 0, None, False
    for part in _summands(expression):
        if isinstance(part, ir.AffineConstantExpr):
            constant += part.value
        elif isinstance(part, ir.AffineSymbolExpr) and not symbol:
            symbol = True
        elif digit is None:
            digit = part
        else:
            raise _no_position(op, expression)
    if constant < 0:
        raise Rejected(op, f"reads at the negative position {constant}")
    if digit is None:
        return None if symbol else constant, None
    loop, divisor, modulus = _quotient(digit)
    if not isinstance(loop, ir.AffineDimExpr) or divisor < 1:
        raise _no_position(op, expression)
    extent = domain[loop.position]
    last = None if extent == DYNAMIC else (extent - 1) // divisor
    if modulus is not None:
        last = modulus - 1 if last is None else min(last, modulus - 1)
    return None if last is None or symbol else last + constant, digit


def _summands(expression: Any) -> list[Any]:
    if isinstance(expression, ir.AffineAddExpr):
        return [*_summands(expression.lhs), *_summands(expression.rhs)]
    return [expression]


def _no_position(op: Any, expression: Any) -> Rejected:
    return Rejected(
        op, f"position '{expression}' is not a loop, a loop floordiv or mod a constant, "
        "a constant, a lookup, or a sum of one of each",
    )  # fmt: skip
