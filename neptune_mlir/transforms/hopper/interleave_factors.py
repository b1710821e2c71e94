# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `interleave-factors`: right factors in 8 bits are stored in the order of computed left ones.

    z[e, j] = v[j, e]                    z[e, 16 n + s] = v[16 n + order(s), e]
    o[i, e] = Σ_j p[i, j] * z[e, j]  ->  o[i, e] = Σ_s p[i, order(s)] * z[e, s], 16 at a time

A lane has columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of 16 of a product's result, and is to have
columns 4 t to 4 t + 3 of the next product's left factor. What a sum runs along may be numbered in
any order, if both factors are: so the kernel that stores the right factor ahead puts those four
side by side, and lanes need not exchange words in each iteration (`group_compute`). Tile IR means
what it did: the two marks `neptune.interleaved`, on the store and on the product, say how the rows
of the tensor between them lie in memory.

That is done where nothing but such products reads the tensor, in tiles that begin and end with
whole 16s, and each thread of the kernel that stores it has whole 16s of a row. Where only a call
knows how long rows are, they are made longer up to the next 16: the kernel has zeros there, which
it stores, and what reads them asked for zeros. Layouts are known here, so this runs behind
`assign-layouts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.analysis.layouts import INTERLEAVES, Layout, interleaved, layout_of
from neptune_mlir.analysis.tiles import (
    extent_multiple,
    factor_type,
    foralls,
    load_window,
    multiple_of,
    read_contraction,
    read_generic,
    shape_of,
    slice_parts,
)
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, INTERLEAVED, LAYOUT, SWAPPED
from neptune_mlir.ir import affine
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register, remark


@register("interleave-factors", "store factors in 8 bits in the order of computed left factors")
def interleave_factors(module: Any) -> None:
    for forall in foralls(module):
        if CONSUMERS.on(forall) or len(forall.results) != 1:
            continue
        insert = _stores(forall)
        if insert is None or not (_ends_whole(forall) or _ends_with_zeros(insert)):
            continue
        products = list(_products(forall.results[0]))
        if products and all(products):
            if not _ends_whole(forall):
                _lengthen(forall, insert)
            for op in (insert, *products):
                INTERLEAVED.set(op)
            remark(forall.location, "a factor is stored in the order of the other one")


def _stores(forall: Any) -> Any:
    """The one op that writes the result of a kernel, if its threads have whole 16s of rows."""
    block = forall.regions[0].blocks[0]
    users = [use.owner.operation for use in block.arguments[len(block.arguments) - 1].uses]
    if len(users) != 1 or users[0].name != "tensor.parallel_insert_slice":
        return None
    tile = _whole_tile(users[0])
    made = defining_op(tile)
    if made is None or made.name != "linalg.generic" or not LAYOUT.on(made):
        return None
    layout = layout_of(made, shape_of(tile))
    return users[0] if isinstance(layout, Layout) and interleaved(layout) else None


def _whole_tile(insert: Any) -> Any:
    """The tile that an op stores what exists of."""
    part = defining_op(insert.operands[0])
    cut = part is not None and part.name == "tensor.extract_slice"
    return part.operands[0] if cut else insert.operands[0]


def _ends_whole(forall: Any) -> bool:
    return extent_multiple(forall.results[0], -1) % INTERLEAVES == 0


def _ends_with_zeros(insert: Any) -> bool:
    """Whether a kernel moves elements, from a tile that is 0 where nothing exists, and the row ends
    where a call says."""
    offsets, sizes, dims = slice_parts(insert)
    made = defining_op(_whole_tile(insert))
    g = read_generic(made)
    moves = g is not None and len(g.inputs) == 1 and _yields_its_input(made)
    padded = defining_op(made.operands[0])
    last = len(offsets) - 1
    return (
        moves
        and padded is not None
        and padded.name == "tensor.pad"  # with 0, as loads are
        and dims[-1] == last
        and not isinstance(sizes[last], int)
        and multiple_of(offsets[last]) % INTERLEAVES == 0
    )


def _yields_its_input(generic: Any) -> bool:
    block = generic.regions[0].blocks[0]
    *inner, end = block.operations
    return not inner and end.operation.operands[0] == block.arguments[0]


def _lengthen(forall: Any, insert: Any) -> None:
    """Make rows of a result end with whole 16s, where it is stored and where it is read."""
    start = defining_op(forall.operands[len(forall.operands) - 1])  # other results may start as it
    end = _up(forall, start.operands[len(start.operands) - 1])
    with ir.InsertionPoint(forall):
        empty = start.clone()
    _set_last(empty, end)
    _set_last(forall, empty.results[0])
    part = defining_op(insert.operands[0])
    _set_last(insert, _set_last(part, _up(part, part.operands[len(part.operands) - 1])))
    for use in list(forall.results[0].uses):
        load = use.owner.operation
        offsets, sizes, _ = slice_parts(load)
        if isinstance(sizes[-1], int):
            continue
        (pad,) = (u.owner.operation for u in load.results[0].uses)
        with ir.InsertionPoint(load), load.location:
            tile = shape_of(pad.results[0])[-1]
            rest = _set_last(load, affine.minimum(affine.sub(end, offsets[-1]), tile))
            _set_last(pad, affine.sub(tile, rest))


def _set_last(op: Any, value: Any) -> Any:
    op.operands[len(op.operands) - 1] = value
    return value


def _up(before: Any, value: Any) -> Any:
    """A number, up to the next of whole 16s."""
    with ir.InsertionPoint(before), before.location:
        return affine.round_up(value, INTERLEAVES)


def _products(stored: Any) -> Iterator[Any]:
    """For each reader of a tensor the product of warp groups that its tile is a factor of; None for
    one that is anything else."""
    for use in stored.uses:
        op = use.owner.operation
        if op.name != "tensor.extract_slice":
            yield None
            continue
        readers = [u.owner.operation for u in op.results[0].uses]
        if len(readers) == 1 and readers[0].name == "tensor.pad":
            op = readers[0]
            readers = [u.owner.operation for u in op.results[0].uses]
        whole = _in_whole(op)
        yield from (r if whole and _takes(r, op.results[0]) else None for r in readers)


def _in_whole(load: Any) -> bool:
    """Whether a load in a kernel of specialised warps begins and ends with whole 16s of a row."""
    forall = load.parent
    while forall is not None and forall.name != "scf.forall":
        forall = forall.parent
    if forall is None or not CONSUMERS.on(forall):
        return False
    window = load_window(load.results[0], forall)
    inner = None if window is None else window.offsets[-1]
    if inner is None or window.dims[-1] != len(window.offsets) - 1:
        return False
    first = inner if isinstance(inner, int) else multiple_of(inner)
    return first % INTERLEAVES == 0 and window.shape[-1] % INTERLEAVES == 0


def _takes(op: Any, tile: Any) -> bool:
    """Whether an op multiplies a tile, as its right factor along rows, by one that is computed."""
    g = read_generic(op) if op.name == "linalg.generic" else None
    p = None if g is None else read_contraction(g)
    if p is None or {factor_type(g, k) for k in (0, 1)} != {FLOAT8}:
        return False
    p = p.swapped() if SWAPPED.on(op) else p
    made = defining_op(g.inputs[p.a])
    along = all(g.maps[x].index(p.k) == 1 for x in (p.a, p.b))
    return g.inputs[p.b] == tile and along and made is not None and made.name == "linalg.generic"
