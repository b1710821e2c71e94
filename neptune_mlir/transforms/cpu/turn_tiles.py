# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `turn-tiles`: tiles of a streamed loop lie so that vectors run along what stays.

A product of tiles c[i, j] = Σ_k a[i, k] b[j, k] reads one operand as vectors, which has to be
contiguous along c's last dimension: here b is transposed first. Where b is a tile of the stream and
a stays for the whole loop, that is a transposition in every iteration, and b often is a factor of
another product, that reads it as it lies. So c becomes c[j, i], and a is transposed once. That pays
where a has enough rows for whole vectors.

What c goes into turns with it. Elementwise ops do not care, and products that read c as scalars do
not either; where something else reads one of these tiles (a sum over a row, a result that is
stored), all of them stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.analysis.products import product_operands
from neptune_mlir.ir.bindings import ir, tensor
from neptune_mlir.targets import cpu
from neptune_mlir.transforms.registry import register


@register("turn-tiles", "transpose tiles of a streamed loop where its factors then lie right")
def turn_tiles(module: Any, *, vector_bits: int = 0) -> None:
    lanes = (vector_bits or cpu.host().vector_bits) // 32
    for function in module.body.operations:
        for body in function.regions[0].blocks if len(function.regions) else ():
            for loop in _loops(body):
                _turn(loop.regions[0].blocks[0], lanes)


def _loops(block: Any) -> list[Any]:
    found = []
    for op in block.operations:
        for region in op.operation.regions if op.operation.name.startswith("scf.") else ():
            for inner in region.blocks:
                found += ([op.operation] if op.operation.name == "scf.for" else []) + _loops(inner)
    return found


@dataclass
class _Tiles:
    """Tiles that turn together: the results of these ops; `readers` are products of them."""

    makers: list[Any] = field(default_factory=list)
    readers: list[tuple[Any, int]] = field(default_factory=list)


def _turn(block: Any, lanes: int) -> None:
    done: list[Any] = []
    for op in [op.operation for op in block.operations]:
        if op not in done and _transposes_the_stream(op, block) and _rows(op) % lanes == 0:
            tiles = _together(op, block)
            if tiles is not None:
                done += tiles.makers
                _rewrite(tiles)


def _maps(op: Any) -> list[Any]:
    return [a.value for a in op.attributes["indexing_maps"]]


def _dims(indexing: Any) -> list[int] | None:
    """The loops that an operand is read at, where it is read at loops only."""
    plain = all(isinstance(e, ir.AffineDimExpr) for e in indexing.results)
    return [e.position for e in indexing.results] if plain else None


def _is_generic(op: Any) -> bool:
    return bool(op.name == "linalg.generic" and len(op.results) == 1)


def _made_in(value: Any, block: Any) -> bool:
    if isinstance(value, ir.BlockArgument):
        return bool(value.owner == block)
    return bool(value.owner.operation.block == block)


def _transposes_the_stream(op: Any, block: Any) -> bool:
    """A product c[i, j] of a[i, k], which stays, and b[j, k], which the loop brings."""
    pair = product_operands(op.regions[0].blocks[0]) if _is_generic(op) else None
    if pair is None:
        return False
    maps = _maps(op)
    dims = [_dims(maps[k]) for k in (*pair, 2)]
    if any(d is None or len(d) != 2 for d in dims):
        return False
    row, column = dims[2]
    for (mine, other), (a, b) in zip((pair, pair[::-1]), (dims[:2], dims[1::-1]), strict=True):
        if a[0] == row and b[0] == column and a[1] == b[1]:
            stays, streamed = op.operands[mine], op.operands[other]
            return not _made_in(stays, block) and _made_in(streamed, block)
    return False


def _rows(op: Any) -> int:
    return int(op.results[0].type.shape[0])


def _together(first: Any, block: Any) -> _Tiles | None:
    """The tiles that turn with the result of an op; None where one of them cannot."""
    tiles, pending = _Tiles(), [first]
    while pending:
        op = pending.pop()
        if op in tiles.makers:
            continue
        if not _can_turn(op, block):
            return None
        tiles.makers.append(op)
        if not _is_product(op):
            pending += _makers_of_inputs(op)
        for use in op.results[0].uses:
            reader = use.owner.operation
            if not _is_generic(reader) or reader.block != block:
                return None
            if _is_elementwise(reader):
                pending.append(reader)
            elif _reads_scalars(reader, use.operand_number):
                tiles.readers.append((reader, use.operand_number))
            else:
                return None
    return tiles


def _is_product(op: Any) -> bool:
    return product_operands(op.regions[0].blocks[0]) is not None


def _is_elementwise(op: Any) -> bool:
    return all("parallel" in str(a) for a in op.attributes["iterator_types"])


def _can_turn(op: Any, block: Any) -> bool:
    """An op of the block that makes a tile of two dimensions: a product of which one operand comes
    with the loop, or an elementwise op whose other tiles of two dimensions can turn, too."""
    if not _is_generic(op) or op.block != block or len(op.results[0].type.shape) != 2:
        return False
    if not op.results[0].type.has_static_shape or not _is_new(op.operands[len(op.operands) - 1]):
        return False
    if _is_product(op):
        return _transposes_the_stream(op, block)
    if not _is_elementwise(op) or len(op.attributes["iterator_types"]) != 2:
        return False
    plain = all(_dims(m) in ([0, 1], [0], [1], []) for m in _maps(op))
    return plain and all(maker is not None for maker in _makers_of_inputs(op))


def _makers_of_inputs(op: Any) -> list[Any]:
    """What makes the inputs of two dimensions; None for a tile that is not made here."""
    return [
        None if isinstance(v, ir.BlockArgument) else v.owner.operation
        for v, m in zip(list(op.operands)[:-1], _maps(op), strict=False)
        if m.n_dims == len(m.results)
    ]


def _is_new(value: Any) -> bool:
    """Whether an `outs` operand is there for its shape, or one number everywhere."""
    return not isinstance(value, ir.BlockArgument) and value.owner.operation.name in (
        "tensor.empty", "linalg.fill",
    )  # fmt: skip


def _reads_scalars(op: Any, position: int) -> bool:
    """A product whose vectors run along a dimension that this operand does not have."""
    maps = _maps(op)
    mine, out = _dims(maps[position]), _dims(maps[-1])
    return bool(_is_product(op) and mine and out and len(mine) == 2 and out[-1] not in mine)


def _rewrite(tiles: _Tiles) -> None:
    for op in tiles.makers:
        swap = {0: 1, 1: 0} if not _is_product(op) else _swap_of(op)
        turned = {r for r in range(len(op.operands)) if _is_turned(op.operands[r], tiles)}
        turned.add(len(op.operands) - 1)
        _set_maps(op, [
            _moved(m, swap, reverse=k in turned) for k, m in enumerate(_maps(op))
        ])  # fmt: skip
        _swap_positions(op, swap)
        out = len(op.operands) - 1
        with ir.InsertionPoint(op), op.location:
            op.operands[out] = _turned_destination(op.operands[out])
    for op in tiles.makers:
        op.results[0].set_type(op.operands[len(op.operands) - 1].type)
    for op, position in tiles.readers:
        _set_maps(op, [
            _moved(m, {}, reverse=k == position) for k, m in enumerate(_maps(op))
        ])  # fmt: skip


def _swap_of(op: Any) -> dict[int, int]:
    row, column = _dims(_maps(op)[-1]) or (0, 1)
    return {row: column, column: row}


def _is_turned(value: Any, tiles: _Tiles) -> bool:
    return not isinstance(value, ir.BlockArgument) and value.owner.operation in tiles.makers


def _moved(indexing: Any, swap: dict[int, int], reverse: bool) -> Any:
    """A map with loops renamed, and for a turned tile with its dimensions in reverse order."""
    places = [swap.get(e.position, e.position) for e in indexing.results]
    order = [ir.AffineDimExpr.get(p) for p in (reversed(places) if reverse else places)]
    return ir.AffineMap.get(indexing.n_dims, 0, order)


def _set_maps(op: Any, maps: list[Any]) -> None:
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])


def _swap_positions(op: Any, swap: dict[int, int]) -> None:
    for inner in op.regions[0].blocks[0].operations:
        if inner.operation.name == "linalg.index":
            attribute = ir.IntegerAttr(inner.operation.attributes["dim"])
            inner.operation.attributes["dim"] = ir.IntegerAttr.get(
                attribute.type, swap.get(attribute.value, attribute.value)
            )


def _turned_destination(value: Any) -> Any:
    kind = value.type
    empty = tensor.EmptyOp(list(reversed(kind.shape)), kind.element_type).result
    source = value.owner.operation
    if source.name == "tensor.empty":
        return empty
    fill = source.clone()
    fill.operands[1] = empty
    fill.results[0].set_type(empty.type)
    return fill.results[0]
