# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How soon a chip can be done with a program: operations and bytes over the chip's rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neptune_mlir.driver.explain import listings
from neptune_mlir.driver.page.sizes import AssumedSizes
from neptune_mlir.driver.page.svg import bytes_text, rate_text
from neptune_mlir.driver.page.work import masked_cost
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets.roofline import roof_of

NARROW = ("f16", "bf16")


def is_narrow(function: Any) -> bool:
    """Whether a function has arguments of 16 bits: its products are counted at their rate."""
    types = [a.type for a in function.regions[0].blocks[0].arguments]
    return any(isinstance(t, ir.RankedTensorType) and str(t.element_type) in NARROW for t in types)


def bounds(
    module: Any, text: str, target: str, every: int, given: Mapping[str, int]
) -> list[str]:
    """A line for each function of a fused module: what it computes and moves at assumed extents,
    and the time that the chip takes for that at least. None where nothing is known of the chip.

    Args:
        every, given: as of `AssumedSizes`.
    """
    roof = roof_of(target)
    if roof is None:
        return [f"bound: nothing is known of how fast {target} can be"]
    lines = []
    for listing in listings(module, text):
        arguments = listing.function.regions[0].blocks[0].arguments
        sizes = AssumedSizes([listing.values.key(a) for a in arguments], every, given)
        cost, _ = masked_cost(listing, sizes)
        peak = roof.products if is_narrow(listing.function) else roof.flops
        compute, memory = cost.flops / peak, cost.bytes / roof.bytes
        by = "operations" if compute > memory else "bytes"
        assumed = ", ".join(f"{name} = {n}" for name, n in sorted(sizes.asked.items()))
        lines.append(
            f"bound of {roof.device} ({roof.source}): {1e6 * max(compute, memory):.3g} us by {by}: "
            f"{rate_text(cost.flops, 'FLOP')} at {rate_text(peak, 'FLOP/s')}, "
            f"{bytes_text(cost.bytes)} at {rate_text(roof.bytes, 'B/s')}"
            + (f"; with {assumed}" if assumed else "")
        )
    return lines
