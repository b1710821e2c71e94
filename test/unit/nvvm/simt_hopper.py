# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`simt.Block` with what sm_90a has: specialised warps, barriers, the copy engine, wgmma.

The producer runs before the consumers, all its waits passing: each barrier that it arms keeps the
loads of its phases, and they arrive when a consumer first waits for the phase. So this sees which
tile a thread reads, and a wait for what nobody brings, but no ring that is written too early.
A product of a warp group is there when it is issued.

What is stored is as late as it may be: a box is read from shared memory when its group is waited
for, and what was written over it before that is what arrives. It may only be started when all its
bytes were written before a proxy fence, and a block may not end while one is under way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simt

from neptune_mlir.bindings import ir

GROUP = 128  # threads
ROW = 128  # bytes of a swizzled row: 8 chunks of 16 bytes
_QUAD, _LANE = np.arange(GROUP) % 4, np.arange(GROUP) % 32 // 4
FIRST_ROW = np.arange(GROUP) // 32 * 16 + _LANE  # of those that a thread of a group holds


@dataclass(frozen=True)
class TensorMap:
    """What `Driver.tensor_map` encodes."""

    dtype: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return int(np.prod(self.box)) * simt.SIZES[self.dtype]

    def rows(self, where: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of the rows of 128 bytes of the box at `where`, and which of them exist."""
        assert self.box[0] == self.extents[0] == ROW // simt.SIZES[self.dtype] and where[0] == 0
        sizes = self.box[1:]
        inside = np.indices(sizes[::-1]).reshape(len(sizes), -1)[::-1]  # the first axis is fastest
        at = inside + np.array(where[1:], np.int64)[:, None]
        exists = ((at >= 0) & (at < np.array(self.extents[1:])[:, None])).all(0)
        return self.address + np.array(self.strides, np.int64) @ at, exists


def swizzled(start: int, rows: int) -> np.ndarray:
    """Where the bytes of rows of 128 bytes lie, [rows, 128]: chunks of 16, swizzled by the row."""
    place = start + np.arange(rows * ROW).reshape(rows, ROW)
    return swizzle(place)


def swizzle(place: np.ndarray) -> np.ndarray:
    return place ^ (place >> 7 & 7) << 4


class Maps:
    """Stands in for the driver: its tensor maps are kept, kernels get their numbers."""

    def __init__(self) -> None:
        self.made: list[TensorMap] = []

    def tensor_map(self, dtype: str, address: int, extents: Any, strides: Any, box: Any) -> int:
        assert all(s % 16 == 0 and s > 0 for s in strides) and address % 16 == 0
        assert all(0 < n <= 256 for n in box) and 3 <= len(box) <= 5
        lists = (tuple(extents), tuple(strides), tuple(box))
        self.made.append(TensorMap(dtype, address, *lists))
        return len(self.made) - 1


Loads = list[tuple[TensorMap, list[int], int]]


@dataclass
class Barrier:
    """Phases that the copy engine completes: the bytes and the loads of each to come."""

    done: int = 0
    coming: list[tuple[int, Loads]] = field(default_factory=list)


class HopperBlock(simt.Block):
    """One block of threads; `maps` are those of its arguments."""

    def __init__(
        self, function: Any, memory: simt.Memory, arguments: list[Any], number: int, maps: Maps
    ):
        self.maps = maps
        self.fresh: set[int] = set()  # bytes of shared memory that the copy engine may not see yet
        warps = next(iter(ir.DenseI32ArrayAttr(function.attributes["known_block_size"]))) // 32
        self.boxes: list[list[Any]] = [[] for _ in range(warps)]
        self.stored = 0
        self.producing = False
        self.barriers: dict[int, Barrier] = {}
        self.products, self.products_by_warp = 0, 0  # of warp groups; small ones, of single warps
        super().__init__(function, memory, arguments, number)
        assert not any(self.boxes), "a block ends while its shared memory is being read"
        left = [x for b in self.barriers.values() for x in b.coming]
        assert not left, "a block ends before what it loads has come"

    # ---- values

    def _llvm_store(self, op: Any, operands: Any, mask: np.ndarray) -> None:
        super()._llvm_store(op, operands, mask)
        if "<3>" in str(op.operands[1].type):
            size = simt.to_bytes(operands[0], self._vector(op.operands[0].type)[0]).shape[1]
            for start in operands[1][mask]:
                self.fresh.update(range(start, start + size))

    def _llvm_mlir_constant(self, op: Any, operands: Any, mask: Any) -> Any:
        return self._arith_constant(op, operands, mask)

    def _llvm_ptrtoint(self, op: Any, operands: Any, mask: Any) -> Any:
        return operands[0]

    def _llvm_inttoptr(self, op: Any, operands: Any, mask: Any) -> Any:
        return operands[0].astype(np.int64)

    def _nvvm_shfl_sync(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        if "idx" not in str(op.attributes["kind"]):
            return super()._nvvm_shfl_sync(op, operands, mask)
        self._warps(mask)
        return operands[1][np.arange(self.threads) // 32 * 32 + operands[2]]

    def _nvvm_mma_sync(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        self.products_by_warp += len(self._warps(mask))
        return super()._nvvm_mma_sync(op, operands, mask)

    # ---- roles

    def _scf_if(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        """Of the branches that part producer and consumers, the producer's comes first."""
        if len(op.regions) < 2 or not self._is_producer(op.regions[1]):
            return super()._scf_if(op, operands, mask)
        consumers, producer = (region.blocks[0] for region in op.regions)
        self.producing = True
        self.run(producer, mask & ~operands[0])
        self.producing = False
        self.run(consumers, mask & operands[0])
        return None

    @staticmethod
    def _is_producer(region: Any) -> bool:
        if not len(region.blocks):
            return False
        first = region.blocks[0].operations[0].operation
        return first.name == "llvm.inline_asm" and "setmaxnreg.dec" in _text(first)

    # ---- inline PTX

    def _llvm_inline_asm(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        text = _text(op)
        if "mbarrier" in text and "init" in text:
            return None  # by one thread
        self._warps(mask)
        for part, handler in INSTRUCTIONS.items():
            if part in text:
                return handler(self, text, operands, mask)
        return super()._llvm_inline_asm(op, operands, mask)

    def _one(self, values: np.ndarray, mask: np.ndarray) -> int:
        """The value that all active threads hold."""
        found = values[mask]
        assert (found == found[0]).all(), "threads differ"
        return int(found[0])

    def _nothing(self, text: str, operands: Any, mask: np.ndarray) -> None:
        pass

    def _same(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        return operands[0]

    def _vote(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        return np.repeat((operands[0] != 0).reshape(-1, 32).all(1), 32).astype(np.int32)

    def _store_chunk(self, text: str, operands: Any, mask: np.ndarray) -> None:
        pointer, *words, wanted = operands
        there = mask & (wanted != 0)
        raw = simt.to_bytes(np.stack(words, 1), "i32")
        assert (pointer[there] % 16 == 0).all()
        self.memory.heap[pointer[there][:, None] + np.arange(16)] = raw[there]

    # ---- barriers and the copy engine's loads

    def _expect(self, text: str, operands: Any, mask: np.ndarray) -> None:
        assert self.producing and len(self._warps(mask)) == 1
        barrier = self.barriers.setdefault(self._one(operands[0], mask), Barrier())
        barrier.coming.append((int(re.findall(r"\], (\d+);", text)[0]), []))

    def _load_box(self, text: str, operands: Any, mask: np.ndarray) -> None:
        assert len(self._warps(mask)) == 1
        target, number, *where, barrier = (self._one(v, mask) for v in operands[:-1])
        assert f".{len(where)}d." in text and target % 1024 == 0
        loads = self.barriers[barrier].coming[-1][1]
        loads.append((self.maps.made[number], where, target))

    def _wait(self, text: str, operands: Any, mask: np.ndarray) -> None:
        address, parity = (self._one(v, mask) for v in operands)
        if self.producing:
            return
        barrier = self.barriers.setdefault(address, Barrier())
        if barrier.done % 2 != parity:
            return  # this phase is complete
        assert barrier.coming, "a wait for what nobody brings"
        expected, loads = barrier.coming.pop(0)
        barrier.done += 1
        assert sum(tensor_map.bytes for tensor_map, _, _ in loads) == expected
        for tensor_map, where, target in loads:
            source, exists = tensor_map.rows(where)
            rows = np.zeros((len(source), ROW), np.uint8)
            rows[exists] = self.memory.heap[source[exists][:, None] + np.arange(ROW)]
            self.shared[swizzled(target, len(source))] = rows

    # ---- the copy engine's stores

    def _publish(self, text: str, operands: Any, mask: np.ndarray) -> None:
        self.fresh.clear()

    def _store_box(self, text: str, operands: Any, mask: np.ndarray) -> None:
        found = re.search(r"elect\.sync _\|p, -1;\n@p cp\.async\.bulk\.tensor\.(\d)d\.global", text)
        assert found and text.endswith("cp.async.bulk.commit_group;"), text
        assert len(operands) == 2 + int(found[1])
        for warp in self._warps(mask):
            lanes = np.arange(self.threads) // 32 == warp
            number, start, *where = (self._one(v, lanes) for v in operands)
            tensor_map = self.maps.made[number]
            written = range(start, start + tensor_map.bytes)
            assert start % 1024 == 0 and not self.fresh & set(written)
            self.boxes[warp].append((tensor_map, where, start))
            self.stored += 1

    def _await_boxes(self, text: str, operands: Any, mask: np.ndarray) -> None:
        for warp in self._warps(mask):
            for tensor_map, where, start in self.boxes[warp]:
                target, exists = tensor_map.rows(where)
                rows = self.shared[swizzled(start, len(target))]
                self.memory.heap[target[exists][:, None] + np.arange(ROW)] = rows[exists]
            self.boxes[warp].clear()

    # ---- products of warp groups

    def _multiply(self, text: str, operands: Any, mask: np.ndarray) -> list[np.ndarray]:
        groups = mask.reshape(-1, GROUP)
        assert (groups.all(1) == groups.any(1)).all(), "a warp does a warp group's product alone"
        steps = re.findall(
            r"add\.s64 b, \$(\d+), (\d+);\nwgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16"
            r"\.f32\.(b?f16)\.b?f16 \{.*?\}, (\{.*?\}|a), b, ([pq]), 1, 1, (?:0, )?([01]);", text,
        )  # fmt: skip
        moves = re.findall(r"add\.s64 a, \$(\d+), (\d+);", text)
        assert len(steps) == text.count("wgmma.mma_async")
        width = int(steps[0][2])
        count = width // 2
        out = [np.zeros(self.threads, np.float32) for _ in range(count)]
        for group in np.flatnonzero(groups.all(1)):
            here = slice(group * GROUP, (group + 1) * GROUP)
            total = np.zeros((64, width), np.float32)
            for k, (place, move, _, dtype, left, keep, transposed) in enumerate(steps):
                values = [v[here] for v in operands]
                if left == "a":
                    at, by = (int(x) for x in moves[k])
                    a = self._matrix(values[at - count], by, 64, dtype, False)
                else:
                    words = [values[int(x) - count] for x in re.findall(r"\$(\d+)", left)]
                    a = _from_words(words, dtype)
                moved = int(move)
                b = self._matrix(values[int(place) - count], moved, width, dtype, transposed == "1")
                if k == 0 and keep == "p":
                    for i in range(count):
                        total[_row(i), _column(i)] = values[i]
                total = total + a @ b.T
            for i in range(count):
                out[i][here] = total[_row(i), _column(i)]
            self.products += 1
        return out

    def _matrix(
        self, descriptors: np.ndarray, moved: int, rows: int, dtype: str, transposed: bool
    ) -> np.ndarray:
        """What a descriptor names, [rows, 16]; `transposed`: the rows run along shared memory."""
        assert (descriptors == descriptors[0]).all(), "threads differ"
        bits = int(descriptors[0]) + moved
        assert bits >> 62 == 1  # swizzled by 128 bytes
        start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        row, k = np.arange(rows)[:, None], np.arange(16)
        if transposed:
            place = row // 64 * leading + row % 64 * 2 + k // 8 * stride + k % 8 * ROW
        else:
            place = row // 8 * stride + row % 8 * ROW + 2 * k
        raw = self.shared[swizzle(start + place)[..., None] + np.arange(2)]
        return simt.from_bytes(raw, dtype)[..., 0].astype(np.float32)

    def _tied(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        return list(operands)


def _row(i: int) -> np.ndarray:
    """Of an accumulator's register, in each thread of a group."""
    return FIRST_ROW + 8 * (i // 2 % 2)


def _column(i: int) -> np.ndarray:
    return 8 * (i // 4) + 2 * _QUAD + i % 2


def _from_words(words: list[np.ndarray], dtype: str) -> np.ndarray:
    """A left factor in registers, [64, 16]."""
    found = np.zeros((64, 16), np.float32)
    for i, word in enumerate(words):
        pair = simt.from_bytes(simt.to_bytes(word, "i32"), dtype).astype(np.float32)
        for j in range(2):
            found[FIRST_ROW + 8 * (i % 2), 8 * (i // 2) + 2 * _QUAD + j] = pair[:, j]
    return found


def _text(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["asm_string"]).value)


# by what the text of the inline PTX has, the first that fits
INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "wgmma.mma_async": HopperBlock._multiply,
    "wgmma.wait_group": HopperBlock._tied,
    "mbarrier.try_wait": HopperBlock._wait,
    "mbarrier.arrive.expect_tx": HopperBlock._expect,
    "mbarrier.arrive": HopperBlock._nothing,
    "fence.mbarrier_init": HopperBlock._nothing,
    "fence.proxy.async": HopperBlock._publish,
    "cp.async.bulk.wait_group.read 0": HopperBlock._await_boxes,
    "shared::cluster.global.mbarrier::complete_tx": HopperBlock._load_box,
    "global.shared::cta.bulk_group": HopperBlock._store_box,
    "vote.sync.all": HopperBlock._vote,
    "mov.b32 $0, $1;": HopperBlock._same,
    "st.global.v4": HopperBlock._store_chunk,
    "setmaxnreg": HopperBlock._nothing,
    "bar.warp.sync": HopperBlock._nothing,
    "bar.sync": HopperBlock._nothing,
    "bar.arrive": HopperBlock._nothing,
}  # fmt: skip
