# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar MLIR code to terms and back: one table for both directions.

`region_to_term` reads a block of `arith`/`math` ops; `Emitter` writes a term at the current
insertion point. Unsigned comparisons, `fpowi` and other ops outside the table raise
`NoTermForm`: such a nest stays as it is and is never fused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.operators import OF_OP
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import LOOSE
from neptune_mlir.dialects.op_names import INDEX, YIELD
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.ir.types import type_text


class NoTermForm(LoweringError):
    """A scalar region holds an op that terms cannot express."""


YIELDS = (YIELD, "linalg.yield", "tm_tensor.yield")

_CASTS = {
    "arith.extf", "arith.truncf", "arith.sitofp", "arith.fptosi", "arith.extsi",
    "arith.trunci", "arith.index_cast",
}  # fmt: skip
# uitofp/extui/index_castui: as the signed ones on i1 (true is 1, never -1); `_unsigned` of others.
_BOOL_CASTS = {"arith.uitofp", "arith.extui", "arith.index_castui"}

_UNSIGNED = {"i8": 8, "i16": 16, "i32": 32}  # types whose unsigned numbers i64 holds

_CMPI = {0: "eq", 1: "ne", 2: "lt", 3: "le", 4: "gt", 5: "ge"}
_CMPF_ORDERED = {1: "eq", 2: "gt", 3: "ge", 4: "lt", 5: "le"}
_CMPF_NEGATED = {9: "le", 10: "lt", 11: "ge", 12: "gt"}  # ugt = not ole, ...


def _cmpf(predicate: int, a: Term, b: Term) -> Term:
    def ordered() -> Term:
        return T.make("and", T.make("eq", a, a), T.make("eq", b, b))

    def differs() -> Term:
        return T.make("or", T.make("lt", a, b), T.make("gt", a, b))

    if predicate in _CMPF_ORDERED:
        return T.make(_CMPF_ORDERED[predicate], a, b)
    if predicate in _CMPF_NEGATED:
        return T.make("not", T.make(_CMPF_NEGATED[predicate], a, b))
    match predicate:
        case 0:
            return T.const(False, "i1")
        case 6:
            return differs()
        case 7:
            return ordered()
        case 8:
            return T.make("not", differs())
        case 13:
            return T.make("ne", a, b)
        case 14:
            return T.make("not", ordered())
    return T.const(True, "i1")


def constant_value(op: Any) -> T.Number:
    """The Python value of an `arith.constant` of scalar type."""
    attr = op.attributes["value"]
    try:
        return attr.value
    except (AttributeError, ValueError):
        raise NoTermForm(f"constant {attr} is not a scalar number") from None


def op_to_term(op: Any, args: list[Term]) -> Term:
    """The term of one scalar op on the terms of its operands. Raises NoTermForm."""
    name = op.operation.name
    dtype = type_text(op.operation.results[0].type)
    if name in OF_OP:
        return T.make(OF_OP[name], *args, dtype=dtype)
    if name in _CASTS and not (name == "arith.sitofp" and args[0].dtype == "i1"):
        if name == "arith.extsi" and args[0].dtype == "i1":
            raise NoTermForm("sign extension of i1 (true would be -1)")
        as_written = name == "arith.truncf" and dtype == T.FLOAT8 and not LOOSE.on(op.operation)
        return T.make("quantize" if as_written else "cast", *args, dtype=dtype)
    if name in _BOOL_CASTS and args[0].dtype in ("i1", "index"):
        return T.make("cast", *args, dtype=dtype)
    if name in _BOOL_CASTS and args[0].dtype in _UNSIGNED:
        return _unsigned(args[0], dtype)
    if name == "arith.constant":
        return T.const(constant_value(op), dtype)
    if name == "arith.cmpf":
        return _cmpf(op.attributes["predicate"].value, *args)
    if name == "arith.cmpi" and (code := op.attributes["predicate"].value) in _CMPI:
        return T.make(_CMPI[code], *args)
    if name == "math.fma":
        return T.make("add", T.make("mul", args[0], args[1]), args[2])
    raise NoTermForm(f"'{name}' has no term form")


def _unsigned(number: Term, dtype: str) -> Term:
    """A number whose first bit is no sign, in a type that holds it: one below 0 is a whole range of
    its type lower than what it stands for."""
    bits = _UNSIGNED[number.dtype]
    wide = dtype if dtype in ("i16", "i32", "i64", "index") else "i32" if bits < 32 else "i64"
    below = T.make("lt", number, T.const(0, number.dtype))
    more = T.make("select", below, T.const(1 << bits, wide), T.const(0, wide))
    found = T.make("add", T.make("cast", number, dtype=wide), more)
    return found if wide == dtype else T.make("cast", found, dtype=dtype)


TermOf = Callable[[Any], Term]
Special = Callable[[Any, TermOf], "Term | None"]


def region_to_terms(
    block: Any,
    arguments: Sequence[Term],
    capture: TermOf,
    *,
    index_ops: tuple[str, ...] = (INDEX, "linalg.index"),
    axes: Callable[[int], Term] = T.index,
    special: Mapping[str, Special] | None = None,
) -> list[Term]:
    """The terms that `block` yields, given the terms of its arguments.

    Assertions are left out: a wrong index is an error of the caller, and nothing is read then.

    Args:
        capture: gives the term of a scalar defined outside of the block.
        axes: gives the term of an index op by its dimension.
        special: by the name of an op: gives its term (a read, say) from the op and the terms of
            values; None where it is like any other of its name.

    Raises:
        NoTermForm: terms cannot say what the block computes.
    """
    env: dict[Any, Term] = dict(zip(block.arguments, arguments, strict=True))
    special = special or {}

    def term_of(value: Any) -> Term:
        if value not in env:
            env[value] = capture(value)
        return env[value]

    for op in block.operations:
        operation = op.operation
        name = operation.name
        if name in YIELDS:
            return [term_of(v) for v in operation.operands]
        if name == "cf.assert":
            continue
        if name in index_ops:
            found = axes(operation.attributes["dim"].value)
        elif name not in special or (found := special[name](op, term_of)) is None:
            if len(operation.results) != 1:
                raise NoTermForm(f"'{name}' does not give one scalar")
            found = op_to_term(op, [term_of(v) for v in operation.operands])
        env[operation.results[0]] = found
    raise NoTermForm("the region has no yield")


_CMPI_CODE = {name: code for code, name in _CMPI.items()}
_CMPF_CODE = {**{name: code for code, name in _CMPF_ORDERED.items()}, "ne": 13}


def mlir_type(dtype: str) -> Any:
    return ir.Type.parse(dtype)


class Emitter:
    """Writes terms as scalar ops at the current insertion point, each distinct term once.

    Args:
        leaf: gives the value of a read, ref, sym or index leaf.
    """

    def __init__(self, leaf: Callable[[Term], Any]):
        self._leaf = leaf
        self._done: dict[Term, Any] = {}

    def emit(self, root: Term) -> Any:
        for node in self._needed(root):
            self._done[node] = self._emit_one(node)
        return self._done[root]

    def _needed(self, root: Term) -> list[Term]:
        order: list[Term] = []
        stack = [(root, False)]
        seen: set[Term] = set()
        while stack:
            node, ready = stack.pop()
            if node in self._done or (node in seen and not ready):
                continue
            if ready:
                order.append(node)
                continue
            seen.add(node)
            stack.append((node, True))
            if node.op not in ("read", "ref"):  # the idx terms of an access are not code
                stack.extend((a, False) for a in reversed(node.args))
        return order

    def _emit_one(self, node: Term) -> Any:
        if node.is_const:
            return constant(node.value, node.dtype)
        if node.is_leaf:
            return self._leaf(node)
        args = [self._done[a] for a in node.args]
        operand = node.args[0].dtype
        floating = T.is_float(operand)
        if node.op == "select":
            return arith.SelectOp(*args).result
        if node.op == "not":
            return arith.XOrIOp(args[0], constant(True, "i1")).result
        if node.op in T.COMPARISONS:
            if floating:
                return arith.CmpFOp(_CMPF_CODE[node.op], *args).result
            return arith.CmpIOp(_CMPI_CODE[node.op], *args).result
        if node.op in ("cast", "quantize"):
            value = cast(args[0], operand, node.dtype)
            if node.op == "cast" and floating and node.dtype == T.FLOAT8:
                LOOSE.set(value.owner)
            return value
        if not floating and node.op == "neg":
            return arith.SubIOp(constant(0, operand), args[0]).result
        row = T.OPERATORS[node.op]
        if name := row.floats if floating else row.integers:
            return ir.Operation.create(name, [mlir_type(node.dtype)], args).results[0]
        raise NoTermForm(f"'{node.op}' on {operand} has no scalar op")


def emit_combined(combiner: str, a: Any, b: Any) -> Any:
    """Two scalars of one type combined by a named combiner, at the current insertion point."""
    both = {T.sym(k, type_text(v.type)): v for k, v in enumerate((a, b))}
    return Emitter(both.__getitem__).emit(lookup(combiner)(*both))


def constant(value: T.Number, dtype: str) -> Any:
    """An `arith.constant` of scalar type `dtype`."""
    kind = mlir_type(dtype)
    if T.is_float(dtype):
        attr = ir.FloatAttr.get(kind, float(value))
    else:
        attr = ir.IntegerAttr.get(kind, int(value))
    return arith.ConstantOp(kind, attr).result


def cast(value: Any, source: str, target: str) -> Any:
    """Convert a scalar (round to nearest; float to integer truncates; i1 counts as 0 or 1)."""
    kind = mlir_type(target)
    if T.is_float(source):
        if not T.is_float(target):
            if target == "index":
                whole = arith.FPToSIOp(mlir_type("i64"), value).result
                return arith.IndexCastOp(kind, whole).result
            return arith.FPToSIOp(kind, value).result
        wide, narrow = _bits(source), _bits(target)
        if wide == narrow:  # f16 <-> bf16 goes through f32
            value = arith.ExtFOp(mlir_type("f32"), value).result
            return arith.TruncFOp(kind, value).result
        return (arith.ExtFOp if wide < narrow else arith.TruncFOp)(kind, value).result
    if T.is_float(target):
        if source == "index":
            value, source = arith.IndexCastOp(mlir_type("i64"), value).result, "i64"
        op = arith.UIToFPOp if source == "i1" else arith.SIToFPOp
        return op(kind, value).result
    if "index" in (source, target):
        op = arith.IndexCastUIOp if "i1" in (source, target) else arith.IndexCastOp
        return op(kind, value).result
    if _bits(source) < _bits(target):
        op = arith.ExtUIOp if source == "i1" else arith.ExtSIOp
        return op(kind, value).result
    return arith.TruncIOp(kind, value).result


def _bits(dtype: str) -> int:
    return 8 if dtype == "f8E4M3FN" else int(dtype.lstrip("bfi"))


def identity_value(combiner: str, dtype: str) -> T.Number:
    """The neutral element of a named combiner on scalars of type `dtype`. Raises NoTermForm."""
    found = lookup(combiner).identity_on(dtype)
    if found is not None:
        return found
    raise NoTermForm(f"combiner '{combiner}' is not defined on {dtype}")
