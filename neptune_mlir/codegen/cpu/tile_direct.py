# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that need no memory of their own: those that are read, or made, where an array lies.

A kernel copies a tile of an array into scratch, computes, and copies tiles of results out. Where
each point of a tile is read by loops that end where the array does, and vectors run along the
dimension that is contiguous in the array, the copy does nothing but cost time: readers may read
the array, and who makes a result may write it. Whether the array is contiguous is known at run
time, so each such tile stays in scratch for arrays that are not (`vectorize-tiles` chooses between
two addresses, not between two pieces of code).

What products read often is better read where it lies in one piece, with strides that are known. A
whole tile of contiguous rows that have all of the array's elements lies in the array as it would in
scratch, and is read there where that is so.

A result that no cache holds is stored past the caches, for else memory is read before it is
written. That pays where whole lines are stored one after the other alone. So the array has to have
UNCACHED bytes, its rows WIDE elements and whole lines, which is known at run time too. In kernels
that compute functions (exponentials) stores are not what is waited for: they were slower so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.tile_live import LiveSizes
from neptune_mlir.codegen.cpu.tile_ops import TileGeneric, copied_places, filled_with
from neptune_mlir.ir.bindings import arith, ir, memref
from neptune_mlir.targets.cpu import LINE, UNCACHED

# an instruction or two
CHEAP = {"math.absf", "math.copysign", "math.fma", "math.rsqrt", "math.sqrt"}
WIDE = 512  # elements of a row from which its lines are filled one after the other


@dataclass(frozen=True)
class DirectTile:
    """One that may lie in an array.

    Attributes:
        tile: the value of its `memref.alloc`.
        copy: the op that loads or stores it.
        loads: whether it is read (else it is made).
        within: for each dimension, how many elements of the array there are; None: all of the
            tile's.
        fills: ops that give it its padding, of no use where it lies in an array.
        alike: whether it has the strides of its own memory there, or is not read there.
    """

    tile: Any
    copy: Any
    loads: bool
    within: tuple[Index | None, ...]
    fills: tuple[Any, ...] = ()
    alike: bool = False

    @property
    def may_go_past(self) -> bool:
        """Whether nothing but its copy reads the tile, in a kernel that computes no functions."""
        function = self.copy.parent
        while function.name != "func.func":
            function = function.parent
        functions: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name.startswith("math.") and op.name not in CHEAP:
                functions.append(op)
            return ir.WalkResult.ADVANCE

        function.walk(visit)
        return not functions and not self._is_read()

    def _is_read(self) -> bool:
        users = _users(self.tile)
        parts = [op.results[0] for op, _ in users if op.name == "memref.subview"]
        users += [user for part in parts for user in _users(part)]
        return any(
            op != self.copy and op.name != "memref.subview" and not _only_writes(op, k)
            for op, k in users
        )


# (op, tile, within) -> the loop that is vectorised if the tile lies in an array; None: do not
# an op with its operands resolved to views; None for one that works on parts of arrays
GenericOf = Callable[[Any], TileGeneric | None]
VectorLoop = Callable[[Any, Any, tuple[Index | None, ...]], int | None]
# (tile, array) -> whether elements lie in the array as they do in the tile, if strides are equal
MayBeAlike = Callable[[Any, Any], bool]


def find(
    function: Any, generic_of: GenericOf, live: LiveSizes, vector_loop: VectorLoop,
    may_be_alike: MayBeAlike,
) -> dict[Any, DirectTile]:  # fmt: skip
    """The tiles of a kernel that need no memory, by the op that copies them."""
    search = _Search(generic_of, live, vector_loop, may_be_alike)
    function.walk(search.visit)
    return search.run()


def place(
    em: VectorEmitter, tile: MemoryView, direct: DirectTile, outside: MemoryView
) -> tuple[Any, MemoryView]:
    """Whether an array is contiguous as vectors need it; a tile there, or else where it is."""
    if direct.alike:
        same: Any = True
        for n, m in zip(outside.strides, tile.strides, strict=True):
            same = em.both(same, em.equal(n, m))
        base = em.either(same, outside.base, tile.base)
        return same, replace(tile, base=base, offset=em.select(same, outside.offset, tile.offset))
    slot = tile.slot
    unit = em.equal(outside.strides[slot.inner], 1)
    strides = tuple(
        1 if d == slot.inner else em.select(unit, n, m)
        for d, (n, m) in enumerate(zip(outside.strides, tile.strides, strict=True))
    )
    return unit, MemoryView(
        em.either(unit, outside.base, tile.base), tile.kind,
        em.select(unit, outside.offset, tile.offset), tile.sizes, strides, slot, None,
        direct.within,
    )  # fmt: skip


def fills_lines(em: VectorEmitter, part: MemoryView) -> Any:
    """Whether (i1) the array of a part is large, and its rows are whole lines, and long; None where
    that is certain not to be so."""
    array = part.slot
    kind = ir.MemRefType(array.type)
    if kind.rank < 2:
        return None
    width = max(8, kind.element_type.width) // 8
    data = list(memref.ExtractStridedMetadataOp(array).results)
    sizes, strides = data[2 : 2 + kind.rank], data[2 + kind.rank :]
    start = memref.extract_aligned_pointer_as_index(array)
    start = em.add(start, em.mul(data[1], width))
    total: Index = width
    for size in sizes:
        total = em.mul(total, size)
    at_least = arith.CmpIPredicate.uge
    found = arith.cmpi(at_least, em.value(total), em.constant(UNCACHED))
    found = em.both(found, arith.cmpi(at_least, sizes[-1], em.constant(WIDE)))
    found = em.both(found, em.equal(strides[-1], 1))
    for n in (start, *(em.mul(n, width) for n in (*strides[:-1], sizes[-1]))):
        found = em.both(found, em.equal(arith.remui(n, em.constant(LINE)), 0))
    return found


class _Search:
    def __init__(
        self, generic_of: GenericOf, live: LiveSizes, vector_loop: VectorLoop,
        may_be_alike: MayBeAlike,
    ) -> None:  # fmt: skip
        self._generic_of, self._live, self._vector_loop = generic_of, live, vector_loop
        self._may_be_alike = may_be_alike
        self._copies: list[Any] = []
        self._written: set[Any] = set()  # arrays
        self._read: set[Any] = set()

    def visit(self, op: Any) -> Any:
        if op.name == "memref.copy":
            self._copies.append(op)
            self._touch(op.operands[0], self._read)
            self._touch(op.operands[1], self._written)
        elif op.name == "linalg.generic":
            inputs = _inputs(op)
            for k, value in enumerate(op.operands):
                self._touch(value, self._read if k < inputs else self._written)
                if k >= inputs and list(op.regions[0].blocks[0].arguments[k].uses):
                    self._touch(value, self._read)
            if inputs == 1 and len(op.operands) == 2:
                self._copies.append(op)
        elif op.name == "memref.store":
            self._touch(op.operands[1], self._written)
        elif op.name not in _VIEWS:
            for value in op.operands:
                self._touch(value, self._read)
        return ir.WalkResult.ADVANCE

    def run(self) -> dict[Any, DirectTile]:
        found: dict[Any, DirectTile] = {}
        for look in (self._load, self._store):
            for copy in self._copies:
                made = None if copy in found else look(copy, found)
                if made is not None:
                    found[copy] = made
        return found

    def _touch(self, value: Any, group: set[Any]) -> None:
        if isinstance(value.type, ir.MemRefType):
            group.add(_root(value))

    # --- tiles that are read

    def _load(self, copy: Any, _: Any) -> DirectTile | None:
        source, target = copy.operands
        array = _root(source)
        if not _is_argument(array) or array in self._written:
            return None
        if copy.name == "linalg.generic" and not _copies_straight(copy):
            return None
        part = _part(target)
        if part is None:
            return None
        tile, within = part
        fills, readers = [], []
        for user, position in _users(tile):
            if user == copy or user.name == "memref.dealloc":
                continue
            if user.name == "memref.subview":
                if any(use.owner.operation != copy for use in user.results[0].uses):
                    return None
            elif user.name != "linalg.generic":
                return None
            elif position >= _inputs(user):
                if not self._pads(user):
                    return None
                fills.append(user)
            elif not _follows(user, copy):
                return None
            else:
                readers.append((user, position))
        if not readers:
            return None
        alike = not all(self._suits(*reader, tile, within) for reader in readers)
        if alike and (any(n is not None for n in within) or not self._may_be_alike(tile, array)):
            return None
        return DirectTile(tile, copy, True, within, tuple(fills), alike)

    def _pads(self, op: Any) -> bool:
        """Whether an op fills a tile with zeros: what lanes behind the end of an array read as."""
        generic = self._generic_of(op)
        value = None if generic is None else filled_with(generic)
        if value is None or isinstance(value, ir.BlockArgument):
            return False
        made = value.owner.operation
        if made.name != "arith.constant":
            return False
        number = made.attributes["value"]
        kind = ir.FloatAttr if isinstance(value.type, _FLOATS) else ir.IntegerAttr
        return bool(kind(number).value == 0)

    # --- tiles that are made

    def _store(self, copy: Any, known: dict[Any, DirectTile]) -> DirectTile | None:
        if copy.name != "memref.copy":
            return None
        source, target = copy.operands
        array = _root(target)
        part = _part(source)
        if not _is_argument(array) or array in self._read or part is None:
            return None
        tile, within = part
        maker = None
        for user, position in _users(tile):
            if user.name == "memref.subview":
                if any(use.owner.operation != copy for use in user.results[0].uses):
                    return None
            elif user.name == "linalg.generic" and position >= _inputs(user) and maker is None:
                maker = (user, position)
            elif user != copy and user.name != "memref.dealloc":
                return None
        if maker is None or not self._makes(*maker) or not _soon(maker[0], copy, array, known):
            return None
        if not self._suits(*maker, tile, within):
            return None
        return DirectTile(tile, copy, False, within)

    def _makes(self, op: Any, position: int) -> bool:
        """Whether an op writes each point of an output once, without reading it."""
        generic = self._generic_of(op)
        unread = not list(op.regions[0].blocks[0].arguments[position].uses)
        if generic is None or not unread or any(generic.reduced):
            return False
        return filled_with(generic) is None

    # --- loops

    def _suits(self, op: Any, position: int, tile: Any, within: tuple[Index | None, ...]) -> bool:
        """Whether the loops of an op stay inside of the array, or mask what is outside."""
        generic = self._generic_of(op)
        if generic is None or copied_places(generic) is not None:
            return False
        index = generic.operands[position].index
        if not all(isinstance(e, ir.AffineDimExpr) for e in index):
            return False
        loops = [e.position for e in index]
        vector = self._vector_loop(op, tile, within)
        if vector is None or len({*loops}) < len(loops):
            return False
        exact = self._live.exact(op)
        return all(
            n is None or d == vector or (exact[d] and not isinstance(n, int))
            for d, n in zip(loops, within, strict=True)
        )


_VIEWS = {  # ops on arrays that neither read nor write elements
    "memref.subview", "memref.cast", "memref.dim", "memref.extract_strided_metadata",
    "memref.reinterpret_cast",
}  # fmt: skip
_FLOATS = (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)


def _copies_straight(op: Any) -> bool:
    """Whether a computation only copies, and turns nothing."""
    first, second = (ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"])
    block = op.regions[0].blocks[0]
    identity = ir.AffineMap.get_identity(second.n_dims)
    moves = len(block.operations) == 1 and block.operations[0].operands[0] == block.arguments[0]
    return bool(first == second == identity and moves)


def _inputs(op: Any) -> int:
    return int(next(iter(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))))


def _root(value: Any) -> Any:
    """The array, or the tile, that a value is a part of."""
    while not isinstance(value, ir.BlockArgument) and value.owner.operation.name in (
        "memref.subview", "memref.cast",
    ):  # fmt: skip
        value = value.owner.operation.operands[0]
    return value


def _is_argument(value: Any) -> bool:
    """Whether a value is an array (and no array of bits: these are bytes in memory)."""
    if not isinstance(value, ir.BlockArgument):
        return False
    return str(value.type.element_type) != "i1"


def _part(value: Any) -> tuple[Any, tuple[Index | None, ...]] | None:
    """The tile that a value starts with, and how much of each dimension it is."""
    if isinstance(value, ir.BlockArgument):
        return None
    op = value.owner.operation
    if op.name == "memref.alloc":
        return value, (None,) * value.type.rank
    if op.name != "memref.subview" or isinstance(op.operands[0], ir.BlockArgument):
        return None
    tile = op.operands[0]
    if tile.owner.operation.name != "memref.alloc" or value.type.rank != tile.type.rank:
        return None
    marker = ir.ShapedType.get_dynamic_size()
    offsets, sizes, strides = (
        [int(x) for x in ir.DenseI64ArrayAttr(op.attributes[name])]
        for name in ("static_offsets", "static_sizes", "static_strides")
    )
    if any(offsets) or any(s != 1 for s in strides):
        return None
    dynamic = iter(list(op.operands)[1:])
    found = [next(dynamic) if n == marker else n for n in sizes]
    whole = list(tile.type.shape)
    return tile, tuple(
        None if isinstance(n, int) and n == m else n for n, m in zip(found, whole, strict=True)
    )


def moved_by_loop(part: Any) -> tuple[int, int] | None:
    """The dimension along which a part of an array moves with the loop around it, and how far it
    moves in a step."""
    op = None if isinstance(part, ir.BlockArgument) else part.owner.operation
    if op is None or op.name != "memref.subview" or op.parent.name != "scf.for":
        return None
    variable = op.block.arguments[0]
    step = op.parent.operation.operands[2].owner
    if isinstance(step, ir.Block) or step.operation.name != "arith.constant":
        return None
    marker = ir.ShapedType.get_dynamic_size()
    dynamic = iter(list(op.operands)[1:])
    offsets = [int(x) for x in ir.DenseI64ArrayAttr(op.attributes["static_offsets"])]
    for dim, offset in enumerate(offsets):
        if offset == marker and next(dynamic) == variable:
            return dim, int(ir.IntegerAttr(step.operation.attributes["value"]).value)
    return None


def _only_writes(op: Any, k: int) -> bool:
    """Whether an op reads nothing of its operand of a number, but writes it."""
    written = op.name == "linalg.generic" and k >= _inputs(op)
    return written and not list(op.regions[0].blocks[0].arguments[k].uses)


def _users(tile: Any) -> list[tuple[Any, int]]:
    return [(use.owner.operation, use.operand_number) for use in tile.uses]


def _follows(op: Any, other: Any) -> bool:
    """Whether `op` runs after `other`, and as often or more."""
    while op.block != other.block:
        op = op.parent.operation if op.parent is not None else None
        if op is None or op.name == "func.func":
            return False
    return bool(other.is_before_in_block(op))


def _soon(op: Any, copy: Any, array: Any, known: dict[Any, DirectTile]) -> bool:
    """Whether `copy` comes behind `op`, and between them are only computations that do not write
    the array (a pad's fill), ops that touch no memory, and copies that are known to be direct."""
    if op.block != copy.block or not op.is_before_in_block(copy):
        return False
    between = False
    for other in op.block.operations:
        if other.operation == copy:
            return True
        if between and not touches_nothing(other.operation):
            if other.operation.name != "linalg.generic":
                if other.operation not in known:
                    return False
            elif any(_root(v) == array for v in list(other.operands)[_inputs(other.operation) :]):
                return False
        between = between or other.operation == op
    return False


def touches_nothing(op: Any) -> bool:
    """Whether computations may move behind `op`: it touches no memory."""
    return op.name.startswith(("arith.", "affine.", "math.", "index.")) or op.name in (
        "memref.alloc", "memref.subview", "memref.cast", "memref.dim",
    )  # fmt: skip
