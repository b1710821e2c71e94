# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`simt.Block` with what sm_90a has: specialised warps, barriers, the copy engine, wgmma.

Producer and consumers run in turn, each until it waits for the other; a wait that does not end is
an error. What the copy engine brings destroys what was there as soon as it is started, and is there
when its barrier is waited for. It may not be started where a product may still read: products of
warp groups are made when they are issued, and read until they are waited for.

One thread may release a slot for its group only where a product since the wait for the slot's tile
has kept its warps together: a warp that waits after the slot was filled anew waits for ever.

What is stored is as late as it may be: a box is read from shared memory when its group is waited
for, and what was written over it before that is what arrives. It may only be started when all its
bytes were written before a proxy fence, and a block may not end while one is under way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.float8 import float8_values
from neptune_mlir.codegen.nvidia.adder import FIRST_BARRIER
from neptune_mlir.codegen.nvidia.groups.hands import FREE
from support.chips import simt
from support.chips.simt_fragments import GROUP, column_of, from_words, row_of, tf32
from support.chips.simt_ops import Kernel, Op
from support.chips.simt_parts import (
    ASM,
    ROW,
    Barrier,
    Launch,
    Maps,
    Producer,
    TensorMap,
    is_producer,
    swizzle,
    swizzled,
    takes,
    text_of,
    waits,
)
from support.chips.simt_words import Words

DEEP = {"tf32": 8, "e4m3": 32}  # columns of a factor in 32 bytes, where they are not 16


class HopperBlock(Words, simt.Block):
    """One block of threads; `maps` are those of its arguments."""

    def __init__(
        self, kernel: Kernel, memory: simt.Memory, arguments: list[Any], number: int, maps: Maps,
        launch: Launch | None = None,
    ):  # fmt: skip
        self.maps, self.launch = maps, launch or Launch()
        self.waited = np.zeros(kernel.threads, bool)  # for the kernel before
        # bytes of shared memory that the copy engine may not see yet
        self.fresh = np.zeros(max(kernel.shared, 16), bool)
        warps = kernel.threads // 32
        self.boxes: list[list[Any]] = [[] for _ in range(warps)]
        self.stored = 0
        self.barriers: dict[int, Barrier] = {}
        self.full: dict[int, int] = {}  # by the barrier of a slot that is free: that of its tile
        # barriers that the warps of a group have waited for, perhaps not all of them yet
        self.apart: list[set[int]] = [set() for _ in range(kernel.threads // GROUP)]
        self.producer: Producer | None = None
        self.producing = False
        self.adder: Any = None  # warps that add what groups stage: a role of their own
        self.adding = False
        self.taker: Any = None  # groups that take what the first one makes: a role of their own
        self.taking = False
        self.idle = 0  # times that groups of warps had no rows
        self.come: dict[int, int] = {}  # threads at named barriers
        # of each warp's products that were not waited for: first and last byte of what they read
        self._reads: list[tuple[int, int]] = []
        self.read: list[list[list[tuple[int, int]]]] = [[] for _ in range(warps)]
        # of the same products, the op and what its left factor has in registers
        self.held: list[list[list[tuple[Op, list[np.ndarray]]]]] = [[] for _ in range(warps)]
        self.unfinished = [False] * warps  # whether the last of them has more instructions
        self.products, self.products_by_warp = 0, 0  # of warp groups; small ones, of single warps
        super().__init__(kernel, memory, arguments, number)
        assert not any(self.boxes), "a block ends while its shared memory is being read"
        assert not any(self.read), "a block ends while its products are made"
        left = [b for b in self.barriers.values() if b.loads]
        assert not left, "a block ends before what it loads has come"

    # ---- values

    def _llvm_store(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        super()._llvm_store(op, operands, mask)
        if op.operands[1].shared:
            size = simt.SIZES[op.operands[0].kind] * op.operands[0].count
            self._write(operands[1][mask], size)

    def _nvvm_stmatrix(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        super()._nvvm_stmatrix(op, operands, mask)
        self._write(operands[0][mask], 16)

    def _write(self, written: np.ndarray, size: int) -> None:
        """Threads have written so many bytes each to shared memory."""
        self.fresh[written[:, None] + np.arange(size)] = True
        busy = {x for warp in self.read for product in warp for x in product}
        for first, last in busy:
            assert ((written >= last) | (written + size <= first)).all(), "a product reads it"

    def _llvm_mlir_constant(self, op: Op, operands: Any, mask: Any) -> Any:
        return self._arith_constant(op, operands, mask)

    def _llvm_ptrtoint(self, op: Op, operands: Any, mask: Any) -> Any:
        return operands[0]

    def _llvm_inttoptr(self, op: Op, operands: Any, mask: Any) -> Any:
        return operands[0].astype(np.int64)

    def _nvvm_shfl_sync(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        if "idx" not in op.attributes["kind"]:
            return super()._nvvm_shfl_sync(op, operands, mask)
        self._warps(mask)
        return operands[1][np.arange(self.threads) // 32 * 32 + operands[2]]

    def _nvvm_mma_sync(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        self.products_by_warp += len(self._warps(mask))
        products, made = self.products, super()._nvvm_mma_sync(op, operands, mask)
        self.products = products  # those of warp groups
        return made

    # ---- roles

    def _scf_if(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        """Where producer and consumers part, they run in turn; with them, warps that add."""
        adds = (text_of(o) for o in op.regions[0].ops if o.name == ASM)
        if self.producing and self.adder is None and any("bar.arrive $0" in text for text in adds):
            self.adder = Producer(lambda: self.run(op.regions[0], mask & operands[0]) and None)
            self._let_adder_go_on()
            return None
        if len(op.regions) == 2 and not self.producing and takes(op.regions[1]):
            self._part_groups(op, operands[0], mask)
            return None
        if len(op.regions) < 2 or not is_producer(op.regions[1]):
            sides = mask & operands[0], mask & ~operands[0]
            if not self.producing and all(map(np.any, sides)) and all(map(waits, op.regions)):
                return self._leave_idle(op, *sides)
            return super()._scf_if(op, operands, mask)
        consumers, producer = op.regions
        there = mask & ~operands[0]
        self.producer = Producer(lambda: self.run(producer, there) and None)
        try:
            self._let_producer_go_on()
            self.run(consumers, mask & operands[0])
        except BaseException:
            for role in filter(None, (self.adder, self.taker, self.producer)):
                with contextlib.suppress(BaseException):
                    role.end()
            raise
        if self.adder is not None:
            self._let_adder_go_on()
            self.adder.end()
        self.producer.end()
        return None

    def _part_groups(self, op: Op, first: np.ndarray, mask: np.ndarray) -> None:
        """The first group of warps makes what the others take: they run in turn."""
        self.taker = Producer(lambda: self.run(op.regions[1], mask & ~first) and None)
        self._let_taker_go_on()
        self.run(op.regions[0], mask & first)
        self._let_taker_go_on()
        self.taker.end()

    def _leave_idle(self, op: Op, busy: np.ndarray, idle: np.ndarray) -> Any:
        """Some groups of warps have nothing to compute, and only give back what is brought."""
        made: list[Any] = []
        self.taker = Producer(lambda: made.append(self.run(op.regions[1], idle)))
        self._let_taker_go_on()
        made.insert(0, self.run(op.regions[0], busy))
        self._let_taker_go_on()
        self.taker.end()
        self.idle += 1
        chosen = [np.where(busy, a, b) for a, b in zip(*made, strict=True)]
        return chosen if len(chosen) > 1 else chosen[0]

    def _let_taker_go_on(self) -> None:
        if self.taker is not None and not self.taking:
            self.taking = True
            self.taker.go_on()
            self.taking = False

    def _let_adder_go_on(self) -> None:
        self.adding = True
        self.adder.go_on()
        self.adding = False

    def _let_producer_go_on(self) -> None:
        if self.producer is not None and not self.producing:
            self.producing = True
            self.producer.go_on()
            self.producing = False

    # ---- inline PTX

    def _llvm_inline_asm(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        text, self.op = text_of(op), op
        if "setp.gt.s32 p" in text and "acquire" not in text:  # an access under a condition
            return super()._llvm_inline_asm(op, operands, mask)
        if not re.search("mbarrier|red.global|prefetch.tensormap", text):  # (by one thread)
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

    def _store_chunk(self, text: str, operands: Any, mask: np.ndarray) -> None:
        pointer, *words, wanted = operands
        there = mask & (wanted != 0)
        raw = simt.to_bytes(np.stack(words, 1), "i32")
        assert (pointer[there] % 16 == 0).all()
        self.memory.heap[pointer[there][:, None] + np.arange(16)] = raw[there]

    # ---- programs

    def _gpu_grid_dim(self, op: Op, operands: Any, mask: Any) -> Any:
        return np.full(self.threads, self.launch.blocks)

    def _scf_while(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        before, after = op.regions
        while True:
            self.env.update(zip(before.arguments, operands, strict=True))
            condition, *values = self.run(before, mask)
            if not self._one(condition, mask):
                return values if len(values) != 1 else values[0]
            self.env.update(zip(after.arguments, values, strict=True))
            operands = self.run(after, mask)

    def _count(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        _, last, lane = operands
        found = self.launch.taken
        self.launch.taken = 0 if found >= self._one(last, mask) else found + 1
        assert (mask & (lane == 0)).sum() == 1
        return np.where(lane == 0, found, 0).astype(np.int32)

    def _await_count(self, text: str, operands: Any, mask: np.ndarray) -> None:
        word, passed, timeout, seen = (self._one(v, mask) for v in operands)
        assert "redux.sync.min.s32 v" in text and "fence.proxy.async.global;\nSEEN" in text, text
        if self.shared[seen : seen + 4].view(np.int32)[0] > passed:
            return
        assert self.launch.come is not None and timeout > 0
        self.launch.come(word, passed)
        self.shared[seen : seen + 4] = np.array([passed + 1], np.int32).view(np.uint8)

    def _forget_seen(self, text: str, operands: Any, mask: np.ndarray) -> None:
        seen = self._one(operands[0], mask)
        self.shared[seen : seen + 4] = 0

    def _store_word(self, text: str, operands: Any, mask: np.ndarray) -> None:
        address, word, lane = operands
        (thread,) = np.flatnonzero(mask & (lane == 0))
        self.shared[address[thread] : address[thread] + 4] = simt.to_bytes(word, "i32")[thread]

    def _load_word(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        address, lane = operands
        there = mask & (lane == 0)
        raw = self.shared[np.where(there, address, 0)[:, None] + np.arange(4)]
        return np.where(there, simt.from_bytes(raw, "i32")[:, 0], 0)

    # ---- barriers and the copy engine's loads

    def _init_barrier(self, text: str, operands: Any, mask: np.ndarray) -> None:
        (count,) = re.findall(r"\], (\d+);", text)
        address = self._one(operands[0], mask)
        self.full[address] = next(reversed(self.barriers), address)
        self.barriers[address] = Barrier(int(count))

    def _arrive(self, text: str, operands: Any, mask: np.ndarray) -> None:
        address, thread = operands
        for k in np.flatnonzero(mask & (thread == 0)):
            place, here = int(address[k]), slice(k // GROUP * GROUP, k // GROUP * GROUP + GROUP)
            self.barriers[place].arrive()
            alone = mask[here].all() and (thread[here] == 0).sum() == 1
            late = alone and self.full[place] in self.apart[k // GROUP]
            assert not late, "a group gives away what its warps may not have waited for"
        for place in {int(x) for x in address[mask & (thread == 0)]}:
            assert not self.barriers[place].loads
            if self.barriers[place].complete():
                self._let_producer_go_on()  # as early as it may

    def _expect(self, text: str, operands: Any, mask: np.ndarray) -> None:
        assert len(self._warps(mask)) == 1
        barrier = self.barriers[self._one(operands[0], mask)]
        (barrier.expected,) = map(int, re.findall(r"\], (\d+);", text))
        barrier.arrive()

    def _load_box(self, text: str, operands: Any, mask: np.ndarray) -> None:
        assert len(self._warps(mask)) == 1
        assert mask.sum() == 32 or "elect.sync" not in text
        rest = operands if "elect.sync" in text else operands[:-1]  # without the lane's number
        target, number, *where, barrier = (self._one(v, mask) for v in rest)
        assert f".{len(where)}d." in text and target % 128 == 0
        tensor_map = self.maps.made[number]
        end = target + tensor_map.bytes
        busy = [x for warp in self.read for product in warp for x in product]
        assert all(last < target or first >= end for first, last in busy), "a product reads it"
        self.shared[target:end] = 0xFF
        if not self.waited[mask].all() and self.memory.made.any():
            source, exists, there = tensor_map.rows(where)
            made = self.memory.made[source[exists][:, None] + np.arange(there)].any()
            assert not made, "what the kernel before makes is brought before it is over"
        self.barriers[barrier].loads.append((tensor_map, where, target))

    def _wait(self, text: str, operands: Any, mask: np.ndarray) -> None:
        address, parity = (self._one(v, mask) for v in operands)
        barrier = self.barriers[address]
        for group in set(np.flatnonzero(mask) // GROUP):
            self.apart[group].add(address)
        while barrier.done % 2 == parity:  # this phase is not complete
            loads = barrier.loads
            if barrier.complete():
                for load in loads:
                    self._bring(*load)
            elif self.adding:
                self.adder.pass_turn()
            elif self.producing:
                assert self.producer is not None
                self.producer.pass_turn()
            else:
                assert self._await_others(), "a wait that does not end"

    def _await_others(self) -> bool:
        """Consumers wait: somebody else has to go on; whether somebody did."""
        before = self._progress()
        self._let_producer_go_on()
        if self._progress() == before and self.taking:
            self.taker.pass_turn()
            return True
        self._let_taker_go_on()
        return bool(self._progress() != before)

    def _wait_for_kernel(self, text: str, operands: Any, mask: np.ndarray) -> None:
        self.waited |= mask

    def _progress(self) -> Any:
        found = [(barrier.done, barrier.arrived) for barrier in self.barriers.values()]
        return found, dict(self.come)

    def _bring(self, tensor_map: TensorMap, where: list[int], target: int) -> None:
        source, exists, there = tensor_map.rows(where)
        rows = np.zeros((len(source), tensor_map.row), np.uint8)
        rows[exists, :there] = self.memory.heap[source[exists][:, None] + np.arange(there)]
        self.shared[swizzled(target, len(source), tensor_map.row)] = tensor_map.rounded(rows)

    def _come(self, text: str, operands: Any, mask: np.ndarray) -> None:
        found = re.match(r"bar\.(sync|arrive) (\d+), (\d+);", text)
        if found is None:
            self._come_to(operands[0], text, mask)
            return
        kind, number, wanted = found[1], int(found[2]), int(found[3])
        self.come[number] = self.come.get(number, 0) + int(mask.sum())
        if kind == "sync":  # the others have come: all in lockstep, or the producer before
            assert self.come.pop(number) == wanted, "a barrier that some threads do not reach"

    def _come_to(self, numbers: np.ndarray, text: str, mask: np.ndarray) -> None:
        """Threads come to barriers of which each warp says which: those of warps that add. (Turns
        have others: all groups run in lockstep, so nothing is asked of these.)"""
        ours = {int(n): int((numbers[mask] == n).sum()) for n in set(numbers[mask])}
        wanted = int(re.findall(r"\$0, (\d+);", text)[0])
        if max(ours) < FREE:
            return
        for number, count in ours.items():
            self.come[number] = self.come.get(number, 0) + count
        while "sync" in text and any(self.come[n] < wanted for n in ours):
            if self.adding or self.taking:
                (self.adder if self.adding else self.taker).pass_turn()
            else:
                before = dict(self.come)
                (self._let_taker_go_on if max(ours) < FIRST_BARRIER else self._let_adder_go_on)()
                assert self.come != before, "a barrier that some threads do not reach"
        for number in ours if "sync" in text else ():
            assert self.come.pop(number) == wanted, "threads come twice"
        if wanted == GROUP and "sync" in text:  # all warps of it
            for group in set(np.flatnonzero(mask) // GROUP):
                self.apart[group].clear()

    # ---- the copy engine's stores

    def _publish(self, text: str, operands: Any, mask: np.ndarray) -> None:
        self.fresh[:] = False

    def _store_box(self, text: str, operands: Any, mask: np.ndarray) -> None:
        adds = "cp.reduce" in text
        start = "reduce.async" if adds else "async"
        found = re.search(
            rf"elect\.sync _\|p, -1;\n@p cp\.{start}\.bulk\.tensor\.(\d)d\.global", text
        )
        assert found and text.endswith("cp.async.bulk.commit_group;"), text
        assert len(operands) == 2 + int(found[1])
        for warp in self._warps(mask):
            lanes = np.arange(self.threads) // 32 == warp
            number, start, *where = (self._one(v, lanes) for v in operands)
            tensor_map = self.maps.made[number]
            assert start % 1024 == 0
            assert not self.fresh[start : start + tensor_map.bytes].any()
            self.boxes[warp].append(partial(self._write_box, tensor_map, where, start, adds))
            self.stored += 1

    def _write_box(self, tensor_map: TensorMap, where: list[int], start: int, adds: bool) -> None:
        target, exists, there = tensor_map.rows(where)
        rows = self.shared[swizzled(start, len(target), tensor_map.row)]
        if adds:
            old = self.memory.heap[np.where(exists, target, 0)[:, None] + np.arange(there)]
            rows = rows[:, :there].copy()
            rows = (rows.view(np.float32) + old.view(np.float32)).view(np.uint8)
        self.memory.heap[target[exists][:, None] + np.arange(there)] = rows[exists, :there]

    def _add_runs(self, text: str, operands: Any, mask: np.ndarray) -> None:
        assert "elect.sync _|p, -1;\nsetp.gt.and.u64 p, $0, 2, p;\n" in text, text
        found = re.findall(r"@([pq]) .*\[\$0\+(\d+)\], \[\$1\+(\d+)\], (\d+);", text)
        for warp in self._warps(mask):
            lanes = np.arange(self.threads) // 32 == warp
            address, source, *turn = (self._one(v, lanes) for v in operands)
            stores = bool(turn) and turn[0] % (1 << 32) == 0
            assert not turn or "setp.eq.and.b32 q, w, 0, p;" in text, text
            runs = [run for when, *run in found if (when == "q") == stores]
            for there, here, size in (map(int, run) for run in runs if address > 2):
                assert (address + there) % 16 == (source + here) % 16 == size % 16 == 0
                assert not self.fresh[source + here : source + here + size].any()
                self.boxes[warp].append(
                    partial(self._add_run, address + there, source + here, size, stores)
                )

    def _add_run(self, address: int, source: int, size: int, stores: bool) -> None:
        sums = self.memory.heap[address : address + size].view(np.float32)
        if stores:
            sums[:] = 0
        sums += self.shared[source : source + size].view(np.float32)

    def _await_boxes(self, text: str, operands: Any, mask: np.ndarray) -> None:
        for warp in self._warps(mask):
            for write in self.boxes[warp]:
                write()
            self.boxes[warp].clear()

    def _store_address(self, text: str, operands: Any, mask: np.ndarray) -> None:
        place, address, thread = operands
        for k in np.flatnonzero(mask & (thread == 0)):
            self.shared[place[k] : place[k] + 8] = simt.to_bytes(address, "i64")[k]

    def _load_address(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        raw = self.shared[np.where(mask, operands[0], 0)[:, None] + np.arange(8)]
        return simt.from_bytes(raw, "i64")[:, 0]

    def _is_somewhere(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        return (operands[0] != 0).astype(np.int32)

    # ---- products of warp groups

    def _multiply(self, text: str, operands: Any, mask: np.ndarray) -> list[np.ndarray]:
        groups = mask.reshape(-1, GROUP)
        assert (groups.all(1) == groups.any(1)).all(), "a warp does a warp group's product alone"
        steps = re.findall(
            r"add\.s64 b, \$(\d+), (\d+);\nwgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(?:16|8|32)"
            r"\.f32\.(b?f16|tf32|e4m3)\.(?:b?f16|tf32|e4m3) \{.*?\}, (\{.*?\}|a), b, ([pq]), 1, 1"
            r"(?:, ([01]))??(?:, ([01]))?;",
            text,
        )
        assert all((step[3] in DEEP) == ("" == step[-1]) for step in steps)  # transposes nothing
        for dtype, deep in DEEP.items():
            assert (f"k{deep}." in text) == (f".{dtype}.{dtype}" in text)
        moves = re.findall(r"add\.s64 a, \$(\d+), (\d+);", text)
        assert len(steps) == text.count("wgmma.mma_async")
        width = int(steps[0][2])
        count = width // 2
        out = [np.zeros(self.threads, np.float32) for _ in range(count)]
        for group in np.flatnonzero(groups.all(1)):
            here = slice(group * GROUP, (group + 1) * GROUP)
            total, taken = np.zeros((64, width), np.float32), list[np.ndarray]()
            moved_left = iter(moves)
            for k, (place, move, _, dtype, left, keep, *turned) in enumerate(steps):
                values = [v[here] for v in operands]
                if left == "a":
                    at, by = (int(x) for x in next(moved_left))
                    a = self._matrix(values[at - count], by, 64, dtype, turned[0] == "1")
                else:
                    words = [values[int(x) - count] for x in re.findall(r"\$(\d+)", left)]
                    a = from_words(words, dtype)
                    taken += words
                moved = int(move)
                b = self._matrix(values[int(place) - count], moved, width, dtype, turned[1] == "1")
                if k == 0 and keep == "p":
                    for i in range(count):
                        total[row_of(i), column_of(i)] = values[i]
                total = total + a @ b.T
            for i in range(count):
                out[i][here] = total[row_of(i), column_of(i)]
            self.products += 1
            self.apart[group].clear()  # a product is of four warps
            for warp in range(4 * group, 4 * group + 4):
                before = [words for some in self.held[warp] for op, words in some if op is self.op]
                pairs = (both for words in before for both in zip(words, taken, strict=True))
                same = all(np.array_equal(one, other) for one, other in pairs)
                assert same, "registers that a product reads are written"
                if not self.unfinished[warp]:
                    self.read[warp].append([])
                    self.held[warp].append([])
                self.read[warp][-1] += self._reads
                self.held[warp][-1].append((self.op, taken))
                self.unfinished[warp] = "wgmma.commit_group" not in text
            self._reads.clear()
        return out

    def _matrix(
        self, descriptors: np.ndarray, moved: int, rows: int, dtype: str, transposed: bool
    ) -> np.ndarray:
        """What a descriptor names, [rows, 16] (DEEP columns); `transposed`: the rows run
        along shared memory."""
        assert (descriptors == descriptors[0]).all(), "threads differ"
        bits = (int(descriptors[0]) + moved) % (1 << 64)
        wide = {1: ROW, 2: ROW // 2}[bits >> 62]  # bytes of a swizzled row
        start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        size = 32 // DEEP.get(dtype, 16)
        row, k = np.arange(rows)[:, None], np.arange(32 // size)
        if transposed:
            panel = wide // 2
            place = row // panel * leading + row % panel * 2 + k // 8 * stride + k % 8 * wide
        else:
            place = row // 8 * stride + row % 8 * wide + size * k
        self._reads.append((start + int(place.min()), start + int(place.max()) + 1))
        places = swizzle(start + place, wide)
        assert not self.fresh[places].any(), "a product may not see yet what threads wrote"
        raw = self.shared[places[..., None] + np.arange(size)]
        if dtype == "tf32":
            return tf32(np.ascontiguousarray(raw).view(np.int32)[..., 0])
        if dtype == "e4m3":
            return float8_values(raw[..., 0]).astype(np.float32)
        return simt.from_bytes(raw, dtype)[..., 0].astype(np.float32)

    def _await_products(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        (pending,) = map(int, re.findall(r"aligned (\d+);", text))
        for warp in self._warps(mask):
            done = max(0, len(self.read[warp]) - self.unfinished[warp] - pending)
            del self.read[warp][:done], self.held[warp][:done]
        return list(operands)


# by what the text of the inline PTX has, the first that fits


INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "wgmma.mma_async": HopperBlock._multiply,
    "wgmma.wait_group": HopperBlock._await_products,
    "ld.acquire.sys": HopperBlock._await_count,
    "st.volatile.shared.b32": HopperBlock._forget_seen,
    "mbarrier.try_wait": HopperBlock._wait,
    "mbarrier.arrive.expect_tx": HopperBlock._expect,
    "mbarrier.arrive": HopperBlock._arrive,
    "mbarrier.init": HopperBlock._init_barrier,
    "fence.mbarrier_init": HopperBlock._nothing,
    "wgmma.fence": HopperBlock._nothing,
    "atom.global.inc": HopperBlock._count,
    "st.shared.b32": HopperBlock._store_word,
    "st.shared.b64": HopperBlock._store_address,
    "ld.shared.b64": HopperBlock._load_address,
    "setp.ne.b64 p, $1, 0;\nvote.sync": HopperBlock._is_somewhere,
    "cp.reduce.async.bulk.global": HopperBlock._add_runs,
    "ld.shared.b32": HopperBlock._load_word,
    "ld.acquire.gpu.global.b32 v, [$0];\nsetp.ne.b32 p, v, $1": HopperBlock._await_told,
    "@p ld.acquire.gpu": HopperBlock._look_at_word,
    "ld.acquire.gpu": HopperBlock._await_word,
    "st.release.gpu": HopperBlock._tell_word,
    "red.release.gpu": HopperBlock._count_word,
    "fence.proxy.async": HopperBlock._publish,
    "cp.async.bulk.wait_group.read 0": HopperBlock._await_boxes,
    "shared::cluster.global.mbarrier::complete_tx": HopperBlock._load_box,
    "global.shared::cta.bulk_group": HopperBlock._store_box,
    "global.shared::cta.add.tile.bulk_group": HopperBlock._store_box,
    '.pragma "nounroll";': HopperBlock._nothing,
    "st.global.v4": HopperBlock._store_chunk,
    "setmaxnreg": HopperBlock._nothing,
    "griddepcontrol.wait": HopperBlock._wait_for_kernel,
    "fence.acq_rel.gpu": HopperBlock._wait_for_kernel,  # a kernel that needs what is over
    "bar.warp.sync": HopperBlock._nothing,
    "bar.sync": HopperBlock._come,
    "bar.arrive": HopperBlock._come,
}  # fmt: skip
