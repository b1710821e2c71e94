# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Words in memory by which programs and kernels tell each other what is there, on `simt_hopper`'s
blocks. Blocks and kernels run one behind the other, so what is waited for has been told."""

from __future__ import annotations

import re
from typing import Any

import numpy as np


class Words:
    """What a block does about them."""

    _warps: Any
    _one: Any
    _await_boxes: Any
    threads: int
    memory: Any
    boxes: Any

    def _await_word(self, text: str, operands: Any, mask: np.ndarray) -> None:
        """Blocks run one behind the other, so what a program waits for has been told."""
        assert "fence.proxy.async.global;\nTHERE" in text, text
        for warp in self._warps(mask):
            lanes = np.arange(self.threads) // 32 == warp
            address, turn, _ = (self._one(v, lanes) for v in operands)
            if wanted := turn % (1 << 32):
                found = self.memory.heap[address : address + 4].view(np.int32)[0]
                assert found == wanted, f"a turn that does not come: {found} for {wanted}"

    def _look_at_word(self, text: str, operands: Any, mask: np.ndarray) -> np.ndarray:
        (distance,) = map(int, re.findall(r"\[\$1\+(\d+)\]", text))
        found = np.zeros(self.threads, np.int32)
        for lane in np.flatnonzero(mask & (operands[0] != 0)):
            place = operands[0][lane] + distance
            found[lane] = self.memory.heap[place : place + 4].view(np.int32)[0]
        return found

    def _await_told(self, _: str, operands: Any, mask: np.ndarray) -> None:
        """Kernels run one behind the other, too."""
        for address, wanted in {*zip(*(v[mask] for v in operands), strict=True)}:
            found = self.memory.heap[address : address + 4].view(np.int32)[0]
            assert found == wanted, f"sums that nobody told of: {found} for {wanted}"

    def _tell_word(self, text: str, operands: Any, mask: np.ndarray) -> None:
        assert text.startswith("cp.async.bulk.wait_group 0;"), text
        self._await_boxes(text, operands, mask)
        for warp in self._warps(mask):
            lanes = np.arange(self.threads) // 32 == warp
            address, turn = (self._one(v, lanes) for v in operands)
            if turn >> 32:
                raw = np.array([turn >> 32], np.int32).view(np.uint8)
                self.memory.heap[address : address + 4] = raw

    def _count_word(self, text: str, operands: Any, mask: np.ndarray) -> None:
        for warp in self._warps(mask):
            lanes = np.arange(self.threads) // 32 == warp
            address = self._one(operands[0], lanes)
            assert text.startswith("cp.async.bulk.wait_group 0;"), text
            assert not self.boxes[warp], "sums that nobody waited for"
            self.memory.heap[address : address + 4].view(np.int32)[0] += 1
