# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums over the rows of a product are made in chunks of rows, and joined.

    s = reduce add [j | i]  c[i, j]         ->     p = reduce add [g, j | i]  c'[g, i, j]
                                                   s = reduce add [j | g]  p[g, j]

A program has a tile of columns, for arrays lie along these, and a matrix has few such tiles: they
would leave most multiprocessors idle. Where nothing but such sums is in a program its schedule cuts
them (`scripts.choose`); beside a product, which has programs enough, this does. `c'` is `c` under
another shape. Means and squares of deviations are made together
(`chunk_moments`). What all that read such a product round to 16 bits is stored so: it is read
several times.

Part of `inline-maps`, for GPUs.
"""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import lookups, positions
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import APART
from neptune_mlir.dialects.nests import DYNAMIC, Nest, build_map, build_reduce
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.transforms.fusion.axes.chunk_moments import chunk_moments
from neptune_mlir.transforms.fusion.plan import LONG_STREAM
from neptune_mlir.transforms.fusion.reshapes import expanded, replaced

COLUMNS = 256  # of a tile of sums over rows (the pass `tile`)
ROWS = 64  # of a chunk, at least


def split_sums(function: Any) -> None:
    program = NestProgram(function)
    if not any(_chunks_of(program, nest) for nest in program.nests.values()):
        return
    if any([_store_rounded(program, key) for key in list(program.nests)]):
        program = NestProgram(function)
    chunk_moments(function, _rows_of)
    program = NestProgram(function)
    for key, nest in list(program.nests.items()):
        found = _chunks_of(program, nest)
        if found is not None:
            _split(program, key, nest, *found)


def _chunks_of(program: NestProgram, nest: Nest) -> tuple[int, int] | None:
    """The loop over rows, and in how many chunks it is to be summed."""
    if nest.kind != "reduce" or nest.combiner == "custom" or DYNAMIC in nest.domain:
        return None
    reads = T.reads(nest.body)
    if len(nest.reduced_axes) != 1 or not any(_is_product(program, r.attr) for r in reads):
        return None
    (rows,) = nest.reduced_axes
    summed = [r for r in reads if rows in r.axes]
    along = {r.args[-1] for r in summed}
    if len(along) != 1 or (columns := along.pop()).op != "index" or columns.attr == rows:
        return None
    plain = all(
        [i for i in r.args if rows in i.axes] == [T.index(rows)] and not lookups(r) for r in summed
    )
    if not plain or rows in positions(nest.body):
        return None
    extent, width = nest.domain[rows], nest.domain[columns.attr]
    programs = math.prod(nest.domain) // extent // min(COLUMNS, width)
    wanted = -(-2 * MULTIPROCESSORS // max(1, programs))
    fitting = [d for d in range(2, extent // ROWS + 1) if extent % d == 0]
    if extent < LONG_STREAM or programs >= MULTIPROCESSORS or not fitting:
        return None
    return rows, next((d for d in fitting if d >= wanted), fitting[-1])


def _rows_of(program: NestProgram, nest: Nest) -> int | None:
    """The loop over rows of such a sum."""
    found = _chunks_of(program, nest)
    return found[0] if found else None


def _is_product(program: NestProgram, key: str) -> bool:
    """Whether a tensor is the sum of products of elements that differ in more than what is summed:
    it has programs enough of its own, which are fused with no sum over its rows. Or what is made
    of one element by element."""
    nest = program.nests.get(key)
    if nest is None:
        return False
    if nest.kind == "map":
        return any(_is_product(program, r.attr) for r in T.reads(nest.body))
    body = nest.body
    while body.op == "cast":
        (body,) = body.args
    sides = [factor.axes & {*nest.result_axes} for factor in body.args]
    return body.op == "mul" and bool(sides[0] - sides[1]) and bool(sides[1] - sides[0])


def _store_rounded(program: NestProgram, key: str) -> bool:
    """Store what all nests that read a product make of it first, if that is rounded to 16 bits:
    who sums it up, and who reads it again, reads half as much. Returns whether there is such."""
    nests = program.nests.items()
    readers = {k: n for k, n in nests if any(r.attr == key for r in T.reads(n.body))}
    if len(readers) < 2 or program.nests[key].kind != "reduce" or not _is_product(program, key):
        return False
    found = [_rounded_in(program, nest, key) for nest in readers.values()]
    common = set(found[0]).intersection(*found)
    if not common:
        return False
    term = max(common, key=lambda t: (t.size, str(t)))
    shape = list(ir.RankedTensorType(program.values[key].type).shape)
    first = next(iter(readers.values()))
    with ir.InsertionPoint(first.op), first.location:
        made = build_map(program.values, term, shape, ())
    name = program.values.key(made, "rounded")
    for (reader, nest), places in zip(readers.items(), found, strict=True):
        node, args = places[term]
        read = T.read(name, *args, dtype=term.dtype)
        program.put_body(reader, T.substitute(nest.body, {node: read}))
    program.write()
    return True


def _rounded_in(
    program: NestProgram, nest: Nest, key: str
) -> dict[Term, tuple[Term, tuple[Term, ...]]]:
    """What a nest makes of an element of a tensor that is rounded to 16 bits, by loops that are the
    tensor's dimensions; with the term in the nest, and where it reads the tensor."""
    found = {}
    for node in T.walk(nest.body):
        reads = T.reads(node) if node.dtype in ("bf16", "f16") and node.op != "read" else ()
        args = {r.args for r in reads if r.attr == key}
        if len(args) != 1:
            continue
        (places,) = args
        loops = [i.attr for i in places if i.op == "index"]
        own = len({*loops}) == len(places) and node.axes <= {*loops}
        others = (program.values[r.attr] for r in reads if r.attr != key)
        if own and all(isinstance(v.owner, ir.Block) for v in others):
            by_dims = T.rename_axes(node, {loop: T.index(d) for d, loop in enumerate(loops)})
            found[by_dims] = node, places
    return found


def _split(program: NestProgram, key: str, nest: Nest, rows: int, chunks: int) -> None:
    domain = [chunks, *nest.domain]
    domain[1 + rows] //= chunks
    number = {k: T.index(k + 1) for k in range(len(nest.domain))}
    with ir.InsertionPoint(nest.op), nest.location:
        table = {}
        for read in T.reads(nest.body):
            args = [T.rename_axes(i, number) for i in read.args]
            name = read.attr
            if rows in read.axes:
                at = next(d for d, i in enumerate(read.args) if rows in i.axes)
                whole = expanded(program.values[name], at, [chunks, domain[1 + rows]])
                name = program.values.key(whole, "chunks")
                args.insert(at, T.index(0))
            table[read] = T.read(name, *args, dtype=read.dtype)
        body = replaced(nest.body, table, number)
        kept = [k + 1 for k in nest.result_axes]
        combiner = nest.combiner or ""
        part = build_reduce(program.values, combiner, body, domain, (), [0, *kept])
        places = [T.index(k) for k in range(1 + len(kept))]
        element = T.read(program.values.key(part, "parts"), *places, dtype=nest.dtype)
        shape = [chunks, *(nest.domain[k] for k in nest.result_axes)]
        made = build_reduce(program.values, combiner, element, shape, (), range(1, len(shape)))
        for one in (part, made):
            APART.set(one.owner, "chunks are programs")
    program.replace(key, made)
