# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of sm_90a that run together (a cluster), and share what the copy engine brings.

Each block runs until it waits for the other. A copy to both destroys what was there, and is there
when the barrier of either block is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from support.chips import simt
from support.chips.simt_hopper import HopperBlock, text_of
from support.chips.simt_ops import Op
from support.chips.simt_parts import Producer, TensorMap

RANK = 20  # of an address in a cluster, the first bit of the number of its block


class Cluster:
    """Blocks that run in turn, by what makes one of a number. `blocks`: those that have begun."""

    def __init__(self, make: Callable[[Cluster, int], HopperBlock], numbers: Sequence[int]):
        self.blocks: dict[int, ClusterBlock] = {}
        self.size = len(numbers)
        self.met = dict.fromkeys(range(self.size), 0)  # how often each block has met the others
        self.passed = 0  # turns in a row in which nothing happened
        self.seen: Any = None  # what there was when the turn was passed last
        self.roles: list[Producer] = []
        for number in numbers:

            def run(number: int = number) -> None:
                make(self, number)

            self.roles.append(Producer(run))
        while not all(role.over for role in self.roles):
            for role in self.roles:
                role.go_on()

    def pass_turn(self, rank: int) -> None:
        seen = [list(self.met.values()), *(block.progress() for block in self.blocks.values())]
        self.passed = self.passed + 1 if seen == self.seen else 0
        self.seen = seen
        assert self.passed <= 2 * self.size, "blocks that wait for each other"
        self.roles[rank].pass_turn()


class ClusterBlock(HopperBlock):
    """One block of a cluster."""

    def __init__(self, cluster: Cluster, kernel: Any, memory: Any, arguments: Any, number: int,
                 *rest: Any):  # fmt: skip
        self.cluster, self.rank = cluster, number % cluster.size
        self.over = False
        self.come_to_meet = 0  # threads
        cluster.blocks[self.rank] = self
        super().__init__(kernel, memory, arguments, number, *rest)
        self.over = True

    def other(self, rank: int) -> ClusterBlock:
        """A block that this one reads or writes the shared memory of."""
        other = self.cluster.blocks.get(rank)
        assert rank != self.rank
        runs = other is not None and self.cluster.met[rank] and not other.over
        assert runs, "a block that does not run"
        return other

    def _llvm_inline_asm(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        text = text_of(op)
        if "%cluster_ctarank" in text:
            return np.full(self.threads, self.rank, np.int32)
        if "barrier.cluster.arrive" in text:
            assert "wait.acquire" in text
            return self._meet(int(mask.sum()))
        if "st.async" in text:
            return self._tell_beside(operands, mask)
        if "mapa.shared::cluster" in text and "mbarrier" in text:
            return self._arrive_beside(operands, mask)
        if "mapa.shared::cluster" in text:
            return operands[0] | operands[1] << RANK
        if "st.shared.v4.f32" in text:
            return self._store_words(text, operands, mask)
        if "ld.shared::cluster.v4.f32" in text:
            return self._load_words(text, operands, mask)
        if ".multicast::cluster" in text:
            return self._load_in_both(text, operands, mask)
        return super()._llvm_inline_asm(op, operands, mask)

    def _meet(self, threads: int) -> None:
        """So many threads wait for all of all blocks."""
        met = self.cluster.met
        target = met[self.rank] + 1
        self.come_to_meet += threads
        if self.come_to_meet == self.threads:
            met[self.rank], self.come_to_meet = target, 0
        while min(met.values()) < target:
            if self.producing:
                self.producer.pass_turn()
            elif met[self.rank] < target:
                self._let_producer_go_on()
                over = self.producer is None or self.producer.over
                assert not over or met[self.rank] == target, "a part of a block does not come"
            else:
                self.cluster.pass_turn(self.rank)
        self._let_producer_go_on()

    def _store_words(self, text: str, operands: Any, mask: np.ndarray) -> None:
        (behind,) = map(int, re.findall(r"\[\$0\+(\d+)\]", text))
        address, *words = operands
        there = address[mask] + behind
        assert (there % 16 == 0).all()
        raw = simt.to_bytes(np.stack(words, 1), "f32")
        self.shared[there[:, None] + np.arange(16)] = raw[mask]
        self._write(there, 16)

    def _load_words(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        (behind,) = map(int, re.findall(r"\[\$4\+(\d+)\]", text))
        found = np.zeros((self.threads, 4), np.float32)
        for k in np.flatnonzero(mask):
            rank, place = divmod(int(operands[0][k]) + behind, 1 << RANK)
            raw = self.other(rank).shared[place : place + 16]
            found[k] = simt.from_bytes(raw[None], "f32")[0]
        return list(found.T)

    def _arrive_beside(self, operands: Any, mask: np.ndarray) -> None:
        address, thread, rank = operands
        for k in np.flatnonzero(mask & (thread == 0)):
            barrier = self.other(int(rank[k])).barriers[int(address[k])]
            barrier.arrive()
            barrier.complete()

    def _tell_beside(self, operands: Any, mask: np.ndarray) -> None:
        word, barrier, value, lane, rank = operands
        for k in np.flatnonzero(mask & (lane == 0)):
            other = self.other(int(rank[k]))
            place, told = int(word[k]), other.barriers[int(barrier[k])]
            other.shared[place : place + 4] = np.frombuffer(np.int32(value[k]).tobytes(), np.uint8)
            told.told += 4
            told.complete()

    def _load_in_both(self, text: str, operands: Any, mask: np.ndarray) -> None:
        assert "mov.b16 blocks, 3;" in text and "], blocks;" in text
        target, number, *where, barrier = (self._one(v, mask) for v in operands[:-1])
        tensor_map: TensorMap = self.maps.made[number]
        end = target + tensor_map.bytes
        other = self.other(1 - self.rank)
        busy = [x for warp in other.read for product in warp for x in product]
        assert all(last < target or first >= end for first, last in busy), "a product reads it"
        other.shared[target:end] = 0xFF
        other.barriers[barrier].loads.append((tensor_map, where, target))
        self._load_box(re.sub(r"\.multicast::cluster|, blocks(?=;)", "", text), operands, mask)

    def _await_others(self) -> bool:
        if not super()._await_others():
            self.cluster.pass_turn(self.rank)
        return True

    def progress(self) -> Any:
        return self._progress(), [len(b.loads) for b in self.barriers.values()]
