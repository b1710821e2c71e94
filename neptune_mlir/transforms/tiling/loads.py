# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of tensors from outside the kernel: where an access stands, and how much of it exists.

A position is affine, or a lookup plus that (`algebra/access.py`). A lookup is one number for the
tile at hand, read by the program (`tensor.extract`) and clamped to what exists, so that a tile
through a table is a slice like any other: a tile of keys lies in one page. Where a tile lies in
several (`paged_view.py`), it is a slice of a view of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import AccessIndex, elements, position_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.masks import Linear, affine_part, conjuncts, constraints
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.scalars import Emitter, cast
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import ir, tensor
from neptune_mlir.transforms.tiling import paged_view
from neptune_mlir.transforms.tiling.kernel import LOOPED, TileKernel
from neptune_mlir.transforms.tiling.slices import Tile, extract_slice, pad

if TYPE_CHECKING:
    from neptune_mlir.transforms.tiling.emit import Frame


@dataclass(frozen=True)
class _Place:
    """Where an access stands along a dimension: the tile of `axis`, or one element (None)."""

    offset: Index
    axis: int | None = None
    tile: Tile | None = None


class Loads:
    """Loads of one kernel, each made in the outermost frame that can."""

    def __init__(self, kernel: TileKernel, values: nests.Values):
        self._kernel = kernel
        self._values = values
        self._looped = frozenset(k for k, a in enumerate(kernel.axes) if a.role in LOOPED)
        self._live = affine_part(kernel.live)

    def tile(
        self, read: Term, frame: Frame, limits: Sequence[Linear] = ()
    ) -> tuple[Any, list[int]]:
        """The tile that `read` takes its elements from, 0 where one of `limits` is negative, and
        the axis of each of its dimensions."""
        axes = read.axes.union(*(form.axes for form in limits))
        home = frame.outermost(axes & self._looped)
        key = (read, tuple(limits))
        if key not in home.made:
            with home.here():
                home.made[key] = self._slice(read, home, limits)
        return home.made[key]

    def may_limit(self, read: Term, forms: Sequence[Linear], frame: Frame) -> bool:
        """Whether a load can end where a form becomes negative: each bounds the stream from above,
        for all of the tile alike, and no tile is visited in which none is left."""
        stream = self._kernel.stream
        if stream is None or stream not in read.axes:
            return False
        return all(
            form in self._live and form.coefficient(stream) == -1
            and self.is_uniform(form.without(stream), frame)
            for form in forms
        )  # fmt: skip

    def is_uniform(self, form: Linear, frame: Frame) -> bool:
        """Whether a form is one number in a frame."""
        if form.remainders:
            return False
        single = all(frame.binds(a) and frame.tile(a).size == 1 for a in form.axes)
        return single and self.are_known(form.reads, frame)

    def are_known(self, reads: Iterable[Term], frame: Frame) -> bool:
        """Whether each of these elements is one number in a frame."""
        return all(self._is_one(index, frame) for read in reads for index in read.args)

    def _is_one(self, index: Term, frame: Frame) -> bool:
        """Whether an index of a read is one number in a frame."""
        position = position_of(index)
        if position is None or any(not frame.binds(a) for a in index.axes):
            return False
        if position.lookup is not None and not self.are_known([position.lookup], frame):
            return False
        size = 1 if position.axis is None else frame.tile(position.axis).size
        return size == 1 or position.divisor % size == 0

    def element(self, read: Term, frame: Frame) -> Any:
        """The one element, as index, that `read` takes in a frame."""
        home = frame.outermost(read.axes & self._looped)
        if ("element", read) not in home.made:
            with home.here():
                places = [self._place(i, read, d, home) for d, i in enumerate(read.args)]
                varying = next((p.axis for p in places if p.tile is not None), None)
                if varying is not None:
                    raise self._straddles(self._kernel.axes[varying], "(looked up)", 1)
                at = [ix.value(p.offset) for p in places]
                found = tensor.ExtractOp(self._values[read.attr], at).result
                index = found if read.dtype == "index" else cast(found, read.dtype, "index")
                home.made["element", read] = index
        return home.made["element", read]

    def scalar(self, atom: Term, frame: Frame) -> Any:
        """An atom of a form that is one number in a frame, as index."""
        if atom.op == "index":
            return frame.tile(atom.attr).offset
        if atom.op == "read":
            return self.element(atom, frame)
        if atom.is_const:
            return int(atom.value)
        scalar = T.make("cast", atom, dtype="index")
        return Emitter(lambda leaf: self._values[leaf.attr]).emit(scalar)

    def is_live(self, frame: Frame) -> Any:
        """1 where the tile at hand may be live, 0 where it is not, by what `live` reads for a whole
        tile; None where it reads nothing but what bounds the stream."""
        found = []
        for part in conjuncts(self._kernel.live):
            reads = elements(part)
            positions = T.substitute(part, {r: T.const(0, r.dtype) for r in reads}).axes
            if reads and not positions and constraints(part) is None:
                found += [part] if self.are_known(reads, frame) else []
        if not found:
            return None

        def leaf(t: Term) -> Any:
            if t.op == "sym":
                return self._values[t.attr]
            index = self.element(t, frame)
            return index if t.dtype == "index" else cast(index, "index", t.dtype)

        with frame.here():
            return cast(Emitter(leaf).emit(T.conjunction(found)), "i1", "index")

    # ---- slices

    def _slice(self, read: Term, frame: Frame, limits: Sequence[Linear]) -> tuple[Any, list[int]]:
        offsets: list[Index] = []
        sizes: list[Index] = []
        kept: list[int] = []
        tiles: list[Tile] = []
        axes: list[int] = []
        source = self._values[read.attr]
        pages = paged_view.find(read, frame, self._kernel)
        for dim, index in enumerate(read.args):
            if pages is not None and dim == pages.slot:
                continue
            if pages is not None and dim == pages.dim:
                place = _Place(frame.tile(pages.axis).offset, pages.axis, frame.tile(pages.axis))
            else:
                place = self._place(index, read, dim, frame)
            offsets.append(place.offset)
            if place.tile is None or place.axis is None:
                sizes.append(1)
                continue
            tile = self._limited(place.tile, place.axis, limits, frame)
            sizes.append(tile.valid)
            kept.append(len(offsets) - 1)
            tiles.append(tile)
            axes.append(place.axis)
        if pages is not None:
            at = [
                self._place(index, pages.lookup, d, frame).offset
                for d, index in enumerate(pages.lookup.args) if d != pages.column
            ]  # fmt: skip
            count = self._extent(read, pages.dim, frame)
            source = paged_view.write(source, self._values[pages.lookup.attr], pages, at, count)
        if len(tiles) == 1 and tiles[0].own is not None:  # a number of each row
            sizes[kept[0]] = tiles[0].own
            tiles = [replace(tiles[0], valid=tiles[0].own)]
        loaded = extract_slice(source, offsets, sizes, kept)
        return pad(loaded, tiles), axes

    def _limited(self, tile: Tile, axis: int, limits: Sequence[Linear], frame: Frame) -> Tile:
        """The part of the streamed axis' tile where all forms are 0 or more."""
        if axis != self._kernel.stream or not limits:
            return tile
        ends = []
        for form in limits:  # rest - position >= 0: positions up to rest
            rest = form.without(axis)
            atoms = [(self.scalar(atom, frame), c) for atom, c in rest.ordered()]
            end = ix.weighted_sum(atoms, rest.constant + 1)
            ends.append(ix.sub(end, tile.offset))
        return Tile(tile.size, tile.offset, ix.minimum(tile.valid, *ends))

    def _place(self, index: Term, read: Term, dim: int, frame: Frame) -> _Place:
        position = position_of(index)
        assert position is not None, f"verified: {index}"
        place = self._digit(position, frame)
        if position.constant:
            place = _Place(ix.add(place.offset, position.constant), place.axis, place.tile)
        if position.lookup is None:
            return place
        found = self.element(position.lookup, frame)
        return self._inside(place, ix.add(found, place.offset), self._extent(read, dim, frame))

    def _inside(self, place: _Place, offset: Index, extent: Index) -> _Place:
        """A place that data moved, clamped to what exists."""
        offset = ix.maximum(ix.minimum(offset, ix.sub(extent, 1)), 0)
        tile = place.tile
        if tile is not None:
            tile = Tile(tile.size, tile.offset, ix.minimum(tile.valid, ix.sub(extent, offset)))
        return _Place(offset, place.axis, tile)

    def _extent(self, read: Term, dim: int, frame: Frame) -> Index:
        """The extent of a tensor; what the host says of it is said in front of the kernel."""
        source = self._values[read.attr]
        kind = ir.RankedTensorType(source.type)
        if not kind.is_dynamic_dim(dim):
            return kind.shape[dim]
        root = frame
        while root.parent is not None:
            root = root.parent
        key = ("extent", read.attr, dim)
        if key not in root.made:
            with ir.InsertionPoint(root.block.owner):
                root.made[key] = tensor.DimOp(source, ix.value(dim)).result
        return root.made[key]

    def _digit(self, position: AccessIndex, frame: Frame) -> _Place:
        """Where the affine part of a position stands, but for its constant."""
        if position.axis is None:
            return _Place(0)
        tile, axis = frame.tile(position.axis), self._kernel.axes[position.axis]
        if not position.is_digit:
            return _Place(tile.offset, position.axis, tile if tile.size > 1 else None)
        known = axis.extent if ix.is_static(axis.extent) else None
        divisor, modulus = position.divisor, position.modulus
        if divisor > 1:
            if divisor % tile.size and not (known is not None and known <= divisor):
                raise self._straddles(axis, f"floordiv {divisor}", divisor)
            offset = ix.floordiv(tile.offset, divisor)
            return _Place(offset if modulus is None else ix.mod(offset, modulus))
        assert modulus is not None
        if known is not None and known <= modulus:
            return _Place(tile.offset, position.axis, tile if tile.size > 1 else None)
        if modulus % tile.size:
            raise self._straddles(axis, f"mod {modulus}", modulus)
        offset = ix.mod(tile.offset, modulus)
        return _Place(offset, position.axis, tile if tile.size > 1 else None)

    def _straddles(self, axis: Any, digit: str, constant: int) -> Exception:
        return self._kernel.error(
            f"a tile of {axis.size} along '{axis.name}' meets more than one position of "
            f"'{axis.name} {digit}'",
            hint=f"use a tile size that divides {constant}",
        )
