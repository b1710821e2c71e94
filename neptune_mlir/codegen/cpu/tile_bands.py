# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which points of a product a mask leaves: those of a band, `y - x <= most`.

Where a diagonal goes through a tile, half of its scores are masked. Nobody reads them but under the
mask, and the weights that come of them are 0. So blocks of a product end where the band does:

* a tile that it reads is 0 outside of the band (`where(j <= i + c, v, 0)`, or an exponential of
  `where(j <= i + c, v, -inf)` less a number that is not -inf): what is multiplied with that adds
  nothing;
* the tile that it makes is read under the condition alone: what is outside may be anything.

Blocks go over the edge by less than a block, and there all is computed. What is outside of the band
is no part of the sum, as in tiles that masks leave nothing of, whatever the other factor holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, VectorEmitter
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op

_LESS = {2: (1, 1), 3: (1, 0), 4: (-1, 1), 5: (-1, 0)}  # of cmpi: a sign, what is added: <= 0


@dataclass(frozen=True)
class Band:
    """The points with `y - x <= most`, for loops (or dimensions of a tile) x and y; `most` is a
    constant and a sum of numbers of the kernel, each with a factor."""

    x: int
    y: int
    terms: tuple[tuple[Any, int], ...]
    constant: int

    def most(self, em: VectorEmitter) -> Index:
        total: Index = self.constant
        for value, factor in self.terms:
            part = em.mul(value, abs(factor))
            total = em.add(total, part) if factor > 0 else em.sub(total, part)
        return total


Bands = tuple[Band, ...]


def bands_of(product: Any, starts: bool) -> list[Band]:
    """The bands outside of which a product of tiles needs no point, of its loops. `starts`: its
    result is not added to what was there."""
    found: list[Band] = []
    maps = [ir.AffineMapAttr(a).value for a in product.attributes["indexing_maps"]]
    for k, (tile, indexing) in enumerate(zip(product.operands, maps, strict=True)):
        if not _is_local(tile, product):
            continue
        written = k == len(maps) - 1
        if written and not starts:
            continue
        bands = _read_within(tile, product) if written else _zero_outside(tile, product)
        loops = [ir.AffineDimExpr(e).position for e in indexing.results]
        found += [Band(loops[b.x], loops[b.y], b.terms, b.constant) for b in bands]
    return found


def _is_local(tile: Any, op: Any) -> bool:
    """Whether computations of one block are all that touch a tile."""
    made = defining_op(tile)
    if made is None or made.name != "memref.alloc" or made.block != op.block:
        return False
    users = [use.owner.operation for use in tile.uses]
    return all(
        user.name in ("linalg.generic", "memref.dealloc") and user.block == op.block
        for user in users
    )


def _zero_outside(tile: Any, reader: Any) -> Bands:
    """The bands outside of which a tile holds 0 where an op reads it."""
    wanted, bands = 0.0, Bands()
    op, value = _maker(tile, reader)
    while value is not None:
        block = op.regions[0].blocks[0]
        if isinstance(value, ir.BlockArgument):
            k = value.arg_number
            if value.owner != block or k >= _inputs(op) or not _is_point(op, k):
                break
            op, value = _maker(op.operands[k], op)
            continue
        made = value.owner.operation
        if made.name == "arith.select" and _number(made.operands[2]) == wanted:
            bands = _union(bands, _bands(made.operands[0], block))
            value = made.operands[1]
        elif made.name in ("math.exp", "math.exp2") and wanted == 0:
            wanted, value = -math.inf, made.operands[0]
        elif made.name == "arith.subf" and wanted and _is_guarded(made.operands[1]):
            value = made.operands[0]
        else:
            break
    return bands


def _maker(tile: Any, reader: Any) -> tuple[Any, Any]:
    """The op that makes each point of a tile that `reader` reads, and the value in its body."""
    for op in _before(reader) if _is_local(tile, reader) else ():
        if op.name != "linalg.generic" or tile not in list(op.operands)[_inputs(op) :]:
            continue
        k = list(op.operands).index(tile, _inputs(op))
        block = op.regions[0].blocks[0]
        last = block.operations[len(block.operations) - 1]
        return (op, last.operands[k - _inputs(op)]) if _is_point(op, k) else (None, None)
    return None, None


def _is_guarded(value: Any) -> bool:
    """Whether a value is `where(m == -inf, 0, m)`."""
    made = defining_op(value)
    if made is None or made.name != "arith.select" or _number(made.operands[1]) != 0:
        return False
    test = defining_op(made.operands[0])
    if test is None or test.name != "arith.cmpf" or test.operands[0] != made.operands[2]:
        return False
    equal = int(ir.IntegerAttr(test.attributes["predicate"]).value) == 1
    return equal and _number(test.operands[1]) == -math.inf


# --- what is read of a tile


def _read_within(tile: Any, product: Any) -> Bands:
    """The bands that all readers of what a product makes stay in."""
    found: Bands | None = None
    for op in _behind(product):
        if tile not in list(op.operands) or op.name == "memref.dealloc":
            continue
        block = op.regions[0].blocks[0]
        for k, value in enumerate(op.operands):
            if value == tile and list(block.arguments[k].uses):
                if not _is_point(op, k):
                    return ()
                within = _used_within(block.arguments[k], block)
                found = within if found is None else _common(found, within)
        if tile in list(op.operands)[_inputs(op) :]:  # what it reads later is that op's
            break
    return found or ()


def _used_within(argument: Any, block: Any) -> Bands:
    """The bands outside of which nothing that a body yields depends on an argument."""
    within: dict[Any, Bands] = {}
    for op in reversed([o.operation for o in block.operations]):
        uses = [within[v] for v in op.results if v in within]
        if op.name == "linalg.yield":
            uses = [()]
        for n, value in enumerate(op.operands if uses else []):
            bands = uses[0]
            if op.name == "arith.select" and n == 1:
                bands = _union(bands, _bands(op.operands[0], block))
            within[value] = _common(within[value], bands) if value in within else bands
    return within.get(argument, ())


# --- conditions


def _bands(condition: Any, block: Any) -> Bands:
    """The bands that a condition keeps to."""
    found, pending = Bands(), [condition]
    while pending:
        made = defining_op(pending.pop())
        if made is None or made.block != block:
            continue
        if made.name == "arith.andi":
            pending += reversed(list(made.operands))
        elif made.name == "arith.cmpi":
            found = _union(found, _band(made, block))
    return found


def _band(compared: Any, block: Any) -> Bands:
    """The band of a comparison of integers, if it is one."""
    predicate = int(ir.IntegerAttr(compared.attributes["predicate"]).value)
    sign, constant = _LESS.get(predicate, (0, 0))
    loops: dict[int, int] = {}
    terms: dict[Any, int] = {}
    pending = [(compared.operands[0], sign), (compared.operands[1], -sign)] if sign else []
    while pending:
        value, factor = pending.pop()
        made = defining_op(value)
        if not isinstance(value.type, ir.IndexType):
            return ()
        if made is not None and made.name == "arith.constant":
            constant += factor * int(ir.IntegerAttr(made.attributes["value"]).value)
        elif value.owner != block and (made is None or made.block != block):
            terms[value] = terms.get(value, 0) + factor
        elif made is not None and made.name == "linalg.index":
            d = int(ir.IntegerAttr(made.attributes["dim"]).value)
            loops[d] = loops.get(d, 0) + factor
        elif made is not None and made.name in ("arith.addi", "arith.subi"):
            first, second = made.operands
            pending += [(second, factor if made.name == "arith.addi" else -factor), (first, factor)]
        else:
            return ()
    loops = {d: n for d, n in loops.items() if n}
    if sorted(loops.values()) != [-1, 1]:
        return ()
    x, y = sorted(loops, key=lambda d: loops[d])
    return (Band(x, y, tuple((v, -n) for v, n in terms.items() if n), -constant),)


def _union(a: Bands, b: Bands) -> Bands:
    return a + tuple(band for band in b if band not in a)


def _common(a: Bands, b: Bands) -> Bands:
    return tuple(band for band in a if band in b)


# --- ops


def _before(op: Any) -> Iterator[Any]:
    operations = [o.operation for o in op.block.operations]
    return reversed(operations[: operations.index(op)])


def _behind(op: Any) -> Iterator[Any]:
    operations = [o.operation for o in op.block.operations]
    return iter(operations[operations.index(op) + 1 :])


def _is_point(op: Any, k: int) -> bool:
    """Whether operand k has an element for each point of an op, in the order of its loops."""
    maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
    return bool(maps[k] == ir.AffineMap.get_identity(maps[k].n_dims))


def _number(value: Any) -> float | None:
    made = defining_op(value)
    if made is None or made.name != "arith.constant":
        return None
    number = made.attributes["value"]
    return float(ir.FloatAttr(number).value) if isinstance(number, ir.FloatAttr) else None


def _inputs(op: Any) -> int:
    return int(next(iter(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))))
