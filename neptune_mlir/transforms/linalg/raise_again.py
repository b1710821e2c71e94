# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests made once more in another shape, where a reshape would stand between two of them.

Scores are computed with query heads as one dimension `h`, and read with `(kv g)`, the key heads
apart. An `expand_shape` between the two nests would keep them from sharing a loop nest. So the
first is built again with the dimensions that its reader needs, and dies.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.program import cast
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.linalg.raise_views import Access, Dims, NotRaised

if TYPE_CHECKING:
    from neptune_mlir.transforms.linalg.raise_nests import NestBuilder

Group = tuple[int, ...]  # digits that form one loop


@dataclass(frozen=True)
class Made:
    """What a nest was built from.

    Attributes:
        kept: the digits of each dimension of its result.
    """

    loops: tuple[int, ...]
    body: Term
    combiner: str | None
    kept: tuple[Group, ...]
    dtype: str


class Again:
    """The nests of a builder by key of their results (`made`), and which were made again."""

    def __init__(self, builder: NestBuilder):
        self.builder = builder
        self.made: dict[str, Made] = {}
        self._known: dict[Any, tuple[str, tuple[tuple[int, ...], ...]]] = {}
        self._reshapes: dict[str, tuple[Access, Access]] = {}  # first shape -> second shape

    def make(self, access: Access, result: Sequence[int], together: Dims) -> Access | None:
        """The tensor of `access`, with `result` as the digits of its dimensions, if it can be had.

        It can where a nest made the tensor, nobody reads it yet, and `access` covers it.

        Args:
            result: the digits of `access` in any order, and maybe some of extent 1.
            together: only neighbours in one of these dimensions may become one loop.
        """
        digits, parts = self.builder.digits, digits_of(access)
        if -1 in parts:
            return None
        shape = (
            access.key,
            tuple(tuple(digits.total((p,)) for p in dim) for dim in access.dims),
            tuple(parts.index(d) if d in parts else -1 for d in result),
            tuple(tuple(result.index(d) for d in dim) for dim in together),
        )
        if shape in self._known:
            key, places = self._known[shape]
            return Access(key, tuple(tuple(result[k] for k in dim) for dim in places))
        found = self._build(access, result, together)
        if found is not None:
            loops: Any = found.dims
            places = tuple(tuple(result.index(d) for d in dim) for dim in loops)
            self._known[shape] = (found.key, places)
            if all(access.dims) and parts == list(result):
                self._reshapes[access.key] = (access, found)
        return found

    def _build(self, access: Access, result: Sequence[int], together: Dims) -> Access | None:
        builder, digits = self.builder, self.builder.digits
        made = self.made.get(access.key)
        if made is None or _is_read(builder.values[access.key]):
            return None
        fresh = {d: digits.new(digits.extent(d)) for d in made.loops}
        named: dict[int, Any] = {}  # pieces of the nest's digits -> digits of the reader
        for group, parts in zip(made.kept, access.dims, strict=True):
            if not builder.sizes.same(digits.total(group), digits.total(parts)):
                return None
            mine = [p for d in group for p in fresh[d]]
            copies = {p: digits.new(digits.extent(p)) for p in parts if isinstance(p, int)}
            try:
                digits.refine(mine, [c for copy in copies.values() for c in copy])
            except NotRaised:
                return None
            for part, copy in copies.items():
                pieces = digits.pieces(copy)
                if len(pieces) != 1:
                    return None
                named[pieces[0]] = part
        table = {d: tuple(named.get(p, p) for p in digits.pieces(fresh[d])) for d in made.loops}
        loops = [p for d in made.loops for p in table[d]]
        for before, digit in itertools.pairwise([None, *result]):
            if digit not in loops:
                loops.insert(0 if before is None else loops.index(before) + 1, digit)
        body = digits.rename(made.body, table, builder.size_term)
        with builder.values[access.key].owner.location:
            try:
                return builder.build(loops, body, result, made.combiner, together=together)
            except NotRaised:  # its positions are looked up in another shape
                return None

    def settle(self) -> None:
        """Who reads a tensor in its first shape all the same gets the second one reshaped.

        So nothing is computed twice. Call it when all nests are built.
        """
        values = self.builder.values
        for key, (first, second) in self._reshapes.items():
            old, new = values[key], values[second.key]
            if _is_read(old):
                with ir.InsertionPoint.after(new.owner), new.owner.location:
                    dims: Any = first.dims
                    shaped = self.builder.collapse(second, dims, self.made[key].dtype)
                    old.replace_all_uses_with(cast(shaped, old.type))


def digits_of(access: Access) -> list[int]:
    """The digits of an access in order, -1 for fixed ones."""
    return [p if isinstance(p, int) else -1 for parts in access.dims for p in parts]


def _is_read(tensor: Any) -> bool:
    return next(iter(tensor.uses), None) is not None
