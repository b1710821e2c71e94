# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a distributed kernel (`gpu.func` over `nvvm`) on NumPy, all threads of a block in lockstep.

It checks what a machine without a GPU can check: fragment layouts, addresses, swizzles,
predicates, and that no tile is read before its asynchronous copy was waited for (a copy takes
effect only at the wait that covers it; shared memory starts as NaN). It does not see races.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scalar_ops
from scalar_ops import NUMPY, bf16_round

from neptune_mlir.ir.bindings import ir

HEAP_ALIGN = 256


def _kind(t: Any) -> str:
    return str(t)


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


SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


class Memory:
    """Global memory: arrays one after the other, with guard bytes between them."""

    def __init__(self) -> None:
        self.heap = np.zeros(HEAP_ALIGN, np.uint8)
        self.guards: list[tuple[int, int]] = []

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

    def check_guards(self) -> None:
        for start, end in self.guards:
            assert (self.heap[start:end] == 0xFF).all(), "a store went past the end of an array"


class Block:
    """One block of threads."""

    def __init__(self, function: Any, memory: Memory, arguments: list[Any], number: int):
        attributes = function.attributes
        self.threads = next(iter(ir.DenseI32ArrayAttr(attributes["known_block_size"])))
        size = ir.IntegerAttr(attributes["neptune.shared"]).value
        self.shared = np.full(max(size, 16), 0xFF, np.uint8)
        self.memory, self.number = memory, number
        self.env: dict[Any, Any] = {}
        self.open: list[Any] = []  # copies since the last commit
        self.groups: list[list[Any]] = []
        self.products = 0  # matrix instructions of warps
        block = function.regions[0].blocks[0]
        for argument, value in zip(block.arguments, arguments, strict=True):
            kind = NUMPY.get(_kind(argument.type), np.int64)
            self.env[argument] = np.full(self.threads, value, kind)
        self.run(block, np.ones(self.threads, bool))

    def value(self, v: Any) -> Any:
        return self.env[v]

    def run(self, block: Any, mask: np.ndarray) -> list[Any]:
        for op in block.operations:
            operation = op.operation
            if operation.name in ("scf.yield", "scf.condition", "gpu.return"):
                return [self.env[v] for v in operation.operands]
            self.step(operation, mask)
        return []

    def step(self, op: Any, mask: np.ndarray) -> None:
        handler = getattr(self, "_" + op.name.replace(".", "_"), None)
        operands = [self.env[v] for v in op.operands]
        if handler is not None:
            result = handler(op, operands, mask)
        else:
            result = self._scalar(op, operands)
        if len(op.results) == 1:
            result = [result]
        for v, r in zip(op.results, result or [], strict=True):
            kind = NUMPY.get(self._vector(v.type)[0])
            self.env[v] = r if kind is None else r.astype(kind, copy=False)

    def _scalar(self, op: Any, operands: list[Any]) -> Any:
        """An op on each thread's own values."""
        dialect, _, name = op.name.partition(".")
        if dialect == "arith":
            kinds = [self._vector(v.type)[0] for v in op.operands]
            made = scalar_ops.apply(name, operands, kinds, self._vector(op.results[0].type)[0])
            if made is not None:
                return made
        raise NotImplementedError(op.name)

    # ---- control

    def _scf_for(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        low, high, step, *carried = operands
        bounds = [bound[mask] for bound in (low, high, step)]
        for bound in bounds:
            assert (bound == bound[0]).all(), "a loop whose bounds differ between threads"
        body = op.regions[0].blocks[0]
        for i in range(*(int(bound[0]) for bound in bounds)):
            self.env[body.arguments[0]] = np.full(self.threads, i, np.int64)
            self.env.update(zip(list(body.arguments)[1:], carried, strict=True))
            carried = self.run(body, mask)
        return carried if len(op.results) != 1 else carried[0]

    def _scf_if(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        condition, made = operands[0], []
        for region, taken in zip(op.regions, (mask & condition, mask & ~condition), strict=True):
            if len(region.blocks) and taken.any():
                made.append(self.run(region.blocks[0], taken))
        if not len(op.results):
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

    def _gpu_thread_id(self, op: Any, operands: Any, mask: Any) -> Any:
        return np.arange(self.threads)

    def _gpu_block_id(self, op: Any, operands: Any, mask: Any) -> Any:
        return np.full(self.threads, self.number)

    def _gpu_barrier(self, op: Any, operands: Any, mask: np.ndarray) -> None:
        assert mask.all(), "a barrier that some threads do not reach"

    def _nvvm_shfl_sync(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        assert len(self._warps(mask)) and "bfly" in str(op.attributes["kind"])
        return operands[1][np.arange(self.threads) ^ operands[2]]

    # ---- memory

    def _llvm_mlir_addressof(self, op: Any, operands: Any, mask: Any) -> Any:
        return np.zeros(self.threads, np.int64)

    def _llvm_getelementptr(self, op: Any, operands: Any, mask: Any) -> Any:
        if len(operands) == 1:
            (offset,) = ir.DenseI32ArrayAttr(op.attributes["rawConstantIndices"])
            return operands[0] + offset
        return operands[0] + operands[1].astype(np.int64)

    def _space(self, pointer: Any) -> np.ndarray:
        return self.shared if "<3>" in str(pointer.type) else self.memory.heap

    @staticmethod
    def _vector(t: Any) -> tuple[str, int]:
        if isinstance(t, ir.VectorType):
            return _kind(t.element_type), t.shape[0]
        return _kind(t), 1

    def _llvm_load(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        kind, count = self._vector(op.results[0].type)
        size = SIZES[kind] * count
        address = np.where(mask, operands[0], 0)
        assert (address % ir.IntegerAttr(op.attributes["alignment"]).value == 0).all(), "misaligned"
        raw = self._space(op.operands[0])[address[:, None] + np.arange(size)]
        values = from_bytes(raw, kind)
        return values if count > 1 else values[:, 0]

    def _llvm_store(self, op: Any, operands: Any, mask: np.ndarray) -> None:
        kind, _count = self._vector(op.operands[0].type)
        raw = to_bytes(operands[0], kind)
        address = operands[1][mask]
        assert (address % ir.IntegerAttr(op.attributes["alignment"]).value == 0).all(), "misaligned"
        self._space(op.operands[1])[address[:, None] + np.arange(raw.shape[1])] = raw[mask]

    def _nvvm_cp_async_shared_global(self, op: Any, operands: Any, mask: np.ndarray) -> None:
        target, source = operands[:2]
        size = operands[2] if len(operands) > 2 else np.full(self.threads, 16)
        assert (target[mask] % 16 == 0).all() and (source[mask & (size > 0)] % 16 == 0).all()
        self.open.append((target.copy(), source.copy(), size.copy(), mask.copy()))

    def _llvm_inline_asm(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        text = ir.StringAttr(op.attributes["asm_string"]).value
        if text.startswith("cvt.rna.tf32"):
            return (operands[0].astype(np.float32).view(np.int32) + 0x1000) & ~0x1FFF
        if "vote.sync.all" in text:
            assert len(self._warps(mask))
            return np.repeat((operands[0] != 0).reshape(-1, 32).all(1), 32).astype(np.int32)
        assert text.startswith("griddepcontrol.")  # launches run one after the other here
        return None

    def _nvvm_cp_async_commit_group(self, op: Any, operands: Any, mask: np.ndarray) -> None:
        assert mask.all()
        self.groups.append(self.open)
        self.open = []

    def _nvvm_cp_async_wait_group(self, op: Any, operands: Any, mask: np.ndarray) -> None:
        pending = ir.IntegerAttr(op.attributes["n"]).value
        while len(self.groups) > pending:
            for target, source, size, where in self.groups.pop(0):
                for t in np.flatnonzero(where):
                    chunk = np.zeros(16, np.uint8)
                    chunk[: size[t]] = self.memory.heap[source[t] : source[t] + size[t]]
                    self.shared[target[t] : target[t] + 16] = chunk

    # ---- matrices

    def _nvvm_ldmatrix(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        count = ir.IntegerAttr(op.attributes["num"]).value
        trans = "col" in str(op.attributes["layout"])
        words = [np.zeros(self.threads, np.int32) for _ in range(count)]
        lane = np.arange(32)
        for warp in self._warps(mask):
            address = operands[0][warp * 32 : warp * 32 + 32]
            for k in range(count):
                rows = address[8 * k : 8 * k + 8]
                assert (rows % 16 == 0).all()
                piece = self.shared[rows[:, None] + np.arange(16)].view(np.uint16)
                piece = piece.T if trans else piece
                pair = np.stack([piece[lane // 4, 2 * (lane % 4) + j] for j in range(2)], 1)
                words[k][warp * 32 : warp * 32 + 32] = (
                    np.ascontiguousarray(pair).view(np.int32)[:, 0]
                )
        return words

    def _nvvm_mma_sync(self, op: Any, operands: Any, mask: np.ndarray) -> Any:
        """m16n8k16 and m16n8k8 (tf32) as the PTX manual lays out their fragments."""
        text = str(op.attributes["multiplicandAPtxType"])
        group, quad = np.arange(32) // 4, np.arange(32) % 4

        def elements(word: np.ndarray) -> np.ndarray:
            """What a register holds, [T, elements]."""
            if "tf32" in text:
                word = np.asarray(word, np.int32)
                assert not (word & 0x1FFF).any(), "an operand that was not rounded"
                return word.view(np.float32)[:, None]
            if word.ndim == 2:
                return word.astype(np.float32)
            kind = "bf16" if "bf16" in text else "f16"
            return from_bytes(to_bytes(word, "i32"), kind).astype(np.float32)

        a, b = [elements(x) for x in operands[:4]], [elements(x) for x in operands[4:6]]
        c = operands[6:]
        self.products += len(self._warps(mask))
        each = a[0].shape[1]  # elements of a register, neighbours along k
        out = [np.zeros(self.threads, np.float32) for _ in range(4)]
        for warp in self._warps(mask):
            here = slice(warp * 32, warp * 32 + 32)
            big_a, big_b = np.zeros((16, 8 * each), np.float32), np.zeros((8 * each, 8), np.float32)
            big_c = np.zeros((16, 8), np.float32)
            for j in range(each):
                k = quad * each + j
                for r in range(4):
                    big_a[group + 8 * (r % 2), k + 4 * each * (r // 2)] = a[r][here, j]
                for r in range(2):
                    big_b[k + 4 * each * r, group] = b[r][here, j]
            for i in range(4):
                big_c[group + 8 * (i // 2), quad * 2 + i % 2] = c[i][here]
            product = big_c + big_a @ big_b
            for i in range(4):
                out[i][here] = product[group + 8 * (i // 2), quad * 2 + i % 2]
        return out

    # ---- values

    def _llvm_extractvalue(self, op: Any, operands: Any, mask: Any) -> Any:
        return operands[0][next(iter(ir.DenseI64ArrayAttr(op.attributes["position"])))]

    def _llvm_extractelement(self, op: Any, operands: Any, mask: Any) -> Any:
        return operands[0][:, int(operands[1][0])]

    def _vector_broadcast(self, op: Any, operands: Any, mask: Any) -> Any:
        return np.repeat(operands[0][:, None], self._vector(op.results[0].type)[1], 1)

    def _vector_from_elements(self, op: Any, operands: Any, mask: Any) -> Any:
        return np.stack(operands, 1)

    def _llvm_bitcast(self, op: Any, operands: Any, mask: Any) -> Any:
        source, _ = self._vector(op.operands[0].type)
        target, count = self._vector(op.results[0].type)
        values = from_bytes(to_bytes(operands[0], source), target)
        return values if count > 1 else values[:, 0]

    def _arith_constant(self, op: Any, operands: Any, mask: Any) -> Any:
        kind, value = op.results[0].type, op.attributes["value"]
        if isinstance(kind, ir.VectorType):
            splat = ir.DenseElementsAttr(value).get_splat_value().value
            return np.full((self.threads, kind.shape[0]), splat)
        return np.full(self.threads, value.value)

    def _llvm_call_intrinsic(self, op: Any, operands: Any, mask: Any) -> Any:
        name = ir.StringAttr(op.attributes["intrin"]).value.split(".")[1]
        return scalar_ops.intrinsic(name, operands, self._vector(op.results[0].type)[0])

    def _llvm_intr_fma(self, op: Any, operands: Any, mask: Any) -> Any:
        return scalar_ops.fma(*operands, self._vector(op.results[0].type)[0])

    def _nvvm_ex2(self, op: Any, operands: Any, mask: Any) -> Any:
        return scalar_ops.exp2(operands[0])

    def _nvvm_rcp_approx_ftz_f(self, op: Any, operands: Any, mask: Any) -> Any:
        return scalar_ops.reciprocal(operands[0])

    def _arith_select(self, op: Any, operands: Any, mask: Any) -> Any:
        return _where(*operands)

    def _arith_bitcast(self, op: Any, operands: Any, mask: Any) -> Any:
        return self._llvm_bitcast(op, operands, mask)

    def _arith_cmpi(self, op: Any, operands: Any, mask: Any) -> Any:
        code = ir.IntegerAttr(op.attributes["predicate"]).value
        kind, _ = self._vector(op.operands[0].type)
        return scalar_ops.compare_integers(code, *operands, kind)

    def _arith_cmpf(self, op: Any, operands: Any, mask: Any) -> Any:
        code = ir.IntegerAttr(op.attributes["predicate"]).value
        return scalar_ops.compare_floats(code, *operands)


def _where(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition[:, None] if a.ndim > condition.ndim else condition, a, b)
