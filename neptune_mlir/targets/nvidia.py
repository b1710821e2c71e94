# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What NVIDIA GPUs can do, as data."""

from __future__ import annotations

from dataclasses import dataclass

from neptune_mlir.errors import UsageError


@dataclass(frozen=True)
class MatrixInstruction:
    """`D[m, n] += A[m, k] * B[n, k]` of one warp: its name, shape and element type."""

    name: str
    m: int
    n: int
    k: int
    operand: str  # element type of A and B; the accumulator is f32


@dataclass(frozen=True)
class NvidiaTarget:
    """One chip architecture.

    Attributes:
        name: as `ptxas -arch` and LLVM's `-mcpu` spell it.
        ptx: PTX version to emit, as LLVM's feature string.
        shared_block: bytes of shared memory that one block can have.
        shared_sm: bytes of shared memory of one multiprocessor.
        registers: 32-bit registers of one multiprocessor.
        threads: resident threads of one multiprocessor.
        matrix: matrix instructions of the portable path (registers in, registers out).
        copies: kinds of asynchronous copy from global to shared memory.
    """

    name: str
    ptx: str
    shared_block: int
    shared_sm: int
    registers: int
    threads: int
    matrix: tuple[MatrixInstruction, ...]
    copies: tuple[str, ...]
    wave: int = 32

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, for example (9, 0)."""
        digits = self.name.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    @property
    def exact(self) -> bool:
        """Whether code for this target runs on this very architecture only (`a` suffix)."""
        return self.name.endswith("a")

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a device of this compute capability runs code for this target."""
        if self.exact:
            return capability == self.capability
        return capability[0] == self.capability[0] and capability[1] >= self.capability[1]

    def matrix_for(self, dtype: str) -> MatrixInstruction | None:
        return next((m for m in self.matrix if m.operand == dtype), None)

    def blocks_per_sm(self, threads: int, registers: int, shared: int) -> int:
        """Resident blocks of one multiprocessor (registers go out in units of 256 a warp)."""
        warps = -(-threads // self.wave)
        by_registers = self.registers // (-(-registers * self.wave // 256) * 256 * warps)
        by_shared = self.shared_sm // (shared + 1024)  # 1 KiB a block is the system's
        return min(self.threads // threads, by_registers, by_shared, 32)


_MMA = (
    MatrixInstruction("mma.sync", 16, 8, 16, "f16"),
    MatrixInstruction("mma.sync", 16, 8, 16, "bf16"),
)
KIB = 1024

TARGETS: dict[str, NvidiaTarget] = {
    t.name: t
    for t in (
        NvidiaTarget("sm_80", "+ptx80", 163 * KIB, 164 * KIB, 65536, 2048, _MMA, ("cp.async",)),
        NvidiaTarget("sm_86", "+ptx80", 99 * KIB, 100 * KIB, 65536, 1536, _MMA, ("cp.async",)),
        NvidiaTarget("sm_89", "+ptx80", 99 * KIB, 100 * KIB, 65536, 1536, _MMA, ("cp.async",)),
        NvidiaTarget(
            "sm_90a", "+ptx80", 227 * KIB, 228 * KIB, 65536, 2048, _MMA, ("cp.async", "tma")
        ),
        NvidiaTarget(
            "sm_100a", "+ptx86", 227 * KIB, 228 * KIB, 65536, 2048, _MMA, ("cp.async", "tma")
        ),
    )
}


def nvidia(name: str) -> NvidiaTarget:
    """The target called `name`. Raises UsageError when there is none."""
    if name not in TARGETS:
        raise UsageError(f"unknown NVIDIA target '{name}'", hint=f"one of: {', '.join(TARGETS)}")
    return TARGETS[name]
