# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests as data: read `neptune` nests into terms, build nests from terms.

Terms hold string keys, never MLIR values (an interned term would keep a module alive);
`Values` is the table between the two, one per pass run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import AccessIndex, position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import AXES, AXIS_NAMES
from neptune_mlir.dialects.op_names import NEW, OLD, PREFIX, READ, READS
from neptune_mlir.dialects.scalars import (
    Emitter,
    NoTermForm,
    TermOf,
    cast,
    identity_value,
    mlir_type,
    region_to_terms,
)
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.types import type_text

DYNAMIC = ir.ShapedType.get_dynamic_size()
POSITIONS = "a loop, a loop floordiv or mod a constant, a lookup, and sums of one of each"


class Values:
    """Keys for MLIR values: `key(value)` names it, `values[key]` finds it again.

    MLIR tells values apart by their address, and that of an op which was erased is used again.
    So a key belongs to its value as long as that lives.
    """

    def __init__(self) -> None:
        self._keys: dict[Any, tuple[str, Any]] = {}  # with the value itself
        self._values: dict[str, Any] = {}
        self._holders: dict[str, list[Any]] = {}  # the values that have a key
        self._numbers: dict[str, int] = {}  # how many keys begin with a hint

    def key(self, value: Any, hint: str | None = None) -> str:
        """The key of `value`; a new value is called `hint`, with a number unless it names it."""
        if not self.knows(value):
            if hint is None:
                hint = "arg" if isinstance(value, ir.BlockArgument) else "v"
            elif hint not in self._values and isinstance(value, ir.BlockArgument):
                self.bind(hint, value)
                return hint
            if hint not in self._numbers:
                self._numbers[hint] = sum(1 for k in self._values if k.startswith(hint))
            number = self._numbers[hint]
            while f"{hint}{number}" in self._values:
                number += 1
            self.bind(f"{hint}{number}", value)
        return self._keys[value][0]

    def bind(self, key: str, value: Any) -> None:
        """Give `value` this key."""
        if key not in self._values:
            for hint in self._numbers:
                self._numbers[hint] += key.startswith(hint)
        self._keys.pop(value, None)  # else the dictionary keeps the old one of two equal values
        self._keys[value] = key, value
        self._values[key] = value
        self._holders.setdefault(key, []).append(value)

    def rebind(self, key: str, value: Any) -> None:
        """`value` takes `key` over from the value that had it (which may be gone)."""
        for holder in self._holders.pop(key, ()):
            if self._keys.get(holder, ("",))[0] == key:
                del self._keys[holder]
        self.bind(key, value)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def knows(self, value: Any) -> bool:
        """Whether a value has a key."""
        _, known = self._keys.get(value, ("", None))
        if known is None or known is value:
            return known is not None
        try:
            known.owner  # noqa: B018
        except RuntimeError:  # its op was erased
            return False
        return True

    def __contains__(self, key: str) -> bool:
        return key in self._values


@dataclass
class Nest:
    """One nest as data.

    `body` is the term of one point of the domain; `result_axes` the loop of each result
    dimension; loops not among them are reduced. For a correction, `body` is h, and
    `accumulators` (reads; the first is the one being repaired), `old` and `new` (see
    `reference`) are its leaves.
    """

    kind: str  # map reduce accumulate correct
    op: Any
    domain: tuple[int, ...]
    extents: tuple[Any, ...]  # index values of the dynamic loops, in order
    body: Term
    result_axes: tuple[int, ...]
    dtype: str
    combiner: str | None = None
    init: str | None = None  # key of the running value
    axes: tuple[int, ...] | None = None  # position of each loop in the fused op's domain
    accumulators: tuple[Term, ...] = ()
    old: tuple[Term, ...] = ()
    new: tuple[Term, ...] = ()
    form: str | None = None

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        return tuple(k for k in range(len(self.domain)) if k not in self.result_axes)

    @property
    def result(self) -> Any:
        return self.op.operation.results[0]

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the program calls the loops (attribute `neptune.axis_names`), if it says."""
        return AXIS_NAMES.find(self.op.operation)

    @property
    def location(self) -> Any:
        return self.op.operation.location


_OF_AFFINE = {ir.AffineFloorDivExpr: "floordiv", ir.AffineModExpr: "rem", ir.AffineAddExpr: "add"}


def affine_to_term(expr: Any, lookups: Sequence[Term] = ()) -> Term:
    """An index of an access as a term, `lookups` being its symbols.

    Raises NoTermForm for what is no position (`algebra/access.py`).
    """
    if isinstance(expr, ir.AffineDimExpr):  # most are a loop
        return T.index(ir.AffineDimExpr(expr).position)
    found = position_of(_affine_term(expr, lookups))
    if found is None:
        raise NoTermForm(f"access '{expr}' is not a position: {POSITIONS}")
    return found.term()


def _affine_term(expr: Any, lookups: Sequence[Term]) -> Term:
    if isinstance(expr, ir.AffineDimExpr):
        return T.index(ir.AffineDimExpr(expr).position)
    if isinstance(expr, ir.AffineSymbolExpr):
        return T.make("cast", lookups[ir.AffineSymbolExpr(expr).position], dtype="index")
    if isinstance(expr, ir.AffineConstantExpr):
        return T.const(ir.AffineConstantExpr(expr).value, "index")
    for kind, op in _OF_AFFINE.items():
        if isinstance(expr, kind):
            return T.make(op, *(_affine_term(e, lookups) for e in (expr.lhs, expr.rhs)))
    raise NoTermForm(f"access '{expr}' is not a position: {POSITIONS}")


def _affine_of(position: AccessIndex, symbol: int) -> Any:
    """The affine expression of a position, whose lookup is this symbol."""
    total = ir.AffineExpr.get_constant(position.constant)
    if position.axis is not None:
        digit = ir.AffineExpr.get_dim(position.axis)
        if position.divisor > 1:
            digit = ir.AffineExpr.get_floor_div(digit, position.divisor)
        if position.modulus is not None:
            digit = ir.AffineExpr.get_mod(digit, position.modulus)
        total = digit + total
    return total if position.lookup is None else ir.AffineExpr.get_symbol(symbol) + total


def _position(idx: Term) -> AccessIndex:
    found = position_of(idx)
    if found is None:
        raise NoTermForm(f"index {idx} is not a position: {POSITIONS}")
    return found


def element_type(value: Any) -> str:
    return type_text(ir.RankedTensorType(value.type).element_type)


def nest_axes(op: Any) -> tuple[int, ...] | None:
    """The axis of the enclosing fused op that each loop of the nest is, or None outside."""
    return AXES.find(op.operation)


def reference(side: str, read: Term) -> Term:
    """A read as a reference of a correction; `side` is "old" or "new".

    The same tensor may be an accumulator and a reference (a count), and only a reference
    moves, so the two are different terms.
    """
    return T.ref((side, read.attr), *read.args, dtype=read.dtype)


def tensor_key(read: Term) -> str:
    """The key of the tensor that a read or a reference takes an element of."""
    return read.attr[1] if isinstance(read.attr, tuple) else read.attr


def read_access(op: Any, values: Values) -> Term:
    """The term of a `neptune.read`, `old` or `new` op. Raises NoTermForm."""
    operation = op.operation
    tensor, *found = operation.operands
    lookups = [read_access(lookup_of(value), values) for value in found]
    access = ir.AffineMapAttr(operation.attributes["map"]).value
    idx = [affine_to_term(e, lookups) for e in access.results]
    read = T.read(values.key(tensor), *idx, dtype=element_type(tensor))
    role = operation.name.removeprefix(PREFIX)
    return read if role == "read" else reference(role, read)


def lookup_of(value: Any) -> Any:
    """The `neptune.read` whose element an index operand of a read is."""
    op = value.owner.operation
    return op.operands[0].owner.operation if op.name == "arith.index_cast" else op


def read_nest(op: Any, values: Values) -> Nest:
    """Read a map, reduce, accumulate or correct op.

    Raises NoTermForm when its body has no term form.
    """
    op = op.operation.opview
    kind = op.operation.name.removeprefix(PREFIX)
    block = op.operation.regions[0].blocks[0]
    roles: dict[str, list[Term]] = {name: [] for name in READS}

    def access(read: Any, _: TermOf) -> Term:
        term = read_access(read, values)
        roles[read.operation.name].append(term)
        return term

    def capture(value: Any) -> Term:
        constant = _scalar_constant(value)
        return constant if constant is not None else T.sym(values.key(value), type_text(value.type))

    (body,) = region_to_terms(block, [], capture, special=dict.fromkeys(READS, access))
    nest = Nest(
        kind, op, tuple(op.domain), tuple(op.extents), body, tuple(op.result_axes),
        element_type(op.operation.results[0]), axes=nest_axes(op),
    )  # fmt: skip
    if kind in ("reduce", "accumulate"):
        nest.combiner = op.combiner.value
        if nest.combiner == "custom":
            raise NoTermForm(f"combiner '{nest.combiner}' has no term form")
        if kind == "accumulate":
            nest.init = values.key(op.init)
    elif kind == "correct":
        nest.accumulators = tuple(dict.fromkeys(roles[READ]))
        nest.old, nest.new = tuple(roles[OLD]), tuple(roles[NEW])
        nest.form = op.form.value
    return nest


def _scalar_constant(value: Any) -> Term | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    from neptune_mlir.dialects.scalars import constant_value

    return T.const(constant_value(owner.opview), type_text(value.type))


def number_attr(value: T.Number, dtype: str) -> Any:
    kind = mlir_type(dtype)
    if T.is_float(dtype):
        return ir.FloatAttr.get(kind, float(value))
    return ir.IntegerAttr.get(kind, int(value))


def tensor_type(domain: Sequence[int], result_axes: Sequence[int], dtype: str) -> Any:
    return ir.RankedTensorType.get([domain[k] for k in result_axes], mlir_type(dtype))


def _i64s(numbers: Sequence[int]) -> Any:
    return ir.DenseI64ArrayAttr.get(list(numbers))


def _create(
    name: str,
    operands: Sequence[Any],
    body: Term,
    domain: Sequence[int],
    result_axes: Sequence[int],
    values: Values,
    *,
    attributes: dict[str, Any],
    regions: int,
    roles: dict[Term, str] | None,
    axes: Sequence[int] | None,
    names: Sequence[str] | None,
    loc: Any,
) -> Any:
    """Create the nest op, then write its body; returns the result tensor."""
    loc = loc or ir.Location.current
    attributes = {"domain": _i64s(domain), "result_axes": _i64s(result_axes), **attributes}
    if axes is not None:
        attributes |= AXES.entry(axes)
    if names is not None:
        attributes |= AXIS_NAMES.entry(names)
    op = ir.Operation.create(
        PREFIX + name,
        results=[tensor_type(domain, result_axes, body.dtype)],
        operands=list(operands),
        attributes=attributes,
        regions=regions,
        loc=loc,
    )
    block = op.regions[0].blocks.append()
    with ir.InsertionPoint(block), loc:
        # References come in pairs and in order, so all reads of a correction go first.
        reads = {
            read: emit_read(read, len(domain), values, role) for read, role in (roles or {}).items()
        }

        def leaf(t: Term) -> Any:
            if t.op == "index":
                return N.IndexOp(ir.IntegerAttr.get(mlir_type("i64"), t.attr)).result
            if t.op == "sym":
                return values[t.attr]
            return reads[t] if t in reads else emit_read(t, len(domain), values)

        N.YieldOp(Emitter(leaf).emit(body))
    return op.results[0]


def emit_read(read: Term, rank: int, values: Values, role: str = "read") -> Any:
    """Write a read at the insertion point, over so many loops, behind the lookups that it needs.

    `role`: "read", "old" or "new". Raises NoTermForm where an index is no position.
    """
    found = [_position(i) for i in read.args]
    lookups = list(dict.fromkeys(p.lookup for p in found if p.lookup is not None))
    positions = [
        cast(emit_read(lookup, rank, values), lookup.dtype, "index")
        if lookup.dtype != "index" else emit_read(lookup, rank, values)
        for lookup in lookups
    ]  # fmt: skip
    results = [_affine_of(p, lookups.index(p.lookup) if p.lookup else 0) for p in found]
    access = ir.AffineMap.get(rank, len(lookups), results)
    return ir.Operation.create(
        PREFIX + role,
        results=[mlir_type(read.dtype)],
        operands=[values[tensor_key(read)], *positions],
        attributes={"map": ir.AffineMapAttr.get(access)},
    ).results[0]


def build_map(
    values: Values,
    body: Term,
    domain: Sequence[int],
    extents: Sequence[Any],
    *,
    result_axes: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    loc: Any = None,
) -> Any:
    """Emit a `neptune.map` of `body` at the insertion point; returns the result tensor.

    Args:
        values: holds the tensor of every read and the scalar of every sym in `body`.
        domain: extent of each loop, `DYNAMIC` where `extents` (index values) give it.
        result_axes: the loop of each result dimension (default: the loops in order).
        axes: inside a fused op, the axis that each loop is.
        names: what people call the loops (kept for printing).
    """
    result_axes = tuple(range(len(domain))) if result_axes is None else tuple(result_axes)
    return _create(
        "map", extents, body, domain, result_axes, values,
        attributes={}, regions=1, roles=None, axes=axes, names=names, loc=loc,
    )  # fmt: skip


def build_reduce(
    values: Values,
    combiner: str,
    body: Term,
    domain: Sequence[int],
    extents: Sequence[Any],
    result_axes: Sequence[int],
    *,
    init: Any = None,
    axes: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    loc: Any = None,
) -> Any:
    """Emit a `neptune.reduce`, or with `init` a `neptune.accumulate`; returns the result."""
    identity = number_attr(identity_value(combiner, body.dtype), body.dtype)
    return _create(
        "reduce" if init is None else "accumulate",
        extents if init is None else [init, *extents],
        body, domain, result_axes, values,
        attributes={"combiner": ir.StringAttr.get(combiner), "identity": identity},
        regions=2, roles=None, axes=axes, names=names, loc=loc,
    )  # fmt: skip


def build_correct(
    values: Values,
    accumulators: Sequence[Term],
    old: Sequence[Term],
    new: Sequence[Term],
    h: Term,
    form: str,
    domain: Sequence[int],
    extents: Sequence[Any],
    result_axes: Sequence[int],
    *,
    axes: Sequence[int] | None = None,
    loc: Any = None,
) -> Any:
    """Emit a `neptune.correct`. `accumulators` are reads, `old` and `new` come from `reference`;
    h is over them, and may read other tensors as data."""
    roles = dict.fromkeys(accumulators, "read")
    roles |= dict.fromkeys(old, "old") | dict.fromkeys(new, "new")
    return _create(
        "correct", extents, h, domain, result_axes, values,
        attributes={"form": ir.StringAttr.get(form)}, regions=1, roles=roles,
        axes=axes, names=None, loc=loc,
    )  # fmt: skip
