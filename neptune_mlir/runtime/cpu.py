# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a CPU bundle on arrays. The first call with arguments of given types, shapes and strides
checks them and evaluates the plan (`cpu_call.CpuCall`); later ones only fill in addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime import workers
from neptune_mlir.runtime.arrays import ArrayView, elements, glance, view
from neptune_mlir.runtime.bundle import Bundle, Growing
from neptune_mlir.runtime.checks import check, check_array, check_equal
from neptune_mlir.runtime.cpu_again import TensorCall
from neptune_mlir.runtime.cpu_call import Arrays, CpuCall, Prepared
from neptune_mlir.runtime.cpu_entry import NativeEntry
from neptune_mlir.runtime.loader import check_machine, load
from neptune_mlir.runtime.plan import Argument, Evaluation, Expression, Plan

_CALLS_LIMIT = 1024  # signatures whose calls are kept


class CpuExecutable:
    """A compiled function.

    Call it with the arguments in order: arrays (NumPy, or anything with DLPack, of any strides,
    used in place) and numbers. `out=` (one array, or a sequence of one per result) receives the
    results, else new arrays are made: torch tensors where an argument is one, else NumPy arrays
    (bf16: of `ml_dtypes.bfloat16` where that is installed, else its bits as uint16). Returns the
    array, or a tuple of them.
    """

    def __init__(self, bundle: Bundle | bytes, growing: Growing | None = None):
        """`growing`: where the bundle gets more code from, when calls take it."""
        self._growing = growing
        self.bundle = Bundle.from_bytes(bundle) if isinstance(bundle, bytes) else bundle
        self.plan: Plan = self.bundle.plan
        check_machine(self.bundle.facts.get("machine", {}))
        self._calls: dict[Any, CpuCall] = {}  # by workers, arguments and `out=` at a glance
        self._variants = [*_variants(self.bundle)]  # the last one is for any call
        self._last: TensorCall | None = None  # the call before, if it was like an earlier one
        self._loaded: dict[str, _Loaded] = {}  # by which calls it is for

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        last = self._last
        if last is not None:
            made = last(arguments, out)
            if made is not None:
                return made
        call, addresses, outs = self._find(arguments, out)
        return call.run(addresses, outs)

    def again(self, *arguments: Any) -> CpuCall | None:
        """What is kept of a call without `out=` for arguments like these, or None."""
        call, _, _ = self._find(arguments, None)
        return call if call in self._calls.values() else None

    def prepare(self, *arguments: Any, out: Any) -> Prepared:
        """A call on fixed memory, checked once: what is returned runs the kernels, and nothing
        else. It is not for several threads at a time: intermediate arrays are made once.

        Args:
            out: one array, or a sequence of one for each result.
        """
        call, addresses, _ = self._find(arguments, out)
        return call.prepared(addresses, keep=(arguments, out, self))  # self: the code in memory

    def launch_times(self, *arguments: Any, repeat: int = 5) -> list[tuple[str, float]]:
        """The kernel of each launch of a call and its seconds (the median), in order."""
        views, scalars = check(self.plan, arguments, view)
        loaded = self._load([v.shape if v else None for v in views], scalars, workers.count())
        clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
        entry = NativeEntry(loaded.plan, loaded.kernels, clock)
        found = []
        for _ in range(repeat + 1):
            call, addresses, _ = self._find(arguments, None)
            found.append(call.launch_times(entry, addresses))
        seconds = np.median(found[1:], axis=0)
        names = [launch.kernel for launch in loaded.plan.launches]
        return [(name, float(t)) for name, t in zip(names, seconds, strict=True)]

    def _find(
        self, arguments: tuple[Any, ...], out: Any
    ) -> tuple[CpuCall, list[int], tuple[Any, ...]]:
        """The call for these arguments, the addresses of their arrays, and those of `out=`."""
        outs = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
        key: list[Any] = [workers.count(), len(outs)]
        addresses: list[int] = []
        for value in (*arguments, *outs):
            seen = glance(value)
            if seen is None:
                return self._begin(arguments, outs, None)
            key.append(seen[0])
            if seen[1] is not None:
                addresses.append(seen[1])
        signature = tuple(key)
        call = self._calls.get(signature)
        if call is None or not call.fits(addresses):
            return self._begin(arguments, outs, signature)
        self._last = call.again((*arguments, *outs))
        return call, addresses[: call.given], outs

    def _begin(
        self, arguments: tuple[Any, ...], outs: tuple[Any, ...], signature: Any
    ) -> tuple[CpuCall, list[int], tuple[Any, ...]]:
        """Check a call and evaluate the plan for it. Raises ArgumentError."""
        count = workers.count()
        views, scalars = check(self.plan, arguments, view)
        shapes = tuple(v.shape if v else None for v in views)
        check_equal(self.plan, shapes, scalars)
        loaded = self._load(shapes, scalars, count)
        plan = loaded.plan
        value = Evaluation(shapes, scalars, count).of
        sizes = [tuple(int(value(e)) for e in b.shape) for b in plan.buffers]
        arrays = {("argument", k): v for k, v in enumerate(views) if v}
        arrays |= {("constant", k): v for k, v in enumerate(loaded.constants)}
        targets = _targets(plan, outs, sizes, arrays)
        call = CpuCall(loaded.entry, plan, arrays, scalars, sizes, targets, arguments, count)
        # what was copied to be read (fields of records, say) has another address in each call
        as_seen = all(v.owner is a for v, a in zip(views, arguments, strict=True) if v)
        if signature is not None and as_seen:
            if len(self._calls) >= _CALLS_LIMIT:
                self._calls.clear()
            self._calls[signature] = call
        addresses = [v.address for v in (*views, *targets) if v]
        call.lent = () if as_seen else tuple(v.owner for v in views if v)
        return call, addresses, tuple(t.owner for t in targets)

    def _load(self, shapes: Sequence[Any], scalars: Sequence[Any], count: int) -> _Loaded:
        """The code for a call with these shapes and numbers."""

        call = Evaluation(shapes, scalars, count)

        def chosen() -> _Variant:
            return next(v for v in self._variants if v.when is None or call.of(v.when))

        variant = chosen()
        if self._growing is not None:
            self._growing.grow(variant.start, shapes, scalars, count)
            if self._growing.bundle is not self.bundle:
                self.bundle = self._growing.bundle
                self._variants = [*_variants(self.bundle)]
                variant = chosen()
        name = str(variant.when)
        found = self._loaded.get(name)
        if found is None:
            # Threads may load the same at once. The first one's stays: calls have its addresses.
            made = _Loaded.of(variant, self.bundle.data)
            found = self._loaded.setdefault(name, made)
        return found


@dataclass(frozen=True)
class _Variant:
    """Code for the calls that meet a condition (None: for any), where it begins in the bundle, and
    its plan."""

    when: Expression | None
    start: int
    plan: Plan
    code: bytes


def _variants(bundle: Bundle) -> Iterator[_Variant]:
    """Those of a bundle; the first whose condition a call meets is for it. (In one that grows they
    lie as they came.)"""
    variants = bundle.facts.get("variants", ())
    whole = end = len(bundle.code)
    for made in reversed(variants):
        start = made.get("offset", end - made["size"])
        code = bundle.code[start : start + made["size"]]
        yield _Variant(made["when"], start, bundle.plan_of(made), code)
        end = start
    first = bundle.code[: whole - sum(made["size"] for made in variants)]
    yield _Variant(None, 0, bundle.plan, first)


@dataclass(frozen=True)
class _Loaded:
    """A variant in this process: addresses of its kernels by name; `engine` keeps its code in
    memory."""

    plan: Plan
    kernels: Mapping[str, int]
    entry: NativeEntry
    constants: Sequence[ArrayView]
    engine: Any

    @classmethod
    def of(cls, variant: _Variant, data: Mapping[str, bytes]) -> _Loaded:
        plan = variant.plan
        names = sorted({launch.kernel for launch in plan.launches})
        engine, addresses = load(variant.code, [f"_mlir_ciface_{n}" for n in names])
        kernels = dict(zip(names, addresses, strict=True))
        held = [elements(data[c.sha256], c.dtype, c.shape) for c in plan.constants]
        return cls(plan, kernels, NativeEntry(plan, kernels), held, engine)


def _targets(
    plan: Plan, outs: Sequence[Any], sizes: Sequence[tuple[int, ...]], arrays: Arrays
) -> list[ArrayView]:
    """The views of the arrays of `out=`. Raises ArgumentError."""
    if outs and len(outs) != len(plan.results):
        raise ArgumentError(f"out= has {len(outs)} arrays for {len(plan.results)} results")
    targets: list[ArrayView] = []
    for k, ((kind, number), value) in enumerate(zip(plan.results, outs, strict=False)):
        name = f"out[{k}]" if len(outs) > 1 else "out"
        array = view(value, name)
        shape = sizes[number] if kind == "buffer" else arrays[kind, number].shape
        dtype = plan.array((kind, number)).dtype
        array = check_array(array, Argument("tensor", dtype, shape, name))
        if array.readonly:
            raise ArgumentError(f"{name} is read-only")
        if isinstance(value, np.ndarray) and array.owner is not value:
            raise ArgumentError(f"{name} has elements that are not at whole element positions")
        targets.append(replace(array, owner=value))
    return targets
