# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From digits to nests: which digits make one loop, and tensors that something else needs.

A nest can read a tensor at a loop, a loop floordiv a constant, or a constant. Digits that form
one dimension of some tensor in memory must therefore be one loop, unless another tensor keeps
them apart: then the first one is expanded (`tensor.expand_shape`, which moves no data).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Values, build_map, build_reduce, tensor_type
from neptune_mlir.dialects.program import cast
from neptune_mlir.dialects.scalars import mlir_type
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.linalg.raise_again import Again, Group, Made, digits_of
from neptune_mlir.transforms.linalg.raise_sizes import FunctionSizes, Size
from neptune_mlir.transforms.linalg.raise_views import (
    Access,
    Digits,
    Dims,
    Fixed,
    Looked,
    NotRaised,
    Part,
    View,
    accesses,
    read,
    with_looked,
)


class NestBuilder:
    """Emits nests and materialised tensors at the current insertion point."""

    def __init__(self, values: Values, sizes: FunctionSizes, digits: Digits):
        self.values = values
        self.sizes = sizes
        self.digits = digits
        self._size_values: dict[Size, Any] = {}
        self._expanded: dict[tuple[str, tuple[tuple[Size, ...], ...]], Any] = {}
        self.again = Again(self)

    # ---- sizes -----------------------------------------------------------------------------

    def size_value(self, size: Size) -> Any:
        size = self.sizes.resolve(size)
        if size not in self._size_values:
            self._size_values[size] = self.sizes.emit(size)
        return self._size_values[size]

    def size_term(self, size: Size) -> Term:
        size = self.sizes.resolve(size)
        if size.static is not None:
            return T.const(size.factor, "index")
        return T.sym(self.values.key(self.size_value(size)), "index")

    def shape(self, sizes: Sequence[Size]) -> tuple[list[int], list[Any]]:
        """Static extents (DYNAMIC where unknown) and the values of the unknown ones."""
        resolved = [self.sizes.resolve(s) for s in sizes]
        extents = [DYNAMIC if s.static is None else s.static for s in resolved]
        return extents, [self.size_value(s) for s in resolved if s.static is None]

    # ---- nests -----------------------------------------------------------------------------

    def build(
        self,
        loops: Sequence[int],
        body: Term,
        result: Sequence[int],
        combiner: str | None = None,
        *,
        together: Dims | None = None,
        join: bool = False,
    ) -> Access:
        """Emit a nest of `body` over the digits `loops`; `result` are those of its result.

        Args:
            combiner: reduces the loops that are not in `result`.
            together: only neighbours in one of these dimensions, in their order there, may become
                one loop.
            join: they shall, where no access and no position in the body speaks against it.
        Returns: how the digits of `result` select an element of the new tensor.
        Raises NotRaised where an access cannot be expressed.
        """
        given = body
        wished: set[tuple[int, int]] = set()
        if join:
            placed = {leaf.attr for leaf in T.leaves(body, "index")}
            pairs = [p for dim in (together or ()) for p in itertools.pairwise(dim)]
            wished = {pair for pair in pairs if not placed & set(pair)}
        body, groups = self._form_loops(loops, body, set(result), together, wished)
        loop_of = {digit: k for k, group in enumerate(groups) for digit in group}
        kept: list[Group] = []
        for digit in result:
            if groups[loop_of[digit]] not in kept:
                kept.append(groups[loop_of[digit]])
        domain, extents = self.shape([self.digits.total(group) for group in groups])
        axes = [groups.index(group) for group in kept]
        term = self._over_loops(body, groups, loop_of)
        if 0 in (domain[k] for k in axes):  # nothing to compute
            kind = tensor_type(domain, axes, term.dtype)
            unknown = [k for k, size in enumerate(domain) if size == DYNAMIC]
            sizes = [e for k, e in zip(unknown, extents, strict=True) if k in axes]
            empty = ir.Operation.create("tensor.empty", [kind], sizes)
            return Access(self.values.key(empty.results[0]), tuple(kept))
        if combiner is None:
            tensor = build_map(self.values, term, domain, extents, result_axes=axes)
        else:
            tensor = build_reduce(self.values, combiner, term, domain, extents, axes)
        key = self.values.key(tensor)
        self.again.made[key] = Made(tuple(loops), given, combiner, tuple(kept), body.dtype)
        return Access(key, tuple(kept))

    def _form_loops(
        self,
        loops: Sequence[int],
        body: Term,
        parallel: set[int],
        together: Dims | None,
        wished: set[tuple[int, int]],
    ) -> tuple[Term, list[Group]]:
        place = {digit: k for k, digit in enumerate(loops)}
        placed = {d for dim in (together or ()) for d in dim}
        neighbours = {pair for dim in (together or ()) for pair in itertools.pairwise(dim)}

        def may_join(a: Part, b: Part) -> bool:
            if not (isinstance(a, int) and isinstance(b, int)):
                return False
            return (
                place[b] == place[a] + 1
                and (a in parallel) == (b in parallel)
                and ((a, b) in neighbours or not placed & {a, b})
            )

        apart: set[Access] = set()  # these are expanded in memory instead
        while True:
            found = dict.fromkeys(accesses(body))
            joined: set[tuple[int, int]] = set()
            for access in found:
                access.check_distinct()
                for inner in with_looked(access):
                    for parts in inner.dims:
                        pairs = list(itertools.pairwise(parts))
                        if all(may_join(a, b) for a, b in pairs):
                            joined.update(pairs)  # type: ignore[arg-type]
                        elif inner is access:
                            apart.add(access)
                        else:
                            raise NotRaised("it looks positions up in a reshaped tensor")
            groups = self._groups(loops, joined | wished)
            group_of = {digit: group for group in groups for digit in group}
            refused: set[tuple[int, int]] = set()
            for access in found:
                for parts in access.dims:
                    if parts and not self._fits(parts, group_of):
                        wanted = {d for p in parts if isinstance(p, int) for d in group_of[p]}
                        refused |= {pair for pair in wished - joined if wanted & set(pair)}
                        # Whoever asked for these loops to be one is expanded instead.
                        apart |= {a for a in found if self._joins(a, wanted)}
            if refused:
                wished = wished - refused
                apart = set()
                continue
            if not apart:
                return body, groups
            table = {read(a, t.dtype): self._expand(a, t.dtype)
                     for t in T.leaves(body, "read") if (a := t.attr) in apart}  # fmt: skip
            body = T.substitute(body, table)
            apart = set()

    @staticmethod
    def _groups(loops: Sequence[int], joined: set[tuple[int, int]]) -> list[Group]:
        groups: list[Group] = []
        for digit in loops:
            if groups and (groups[-1][-1], digit) in joined:
                groups[-1] += (digit,)
            else:
                groups.append((digit,))
        return groups

    def _fits(self, parts: Sequence[Part], group_of: dict[int, Group]) -> bool:
        """Is this dimension a loop, a loop floordiv a constant, or a constant?"""
        first = parts[0]
        if isinstance(first, Looked):
            inner = first.access.dims
            if not all(self._fits(p, group_of) for p in inner if p):
                raise NotRaised("it looks positions up in a reshaped tensor")
            return len(parts) == 1
        if isinstance(first, Fixed):
            return len(parts) == 1
        group = group_of[first]
        rest = self.digits.total(group[len(parts) :])
        return tuple(parts) == group[: len(parts)] and rest.static is not None

    @staticmethod
    def _joins(access: Access, digits: set[int]) -> bool:
        return any(len(parts) > 1 and digits & set(parts) for parts in access.dims)

    def _over_loops(self, body: Term, groups: list[Group], loop_of: dict[int, int]) -> Term:
        """Digits become loops; a digit inside a loop is `loop floordiv rest rem extent`."""

        def position(parts: Sequence[Part]) -> Term:
            if not parts:
                return T.const(0, "index")
            if isinstance(parts[0], Fixed):
                return T.const(parts[0].value, "index")
            if isinstance(parts[0], Looked):
                inner, dtype = parts[0].access, parts[0].dtype
                found = T.read(inner.key, *map(position, inner.dims), dtype=dtype)
                return T.make("cast", found, dtype="index")
            group = groups[loop_of[parts[0]]]
            rest = self.digits.total(group[len(parts) :])
            loop = T.index(loop_of[parts[0]])
            return loop if rest == Size(1) else T.make("floordiv", loop, self.size_term(rest))

        def rule(node: Term) -> Term | None:
            if node.op == "index":
                group = groups[loop_of[node.attr]]
                at = group.index(node.attr)
                value = position(group[: at + 1])
                if at == 0:
                    return value
                return T.make("rem", value, self.size_term(self.digits.total((node.attr,))))
            if node.op == "read":
                return T.read(
                    node.attr.key, *(position(parts) for parts in node.attr.dims), dtype=node.dtype
                )
            return None

        return T.rewrite(body, rule)

    def _expand(self, access: Access, dtype: str) -> Term:
        """The same element, read from the tensor with one dimension per part."""
        flat = [p for parts in access.dims for p in parts if isinstance(p, int)]
        split = tuple((p,) for parts in access.dims if len(parts) > 1 for p in parts)
        remade = self.again.make(access, flat, split)  # type: ignore[arg-type]
        if remade is not None:
            return read(remade, dtype)
        factors = tuple(tuple(self.digits.total((p,)) for p in parts) for parts in access.dims)
        if (access.key, factors) not in self._expanded:
            self._expanded[access.key, factors] = self.values.key(
                self.reshape(self.values[access.key], factors, "expand_shape")
            )
        dims: list[Any] = []
        for parts in access.dims:
            dims.extend([(p,) for p in parts] or [()])
        return read(Access(self._expanded[access.key, factors], tuple(dims)), dtype)

    def reshape(self, tensor: Any, factors: Sequence[Sequence[Size]], kind: str) -> Any:
        """Expand each dimension into its factors, or collapse the factors into dimensions."""
        from neptune_mlir.ir.bindings import tensor as tensor_dialect

        element = ir.RankedTensorType(tensor.type).element_type
        long = [f for group in factors for f in (group or [Size(1)])]
        extents, values = self.shape(long)
        short, groups, at = [], [], 0
        for group in factors:
            width = max(len(group), 1)
            part = extents[at : at + width]
            static = 1
            for extent in part:
                static = DYNAMIC if DYNAMIC in (static, extent) else static * extent
            short.append(static)
            groups.append(list(range(at, at + width)))
            at += width
        long_type = ir.RankedTensorType.get(extents, element)
        short_type = ir.RankedTensorType.get(short, element)
        if kind == "expand_shape":
            tensor = cast(tensor, short_type)
            if len(long) == len(short):
                return cast(tensor, long_type)
            return tensor_dialect.ExpandShapeOp(long_type, tensor, groups, values, extents).result
        tensor = cast(tensor, long_type)
        if len(long) == len(short):
            return tensor
        return tensor_dialect.CollapseShapeOp(short_type, tensor, groups).result

    # ---- tensors for whoever is not a nest ---------------------------------------------------

    def materialise(self, view: View, kind: Any) -> Any:
        """A tensor of type `kind` that holds `view`."""
        dims = tuple(self.digits.pieces(dim) for dim in view.dims)
        if view.body is None:
            extents, values = self.shape([self.digits.total(dim) for dim in dims])
            held = ir.RankedTensorType.get(extents, mlir_type(view.dtype))
            empty = ir.Operation.create("tensor.empty", [held], values).results[0]
            return cast(empty, kind)
        body = self.digits.rename(view.body, {}, self.size_term)
        access = body.attr if body.op == "read" else None
        if access is not None and self._is_reshape(access, dims):
            return cast(self.collapse(access, dims, view.dtype), kind)
        # extents of 1 are loops here, since the type has them
        whole = tuple(dim or (self.digits.unit(),) for dim in dims)
        flat = self._flat(whole)
        again = None
        if access is not None and self._may_be_made_again(access, dims):
            again = self.again.make(access, flat, whole)
        access = again or self.build(flat, body, flat, together=whole, join=True)
        return cast(self.collapse(access, whole, view.dtype), kind)

    def _may_be_made_again(self, access: Access, dims: Dims) -> bool:
        """Is all of a tensor wanted in this shape, and may the nest that made it have this one?

        A map may have loops of extent 1. In a reduction they would be axes that other reductions
        of the same elements lack, and neither could share what both accumulate.
        """
        made = self.again.made.get(access.key)
        reduces = made is not None and made.combiner is not None
        if reduces and not all(dims):
            return False
        return sorted(digits_of(access)) == sorted(self._flat(dims))

    @staticmethod
    def _flat(dims: Dims) -> list[int]:
        return [d for dim in dims for d in dim]

    def _is_reshape(self, access: Access, dims: Dims) -> bool:
        """Does the tensor in memory hold the digits of `dims` in their order, without units?"""
        return all(dims) and all(access.dims) and digits_of(access) == self._flat(dims)

    def collapse(self, access: Access, dims: Dims, dtype: str) -> Any:
        """The tensor of `access` with its dimensions regrouped to `dims`."""
        if tuple(access.dims) == tuple(dims):
            return self.values[access.key]
        starts = {dim[0] for dim in dims}
        if any(part in starts for parts in access.dims for part in parts[1:]):
            access = self._expand(access, dtype).attr
        held = list(access.dims)
        factors = []
        for dim in dims:
            group: list[Size] = []
            count = 0
            while count < len(dim):
                parts = held.pop(0)
                assert parts == dim[count : count + len(parts)], "digits out of order"
                group.append(self.digits.total(parts))
                count += len(parts)
            factors.append(group)
        return self.reshape(self.values[access.key], factors, "collapse_shape")
