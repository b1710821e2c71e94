# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What NVIDIA GPUs can do, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.targets import added
from neptune_mlir.targets.gpu import BLOCK_BYTES, GpuTarget, MatrixInstruction


@dataclass(frozen=True)
class Rates:
    """What a multiprocessor does in a cycle, to compare orders of ops by.

    Attributes:
        multiply_adds: of matmuls with 16-bit factors.
        lanes: plain operations on 32-bit floats.
        special: exponentials and the like.
        shared: bytes that shared memory gives.
        spill: cycles that the threads of a warp group take to store a word each and load it again.
    """

    multiply_adds: int = 2048
    lanes: int = 128
    special: int = 16
    shared: int = 128
    spill: int = 8


@dataclass(frozen=True)
class NvidiaTarget(GpuTarget):
    """One chip architecture; `name` is also what `ptxas -arch` takes.

    Attributes:
        ptx: PTX version to emit, as LLVM's feature string.
        warp_groups: whether four warps multiply together from shared memory (wgmma), so that
            kernels can be made of specialised warps.
        rates: of a multiprocessor.
    """

    ptx: str
    warp_groups: bool = False
    rates: Rates = Rates()  # those of sm_90a; the order of loops of other chips does not ask

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, for example (9, 0)."""
        return _capability(self.name)

    @property
    def row_warps(self) -> int:
        return 32

    @property
    def overlaps_launches(self) -> bool:
        return self.capability >= (9, 0)

    @property
    def exact(self) -> bool:
        """Whether code for this target runs on this very architecture only (`a` suffix)."""
        return self.name.endswith("a")

    def runs_on(self, architecture: str) -> bool:
        """Whether a device of an architecture (`sm_90`) runs code for this target."""
        if not architecture.startswith("sm_"):
            return False
        major, minor = _capability(architecture)
        if self.exact:
            return (major, minor) == self.capability
        return major == self.capability[0] and minor >= self.capability[1]

    @property
    def rank(self) -> tuple[int, ...]:
        return (*self.capability, int(self.exact))

    def blocks_per_sm(self, threads: int, registers: int, shared: int) -> int:
        """Resident blocks of one multiprocessor (registers go out in units of 256 a warp)."""
        warps = -(-threads // self.wave)
        by_registers = self.registers // (-(-registers * self.wave // 256) * 256 * warps)
        by_shared = self.shared_sm // (shared + BLOCK_BYTES)
        return min(self.threads // threads, by_registers, by_shared, 32)


def _capability(name: str) -> tuple[int, int]:
    """(9, 0) of `sm_90` and `sm_90a`."""
    digits = name.removeprefix("sm_").rstrip("af")
    return int(digits[:-1]), int(digits[-1])


def _mma(operand: str) -> MatrixInstruction:
    return MatrixInstruction(
        "mma.sync", 16, 8, 16, operand,
        a="reg[k:2*1 m:2*8 k:2*8] lane[k:4*2 m:8*1]",
        b="reg[k:2*1 k:2*8] lane[k:4*2 n:8*1]",
        c="reg[n:2*1 m:2*8] lane[n:4*2 m:8*1]",
        chain="a",
    )  # fmt: skip


# The sum does not care for the order of k: the instruction's k = lane + 4 r is element
# 2 lane + r here, so that lanes have neighbours, as in accumulators.
_TF32 = MatrixInstruction(
    "mma.sync", 16, 8, 8, "f32",
    a="reg[m:2*8 k:2*1] lane[k:4*2 m:8*1]",
    b="reg[k:2*1] lane[k:4*2 n:8*1]",
    c="reg[n:2*1 m:2*8] lane[n:4*2 m:8*1]",
    chain="a", precision="tf32",
)  # fmt: skip

# The same with k as the chip numbers it: what a left factor in registers is, beside a right one
# that warp groups read from shared memory.
_TF32_ROWS = replace(
    _TF32, a="reg[m:2*8 k:2*4] lane[k:4*1 m:8*1]", b="reg[k:2*4] lane[k:4*1 n:8*1]", in_order=True
)

# Of warp groups alone. What an accumulator leaves a thread of 16 columns are the first pairs of two
# rows of 8; the instruction takes 4 neighbours. The sum does not care: its k = 4 lane + 2 p + r is
# element 2 lane + 8 p + r here, in `a` and in `b` (`group_compute` sees to memory).
_E4M3 = MatrixInstruction(
    "wgmma", 16, 8, 32, FLOAT8,
    a="reg[k:2*1 k:2*8 m:2*8 k:2*16] lane[k:4*2 m:8*1]",
    b="reg[k:2*1 k:2*8 k:2*16] lane[k:4*2 n:8*1]",
    c="reg[n:2*1 m:2*8] lane[n:4*2 m:8*1]",
    chain="a", in_order=True,
)  # fmt: skip

_MMA = (_mma("f16"), _mma("bf16"), _TF32, _TF32_ROWS)
KIB = 1024

_TMA = ("cp.async", "tma")


def _chip(
    name: str, block: int, sm: int, threads: int, copies: tuple[str, ...] = ("cp.async",),
    ptx: str = "+ptx80", warp_groups: bool = False,
) -> NvidiaTarget:  # fmt: skip
    matrix = (*_MMA, _E4M3) if warp_groups else _MMA
    return NvidiaTarget(
        name, 32, block * KIB, sm * KIB, 65536, threads, matrix, copies, True, 64, 0, 255, ptx,
        warp_groups,
    )  # fmt: skip


TARGETS: dict[str, NvidiaTarget] = {
    t.name: t
    for t in (
        _chip("sm_80", 163, 164, 2048),
        _chip("sm_86", 99, 100, 1536),
        _chip("sm_89", 99, 100, 1536),
        _chip("sm_90a", 227, 228, 2048, _TMA, "+ptx81", warp_groups=True),
        _chip("sm_100a", 227, 228, 2048, _TMA, "+ptx86"),
    )
}


def architecture(capability: Sequence[int]) -> str:
    """`sm_90` of (9, 0)."""
    return "sm_{}{}".format(*capability)


def nvidia(name: str) -> NvidiaTarget:
    """The target called `name`. Raises UsageError when there is none."""
    return added.find(TARGETS, name, "NVIDIA target")
