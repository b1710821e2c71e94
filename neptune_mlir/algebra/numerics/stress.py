# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stress test: a fused chain against its definition, on inputs made to break it.

In float64 the fused loop has to agree with the definition, NaN and infinities included: that asks
whether the algebra is right. In the types of the program it may be off by twice what the unfused
program is, and some units in the last place for each step of the loop: that asks whether the form
is good. `fusion_plan` accepts no other form, and `neptune verify` reports the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from neptune_mlir.algebra.access import opaque, positions
from neptune_mlir.algebra.chain import Reduction, Solution
from neptune_mlir.algebra.numerics import accuracy
from neptune_mlir.algebra.numerics.accuracy import ANY, GARBAGE, OVERFLOWN
from neptune_mlir.algebra.numerics.error_bound import bound, bounds
from neptune_mlir.algebra.numerics.evaluation import (
    Array,
    Domain,
    define,
    evaluate,
    fold,
    folded_axes,
    fused,
    in_common,
    keep_only,
)
from neptune_mlir.algebra.numerics.stress_inputs import (
    LARGE,
    NONFINITE,
    inputs,
    measured_from_weighted,
    scores_of,
)
from neptune_mlir.algebra.terms import COMPARISONS, Term, is_float, ref, walk

LENGTH = 24
POINTS = 1 << 14  # of an array of one input, where more than two axes are compared
PLANS = ((3, 1), (7, 1), (64, 1), (3, 3))  # tile, chunks
EXACT = 1e-7  # float64 agrees to this, relative to the size of what was added up
U32 = 2.0**-24
AGAIN, OFTEN = 16, 64  # sets of numbers that even out luck; and where these leave it close
CLOSE = 1.5  # times the limit
ORDERS = (0, 1, 5)  # the unfused program adds up in several orders: its error is luck
NEARLY = 2.0**-8  # what is left where an infinity is hidden, relative
STEP = 0.25  # each repair rounds its factor and a product


@dataclass(frozen=True)
class Failure:
    """One input on which the fused chain is wrong."""

    case: str
    result: str
    precision: str
    tile: int
    chunks: int
    error: float
    data: dict[Any, Array] = field(repr=False)

    def __str__(self) -> str:
        off = f"off by {self.error:.3g} ulps" if np.isfinite(self.error) else "lost"
        return (
            f"'{self.result}' is {off} in {self.precision} "
            f"(input '{self.case}', tile {self.tile}, {self.chunks} chunks)"
        )


@dataclass(frozen=True)
class Report:
    """Worst errors in float32 ulps of the fused and of the unfused program, by result."""

    fused: dict[str, float]
    unfused: dict[str, float]
    runs: int
    failure: Failure | None

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def worst(self) -> float:
        return max(self.fused.values(), default=0.0)


def extents_of(terms: Sequence[Term], axis: int, length: int) -> tuple[int, ...]:
    """Small extents for a test: `length` along the stream and axes it is compared with (masks)."""
    nodes = [n for t in terms for n in walk(t)]
    axes = {n.attr for n in nodes if n.op == "index"} | {axis}
    long = {axis}
    for n in nodes:
        if n.op in COMPARISONS and axis in positions(n):
            long |= positions(n)
    others = len(axes - long)
    few = 1 if len(long) > 1 or others > 3 else 2 if others > 2 else 4
    # a stream whose place is a sum of many axes (windows that are shifted) is compared with all
    most, others = max(POINTS, length**2), len(long) - 1
    fits = (n for n in range(length, 1, -1) if length * n**others <= most)
    beside = next(fits, min(length, 2))
    extents = dict.fromkeys(long, beside) | {axis: length}
    return tuple(extents.get(k, few) for k in range(max(axes) + 1))


def stress(
    reductions: Sequence[Reduction],
    solution: Solution | Sequence[Reduction],
    axis: int,
    *,
    outputs: Mapping[str, Term] | None = None,
    fused_outputs: Mapping[str, Term] | None = None,
    nonneg: Collection[Any] = (),
    length: int = LENGTH,
    plans: Sequence[tuple[int, int]] = PLANS,
    scalars: dict[Any, float] | None = None,
    cases: Sequence[str] | None = None,
    single: bool = True,
    seed: int = 0,
) -> Report:
    """Run every case; stops at the first plan that fails.

    Args:
        solution: the fused chain; or reductions that are to give the same, one after the other.
        outputs: what is compared, over `ref` of the reductions; by default each of these.
        fused_outputs: the same values over `ref` of the solution, where they differ.
        nonneg: inputs that are never negative (sums of squares that another nest made).
        plans: pairs of a tile size and a number of chunks.
        cases: names of the inputs to try (all when None).
        single: also run in the program's types and compare with the unfused program.
        scalars: values of `sym` leaves; those not given are `length` (a row length, mostly).
    """
    if outputs is None:
        outputs = {r.name: ref(r.name, dtype=r.dtype) for r in reductions}
    fused_outputs = fused_outputs or outputs
    # what a lookup finds is data: the inputs are made as if each were a tensor of its own
    reductions = [replace(r, body=opaque(r.body)) for r in reductions]
    outputs, fused_outputs = (
        {name: opaque(term) for name, term in given.items()} for given in (outputs, fused_outputs)
    )
    if isinstance(solution, Solution):
        solution = solution.mapped(opaque)
    else:
        solution = [replace(r, body=opaque(r.body)) for r in solution]
    given = (reductions, solution, axis, outputs, fused_outputs, nonneg, length, scalars)
    test = _Test(*given, cases, (seed,))
    return test.run([(tile, chunks) for tile, chunks in plans if chunks <= length], single)


class _Test:
    """One chain on one batch of inputs: the cases with the numbers of each seed."""

    def __init__(
        self, reductions, solution, axis, outputs, fused_outputs, nonneg, length, scalars, cases,
        seeds,
    ):  # fmt: skip
        self.given = reductions, solution, axis, outputs, fused_outputs, nonneg, length, scalars
        self.solution, self.axis = solution, axis
        self.outputs, self.fused_outputs = outputs, fused_outputs
        self.steps = length
        terms = [*(r.body for r in reductions), *outputs.values()]
        self._scores = {str(key) for key in scores_of(terms)}
        extents = extents_of(terms, axis, length)
        names = {n.attr for t in terms for n in walk(t) if n.op == "sym"}
        values = {k: float(length) for k in names} | (scalars or {})
        rising = measured_from_weighted(reductions, outputs)
        batches = [inputs(terms, axis, extents, seed, cases, rising) for seed in seeds]
        self.names = [name for names, _ in batches for name in names]
        stacks = {key: np.concatenate([data[key] for _, data in batches]) for key in batches[0][1]}
        data = {key: np.abs(stack) if key in nonneg else stack for key, stack in stacks.items()}
        self.data = data
        self.wide = Domain(extents, data, values, batched=True)
        self.narrow = Domain(extents, data, values, np.float32, batched=True)
        self.reductions = reductions
        known: dict[Term, Array] = {}  # of each precision and data, a term is evaluated once
        found = define(reductions, axis, self.wide, values=known)
        kept = [{k for k, n in enumerate(v.shape) if n > 1} for v in found.values()]
        self.common = set.intersection(*kept)
        self.exact = self._outputs(self.wide, found, known)
        self.size = self._sizes(self.wide, found, known)
        self._blur(extents, values, seeds)
        self._distrust(found, known)
        self._hide(extents, values)
        narrow, plain = self._unfused()
        # a program that rounds to 16 bits has its last place there
        nodes = {n.dtype for t in terms for n in walk(t) if n.op == "cast"}
        self.ulp = 2.0**16 if "bf16" in nodes else 2.0**13 if "f16" in nodes else 1.0
        large = [any(f in n for f in LARGE) for n in self.names]
        self.large = np.array(large).reshape(-1, *(1 for _ in extents))
        self.loose = np.array([self._is_loose(n) for n in self.names]).reshape(self.large.shape)
        overflow = self._overflow(found, narrow)
        self.known: dict[str, Array] = {}  # where the unfused program is worth comparing with
        self.base = {k: self._base(k, [o[k] for o in plain], overflow) for k in outputs}
        self._again: dict[tuple[str, range], _Test] = {}

    def _overflow(self, found: dict[str, Array], narrow: list[dict[str, Array]]) -> Array:
        """Where a sum of the unfused program overflows, or vanishes: it has no error to compare."""
        past = np.zeros((len(self.names), *self.wide.unit[1:]), bool)
        for k, value in ((k, v) for values in narrow for k, v in values.items()):
            if value.dtype.kind == "f":
                size = np.abs(found[k])
                past = past | (np.isfinite(size) & ~np.isfinite(value))
                past = past | ((size > 0) & (size < np.finfo(np.float32).tiny / U32))
        return past

    def _base(self, name: str, plain: list[Array], overflow: Array) -> Array:
        """The error of the unfused program; infinite where nothing can be compared with it."""
        base = np.maximum.reduce([self._off(name, value, np.float32) for value in plain])
        worst = base.max(axis=tuple(self._within_rows(base)), keepdims=True, initial=0)
        # of a narrow type fewer units in the last place are the row itself
        garbage = min(GARBAGE * self.ulp, OVERFLOWN / float(np.finfo(np.float32).eps))
        self.known[name] = worst <= garbage
        lost = _peaks(np.where(np.isfinite(base), base, 0.0)) > garbage
        return np.where(lost.reshape(self.large.shape) | overflow, np.inf, base)

    def _within_rows(self, value: Array) -> list[int]:
        """Dimensions along which a value belongs to one row: those that some reduction lacks."""
        return [k for k in range(1, value.ndim) if k not in self.common]

    def _is_loose(self, name: str) -> bool:
        """Where an infinity may become NaN, or the reverse: a program that adds up infinities, or
        divides by 0, gives one or the other by the order of what it does. What exponents are made
        of is exact: a row with +inf has that maximum, and that log-sum-exp."""
        return not any(f in name for f in NONFINITE) or not self._has_exponents(name)

    def _has_exponents(self, name: str) -> bool:
        scores = self._scores
        _, bracket, key = name.partition(" (")
        return key.rstrip(")") in scores if bracket else bool(scores)

    def _blur(
        self, extents: tuple[int, ...], values: dict[Any, float], seeds: Sequence[int]
    ) -> None:
        """Sizes as of inputs that differ in the last place: a result is never more exact than
        that, and what they decide between (a comparison) decides nothing."""
        generators = [np.random.default_rng(seed) for seed in seeds]
        data = {}
        with np.errstate(all="ignore"):
            for key, stack in self.data.items():
                shape = len(self.names) // len(seeds), *stack.shape[1:]
                signs = np.concatenate([rng.choice((-1, 1), shape) for rng in generators])
                factor = 1 + np.finfo(np.float32).eps * signs
                data[key] = stack * factor if stack.dtype.kind == "f" else stack
            near = Domain(extents, data, values, batched=True)
            known: dict[Term, Array] = {}
            found = define(self.reductions, self.axis, near, values=known)
            near_exact = self._outputs(near, found, known)
            near_size = self._sizes(near, found, known)
            for k, t in self.outputs.items():
                nothing = self.size[k] < 1e-3 * near_size[k]  # all that is left is rounding
                self.size[k] = np.where(nothing, near_size[k] / U32, self.size[k])
                if not is_float(t.dtype):
                    self.size[k] = np.where(near_exact[k] == self.exact[k], self.size[k], np.inf)

    def _distrust(self, found: dict[str, Array], known: dict[Term, Array]) -> None:
        """Where float64 itself has lost a result, its size is infinite: no comparison."""
        errors = bounds(self.reductions, self.axis, self.wide, found, known)
        with np.errstate(all="ignore"):
            for k, t in self.outputs.items():
                error = bound(t, self.wide, found, errors, known)
                lost = np.isfinite(self.exact[k]) & (error > EXACT * self.size[k])
                self.size[k] = np.where(lost, np.inf, self.size[k])

    def _hide(self, extents: tuple[int, ...], values: dict[str, float]) -> None:
        """Results that are the same whatever numbers stand for infinities and NaNs: the program
        multiplies these by 0, which makes NaN, and the fused one may not visit them at all."""
        self.hidden: dict[str, Array] = {}
        odd = np.array([any(f in n for f in NONFINITE) for n in self.names])
        if not odd.any():
            return
        found = []
        with np.errstate(all="ignore"):
            for number in ANY:
                data = {key: stack[odd] for key, stack in self.data.items()}
                data = {
                    key: np.where(np.isfinite(stack), stack, number)
                    if stack.dtype.kind == "f" else stack
                    for key, stack in data.items()
                }  # fmt: skip
                near = Domain(extents, data, values, batched=True)
                known: dict[Term, Array] = {}
                refs = define(self.reductions, self.axis, near, values=known)
                found.append(self._outputs(near, refs, known))
        for k, exact in self.exact.items():
            first = np.asarray(found[0][k], np.float64)
            alike = np.logical_and.reduce([other[k] == first for other in found])
            shape = np.broadcast_shapes(first.shape[1:], exact.shape[1:])
            whole = np.full((len(odd), *shape), np.nan)
            whole[odd] = np.where(alike & np.isfinite(first), first, np.nan)
            self.hidden[k] = whole

    def _outputs(
        self, domain: Domain, refs: Mapping[str, Array], known: dict[Term, Array]
    ) -> dict[str, Array]:
        with np.errstate(all="ignore"):
            return {k: evaluate(t, domain, refs, done=known) for k, t in self.outputs.items()}

    def _unfused(self) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
        """The reductions in the types of the program in each of ORDERS, and the outputs."""
        found: list[dict[str, Array]] = []
        made: list[dict[str, Array]] = []
        known: dict[Term, Array] = {}
        for tile in ORDERS:
            known = {n: value for n, value in known.items() if not n.has_ref}
            found.append(define(self.reductions, self.axis, self.narrow, tile, known))
            made.append(self._outputs(self.narrow, found[-1], known))
        return found, made

    def _fused(self, domain: Domain, tile: int, chunks: int) -> dict[str, Array]:
        if isinstance(self.solution, Solution):
            finals = fused(self.solution, self.axis, domain, tile, chunks)
        else:
            finals = define(self.solution, self.axis, domain)
        with np.errstate(all="ignore"):
            return {k: evaluate(t, domain, finals) for k, t in self.fused_outputs.items()}

    def run(self, plans: Sequence[tuple[int, int]], single: bool) -> Report:
        worst = dict.fromkeys(self.outputs, 0.0)
        unfused = {k: float(self.unfused_peaks(k).max(initial=0)) for k in self.outputs}
        runs = 0
        for tile, chunks in plans:
            runs += len(self.names)
            got = self._fused(self.wide, tile, chunks)
            for k in self.outputs:
                peaks = _peaks(self._off(k, got[k], np.float64))
                for case in np.flatnonzero(peaks > EXACT / np.finfo(np.float64).eps):
                    bad = self._failure(k, case, peaks, "float64", tile, chunks)
                    return Report(worst, unfused, runs, bad)
            for k, peaks in self.fused_peaks(tile, chunks).items() if single else ():
                worst[k] = max(worst[k], float(peaks.max(initial=0)))
                limit = self._limit(self.unfused_peaks(k), tile, chunks)
                for case in np.flatnonzero(peaks > limit):
                    if not self._is_luck(k, case, peaks, tile, chunks):
                        bad = self._failure(k, case, peaks, "float32", tile, chunks)
                        return Report(worst, unfused, runs, bad)
        return Report(worst, unfused, runs, None)

    def fused_peaks(self, tile: int, chunks: int) -> dict[str, Array]:
        """Of each output the largest error for each input, in the program's types."""
        found = {}
        for k, got in self._fused(self.narrow, tile, chunks).items():
            error = self._off(k, got, np.float32)
            # Where the program as written overflows the fused one may be off, but not lost
            # while the other is nearly right.
            finite = np.where(np.isfinite(self.base[k]), error, 0.0)
            found[k] = _peaks(np.where(self.known[k] & np.isinf(error), np.inf, finite))
        return found

    def unfused_peaks(self, name: str) -> Array:
        return _peaks(np.where(np.isfinite(self.base[name]), self.base[name], 0.0))

    def _limit(self, unfused: Array, tile: int, chunks: int) -> Array:
        steps = -(-self.steps // tile) + chunks
        return self.ulp * (accuracy.bound(unfused / self.ulp) + STEP * steps)

    def _is_luck(self, name: str, case: Any, peaks: Array, tile: int, chunks: int) -> bool:
        """Rounding is luck: does the bound hold for the root mean square over other numbers?"""
        if not np.isfinite(peaks[case]):
            return False
        errors, unfused = [peaks[case]], [self.unfused_peaks(name)[case]]
        for first, runs in ((1, AGAIN), (AGAIN, OFTEN)):
            again = self._with_seeds(self.names[case], range(first, runs))
            errors += [*again.fused_peaks(tile, chunks)[name]]
            unfused += [*again.unfused_peaks(name)]
            excess = _mean_square(errors) / self._limit(_mean_square(unfused), tile, chunks)
            if not 1 < excess <= CLOSE:
                break
        return bool(excess <= 1)

    def _with_seeds(self, case: str, seeds: range) -> _Test:
        """One case with other numbers."""
        if (case, seeds) not in self._again:
            self._again[case, seeds] = _Test(*self.given, [case], seeds)
        return self._again[case, seeds]

    def _failure(
        self, name: str, case: Any, peaks: Array, precision: str, tile: int, chunks: int
    ) -> Failure:
        data = {key: stack[case] for key, stack in self.data.items()}
        return Failure(self.names[case], name, precision, tile, chunks, float(peaks[case]), data)

    def _off(self, name: str, got: Array, kind: Any) -> Array:
        """Distance from the definition in units of the last place of its size; infinite where
        one of the two is no number or infinite and the other is not."""
        info = np.finfo(kind)
        smallest, largest = accuracy.ends("f64" if kind is np.float64 else "f32")
        with np.errstate(all="ignore"):
            got, exact, size = np.broadcast_arrays(
                got.astype(np.float64), self.exact[name].astype(np.float64), self.size[name]
            )
            error = np.abs(got - exact) / (info.eps * np.maximum(size, float(info.tiny)))
            error = np.where(size < smallest, np.where(np.isfinite(got), 0.0, np.inf), error)
            odd = ~np.isfinite(exact)
            alike = (np.isnan(exact) == np.isnan(got)) | self.loose
            right = (got == exact) | (odd & ~np.isfinite(got) & alike & ~(got == -exact))
            error = np.where(odd | ~np.isfinite(got), np.inf, error)
            if name in self.hidden:
                value = self.hidden[name]
                near = np.abs(got - value) <= NEARLY * np.abs(value)
                right = right | (near & self.loose)
            error = np.where(right, 0.0, error)
            past = (odd & self.large) | (~odd & (np.maximum(np.abs(exact), size) > largest))
            return np.where(past, 0.0, error)

    def _sizes(
        self, domain: Domain, found: dict[str, Array], values: dict[Term, Array]
    ) -> dict[str, Array]:
        """What rounding is relative to: the sum of the magnitudes that were added up."""
        sizes: dict[str, Array] = {}
        common, done = in_common(self.reductions), dict[Term, Array]()
        with np.errstate(all="ignore"):
            for r in self.reductions:
                size = np.abs(np.asarray(found[r.name], np.float64))
                if r.combiner == "add" and is_float(r.body.dtype):
                    # a factor that is a sum is as uncertain as the sum; a difference of what is
                    # read is exact
                    value = self._size(r.body, domain, found, sizes, values, done, sums=False)
                    keep_only(common, done)
                    folded = folded_axes(r, self.axis)
                    total = fold("add", value, domain, folded, domain.extents[self.axis], self.axis)
                    size = np.maximum(size, np.nan_to_num(total, nan=0.0))
                sizes[r.name] = size
            given = domain, found, sizes, values, {}
            return {k: self._size(t, *given) for k, t in self.outputs.items()}

    def _size(
        self, t: Term, domain: Domain, found: dict[str, Array], sizes: dict[str, Array],
        values: dict[Term, Array], done: dict[Term, Array], sums: bool = True,
    ) -> Array:  # fmt: skip
        """The size of a value: that of a sum is the sum of the sizes (with `sums`), that of
        anything else grows with those of the reductions that it reads.

        `values`, `done`: values and sizes of terms so far; more are added."""
        for n in walk(t):
            if n in done:
                continue
            if n not in values:
                values[n] = evaluate(n, domain, found, known=values)
            if n.op == "ref":
                done[n] = sizes[n.attr]
                continue
            done[n] = value = np.abs(np.asarray(values[n], np.float64))
            parts = [done[a] for a in n.args if is_float(a.dtype)]
            if not is_float(n.dtype) or not parts:
                continue
            if n.op in ("add", "sub"):
                done[n] = np.fmax(value, parts[0] + parts[1]) if sums else value
            elif n.op == "mul":
                done[n] = np.fmax(value, parts[0] * parts[1])
            elif n.op == "div":
                divisor = np.abs(np.asarray(values[n.args[1]], np.float64))
                done[n] = np.fmax(value, parts[0] / divisor)
            elif n.op == "select":
                done[n] = np.where(values[n.args[0]], *parts)
            elif n.op in ("neg", "cast", "abs"):
                done[n] = np.fmax(value, parts[0])
        return done[t]


def _mean_square(values: Sequence[Any]) -> Any:
    return np.sqrt(np.mean(np.square(np.asarray(values, np.float64))))


def _peaks(error: Array) -> Array:
    """The largest error of each input."""
    return np.nan_to_num(error.reshape(len(error), -1), nan=np.inf, posinf=np.inf).max(1)
