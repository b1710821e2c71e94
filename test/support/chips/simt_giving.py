# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What warps of a block send to another device (`codegen.nvidia.links.send`)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from neptune_mlir.codegen.nvidia.links.send import SPARE
from neptune_mlir.runtime.shards.gift import BYTES, CHUNK, MOST, OFFSETS


def send(block: Any, text: str, operands: Any, mask: np.ndarray) -> None:
    """The chunks of a block's warps in each step; a word by the last warp of all."""
    (address,), numbers = np.unique(operands[0][mask]), operands[1][mask]
    heap, gift = block.memory.heap, _record(block.memory.heap, int(address))
    if not gift["items"]:
        return
    assert sorted(numbers) == [n for n in range(SPARE) for _ in range(32)]
    assert "fence.acq_rel.sys;\nbar.warp.sync" in text and "fence.acq_rel.sys;\nst.release" in text
    warps, first = SPARE * block.launch.blocks, gift["size"] - gift["step"]

    def word(place: int, value: int) -> None:
        heap[place : place + 4] = np.array([value], np.int32).view(np.uint8)

    for step, (low, high) in enumerate([(first, gift["size"]), (0, first)]):
        begin, chunks = low * gift["row"], (high - low) * gift["row"] // CHUNK
        for number in range(SPARE):
            for chunk in range(block.number * SPARE + number, chunks * gift["items"], warps):
                row, item = divmod(chunk, gift["items"])
                lane, tensor = divmod(item, gift["tensors"])
                at = begin + (chunks - 1 - row) * CHUNK
                source, target = (gift[x][tensor] + lane * gift[f"{x}_lane"] + at
                                  for x in ("source", "target"))  # fmt: skip
                heap[target : target + CHUNK] = heap[source : source + CHUNK]
            place = gift["counter"] + 4 * step
            (count,) = heap[place : place + 4].view(np.int32)
            word(place, (count + 1) % warps)
            if count == warps - 1:
                if gift["forgotten"]:
                    word(gift["forgotten"], 0)
                word(gift["word"], gift["size"] if step else gift["step"])


def _record(heap: np.ndarray, address: int) -> dict[str, Any]:
    raw = bytes(heap[address : address + BYTES])
    found: dict[str, Any] = {}
    for name in ("source", "target"):
        found[name] = struct.unpack_from(f"<{MOST}Q", raw, OFFSETS[name])
    for name in ("word", "counter", "forgotten"):
        (found[name],) = struct.unpack_from("<Q", raw, OFFSETS[name])
    for name in ("source_lane", "target_lane", "items", "tensors", "row", "size", "step"):
        (found[name],) = struct.unpack_from("<I", raw, OFFSETS[name])
    return found
