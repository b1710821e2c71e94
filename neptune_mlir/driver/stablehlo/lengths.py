# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of StableHLO whose lengths calls know: shapes computed as tensors become extents.

JAX exports symbolic lengths as `get_dimension_size`, arithmetic on tensors of one number, and ops
that take their shapes as tensors. Sizes are followed as polynomials (`polynomials.py`), so that it
is known which extents are equal; `shaped.py` has the other forms of the ops. Where a size is not
known an op stays as it is, and is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neptune_mlir.driver.stablehlo import shaped
from neptune_mlir.driver.stablehlo.bodies import NoForm, element_of, shape_of, word
from neptune_mlir.driver.stablehlo.polynomials import ONE, ZERO, Length, LengthFacts
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import arith, ir, location_text

_OF_TWO = {"add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum"}
_SAME = {"reshape", "convert", "broadcast_in_dim", "dynamic_broadcast_in_dim", "dynamic_reshape"}
_FEW = 64  # elements of a tensor that may be a shape


def with_extents(function: Any, name: str) -> bool:
    """Rewrite what a function computes of its lengths; whether anything changed.

    Args:
        name: of the program, for diagnostics.

    Raises:
        InputError: a condition on lengths that a kernel cannot keep.
    """
    blocks = function.regions[0].blocks
    return bool(len(blocks)) and Lengths(blocks[0], name).rewrite()


class Lengths:
    """The sizes of one block, and the extents of its tensors."""

    def __init__(self, block: Any, program: str) -> None:
        self.block, self.program = block, program
        self.sizes = LengthFacts()
        self.known: dict[Any, tuple[Length, ...]] = {}  # integers, of tensors of few elements
        self._extents: dict[Any, list[Length]] = {}
        self._places: dict[str, tuple[Any, int]] = {}  # an atom is which extent of which tensor

    def rewrite(self) -> bool:
        changed = False
        for op in [op.operation for op in self.block.operations]:
            if _is_assertion(op):
                self._assume(op)
                test = op.operands[0].owner
                op.erase()
                if not isinstance(test, ir.Block) and not any(r.uses for r in test.results):
                    self.known.pop(test.results[0], None)
                    test.erase()
            elif self._count(op):
                continue
            elif (form := shaped.FORMS.get(op.name)) is None or not self._put(op, form):
                continue
            changed = True
        for value, found in list(self.known.items()):
            changed |= self._as_data(value, found)
        return changed

    def _put(self, op: Any, form: Callable[[Lengths, Any], Any]) -> bool:
        """Another form in place of an op; False where it stays."""
        with ir.InsertionPoint(op), op.location:
            try:
                value = form(self, op)
            except NoForm:
                return False
            kind = op.results[0].type
            if value.type != kind:
                value = ir.Operation.create("tensor.cast", [kind], [value]).results[0]
        op.results[0].replace_all_uses_with(value)
        op.erase()
        return True

    # ---- sizes -----------------------------------------------------------------------------------

    def numbers(self, value: Any) -> tuple[Length, ...]:
        """The elements of a tensor of sizes. Raises NoForm where they are not known."""
        if value not in self.known:
            raise NoForm("a size that is not known")
        return tuple(self.sizes.resolved(size) for size in self.known[value])

    def constants(self, value: Any) -> list[int]:
        """The elements of a tensor of sizes that are numbers. Raises NoForm."""
        found = [size.number for size in self.numbers(value)]
        if None in found:
            raise NoForm("a size that only calls know")
        return [n for n in found if n is not None]

    def equal(self, a: Length, b: Length) -> bool:
        return self.sizes.are("EQ", a, b) is True

    def _count(self, op: Any) -> bool:
        """Whether an op computes sizes, which are known then."""
        if len(op.results) != 1 or op.regions or not _is_few(op.results[0]):
            return False
        try:
            found = self._elements(op, op.name.removeprefix("stablehlo."))
        except NoForm:
            return False
        if found is not None:
            self.known[op.results[0]] = tuple(found)
        return found is not None

    def _elements(self, op: Any, name: str) -> Sequence[Length] | None:
        if name == "constant":
            held, count = op.attributes["value"], _count_of(op.results[0])
            return [Length.of(int(held[k])) for k in range(count)]
        if name == "get_dimension_size":
            return [self.extents(op.operands[0])[op.attributes["dimension"].value]]
        if name == "concatenate":
            return [size for value in op.operands for size in self.numbers(value)]
        if name == "slice":
            ends = [_listed(op, key)[0] for key in ("start_indices", "limit_indices", "strides")]
            return self.numbers(op.operands[0])[slice(*ends)]
        if name in _SAME:
            given, count = self.numbers(op.operands[0]), _count_of(op.results[0])
            return given if len(given) == count else list(given) * count  # of one element
        if name not in {*_OF_TWO, *_OTHERS, *_TRUTHS, "compare"} or not op.operands:
            return None
        columns = zip(*(self._if_known(value) for value in op.operands), strict=True)
        direction = word(op.attributes["comparison_direction"]) if name == "compare" else ""
        found = []
        for sizes in columns:
            size: Length | None
            if name in _TRUTHS:
                size = _TRUTHS[name](*sizes)
            elif None in sizes:
                return None
            elif name == "compare":
                holds = self.sizes.are(direction, *sizes)
                size = None if holds is None else Length.of(holds)
            elif name in _OF_TWO:
                size = self.sizes.result(name, *sizes)
            else:
                size = _OTHERS[name](self.sizes, *sizes)
            if size is None:
                return None
            found.append(size)
        return found

    def _if_known(self, value: Any) -> Sequence[Length | None]:
        if not _is_few(value):
            return ()
        return self.numbers(value) if value in self.known else [None] * _count_of(value)

    def _assume(self, op: Any) -> None:
        """What an exporter says of lengths: a fact, and a check of each call."""
        found = self.known.get(op.operands[0])
        if found == (ONE,):
            return
        test = op.operands[0].owner
        test = None if isinstance(test, ir.Block) else test.operation
        if test is not None and test.name == "stablehlo.compare":
            a, b = (self.known.get(value, (None,))[0] for value in test.operands)
            direction = word(test.attributes["comparison_direction"])
            if a is not None and b is not None:
                check = direction != "GE" or b.number is None or b.number > 1  # none are computed
                if check:
                    self._check(op, _PREDICATES[direction], a, b)
                if self.sizes.assume(direction, a, b) or check:
                    return
        raise InputError(
            f"no kernel checks this condition on lengths: {_said(op)}",
            loc=location_text(op.location, self.program),
            hint="export with a name for each length that calls choose, or a multiple of a name",
        )

    def _check(self, op: Any, predicate: str, a: Length, b: Length) -> None:
        with ir.InsertionPoint(op), op.location:
            holds = arith.cmpi(
                getattr(arith.CmpIPredicate, predicate), self.index(a), self.index(b)
            )
            ir.Operation.create(
                "cf.assert", operands=[holds], attributes={"msg": ir.StringAttr.get(_said(op))}
            )

    # ---- extents ---------------------------------------------------------------------------------

    def extents(self, value: Any) -> list[Length]:
        """The extents of a tensor."""
        if value not in self._extents:
            static = shape_of(value)
            op = None if isinstance(value.owner, ir.Block) else value.owner.operation
            inferred = None if op is None else self._inferred(op)
            found = []
            for k, extent in enumerate(static):
                if not ir.ShapedType.is_dynamic_size(extent):
                    found.append(Length.of(extent))
                elif inferred is not None:
                    found.append(inferred[k])
                else:
                    found.append(self._extent_of(value, k))
            self._extents[value] = found
        return [self.sizes.resolved(size) for size in self._extents[value]]

    def know(self, value: Any, extents: Sequence[Length]) -> Any:
        """The same value, whose extents are known now."""
        self._extents[value] = list(extents)
        return value

    def _extent_of(self, value: Any, k: int) -> Length:
        name = f"{len(self._places)}"
        self._places[name] = (value, k)
        return Length.atom(name)

    def _inferred(self, op: Any) -> list[Length] | None:
        """The extents of the first result of an op of StableHLO, where they follow from those of
        its operands."""
        name = op.name.removeprefix("stablehlo.")
        rank = len(shape_of(op.results[0]))
        if name == "dot_general":
            return self._of_product(op)
        if name == "concatenate":
            dim, parts = op.attributes["dimension"].value, [self.extents(v) for v in op.operands]
            total = parts[0][dim]
            for part in parts[1:]:
                total = total + part[dim]
            return [*parts[0][:dim], total, *parts[0][dim + 1 :]]
        if name in ("transpose", "reduce"):
            given = self.extents(op.operands[0])
            if name == "transpose":
                return [given[k] for k in _listed(op, "permutation")]
            return [s for k, s in enumerate(given) if k not in _listed(op, "dimensions")]
        if op.regions or not (name in _ELEMENTWISE or name.startswith("chlo.")):
            return None
        same = [v for v in op.operands if len(shape_of(v)) == rank]
        return self.extents(same[-1]) if same else None

    def _of_product(self, op: Any) -> list[Length]:
        left, right = (self.extents(value) for value in op.operands)
        numbers = str(op.attributes["dot_dimension_numbers"])
        dims = {key: shaped.dims(key, numbers) for key in _PRODUCT}
        batch, taken = dims[_PRODUCT[0]], dims[_PRODUCT[0]] + dims[_PRODUCT[2]]
        behind = dims[_PRODUCT[1]] + dims[_PRODUCT[3]]
        return [
            *(left[k] for k in batch),
            *(s for k, s in enumerate(left) if k not in taken),
            *(s for k, s in enumerate(right) if k not in behind),
        ]

    # ---- values ----------------------------------------------------------------------------------

    def index(self, size: Length) -> Any:
        """A size as a value, at the insertion point."""
        total = None
        for monomial, factor in size.terms:
            product = None if factor == 1 and monomial else _constant(factor)
            for atom in monomial:
                extent = self._atom(atom)
                product = extent if product is None else arith.muli(product, extent)
            total = product if total is None else arith.addi(total, product)
        return _constant(0) if total is None else total

    def _atom(self, name: str) -> Any:
        if name in self._places:
            value, k = self._places[name]
            return ir.Operation.create(
                "tensor.dim", [ir.IndexType.get()], [value, _constant(k)]
            ).results[0]  # fmt: skip
        op, a, b = self.sizes.made[name]
        return getattr(arith, _ON_INDICES[op])(self.index(a), self.index(b))

    def dynamic(self, sizes: Sequence[Length], shape: Sequence[int]) -> list[Any]:
        """Values of those extents that a type leaves open."""
        pairs = zip(sizes, shape, strict=True)
        return [self.index(s) for s, n in pairs if ir.ShapedType.is_dynamic_size(n)]

    def _as_data(self, value: Any, found: Sequence[Length]) -> bool:
        """A tensor of extents for sizes that are computed with; whether there are such."""
        if all(size.number is not None for size in found):
            return False
        uses = [use for use in value.uses if not self._is_counted(use.owner)]
        if not uses:
            return False
        with ir.InsertionPoint(value.owner), value.owner.location:
            element = element_of(value)
            numbers = [arith.index_cast(element, self.index(size)) for size in found]
            made = ir.Operation.create("tensor.from_elements", [value.type], numbers).results[0]
        for use in uses:
            use.owner.operands[use.operand_number] = made
        return True

    def _is_counted(self, op: Any) -> bool:
        return len(op.results) == 1 and op.results[0] in self.known


# ---- ops -----------------------------------------------------------------------------------------

_ELEMENTWISE = {
    *_OF_TWO, "abs", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "convert", "cosine",
    "exponential", "exponential_minus_one", "floor", "is_finite", "log", "log_plus_one", "logistic",
    "negate", "not", "or", "power", "reduce_precision", "reverse", "round_nearest_afz",
    "round_nearest_even", "rsqrt", "select", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sine", "sqrt", "tan", "tanh", "xor",
}  # fmt: skip
_PRODUCT = (
    "lhs_batching_dimensions", "rhs_batching_dimensions",
    "lhs_contracting_dimensions", "rhs_contracting_dimensions",
)  # fmt: skip
_PREDICATES = {"EQ": "eq", "NE": "ne", "LT": "slt", "LE": "sle", "GT": "sgt", "GE": "sge"}
_ON_INDICES = {
    "divide": "floordivsi", "remainder": "remsi", "maximum": "maxsi", "minimum": "minsi",
}  # fmt: skip


def _sign(sizes: LengthFacts, size: Length) -> Length | None:
    low, high = sizes.bounds(size)
    return ONE if low >= 1 else Length.of(-1) if high <= -1 else ZERO if low == high == 0 else None


def _clamp(sizes: LengthFacts, low: Length, size: Length, high: Length) -> Length | None:
    above = sizes.result("maximum", low, size)
    return None if above is None else sizes.result("minimum", above, high)


# of truths, one of which may not be known
def _select(chosen: Length | None, a: Length | None, b: Length | None) -> Length | None:
    if chosen is None or chosen.number is None:
        return a if a == b else None
    return a if chosen.number else b


def _both(a: Length | None, b: Length | None) -> Length | None:
    return ZERO if ZERO in (a, b) else ONE if a == b == ONE else None


def _either(a: Length | None, b: Length | None) -> Length | None:
    return ONE if ONE in (a, b) else ZERO if a == b == ZERO else None


_OTHERS: Mapping[str, Callable[..., Length | None]] = {
    "negate": lambda sizes, a: ZERO - a, "sign": _sign, "clamp": _clamp,
}  # fmt: skip
_TRUTHS: Mapping[str, Callable[..., Length | None]] = {
    "select": _select, "and": _both, "or": _either,
}  # fmt: skip


def _is_assertion(op: Any) -> bool:
    if op.name != "stablehlo.custom_call" or "error_message" not in op.attributes:
        return False
    return ir.StringAttr(op.attributes["call_target_name"]).value == "shape_assertion"


def _said(op: Any) -> str:
    """An assertion's message without what it says of each length's name."""
    return ir.StringAttr(op.attributes["error_message"]).value.partition(" Using the")[0]


def _is_few(value: Any) -> bool:
    """Whether a tensor may hold sizes: integers with a sign, or truths, at most one dimension."""
    if not isinstance(value.type, ir.RankedTensorType) or len(shape_of(value)) > 1:
        return False
    element = element_of(value)
    signed = isinstance(element, ir.IntegerType) and not element.is_unsigned
    return signed and value.type.has_static_shape and _count_of(value) <= _FEW


def _count_of(value: Any) -> int:
    shape = shape_of(value)
    return shape[0] if shape else 1


def _constant(number: int) -> Any:
    kind = ir.IndexType.get()
    return arith.ConstantOp(kind, ir.IntegerAttr.get(kind, number)).result


def _listed(op: Any, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))

