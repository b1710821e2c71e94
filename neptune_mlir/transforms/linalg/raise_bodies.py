# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar region of a linalg op as terms, and the combiner that it accumulates with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.algebra import combiners
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.scalars import NoTermForm, TermOf, op_to_term, region_to_terms
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.linalg.raise_sizes import FunctionSizes, Size


def operand(k: int, dtype: str) -> Term:
    """Leaf: block argument k, the current element of operand k."""
    return T.sym(("operand", k), dtype)


@dataclass
class Extract:
    """A `tensor.extract` in a region: `leaf` stands for the element at `idx` in the body."""

    tensor: Any
    idx: tuple[Term, ...]
    guarded: tuple[bool, ...]  # per position: written as a broadcast of unknown extent
    leaf: Term


@dataclass
class Body:
    """What a region yields, over `operand` leaves, loop positions, extracts and captures."""

    yields: list[Term]
    extracts: list[Extract] = field(default_factory=list)


def scalar_term(value: Any, capture: Callable[[Any], Term]) -> Term:
    """A scalar defined outside regions: folded where it is a constant, else a capture."""
    owner = value.owner
    if not isinstance(owner, ir.Block) and owner.name.partition(".")[0] in ("arith", "math"):
        try:
            args = [scalar_term(v, capture) for v in owner.operands]
            if all(a.is_const for a in args):
                term = op_to_term(owner, args)
                if term.is_const:
                    return term
        except NoTermForm:
            pass
    return capture(value)


def read_body(
    block: Any,
    sizes: FunctionSizes,
    capture: Callable[[Any], Term],
    size_term: Callable[[Size], Term],
) -> Body:
    """Read a linalg region. Raises NoTermForm where terms cannot say what it computes."""
    body = Body([])
    guarded: set[Any] = set()

    def extract(op: Any, term_of: TermOf) -> Term:
        result = op.operation.results[0]
        leaf = T.sym(("extract", len(body.extracts)), str(result.type))
        tensor, *positions = op.operation.operands
        idx = tuple(term_of(v) for v in positions)
        body.extracts.append(Extract(tensor, idx, tuple(v in guarded for v in positions), leaf))
        return leaf

    def select(op: Any, term_of: TermOf) -> Term | None:
        if not _is_broadcast_guard(op.operation, sizes):
            return None
        guarded.add(op.operation.results[0])
        return term_of(op.operation.operands[2])

    body.yields = region_to_terms(
        block,
        [operand(k, str(argument.type)) for k, argument in enumerate(block.arguments)],
        lambda value: scalar_term(value, capture),
        special={
            "tensor.dim": lambda op, _: size_term(sizes.of(op.operation.results[0])),
            "tensor.extract": extract,
            "arith.select": select,
            "affine.apply": _affine,
            **dict.fromkeys(_MAYBE_UNSIGNED, _unsigned),
        },
    )
    return body


def _is_broadcast_guard(select: Any, sizes: FunctionSizes) -> bool:
    """`select(extent == 1, 0, position)`, as front ends write a broadcast of unknown extent.

    The extent is taken to be that of the loop: a nest covers whole tensors, and the shapes
    that a kernel gets are checked against its nests.
    """
    condition, zero, position = select.operands
    if str(position.type) != "index" or isinstance(condition.owner, ir.Block):
        return False
    compare = condition.owner
    if compare.name != "arith.cmpi" or compare.attributes["predicate"].value != 0:
        return False
    if sizes.truth(condition) is True or sizes.of(zero) != Size(0):
        return False
    return any(sizes.of(v) == Size(1) for v in compare.operands)


def _affine(apply: Any, term_of: TermOf) -> Term:
    """The value of a one-result affine map on index terms."""
    affine_map = apply.operation.attributes["map"].value
    args = [term_of(v) for v in apply.operation.operands]
    ops = (
        (ir.AffineAddExpr, "add"), (ir.AffineMulExpr, "mul"), (ir.AffineFloorDivExpr, "floordiv"),
    )  # fmt: skip

    def term(expr: Any) -> Term:
        if isinstance(expr, ir.AffineConstantExpr):
            return T.const(ir.AffineConstantExpr(expr).value, "index")
        if isinstance(expr, ir.AffineDimExpr):
            return args[ir.AffineDimExpr(expr).position]
        if isinstance(expr, ir.AffineSymbolExpr):
            return args[affine_map.n_dims + ir.AffineSymbolExpr(expr).position]
        binary = ir.AffineBinaryExpr(expr)
        for kind, op in ops:
            if isinstance(expr, kind):
                return T.make(op, term(binary.lhs), term(binary.rhs))
        if isinstance(expr, ir.AffineModExpr) and _not_negative(term(binary.lhs)):
            return T.make("rem", term(binary.lhs), term(binary.rhs))
        raise NoTermForm(f"'affine.apply' of '{expr}' has no term form")

    return term(affine_map.results[0])


def _not_negative(term: Term) -> bool:
    """Positions, and what adds, multiplies or divides them, are not negative."""
    if term.is_const:
        return term.value >= 0
    if term.op == "cast":
        return not T.is_float(term.dtype) and _not_negative(term.args[0])
    if term.op in ("add", "mul", "floordiv", "rem", "min", "max", "div"):
        return not T.is_float(term.dtype) and all(_not_negative(a) for a in term.args)
    return term.op == "index"


_UNSIGNED = {"arith.divui": "floordiv", "arith.remui": "rem", "arith.maxui": "max",
             "arith.minui": "min"}  # fmt: skip
_UNSIGNED_COMPARE = {6: "lt", 7: "le", 8: "gt", 9: "ge"}
_UNSIGNED_CASTS = ("arith.index_castui", "arith.extui", "arith.uitofp")
_MAYBE_UNSIGNED = (*_UNSIGNED, "arith.divsi", *_UNSIGNED_CASTS, "arith.cmpi")


def _unsigned(op: Any, term_of: TermOf) -> Term | None:
    """Unsigned integer ops on what is not negative are the signed ones.

    So are divisions: rounding down and rounding to zero agree, and the first is an access.
    """
    op = op.operation
    args = [term_of(v) for v in op.operands]
    if not all(_not_negative(a) for a in args):
        return None
    if op.name in _UNSIGNED:
        return T.make(_UNSIGNED[op.name], *args)
    if op.name == "arith.divsi":
        return T.make("floordiv", *args)
    if op.name in _UNSIGNED_CASTS:
        return T.make("cast", *args, dtype=str(op.results[0].type))
    if op.name == "arith.cmpi":
        code = op.attributes["predicate"].value
        if code in _UNSIGNED_COMPARE:
            return T.make(_UNSIGNED_COMPARE[code], *args)
    return None


_COMPARED = {"gt": "max", "ge": "max", "lt": "min", "le": "min"}


def split_combiner(body: Term, accumulator: Term) -> tuple[str, Term] | None:
    """`body` as `combiner(accumulator, rest)`, or None when it is no known combiner."""
    if body.op == "sub" and body.args[0] is accumulator and not _uses(body.args[1], accumulator):
        return "add", T.make("neg", body.args[1])
    if body.op == "select":
        body = _as_max_or_min(body)
    if body.op not in (("and", "or") if body.dtype == "i1" else combiners.PLAIN):
        return None
    for mine, other in (body.args, body.args[::-1]):
        if _uses(other, accumulator):
            continue
        if mine is accumulator:
            return body.op, other
        inner = split_combiner(mine, accumulator)  # (acc + x) + y
        if inner is not None and inner[0] == body.op:
            return body.op, T.make(body.op, inner[1], other)
    return None


def _as_max_or_min(body: Term) -> Term:
    """`select(a > b, a, b)` is max(a, b), and its mirror images."""
    condition, a, b = body.args
    if condition.op in _COMPARED and set(condition.args) == {a, b}:
        op = _COMPARED[condition.op]
        if condition.args[0] is not a:
            op = "min" if op == "max" else "max"
        return T.make(op, a, b)
    return body


def _uses(body: Term, leaf: Term) -> bool:
    return any(node is leaf for node in T.walk(body))
