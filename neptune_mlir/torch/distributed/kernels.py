# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of a program over devices: one local, a join for each number of parts."""

from __future__ import annotations

import functools
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from neptune_mlir.driver.kernel import Kernel, compile
from neptune_mlir.errors import ArgumentError, ToolError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan, evaluate
from neptune_mlir.runtime.shards import ShardPlan
from neptune_mlir.runtime.shards.common import adding, in_turns, zeroed
from neptune_mlir.runtime.shards.in_two import ArraysInTwo, can_take
from neptune_mlir.runtime.shards.plan import ALIGNED, MEETING, MET, ShardArray

if TYPE_CHECKING:
    from neptune_mlir.frontend.shard import ShardSplit

_PLAN = "plan.json"


class ShardKernels:
    """The plan of a program over devices and its kernels, compiled when they are first asked for.

    `save` writes them to one file; `load` reads it on machines without a compiler.
    """

    def __init__(self, plan: ShardPlan, make: Callable[[str], Kernel], target: str = ""):
        self.plan, self.target = plan, target
        self._make = make
        self._kernels: dict[str, Kernel] = {}
        self._meeting: dict[str, bool] = {}

    @classmethod
    def of(cls, split: ShardSplit, target: str) -> ShardKernels:
        """The kernels of a split program for a target (`neptune doctor` lists them)."""
        from neptune_mlir.frontend.shard.plan import plan_of

        # calls with what travels in two arrays take an image that is there
        whole = functools.partial(compile, target=target, on_demand=False)

        def make(name: str) -> Kernel:
            kind, _, rest = name.partition(" ")
            if kind in ("join", "meet"):
                axis, _, count = rest.rpartition(" ")
                return whole(split.join(axis, int(count), kind == "meet"))
            if kind in ("carry", "finish"):
                return whole(split.carried(rest, kind == "finish"))
            return whole(split.whole if kind == "whole" else split.local)

        return cls(plan_of(split), make, target)

    def _kernel(self, name: str) -> Kernel:
        if name not in self._kernels:
            self._kernels[name] = self._make(name)
        return self._kernels[name]

    @property
    def local(self) -> Kernel:
        """Arguments of the program and positions -> parts, then results of this device alone."""
        return self._kernel("local")

    @property
    def whole(self) -> Kernel:
        """The same arguments -> results, of a device that has all of what they reduce."""
        return self._kernel("whole")

    @functools.cached_property
    def takes_two(self) -> bool:
        """Whether `whole` takes what travels as two arrays one behind the other."""
        traveling = self.plan.axes[-1]
        places = [n for n, a in enumerate(self.plan.arguments) if traveling in (a.axes or ())]
        bundle = self.whole.bundle
        images = bundle.facts.get("images", ())
        return any(can_take(bundle.plan_of(i), places, ALIGNED) for i in images if "when" not in i)

    @functools.cached_property
    def rows(self) -> int:
        """Of how many positions of the last axis that stays a program of `whole` makes results,
        where calls with many programs are one kernel; else 0."""
        bundle = self.whole.bundle
        images = [i for i in bundle.facts.get("images", ()) if "when" not in i]
        launches = [x for i in images for x in bundle.plan_of(i).launches]
        if len(launches) != 1:
            return 0
        last = launches[0].grid[-1]
        is_cut = isinstance(last, (list, tuple)) and last[0] == "ceildiv"
        return last[2] if is_cut and isinstance(last[2], int) else 0

    @functools.cached_property
    def added(self) -> tuple[str, ...]:
        """The parts that `local` adds to in memory, on GPUs: a kernel sets these to 0 first."""
        bundle = self.local.bundle if self.target != "cpu" else None
        images = bundle.facts.get("images", ()) if bundle else ()
        plans = [bundle.plan_of(i) for i in images if "when" not in i] if bundle else []
        numbers = {n for plan in plans for n in zeroed(plan).values()}
        return tuple(p.name for n, p in enumerate(self.plan.parts) if n in numbers)

    @functools.cached_property
    def in_common(self) -> tuple[ShardArray, ...]:
        """What runs that add make alike (`runtime.shards.common`): results of `once`."""
        return self._in_turns[2]

    @property
    def once(self) -> Kernel:
        """Of the arguments of `local`, what is in common."""
        return self._in_turns[0]

    @property
    def adding(self) -> Kernel:
        """`local`, but for what sets parts to 0, to which it adds: it takes what is in common
        behind its arguments."""
        return self._in_turns[1]

    @functools.cached_property
    def _in_turns(self) -> tuple[Kernel, Kernel, tuple[ShardArray, ...]]:
        bundle = self.local.bundle
        images = [x for x in bundle.facts["images"] if zeroed(bundle.plan_of(x))]
        found = [in_turns(bundle.plan_of(x), self.plan) for x in images]
        if len({x.made for x in found}) > 1:  # which image a call takes, its caller does not know
            found = [adding(bundle.plan_of(x)) for x in images]
        once, each = [], []
        for image, turns in zip(images, found, strict=True):
            aligned = image.get("alignment", bundle.facts.get("alignment", ()))
            more = [["argument", turns.places[n], unit] for kind, n, unit in aligned
                    if kind == "buffer" and n in turns.places]  # fmt: skip
            once.append({**image, "plan": turns.once.to_json(), "alignment": aligned})
            each.append({**image, "plan": turns.each.to_json(), "alignment": [*aligned, *more]})
        return self._of_images(once), self._of_images(each), found[0].made

    def _of_images(self, images: list[dict[str, Any]]) -> Kernel:
        """The local kernel with other plans."""
        bundle = self.local.bundle
        plan, facts = bundle.plan_of(images[0]), {**bundle.facts, "images": images}
        return Kernel.of_bundle(replace(bundle, plan=plan, facts=facts), self.plan.name)

    def link(self, first: bool, last: bool) -> Kernel:
        """The kernel of a link of a chain over the last axis: `local` or, where it is not the
        first one, one whose last arguments are parts; its results are parts, or `whole`'s."""
        if first:
            return self.whole if last else self.local
        return self._kernel(f"{'finish' if last else 'carry'} {self.plan.axes[-1]}")

    def join(self, axis: str, count: int) -> Kernel:
        """`count` parts of each kind, and what `plan.joins` names -> results."""
        return self._kernel(f"join {axis} {count}")

    def meeting(self, axis: str, count: int) -> Kernel | None:
        """The join whose programs trade parts with those of another device, if there is one."""
        name = f"meet {axis} {count}"
        if name not in self._meeting:
            self._meeting[name] = self._can_meet(axis, count, name)
        return self._kernel(name) if self._meeting[name] else None

    def _can_meet(self, axis: str, count: int, name: str) -> bool:
        if count != MET or not self.join(axis, count).bundle.facts.get("images"):
            return False  # (no images: on a CPU)
        try:
            bundle = self._kernel(name).bundle
        except ToolError:  # a file that has none
            return False
        return len({_traded(bundle.plan_of(i)) for i in bundle.facts["images"]} - {0}) == 1

    def traded(self, kernel: Kernel, shapes: Sequence[Sequence[int]]) -> tuple[int, int]:
        """Of a join that trades parts of such shapes: how many programs it has, and the words of a
        slot."""
        plan = kernel.bundle.plan_of(kernel.bundle.facts["images"][0])
        scalars: list[None] = [None] * len(plan.arguments)
        extents = (int(evaluate(e, shapes, scalars, 0)) for e in plan.launches[0].grid)
        return math.prod(extents), _traded(plan)

    def save(self, path: str | Path, joins: Sequence[tuple[str, int]]) -> None:
        """Write the plan, the local kernels and these joins to a file."""
        names = ["local", "whole", *(f"join {axis} {count}" for axis, count in joins)]
        names += [f"meet {j[0]} {j[1]}" for j in joins if self.meeting(*j)]
        if self.plan.carries:
            names += [f"{kind} {self.plan.axes[-1]}" for kind in ("carry", "finish")]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
            file.writestr(_PLAN, self.plan.to_json())
            for name in names:
                file.writestr(name, self._kernel(name).bundle.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> ShardKernels:
        """What `save` wrote.

        Raises:
            ToolError: no such file, or one that lacks a kernel that is asked for.
        """
        try:
            with zipfile.ZipFile(path) as file:
                data = {name: file.read(name) for name in file.namelist()}
            plan = ShardPlan.from_json(data.pop(_PLAN).decode())
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ToolError(f"'{path}' has no kernels of several devices: {error}") from None

        def make(name: str) -> Kernel:
            if name not in data:
                raise ToolError(f"'{path}' has no kernel '{name}'", hint=", ".join(data))
            bundle = Bundle.from_bytes(data[name])
            return Kernel.of_bundle(bundle, str(path))

        return cls(plan, make)


def _traded(plan: Plan) -> int:
    """The words of a slot of what a plan's kernel trades; 0: it trades nothing."""
    numbers = [["argument", n] for n, a in enumerate(plan.arguments) if a.name in MEETING]
    values = [o[2] for launch in plan.launches for o in launch.operands if o[0] == "value"]
    told = len(plan.launches) == 1 and all(n in values for n in numbers)
    return int(values[-1]) if told else 0


def call(kernel: Kernel, arguments: Sequence[Any], out: Sequence[torch.Tensor]) -> None:
    """Run a kernel into `out`. Where that or an argument lies at addresses that the kernel cannot
    take (pieces whose ends are no multiples of 16 bytes), it is copied."""
    try:
        kernel(*arguments, out=list(out))
    except ArgumentError:
        made = [_copied(x) for x in out]
        kernel(*map(_copied, arguments), out=made)
        for x, to in zip(made, out, strict=True):
            to.copy_(x)


def _copied(x: Any) -> Any:
    """A tensor of its own; of two arrays, one that is not on its way."""
    if isinstance(x, ArraysInTwo):
        made = (y if k == x.late else _copied(y) for k, y in enumerate(x.arrays))
        return replace(x, arrays=tuple(made))
    if isinstance(x, torch.Tensor):
        return x.clone(memory_format=torch.contiguous_format)
    return x
