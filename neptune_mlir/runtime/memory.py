# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which memory a call uses: `Sizes` is what the shapes of the arguments decide, `bind` gives every
array of the plan its place, in arguments, results or the workspace."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView, contiguous, reshaped_strides
from neptune_mlir.runtime.checks import check_array, check_elements
from neptune_mlir.runtime.gpu_arrays import SIZES, are_apart, repeats_elements
from neptune_mlir.runtime.plan import Argument, Buffer, Evaluation, Launch, Plan

# each array of the workspace starts at a multiple of this many bytes, as allocators' memory does
WORKSPACE_ALIGNMENT = 256
_LARGEST_GRID = (1 << 31) - 1

Shape = tuple[int, ...]
Place = tuple[str, int]  # "argument", "constant" or "buffer", and its number

# names in messages and places of what is not in the plan
_INNER = "an intermediate array"
WORKSPACE: Place = ("workspace", 0)

Take = Callable[[Any, str], ArrayView]


@dataclass(frozen=True)
class Requirements:
    """What a call needs. `results` is the shape and MLIR element type of each result;
    `workspace` the bytes of scratch memory (0: none). `in_place` has pairs of a result and an
    argument: `out=` may have that very argument for the result."""

    results: tuple[tuple[Shape, str], ...]
    workspace: int
    in_place: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SizedLaunch:
    """A launch of the plan with its numbers: programs of the grid, and the value of each operand
    that is one (else None); `narrow` as in the plan."""

    launch: Launch
    programs: int
    values: tuple[Any, ...]
    narrow: bool = False


class Sizes:
    """The numbers of a plan for given shapes and scalars, on a device with so many
    multiprocessors.

    Attributes:
        buffers: shape of each buffer of the plan.
        offsets: where in the workspace buffers are that are neither results nor views, by number.
        requirements: see `Requirements`.
        launches: those with at least one program.
        used: the arrays that these read or write.
    """

    def __init__(
        self, plan: Plan, shapes: Sequence[Any], scalars: Sequence[Any], multiprocessors: int
    ):
        value = Evaluation(shapes, scalars, multiprocessors).of
        self.buffers: list[Shape] = [tuple(int(value(e)) for e in b.shape) for b in plan.buffers]
        made = {root(plan, reference) for reference in plan.results}
        self.offsets: dict[int, int] = {}
        end = 0
        for k, buffer in enumerate(plan.buffers):
            if buffer.of is None and ("buffer", k) not in made:
                self.offsets[k] = end
                size = SIZES[buffer.dtype] * math.prod(_in_memory(buffer, self.buffers[k]))
                end += -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        results = []
        for kind, k in plan.results:
            dtype = plan.array((kind, k)).dtype
            results.append((self.buffers[k] if kind == "buffer" else shapes[k], dtype))
        one = tuple(p[:2] for p in plan.in_place if not any(value(e) % 2 for e in p[2:]))
        self.requirements = Requirements(tuple(results), end, one)
        self.launches: list[SizedLaunch] = []
        for launch in plan.launches:
            programs = math.prod(int(value(e)) for e in launch.grid)
            if programs > _LARGEST_GRID:
                raise ArgumentError(f"{programs} programs are more than one launch can have")
            values = tuple(value(x[2]) if x[0] == "value" else None for x in launch.operands)
            if programs > 0:
                narrow = bool(value(launch.narrow))
                self.launches.append(SizedLaunch(launch, programs, values, narrow))
        self.used = sorted(
            {
                (operand[0], operand[1])
                for sized in self.launches
                for operand in sized.launch.operands
                if operand[0] in ("argument", "constant", "buffer")
            }
        )


def _in_memory(buffer: Buffer, shape: Shape) -> Shape:
    """The shape of a buffer's memory: with what is behind its rows."""
    return (*shape[:-1], -(-shape[-1] // buffer.pitch) * buffer.pitch) if shape else shape


def root(plan: Plan, reference: Any) -> Place:
    """The array whose memory a reference names, maybe under another shape."""
    kind, number = reference
    while kind == "buffer" and plan.buffers[number].of is not None:
        kind, number = plan.buffers[number].of
    return kind, number


def can_view(
    plan: Plan, sizes: Sizes, arguments: Sequence[ArrayView | None],
    out: Sequence[ArrayView | None],
) -> bool:  # fmt: skip
    """Whether these arrays can be seen under the other shapes that a plan asks for without a copy.

    Args:
        out: an array for each result, or none at all; None for one that is not given.
    """
    strides = {("argument", k): (a.shape, a.strides) for k, a in enumerate(arguments) if a}
    for reference, array in zip(plan.results, out, strict=False):
        place = root(plan, reference)
        if array is None or place[0] == "argument" or array.shape == sizes.buffers[place[1]]:
            continue
        if reshaped_strides(array.shape, array.strides, sizes.buffers[place[1]]) is None:
            return False
    for k, buffer in enumerate(plan.buffers):
        seen = None if buffer.of is None else strides.get(tuple(buffer.of))
        if seen is not None:
            found = reshaped_strides(*seen, sizes.buffers[k])
            if found is None:
                return False
            strides["buffer", k] = sizes.buffers[k], found
    return True


def is_aligned(view: ArrayView | None, unit: int) -> bool:
    """Whether an array begins at a multiple of `unit` bytes, and so do its rows."""
    if view is None or 0 in view.shape:
        return True
    outer = zip(view.shape[:-1], view.strides[:-1], strict=True)
    steps = (stride * SIZES[view.dtype] for extent, stride in outer if extent > 1)
    return not any(n % unit for n in (view.address, *steps))


def new_results(plan: Plan, needs: Requirements, empty: Callable[..., Any]) -> list[Any]:
    """New arrays for the results, as `bind` takes them; `empty(shape, dtype)` makes one."""
    made: dict[tuple[str, int], Any] = {}
    out: list[Any] = []
    for reference, (shape, dtype) in zip(plan.results, needs.results, strict=True):
        place = root(plan, reference)
        if place[0] == "buffer":
            if place not in made:
                made[place] = empty(shape, dtype)
            out.append(made[place].reshape(shape))
        else:
            out.append(None)
    return out


def results_of(
    plan: Plan, needs: Requirements, arguments: Sequence[Any], out: Sequence[Any]
) -> tuple[Any, ...]:
    """What the caller gets: the arrays of `out`, or the arguments that are results themselves."""
    found = []
    for reference, (shape, _), value in zip(plan.results, needs.results, out, strict=True):
        kind, number = root(plan, reference)
        if kind == "argument":
            value = arguments[number]
            value = value if tuple(value.shape) == shape else value.reshape(shape)
        found.append(value)
    return tuple(found)


def bind(
    plan: Plan, sizes: Sizes, arguments: Sequence[ArrayView | None], out: Sequence[Any],
    workspace: Any, take: Take, alignment: Mapping[Place, int],
    constants: Sequence[ArrayView] = (),
) -> dict[Place, ArrayView]:  # fmt: skip
    """The memory of every array of the plan.

    Args:
        out: an array for each result; None for one that is an argument (nothing is written).
        workspace: an array, or None.
        take: makes a view of a value, given its name for messages.
        alignment: bytes that addresses and outer strides must be multiples of.
        constants: those of the plan, on the device.

    Raises:
        ArgumentError: wrong arrays, too little workspace, or memory that overlaps.
    """
    arrays: dict[Place, ArrayView] = {}
    labels: dict[Place, str] = {}
    for k, view in enumerate(arguments):
        if view is not None:
            arrays["argument", k], labels["argument", k] = view, plan.arguments[k].name
    read = list(arrays)
    _bind_results(plan, sizes, out, take, arrays, labels)
    written = [place for place in arrays if place not in read]
    if sizes.requirements.workspace:
        memory = _take_workspace(plan, workspace, sizes.requirements.workspace, take)
        arrays[WORKSPACE], labels[WORKSPACE] = memory, "workspace"
        written.append(WORKSPACE)
        for k, offset in sizes.offsets.items():
            shape = sizes.buffers[k]
            arrays["buffer", k] = replace(
                memory, address=memory.address + offset, dtype=plan.buffers[k].dtype, shape=shape,
                strides=contiguous(_in_memory(plan.buffers[k], shape)),
            )  # fmt: skip
    one = {(root(plan, plan.results[n]), ("argument", k)) for n, k in sizes.requirements.in_place}
    _check_apart(read, written, arrays, labels, one)
    for k, held in enumerate(constants):
        arrays["constant", k], labels["constant", k] = held, plan.constants[k].name
    for k, buffer in enumerate(plan.buffers):
        if buffer.of is not None:
            place = tuple(buffer.of)
            labels["buffer", k] = labels.get(place, _INNER)
            arrays["buffer", k] = _reshaped(arrays[place], sizes.buffers[k], labels["buffer", k])
    for place in sizes.used:
        _check_layout(arrays[place], labels.get(place, _INNER), alignment.get(place, 1))
    return arrays


def _check_apart(
    read: Sequence[Place], written: Sequence[Place], arrays: Mapping[Place, ArrayView],
    labels: Mapping[Place, str], one: Collection[tuple[Place, Place]],
) -> None:  # fmt: skip
    """What is written has no memory in common with anything else, but for the pairs in `one`, which
    may be one array."""
    spans = {place: arrays[place].span() for place in (*read, *written)}
    for position, place in enumerate(written):
        low, high = spans[place]
        for other in (*read, *written[:position]):
            first, last = spans[other]
            if (place, other) in one and _is_one(arrays[place], arrays[other]):
                continue
            if low < last and first < high and not are_apart(arrays[place], arrays[other]):
                message = f"{labels[place]} overlaps {labels[other]}"
                raise ArgumentError(message, hint="pass memory of its own")


def _is_one(a: ArrayView, b: ArrayView) -> bool:
    return all(getattr(a, x) == getattr(b, x) for x in ("address", "dtype", "shape", "strides"))


def _bind_results(
    plan: Plan, sizes: Sizes, out: Sequence[Any], take: Take, arrays: dict[Place, ArrayView],
    labels: dict[Place, str],
) -> None:  # fmt: skip
    results = zip(plan.results, sizes.requirements.results, out, strict=True)
    for position, (reference, (shape, dtype), value) in enumerate(results):
        label = "out" if len(plan.results) == 1 else f"out[{position}]"
        place = root(plan, reference)
        if place[0] == "argument":
            if value is not None:
                raise ArgumentError(
                    f"{label}: this result is {labels[place]} itself", hint="pass None there"
                )
            continue
        view = check_array(take(value, label), Argument("tensor", dtype, shape, label))
        _check_writable(view, label)
        view = _reshaped(view, sizes.buffers[place[1]], label)
        if place not in arrays:
            arrays[place], labels[place] = view, label
        elif (arrays[place].address, arrays[place].strides) != (view.address, view.strides):
            raise ArgumentError(f"{label} and {labels[place]} are one result: pass one array")


def _check_layout(view: ArrayView, name: str, unit: int) -> None:
    """Strides and alignment that kernels count on: whole multiples of `unit` bytes."""
    shape, strides, size = view.shape, view.strides, SIZES[view.dtype]
    if 0 in shape:
        return
    if shape and shape[-1] > 1 and strides[-1] != 1:
        raise ArgumentError(
            f"{name} has stride {strides[-1]} along its last dimension, not 1",
            hint="make it contiguous along that dimension",
        )
    if view.address % unit:
        raise ArgumentError(f"{name} is not aligned to {unit} bytes", hint="pass a copy of it")
    for d, stride in enumerate(strides[:-1]):
        if stride * size % unit and shape[d] > 1:
            raise ArgumentError(
                f"{name} has stride {stride} along dimension {d}: {stride * size} bytes, not a "
                f"multiple of {unit}",
                hint="make it contiguous",
            )


def _check_writable(view: ArrayView, label: str) -> None:
    if view.readonly:
        raise ArgumentError(f"{label} is read-only")
    if repeats_elements(view):
        raise ArgumentError(
            f"{label} has several positions at one place in memory", hint="pass a copy of it"
        )


def _take_workspace(plan: Plan, value: Any, needed: int, take: Take) -> ArrayView:
    hint = f"make an array of {needed} bytes: see requirements()"
    if value is None:
        raise ArgumentError(f"{plan.entry} needs {needed} bytes of workspace=", hint=hint)
    view = take(value, "workspace")
    if view.strides != contiguous(view.shape):
        raise ArgumentError("workspace is not contiguous", hint=hint)
    size = SIZES[view.dtype] * math.prod(view.shape)
    if size < needed:
        raise ArgumentError(f"workspace has {size} bytes, {needed} are needed", hint=hint)
    if view.address % WORKSPACE_ALIGNMENT:
        raise ArgumentError(f"workspace is not aligned to {WORKSPACE_ALIGNMENT} bytes")
    _check_writable(view, "workspace")
    return view


def _reshaped(view: ArrayView, shape: Shape, name: str) -> ArrayView:
    """The same memory under another shape."""
    if view.shape == shape:
        return view
    check_elements(name, view.shape, shape)
    strides = reshaped_strides(view.shape, view.strides, shape)
    if strides is None:
        raise ArgumentError(
            f"{name} has strides {list(view.strides)}, with which it cannot be seen as "
            f"{list(shape)}",
            hint="make it contiguous",
        )
    return replace(view, shape=shape, strides=strides)
