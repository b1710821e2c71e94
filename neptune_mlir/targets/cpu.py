# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a CPU has, x86-64 or AArch64, as data: vector width, registers, instruction features."""

from __future__ import annotations

import ctypes
import functools
import os
from contextvars import ContextVar
from dataclasses import dataclass

# What every core that this is for has at least: bytes of data in the nearest cache.
NEAR_BYTES = 32 << 10
LINE = 64  # bytes of a line of a cache
# Bytes of a result that does not wait in a cache for who reads it.
UNCACHED = 24 * 1024 * 1024
# Cores that are taken to start as many `vdpbf16ps` as multiply-adds of f32; none of them was timed.
# Intel's take four times as long for one (0.77 ns for 0.20, Emerald Rapids): twice as long for a
# product.
FAST_DOTS = ("znver4", "znver5")
# How hard LLVM works on code for CPUs, 0 to 3. Only what asks what a result is, and not how fast
# it comes, has use for less than all: this package's own tests.
EFFORT: ContextVar[int] = ContextVar("EFFORT", default=3)


@dataclass(frozen=True)
class CpuTarget:
    """One kind of CPU core.

    Attributes:
        name: LLVM's name of the core (`-mcpu`).
        features: LLVM's feature string (`+avx2,+fma,...`).
        triple: LLVM's target triple.
        vector_bits: width of a vector register.
        vector_registers: how many of them there are.
    """

    name: str
    features: str
    triple: str
    vector_bits: int
    vector_registers: int

    @property
    def lanes(self) -> int:
        """32-bit elements in a vector register: every kernel works on this many at a time."""
        return self.vector_bits // 32

    @property
    def is_arm(self) -> bool:
        return is_arm(self.triple)

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    @property
    def fma(self) -> bool:
        """Whether a multiplication and an addition are one instruction, rounded once."""
        return self.is_arm or self.has("fma")

    @property
    def pairs(self) -> str:
        """What multiplies pairs of bf16 numbers: "tiles" (AMX), "dots" (vectors) or "none"."""
        if self.vector_bits != 512:
            return "none"
        fast_dots = self.has("avx512bf16") and self.name in FAST_DOTS
        return "tiles" if self.has("amx-bf16") else "dots" if fast_dots else "none"

    def needs(self) -> dict[str, object]:
        """What a machine has to be to run code for this core, as a bundle says it."""
        features = [f[1:] for f in self.features.split(",") if f.startswith("+")]
        return {"triple": self.triple, "cpu": self.name, "features": features}


def is_arm(triple: str) -> bool:
    """Whether a triple is of AArch64 (which Apple calls arm64)."""
    return triple.partition("-")[0] in ("aarch64", "arm64")


def describe(name: str, features: dict[str, bool], triple: str) -> CpuTarget:
    """The target for a core with these LLVM features."""
    text = ",".join(f"{'+' if on else '-'}{f}" for f, on in sorted(features.items()))
    if is_arm(triple):  # vectors of 128 bits, which every core has
        return CpuTarget(name, text, triple, 128, 32)
    wide, middle = features.get("avx512f", False), features.get("avx", False)
    return CpuTarget(
        name, text, triple, 512 if wide else 256 if middle else 128, 32 if wide else 16
    )


# Cores to compile for without having them; `host` is the usual choice.
NAMED = {
    "x86-64": {"sse2": True},
    "x86-64-v3": {"avx": True, "avx2": True, "fma": True, "f16c": True, "bmi": True, "bmi2": True,
                  "sse4.1": True, "sse4.2": True, "ssse3": True, "popcnt": True, "lzcnt": True,
                  "movbe": True},
}  # fmt: skip
NAMED["x86-64-v4"] = NAMED["x86-64-v3"] | {
    f"avx512{part}": True for part in ("f", "bw", "cd", "dq", "vl")
}
NAMED["znver4"] = NAMED["x86-64-v4"] | {"avx512bf16": True, "avx512vnni": True}
NAMED["sapphirerapids"] = NAMED["znver4"] | {"amx-tile": True, "amx-bf16": True}
NAMED_ARM = {
    "armv8-a": ("generic", {"neon": True, "fp-armv8": True}),
    "armv8.2-a": ("neoverse-n1", {"neon": True, "fp-armv8": True, "fullfp16": True, "lse": True,
                                  "dotprod": True, "rdm": True, "crc": True}),
}  # fmt: skip
_ARM_TRIPLE, _X86_TRIPLE = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"


@functools.cache
def host() -> CpuTarget:
    """The machine that this process runs on. NEPTUNE_CPU overrides, with a name of NAMED or
    NAMED_ARM: code for another architecture is to be run elsewhere."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    named = os.environ.get("NEPTUNE_CPU")
    if named:
        from neptune_mlir.errors import UsageError

        if named in NAMED_ARM:
            return describe(*NAMED_ARM[named], triple if is_arm(triple) else _ARM_TRIPLE)
        if named not in NAMED:
            names = ", ".join([*NAMED, *NAMED_ARM])
            raise UsageError(f"NEPTUNE_CPU is '{named}'", hint=f"one of: {names}")
        return describe(named, NAMED[named], _X86_TRIPLE if is_arm(triple) else triple)
    return describe(llvm.get_host_cpu_name(), host_features(), triple)


@functools.cache
def host_features() -> dict[str, bool]:
    """LLVM's features of the machine that this process runs on, as far as it may use them."""
    import llvmlite.binding as llvm

    found = dict(llvm.get_host_cpu_features())
    if found.get("amx-tile") and not _tiles_allowed():
        found |= {name: False for name in found if name.startswith("amx-")}
    return found


def _tiles_allowed() -> bool:
    """Whether this process may use AMX's tiles: Linux keeps 8 KiB more of each thread that does,
    and wants to be asked (arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)."""
    try:
        return ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0
    except (AttributeError, OSError):
        return False
