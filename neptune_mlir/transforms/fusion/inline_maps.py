# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`inline-maps`: put the body of every map into the nests that read it.

    %x = map  [i, j]  s[i, j] * 0.125              %m = reduce max [i, j]  s[i, j] * 0.125
    %m = reduce max [i, j]  x[i, j]         ->

After it a nest reads function arguments, results of reductions, and nothing that another
map made. A map that something else still needs (a return, an op outside the dialect) stays;
one that nobody needs is erased.

A map that gathers rows is not put into a product: a tile of gathered rows has one row.

A body that would do more than MAX_OPS operations or read more than MAX_REDUCTIONS reductions
takes the cheapest maps only; the others stay tensors. Else each reduction of a chain would
compute the whole chain before it again, at run time and when it is compiled. A map that computes
with what a reduction gives stays too if it is in memory for somebody who sees it under another
shape. A body that was written with more than MAX_OPS operations that wait for each other is cut
into maps (`deep_bodies`). Which axes nests have then, `axes/` says: a row in groups has two, and on
GPUs axes that are reduced together are one, and sums over rows of products are made in chunks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import is_access, lookups, position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import CHIP
from neptune_mlir.dialects.program import NestProgram, erase_dead, functions
from neptune_mlir.transforms.fusion.axes.join_axes import axes_of_rows
from neptune_mlir.transforms.fusion.axes.split_rows import split_rows
from neptune_mlir.transforms.fusion.deep_bodies import cut_deep_bodies
from neptune_mlir.transforms.fusion.reshaped_reads import at_roots, shown, straightened
from neptune_mlir.transforms.fusion.reshapes import read_columns
from neptune_mlir.transforms.registry import register

MAX_OPS = 128
MAX_REDUCTIONS = 8


def inlined(program: NestProgram, body: Term, kept: Collection[str] = ()) -> Term:
    """`body` with reads of maps replaced by those maps' bodies at the reads' positions; not of
    those that are `kept`."""
    maps = {r.attr for r in program.maps_read(body)}
    maps -= set(kept)
    if body.op == "mul":  # a product wants tiles of rows, and what is looked up is one row
        maps = {key for key in maps if not lookups(program.nests[key].body)}
    # computed positions stay in memory, where a lookup finds them
    maps -= {r.attr for r in lookups(body)
             if r.attr in maps and position_of(program.nests[r.attr].body) is None}  # fmt: skip
    whole = _with(program, body, maps)
    if _fits(program, whole):
        return whole
    taken: set[str] = set()
    for key in sorted(maps, key=lambda k: (_work(program.nests[k].body), k)):
        larger = _with(program, body, taken | {key})
        if not _fits(program, larger):
            break
        taken.add(key)
        whole = larger
    return whole if taken else body


def _with(program: NestProgram, body: Term, maps: Collection[str]) -> Term:
    """`body` with reads of these maps replaced; as it is where an access would be none then."""

    def rule(node: Term) -> Term | None:
        if node.op != "read" or node.attr not in maps:
            return None
        nest = program.nests[node.attr]
        at = {loop: node.args[dim] for dim, loop in enumerate(nest.result_axes)}
        return T.rename_axes(nest.body, at)

    made = T.rewrite(body, rule) if maps else body
    return made if all(map(is_access, T.reads(made))) else body


def _fits(program: NestProgram, body: Term) -> bool:
    reductions = {
        r.attr for r in T.reads(body)
        if r.attr in program.nests and program.nests[r.attr].kind == "reduce"
    }  # fmt: skip
    return len(reductions) <= MAX_REDUCTIONS and _work(body) <= MAX_OPS


def kept_maps(program: NestProgram) -> set[str]:
    """The maps that compute with what a reduction gives, and are seen under another shape."""
    return {
        key for key in shown(program)
        if key in program.nests and program.nests[key].kind == "map"
        and _reads_reductions(program, key)
    }  # fmt: skip


def _reads_reductions(program: NestProgram, key: str) -> bool:
    return any(program.nests[r.attr].kind == "reduce" for r in program.reads_of(key))


def _work(body: Term) -> int:
    """Operations for one point."""
    found: int | None = body.memo.get("work")
    if found is None:
        found = body.memo["work"] = sum(n.op in T.OPS for n in T.walk(body))
    return found


def inline_all(program: NestProgram) -> None:
    """Put the bodies of maps into the nests that read them (their ops change in `write`)."""
    for key, nest in program.nests.items():
        program.put_body(key, straightened(program, nest))
    stored = shown(program)
    kept: set[str] = set()
    for key, nest in program.nests.items():  # producers come first, so one sweep is enough
        program.put_body(key, inlined(program, nest.body, kept))
        if key in stored and nest.kind == "map" and _reads_reductions(program, key):
            kept.add(key)
    for key, nest in program.nests.items():
        program.put_body(key, at_roots(program, nest))


@register("inline-maps", "inline elementwise nests into the nests that read them")
def inline_maps(module: Any) -> None:
    for function in functions(module):
        cut_deep_bodies(function, MAX_OPS)
        program = NestProgram(function)
        inline_all(program)
        program.write()
        erase_dead(program.block)
        split_rows(function)
        if CHIP.on(function.operation.parent):
            read_columns(function)
            axes_of_rows(function)
