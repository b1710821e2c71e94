# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How fast chips can be: the two limits of a roofline.

Of GPUs, what the makers state (dense products, no sparsity). Of CPUs, a nominal core: what a
machine really reaches is measured (`runtime/machine.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from neptune_mlir.targets import cpu

TERA = 1e12


@dataclass(frozen=True)
class Roof:
    """Limits of a chip.

    Attributes:
        device: what they are the limits of.
        flops: operations on f32 a second.
        products: operations a second of matrix products with 16-bit factors.
        bytes: bytes that memory moves a second.
        source: where the figures come from.
    """

    device: str
    flops: float
    products: float
    bytes: float
    source: str

    def limit(self, intensity: float, narrow: bool) -> float:
        """Operations a second that a program with so many operations a byte can reach."""
        return min(self.products if narrow else self.flops, intensity * self.bytes)

    def is_worth_a_call(
        self, flops: int, computed: int, moved: int, programs: int, threads: int
    ) -> bool:
        """Whether a kernel of ours is likely sooner done than a library's, as one of many calls on
        a CPU.

        Args:
            flops, moved: operations, and bytes of the arguments and results.
            computed: the operations of ours, whose tiles are whole ones.
            programs: those of a launch; `threads` run them.
        """
        least, own = (max(count / self.flops, moved / self.bytes) for count in (flops, computed))
        saved = LIBRARY * least - OWN * own - programs * PROGRAM
        return saved / min(threads, programs) > CALL


def _stated(device: str, flops: float, products: float, memory: float) -> Roof:
    return Roof(device, flops * TERA, products * TERA, memory * TERA, "as its maker states")


GPUS = {
    "sm_80": _stated("A100 80 GB", 19.5, 312.0, 2.039),
    "sm_86": _stated("RTX A6000", 38.7, 154.8, 0.768),
    "sm_89": _stated("L40S", 91.6, 362.0, 0.864),
    "sm_90a": _stated("H200", 67.0, 989.0, 4.8),
    "sm_100a": _stated("B200", 75.0, 2250.0, 8.0),
    "gfx90a": _stated("one die of an MI250X", 23.9, 191.5, 1.6),
    "gfx942": _stated("MI300X", 163.4, 1307.0, 5.3),
    "gfx950": _stated("MI355X", 157.3, 2517.0, 8.0),
    "gfx1100": _stated("RX 7900 XTX", 61.4, 122.8, 0.96),
    "gfx1201": _stated("RX 9070 XT", 48.7, 194.6, 0.64),
}

# a nominal core: two vector units that multiply and add, at 3 GHz, and its share of the memory
_UNITS, _CLOCK, _CORE_BYTES = 2, 3e9, 10e9

# seconds by which a call on a CPU, and each of its programs, may be behind a library's where its
# threads sleep (docs/notebook/front-ends.md, "Small attention by name")
CALL, PROGRAM = 150e-6, 1.6e-6
# how many times what the chip needs at least attention takes, a library's and ours, whose tiles
# have so many keys (docs/notebook/attention.md, "Tiles of 128 keys beside short rows")
LIBRARY, OWN, KEYS = 2.0, 1.75, 128


def roof_of(target: str) -> Roof | None:
    """The limits of a target; None where nothing is known of it."""
    name = target.partition(",")[0]
    if name != "cpu":
        return GPUS.get(name)
    flops = 2 * _UNITS * cpu.host().lanes * _CLOCK
    return Roof("one nominal core", flops, flops, _CORE_BYTES, "3 GHz, 10 GB/s")
