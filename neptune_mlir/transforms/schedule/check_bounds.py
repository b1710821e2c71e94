# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `check-bounds`: a fused program becomes one that says which positions it would look up.

    func @f(%x, %table, %length) -> (%result)     ->     func @f(...) -> (%least, %greatest, %bound)

Of each position that an element of a tensor is part of (`x[table[b, j // 16], ...]`), the smallest
and the greatest that are used, and the extent that they have to stay under. Used are those where
the stream is live, and where every `where` around the read chooses it. Nothing is looked up for
that but the tables themselves. (A position that is never used: the smallest is over the greatest.)

`driver/bounds.py` compiles the new program, runs it in front of the old one and reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest, nests_of, read_live
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import BOUNDS, CONSTANTS
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import arith, ir, location_text, tensor
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.schedule.tile import kernel_ops

_MOST = 2**63 - 1
_KIND = "i64"


@dataclass(frozen=True)
class _Use:
    """A position that is looked up: in which dimension of which tensor, and where it is used."""

    tensor: str
    dim: int
    position: Term
    condition: Term


@register("check-bounds", "make a program of the positions that a fused program looks up")
def check_bounds(module: Any) -> None:
    for function in functions(module):
        block = function.regions[0].blocks[0]
        values = nests.Values()
        for argument in block.arguments:
            values.key(argument, _name(argument))
        end = block.operations[len(block.operations) - 1].operation
        texts: list[str] = []
        results: list[Any] = []
        for op in kernel_ops(function):
            for nest, use in _uses(op, values):
                with ir.InsertionPoint(end), nest.op.operation.location:
                    results += _reduced(op, use, values)
                place = location_text(nest.op.operation.location)
                texts.append(f"{place}: {use.tensor} {use.dim} {_shown(op, use.position)}")
        with ir.InsertionPoint(end), end.location:
            ir.Operation.create("func.return", operands=results)
        end.erase()
        _sweep(function, block)
        BOUNDS.set(function.operation, texts)
        kinds = [a.type for a in block.arguments]
        with function.context:
            kind = ir.FunctionType.get(kinds, [r.type for r in results])
            function.attributes["function_type"] = ir.TypeAttr.get(kind)
            if "res_attrs" in function.attributes:
                del function.attributes["res_attrs"]


def _name(value: Any) -> str | None:
    location = value.location
    return str(location.name_str) if isinstance(location, ir.NameLoc) else None


def _shown(op: Any, position: Term) -> str:
    names = [str(n.value) for n in op.axis_names] if hasattr(op, "axis_names") else None
    return T.show(position, lambda t: names[t.attr] if names and t.op == "index" else None)


def _uses(op: Any, values: nests.Values) -> Iterator[tuple[FusedNest, _Use]]:
    """What the nests of a kernel look up, each once."""
    found = nests_of(op, values)
    made = {nest.key for nest in found}
    if isinstance(op, N.StreamOp):
        made |= {values.key(a) for region in (op.body, op.finish)
                 for a in region.blocks[0].arguments}  # fmt: skip
        live = read_live(op, values)
    else:
        live = T.const(True, "i1")
    streamed = op.axis.value if isinstance(op, N.StreamOp) else None
    seen: dict[_Use, None] = {}
    for nest in found:
        if nest.body is None:
            continue
        around = live if streamed in nest.loops else T.const(True, "i1")
        for read, condition in _chosen(nest.body, around):
            if read.attr in made:
                continue
            for dim, index in enumerate(read.args):
                position = position_of(index)
                if position is None or position.lookup is None:
                    continue
                use = _Use(str(read.attr), dim, position.term(), _known(condition, made))
                if use not in seen and not _reads(use.position) & made:
                    seen[use] = None
                    yield nest, use


def _chosen(body: Term, around: Term) -> Iterator[tuple[Term, Term]]:
    """The reads of a term, and the condition under which each is used."""
    stack, seen = [(body, around)], set()
    while stack:
        node, condition = stack.pop()
        if (node, condition) in seen:
            continue
        seen.add((node, condition))
        if node.op == "read":
            yield node, condition
        if node.op == "select":
            choice, a, b = node.args
            stack += [(choice, condition), (a, T.make("and", condition, choice)),
                      (b, T.make("and", condition, T.make("not", choice)))]  # fmt: skip
        else:
            stack += [(a, condition) for a in node.args]


def _reads(term: Term) -> set[Any]:
    return {read.attr for read in T.leaves(term, "read")}


def _known(condition: Term, made: set[str]) -> Term:
    """The part of a condition that reads nothing which the kernel computes."""
    if condition.op == "and":
        return T.make("and", *(_known(a, made) for a in condition.args))
    if condition.has_ref or _reads(condition) & made:
        return T.const(True, "i1")
    return condition


def _reduced(op: Any, use: _Use, values: nests.Values) -> list[Any]:
    """The smallest and the greatest position, and the extent, as tensors of no dimension."""
    source = values[use.tensor]
    kind = ir.RankedTensorType(source.type)
    if kind.is_dynamic_dim(use.dim):
        dim = arith.ConstantOp(ir.IndexType.get(), use.dim).result
        size = tensor.DimOp(source, dim).result
        bound = T.make("cast", T.sym(values.key(size), "index"), dtype=_KIND)
    else:
        bound = T.const(kind.shape[use.dim], _KIND)
    axes = sorted(use.position.axes | use.condition.axes)
    dynamic = iter(op.extents)
    extents = [next(dynamic) if d == nests.DYNAMIC else d for d in op.domain]
    names = [str(n.value) for n in op.axis_names] if hasattr(op, "axis_names") else None
    loops = {
        "domain": [list(op.domain)[a] for a in axes],
        "extents": [extents[a] for a in axes if list(op.domain)[a] == nests.DYNAMIC],
        "names": [names[a] for a in axes] if names else None,
    }
    place = {axis: T.index(k) for k, axis in enumerate(axes)}
    condition = T.rename_axes(use.condition, place)
    position = T.make("cast", T.rename_axes(use.position, place), dtype=_KIND)
    made = []
    for combiner, value, never in (
        ("min", position, _MOST), ("max", position, -_MOST), ("max", bound, -_MOST)
    ):  # fmt: skip
        body = T.make("select", condition, value, T.const(never, _KIND))
        made.append(nests.build_reduce(values, combiner, body, result_axes=(), **loops))
    return made


def _sweep(function: Any, block: Any) -> None:
    """Take out what no result needs any more, constants among the arguments too."""
    for op in reversed([op.operation for op in block.operations][:-1]):
        if not any(True for result in op.results for _ in result.uses):
            op.erase()
    if not CONSTANTS.on(function.operation):
        return
    first = len(block.arguments) - len(CONSTANTS.of(function.operation))
    while len(block.arguments) > first:
        value = block.arguments[len(block.arguments) - 1]
        if any(True for _ in value.uses):
            raise LoweringError(
                "positions are looked up in a constant of the program", loc=location_text(
                    function.operation.location), hint="pass it as an argument",
            )  # fmt: skip
        block.erase_argument(len(block.arguments) - 1)
    CONSTANTS.drop(function.operation)
