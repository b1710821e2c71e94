# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMD's instructions for the lockstep simulator: waves of 64 or 32 lanes, MFMA and WMMA.

What different waves do to one place in shared memory, without a barrier between them, is an error
(the lanes of one wave keep the order of the program). Matrix instructions follow the formulas of
AMD's instruction set manuals, element by element; nothing here reads the tables of
`targets/amd.py`.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from neptune_mlir.targets.amd import amd
from support.chips import simt
from support.chips.simt_ops import Op

Position = tuple[np.ndarray, np.ndarray]  # of each lane: row, column


def mfma(m: int, k: int) -> tuple[Any, Any, Any, int, int]:
    """`v_mfma_f32_{m}x{m}x{k}`: position of element e of A, of B, of D; how many elements."""
    lane = np.arange(64)
    per_lane = m * k // 64

    def a(e: int) -> Position:
        return lane % m, per_lane * (lane // m) + e

    def b(e: int) -> Position:
        return per_lane * (lane // m) + e, lane % m

    def d(e: int) -> Position:
        if m == 32:
            return 8 * (e // 4) + 4 * (lane // 32) + e % 4, lane % 32
        return 4 * (lane // 16) + e, lane % 16

    return a, b, d, per_lane, m * m // 64


def wmma(gfx12: bool) -> tuple[Any, Any, Any, int, int]:
    """`v_wmma_f32_16x16x16` of 32 lanes."""
    lane = np.arange(32)

    def a(e: int) -> Position:
        return lane % 16, 8 * (lane // 16) + e if gfx12 else np.full(32, e)

    def b(e: int) -> Position:
        row, column = a(e)
        return column, row

    def d(e: int) -> Position:
        return (8 * (lane // 16) + e if gfx12 else 2 * e + lane // 16), lane % 16

    return a, b, d, 8 if gfx12 else 16, 8


@functools.cache
def matrix_form(name: str) -> re.Match[str] | None:
    """What the name of an op says of its matrix instruction, if it is one."""
    return re.fullmatch(r"rocdl\.(mfma|wmma)\.f32\.(\d+)x\d+x(\d+)\.?(b?f16|f32).*", name)


class AmdBlock(simt.Block):
    """One block of threads of an AMD chip."""

    def __init__(self, target: str, *rest: Any):
        self.target = amd(target)
        self.races: Races | None = None
        self.warp = self.target.wave
        super().__init__(*rest)

    def step(self, op: Op, mask: np.ndarray) -> None:
        found = matrix_form(op.name)
        if found is None:
            super().step(op, mask)
            return
        waves = self._warps(mask)
        self.products += len(waves)
        kind, m, k, dtype = found[1], int(found[2]), int(found[3]), found[4]
        form = mfma(m, k) if kind == "mfma" else wmma(self.target.name.startswith("gfx12"))
        a, b, c = (self.env[v] for v in op.operands)
        a, b = (x[:, None] if x.ndim == 1 else x for x in (a, b))
        if op.operands[0].vector and op.operands[0].kind == "i16":
            a, b = (simt.from_bytes(simt.to_bytes(x, "i16"), dtype) for x in (a, b))
        assert a.shape[1] == b.shape[1] == form[3] and c.shape[1] == form[4]
        out = np.zeros_like(c, np.float32)
        wave = self.target.wave
        for number in waves:
            here = slice(number * wave, number * wave + wave)
            out[here] = _multiply(form, a[here], b[here], c[here], m, k)
        self.env[op.results[0]] = out

    # ---- shared memory

    def _gpu_barrier(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        super()._gpu_barrier(op, operands, mask)
        self.races = None  # nothing before a barrier meets anything after it

    def _llvm_load(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        if op.operands[0].shared:
            made = op.results[0]
            self._watch(operands[0], simt.SIZES[made.kind] * made.count, mask, None)
        return super()._llvm_load(op, operands, mask)

    def _llvm_store(self, op: Op, operands: Any, mask: np.ndarray) -> None:
        if op.operands[1].shared:
            raw = simt.to_bytes(operands[0], op.operands[0].kind)
            self._watch(operands[1], raw.shape[1], mask, raw)
        super()._llvm_store(op, operands, mask)

    def _watch(self, start: Any, size: int, mask: np.ndarray, raw: np.ndarray | None) -> None:
        if self.races is None:
            self.races = Races(len(self.shared))
        wave = self.target.wave
        for first in range(0, self.threads, wave):
            here = np.flatnonzero(mask[first : first + wave]) + first
            at = start[here][:, None] + np.arange(size)
            if raw is not None:  # threads that hold the same element may all write it
                changed = self.races.changes(at, raw[here])
                self.races.write(at[changed], first // wave)
            else:
                self.races.read(at.ravel(), first // wave)

    # ---- moves between lanes

    def _lanes(self) -> np.ndarray:
        return np.arange(self.threads)

    def _rocdl_ds_swizzle(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        assert len(self._warps(mask))
        pattern = int(operands[1][0])
        assert pattern & 0x83FF == 0x1F, "only exclusive or with a mask"
        return operands[0][self._lanes() ^ (pattern >> 10)]

    def _rocdl_ds_bpermute(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        assert len(self._warps(mask))
        wave = self.target.wave
        lanes = operands[0].astype(np.int64) // 4 % wave
        return operands[1][self._lanes() // wave * wave + lanes]

    def _rocdl_permlanex16(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        assert len(self._warps(mask)) and self.target.wave == 32
        picks = [int(operands[2][0]) & 0xFFFFFFFF, int(operands[3][0]) & 0xFFFFFFFF]
        assert picks == [0x76543210, 0xFEDCBA98], "only each lane's counterpart"
        return operands[1][self._lanes() ^ 16]

    def _rocdl_update_dpp(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        assert len(self._warps(mask))
        control = op.attributes["dppCtrl"]
        lane = self._lanes()
        if control < 0x100:  # quad_perm
            source = lane // 4 * 4 + (control >> 2 * (lane % 4)) % 4
        else:
            assert 0x160 < control < 0x170 and self.target.wave == 32, "row_xmask is of gfx10 on"
            source = lane ^ (control & 15)
        return operands[1][source]

    def _rocdl_ballot(self, op: Op, operands: Any, mask: np.ndarray) -> Any:
        assert len(self._warps(mask))
        wave = self.target.wave
        bits = operands[0].reshape(-1, wave).astype(np.uint64) << np.arange(wave, dtype=np.uint64)
        words = np.repeat(bits.sum(1, dtype=np.uint64), wave)
        return words.view(np.int64) if wave == 64 else words.astype(np.uint32).view(np.int32)

    # ---- the rest

    def _rocdl_iglp_opt(self, op: Op, operands: Any, mask: Any) -> None:
        """Says how instructions are to be ordered, and does nothing."""

    _rocdl_s_setprio = _rocdl_iglp_opt

    def _llvm_mlir_zero(self, op: Op, operands: Any, mask: Any) -> Any:
        made = op.results[0]
        return np.zeros((self.threads, made.count), made.numpy or np.float32)

    def _rocdl_exp2(self, op: Op, operands: Any, mask: Any) -> Any:
        return self._nvvm_ex2(op, operands, mask)

    def _rocdl_rcp(self, op: Op, operands: Any, mask: Any) -> Any:
        return self._nvvm_rcp_approx_ftz_f(op, operands, mask)


class Races:
    """Which wave read and wrote each byte of shared memory since the last barrier."""

    NOBODY, SEVERAL = -1, -2

    def __init__(self, size: int):
        self.reader = np.full(size, self.NOBODY, np.int16)
        self.writer = np.full(size, self.NOBODY, np.int16)
        self.value = np.zeros(size, np.uint8)  # what was written

    def changes(self, at: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Which of these bytes have not been written already with the same value."""
        same = (self.writer[at] != self.NOBODY) & (self.value[at] == raw)
        self.value[at] = raw
        return ~same

    def write(self, at: np.ndarray, wave: int) -> None:
        for before in (self.reader[at], self.writer[at]):
            assert self._own(before, wave).all(), "no barrier before a write"
        self.writer[at] = wave

    def read(self, at: np.ndarray, wave: int) -> None:
        assert self._own(self.writer[at], wave).all(), "no barrier before a read"
        self.reader[at] = np.where(self._own(self.reader[at], wave), wave, self.SEVERAL)

    def _own(self, found: np.ndarray, wave: int) -> np.ndarray:
        return (found == self.NOBODY) | (found == wave)


def _multiply(form: Any, a: Any, b: Any, c: Any, m: int, k: int) -> np.ndarray:
    """One wave's D = C + A B, through whole matrices."""
    at_a, at_b, at_d, elements, results = form
    whole_a, whole_b = np.full((m, k), np.nan, np.float32), np.full((k, m), np.nan, np.float32)
    for e in range(elements):
        _place(whole_a, at_a(e), a[:, e].astype(np.float32))
        _place(whole_b, at_b(e), b[:, e].astype(np.float32))
    whole = np.zeros((m, m), np.float32)
    for e in range(results):
        whole[at_d(e)] = c[:, e]
    whole += whole_a @ whole_b
    return np.stack([whole[at_d(e)] for e in range(results)], 1)


def _place(whole: np.ndarray, at: Position, values: np.ndarray) -> None:
    """Write elements; lanes that hold the same element must agree."""
    whole[at] = values
    assert np.array_equal(whole[at], values, equal_nan=True), "replicated operands differ"
