# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar code that `lower-to-tiles` gives each nest, as terms.

* Code that needs fewer axes than its nest gets a nest of its own when it is expensive: the
  factor `exp(m0 - m)` of a corrected row is computed once per row, not once per element.
* Where a loop is ragged, padded elements must contribute nothing to reductions.
* Where a tile is known to be live, mask conditions are true and vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import elements, position_of
from neptune_mlir.algebra.operators import COSTLY
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest
from neptune_mlir.analysis.masks import Linear, fold_conditions
from neptune_mlir.analysis.neutral import OddValues, masked, masked_reads, padding_masks
from neptune_mlir.ir import affine as ix
from neptune_mlir.transforms.tiling.kernel import LOOPED, TileKernel

_EXPENSIVE = COSTLY | {"rem", "floordiv"}


def split_invariants(kernel: TileKernel) -> None:
    """Give expensive subterms that vary along fewer axes than their nest a map of their own."""
    wanted: dict[tuple[bool, Term], FusedNest] = {}  # with the first nest that has each
    for nest in kernel.nests.values():
        if nest.body is not None:
            nest.body = _factored(nest.body)
            for term in _invariant_parts(kernel, nest.body, _extended(kernel, nest.loops)):
                wanted.setdefault((nest.in_body, term), nest)
    parts: dict[str, FusedNest] = {}
    tables: dict[bool, dict[Term, Term]] = {False: {}, True: {}}
    # Small ones first: a larger one reads them, and is then found in bodies that do.
    for in_body, term in sorted(wanted, key=lambda w: len(list(T.walk(w[1])))):
        first = wanted[in_body, term]
        body = T.substitute(term, tables[in_body])
        axes = tuple(sorted(T.axes_of(term)))
        part = FusedNest(
            f"{first.key}.part{len(parts)}", first.op, elements(body), body, axes, axes,
            term.dtype, in_body=in_body,
        )  # fmt: skip
        parts[part.key] = part
        tables[in_body][body] = T.read(part.key, *map(T.index, axes), dtype=term.dtype)
    made: dict[str, FusedNest] = {}

    def place(nest: FusedNest) -> None:
        for read in nest.reads:
            if read.attr in parts and read.attr not in made:
                place(parts[read.attr])
        made[nest.key] = nest

    for nest in kernel.nests.values():
        if nest.body is not None:
            nest.body = T.substitute(nest.body, tables[nest.in_body])
            nest.reads = elements(nest.body)
        place(nest)
    kernel.nests = made


def drop_shared_axes(kernel: TileKernel) -> None:
    """Make maps once for all points of an axis whose tile reads the same elements everywhere.

    Of `where(j < n, scale[h floordiv 8, j] * k[h floordiv 8, j, d], 0)` a tile of 8 heads has one
    tile, with no dimension for the heads.
    """
    dropped: dict[str, tuple[int, ...]] = {}  # nest -> the dimensions of its result that are left

    def rule(node: Term) -> Term | None:
        if node.op != "read" or node.attr not in dropped:
            return None
        args = [node.args[k] for k in dropped[node.attr]]
        return T.read(node.attr, *args, dtype=node.dtype)

    for nest in kernel.nests.values():  # what a nest reads stands before it
        if nest.body is None or (nest.init is not None and nest.init in dropped):
            continue
        nest.body = T.rewrite(nest.body, rule)
        nest.reads = elements(nest.body)
        if nest.combiner is not None or nest.key in kernel.results:
            continue
        kept = [a for a in nest.loops if not _is_shared(kernel, nest.body, a)]
        if len(kept) < len(nest.loops):
            left = tuple(k for k, a in enumerate(nest.result_axes) if a in kept)
            dropped[nest.key] = left
            nest.loops = tuple(kept)
            nest.result_axes = tuple(nest.result_axes[k] for k in left)


def _is_shared(kernel: TileKernel, body: Term, axis: int) -> bool:
    """Whether a tile along `axis` has several points, and `body` is the same at all of them."""
    size, extent = kernel.axes[axis].size, kernel.axes[axis].extent
    if size == 1 or kernel.axes[axis].role in LOOPED or axis not in body.axes:
        return False

    def one(index: Term) -> bool:
        position = position_of(index)
        if position is None:
            return False
        if position.lookup is not None and not all(map(one, position.lookup.args)):
            return False
        if position.axis != axis:
            return True
        whole = ix.is_static(extent) and extent <= position.divisor
        return position.divisor > 1 and (position.divisor % size == 0 or whole)

    found = {node: T.const(0, node.dtype) for node in elements(body)
             if axis in node.axes and all(map(one, node.args))}  # fmt: skip
    return axis not in T.substitute(body, found).axes  # type: ignore[arg-type]


def _factored(body: Term) -> Term:
    """`where(c, a, a * f)` as `a * where(c, 1, f)`: the factor may vary less than a."""

    def rule(node: Term) -> Term | None:
        if node.op != "select" or node.args[2].op != "mul":
            return None
        condition, kept, product = node.args
        for a, factor in (product.args, product.args[::-1]):
            if a is kept:
                one = T.const(1, factor.dtype)
                return T.make("mul", a, T.make("select", condition, one, factor))
        return None

    return T.rewrite(body, rule)


def _extended(kernel: TileKernel, axes: Iterable[int]) -> frozenset[int]:
    return frozenset(a for a in axes if kernel.axes[a].size > 1)


def _invariant_parts(kernel: TileKernel, body: Term, loops: frozenset[int]) -> list[Term]:
    """Outermost expensive subterms that vary, but along fewer axes than `loops`."""
    costly: dict[Term, bool] = {}
    for node in T.walk(body):
        is_access = node.op in ("read", "ref")  # a floordiv in an access costs nothing here
        costly[node] = not is_access and (
            node.op in _EXPENSIVE or any(costly[a] for a in node.args)
        )
    parts: list[Term] = []
    stack, seen = [body], set()
    while stack:
        node = stack.pop()
        if node in seen or not costly[node]:
            continue
        seen.add(node)
        axes = T.axes_of(node)
        if axes and _extended(kernel, axes) < loops:
            parts.append(node)
        else:
            stack.extend(reversed(node.args))
    return parts


class Bodies:
    """The body of each nest as it must be in a given loop."""

    def __init__(self, kernel: TileKernel, extent: Callable[[int], Term]):
        """`extent(axis)` is the extent of an axis as a term."""
        self._kernel = kernel
        self._extent = extent
        arguments = [r.key for r in kernel.running] + kernel.finish_keys
        self._made_here = {*kernel.nests, *arguments}
        self._odd = OddValues(list(kernel.nests.values()), arguments)
        self._padding: dict[int, dict[str, Term]] = {}
        self._ends: dict[int, dict[str, tuple[Term, Term]]] = {}
        self._integers = _integer_maps(kernel)

    def inside(self, axis: int) -> Term:
        """The condition that a position exists."""
        return T.make("lt", T.index(axis), self._extent(axis))

    def body(self, nest: FusedNest, ragged: Sequence[int], known: Sequence[Linear]) -> Term | None:
        """The body of `nest` where the axes `ragged` may run past their extent.

        `known` are forms that are >= 0 at every point of the tile at hand.
        """
        if nest.body is None:
            return None
        body = nest.body
        for axis in ragged:
            if self._kernel.reduces(axis) or self._kernel.axes[axis].role in LOOPED:
                body = self._masked(body, nest, axis)
        body = fold_conditions(body, known, self._integers)
        return _safe_divisions(body) if ragged else body

    def _masked(self, body: Term, nest: FusedNest, axis: int) -> Term:
        inside, mask = self.inside(axis), self._masks(axis).get(nest.key)
        if nest.key in self._ends[axis]:
            read, end = self._ends[axis][nest.key]
            return T.substitute(body, {read: T.make("select", inside, read, end)})
        return masked(body, inside, mask)

    def _masks(self, axis: int) -> dict[str, Term]:
        if axis not in self._padding:
            nests, made_here = list(self._kernel.nests.values()), self._made_here.__contains__
            found = padding_masks(nests, axis, self.inside(axis), self._odd, made_here)
            self._padding[axis] = found
            self._ends[axis] = masked_reads(nests, found, axis, self._odd, made_here)
        return self._padding[axis]


def _integer_maps(kernel: TileKernel) -> dict[Term, Term]:
    """What reads of integers that maps of a kernel compute stand for: places of merged rows, say,
    which `split_invariants` takes out of the masks that compare them."""
    found: dict[Term, Term] = {}
    for nest in kernel.nests.values():  # what a nest reads stands before it
        is_map = nest.body is not None and nest.combiner is None
        if is_map and not T.is_float(nest.dtype) and nest.dtype != "i1":
            read = T.read(nest.key, *map(T.index, nest.result_axes), dtype=nest.dtype)
            found[read] = T.substitute(nest.body, found)
    return found


def _safe_divisions(body: Term) -> Term:
    """Padded elements are 0, and dividing an integer by 0 traps: divide by 1 there."""

    def rule(node: Term) -> Term | None:
        if node.op not in ("div", "rem", "floordiv") or T.is_float(node.dtype):
            return None
        divisor = node.args[1]
        if divisor.is_const:
            return None
        zero, one = T.const(0, divisor.dtype), T.const(1, divisor.dtype)
        safe = T.make("select", T.make("eq", divisor, zero), one, divisor)
        return T.make(node.op, node.args[0], safe)

    return T.rewrite(body, rule)
