# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine code of a bundle on one device: which image fits it, and its kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView, contiguous
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.drivers.driver import Driver
from neptune_mlir.runtime.memory import is_aligned, root
from neptune_mlir.runtime.parameters import CallNumbers
from neptune_mlir.runtime.plan import Evaluation, Expression, Plan
from neptune_mlir.targets.chips import gpu_target, is_known


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel in a context, and the `module` that it is of. A launch asks for `dynamic` bytes of
    shared memory; `hidden` counts null pointers that follow its parameters. A launch has at most
    `blocks` blocks (0: one for each program). A kernel that `follows` waits by itself for those
    before it: 1: of the plan, 2: whatever they are of."""

    module: int
    function: ctypes.c_void_p
    threads: int
    dynamic: int
    hidden: int
    blocks: int
    follows: int


Need = tuple[bool, int, int]  # whether an array is a result, its number, bytes to be aligned to


@dataclass(frozen=True)
class LoadedImage:
    """An image in a context of `device`, which has so many `multiprocessors`, its launch plan, by
    array the bytes that its address and outer strides must be multiples of, what the bundle says
    of it (`facts`), and its constants in the memory of the device."""

    device: int
    multiprocessors: int
    context: int
    plan: Plan
    alignment: dict[tuple[str, int], int]
    kernels: dict[str, LoadedKernel]
    numbers: CallNumbers
    facts: dict[str, Any]
    constants: tuple[ArrayView, ...] = ()

    @property
    def when(self) -> Expression:
        """Which calls it is for; None: any."""
        return self.facts.get("when")

    @property
    def views(self) -> bool:
        """Whether its plan has arrays under another shape."""
        return any(buffer.of is not None for buffer in self.plan.buffers)

    def serves(self, call: Evaluation) -> bool:
        """Whether it is for a call. (Conditions of images have much in common.)"""
        return self.when is None or bool(call.of(self.when))

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """How arrays have to lie in memory for its kernels. (An image for any call says what is
        wrong with arrays instead.)"""
        if self.when is None:
            return ()
        arguments = [(False, k, ("argument", k)) for k in range(len(self.plan.arguments))]
        results = [(True, k, root(self.plan, r)) for k, r in enumerate(self.plan.results)]
        found = ((made, k, self.alignment.get(at, 1)) for made, k, at in (*arguments, *results))
        return tuple(need for need in found if need[2] > 1)


def is_met(
    need: Need, arguments: Sequence[ArrayView | None], out: Sequence[ArrayView | None]
) -> bool:
    """Whether the arrays of a call lie as an image needs it; `out` has none where nobody has any
    yet."""
    made, k, unit = need
    views = out if made else arguments
    return k >= len(views) or is_aligned(views[k], unit)


def load_images(
    bundle: Bundle, driver: Driver, device: int, context: int, had: Sequence[LoadedImage] = ()
) -> tuple[LoadedImage, ...]:
    """Put the images for a device into a context: one for any call, then those for calls that
    meet a condition (`when`), of which the last counts. Raises ArgumentError when there is none.

    Args:
        had: those that are there, of the bundle before it grew.
    """
    fitting = choose_images(bundle.facts["images"], driver.architecture(device))
    known = {image.facts["offset"]: image for image in had}
    stored = {
        constant.sha256: array.address
        for image in had
        for constant, array in zip(image.plan.constants, image.constants, strict=True)
    }
    new = {digest: raw for digest, raw in bundle.data.items() if digest not in stored}
    with driver.relaxed():
        stored |= {digest: driver.store(context, raw) for digest, raw in new.items()}
        return tuple(
            known.get(image["offset"]) or _load(bundle, image, driver, device, context, stored)
            for image in fitting
        )


def _load(
    bundle: Bundle, image: dict[str, Any], driver: Driver, device: int, context: int,
    stored: Mapping[str, int],
) -> LoadedImage:  # fmt: skip
    """`stored`: addresses of the bundle's data."""
    modules: dict[tuple[int, int], int] = {}
    kernels = {}
    multiprocessors = driver.multiprocessors(device)
    for name, facts in image["kernels"].items():
        # the kernels of an image share a module, unless each has its own (Triton's do)
        start, size = (facts.get(key, image[key]) for key in ("offset", "size"))
        if (start, size) not in modules:
            code = bundle.code[start : start + size]
            modules[start, size] = driver.load(context, code)
        module = modules[start, size]
        function, dynamic = driver.function(context, module, name, facts["shared"])
        blocks = facts["blocks_per_sm"] * multiprocessors if facts.get("resident") else 0
        blocks -= blocks % facts.get("cluster", 1)  # those of one run together
        kernels[name] = LoadedKernel(
            module, ctypes.c_void_p(function), facts["threads"], dynamic, facts.get("hidden", 0),
            blocks, int(facts.get("follows", 0)),
        )  # fmt: skip
    aligned = image.get("alignment", bundle.facts["alignment"])  # its own, with its own plan
    alignment = {(kind, number): unit for kind, number, unit in aligned}
    plan = bundle.plan_of(image)
    numbers = CallNumbers()
    constants = tuple(
        ArrayView(stored[c.sha256], c.dtype, c.shape, contiguous(c.shape), True, None, device)
        for c in plan.constants
    )
    return LoadedImage(
        device, multiprocessors, context, plan, alignment, kernels, numbers, image, constants
    )


def choose_images(images: Sequence[Any], architecture: str) -> list[Any]:
    """The images of the newest chip whose code runs on a device: the best code for it.

    Args:
        architecture: what the device is (`Driver.architecture`).

    Raises:
        ArgumentError: there is none.
    """
    fitting = [
        i for i in images
        if is_known(i["target"]) and gpu_target(i["target"]).runs_on(architecture)
    ]  # fmt: skip
    if not fitting:
        have = ", ".join(dict.fromkeys(i["target"] for i in images))
        raise ArgumentError(
            f"the bundle holds code for {have}; this device is {architecture}",
            hint="compile it for this device too: --target takes several, separated by commas",
        )
    best = max((i["target"] for i in fitting), key=lambda name: gpu_target(name).rank)
    return [i for i in fitting if i["target"] == best]
