# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which functions in a kernel need few digits: part of `assign-layouts`.

`tanh` is two instructions and some arithmetic where results near 0 may be off by 2^-22, and twice
that where they are right to some units in the last place; `exp` is one instruction and a product
where a relative error of |x| 2^-23 will do. A program that returns 16-bit floats only, and takes no
logarithm (which would turn a relative error into an absolute one), needs no better `exp`. Nor does
it need a better `tanh` where it caps scores, c tanh(s / c): only differences of scores matter, as
exponents. So functions are marked `neptune.rough` in such programs: every `math.exp`, and each
`math.tanh` whose value, times numbers up to `LARGEST`, goes nowhere but into maxima of rows and
exponentials. Quotients are marked that are two units in the last place off, unless something may
turn on their last bit: a comparison, or a function that rounds to whole numbers.

Products k p of positions are marked that are parts of scores. As k (p + 8) = k p + 8 k is made,
they are off by what rounding k p loses, also where the position itself is 0. To weights that are
measured from the maximum of these very scores it is nothing: p is less than 2^8 away, so that
other positions have scores that are further away by 2^16 such errors.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.attributes import ROUGH
from neptune_mlir.ir.bindings import ir

LARGEST = 1024.0  # an exponent is then off by 2^-12 at most, half of what rounding to f16 loses
_SUMS = ("arith.addf", "arith.subf", "arith.negf")
_MAXIMA = ("arith.maximumf", "arith.maxnumf")
_ENDS = ("tensor.insert_slice", "tensor.parallel_insert_slice")
_DECISIONS = (  # their results may turn on the last bit of an operand
    "arith.cmpf", "arith.fptosi", "arith.fptoui", "arith.remf", "math.ceil", "math.floor",
    "math.round", "math.roundeven", "math.trunc",
)  # fmt: skip
_LOGARITHMS = ("math.log", "math.log2", "math.log10", "math.log1p")


def mark_tolerant(forall: Any) -> None:
    """Mark the functions of a kernel that need few digits."""
    names = ("math.exp", "math.tanh", "arith.divf", "arith.mulf")
    exponentials, tangents, quotients, products = (_called(forall, name) for name in names)
    products = [op for op in products if _is_of_position(op)]
    found = exponentials or tangents or quotients or products
    if not found or not _rounds_to_16_bits(forall.parent):
        return
    tangents = [op for op in tangents if _is_exponent(op.results[0], 1.0)]
    quotients = [op for op in quotients if not _decides(op.results[0], set())]
    products = [op for op in products if _is_score(op.results[0])]
    for op in (*exponentials, *tangents, *quotients, *products):
        ROUGH.set(op)


def _rounds_to_16_bits(program: Any) -> bool:
    """Whether a function returns no wider floats, and takes no logarithm."""
    made = ir.FunctionType(ir.TypeAttr(program.attributes["function_type"]).value).results
    elements = [t.element_type if isinstance(t, ir.RankedTensorType) else t for t in made]
    wide = [t for t in elements if isinstance(t, (ir.F32Type, ir.F64Type))]
    return not wide and not any(_called(program, name) for name in _LOGARITHMS)


def _called(root: Any, name: str) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found


def _decides(value: Any, seen: set[Any]) -> bool:
    """Whether the last bit of a value may decide something, as far as can be told."""
    if value in seen:
        return False
    seen.add(value)
    for use in value.uses:
        op = use.owner
        if op.name in _DECISIONS:
            return True
        if op.name == "linalg.yield":
            made = op.operation.block.owner.results[use.operand_number]
        elif op.name == "linalg.generic":
            made = op.regions[0].blocks[0].arguments[use.operand_number]
        elif op.name in _ENDS:
            continue
        elif len(op.results) == 1 and not op.regions:
            made = op.results[0]
        else:  # a loop, or something else that is not followed
            return True
        if _decides(made, seen):
            return True
    return False


def _is_exponent(value: Any, factor: float) -> bool:
    """Whether all that becomes of a value, `factor` times as large, are maxima and exponents."""
    return factor <= LARGEST and all(
        _leads_to_exponents(use.owner, use.operand_number, factor) for use in value.uses
    )


def _leads_to_exponents(op: Any, position: int, factor: float) -> bool:
    name = op.name
    if name in ("math.exp", "math.exp2"):
        return all(_keeps_relative(use.owner) for use in op.results[0].uses)
    if name in ("arith.mulf", "arith.divf"):
        scale = _number(op.operands[1 - position])
        if scale is None or (name == "arith.divf" and (position or not scale)):
            return False
        grown = factor * abs(scale) if name == "arith.mulf" else factor / abs(scale)
        return _is_exponent(op.results[0], grown)
    if name in _SUMS or name in _MAXIMA or (name == "arith.select" and position):
        return _is_exponent(op.results[0], factor)
    return name == "linalg.yield" and _result_leads_to_exponents(op, position, factor)


def _keeps_relative(op: Any) -> bool:
    """Whether what reads an exponential passes it on with its relative error."""
    if op.name in ("arith.truncf", "arith.select", "arith.mulf"):
        return all(_keeps_relative(use.owner) for use in op.results[0].uses)
    return bool(op.name == "linalg.yield")


def _result_leads_to_exponents(end: Any, position: int, factor: float) -> bool:
    generic = end.operation.block.owner
    kinds = str(generic.attributes["iterator_types"])
    if "reduction" in kinds:  # the maximum of a row is a reference: any number would do
        made = end.operands[position].owner
        return not isinstance(made, ir.Block) and made.name in _MAXIMA
    users = list(generic.results[position].uses)
    return all(
        use.owner.name == "linalg.generic"
        and _is_exponent(use.owner.regions[0].blocks[0].arguments[use.operand_number], factor)
        for use in users
    )


def _is_of_position(product: Any) -> bool:
    factors = [v.owner for v in product.operands if not isinstance(v.owner, ir.Block)]
    is_f32 = isinstance(product.results[0].type, ir.F32Type)
    return is_f32 and any(op.name == "arith.sitofp" for op in factors)


def _is_score(value: Any) -> bool:
    """Whether a value is part of scores alone, all of whose exponentials are measured from their
    maximum: what is added to all of a row changes nothing."""
    if not _is_exponent(value, 1.0):
        return False
    exponents: list[Any] = []
    maxima: set[Any] = set()
    _follow(value, exponents, maxima)
    return all(
        not isinstance(x.owner, ir.Block)
        and x.owner.name == "arith.subf"
        and _is_made_of(x.owner.operands[1], maxima)
        for x in exponents
    )


def _follow(value: Any, exponents: list[Any], maxima: set[Any]) -> None:
    """Collect what a value (`_is_exponent`) goes into."""
    for use in value.uses:
        op = use.owner
        if op.name in ("math.exp", "math.exp2"):
            exponents.append(value)
        elif op.name == "linalg.generic":
            _follow(op.regions[0].blocks[0].arguments[use.operand_number], exponents, maxima)
        elif op.name == "linalg.yield":
            generic = op.operation.block.owner
            made = generic.results[use.operand_number]
            if "reduction" in str(generic.attributes["iterator_types"]):
                maxima.add(made)
            else:
                _follow(made, exponents, maxima)
        else:
            _follow(op.results[0], exponents, maxima)


def _is_made_of(reference: Any, maxima: set[Any]) -> bool:
    """Whether a reference is one of these maxima, guarded or not."""
    if reference in maxima:
        return True
    op = reference.owner
    if isinstance(op, ir.Block):
        generic = op.owner
        inside = generic.name == "linalg.generic"
        return inside and _is_made_of(generic.operands[reference.arg_number], maxima)
    if op.name == "arith.select":
        return any(_is_made_of(v, maxima) for v in list(op.operands)[1:])
    if op.name != "linalg.generic" or "reduction" in str(op.attributes["iterator_types"]):
        return False
    made = list(op.regions[0].blocks[0].operations)[-1].operands
    return _is_made_of(made[reference.result_number], maxima)


def _number(value: Any) -> float | None:
    """The constant that a value is."""
    made = value.owner
    if isinstance(made, ir.Block) or made.name != "arith.constant":
        return None
    return float(made.attributes["value"].value)
