# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes nests inside a fused op, from terms over the fused op's axes.

A `FusedRegion` knows the axes; it gives each nest the loops that its term needs, and
materialises a subterm as a map at most once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import (
    DYNAMIC,
    Values,
    build_correct,
    build_map,
    build_reduce,
    emit_read,
    tensor_type,
)
from neptune_mlir.dialects.op_names import PRODUCE, YIELD
from neptune_mlir.dialects.scalars import Emitter
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.groups import FusedAxis


def axes_of_nest(body: Term, result_axes: Iterable[int]) -> list[int]:
    """The axes that a nest loops over, in axis order: those of its body and of its result."""
    return sorted(T.axes_of(body) | set(result_axes))


class FusedRegion:
    """Emits nests at the current insertion point with loops given as axes of `axes`."""

    def __init__(self, values: Values, axes: Sequence[FusedAxis], wanted: Iterable[Term] = ()):
        self.values = values
        self.axes = axes
        self._wanted = set(wanted)  # subterms to materialise when first met
        self._made: dict[Term, Term] = {}
        self._count = 0

    def type(self, result_axes: Sequence[int], dtype: str) -> Any:
        return tensor_type([a.size for a in self.axes], result_axes, dtype)

    def read(self, value: Any, axes: Sequence[int], dtype: str, hint: str = "t") -> Term:
        """A term that reads `value`, indexed by these axes."""
        key = f"{hint}.{self._count}"
        while key in self.values:
            self._count += 1
            key = f"{hint}.{self._count}"
        self.values.bind(key, value)
        return T.read(key, *[T.index(a) for a in axes], dtype=dtype)

    def _loops(self, body: Term, result_axes: Sequence[int]) -> tuple[list[int], dict[str, Any]]:
        loops = axes_of_nest(body, result_axes)
        local = {a: k for k, a in enumerate(loops)}
        return loops, {
            "domain": [self.axes[a].size for a in loops],
            "extents": [self.axes[a].extent for a in loops if self.axes[a].size == DYNAMIC],
            "result_axes": [local[a] for a in result_axes],
            "axes": loops,
        }

    def _local(self, term: Term, loops: Sequence[int]) -> Term:
        return T.rename_axes(term, {a: T.index(k) for k, a in enumerate(loops)})

    def map(self, body: Term, result_axes: Sequence[int], loc: Any = None) -> Any:
        loops, shape = self._loops(body, result_axes)
        return build_map(self.values, self._local(body, loops), loc=loc, **shape)

    def reduce(
        self, combiner: str, body: Term, result_axes: Sequence[int], *, reduced: Sequence[int],
        init: Any = None, loc: Any = None,
    ) -> Any:  # fmt: skip
        """A reduce, or with `init` an accumulate; it runs over `reduced` even if body does not."""
        loops, shape = self._loops(body, [*result_axes, *reduced])
        shape["result_axes"] = [loops.index(a) for a in result_axes]
        return build_reduce(
            self.values, combiner, self._local(body, loops), init=init, loc=loc, **shape
        )

    def correct(
        self, h: Term, accumulators: Sequence[Term], old: Sequence[Term], new: Sequence[Term],
        form: str, result_axes: Sequence[int], loc: Any = None,
    ) -> Any:  # fmt: skip
        loops, shape = self._loops(h, result_axes)
        roles = ([self._local(t, loops) for t in group] for group in (accumulators, old, new))
        repaired, before, after = roles
        body = self._local(h, loops)
        return build_correct(self.values, repaired, before, after, body, form, loc=loc, **shape)

    def materialised(self, term: Term, loc: Any = None) -> Term:
        """`term` with its wanted subterms (itself included) replaced by reads of maps."""
        done: dict[Term, Term] = {}
        for node in T.walk(term):
            new = T.term(node.op, [done[a] for a in node.args], node.attr, node.dtype)
            if node in self._wanted:
                if node not in self._made:
                    axes = sorted(T.axes_of(node))
                    value = self.map(new, axes, loc)
                    self._made[node] = self.read(value, axes, node.dtype)
                new = self._made[node]
            done[node] = new
        return done[term]


def produce(values: Sequence[Any]) -> None:
    """End a region of a fused op."""
    sizes = ir.DenseI32ArrayAttr.get(N.segment_sizes(len(values)))
    ir.Operation.create(
        PRODUCE, operands=list(values), attributes={"operandSegmentSizes": sizes}
    )


def write_live(stream: Any, condition: Term, values: Values) -> None:
    """Replace the `live` region of a stream by a condition over its axes."""
    region = stream.operation.regions[2]
    count = len(list(stream.domain))
    location = stream.operation.location
    if len(region.blocks):
        block = region.blocks[0]
        for op in reversed(list(block.operations)):
            op.operation.erase()
    else:
        index = ir.IndexType.get(stream.operation.context)
        block = region.blocks.append(*[index] * count, arg_locs=[location] * count)

    def leaf(t: Term) -> Any:
        if t.op == "read":
            return emit_read(t, count, values)
        return block.arguments[t.attr] if t.op == "index" else values[t.attr]

    with ir.InsertionPoint(block), location:
        ir.Operation.create(YIELD, operands=[Emitter(leaf).emit(condition)])
