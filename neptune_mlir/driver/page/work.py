# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of a fused function: what its masks leave of it, and of each kernel by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neptune_mlir.dialects.op_names import PREFIX
from neptune_mlir.driver.explain import Listing, listings
from neptune_mlir.driver.page.costs import Cost, KernelCost, cost_of
from neptune_mlir.driver.page.sizes import AssumedSizes
from neptune_mlir.driver.page.tiles import Picture, picture_of


def masked_cost(listing: Listing, sizes: AssumedSizes) -> tuple[Cost, dict[Any, Picture]]:
    """What a fused function costs, and the tiles of its streams."""
    pictures = {stream: picture_of(listing, stream, sizes) for stream in listing.running}
    cost = cost_of(
        listing, sizes, lambda stream: pictures[stream].live, lambda stream: pictures[stream].seen
    )
    return cost, pictures


def kernel_costs(
    module: Any, text: str, entry: str, shapes: Sequence[Sequence[int] | None], programs: int
) -> Mapping[str, KernelCost]:
    """By the name of the kernel: what a call with arguments of these shapes costs.

    Args:
        module: fused, made of `text`; `entry` names the function.
        shapes: of the arguments; None for a number.
        programs: how many run at once.
    """
    listing = next(f for f in listings(module, text) if f.function.name.value == entry)
    block = listing.function.regions[0].blocks[0]
    names = [listing.values.key(argument) for argument in block.arguments]
    given = {
        f"{name}.{dim}": int(extent)
        for name, shape in zip(names, shapes, strict=False)
        for dim, extent in enumerate(shape or ())
    }
    cost, _ = masked_cost(listing, AssumedSizes(names, given=given, programs=programs))
    own = [k for k in cost.kernels if k.op.name.startswith(PREFIX)]
    return {f"{entry}_{number}": kernel for number, kernel in enumerate(own)}
