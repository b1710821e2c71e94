# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `turn-tiles`: tiles of a streamed loop lie as the products of a target take them.

A product of tiles c[i, j] = Σ_k a[i, k] b[j, k] of which one operand comes with the loop and the
other stays makes c either way round, c[i, j] or c[j, i].

* `stays=columns` (CPUs): vectors run along the last dimension of c, and the operand that has it is
  read along it, so it is transposed first. If that is the operand that stays, it is transposed
  once, and the one that comes, often a factor of another product as well, is read as it lies. That
  pays where what stays has enough rows for whole vectors.
* `stays=rows` (warp groups): the rows of c are those of a group of threads, for the whole loop.
  Only then can c be the left factor, in registers, of a product that sums over what comes. What
  is left over of a stream, behind its loop, turns as well: groups have the same rows there.

What c goes into turns with it. Elementwise ops do not care, and products that read c as their left
factor do not either. Nor do, in registers, reductions that keep what stays: they reduce along rows
then. Where something else reads one of these tiles (a result that is stored), all of them stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.analysis.tiles import read_contraction, read_generic
from neptune_mlir.dialects.verify_aref import LOADS
from neptune_mlir.ir.bindings import ir, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets import cpu
from neptune_mlir.transforms.registry import register


@register("turn-tiles", "transpose tiles of a streamed loop where its factors then lie right")
def turn_tiles(module: Any, *, stays: str = "columns", vector_bits: int = 0) -> None:
    lanes = 1
    if stays == "columns":
        lanes = (vector_bits or cpu.host().vector_bits) // 32
    for function in module.body.operations:
        for body in function.regions[0].blocks if len(function.regions) else ():
            for loop in _loops(body):
                parts = [list(loop.regions[0].blocks[0].operations)]
                if stays == "rows":
                    parts.append(_behind(loop))
                for part in parts:
                    ops = [op.operation for op in part]
                    _Turn(ops, loop.regions[0].blocks[0], int(stays == "columns"), lanes).run()
                if stays == "columns":
                    _load_both_ways(loop)


def _loops(block: Any) -> list[Any]:
    found = []
    for op in block.operations:
        for region in op.operation.regions if op.operation.name.startswith("scf.") else ():
            for inner in region.blocks:
                found += ([op.operation] if op.operation.name == "scf.for" else []) + _loops(inner)
    return found


def _load_both_ways(loop: Any) -> None:
    """Load a tile that stays once more, where products of the loop read it along one of its
    dimensions and along the other: each then has a buffer in which it lies right."""
    body = loop.regions[0].blocks[0]
    # readers of each, by the dimension that vectors run along
    ways: dict[Any, dict[int, list[tuple[Any, int]]]] = {}
    for op in (o.operation for o in body.operations):
        if not _is_generic(op) or not _is_product(op):
            continue
        *factors, out = read_generic(op).maps
        for k, mine in enumerate(factors):
            made = defining_op(op.operands[k])
            loaded = made is not None and made.name in LOADS and made.block != body
            if loaded and out[-1] in mine:
                way = ways.setdefault(op.operands[k], {}).setdefault(mine.index(out[-1]), [])
                way.append((op, k))
    for value, found in ways.items():
        for readers in list(found.values())[1:]:
            load = value.owner.operation
            with ir.InsertionPoint(load):
                again = load.clone()
            for op, k in readers:
                op.operands[k] = again.results[0]


def _behind(loop: Any) -> list[Any]:
    """What follows a loop in its block, before another loop."""
    ops = [op.operation for op in loop.block.operations]
    found: list[Any] = []
    for op in ops[ops.index(loop) + 1 :]:
        if op.name == "scf.for":
            break
        found.append(op)
    return found


@dataclass
class _Tiles:
    """Tiles that turn together: the results of these ops; `readers` are products of them,
    `reductions` have a number for each of their rows."""

    makers: list[Any] = field(default_factory=list)
    reductions: list[Any] = field(default_factory=list)
    readers: list[tuple[Any, int]] = field(default_factory=list)


class _Turn:
    """The ops of one step of a loop, and which dimension of its products should be that of what
    stays. `body`: of the loop, whose arguments change with each step."""

    def __init__(self, ops: list[Any], body: Any, wanted: int, lanes: int):
        self.ops, self.body, self.wanted, self.lanes = ops, body, wanted, lanes

    def run(self) -> None:
        done: list[Any] = []
        for op in self.ops:
            fits = self._lies_wrong(op) and _size(op, 1 - self.wanted) % self.lanes == 0
            if op not in done and fits:
                tiles = self._together(op)
                if tiles is not None:
                    done += tiles.makers
                    _rewrite(tiles)

    def _lies_wrong(self, op: Any) -> bool:
        """A product of what stays and what the loop brings, in the other order."""
        if not _is_generic(op) or not _is_product(op):
            return False
        first, second, out = read_generic(op).maps
        for k, (mine, theirs) in enumerate(((first, second), (second, first))):
            if (mine[0], theirs[0]) == (out[1 - self.wanted], out[self.wanted]):
                stays = not self._is_made_here(op.operands[k])
                comes = self._is_made_here(op.operands[1 - k])
                return mine[1] == theirs[1] and stays and comes
        return False

    def _is_made_here(self, value: Any) -> bool:
        if isinstance(value, ir.BlockArgument):
            return bool(value.owner == self.body)
        return value.owner.operation in self.ops

    def _together(self, first: Any) -> _Tiles | None:
        """The tiles that turn with the result of an op; None where one of them cannot."""
        tiles, pending = _Tiles(), [first]
        while pending:
            op = pending.pop()
            if op in tiles.makers:
                continue
            if not self._can_turn(op):
                return None
            tiles.makers.append(op)
            if not _is_product(op):
                pending += self._made_inputs(op)
            for use in op.results[0].uses:
                reader = use.owner.operation
                if not _is_generic(reader) or reader not in self.ops:
                    return None
                if _is_elementwise(reader):
                    pending.append(reader)
                elif _reads_scalars(reader, use.operand_number):
                    tiles.readers.append((reader, use.operand_number))
                elif reader in tiles.reductions:
                    continue
                elif self._reduces_what_comes(reader, use.operand_number):
                    tiles.reductions.append(reader)
                    pending += self._made_inputs(reader)
                else:
                    return None
        return tiles

    def _made_inputs(self, op: Any) -> list[Any]:
        return [m for m in _makers_of_inputs(op) if not self._stays_loaded(m)]

    def _reduces_what_comes(self, op: Any, position: int) -> bool:
        """A reduction, for groups of threads, of tiles of two dimensions along what the loop
        brings."""
        maps = [_dims(m) for m in _maps(op)]
        mine, out = maps[position], maps[_last(op)]
        plain = all(m in ([0, 1], [0], [1], []) for m in maps)
        made = all(maker is not None for maker in _makers_of_inputs(op))
        return bool(self.wanted == 0 and plain and made and mine and out == [mine[-1]])

    def _stays_loaded(self, op: Any) -> bool:
        """Whether a tile is a load that registers can take either way round: not the vectors of a
        CPU."""
        return bool(self.wanted == 0 and op is not None and op.name in LOADS)

    def _can_turn(self, op: Any) -> bool:
        """An op of the loop that makes a tile of two dimensions: a product that lies wrong, or an
        elementwise op whose other tiles of two dimensions can turn, too."""
        if not _is_generic(op) or op not in self.ops or len(op.results[0].type.shape) != 2:
            return False
        if not op.results[0].type.has_static_shape or not _is_new(op.operands[_last(op)]):
            return False
        if _is_product(op):
            return self._lies_wrong(op)
        if not _is_elementwise(op) or len(op.attributes["iterator_types"]) != 2:
            return False
        plain = all(_dims(m) in ([0, 1], [0], [1], []) for m in _maps(op))
        return plain and all(maker is not None for maker in _makers_of_inputs(op))


def _last(op: Any) -> int:
    return len(op.operands) - 1


def _size(op: Any, dim: int) -> int:
    return int(op.results[0].type.shape[dim])


def _maps(op: Any) -> list[Any]:
    return [a.value for a in op.attributes["indexing_maps"]]


def _dims(indexing: Any) -> list[int] | None:
    """The loops that an operand is read at, where it is read at loops only."""
    plain = all(isinstance(e, ir.AffineDimExpr) for e in indexing.results)
    return [e.position for e in indexing.results] if plain else None


def _is_generic(op: Any) -> bool:
    return bool(op.name == "linalg.generic" and len(op.results) == 1)


def _is_product(op: Any) -> bool:
    plain = all(_dims(m) is not None for m in _maps(op))
    return plain and read_contraction(read_generic(op)) is not None


def _is_elementwise(op: Any) -> bool:
    return all("parallel" in str(a) for a in op.attributes["iterator_types"])


def _makers_of_inputs(op: Any) -> list[Any]:
    """What makes the inputs of two dimensions; None for a tile that is not made here."""
    return [
        defining_op(v)
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
        turned.add(_last(op))
        _set_maps(op, [
            _moved(m, swap, reverse=k in turned) for k, m in enumerate(_maps(op))
        ])  # fmt: skip
        _swap_positions(op, swap)
        if _is_product(op):
            _exchange_factors(op)
        out = _last(op)
        with ir.InsertionPoint(op), op.location:
            op.operands[out] = _turned_destination(op.operands[out])
    for op in tiles.reductions:
        turned = {r for r in range(_last(op)) if _is_turned(op.operands[r], tiles)}
        swap = {0: 1, 1: 0}
        _set_maps(op, [_moved(m, swap, reverse=k in turned) for k, m in enumerate(_maps(op))])
        kinds = op.attributes["iterator_types"]
        op.attributes["iterator_types"] = ir.ArrayAttr.get(list(reversed(list(kinds))))
        _swap_positions(op, swap)
    for op in tiles.makers:
        op.results[0].set_type(op.operands[_last(op)].type)
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


def _exchange_factors(op: Any) -> None:
    """The factor that has the rows comes first."""
    block = op.regions[0].blocks[0]
    first, second = list(block.arguments)[:2]
    if first.type != second.type:
        return
    maps = _maps(op)
    _set_maps(op, [maps[1], maps[0], *maps[2:]])
    op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
    for inner in block.operations:
        for k, operand in enumerate(inner.operation.operands):
            if operand in (first, second):
                inner.operation.operands[k] = second if operand == first else first


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
