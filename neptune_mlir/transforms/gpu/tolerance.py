# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which functions in a kernel need few digits: part of `assign-layouts`.

`tanh` is two instructions and some arithmetic where results near 0 may be off by 2^-22, and twice
that where they are right to some units in the last place; `exp` is one instruction and a product
where a relative error of |x| 2^-23 will do. A program that returns 16-bit floats only, and takes no
logarithm (which would turn a relative error into an absolute one), needs no better `exp`. Nor does
it need a better `tanh` where it caps scores, c tanh(s / c): only differences of scores matter, as
exponents. So functions are marked `neptune.rough` in such programs: every `math.exp`, and each
`math.tanh` whose value, times numbers up to `LARGEST`, goes nowhere but into maxima of rows and
exponentials. Quotients and inverse roots are marked that are two units in the last place off,
unless something may turn on their last bit: a comparison, or a function that rounds to whole
numbers.

A logarithm of a bf16 is 0 or at least 2^-9, so one that is off by 2^-22 there is right to 2^-13; it
is marked where all that becomes of it, times other numbers, is rounded to 16 bits. So is each
log(1 + x), whatever x is, which then is made to 2^-17.

In a program without 16-bit floats every `math.exp` is marked `neptune.precise`: it is right of a
difference too, where others have an error of |x| 2^-23 (a row with one large logit has an entropy
of 1e-20, made of exp(-46) and nothing else).

Products k p of positions are marked that are parts of scores. As k (p + 8) = k p + 8 k is made,
they are off by what rounding k p loses, also where the position itself is 0. To weights that are
measured from the maximum of these very scores it is nothing: p is less than 2^8 away, so that
other positions have scores that are further away by 2^16 such errors.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.dialects.gpu_attributes import PRECISE, ROUGH
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

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
    for name in ("math.log", "math.log1p"):
        for op in _called(forall, name):
            if (name == "math.log1p" or _is_bf16(op.operands[0])) and _is_rounded(op.results[0]):
                ROUGH.set(op)
    names = ("math.exp", "math.tanh", "arith.divf", "arith.mulf", "math.rsqrt")
    exponentials, tangents, quotients, products, roots = (_called(forall, n) for n in names)
    quotients += roots
    products = [op for op in products if _is_of_position(op)]
    found = exponentials or tangents or quotients or products
    if not found or not _rounds_to_16_bits(forall.parent):
        if not _has_16_bits(forall.parent):
            for op in exponentials:
                PRECISE.set(op)
        return
    tangents = [op for op in tangents if _is_exponent(op.results[0])]
    quotients = [op for op in quotients if not _decides(op.results[0])]
    products = [op for op in products if _is_score(op.results[0])]
    for op in (*exponentials, *tangents, *quotients, *products):
        ROUGH.set(op)


def _is_bf16(value: Any) -> bool:
    """Whether a number is one of bf16."""
    made = defining_op(value)
    wide = made is not None and made.name == "arith.extf"
    return isinstance(made.operands[0].type if wide else value.type, ir.BF16Type)


def _is_rounded(value: Any) -> bool:
    """Whether a value, perhaps times another one or chosen, goes nowhere but into 16-bit floats.
    (tanh of a logarithm is no function: `codegen/gpu/functions.py`.)"""
    uses = [use.owner for use in value.uses]
    if any(op.name == "math.tanh" for op in uses):
        return False
    if isinstance(value.type, ir.FloatType) and value.type.width == 16:
        return True
    through = ("arith.mulf", "arith.select", "arith.truncf")
    return all(op.name in through and _is_rounded(op.results[0]) for op in uses)


def _rounds_to_16_bits(program: Any) -> bool:
    """Whether a function returns no wider floats, and takes no logarithm."""
    wide = [t for t in _elements(program)[1] if isinstance(t, (ir.F32Type, ir.F64Type))]
    return not wide and not any(_called(program, name) for name in _LOGARITHMS)


def _has_16_bits(program: Any) -> bool:
    """Whether an argument or a result of a function is of floats of 16 bits or fewer."""
    every = [t for types in _elements(program) for t in types]
    return any(isinstance(t, ir.FloatType) and t.width <= 16 for t in every)


def _elements(program: Any) -> list[list[Any]]:
    """The types of numbers of a function's arguments, and of its results."""
    kind = ir.FunctionType(ir.TypeAttr(program.attributes["function_type"]).value)
    return [
        [t.element_type if isinstance(t, ir.RankedTensorType) else t for t in types]
        for types in (kind.inputs, kind.results)
    ]


def _called(root: Any, name: str) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found


def _decides(value: Any) -> bool:
    """Whether the last bit of a value may decide something, as far as can be told."""
    seen, pending = {value}, [value]
    while pending:
        for use in pending.pop().uses:
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
            if made not in seen:
                seen.add(made)
                pending.append(made)
    return False


def _is_exponent(value: Any) -> bool:
    """Whether all that becomes of a value, up to LARGEST times as large, are maxima and
    exponents."""
    largest = {value: 1.0}  # that a value was followed for
    pending = [value]
    while pending:
        before = pending.pop()
        for use in before.uses:
            followed = _towards_exponents(use.owner, use.operand_number, largest[before])
            if followed is None:
                return False
            for made, factor in followed:
                if factor > LARGEST:
                    return False
                if factor > largest.get(made, -1.0):
                    largest[made] = factor
                    pending.append(made)
    return True


def _towards_exponents(op: Any, position: int, factor: float) -> list[tuple[Any, float]] | None:
    """The values that an operand goes on to, with how many times as large it is in them; None
    where it becomes something else than a maximum or an exponent."""
    name = op.name
    if name in ("math.exp", "math.exp2"):
        return [] if _keeps_relative(op) else None
    if name in ("arith.mulf", "arith.divf"):
        scale = _number(op.operands[1 - position])
        if scale is None or (name == "arith.divf" and (position or not scale)):
            return None
        grown = factor * abs(scale) if name == "arith.mulf" else factor / abs(scale)
        return [(op.results[0], grown)]
    if name in _SUMS or name in _MAXIMA or (name == "arith.select" and position):
        return [(op.results[0], factor)]
    return _behind_result(op, position, factor) if name == "linalg.yield" else None


def _keeps_relative(exponential: Any) -> bool:
    """Whether all that reads an exponential passes it on with its relative error."""
    seen, pending = {exponential.results[0]}, [exponential.results[0]]
    while pending:
        for op in [use.owner for use in pending.pop().uses]:
            if op.name in ("arith.truncf", "arith.select", "arith.mulf"):
                if op.results[0] not in seen:
                    seen.add(op.results[0])
                    pending.append(op.results[0])
            elif op.name != "linalg.yield":
                return False
    return True


def _behind_result(end: Any, position: int, factor: float) -> list[tuple[Any, float]] | None:
    generic = end.operation.block.owner
    kinds = str(generic.attributes["iterator_types"])
    if "reduction" in kinds:  # the maximum of a row is a reference: any number would do
        made = end.operands[position].owner
        return [] if not isinstance(made, ir.Block) and made.name in _MAXIMA else None
    users = list(generic.results[position].uses)
    if any(use.owner.name != "linalg.generic" for use in users):
        return None
    bodies = [(use.owner.regions[0].blocks[0], use.operand_number) for use in users]
    return [(body.arguments[number], factor) for body, number in bodies]


def _is_of_position(product: Any) -> bool:
    factors = [v.owner for v in product.operands if not isinstance(v, ir.BlockArgument)]
    is_f32 = isinstance(product.results[0].type, ir.F32Type)
    return is_f32 and any(op.name == "arith.sitofp" for op in factors)


def _is_score(value: Any) -> bool:
    """Whether a value is part of scores alone, all of whose exponentials are measured from their
    maximum: what is added to all of a row changes nothing."""
    if not _is_exponent(value):
        return False
    exponents, maxima = _followed(value)
    return all(
        not isinstance(x, ir.BlockArgument)
        and x.owner.name == "arith.subf"
        and _is_made_of(x.owner.operands[1], maxima)
        for x in exponents
    )


def _followed(value: Any) -> tuple[list[Any], set[Any]]:
    """What a value (`_is_exponent`) goes into: exponents, and maxima of rows."""
    exponents: list[Any] = []
    maxima: set[Any] = set()
    seen, pending = {value}, [value]
    while pending:
        before = pending.pop()
        for use in before.uses:
            op = use.owner
            if op.name in ("math.exp", "math.exp2"):
                exponents.append(before)
                continue
            if op.name == "linalg.generic":
                made = op.regions[0].blocks[0].arguments[use.operand_number]
            elif op.name == "linalg.yield":
                generic = op.operation.block.owner
                made = generic.results[use.operand_number]
                if "reduction" in str(generic.attributes["iterator_types"]):
                    maxima.add(made)
                    continue
            else:
                made = op.results[0]
            if made not in seen:
                seen.add(made)
                pending.append(made)
    return exponents, maxima


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
