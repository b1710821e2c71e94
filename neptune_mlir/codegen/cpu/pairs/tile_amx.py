# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMX: products of packed tiles (`tile_pairs`), as calls of its instructions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.pairs.tile_magnitudes import integer
from neptune_mlir.codegen.cpu.pairs.tile_routines import call, flat, rows
from neptune_mlir.codegen.cpu.scratch import Scratch
from neptune_mlir.codegen.cpu.tile_contract import TileContraction
from neptune_mlir.ir.bindings import arith, ir, llvm, memref, vector

TILE = 16  # rows and words of a tile; all extents are multiples of these, or of two of them
BLOCK = 2  # sums are held in so many rows and columns of tiles; factors have as many tiles each


def whole_depth(depth: int) -> int:
    """A sum of so many products in whole tiles."""
    return -(-depth // (2 * TILE)) * 2 * TILE


def multiply(
    em: VectorEmitter, c: TileContraction, left: MemoryView, right: MemoryView, start: Any
) -> None:
    """Emit a product of packed factors. `start`: None where the output is added to, else it begins
    as 0."""
    g = c.generic
    (m,), k = c.rows, g.reduced.index(True)
    assert c.c.view is not None
    sums = em.shifted(c.c.view, [g.lows[e.position] for e in c.c.index])
    down = BLOCK if g.extents[m] % (BLOCK * TILE) == 0 else 1
    odd = g.extents[c.v] % (BLOCK * TILE) != 0
    name = f"amx_{'add' if start is None else 'set'}_{down}{'_odd' * odd}"
    arguments = [
        *_place(em, sums, [0, 0]), *_place(em, left, [g.lows[m], 0]), *_place(em, right, [0, 0]),
        c.live_rows(em), g.extents[c.v],
        whole_depth(g.extents[k]) // 2,
    ]  # fmt: skip

    def body(em: VectorEmitter, given: list[Any]) -> None:
        sums, right = rows(*given[:3]), rows(*given[6:9])
        left = rows(given[3], given[4], given[5], width=16)
        product = _AmxProduct(sums, left, right, start is None, given[11])
        _loops(em, product, given[9:11], down, odd)

    call(em, name, arguments, body)


def _place(em: VectorEmitter, view: MemoryView, first: list[Index]) -> list[Index]:
    return [flat(view), em.address(view, first), view.strides[0]]


@dataclass(frozen=True)
class _AmxProduct:
    sums: MemoryView
    left: MemoryView
    right: MemoryView
    adds: bool
    depth: Any  # words of a sum


def _loops(em: VectorEmitter, p: _AmxProduct, ends: list[Any], down: int, odd: bool) -> None:
    """Blocks of `down` x BLOCK tiles of sums, and a last column of tiles that may be `odd`."""

    def across(i: Index, _: list[Any]) -> list[Any]:
        def one(j: Index, _: list[Any]) -> list[Any]:
            _block(em, p, i, j, down, BLOCK)
            return []

        whole = em.sub(ends[1], TILE * odd)
        em.loop(0, whole, BLOCK * TILE, one)
        if odd:
            _block(em, p, i, whole, down, 1)
        return []

    em.loop(0, ends[0], down * TILE, across)


def _block(em: VectorEmitter, p: _AmxProduct, i: Index, j: Index, down: int, across: int) -> None:
    cells = [(r, n, r * BLOCK + n) for r in range(down) for n in range(across)]
    left_at = BLOCK * BLOCK
    right_at = left_at + BLOCK

    def corner(r: int, n: int) -> list[Index]:
        return [em.add(i, r * TILE), em.add(j, n * TILE)]

    def step(at: Index, _: list[Any]) -> list[Any]:
        for n in range(across):
            _tile(em, "tileloadd64", right_at + n, p.right, [at, em.add(j, n * TILE)])
        for r in range(down):
            _tile(em, "tileloadd64", left_at + r, p.left, [em.add(i, r * TILE), em.mul(at, 2)])
        for r, n, total in cells:
            _intrinsic("tdpbf16ps", [_number(t) for t in (total, left_at + r, right_at + n)])
        return []

    for r, n, total in cells:
        if p.adds:
            _tile(em, "tileloadd64", total, p.sums, corner(r, n))
        else:
            _intrinsic("tilezero", [_number(total)])
    em.loop(0, p.depth, TILE, step)
    for r, n, total in cells:
        _tile(em, "tilestored64", total, p.sums, corner(r, n))


def release() -> None:
    _intrinsic("tilerelease", [])


def configure(em: VectorEmitter, scratch: Scratch) -> None:
    """Give all tiles 16 rows of 64 bytes, in this thread."""
    words = em.vector_type(integer(32), TILE)
    sizes = [1, 0, 0, 0, *[0x00400040] * 4, 0, 0, 0, 0, 0x10101010, 0x10101010, 0, 0]
    place = scratch.allocate(integer(32), (TILE,), 0)
    vector.store(em.row(sizes, words), place.base, [em.value(place.offset)])
    _intrinsic("ldtilecfg", [_pointer(em, place, [0])])


def _tile(em: VectorEmitter, name: str, tile: int, view: MemoryView, at: list[Index]) -> None:
    """Load or store 16 rows of 64 bytes."""
    pitch = em.value(em.mul(view.strides[0], view.kind.width // 8))
    pitch = arith.index_cast(integer(64), pitch)
    _intrinsic(name, [_number(tile), _pointer(em, view, at), pitch])


def _pointer(em: VectorEmitter, view: MemoryView, position: list[Index]) -> Any:
    start = memref.extract_aligned_pointer_as_index(view.base)
    place = em.mul(em.address(view, position), view.kind.width // 8)
    number = arith.index_cast(integer(64), em.value(em.add(start, place)))
    return llvm.pointer(number)


def _intrinsic(name: str, arguments: list[Any]) -> None:
    llvm.call_intrinsic(None, f"llvm.x86.{name}", arguments)


def _number(value: int, width: int = 8) -> Any:
    """A constant that stands where an instruction has it."""
    return llvm.constant(ir.IntegerAttr.get(integer(width), value))
