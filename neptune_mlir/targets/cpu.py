# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an x86 (or any other) CPU has, as data: vector width, registers, instruction features."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass


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

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    def needs(self) -> dict[str, object]:
        """What a machine has to be to run code for this core, as a bundle says it."""
        features = [f[1:] for f in self.features.split(",") if f.startswith("+")]
        return {"triple": self.triple, "cpu": self.name, "features": features}


def describe(name: str, features: dict[str, bool], triple: str) -> CpuTarget:
    """The target for a core with these LLVM features."""
    wide, middle = features.get("avx512f", False), features.get("avx", False)
    text = ",".join(f"{'+' if on else '-'}{f}" for f, on in sorted(features.items()))
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


@functools.cache
def host() -> CpuTarget:
    """The machine that this process runs on (NEPTUNE_CPU overrides, with a name of NAMED)."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    named = os.environ.get("NEPTUNE_CPU")
    if named:
        from neptune_mlir.errors import UsageError

        if named not in NAMED:
            raise UsageError(f"NEPTUNE_CPU is '{named}'", hint=f"one of: {', '.join(NAMED)}")
        return describe(named, NAMED[named], triple)
    return describe(llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features()), triple)
