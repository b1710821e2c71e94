# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of two GPUs in which the programs of a join trade parts (`codegen.gpu.meeting`)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.distributed as dist

from neptune_mlir.runtime.shards.plan import TRADE_HEAD, TRADE_WORD
from neptune_mlir.torch.distributed.exchange import answering, timeout_of

LARGEST = 1 << 25  # bytes; of more, parts are read where they are


def trade_bytes(programs: int, words: int) -> int:
    """That so many programs have, whose slots have so many words."""
    return programs * (TRADE_HEAD + 2 * words * TRADE_WORD)


class TradeMemory:
    """Memory of a group of two for programs whose slots have so many words. It begins as zeros and
    belongs to kernels alone, whose programs count their calls there; so calls may have any number
    of programs, and other numbers of words have other memory."""

    _known: ClassVar[dict[Any, list[TradeMemory]]] = {}

    def __init__(self, group: dist.ProcessGroup, device: torch.device, size: int):
        import torch.distributed._symmetric_memory as symmetric

        self.size = size
        self._memory = symmetric.empty(size, dtype=torch.uint8, device=device)
        self._memory.zero_()
        if self._memory.is_cuda:  # before anybody writes there
            torch.cuda.synchronize(device)
        with answering("sharing memory", group):
            self._handle = symmetric.rendezvous(self._memory, group)
        self._rank, self._timeout = group.rank(), timeout_of(group, device)

    @classmethod
    def of(
        cls, group: dist.ProcessGroup, device: torch.device, programs: int, words: int
    ) -> TradeMemory:
        """The group's. Where it grows, the smaller one stays: graphs may have its address."""
        kept = cls._known.setdefault((group.group_name, device, words), [])
        size = trade_bytes(programs, words)
        if not kept or kept[-1].size < size:
            least = max(size, 2 * kept[-1].size if kept else 0)
            kept.append(cls(group, device, -(-least // 2**20) * 2**20))
        return kept[-1]

    @property
    def arguments(self) -> tuple[int, int, int, int]:
        """What a join takes (`runtime.shards.plan.MEETING`)."""
        own, other = (self._handle.get_buffer(r, (self.size,), torch.uint8).data_ptr()
                      for r in (self._rank, 1 - self._rank))  # fmt: skip
        return own, other, self._rank, self._timeout
