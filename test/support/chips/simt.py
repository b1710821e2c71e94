# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a distributed kernel (`gpu.func` over `nvvm`) on NumPy, all threads of a block in lockstep.

It checks what a machine without a GPU can check: fragment layouts, addresses, swizzles,
predicates, and that no tile is read before its asynchronous copy was waited for (a copy takes
effect only at the wait that covers it; shared memory starts as NaN). It does not see races.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.float8 import float8_bits, float8_values
from support.chips import scalar_ops
from support.chips.scalar_ops import NUMPY, bf16_round
from support.chips.simt_ops import Body, Kernel, Op, Value

HEAP_ALIGN = 256


def to_bytes(values: np.ndarray, kind: str) -> np.ndarray:
    """Values [T] or [T, n] of an element kind as bytes [T, size]."""
    if kind == "bf16":
        raw = (bf16_round(values).view(np.uint32) >> 16).astype(np.uint16)
    else:
        raw = values.astype(NUMPY[kind])
    return np.ascontiguousarray(raw.reshape(raw.shape[0], -1)).view(np.uint8)


def from_bytes(raw: np.ndarray, kind: str) -> np.ndarray:
    raw = np.ascontiguousarray(raw)
    if kind == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view(NUMPY[kind])


SIZES = {
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8,
    "index": 8,
}  # fmt: skip


class Memory:
    """Global memory: arrays one after the other, with guard bytes between them.

    `link`: memory of several devices, by which programs trade (`link.Link`)."""

    link: Any = None

    def __init__(self) -> None:
        self.heap = np.zeros(HEAP_ALIGN, np.uint8)
        self.guards: list[tuple[int, int]] = []
        self.brought: list[tuple[int, int]] = []  # what was asked for ahead: address, bytes
        self.made = np.zeros(0, bool)  # bytes that kernels before have changed
        self._before = self.heap

    def put(self, array: np.ndarray) -> int:
        address = len(self.heap)
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        tail = HEAP_ALIGN + (-len(raw)) % HEAP_ALIGN
        self.heap = np.concatenate([self.heap, raw, np.full(tail, 0xFF, np.uint8)])
        self.guards.append((address + len(raw), address + len(raw) + tail))
        return address

    def get(self, address: int, shape: tuple[int, ...], kind: str) -> np.ndarray:
        count = int(np.prod(shape))
        raw = self.heap[address : address + count * SIZES[kind]]
        return from_bytes(raw, kind).reshape(shape).copy()

    def bring(self, address: int, size: int) -> None:
        """A block asks that these bytes come to a cache: they are those of an array."""
        assert all(address + size <= start or address >= end for start, end in self.guards)
        assert HEAP_ALIGN <= address and address + size <= len(self.heap)
        self.brought.append((address, size))

    def begin_launch(self) -> None:
        """What the kernels before have changed is told, from here on."""
        if len(self.made):
            self.made |= self._before != self.heap
        else:
            self.made = np.zeros(len(self.heap), bool)
        self._before = self.heap.copy()

    def check_guards(self) -> None:
        for start, end in self.guards:
            assert (self.heap[start:end] == 0xFF).all(), "a store went past the end of an array"


class Block:
    """One block of threads."""

    def __init__(self, kernel: Kernel, memory: Memory, arguments: list[Any], number: int):
        self.threads = kernel.threads
        self.shared = np.full(max(kernel.shared, 16), 0xFF, np.uint8)
        self.memory, self.number = memory, number
        self.env: dict[Value, Any] = {}
        self.open: list[Any] = []  # copies since the last commit
        self.groups: list[list[Any]] = []
        self.products = 0  # matrix instructions of warps
        for argument, value in zip(kernel.body.arguments, arguments, strict=True):
            self.env[argument] = np.full(self.threads, value, argument.numpy or np.int64)
        with np.errstate(all="ignore"):
            self.run(kernel.body, np.ones(self.threads, bool))

    def run(self, body: Body, mask: np.ndarray) -> list[Any]:
        for op in body.ops:
            self.step(op, mask)
        return [self.env[v] for v in body.ends]

    def step(self, op: Op, mask: np.ndarray) -> None:
        env, results = self.env, op.results
        operands = [env[v] for v in op.operands]
        if op.scalar is not None:
            made = op.scalar(*operands)
        else:
            handler = getattr(self, op.handler, None)
            if handler is None:
                raise NotImplementedError(op.name)
            made = handler(op, operands, mask)
        if len(results) == 1:
            (v,) = results
            env[v] = made if v.numpy is None else made.astype(v.numpy, copy=False)
            return
        for v, r in zip(results, made or (), strict=True):
            env[v] = r if v.numpy is None else r.astype(v.numpy, copy=False)

    # ---- control

    def _scf_for(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        low, high, step, *carried = operands
        bounds = [bound[mask] for bound in (low, high, step)]
        for bound in bounds:
            assert (bound == bound[0]).all(), "a loop whose bounds differ between threads"
        (body,) = op.regions
        for i in range(*(int(bound[0]) for bound in bounds)):
            self.env[body.arguments[0]] = np.full(self.threads, i, np.int64)
            self.env.update(zip(body.arguments[1:], carried, strict=True))
            carried = self.run(body, mask)
        return carried if len(op.results) != 1 else carried[0]

    def _scf_if(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        condition, made = operands[0], []
        for region, taken in zip(op.regions, (mask & condition, mask & ~condition), strict=True):
            if region is not None and taken.any():
                made.append(self.run(region, taken))
        if not op.results:
            return None
        chosen = [_where(condition, a, b) for a, b in zip(made[0], made[-1], strict=True)]
        return chosen if len(chosen) > 1 else chosen[0]

    # ---- threads

    warp = 32  # threads

    def _warps(self, mask: np.ndarray) -> np.ndarray:
        """The numbers of the warps that are active; asserts that they are as a whole."""
        warps = mask.reshape(-1, self.warp)
        assert (warps.all(1) == warps.any(1)).all(), "some lanes of a warp leave the others"
        return np.flatnonzero(warps.all(1))

    def _gpu_thread_id(self, op: Op, operands: Any, mask: Any) -> Any:
        return np.arange(self.threads)

    def _gpu_block_id(self, op: Op, operands: Any, mask: Any) -> Any:
        first = "dim x" in str(op.attributes["dimension"])  # grids have one axis
        return np.full(self.threads, self.number if first else 0)

    def _gpu_barrier(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        assert mask.all(), "a barrier that some threads do not reach"

    def _nvvm_shfl_sync(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        assert len(self._warps(mask)) and "bfly" in op.attributes["kind"]
        return operands[1][np.arange(self.threads) ^ operands[2]]

    # ---- memory

    def _llvm_mlir_addressof(self, op: Op, operands: Any, mask: Any) -> Any:
        return np.zeros(self.threads, np.int64)

    def _llvm_getelementptr(self, op: Op, operands: Any, mask: Any) -> Any:
        if len(operands) == 1:
            (offset,) = op.attributes["rawConstantIndices"]
            return operands[0] + offset
        return operands[0] + operands[1].astype(np.int64)

    def _space(self, pointer: Value) -> np.ndarray:
        return self.shared if pointer.shared else self.memory.heap

    def _llvm_load(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        made = op.results[0]
        address = np.where(mask, operands[0], 0)
        assert (address % op.attributes["alignment"] == 0).all(), "misaligned"
        at = address[:, None] + np.arange(SIZES[made.kind] * made.count)
        values = from_bytes(self._space(op.operands[0])[at], made.kind)
        return values if made.count > 1 else values[:, 0]

    def _llvm_store(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        raw = to_bytes(operands[0], op.operands[0].kind)
        address = operands[1][mask]
        assert (address % op.attributes["alignment"] == 0).all(), "misaligned"
        self._space(op.operands[1])[address[:, None] + np.arange(raw.shape[1])] = raw[mask]

    def _llvm_atomicrmw(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        """An addition of floats whose result nobody reads, one thread after the other."""
        assert op.attributes["bin_op"] == 11, op.attributes
        self._add_in_memory(operands[0][mask], operands[1][mask])
        return operands[1]

    def _add_in_memory(self, addresses: np.ndarray, values: np.ndarray) -> None:
        for address, value in zip(addresses, values, strict=True):
            at = slice(address, address + 4)
            self.memory.heap[at] = (self.memory.heap[at].view(np.float32) + value).view(np.uint8)

    def _nvvm_cp_async_shared_global(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        target, source = operands[:2]
        size = operands[2] if len(operands) > 2 else np.full(self.threads, op.attributes["size"])
        most = op.attributes["size"]
        assert (target[mask] % most == 0).all() and (source[mask & (size > 0)] % most == 0).all()
        self.open.append((target.copy(), source.copy(), size.copy(), mask.copy(), most))

    def _llvm_inline_asm(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        text = op.attributes["asm_string"]
        if "setp.gt.s32 p" in text:
            return self._guarded(text, operands, mask)
        if ".relaxed.sys.global" in text:
            return self._trade(text, operands, mask)
        if text.startswith("ld.global"):
            return self._loaded(text, operands[0], mask)
        if text.startswith("lg2.approx"):
            with np.errstate(all="ignore"):
                return np.log2(operands[0].astype(np.float64)).astype(np.float32)
        if text.startswith("rsqrt.approx"):
            with np.errstate(all="ignore"):
                return (1 / np.sqrt(operands[0].astype(np.float64))).astype(np.float32)
        if text.startswith("cvt.rna.tf32"):
            return (operands[0].astype(np.float32).view(np.int32) + 0x1000) & ~0x1FFF
        if text.startswith("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1"):  # the second is above
            pair = float8_bits(np.stack(operands, 1).astype(np.float32))
            return np.ascontiguousarray(pair).view(np.int16).ravel()
        if text.startswith("prmt.b32 $0, $1, $2, "):
            chosen = int(text.split("$2, ")[1].rstrip(";"))
            raw = np.stack(operands, 1).astype(np.int32).view(np.uint8).reshape(-1, 8)
            found = np.ascontiguousarray(raw[:, [chosen >> 4 * k & 7 for k in range(4)]])
            return found.view(np.int32).ravel()
        if "e4m3x2" in text or "0x64646464" in text:  # two bytes as f16
            if "mov.b32 {g, h}, $1" in text:  # in a half of a word
                upper = ", h;" in text.split("$1;")[1]
                words = operands[0].astype(np.int32) >> (16 if upper else 0)
            else:
                words = operands[0]
            pair = words.astype(np.int16).view(np.uint8).reshape(-1, 2)
            wide = float8_values(pair) if "e4m3x2" in text else pair.view(np.int8)
            return wide.astype(np.float16).view(np.int32).ravel()
        if "vote.sync.all" in text:
            assert len(self._warps(mask))
            return np.repeat((operands[0] != 0).reshape(-1, 32).all(1), 32).astype(np.int32)
        if text == "mov.b32 $0, $1;":
            return operands[0]
        if found := re.match(r"red\.global\.add\.v([24])\.f32", text):
            count = int(found[1])
            assert (operands[0][mask] % (4 * count) == 0).all(), "misaligned"
            for k in range(count):
                self._add_in_memory(operands[0][mask] + 4 * k, operands[1 + k][mask])
            return None
        if text.startswith(("prefetch.global.L1", "prefetch.tensormap")):
            return None  # reads nothing
        if "prefetch.L2" in text:
            thread, row, source, count = (x[mask] for x in operands)
            asked = (thread == 0) & (row >= 0)
            for start, size in zip(source[asked], count[asked], strict=True):
                assert start % 16 == 0 and size % 16 == 0
                self.memory.bring(int(start), int(size))
            return None
        # launches run one after the other here
        assert text.startswith(("griddepcontrol.", "fence.acq_rel.gpu"))
        return None

    def _trade(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        """Words of memory that another device reads and writes."""
        link, there = self.memory.link, np.flatnonzero(mask)
        if "st.relaxed" in text:
            moved = int(text.split("[$0+")[1].split("]")[0])
            for t in there:
                address, value, flag = (int(x[t]) for x in operands)
                link.give(address + moved, value, flag)
            return None
        if "ld.relaxed.sys.global.b32" in text:
            counts = [link.count(int(x)) for x in np.where(mask, operands[0], 0)]
            return np.array(counts, np.int32)
        moved = [int(x) for x in re.findall(r"\.b64 d\d+, \[\$\d+\+(\d+)\]", text)]
        made = np.zeros((len(moved), self.threads), np.int32)
        for t in there:
            address, flag, timeout = (int(x[t]) for x in operands)
            made[:, t] = [link.take(address + m, flag, timeout) for m in moved]
        return list(made) if len(moved) > 1 else made[0]

    def _guarded(self, text: str, operands: Any, mask: np.ndarray) -> Any:
        """A load (0 else) or a store of a thread where more elements are left than `place`."""
        pointer, left, *words = operands
        place = int(re.findall(r"setp.gt.s32 p, \$\d+, (\d+);", text)[0])
        moved = int(re.findall(r"\[\$\d+\+(\d+)\]", text)[0])
        if not words:
            return self._loaded(text, pointer, mask & (left > place))
        ((count, bits),) = re.findall(r"@p st\.global(?:\.v(\d))?\.b(\d+)", text)
        size, there = int(count or 1) * int(bits) // 8, mask & (left > place)
        at = pointer[there] + moved
        assert (at % size == 0).all(), "misaligned"
        at = at[:, None] + np.arange(size)
        kind = "i32" if size >= 4 else "i16"
        raw = np.concatenate([to_bytes(word, kind) for word in words], 1)
        self.memory.heap[at] = raw[there, :size]
        return None

    def _loaded(self, text: str, pointer: np.ndarray, there: np.ndarray) -> Any:
        """What threads load, 0 in the others."""
        moved = int(re.findall(r"\[\$\d+\+(\d+)\]", text)[0])
        found = re.findall(r"ld\.global(?:\.L1::no_allocate)?(?:\.v(\d))?\.b(\d+)", text)
        ((count, bits),) = found
        size = int(count or 1) * int(bits) // 8
        at = pointer[there] + moved
        assert (at % size == 0).all(), "misaligned"
        at = at[:, None] + np.arange(size)
        raw = np.zeros((self.threads, max(size, 2)), np.uint8)
        raw[there, :size] = self.memory.heap[at]
        if size <= 4:
            return raw.view(np.int16 if size < 4 else np.int32)[:, 0]
        return list(np.ascontiguousarray(raw.view(np.int32).T))

    def _nvvm_cp_async_commit_group(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        assert all((mask | ~where).all() for *_, where, _ in self.open)
        self.groups.append(self.open)
        self.open = []

    def _nvvm_cp_async_wait_group(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        pending = op.attributes["n"]
        while len(self.groups) > pending:
            for target, source, size, where, most in self.groups.pop(0):
                target, source, size = (x[where, None] for x in (target, source, size))
                byte = np.arange(most)
                there = byte < size
                chunks = np.zeros(there.shape, np.uint8)
                chunks[there] = self.memory.heap[(source + byte)[there]]
                self.shared[target + byte] = chunks

    # ---- matrices

    def _nvvm_ldmatrix(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        trans = "col" in op.attributes["layout"]
        lane, warps = np.arange(32), self._warps(mask)
        address = operands[0].reshape(-1, 4, 8)[warps]  # of rows of four pieces
        words = [np.zeros((self.threads // 32, 32), np.int32) for _ in range(op.attributes["num"])]
        for k, word in enumerate(words):
            rows = address[:, k, :, None]
            assert (rows % 16 == 0).all()
            piece = self.shared[rows + np.arange(16)].view(np.uint16)
            piece = piece.transpose(0, 2, 1) if trans else piece
            pair = [piece[:, lane // 4, 2 * (lane % 4) + j] for j in range(2)]
            word[warps] = np.stack(pair, 2).view(np.int32)[..., 0]
        words = [word.ravel() for word in words]
        return words if len(words) > 1 else words[0]

    def _nvvm_stmatrix(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        turned = "col" in op.attributes["layout"]
        lane, warps = np.arange(32), self._warps(mask)
        address = operands[0].reshape(-1, 4, 8)[warps]  # of rows of four pieces
        for k, word in enumerate(operands[1:]):
            rows = address[:, k]
            assert (rows % 16 == 0).all()
            banks = rows // 16 % 8
            assert (np.sort(banks) == np.arange(8)).all(), "rows of a piece share banks"
            pair = to_bytes(np.asarray(word).reshape(-1, 32)[warps].ravel(), "i32")
            pair = pair.reshape(-1, 32, 2, 2)  # of each lane, two elements of two bytes
            for j in range(2):
                row, column = lane // 4, 2 * (lane % 4) + j
                row, column = (column, row) if turned else (row, column)
                where = rows[:, row] + 2 * column
                self.shared[where[..., None] + np.arange(2)] = pair[:, :, j]

    def _nvvm_mma_sync(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        """m16n8k16 and m16n8k8 (tf32) as the PTX manual lays out their fragments."""
        text, warps = op.attributes["multiplicandAPtxType"], self._warps(mask)
        group, quad = np.arange(32) // 4, np.arange(32) % 4
        self.products += len(warps)

        def elements(word: np.ndarray) -> np.ndarray:
            """What a register holds, [warps, 32, elements]."""
            if "tf32" in text:
                word = np.asarray(word, np.int32)
                assert not (word & 0x1FFF).any(), "an operand that was not rounded"
                word = word.view(np.float32)[:, None]
            elif word.ndim == 1:
                kind = "bf16" if "bf16" in text else "f16"
                word = from_bytes(to_bytes(word, "i32"), kind)
            return word.astype(np.float32).reshape(-1, 32, word.shape[1])[warps]

        a, b = [elements(x) for x in operands[:4]], [elements(x) for x in operands[4:6]]
        each, count = a[0].shape[2], len(warps)  # elements of a register, neighbours along k
        big_a = np.zeros((count, 16, 8 * each), np.float32)
        big_b = np.zeros((count, 8 * each, 8), np.float32)
        big_c = np.zeros((count, 16, 8), np.float32)
        for j in range(each):
            k = quad * each + j
            for r in range(4):
                big_a[:, group + 8 * (r % 2), k + 4 * each * (r // 2)] = a[r][..., j]
            for r in range(2):
                big_b[:, k + 4 * each * r, group] = b[r][..., j]
        for i, c in enumerate(operands[6:]):
            big_c[:, group + 8 * (i // 2), quad * 2 + i % 2] = c.reshape(-1, 32)[warps]
        product = big_c + big_a @ big_b
        out = np.zeros((4, self.threads // 32, 32), np.float32)
        for i in range(4):
            out[i, warps] = product[:, group + 8 * (i // 2), quad * 2 + i % 2]
        return list(out.reshape(4, -1))

    # ---- values

    def _llvm_extractvalue(self, op: Op, operands: Any, mask: Any) -> Any:
        return operands[0][op.attributes["position"][0]]

    def _llvm_extractelement(self, op: Op, operands: Any, mask: Any) -> Any:
        return operands[0][:, int(operands[1][0])]

    def _vector_broadcast(self, op: Op, operands: Any, mask: Any) -> Any:
        return np.repeat(operands[0][:, None], op.results[0].count, 1)

    def _vector_from_elements(self, op: Op, operands: Any, mask: Any) -> Any:
        return np.stack(operands, 1)

    def _llvm_bitcast(self, op: Op, operands: Any, mask: Any) -> Any:
        made = op.results[0]
        values = from_bytes(to_bytes(operands[0], op.operands[0].kind), made.kind)
        return values if made.count > 1 else values[:, 0]

    def _arith_constant(self, op: Op, operands: Any, mask: Any) -> Any:
        made = op.results[0]
        if made in self.env:  # a step of a loop before this one
            return self.env[made]
        shape = (self.threads, made.count) if made.vector else self.threads
        return np.full(shape, op.attributes["value"])

    def _llvm_call_intrinsic(self, op: Op, operands: Any, mask: Any) -> Any:
        name = op.attributes["intrin"].split(".")[1]
        return scalar_ops.intrinsic(name, operands, op.results[0].kind)

    def _llvm_intr_fma(self, op: Op, operands: Any, mask: Any) -> Any:
        return scalar_ops.fma(*operands, op.results[0].kind)

    def _nvvm_ex2(self, op: Op, operands: Any, mask: Any) -> Any:
        return scalar_ops.exp2(operands[0])

    def _nvvm_rcp_approx_ftz_f(self, op: Op, operands: Any, mask: Any) -> Any:
        return scalar_ops.reciprocal(operands[0])

    def _arith_select(self, op: Op, operands: Any, mask: Any) -> Any:
        return _where(*operands)

    def _arith_bitcast(self, op: Op, operands: Any, mask: Any) -> Any:
        return self._llvm_bitcast(op, operands, mask)

    def _arith_cmpi(self, op: Op, operands: Any, mask: Any) -> Any:
        code, kind = op.attributes["predicate"], op.operands[0].kind
        return scalar_ops.compare_integers(code, *operands, kind)

    def _arith_cmpf(self, op: Op, operands: Any, mask: Any) -> Any:
        return scalar_ops.compare_floats(op.attributes["predicate"], *operands)


def _where(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition[:, None] if a.ndim > condition.ndim else condition, a, b)
