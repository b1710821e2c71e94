# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The nests of one region of a fused op as data, with positions over the fused op's axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import elements
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.masks import masked_load
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.op_names import ACCUMULATE, CORRECT, MAP, PRODUCE, READ, READS, REDUCE
from neptune_mlir.dialects.scalars import NoTermForm, region_to_terms
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text


@dataclass
class FusedNest:
    """A map, reduce or accumulate over axes of a fused op (or over its own loops, alone).

    `body` is None when the region has no term form; then the region must be cloned. `reads`
    are the distinct elements that one point reads.
    """

    key: str
    op: Any
    reads: Sequence[Term]
    body: Term | None
    loops: tuple[int, ...]
    result_axes: tuple[int, ...]
    dtype: str
    combiner: str | None = None  # None for a map
    identity: T.Number | None = None
    init: str | None = None  # key of the value that an accumulate continues
    in_body: bool = False  # of a stream
    spreads: bool = False  # an accumulate of all programs: its result has the streamed axis

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        return tuple(a for a in self.loops if a not in self.result_axes)

    @property
    def own_axes(self) -> tuple[int, ...]:
        """The axes that a program reduces: of a sum that programs share it has a tile's part."""
        return () if self.spreads else self.reduced_axes

    @property
    def used_axes(self) -> frozenset[int]:
        """The axes that one element of the result depends on by position or by access."""
        if self.body is not None:
            return T.axes_of(self.body) | frozenset(self.result_axes)
        return frozenset(self.loops)


def read_region(
    block: Any, values: nests.Values, *, in_body: bool = False, corrections: bool = False
) -> tuple[list[FusedNest], list[str]]:
    """The nests of a region and the keys of what it produces.

    With `corrections` a `neptune.correct` counts as a map without a term form; else it is an
    error, as is everything that is not a nest.
    """
    allowed = [MAP, REDUCE, ACCUMULATE]
    allowed += [CORRECT] if corrections else []
    found: list[FusedNest] = []
    for op in block.operations:
        name = op.operation.name
        if name == PRODUCE:
            return found, [values.key(v) for v in op.operation.operands]
        if name not in allowed:
            raise LoweringError(
                f"'{name}' cannot stand inside a fused op at this point",
                loc=location_text(op.operation.location),
                hint="run lower-correct first" if name == CORRECT else None,
            )
        found.append(read_nest(op, values, in_body=in_body))
    raise AssertionError("a verified region ends in neptune.produce")


def read_nest(op: Any, values: nests.Values, *, in_body: bool = False) -> FusedNest:
    """One nest; outside a fused op its axes are its loops."""
    op = op.operation.opview
    loops = nests.nest_axes(op)
    if loops is None:
        loops = tuple(range(len(list(op.domain))))
    place = {loop: T.index(axis) for loop, axis in enumerate(loops)}
    body = _body(op, values, place)
    if body is not None:
        reads = list(elements(body))
    else:
        code = op.operation.regions[0].blocks[0].operations
        accesses = (nests.read_access(o, values) for o in code if o.operation.name in READS)
        reads = list(dict.fromkeys(T.rename_axes(a, place) for a in accesses))
    nest = FusedNest(
        values.key(op.operation.results[0]), op, reads, body, tuple(loops),
        tuple(loops[k] for k in op.result_axes), nests.element_type(op.operation.results[0]),
        in_body=in_body,
    )  # fmt: skip
    if isinstance(op, N.ReduceOp | N.AccumulateOp):
        nest.combiner = op.combiner.value
        nest.identity = T.const(op.identity.value, nest.dtype).value
        nest.init = values.key(op.init) if isinstance(op, N.AccumulateOp) else None
        around = op.operation.parent.opview
        if nest.init is not None and isinstance(around, N.StreamOp):
            nest.spreads = around.axis.value in nest.result_axes
    return nest


def _body(op: Any, values: nests.Values, place: dict[int, Term]) -> Term | None:
    if isinstance(op, N.CorrectOp):
        return None
    try:
        return T.rename_axes(nests.read_nest(op, values).body, place)
    except NoTermForm:
        return None


def read_live(stream: Any, values: nests.Values) -> Term:
    """The condition of a stream's `live` region, over its axes; true when there is none."""
    if not len(stream.live.blocks):
        return T.const(True, "i1")
    block = stream.live.blocks[0]
    arguments = [T.index(k) for k in range(len(block.arguments))]
    try:
        return region_to_terms(
            block, arguments, lambda v: scalar_term(v, values),
            special={READ: lambda op, _: nests.read_access(op, values)},
        )[0]  # fmt: skip
    except NoTermForm:
        return T.const(True, "i1")  # nothing is skipped then, which is always right


def scalar_term(value: Any, values: nests.Values) -> Term:
    """A scalar defined outside a region: a constant or a run-time scalar."""
    owner = value.owner
    if not isinstance(owner, ir.Block) and owner.name == "arith.constant":
        return T.const(owner.attributes["value"].value, str(value.type))
    return T.sym(values.key(value), str(value.type))


def accumulation(nests_: dict[str, FusedNest], key: str, argument: str) -> FusedNest | None:
    """The accumulation that leads from the running value `argument` to `key`.

    Corrections, and maps that corrections became, may stand before and behind it.
    """
    if key not in nests_:
        return None
    nest = nests_[key]
    if nest.init is not None:
        direct = _reaches(nests_, nest.init, argument)
        return nest if direct else accumulation(nests_, nest.init, argument)
    if nest.combiner is not None:
        return None
    before = (accumulation(nests_, read.attr, argument) for read in nest.reads)
    return next(filter(None, before), None)


def _reaches(nests_: dict[str, FusedNest], key: str, argument: str) -> bool:
    if key == argument:
        return True
    nest = nests_.get(key)
    if nest is None or nest.combiner is not None:
        return False
    return any(_reaches(nests_, read.attr, argument) for read in nest.reads)


def nests_of(op: Any, values: nests.Values) -> list[FusedNest]:
    """The nests of a stream, a global or a lone nest; corrections count as maps."""
    if isinstance(op, N.StreamOp):
        blocks = [op.body.blocks[0], op.finish.blocks[0]]
    elif isinstance(op, N.GlobalOp):
        blocks = [op.body.blocks[0]]
    else:
        return [read_nest(op, values)]
    return [n for block in blocks for n in read_region(block, values, corrections=True)[0]]


def contractions(nests: Sequence[FusedNest]) -> Iterator[tuple[FusedNest, Term, Term]]:
    """The nests that sum products of two tensors, and the reads that are the factors."""
    loaded = {nest.key: nest for nest in nests if nest.combiner is None}
    for nest in nests:
        if nest.combiner != "add" or nest.body is None or nest.body.op != "mul":
            continue
        left, right = (_read(a, loaded) for a in nest.body.args)
        if left and right and T.axes_of(left) and T.axes_of(right):
            yield nest, left, right


def _read(factor: Term, maps: Mapping[str, FusedNest]) -> Term | None:
    """The read that a factor is; of a map that only leaves out what does not exist, its load."""
    while factor.op == "cast":
        factor = factor.args[0]
    if factor.op != "read":
        return None
    nest = maps.get(factor.attr)
    found = masked_load(nest.body) if nest is not None and nest.body is not None else None
    return factor if found is None else found[0]


def multiplies_matrices(nests: Sequence[FusedNest]) -> bool:
    """Whether nests have a contraction of two matrices."""
    return any(left.axes != right.axes for _, left, right in contractions(nests))
