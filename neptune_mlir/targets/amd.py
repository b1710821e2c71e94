# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What AMD GPUs can do, as data."""

from __future__ import annotations

from dataclasses import dataclass

from neptune_mlir.targets import added
from neptune_mlir.targets.gpu import GpuTarget, MatrixInstruction

KIB = 1024


@dataclass(frozen=True)
class Issue:
    """Cycles of a processor (SIMD) of a compute unit. The rates of matrix units are the peaks that
    the maker states, by units and clock (`roofline.py`); the others are of the ISA manuals.

    Attributes:
        vector: cycles for which a wave's vector instruction keeps the unit.
        slow: the same of exponentials, reciprocals and roots.
        flops16, flops32: operations of matrix instructions a cycle, by the type of the factors.
        shared_bytes: bytes of shared memory a cycle, of the whole compute unit.
        shared_latency: cycles from a load from shared memory to its value.
    """

    vector: int
    slow: int
    flops16: int
    flops32: int
    shared_bytes: int = 128
    shared_latency: int = 128


@dataclass(frozen=True)
class AmdTarget(GpuTarget):
    """One chip architecture. A compute unit is its multiprocessor.

    Attributes:
        units: compute units of the chip, in its largest product.
        xcds: accelerator dies of the chip.
        interleave: what `pace-products` does where nobody chose: 0, or 1 more than the variant of
            `rocdl.iglp.opt`.
        issue: how many cycles instructions take.
        granule: vector registers of a thread go out in units of this.
        moves: how a lane can read a register of the lane whose number differs in one bit:
            "quad" and "row" are data-parallel modifiers (of 4 and of 16 lanes), "half" exchanges
            the halves of 32 lanes.
    """

    units: int
    granule: int
    moves: tuple[str, ...]
    issue: Issue
    xcds: int = 1
    interleave: int = 0

    @property
    def dies(self) -> int:
        return self.xcds

    def blocks_per_sm(self, threads: int, registers: int, shared: int) -> int:
        """Resident blocks of one compute unit."""
        taken = max(1, -(-registers // self.granule)) * self.granule
        waves = -(-threads // self.wave)
        by_registers = self.registers // (taken * self.wave * waves)
        by_shared = self.shared_sm // shared if shared else self.threads
        return min(self.threads // threads, by_registers, by_shared)


def _mfma(name: str, rows: int, k: int, operand: str) -> MatrixInstruction:
    """`v_mfma` of CDNA, 64 lanes: a lane holds k in runs of 4.

    The wide ones of gfx950 document 8 consecutive k a lane. Sums run over k in any order that A
    and B share; in this one an accumulator can become B. An instruction on f32 takes one k a lane:
    4 of them count as one, so that their order of k allows the same.
    """
    groups = 64 // rows  # of lanes that share a row of A
    runs = k // (4 * groups)
    more = f" k:{runs}*{4 * groups}" if runs > 1 else ""
    blocks = f" m:{rows // (4 * groups)}*{4 * groups}" if rows > 4 * groups else ""
    return MatrixInstruction(
        f"rocdl.mfma.f32.{name}", rows, rows, k, operand,
        a=f"reg[k:4*1{more}] lane[m:{rows}*1 k:{groups}*4]",
        b=f"reg[k:4*1{more}] lane[n:{rows}*1 k:{groups}*4]",
        c=f"reg[m:4*1{blocks}] lane[n:{rows}*1 m:{groups}*4]",
        chain="b", parts=4 if operand == "f32" else 1, words=name.endswith("1k"),
    )  # fmt: skip


_CDNA2 = (
    _mfma("32x32x8f16", 32, 8, "f16"),
    _mfma("16x16x16f16", 16, 16, "f16"),
    _mfma("32x32x8bf16.1k", 32, 8, "bf16"),
    _mfma("16x16x16bf16.1k", 16, 16, "bf16"),
    _mfma("32x32x2f32", 32, 8, "f32"),
    _mfma("16x16x4f32", 16, 16, "f32"),
)
_CDNA4 = (
    _mfma("32x32x16.f16", 32, 16, "f16"),
    _mfma("16x16x32.f16", 16, 32, "f16"),
    _mfma("32x32x16.bf16", 32, 16, "bf16"),
    _mfma("16x16x32.bf16", 16, 32, "bf16"),
    *_CDNA2,
)


def _rdna3(operand: str) -> MatrixInstruction:
    """`v_wmma` of gfx11, 32 lanes: both halves of a wave hold all of A and B."""
    return MatrixInstruction(
        f"rocdl.wmma.f32.16x16x16.{operand}", 16, 16, 16, operand,
        a="reg[k:16*1] lane[m:16*1 -:2]",
        b="reg[k:16*1] lane[n:16*1 -:2]",
        c="reg[m:8*2] lane[n:16*1 m:2*1]",
        chain="b", words=operand == "bf16",
    )  # fmt: skip


def _rdna4(operand: str) -> MatrixInstruction:
    """`v_wmma` of gfx12, 32 lanes: each half of a wave holds half of k."""
    return MatrixInstruction(
        f"rocdl.wmma.f32.16x16x16.{operand}", 16, 16, 16, operand,
        a="reg[k:8*1] lane[m:16*1 k:2*8]",
        b="reg[k:8*1] lane[n:16*1 k:2*8]",
        c="reg[m:8*1] lane[n:16*1 m:2*8]",
        chain="b", words=operand == "bf16",
    )  # fmt: skip


_WMMA3 = tuple(map(_rdna3, ("f16", "bf16")))
_WMMA4 = tuple(map(_rdna4, ("f16", "bf16")))


def _cdna(
    name: str, units: int, shared: int, matrix: tuple[MatrixInstruction, ...],
    copies: tuple[str, ...], issue: Issue, xcds: int, interleave: int,
) -> AmdTarget:  # fmt: skip
    registers = 4 * 64 * 512
    return AmdTarget(
        name, 64, shared, shared, registers, 2048, matrix, copies, False, 64, 64, 512,
        units=units, granule=8, moves=("quad",), issue=issue, xcds=xcds,
        interleave=interleave,
    )  # fmt: skip


def _rdna(
    name: str, units: int, matrix: tuple[MatrixInstruction, ...], issue: Issue
) -> AmdTarget:
    registers = 2 * 32 * 1536
    return AmdTarget(
        name, 32, 64 * KIB, 64 * KIB, registers, 1024, matrix, (), False, 64, 0, 256,
        units=units, granule=24, moves=("quad", "row", "half"), issue=issue,
    )  # fmt: skip


TARGETS: dict[str, AmdTarget] = {
    t.name: t
    for t in (
        _cdna("gfx90a", 110, 64 * KIB, _CDNA2, ("lds.4",), Issue(4, 16, 256, 64), 1, 1),
        _cdna("gfx942", 304, 64 * KIB, _CDNA2, ("lds.4",), Issue(4, 16, 512, 64), 8, 1),
        _cdna(
            "gfx950", 256, 160 * KIB, _CDNA4, ("lds.4", "lds.16"),
            Issue(4, 16, 1024, 64, 256), 8, 0,
        ),
        _rdna("gfx1100", 96, _WMMA3, Issue(1, 4, 256, 64)),
        _rdna("gfx1201", 64, _WMMA4, Issue(1, 4, 512, 64)),
    )
}


def amd(name: str) -> AmdTarget:
    """The target called `name`. Raises UsageError when there is none."""
    return added.find(TARGETS, name, "AMD target")
