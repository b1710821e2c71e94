# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles in a worker's scratch memory: where they lie and in which order of dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import MemoryView, VectorEmitter
from neptune_mlir.ir.bindings import arith, ir, memref

_ALIGN = 64  # bytes of a line
_SPREAD = 512  # bytes from row to row


@dataclass(eq=False)
class Slot:
    """One tile. Dimension `inner` is contiguous and rounded up to whole vectors; the others
    keep their order."""

    kind: Any
    shape: tuple[int, ...]
    inner: int
    start: int = 0  # where it lies, once it has a place

    def strides(self, em: VectorEmitter) -> tuple[int, ...]:
        """Strides in elements."""
        rank = len(self.shape)
        strides = [1] * rank
        if not rank:
            return ()
        pitch = -(-self.shape[self.inner] // em.lanes) * em.lanes
        # rows a multiple of 512 bytes apart would fall into an eighth of the sets of the nearest
        # cache, or fewer; a line more each spreads them over all
        if pitch * _bytes(self.kind) % _SPREAD == 0 and rank > 1:
            pitch += max(em.lanes, _ALIGN // _bytes(self.kind))
        for d in reversed([d for d in range(rank) if d != self.inner]):
            strides[d] = pitch
            pitch *= self.shape[d]
        return tuple(strides)

    def view(self, em: VectorEmitter, base: Any) -> MemoryView:
        padded = self.inner if self.shape else None
        return MemoryView(base, self.kind, 0, self.shape, self.strides(em), self, padded)


class Scratch:
    """Hands out places in the scratch memory that a kernel gets as its last argument."""

    def __init__(self, em: VectorEmitter, memory: Any):
        self.em, self.memory, self.size = em, memory, 0
        self._kept: dict[tuple[Any, tuple[int, ...], int], MemoryView] = {}

    def allocate(self, kind: Any, shape: tuple[int, ...], inner: int) -> MemoryView:
        slot = Slot(kind, shape, inner)
        return slot.view(self.em, self.place(slot))

    def once(self, kind: Any, shape: tuple[int, ...], inner: int) -> MemoryView:
        """The same memory for all that ask for such: it is theirs until the next does."""
        key = (kind, shape, inner)
        if key not in self._kept:
            self._kept[key] = self.allocate(kind, shape, inner)
        return self._kept[key]

    def words(self, view: MemoryView) -> MemoryView:
        """A tile of 16-bit numbers as 32-bit words, two neighbours in each."""
        return self._seen_as(view, ir.IntegerType.get_signless(32))

    def halves(self, view: MemoryView) -> MemoryView:
        """A tile of 16-bit numbers as integers."""
        return self._seen_as(view, ir.IntegerType.get_signless(16))

    def _seen_as(self, view: MemoryView, kind: Any) -> MemoryView:
        slot, many = view.slot, kind.width // view.kind.width
        flat = self._flat(kind, slot.start, self._elements(slot) // many)
        inner = slot.inner
        sizes = tuple(n // many if d == inner else n for d, n in enumerate(view.sizes))
        strides = tuple(s if d == inner else s // many for d, s in enumerate(view.strides))
        assert all(s % many == 0 for d, s in enumerate(view.strides) if d != inner)
        offset = view.offset
        if many > 1:
            offset = self.em.quotient(offset, many)
        return replace(view, base=flat, kind=kind, offset=offset, sizes=sizes, strides=strides)

    def place(self, slot: Slot) -> Any:
        """Flat memory for a slot in its present layout, made at the kernel's entry."""
        stored = slot.kind if slot.kind != self.em.i1 else ir.IntegerType.get_signless(8)
        elements = self._elements(slot)
        slot.start = self.size
        self.size += -(-elements * _bytes(slot.kind) // _ALIGN) * _ALIGN + _ALIGN
        return self._flat(stored, slot.start, elements)

    def _elements(self, slot: Slot) -> int:
        elements = 1
        for size, stride in zip(slot.shape, slot.strides(self.em), strict=True):
            elements = max(elements, size * stride)
        return elements + self.em.lanes  # vectors along the contiguous dimension run past its end

    def _flat(self, stored: Any, start: int, elements: int) -> Any:
        with ir.InsertionPoint.at_block_begin(self.memory.owner):
            shift = arith.ConstantOp(self.em.index, start).result
            length = arith.ConstantOp(self.em.index, elements).result
            flat = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], stored)
            return memref.view(flat, self.memory, shift, [length])


def _bytes(kind: Any) -> int:
    if isinstance(kind, ir.IndexType):
        return 8
    return max(1, int(kind.width) // 8)
