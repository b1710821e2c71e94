# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels of a plan run beside the ones before them.

A kernel of a plan may start while the one before it still runs (`Chip.let_next_start`); it waits
for that one (`Chip.wait_for_last`), and so for all before. A kernel that needs nothing of those
that may still run waits at its end instead: its blocks fill what the last programs before it leave
idle. The gradients of keys and values and that of queries are two such kernels.

In a plan with such a kernel each kernel that waits at its start lets the next one start behind that
wait, so what stands in front of it is over when the next one starts. That holds where it runs at
all: a launch without programs is left out. So it counts as a barrier for an earlier kernel only
if that one has no programs either, then.

A kernel that waits may read what no kernel before it writes while these run (`given`).

Sums that programs add to in turns are awaited tile by tile (`neptune.await_sums`): a kernel that
needs them, and else nothing of the one that adds, need not wait for its end. All kernels before
that one are over when it has begun; where it has no programs the wait is for these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.runtime.plan import Buffer

Place = tuple[str, int]  # of an array, as in a plan


def independent(
    kernels: Sequence[KernelSignature], grids: Sequence[Sequence[Any]], buffers: Sequence[Buffer]
) -> list[bool]:
    """Of each kernel of a plan, whether it needs nothing of those that may run when it starts.

    Args:
        grids: the extents of each kernel's grid, expressions of the plan.
        buffers: those of the plan.
    """
    used = [{_root(place, buffers) for place in kernel.places} for kernel in kernels]
    made = [_made(kernel, buffers) for kernel in kernels]
    empty = [_zeros(grid) for grid in grids]
    found: list[bool] = []
    for k, kernel in enumerate(kernels):
        told = {_root(place, buffers) for place in kernel.awaited}
        needed = [e for e in range(k) if made[e] & used[k] or used[e] & made[k]]
        adds = max((e for e in needed if made[e] & told), default=None)
        waits = [w for w in range(k) if not found[w]]
        if adds in waits and made[adds] & used[k] <= told and not used[adds] & made[k]:
            found.append(max(needed) == adds)  # it waited for those before, if it runs
            continue
        found.append(k > 0 and not told and all(
            any(e < w and empty[w] <= empty[e] for w in waits) for e in needed
        ))  # fmt: skip
    return found


def given(kernels: Sequence[KernelSignature], buffers: Sequence[Buffer]) -> Iterator[list[Any]]:
    """Of each kernel of a plan, the tensors that no kernel before it writes."""
    made: set[Place] = set()
    for kernel in kernels:
        pairs = zip(kernel.tensors, kernel.places, strict=True)
        yield [t for t, place in pairs if _root(place, buffers) not in made]
        made |= _made(kernel, buffers)


def _made(kernel: KernelSignature, buffers: Sequence[Buffer]) -> set[Place]:
    """What a kernel writes."""
    return {_root(p, buffers) for p in kernel.places[len(kernel.places) - kernel.outputs :]}


def _root(place: Place, buffers: Sequence[Buffer]) -> Place:
    """Where the memory of an array is."""
    kind, number = place
    while kind == "buffer" and (of := buffers[number].of) is not None:
        kind, number = of
    return kind, number


def _zeros(grid: Sequence[Any]) -> set[str]:
    """Numbers of which one is 0 if and only if a grid has no programs, as text."""
    found = set()
    for extent in grid:
        while isinstance(extent, (list, tuple)) and extent[0] == "ceildiv":
            extent = extent[1]
        if not isinstance(extent, int) or extent <= 0:
            found.add(str(extent))
    return found
