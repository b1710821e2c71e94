# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call on a GPU that is like an earlier one but for where its arrays lie: only addresses are
filled in. What depends on them (alignment, overlaps) is checked again."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.runtime.arrays import ArrayView
from neptune_mlir.runtime.cuda import map_room
from neptune_mlir.runtime.driver import Driver, Launches, PreparedLaunch
from neptune_mlir.runtime.images import LoadedImage
from neptune_mlir.runtime.libraries import Library
from neptune_mlir.runtime.memory import WORKSPACE, Place, Sizes, root
from neptune_mlir.runtime.parameters import in_memory, in_two, tensor_map
from neptune_mlir.runtime.shards.in_two import BEHIND, OPERAND, UNIT

_MAPS_LIMIT = 256


@dataclass(frozen=True)
class Bound:
    """A checked call: the image, the numbers, all arrays by reference (`memory.WORKSPACE` among
    them where there is one), and the launches; `fixed`: no better image was asked for."""

    image: LoadedImage
    sizes: Sizes
    arrays: Mapping[Place, ArrayView]
    launches: Sequence[PreparedLaunch]
    fixed: bool = False


class CallAgain:
    """The launches of a call, for one thread's calls that are like it.

    Attributes:
        bases: the arrays that a caller passes or that are made for a call: arguments, results,
            and the workspace where there is one.
        arguments: how many of them are arguments.
    """

    def __init__(self, bound: Bound, driver: Driver):
        plan = bound.image.plan
        tensors = [k for k, a in enumerate(plan.arguments) if a.kind == "tensor"]
        self.bases: list[Place] = [("argument", k) for k in tensors]
        self.arguments = len(tensors)
        self.bases += [root(plan, r) for r in plan.results]
        if bound.sizes.requirements.workspace:
            self.bases.append(WORKSPACE)
        self.image, self.requirements = bound.image, bound.sizes.requirements
        self._driver = driver
        views = [bound.arrays[base] for base in self.bases]
        # arguments in two arrays: behind all bases come the second array and the word of each
        self._in_two = [base for base, view in zip(self.bases, views, strict=True) if view.behind]
        self._starts = [v.address for v in views]
        self._spans = [(v.span()[0] - v.address, v.span()[1] - v.address) for v in views]
        self._units = [1] * len(self.bases)
        for place in bound.sizes.used:
            number = self._base(place)
            if number is not None:
                unit = bound.image.alignment.get(place, 1)
                self._units[number] = math.lcm(self._units[number], unit)
        self._pointers: list[tuple[Any, int, int]] = []  # parameter, base, offset
        self._maps: list[tuple[Any, int, int, ArrayView, Any]] = []  # ..., array, box
        self._made: dict[tuple[int, int], Any] = {}  # by number of the map and address
        self._counters: list[tuple[Any, int]] = []
        own = [
            self._own(launch, sized.launch.operands, bound)
            for sized, launch in zip(bound.sizes.launches, bound.launches, strict=True)
        ]
        self._bound_maps: list[int | None] = [None] * len(self._maps)  # addresses
        self._launches = Launches(driver, bound.image.context, own)

    @staticmethod
    def is_possible(bound: Bound) -> bool:
        """Whether every result is memory of its own, under the shape of the result, and no better
        image may come."""
        places = [(kind, number) for kind, number in bound.image.plan.results]
        buffers = bound.image.plan.buffers
        own = all(kind == "buffer" and buffers[number].of is None for kind, number in places)
        return own and len(set(places)) == len(places) and not bound.fixed

    def _base(self, place: Place) -> int | None:
        """The number of the base that an array lies in; None for a constant."""
        kind, number = root(self.image.plan, place)
        if kind == "constant":
            return None
        found = (kind, number) if (kind, number) in self.bases else WORKSPACE
        return self.bases.index(found)

    def _behind(self, place: Place) -> int:
        """The number of the second array of an argument in two."""
        return len(self.bases) + 2 * self._in_two.index(place)

    def _own(
        self, launch: PreparedLaunch, operands: Sequence[Any], bound: Bound
    ) -> PreparedLaunch:  # fmt: skip
        """A launch with parameters of its own where they change from call to call."""
        values, at = list(launch.values), 0
        for operand in operands:
            width = 1
            if operand[0] == "counter":
                values[at] = type(values[at])()
                self._counters.append((values[at], operand[1]))
            elif operand[0] == OPERAND:
                place = operand[1], operand[2]
                width = len(in_two(bound.arrays[place], operand[3]))
                if place in self._in_two:
                    values[at] = ctypes.c_void_p()
                    self._pointers.append((values[at], self._behind(place) + 1, 0))
            elif operand[0] != "value":
                is_map = operand[0] in ("map", BEHIND)
                place = (operand[1], operand[2]) if is_map else (operand[0], operand[1])
                array, base = bound.arrays[place], self._base(place)
                width = 1 if is_map else 1 + len(array.strides[:-1])
                if base is not None:
                    offset = array.address - self._starts[base]
                    if operand[0] == BEHIND and place in self._in_two:
                        base, offset = self._behind(place), 0
                    if is_map:
                        array = in_memory(array, operand[0])
                    values[at] = map_room() if is_map else ctypes.c_void_p()
                    if is_map:
                        array = replace(array, owner=None)  # nobody's memory is kept
                        self._maps.append((values[at], base, offset, array, operand[3:]))
                    else:
                        self._pointers.append((values[at], base, offset))
            at += width
        return PreparedLaunch(
            launch.function, launch.programs, launch.threads, launch.shared, values, launch.early
        )

    def run(
        self, library: Library, handle: int, addresses: Sequence[int], outs: Sequence[Any],
        workspace: Any, behind: Sequence[int] = (),
    ) -> Sequence[Any] | None:  # fmt: skip
        """Enqueue the kernels on a stream; returns the results, made by the library where `outs` is
        empty. None where addresses, or what is to be made, need a whole check.

        Args:
            addresses: of the arrays that the caller passes, in the order of `bases`.
            workspace: whether the last of them is one; else it is made.
            behind: of each argument in two, the address of the second array, and of the word.
        """
        device, needs = self.image.device, self.requirements
        if not library.allocates and not (outs and (workspace or not needs.workspace)):
            return None
        every = list(addresses)
        if workspace and not needs.workspace:  # which nothing reads or writes
            every.pop()
        given = list(range(self.arguments, len(every)))
        if not outs:
            outs = [library.empty(shape, dtype, device, handle) for shape, dtype in needs.results]
            every[self.arguments : self.arguments] = map(library.address, outs)
            given = [k + len(outs) for k in given]
        if needs.workspace and not workspace:
            made = library.empty((needs.workspace,), "i8", device, handle)
            every.append(library.address(made))
        if len(every) != len(self.bases) or not self._fits(every, given):
            return None
        if any(address % UNIT for address in behind[::2]):
            return None
        self._bind([*every, *behind], handle)
        self._launches.enqueue(handle)
        return outs

    def _fits(self, addresses: Sequence[int], given: Sequence[int]) -> bool:
        """Whether arrays at these addresses are aligned, and those that are written and come from
        the caller (`given`) have no bytes in common with others."""
        for address, unit in zip(addresses, self._units, strict=True):
            if address % unit:
                return False
        for k in given:
            low, high = addresses[k] + self._spans[k][0], addresses[k] + self._spans[k][1]
            for n, (address, (first, last)) in enumerate(zip(addresses, self._spans, strict=True)):
                if n != k and low < address + last and address + first < high:
                    return False
        return True

    def _bind(self, addresses: Sequence[int], stream: int) -> None:
        """Let the launches work on arrays at these addresses."""
        for value, base, offset in self._pointers:
            value.value = addresses[base] + offset
        for k, (room, base, offset, array, box) in enumerate(self._maps):
            address = addresses[base] + offset
            if address == self._bound_maps[k]:  # as in the call before
                continue
            made = self._made.get((k, address))
            if made is None:
                if len(self._made) >= _MAPS_LIMIT:
                    self._made.clear()
                made = tensor_map(self._driver, replace(array, address=address), *box)
                self._made[k, address] = made
            ctypes.memmove(room, made, len(room))
            self._bound_maps[k] = address
        if self._counters:
            kept = self._driver.is_capturing(stream)
            for value, limit in self._counters:
                value.value = self.image.numbers.take(limit, kept)
