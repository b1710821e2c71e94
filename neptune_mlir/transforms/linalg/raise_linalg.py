# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`raise-linalg`: linalg and reshapes on tensors become `neptune.map` and `neptune.reduce` nests.

One sweep over each function. Every tensor gets a `View` (raise_views.py): reshapes, transposes,
broadcasts, fills and index arithmetic only change views; a linalg op that computes on elements
emits one nest per result that is used. What cannot be raised stays, with a remark, and reads
tensors that are materialised for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Values
from neptune_mlir.dialects.program import cast, functions
from neptune_mlir.dialects.scalars import NoTermForm
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.ir.bindings import tensor as tensor_dialect
from neptune_mlir.transforms.linalg.raise_bodies import scalar_term
from neptune_mlir.transforms.linalg.raise_nests import NestBuilder
from neptune_mlir.transforms.linalg.raise_sizes import FunctionSizes, Size
from neptune_mlir.transforms.linalg.raise_views import (
    Access,
    Digits,
    Fixed,
    NotRaised,
    Part,
    View,
    read,
)
from neptune_mlir.transforms.registry import register, remark

MAX_PARTS = 4  # of a concatenation that becomes a choice: every part is read for every element


@register(
    "raise-linalg", "turn linalg ops and reshapes on tensors into neptune nests",
    after=("apply-patterns", "convert-elementwise-to-linalg", "split-concats"),
)  # fmt: skip
def raise_linalg(module: Any) -> None:
    for function in functions(module):
        block = function.regions[0].blocks[0]
        erase_unused(block)
        Raiser(block).run()
        erase_unused(block)


def erase_unused(block: Any) -> None:
    """Erase value computations that nobody uses (one backward sweep)."""
    pure = ("arith", "math", "affine", "tensor", "linalg", "neptune")
    for op in reversed(list(block.operations)):
        operation = op.operation
        if operation.name.partition(".")[0] in pure and operation.results:
            if all(next(iter(r.uses), None) is None for r in operation.results):
                operation.erase()


def is_tensor(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


class Raiser:
    """Raises one block. `views` says what every tensor is; `plain` ones lie in memory."""

    def __init__(self, block: Any):
        self.block = block
        self.values = Values()
        self.sizes = FunctionSizes(self._dimension)
        self.digits = Digits(self.sizes)
        self.nests = NestBuilder(self.values, self.sizes, self.digits)
        self.views: dict[Any, View] = {}
        self.plain: set[Any] = set()

    def run(self) -> None:
        start = self.block.operations[0]
        with ir.InsertionPoint(start), start.location:
            for argument in self.block.arguments:
                self.values.key(argument)
                if is_tensor(argument):
                    self._add_plain(argument)
        for op in list(self.block.operations):
            with ir.InsertionPoint(op), op.location:
                self._visit(op.operation)
        self.nests.again.settle()

    def _visit(self, op: Any) -> None:
        rule = _RULES.get(op.name)
        if rule is None and op.name.startswith("linalg."):
            rule = Raiser._structured
        if rule is not None:
            try:
                location = op.location  # a rule may erase the op
                done = rule(self, op)
                self._report_assumptions(location)
                if done:
                    return
            except (NotRaised, NoTermForm) as reason:
                self.report(op, reason)
        self._leave(op)

    def report(self, op: Any, reason: NotRaised | NoTermForm) -> None:
        remark(op.location, f"'{op.name}' is not raised: {reason.message}")

    def _report_assumptions(self, location: Any) -> None:
        for pair in self.sizes.assumed:
            x, y = (self._describe(value) for value in pair)
            remark(location, f"takes {x} and {y} to be equal")
        self.sizes.assumed.clear()

    def _describe(self, scalar: Any) -> str:
        owner = scalar.owner
        if not isinstance(owner, ir.Block) and owner.name == "tensor.dim":
            tensor, dim = owner.operands
            return f"dimension {self.sizes.of(dim).factor} of {self.values.key(tensor)}"
        return self.values.key(scalar)

    def _leave(self, op: Any) -> None:
        """This op stays: it reads tensors from memory, and leaves its results there."""
        self._materialise_operands(op)
        self._add_results(op)

    def _materialise_operands(self, op: Any) -> None:
        for k, value in enumerate(op.operands):
            if value in self.views and value not in self.plain:
                op.operands[k] = self.nests.materialise(self.views[value], value.type)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    self._materialise_operands(inner.operation)

    def _add_results(self, op: Any) -> None:
        following = self._after(op)
        for result in op.results:
            if is_tensor(result) and result not in self.views:
                if following is None:
                    continue
                with ir.InsertionPoint(following), op.location:
                    self._add_plain(result)

    def _after(self, op: Any) -> Any:
        found = False
        for other in self.block.operations:
            if found:
                return other
            found = other.operation == op
        return None

    # ---- views of tensors ------------------------------------------------------------------

    def _add_plain(self, tensor: Any) -> None:
        self.views[tensor] = self.in_memory(tensor)
        self.plain.add(tensor)

    def in_memory(self, tensor: Any) -> View:
        kind = ir.RankedTensorType(tensor.type)
        index = ir.IndexType.get()
        sizes = []
        for k, extent in enumerate(kind.shape):
            if extent != DYNAMIC:
                sizes.append(Size(extent))
                continue
            position = arith.ConstantOp(index, ir.IntegerAttr.get(index, k)).result
            dim = tensor_dialect.DimOp(tensor, position).result
            sizes.append(self.sizes.symbol(dim, dim=k))
            self.sizes.set(dim, sizes[-1])
        dims = self.digits.dims(sizes)
        dtype = str(kind.element_type)
        return View(dims, read(Access(self.values.key(tensor), dims), dtype), dtype)

    def _dimension(self, tensor: Any, k: int) -> Size:
        extent = ir.RankedTensorType(tensor.type).shape[k]
        if extent != DYNAMIC:
            return Size(extent)
        return self.digits.total(self.digits.pieces(self.views[tensor].dims[k]))

    def view_of(self, tensor: Any) -> View:
        """The view of a tensor, over digits of its own."""
        return self.digits.fresh(self.views[tensor], self.nests.size_term)

    def capture(self, value: Any) -> Term:
        """A scalar defined outside: the element of a tensor where it was extracted, else itself."""
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.name == "tensor.extract":
            tensor, *positions = owner.operands
            at = [self.sizes.of(p).static for p in positions]
            if tensor in self.views and None not in at:
                view = self.view_of(tensor)
                if view.body is not None and all(len(dim) <= 1 for dim in view.dims):
                    table: dict[int, tuple[Part, ...]] = {}
                    for dim, k in zip(view.dims, at, strict=True):
                        for digit in dim:
                            extent = self.digits.extent(digit).static
                            table[digit] = (Fixed(k, 0 if extent is None else extent),)
                    return self.digits.rename(view.body, table, self.nests.size_term)
        return T.sym(self.values.key(value), str(value.type))

    # ---- ops that only move elements ---------------------------------------------------------

    def _empty(self, op: Any) -> bool:
        kind = ir.RankedTensorType(op.results[0].type)
        unknown = iter(op.operands)
        sizes = [self.sizes.of(next(unknown)) if e == DYNAMIC else Size(e) for e in kind.shape]
        self.views[op.results[0]] = View(self.digits.dims(sizes), None, str(kind.element_type))
        self.plain.add(op.results[0])
        return True

    def _constant(self, op: Any) -> bool:
        result, attr = op.results[0], op.attributes["value"]
        if not is_tensor(result):
            return True
        if not (isinstance(attr, ir.DenseElementsAttr) and attr.is_splat):
            return False
        kind = ir.RankedTensorType(result.type)
        dtype = str(kind.element_type)
        body = T.const(attr.get_splat_value().value, dtype)
        self.views[result] = View(self.digits.dims([Size(e) for e in kind.shape]), body, dtype)
        return True

    def _splat(self, op: Any) -> bool:
        scalar, *extents = op.operands
        kind = ir.RankedTensorType(op.results[0].type)
        unknown = iter(extents)
        sizes = [self.sizes.of(next(unknown)) if e == DYNAMIC else Size(e) for e in kind.shape]
        body = scalar_term(scalar, self.capture)
        self.views[op.results[0]] = View(self.digits.dims(sizes), body, str(kind.element_type))
        return True

    def _dim(self, op: Any) -> bool:
        tensor = op.operands[0]
        if tensor in self.views and tensor not in self.plain:
            size = self.sizes.of(op.results[0])
            value = self.nests.size_value(size)
            self.sizes.set(value, size)
            op.results[0].replace_all_uses_with(value)
        return True

    def _assert(self, op: Any) -> bool:
        if not self.sizes.assert_equal(op.operands[0]):
            return False
        op.erase()
        return True

    def _cast(self, op: Any) -> bool:
        if not is_tensor(op.results[0]) or op.operands[0] not in self.views:
            return False
        view = self.view_of(op.operands[0])
        for dim, extent in zip(
            view.dims, ir.RankedTensorType(op.results[0].type).shape, strict=True
        ):
            if extent != DYNAMIC:
                self.sizes.equate(self.digits.total(dim), Size(extent))
        self.views[op.results[0]] = view
        return True

    def _reshaped(self, op: Any, sizes: Sequence[Size]) -> bool:
        view = self.view_of(op.operands[0])
        dims = self.digits.regroup(view.dims, sizes)
        body = view.body
        if body is not None:
            body = self.digits.rename(body, {}, self.nests.size_term)
        self.views[op.results[0]] = View(dims, body, view.dtype)
        return True

    def _collapse_shape(self, op: Any) -> bool:
        view = self.view_of(op.operands[0])
        groups = [[k.value for k in group] for group in op.attributes["reassociation"]]
        sizes = [self.digits.total([d for k in group for d in view.dims[k]]) for group in groups]
        return self._reshaped(op, sizes)

    def _expand_shape(self, op: Any) -> bool:
        unknown = iter(list(op.operands)[1:])
        static = list(op.attributes["static_output_shape"])
        sizes = [self.sizes.of(next(unknown)) if e == DYNAMIC else Size(e) for e in static]
        return self._reshaped(op, sizes)

    def _reshape(self, op: Any) -> bool:
        shape = op.operands[1].owner
        kind = ir.RankedTensorType(op.results[0].type)
        if isinstance(shape, ir.Block) or shape.name != "tensor.from_elements":
            if DYNAMIC in kind.shape:
                raise NotRaised("its shape is not made by tensor.from_elements")
            sizes = [Size(e) for e in kind.shape]
        else:
            given = [self.sizes.of(v) for v in shape.operands]
            sizes = [g if e == DYNAMIC else Size(e) for e, g in zip(kind.shape, given, strict=True)]
        try:
            return self._reshaped(op, sizes)
        except NotRaised as reason:
            self.report(op, reason)
            self._through_one_dimension(op, sizes)
            return True

    def _through_one_dimension(self, op: Any, sizes: Sequence[Size]) -> None:
        """Reshape by a collapse to one dimension, which any shape can be expanded from.

        Unlike `tensor.reshape` these take no shape that lies in memory.
        """
        tensor, result = op.operands[0], op.results[0]
        view = self.views[tensor]
        if tensor not in self.plain:
            tensor = self.nests.materialise(view, tensor.type)
        held = [self.digits.total(self.digits.pieces(dim)) for dim in view.dims]
        flat = self.nests.reshape(tensor, [held], "collapse_shape")
        shaped = self.nests.reshape(flat, [sizes], "expand_shape")
        shaped = cast(shaped, result.type)
        result.replace_all_uses_with(shaped)
        self._add_plain(shaped)

    def _extract_slice(self, op: Any) -> bool:
        """A slice of extent 1, or one that is a digit of its dimension; others stay."""
        attributes = op.attributes
        static = [list(attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides")]
        if any(stride != 1 and size != 1 for size, stride in zip(*static[1:], strict=True)):
            raise NotRaised("it has a stride")
        rest = iter(list(op.operands)[1:])
        offsets, sizes = (
            [self.sizes.of(next(rest)) if e == DYNAMIC else Size(e) for e in values]
            for values in static[:2]
        )
        view = self.view_of(op.operands[0])
        if view.body is None:
            raise NotRaised("its operand is undefined")
        table: dict[int, tuple[Part, ...]] = {}
        dims = []
        for dim, offset, size in zip(view.dims, offsets, sizes, strict=True):
            dims.append(self._slice(dim, offset, size, table))
        body = self.digits.rename(view.body, table, self.nests.size_term)
        shape = ir.RankedTensorType(op.results[0].type).shape
        while len(shape) < len(dims):  # rank-reducing: which unit dimensions went does not matter
            k = next(
                k for k, size in enumerate(static[1])
                if size == 1 and (k >= len(shape) or shape[k] != 1)
            )  # fmt: skip
            del dims[k], static[1][k]
        self.views[op.results[0]] = View(
            tuple(self.digits.pieces(d) for d in dims), body, view.dtype
        )
        return True

    def _slice(
        self, dim: tuple[int, ...], offset: Size, size: Size, table: dict[int, tuple[Part, ...]]
    ) -> tuple[int, ...]:
        total = self.digits.total(dim)
        if self.sizes.same(total, size):
            return dim
        first, count = self.sizes.divide(offset, size), self.sizes.divide(total, size)
        if first is None or count is None or first.static is None or count.static is None:
            raise NotRaised("its part of the dimension does not start at a multiple of its extent")
        fixed, rest = self.digits.new(count), self.digits.new(size)
        self.digits.refine(dim, fixed + rest)
        pieces = self.digits.pieces(fixed)
        if len(pieces) != 1:
            raise NotRaised("its part of the dimension is not one digit")
        table[pieces[0]] = (Fixed(first.static, count.static),)
        return self.digits.pieces(rest)

    def _concat(self, op: Any) -> bool:
        """Parts of equal extent: a digit says which. Others stay."""
        joined, count = op.attributes["dim"].value, len(op.operands)
        views = [self.view_of(v) for v in op.operands]
        if count > MAX_PARTS or any(view.body is None for view in views):
            raise NotRaised(f"it joins more than {MAX_PARTS} parts, or an undefined one")
        sizes = [self.digits.total(view.dims[joined]) for view in views]
        if any(not self.sizes.same(size, sizes[0]) for size in sizes):
            raise NotRaised("its parts are not equally long")
        for view in views[1:]:
            for mine, first in zip(view.dims, views[0].dims, strict=True):
                self.digits.refine(first, mine)
        bodies = [self.digits.rename(v.body, {}, self.nests.size_term) for v in views]  # type: ignore[arg-type]
        which = self.digits.new(Size(count))
        body = bodies[-1]
        for k, part in reversed(list(enumerate(bodies[:-1]))):
            here = T.make("eq", T.index(which[0]), T.const(k, "index"))
            body = T.make("select", here, part, body)
        dims = [self.digits.pieces(dim) for dim in views[0].dims]
        dims[joined] = (*which, *dims[joined])
        self.views[op.results[0]] = View(tuple(dims), body, views[0].dtype)
        return True

    # ---- linalg --------------------------------------------------------------------------------

    def _structured(self, op: Any) -> bool:
        from neptune_mlir.transforms.linalg.raise_structured import raise_structured

        return raise_structured(self, op)

    def _softmax(self, op: Any) -> bool:
        """linalg.softmax as the four nests that it stands for."""
        view = self.view_of(op.operands[0])
        reduced = set(view.dims[op.attributes["dimension"].value])
        flat = [d for dim in view.dims for d in dim]
        kept = [d for d in flat if d not in reduced]
        if view.body is None or not reduced:
            raise NotRaised("it normalises one element")

        def nest(body: Term, result: list[int], combiner: str | None = None) -> Term:
            return read(self.nests.build(flat, body, result, combiner), view.dtype)

        largest = nest(view.body, kept, "max")
        weight = nest(T.make("exp", T.make("sub", view.body, largest)), flat)
        total = nest(weight, kept, "add")
        result = nest(T.make("div", weight, total), flat)
        self.views[op.results[0]] = View(view.dims, result, view.dtype)
        return True


_RULES: dict[str, Callable[[Raiser, Any], bool]] = {
    "tensor.empty": Raiser._empty,
    "arith.constant": Raiser._constant,
    "tensor.splat": Raiser._splat,
    "tensor.dim": Raiser._dim,
    "cf.assert": Raiser._assert,
    "tensor.cast": Raiser._cast,
    "tensor.collapse_shape": Raiser._collapse_shape,
    "tensor.expand_shape": Raiser._expand_shape,
    "tensor.reshape": Raiser._reshape,
    "tensor.extract_slice": Raiser._extract_slice,
    "tensor.concat": Raiser._concat,
    "linalg.softmax": Raiser._softmax,
}
