# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One linalg op (anything with indexing maps and a scalar region) as nests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.scalars import identity_value
from neptune_mlir.ir.bindings import ir, linalg
from neptune_mlir.transforms.linalg.raise_bodies import (
    Extract,
    operand,
    read_body,
    scalar_term,
    split_combiner,
)
from neptune_mlir.transforms.linalg.raise_sizes import Size
from neptune_mlir.transforms.linalg.raise_views import (
    Access,
    Dims,
    Fixed,
    Looked,
    NotRaised,
    Part,
    View,
    accesses,
    read,
)
from neptune_mlir.transforms.linalg.widen_sums import rounds, widened
from neptune_mlir.transforms.registry import remark

if TYPE_CHECKING:
    from neptune_mlir.transforms.linalg.raise_linalg import Raiser

GATHERED = "gathered"
_REPEATABLE = ("max", "min", "and", "or")  # a reduction of reductions is exactly one over all loops


def raise_structured(raiser: Raiser, op: Any) -> bool:
    """Raise `op`; False where only some of its results could be raised.

    Raises NotRaised or NoTermForm where none could.
    """
    return _Structured(raiser, op).run()


def _loop_floordiv(position: Term) -> tuple[int, int] | None:
    """(loop, divisor) where the position is a loop, maybe divided by a constant."""
    divisor = 1
    while position.op in ("cast", "floordiv"):
        if position.op == "floordiv":
            if not position.args[1].is_const or position.args[1].value < 1:
                return None
            divisor *= int(position.args[1].value)
        position = position.args[0]
    return (position.attr, divisor) if position.op == "index" else None


class _Structured:
    def __init__(self, raiser: Raiser, op: Any):
        self.raiser, self.op = raiser, op
        self.digits, self.nests, self.sizes = raiser.digits, raiser.nests, raiser.sizes
        maps = linalg.get_indexing_maps(op)
        if maps is None or not op.results:
            raise NotRaised("it has no indexing maps and tensor results")
        self.maps = [list(getattr(m, "value", m).results) for m in maps]
        self.loops: dict[int, tuple[int, ...]] = {}
        self.rank = getattr(maps[0], "value", maps[0]).n_dims
        self.inputs = len(op.operands) - len(op.results)  # on tensors, one result per init
        self.body = read_body(
            op.regions[0].blocks[0], self.sizes, raiser.capture, self.nests.size_term
        )
        self.table: dict[int, tuple[Part, ...]] = {}  # digits that are fixed

    def run(self) -> bool:
        operands = list(self.op.operands)
        views: dict[int, View] = {}
        for k, value in enumerate(operands):
            if value in self.raiser.views:
                views[k] = self._bind(value, self.maps[k])
        extracts = [self._bind_extract(extract) for extract in self.body.extracts]
        if len(self.loops) != self.rank:
            raise NotRaised("the extent of a loop is not that of a tensor dimension")
        leaves: dict[Term, Term] = {}
        for k, value in enumerate(operands):
            argument = self._argument(k)
            if k not in views:
                leaves[argument] = scalar_term(value, self.raiser.capture)
            elif views[k].body is not None:
                leaves[argument] = self._renamed(views[k].body)
            elif k < self.inputs:  # nobody wrote it, so any numbers are right
                leaves[argument] = T.const(0, argument.dtype)
        for extract, bound in zip(self.body.extracts, extracts, strict=True):
            leaves[extract.leaf] = self._extracted(extract, bound, leaves)
        complete = True
        for k, result in enumerate(self.op.results):
            if next(iter(result.uses), None) is not None:
                try:
                    self.raiser.views[result] = self._result(k, leaves, views)
                except NotRaised as reason:
                    if len(self.op.results) == 1:
                        raise
                    self.raiser.report(self.op, reason)
                    complete = False
        return complete

    def _argument(self, k: int) -> Term:
        arguments = self.op.regions[0].blocks[0].arguments
        return operand(k, str(arguments[k].type) if k < len(arguments) else "none")

    # ---- loops ---------------------------------------------------------------------------------

    def _bind(self, value: Any, results: list[Any]) -> View:
        """The view of an operand, its dimensions cut like the loops that index them."""
        view = self.raiser.view_of(value)
        for attempt in (view, None):
            view = attempt or self._from_memory(value)
            try:
                for dim, expr in zip(view.dims, results, strict=True):
                    self._bind_dim(dim, expr)
                return view
            except NotRaised:
                if attempt is None or value in self.raiser.plain:
                    raise
        raise AssertionError

    def _bind_dim(self, dim: tuple[int, ...], expr: Any) -> None:
        if isinstance(expr, ir.AffineDimExpr):
            self._bind_loop(dim, ir.AffineDimExpr(expr).position)
        elif isinstance(expr, ir.AffineConstantExpr):
            self._fix(dim, ir.AffineConstantExpr(expr).value)
        elif isinstance(expr, ir.AffineFloorDivExpr):
            binary = ir.AffineBinaryExpr(expr)
            if not isinstance(binary.rhs, ir.AffineConstantExpr):
                raise NotRaised(f"index '{expr}' is divided by a run-time value")
            shared = self.digits.new(Size(ir.AffineConstantExpr(binary.rhs).value))
            self._bind_dim(dim + shared, binary.lhs)
        else:
            raise NotRaised(
                f"index '{expr}' is not a loop, a loop floordiv a constant, or a constant"
            )

    def _bind_loop(self, dim: tuple[int, ...], loop: int) -> None:
        if loop in self.loops:
            self.digits.refine(self.loops[loop], dim)
        else:
            self.loops[loop] = dim

    def _fix(self, dim: tuple[int, ...], value: int) -> None:
        for digit in reversed(self.digits.pieces(dim)):
            extent = self.digits.extent(digit).static
            if extent is None:
                if value:
                    raise NotRaised("a constant position in a dimension of unknown extent")
                raise NotRaised("position 0 of a dimension of unknown extent")
            self.table[digit] = (Fixed(value % extent, extent),)
            value //= extent

    def _from_memory(self, value: Any) -> View:
        """The operand materialised: every dimension one digit."""
        tensor = self.nests.materialise(self.raiser.views[value], value.type)
        return self.raiser.in_memory(tensor)

    def _renamed(self, body: Term) -> Term:
        return self.digits.rename(body, self.table, self.nests.size_term)

    def _pieces(self, loop: int) -> tuple[int, ...]:
        return self.digits.pieces(self.loops[loop])

    def _at_loops(self, body: Term, leaves: dict[Term, Term]) -> Term:
        """A region's term with operands and loop positions filled in."""

        def rule(node: Term) -> Term | None:
            if node.op == "index":
                return self.digits.number(self._pieces(node.attr), self.nests.size_term)
            return leaves.get(node)

        return T.rewrite(body, rule)

    # ---- gathers -------------------------------------------------------------------------------

    def _bind_extract(self, extract: Extract) -> tuple[View, list[Any]]:
        if extract.tensor not in self.raiser.views:
            raise NotRaised("it extracts from a tensor made inside a region")
        view = self.raiser.view_of(extract.tensor)
        if view.body is None:
            raise NotRaised("it extracts from an undefined tensor")
        roles: list[Any] = []
        for dim, idx, guarded in zip(view.dims, extract.idx, extract.guarded, strict=True):
            position = idx
            while position.op == "cast":
                position = position.args[0]
            if not dim or position.is_const:
                self._fix(dim, int(position.value) if dim else 0)
                roles.append(None)
            elif (found := _loop_floordiv(position)) is not None:
                loop_number, divisor = found
                loop = self.loops.get(loop_number, ())
                dim += self.digits.new(Size(divisor))
                extents = self.digits.total(loop), self.digits.total(dim)
                if not self.sizes.same(*extents):
                    self._take_as_equal(extents, guarded)
                self._bind_loop(dim, loop_number)
                roles.append(None)
            else:
                roles.append((GATHERED, dim, idx))
        return view, roles

    def _take_as_equal(self, extents: tuple[Size, Size], guarded: bool) -> None:
        """The extents of a loop and of a dimension that it extracts from, where calls check them.

        Raises NotRaised where they may differ.
        """
        unknown = guarded or all(extent.symbols for extent in extents)
        if not (unknown and all(map(self.sizes.of_arguments, extents))):
            raise NotRaised("it extracts from a part of a tensor, or may")
        if not guarded:
            remark(self.op.location, "takes a gathered tensor to be as long as the result")

    def _extracted(
        self, extract: Extract, bound: tuple[View, list[Any]], leaves: dict[Term, Term]
    ) -> Term:
        view, roles = bound
        gathered = [role for role in roles if role is not None]
        assert view.body is not None
        body = self._renamed(view.body)
        if not gathered:
            return body
        if len(gathered) > 1:
            raise NotRaised("it gathers along several dimensions")
        _, dim, idx = gathered[0]
        digits, position = self.digits.pieces(dim), self._at_loops(idx, leaves)
        body = self._look_through(body, set(digits))
        loops = [d for k in range(self.rank) for d in self._pieces(k)]
        if self._is_summed_once(body, loops, digits):
            return self._gather(body, loops, digits, position)
        return self._looked_up(body, digits, position)

    def _is_summed_once(self, body: Term, loops: list[int], digits: tuple[int, ...]) -> bool:
        """Whether a sum over the gathered dimension reads no element repeatedly."""
        along = [a.digits() for a in accesses(body) if a.digits() & set(digits)]
        return all(found == {*loops, *digits} for found in along)

    def _looked_up(self, body: Term, digits: tuple[int, ...], position: Term) -> Term:
        """`body` where the position along `digits` is read from a tensor: rows of tensors."""
        while position.op == "cast" and not T.is_float(position.args[0].dtype):
            position = position.args[0]
        varying = {leaf.attr for leaf in T.leaves(position, "index")}
        varying = varying.union(*(access.digits() for access in accesses(position)))
        if position.op != "read":
            if position.dtype == "index":  # which no tensor in memory holds
                position = T.make("cast", position, dtype="i64")
            along = sorted(varying)
            position = read(self.nests.build(along, position, along), position.dtype)
        total = self.digits.total(digits)
        looked = Looked(position.attr, position.dtype, total)

        def rule(node: Term) -> Term | None:
            if node.op == "index" and node.attr in digits:
                raise NotRaised("what it gathers depends on the position")
            if node.op != "read" or not node.attr.digits() & set(digits):
                return None
            if any(p.access.digits() & set(digits) for p in node.attr.looked()):
                raise NotRaised("it gathers what is gathered along that dimension")
            dims = tuple((looked,) if dim == digits else dim for dim in node.attr.dims)
            if any(p in digits for dim in dims for p in dim):
                raise NotRaised("it gathers from a reshaped tensor")
            if not any(isinstance(p, int) and p not in varying for p in dims[-1]):
                raise NotRaised("it gathers elements, not rows")
            return read(Access(node.attr.key, dims), node.dtype)

        return T.rewrite(body, rule)

    def _gather(
        self, body: Term, loops: list[int], digits: tuple[int, ...], position: Term
    ) -> Term:
        """`body`, which reads tensors in memory, at `position` along `digits`.

        Each read becomes a sum over the dimension in which one element is not zero, and that sum
        can run in the same pass as the other reductions over the dimension.
        """
        along = self.digits.number(digits, self.nests.size_term)
        position = T.make("cast", position, dtype="index")
        table: dict[Term, Term] = {}
        for leaf in T.leaves(body, "read"):
            if not leaf.attr.digits() & set(digits):
                continue
            hit = T.make("eq", along, position)
            term = T.make("select", hit, leaf, T.const(0, leaf.dtype))
            access = self.nests.build([*loops, *digits], term, loops, "add")
            table[leaf] = read(access, leaf.dtype)

        def rule(node: Term) -> Term | None:
            if node.op == "index" and node.attr in digits:
                raise NotRaised("what it gathers depends on the position")
            return table.get(node)

        return T.rewrite(body, rule)

    def _look_through(self, body: Term, digits: set[int]) -> Term:
        """Reads of maps along `digits` replaced by what the maps compute."""

        def rule(node: Term) -> Term | None:
            if node.op != "read" or not node.attr.digits() & digits:
                return None
            made = self.nests.again.made.get(node.attr.key)
            if made is None or made.combiner is not None:
                return None
            table: dict[int, tuple[Part, ...]] = {}
            for group, parts in zip(made.kept, node.attr.dims, strict=True):
                if len(group) != len(parts):
                    raise NotRaised("it gathers from a reshaped tensor")
                table.update({g: (p,) for g, p in zip(group, parts, strict=True)})
            return self._look_through(
                self.digits.rename(made.body, table, self.nests.size_term), digits
            )

        return T.rewrite(body, rule)

    # ---- results -------------------------------------------------------------------------------

    def _result(self, k: int, leaves: dict[Term, Term], views: dict[int, View]) -> View:
        results = self.maps[self.inputs + k]
        dims: Dims = tuple(
            self._pieces(ir.AffineDimExpr(e).position) if isinstance(e, ir.AffineDimExpr) else ()
            for e in results
        )
        loops = [d for loop in range(self.rank) for d in self._pieces(loop)]
        flat = [d for dim in dims for d in dim]
        accumulator = self._argument(self.inputs + k)
        others = [self._argument(self.inputs + j) for j in range(len(self.op.results))]
        term = self.body.yields[k]
        if self._reduced(k):
            split = split_combiner(term, accumulator)
            if split is None or any(n in others for n in T.walk(split[1])):
                raise NotRaised("its region is not a known combiner of the result and a term")
            combiner, rest = split
            if accumulator not in leaves:
                raise NotRaised("it accumulates into an undefined tensor")
            init, body = leaves[accumulator], self._at_loops(rest, leaves)
            if init.is_const and init.value == identity_value(combiner, init.dtype):
                return View(dims, self._nest(loops, body, flat, combiner), body.dtype)
            if rounds(combiner, body.dtype):  # once, with what it starts from
                init, body = widened(init), widened(body)
            body = T.make(combiner, init, self._nest(loops, body, flat, combiner))
            body = T.make("cast", body, dtype=accumulator.dtype)
        else:
            seen = [j for j, other in enumerate(others) if other in set(T.walk(term))]
            if any(others[j] not in leaves for j in seen):
                raise NotRaised("it reads an undefined tensor")
            if any(self._reduced(j) for j in seen):
                raise NotRaised("it reads what another result is at each step")
            body = self._at_loops(term, leaves)
        # What is looked up is a map, which `inline-maps` puts where it costs nothing.
        if not accesses(body) or (body.op == "read" and not body.attr.looked()):
            for access in accesses(body):
                access.check_distinct()  # whoever reads the view could not be raised
            return View(dims, body, body.dtype)
        return View(dims, self._nest(flat, body, flat), body.dtype)

    def _reduced(self, k: int) -> list[int]:
        """The loops that result k is reduced over."""
        results = self.maps[self.inputs + k]
        kept = [ir.AffineDimExpr(e).position for e in results if isinstance(e, ir.AffineDimExpr)]
        return [d for loop in range(self.rank) if loop not in kept for d in self._pieces(loop)]

    def _nest(
        self, loops: list[int], body: Term, result: list[int], combiner: str | None = None
    ) -> Term:
        """Emit a nest and read it; what the body does not vary along is left to the view."""
        while combiner in _REPEATABLE and (inner := self._inner(body, combiner)) is not None:
            body, more = inner
            loops = [*loops, *more]
        used = {leaf.attr for leaf in T.leaves(body, "index")}
        used = used.union(*(access.digits() for access in accesses(body)))
        used |= set(loops) - set(result)
        access = self.nests.build(
            [d for d in loops if d in used], body, [d for d in result if d in used], combiner
        )
        return read(access, body.dtype)

    def _inner(self, body: Term, combiner: str) -> tuple[Term, list[int]] | None:
        """What a reduction read by `body` reduces with this combiner, and its loops, if it is one.

        Front ends write an extremum over several dimensions as one dimension after the other.
        """
        made = self.nests.again.made.get(body.attr.key) if body.op == "read" else None
        if made is None or made.combiner != combiner:
            return None
        table: dict[int, tuple[Part, ...]] = {}
        for group, parts in zip(made.kept, body.attr.dims, strict=True):
            pieces = self.digits.pieces(group)
            if len(pieces) != len(parts):
                return None
            table.update({g: (p,) for g, p in zip(pieces, parts, strict=True)})
        more: list[int] = []
        for digit in self.digits.pieces(made.loops):
            if digit not in table:
                table[digit] = self.digits.new(self.digits.extent(digit))
                more.extend(table[digit])  # type: ignore[arg-type]
        return self.digits.rename(made.body, table, self.nests.size_term), more
