# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which path the calls of a bundle take, and which faster ones they miss and why: what the bundle
holds, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import describe


def paths(bundle: Bundle) -> list[str]:
    """Lines: for each image (and variant) the calls that it is for, how its kernels run, and the
    fast paths that they miss."""
    names = [argument.name for argument in bundle.plan.arguments]
    lines = []
    for facts in _parts(bundle):
        of = f" on {facts['target']}" if "target" in facts else ""
        lines.append(f"{calls(facts, names, bundle.facts.get('alignment', ()))}{of}")
        lines += [f"  {line}" for line in path_of(facts)]
    return lines


def path_of(facts: Mapping[str, Any]) -> list[str]:
    """Lines: how each kernel of an image runs, and the fast paths that it misses."""
    kernels = facts.get("kernels", {}).items()
    return [*(f"{name}: {kernel_path(kernel)}" for name, kernel in kernels), *missed(facts)]


def _parts(bundle: Bundle) -> Iterator[Mapping[str, Any]]:
    """The images of a bundle for GPUs; of one for CPUs, what is known of any call."""
    yield from bundle.facts.get("images") or [{"missed": bundle.facts.get("missed", ())}]


def calls(facts: Mapping[str, Any], names: Sequence[str], any_call: Sequence[Any]) -> str:
    """The calls that an image is for, of a bundle whose `alignment` is that for any call."""
    return f"calls where {condition(facts, names, any_call)}" if "when" in facts else "other calls"


def condition(facts: Mapping[str, Any], names: Sequence[str], any_call: Sequence[Any]) -> str:
    """What calls have to meet that take an image for some calls: its condition, and arguments that
    are aligned to more than those of any call."""
    units = {tuple(place): unit for *place, unit in any_call}
    aligned = [
        f"{names[number]} is aligned to {unit} bytes"
        for kind, number, unit in facts.get("alignment", any_call)
        if kind == "argument" and unit > units.get((kind, number), 1)
    ]
    return " and ".join([describe(facts["when"], names), *aligned])


def kernel_path(kernel: Mapping[str, int]) -> str:
    """How a kernel runs."""
    threads, shared = kernel.get("threads"), kernel.get("shared", 0) // 1024
    if kernel.get("consumers"):
        how = f"specialised warps: a group that loads, {kernel['consumers']} that compute"
    else:
        how = f"{threads} threads" if threads else "as the vendor's compiler made it"
    parts = [how]
    if kernel.get("resident"):
        parts.append("resident blocks")
    parts += [f"{kernel[key]} {text}" for key, text in _FIGURES.items() if kernel.get(key)]
    if shared:
        parts.append(f"{shared} KiB of shared memory")
    return ", ".join(parts)


_FIGURES = {
    "blocks_per_sm": "blocks a multiprocessor", "registers": "registers a thread",
    "spills": "bytes spilled a thread",
}  # fmt: skip


def missed(facts: Mapping[str, Any]) -> list[str]:
    """A line for each fast path that an image misses: the condition that failed, and what would
    change it."""
    return [
        f"missed: {miss['path']}: {miss['condition']}; what would change it: {miss['change']}"
        for miss in facts.get("missed", ())
    ]
