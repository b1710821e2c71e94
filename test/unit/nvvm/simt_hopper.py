# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`simt.Block` with the copy engine's stores of sm_90a, as late as they may happen.

A box is read from shared memory when its group is waited for: what was written over it before that
is what arrives. It may only be started when all its bytes were written before a proxy fence, and a
block may not end while one is under way.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import simt

from neptune_mlir.bindings import ir


@dataclass(frozen=True)
class TensorMap:
    """What `Driver.tensor_map` encodes."""

    dtype: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


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
        super().__init__(function, memory, arguments, number)
        assert not any(self.boxes), "a block ends while its shared memory is being read"

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

    def _nvvm_shfl_sync(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        if "idx" not in str(op.attributes["kind"]):
            return super()._nvvm_shfl_sync(op, operands, mask)
        assert mask.all()
        return operands[1][np.arange(self.threads) // 32 * 32 + operands[2]]

    def _llvm_inline_asm(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        text = ir.StringAttr(op.attributes["asm_string"]).value
        assert mask.all(), "some threads leave the others"
        if text.startswith("bar.warp.sync"):
            return None
        if text.startswith("fence.proxy.async"):
            self.fresh.clear()
            return None
        if text.startswith("cp.async.bulk.wait_group.read 0"):
            for boxes in self.boxes:
                for tensor_map, where, source in boxes:
                    self._write_box(tensor_map, where, source)
                boxes.clear()
            return None
        found = re.search(r"elect\.sync _\|p, -1;\n@p cp\.async\.bulk\.tensor\.(\d)d\.global", text)
        assert found and text.endswith("cp.async.bulk.commit_group;"), text
        rank = int(found[1])
        number, source, *where = operands
        assert len(where) == rank
        for warp in range(self.threads // 32):
            lanes = slice(32 * warp, 32 * warp + 32)
            assert all((v[lanes] == v[32 * warp]).all() for v in operands), "lanes differ"
            tensor_map = self.maps.made[int(number[32 * warp])]
            start = int(source[32 * warp])
            size = int(np.prod(tensor_map.box)) * simt.SIZES[tensor_map.dtype]
            assert start % 1024 == 0 and not self.fresh & set(range(start, start + size))
            self.boxes[warp].append((tensor_map, [int(v[32 * warp]) for v in where], start))
            self.stored += 1
        return None

    def _write_box(self, tensor_map: TensorMap, where: list[int], source: int) -> None:
        column, *rest = where
        assert tensor_map.box[0] == tensor_map.extents[0] == 64 and column == 0
        inside = itertools.product(*(range(n) for n in reversed(tensor_map.box[1:])))
        for row, position in enumerate(inside):  # of 128 bytes
            at = [c + p for c, p in zip(rest, reversed(position), strict=True)]
            limits = tensor_map.extents[1:]
            if any(not 0 <= x < n for x, n in zip(at, limits, strict=True)):
                continue
            steps = zip(at, tensor_map.strides, strict=True)
            target = tensor_map.address + sum(x * step for x, step in steps)
            for k in range(8):  # chunks of 16 bytes, swizzled by the row
                start = source + 128 * row + 16 * (k ^ row % 8)
                chunk = self.shared[start : start + 16]
                self.memory.heap[target + 16 * k : target + 16 * k + 16] = chunk
