# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call of a CPU plan for arguments of given types, shapes, strides and numbers: all but where
the arrays lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from neptune_mlir.runtime import workers
from neptune_mlir.runtime.arrays import (
    ArrayView,
    address_of,
    contiguous,
    reshaped_strides,
)
from neptune_mlir.runtime.checks import check_elements
from neptune_mlir.runtime.cpu_again import TensorCall, can_ask
from neptune_mlir.runtime.cpu_entry import NativeEntry, word
from neptune_mlir.runtime.host_memory import memory_for
from neptune_mlir.runtime.plan import Evaluation, Plan

Arrays = Mapping[tuple[str, int], ArrayView]


@dataclass(frozen=True)
class _Buffer:
    """Where a call gets the memory of a buffer: that of `out` number `target`, or that of the
    address number `source` (copied first where `copied` is that array), or what `make` makes."""

    shape: tuple[int, ...]
    dtype: str
    make: Callable[[], Any]
    target: int | None = None
    source: int | None = None
    copied: ArrayView | None = None


@dataclass(frozen=True)
class _Result:
    """Result `number`: an array that the call made (number `made` of its buffers), else a copy of
    what stands at address number `source` (-1: of a constant), whose view is `held`. `late`: it
    is copied to its array of `out=` in the end."""

    number: int
    dtype: str
    held: ArrayView
    source: int
    made: int | None
    late: bool


class CpuCall:
    """See the module's text. `given` is how many addresses `run` takes, `count` how many threads
    may work.

    Args:
        arrays: arguments and constants by reference.
        sizes: the shapes of the plan's buffers.
        targets: the arrays of `out=`, or none.
    """

    def __init__(
        self, entry: NativeEntry, plan: Plan, arrays: Arrays, scalars: Sequence[Any],
        sizes: Sequence[tuple[int, ...]], targets: Sequence[ArrayView], arguments: Any, count: int,
    ):  # fmt: skip
        self._entry, self._plan, self.count = entry, plan, count
        self._scratch = max(-(-plan.scratch // workers.PAGE), 1) * workers.PAGE
        self._memory = memory_for(arguments)
        self.lent: tuple[Any, ...] = ()
        # without owners: a call that is kept keeps nobody's memory
        self._held = {ref: replace(v, owner=None) for ref, v in arrays.items()}
        self._inputs = [v for (kind, _), v in self._held.items() if kind == "argument"]
        self._targets = [replace(v, owner=None) for v in targets]
        self.given = len(self._inputs) + len(targets)
        views = (*self._inputs, *self._targets)
        self._spans = [(v.span()[0] - v.address, v.span()[1] - v.address) for v in views]
        self._apart = self._are_apart([v.address for v in views])
        self._slots = {  # address numbers: of arguments, `out=`, buffers
            ref: k for k, ref in enumerate(r for r in entry.order if r[0] == "argument")
        }
        self._buffers = [self._buffer(k, shape) for k, shape in enumerate(sizes)]
        self._results = [self._result(k, tuple(r)) for k, r in enumerate(plan.results)]
        # whether all arrays of a call but its arguments are new, and its results are among them
        made = all(b.copied is None and b.source is None for b in self._buffers)
        self._is_simple = made and not targets and all(self._is_whole(r) for r in self._results)
        self._most = 1  # workers of a launch
        self._template = self._words(arrays, scalars)
        self._template_address = address_of(self._template)
        self._again: TensorCall | None = None
        self._asked = False  # for that

    # ---- what is the same for all calls

    def _buffer(self, number: int, shape: tuple[int, ...]) -> _Buffer:
        buffer = self._plan.buffers[number]
        made = ArrayView(0, buffer.dtype, shape, contiguous(shape), False, None)
        found = _Buffer(shape, buffer.dtype, self._memory.maker(shape, buffer.dtype))
        if buffer.of is not None:
            reference = tuple(buffer.of)
            source = self._held[reference]
            check_elements(f"{reference[0]} {reference[1]}", source.shape, shape)
            strides = reshaped_strides(source.shape, source.strides, shape)
            where = self._slots.get(reference)
            if where is None or strides is None:  # (a constant has no address number)
                found = replace(found, source=where, copied=source)
            else:
                found, made = replace(found, source=where), replace(made, strides=strides)
        else:
            for k, (reference, target) in enumerate(
                zip(self._plan.results, self._targets, strict=False)
            ):
                own = tuple(reference) == ("buffer", number)
                if own and self._apart and target.strides == contiguous(target.shape):
                    found = replace(found, target=k)
                    break
        self._slots["buffer", number] = self.given + number
        self._held["buffer", number] = made
        return found

    def _result(self, number: int, reference: tuple[str, int]) -> _Result:
        root = reference
        while root[0] == "buffer" and self._plan.buffers[root[1]].of is not None:
            root = tuple(self._plan.buffers[root[1]].of)
        own = root[0] == "buffer"
        in_place = reference == root and own and self._buffers[root[1]].target == number
        in_place = in_place or 0 in self._held[reference].shape
        return _Result(
            number, self._plan.array(reference).dtype, self._held[reference],
            self._slots.get(reference, -1), root[1] if own else None,
            bool(self._targets) and not in_place,
        )  # fmt: skip

    def _is_whole(self, result: _Result) -> bool:
        """Whether a result is an array that the call makes, as it is made."""
        return result.made is not None and (
            self._buffers[result.made].shape == result.held.shape
            and sum(other.made == result.made for other in self._results) == 1
        )

    def _words(self, arrays: Arrays, scalars: Sequence[Any]) -> np.ndarray[Any, Any]:
        record = self._entry.record
        words = np.zeros(record.words, np.int64)
        for reference, at in record.arrays.items():
            held = self._held[reference]
            fields = (held.address, held.address, 0, *held.shape, *held.strides)
            words[at : at + len(fields)] = fields
        shapes = [
            arrays["argument", k].shape if a.kind == "tensor" else None
            for k, a in enumerate(self._plan.arguments)
        ]

        value = Evaluation(shapes, scalars, self.count).of
        for launch, at in zip(self._plan.launches, record.launches, strict=True):
            grid = [int(value(e)) for e in launch.grid]
            values = [word(o[1], value(o[2])) for o in launch.operands if o[0] == "value"]
            programs = math.prod(grid) if min(grid, default=1) > 0 else 0
            fields = (programs, *values, *grid)
            words[at : at + len(fields)] = fields
            self._most = max(self._most, min(programs, self.count))
        return words

    # ---- one call

    def _are_apart(self, addresses: Sequence[int]) -> bool:
        """Whether each array of `out=` shares no byte with an argument or one before it."""
        spans = self._spans
        for k in range(len(self._inputs), len(spans)):
            low, high = addresses[k] + spans[k][0], addresses[k] + spans[k][1]
            for j in range(k):
                if addresses[j] + spans[j][0] < high and low < addresses[j] + spans[j][1]:
                    return False
        return True

    def fits(self, addresses: Sequence[int]) -> bool:
        """Whether arrays at these addresses overlap as those did that the call was made for."""
        return not self._targets or self._are_apart(addresses) == self._apart

    def _bind(self, addresses: list[int]) -> tuple[list[int], list[Any]]:
        """The addresses of all arrays of the entry, and the arrays that were made."""
        first = len(self._inputs)
        made: list[Any] = []
        for buffer in self._buffers:
            array = None
            if buffer.target is not None:
                addresses.append(addresses[first + buffer.target])
            elif buffer.source is not None and buffer.copied is None:
                addresses.append(addresses[buffer.source])
            else:
                if buffer.copied is None:
                    array = buffer.make()
                    addresses.append(self._memory.address(array))
                else:
                    source = buffer.copied
                    if buffer.source is not None:
                        source = replace(source, address=addresses[buffer.source])
                    array = np.array(source.numpy()).reshape(buffer.shape)
                    addresses.append(address_of(array))
            made.append(array)
        return addresses[:first] + addresses[self.given :], made

    def run(self, addresses: list[int], outs: Sequence[Any]) -> Any:
        """Call the kernels; the result, or a tuple of them."""
        passed, made = self._bind(addresses)
        self._enter(passed)
        values = []
        for result in self._results:
            if outs:
                if result.late:
                    self._deliver(result, addresses)
                values.append(outs[result.number])
            else:
                values.append(self._new(result, addresses, made))
        return values[0] if len(values) == 1 else tuple(values)

    def repeat(
        self, order: Sequence[int], orders: Sequence[Sequence[int]]
    ) -> Callable[[Sequence[Any]], Any]:
        """`run` as a function of arrays, all of the library that makes results: returns all
        results, or None where another number of threads works now.

        Args:
            order: which of the arrays the arguments are.
            orders: of results' dimensions as they are handed out (others as they are).
        """
        memory, count = self._memory, self.count
        address, places = memory.address, [r.made or 0 for r in self._results]

        def whole(arrays: Sequence[Any]) -> Any:
            if workers.count() != count:
                return None
            made = self.run([address(arrays[k]) for k in order], ())
            made = list(made) if isinstance(made, tuple) else [made]
            turned = [memory.turned(x, own) for x, own in zip(made, orders, strict=False)]
            return [*turned, *made[len(turned) :]]

        if not self._is_simple:
            return whole
        makers = [b.make for b in self._buffers]
        for place, own in zip(places, orders, strict=False):
            buffer = self._buffers[place]
            makers[place] = memory.maker(buffer.shape, buffer.dtype, own)
        enter, template = self._entry.call, self._template_address

        def again(arrays: Sequence[Any]) -> Any:
            if workers.count() != count:
                return None
            helpers = workers.helpers()
            made = [make() for make in makers]
            enter(
                template, count, helpers.state, helpers.share,
                helpers.ready(self._most, self._scratch), self._scratch,
                *[address(arrays[k]) for k in order], *map(address, made),
            )  # fmt: skip
            return [made[k] for k in places]

        return again

    def again(self, arrays: Sequence[Any]) -> TensorCall | None:
        """The call as one native function, made once, if it is one of torch tensors (`arrays`,
        those of `out=` among them) whose results the kernels write in place."""
        if not self._asked:
            self._asked, self._again = True, self._native(arrays)
        return self._again

    def _native(self, arrays: Sequence[Any]) -> TensorCall | None:
        copied = any(b.copied is not None for b in self._buffers)
        late = any(r.late if self._targets else not self._is_whole(r) for r in self._results)
        if copied or late or self.lent or not self._apart or len(arrays) != self.given:
            return None
        interface = can_ask(arrays, len(self._buffers))
        if interface is None:
            return None
        inputs, order, makers = len(self._inputs), list(range(len(self._inputs))), []
        made: dict[int, int] = {}  # arrays by number of a buffer
        for number, buffer in enumerate(self._buffers):
            if buffer.target is not None:
                order.append(inputs + buffer.target)
            elif buffer.source is not None:
                at = buffer.source  # of arguments, `out=`, buffers
                order.append(order[at if at < inputs else at - len(self._targets)])
            else:
                made[number] = self.given + len(makers)
                order.append(made[number])
                makers.append(buffer.make)
        results = [
            inputs + r.number if self._targets else made[r.made or 0]
            for r in self._results
        ]  # fmt: skip
        return TensorCall(
            interface, arrays, self._entry.at, self._template_address, order, self._spans, makers,
            results, len(self._targets), self.count, self._most, self._scratch,
        )  # fmt: skip

    def launch_times(self, entry: NativeEntry, addresses: list[int]) -> list[float]:
        """Run the kernels by an entry with a clock; the seconds that each launch took."""
        passed, made = self._bind(addresses)
        count = len(self._plan.launches) + 1
        stamps = np.zeros((count, 2), np.int64)
        self._enter([*passed, address_of(stamps)], entry)
        del made
        seconds = stamps[:, 0] + stamps[:, 1] * 1e-9
        return [float(s) for s in np.diff(seconds - seconds[0])]

    def prepared(self, addresses: list[int], keep: Any) -> Prepared:
        """`run` on these arrays, bound once; `keep` is what keeps them alive."""
        passed, made = self._bind(addresses)
        late = [
            (self._target(r, addresses).numpy(), self._at(r, addresses).numpy())
            for r in self._results if r.late
        ]  # fmt: skip
        return Prepared(partial(self._enter, passed), late, (keep, made, self.lent))

    def _enter(self, addresses: Sequence[int], entry: NativeEntry | None = None) -> None:
        helpers = workers.helpers()
        memory = helpers.ready(self._most, self._scratch)
        (entry or self._entry).call(
            self._template_address, self.count, helpers.state, helpers.share, memory,
            self._scratch, *addresses,
        )  # fmt: skip

    def _at(self, result: _Result, addresses: Sequence[int]) -> ArrayView:
        held = result.held
        return held if result.source < 0 else replace(held, address=addresses[result.source])

    def _target(self, result: _Result, addresses: Sequence[int]) -> ArrayView:
        at = addresses[len(self._inputs) + result.number]
        return replace(self._targets[result.number], address=at)

    def _deliver(self, result: _Result, addresses: Sequence[int]) -> None:
        """Write a result that its kernel did not write in place."""
        source = self._at(result, addresses)
        np.copyto(self._target(result, addresses).numpy(), source.numpy())

    def _new(self, result: _Result, addresses: Sequence[int], made: Sequence[Any]) -> Any:
        """A result as an array of its own: the caller's memory is not handed back."""
        if result.made is None:
            array = self._at(result, addresses).numpy().copy()
            return self._memory.over(array, result.dtype)
        array = made[result.made]
        return array if array.shape == result.held.shape else array.reshape(result.held.shape)


class Prepared:
    """A call on fixed memory: runs the kernels, and copies what they cannot write in place."""

    def __init__(
        self, enter: Callable[[], None], late: Sequence[tuple[Any, Any]], keep: Any
    ):  # fmt: skip
        self._enter, self._late, self._keep = enter, late, keep

    def __call__(self) -> None:
        self._enter()
        for target, source in self._late:
            np.copyto(target, source)
