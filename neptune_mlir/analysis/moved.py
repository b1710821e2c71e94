# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that ops between nests make of others, element by element, as terms: flips, elements at
positions that no access can have, other shapes. The check of whole programs (`whole`) evaluates
them, and what exponents are made of (`exponents`) is found through them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, element_type
from neptune_mlir.dialects.op_names import VIEWS
from neptune_mlir.dialects.program import NestProgram, top_level_op
from neptune_mlir.dialects.scalars import (
    NoTermForm,
    TermOf,
    constant_value,
    op_to_term,
    region_to_terms,
)
from neptune_mlir.ir.bindings import ir, linalg


@dataclass(frozen=True)
class Moved:
    """A tensor that an op which is no nest makes.

    Attributes:
        body: of one element, over a loop for each dimension; None for a view, whose elements lie
            in the order of those of `source`.
        source: of a view.
        equal: dimensions of this tensor and of others that are equally long, as pairs of a
            dimension and (tensor, dimension).
        groups: of a view the dimensions of one shape that are one of the other.
    """

    key: str
    dtype: str
    rank: int
    body: Term | None
    source: str = ""
    equal: tuple[tuple[int, tuple[str, int]], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    def fits(self, own: Sequence[int], of_source: Sequence[int]) -> bool:
        """Whether these extents are those of one tensor under two shapes."""
        whole, parts = (own, of_source) if len(own) <= len(of_source) else (of_source, own)
        groups = self.groups or tuple((k,) for k in range(len(whole)))
        return all(
            extent == prod(parts[k] for k in group)
            for extent, group in zip(whole, groups, strict=True)
        )

    @property
    def sources(self) -> set[str]:
        return {self.source} if self.body is None else {r.attr for r in T.reads(self.body)}

    def term(self, own: Sequence[int], of_source: Sequence[int]) -> Term:
        """The body, on these extents."""
        if self.body is not None:
            return self.body
        place: Term = T.const(0, "index")
        for k, extent in enumerate(own):
            place = T.make("mul", place, T.const(extent, "index"))
            place = T.make("add", place, T.index(k))
        idx: list[Term] = []
        for extent in reversed(of_source):
            size = T.const(extent, "index")
            idx.insert(0, T.make("rem", place, size))
            place = T.make("floordiv", place, size)
        return T.read(self.source, *idx, dtype=self.dtype)


def moved(program: NestProgram, nests: Collection[str] | None = None) -> dict[str, Moved]:
    """Those of a program, by key, that nests (or some of them) read or that others of them are made
    of. Views of arguments that nothing else reads are arguments."""
    found: dict[str, Moved] = {}
    of = program.nests if nests is None else nests
    pending = [r.attr for k in of for r in T.reads(program.nests[k].body)]
    seen: set[str] = set()
    while pending:
        key = pending.pop()
        if key in seen or key in program.nests:
            continue
        seen.add(key)
        value = program.values[key]
        if isinstance(value.owner, ir.Block) or _is_alone(program, value):
            continue
        made = _made(program, key, value)
        if made is not None:
            found[key] = made
            pending += made.sources
    order = {op.operation: k for k, op in enumerate(program.block.operations)}
    return dict(sorted(found.items(), key=lambda one: order[program.values[one[0]].owner]))


def leaves_to(program: NestProgram, value: Any, known: Mapping[str, Any]) -> bool:
    """Whether something reads a value that is neither a nest nor makes one of the `known` tensors,
    or makes such a tensor for somebody else."""
    inside = {nest.op.operation for nest in program.nests.values()}
    for use in value.uses:
        user = top_level_op(use.owner, program.block)
        if user in inside or user.name == "tensor.dim":
            continue
        results = [*user.results]
        if len(results) != 1 or program.values.key(results[0]) not in known:
            return True
        if leaves_to(program, results[0], known):
            return True
    return False


def _is_alone(program: NestProgram, value: Any) -> bool:
    """Whether a view is all that becomes of an argument."""
    while not isinstance(value.owner, ir.Block):
        if value.owner.name not in VIEWS:
            return False
        value = value.owner.operands[0]
        users = {top_level_op(use.owner, program.block) for use in value.uses}
        if len({user for user in users if user.name != "tensor.dim"}) > 1:
            return False
    return True


def _made(program: NestProgram, key: str, value: Any) -> Moved | None:
    op = value.owner.operation
    if op.name in VIEWS:
        return _view(program, key, op)
    if op.name == "linalg.generic" and len(op.results) == 1:
        try:
            return _elementwise(program, key, op)
        except NoTermForm:
            return None
    return None


def _view(program: NestProgram, key: str, op: Any) -> Moved:
    source, result = op.operands[0], op.results[0]
    name = program.values.key(source)
    rank, equal = ir.RankedTensorType(result.type).rank, []
    groups: list[list[int]] = []
    if op.name == "tensor.cast":
        equal = [(k, (name, k)) for k in range(rank)]
    else:
        groups = [[int(k) for k in group] for group in op.attributes["reassociation"]]
        grows = op.name == "tensor.expand_shape"
        shape = ir.RankedTensorType(result.type if grows else source.type).shape
        for k, group in enumerate(groups):
            wide = [dim for dim in group if shape[dim] != 1]
            if len(wide) == 1:  # the others have one element
                equal.append((wide[0], (name, k)) if grows else (k, (name, wide[0])))
    return Moved(key, element_type(result), rank, None, name, tuple(equal),
                 tuple(map(tuple, groups)))  # fmt: skip


def _elementwise(program: NestProgram, key: str, op: Any) -> Moved:
    """A `linalg.generic` that reduces nothing. Raises NoTermForm."""
    values, block = program.values, op.regions[0].blocks[0]
    maps = [getattr(m, "value", m) for m in linalg.get_indexing_maps(op)]
    rank = ir.RankedTensorType(op.results[0].type).rank
    if maps[-1] != ir.AffineMap.get_identity(rank):
        raise NoTermForm("its result is not indexed by its loops, or it reduces")
    equal: list[tuple[int, tuple[str, int]]] = []
    shape = ir.RankedTensorType(op.results[0].type).shape

    def read(tensor: Any, idx: Sequence[Term]) -> Term:
        name, extents = values.key(tensor), ir.RankedTensorType(tensor.type).shape
        for dim, i in enumerate(idx):
            of = {n.attr for n in T.walk(i) if n.op == "index"}
            if len(of) == 1 and (i.op == "index" or extents[dim] == shape[min(of)] != DYNAMIC):
                equal.append((min(of), (name, dim)))
        return T.read(name, *idx, dtype=element_type(tensor))

    def argument(value: Any, tensor: Any, access: Any) -> Term:
        if not [*value.uses]:
            return T.const(0, "index")  # nothing reads it
        if not isinstance(tensor.type, ir.RankedTensorType):
            return _captured(values, tensor)
        return read(tensor, [_index(e) for e in access.results])

    def extract(op: Any, term_of: TermOf) -> Term:
        tensor, *places = op.operation.operands
        return read(tensor, [term_of(p) for p in places])

    arguments = [*map(argument, block.arguments, op.operands, maps)]
    (body,) = region_to_terms(
        block, arguments, lambda v: _captured(values, v), special={"tensor.extract": extract}
    )
    return Moved(key, element_type(op.results[0]), rank, body,
                 equal=tuple(dict.fromkeys(equal)))  # fmt: skip


def _index(expr: Any) -> Term:
    if isinstance(expr, ir.AffineDimExpr):
        return T.index(ir.AffineDimExpr(expr).position)
    if isinstance(expr, ir.AffineConstantExpr):
        return T.const(ir.AffineConstantExpr(expr).value, "index")
    raise NoTermForm(f"index '{expr}' is neither a loop nor a constant")


def _captured(values: Any, value: Any) -> Term:
    """A scalar that is made outside, of extents and constants as far as terms can say."""
    owner = value.owner
    if not isinstance(owner, ir.Block):
        if owner.name == "arith.constant":
            return T.const(constant_value(owner.opview), str(value.type))
        if owner.name.partition(".")[0] in ("arith", "math"):
            try:
                return op_to_term(owner, [_captured(values, v) for v in owner.operands])
            except NoTermForm:
                pass
    return T.sym(values.key(value), str(value.type))
