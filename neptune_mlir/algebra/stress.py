# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stress test: a fused chain against its definition, on inputs made to break it.

Huge and tiny values, ties, all-equal rows, -inf and +inf, data far from zero, permuted orders,
several tile sizes and every split count, in float64 (is the algebra right?) and float32 (is
it as accurate as the program as written?).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neptune_mlir.algebra.chain import Reduction, Solution
from neptune_mlir.algebra.numeric import Array, Domain, define, evaluate, fold, folded_axes, fused
from neptune_mlir.algebra.terms import COMPARISONS, axes_of, is_float, walk

TILES = (1, 3, 4, 7, 16, 64)
EXACT = 1e-7  # float64 agrees to this, relative to the size of what was added up
FLOOR = 1e-6  # results this small next to the inputs are rounding noise of the program itself
TIMES, SLACK = 8.0, 256.0  # float32: at most 8 times the unfused program's ulps, and some more


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
        return (
            f"'{self.result}' is off by {self.error:.3g} ulps in {self.precision} "
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


def extents_of(reductions: Sequence[Reduction], axis: int, length: int) -> tuple[int, ...]:
    """Small extents for a test: `length` along the stream and axes it is compared with (masks)."""
    nodes = [n for r in reductions for n in walk(r.body)]
    axes = {n.attr for n in nodes if n.op == "index"} | {axis}
    long = {axis}
    for n in nodes:
        if n.op in COMPARISONS and axis in axes_of(n):
            long |= {k.attr for k in walk(n) if k.op == "index"}
    return tuple(length if k in long else 2 + k % 2 for k in range(max(axes) + 1))


def inputs(
    reductions: Sequence[Reduction], axis: int, extents: tuple[int, ...], seed: int
) -> Iterator[tuple[str, dict[Any, Array]]]:
    """Named adversarial inputs for every tensor that the bodies read."""
    shapes = _shapes(reductions, extents)
    rng = np.random.default_rng(seed)
    for case, make in _CASES.items():
        data = {}
        for k, (key, (shape, dtype)) in enumerate(shapes.items()):
            if not is_float(dtype):
                high = 2 if dtype == "i1" else 3
                data[key] = rng.integers(0, high, shape)
                continue
            # Infinities go to the first tensor only: 0 * inf is nobody's fault.
            plain = case in ("some -inf", "all -inf", "one +inf", "huge") and k > 0
            data[key] = (_CASES["normal"] if plain else make)(rng, shape).astype(np.float32)
        yield case, data
        if case == "normal":
            order = rng.permutation(extents[axis])
            yield (
                "permuted",
                {
                    k: np.take(a, order, axis=a.shape.index(extents[axis]))
                    if extents[axis] in a.shape
                    else a
                    for k, a in data.items()
                },
            )


def _sprinkle(rng: Any, shape: tuple[int, ...], value: float, share: float) -> Array:
    return np.where(rng.random(shape) < share, value, rng.normal(size=shape))


_CASES = {
    "normal": lambda rng, s: rng.normal(size=s),
    "huge": lambda rng, s: rng.normal(size=s) * 1e4,
    "tiny": lambda rng, s: rng.normal(size=s) * 1e-6,
    "far from zero": lambda rng, s: rng.normal(size=s) + 1000.0,
    "positive": lambda rng, s: rng.random(s) + 0.1,
    "ties": lambda rng, s: rng.integers(-2, 3, s) * 1.0,
    "all equal": lambda rng, s: np.full(s, 0.75),
    "rising": lambda rng, s: np.sort(rng.normal(size=s) * 6, axis=-1),
    "falling": lambda rng, s: -np.sort(rng.normal(size=s) * 6, axis=-1),
    "some -inf": lambda rng, s: _sprinkle(rng, s, -np.inf, 0.4),
    "all -inf": lambda rng, s: np.full(s, -np.inf),
    "one +inf": lambda rng, s: _sprinkle(rng, s, np.inf, 0.05),
}


def _shapes(
    reductions: Sequence[Reduction], extents: tuple[int, ...]
) -> dict[Any, tuple[tuple[int, ...], str]]:
    domain = Domain(extents, {}, {})
    found: dict[Any, tuple[tuple[int, ...], str]] = {}
    for r in reductions:
        for n in walk(r.body):
            if n.op == "read":
                shape = tuple(int(evaluate(i, domain, {}).max()) + 1 for i in n.args)
                if n.attr in found:
                    before = found[n.attr][0]
                    shape = tuple(max(a, b) for a, b in zip(shape, before, strict=True))
                found[n.attr] = (shape, n.dtype)
    return found


def stress(
    reductions: Sequence[Reduction],
    solution: Solution,
    axis: int,
    *,
    length: int = 24,
    tiles: Sequence[int] = TILES,
    chunks: Sequence[int] = (1, 2, 3, 5, 24),
    scalars: dict[Any, float] | None = None,
    cases: Sequence[str] | None = None,
    single: bool = True,
    seed: int = 0,
) -> Report:
    """Run every case; stops at the first failure.

    Args:
        cases: names of the inputs to try (all when None).
        single: also run in float32 and compare with the unfused program.
        scalars: values of `sym` leaves; those not given are `length` (a row length, mostly).
    """
    extents = extents_of(reductions, axis, length)
    leaves = {n.attr for r in reductions for n in walk(r.body) if n.op == "sym"}
    values = {k: float(length) for k in leaves} | (scalars or {})
    worst = {r.name: 0.0 for r in reductions}
    unfused = dict(worst)
    runs = 0
    plans = [(t, 1) for t in tiles if t <= 2 * length] + [(4, c) for c in chunks if c > 1]
    for case, data in inputs(reductions, axis, extents, seed):
        if cases is not None and case not in cases:
            continue
        exact_domain = Domain(extents, data, values)
        exact = define(reductions, axis, exact_domain)
        size = _sizes(reductions, axis, exact_domain, exact)
        narrow = Domain(extents, data, values, np.float32)
        plain = define(reductions, axis, narrow) if single else exact
        base = {k: ulps(plain[k], exact[k], size[k], np.float32) for k in exact}
        for k, e in base.items():
            unfused[k] = max(unfused[k], _peak(e))
        for tile, parts in plans:
            runs += 1
            got = fused(solution, axis, exact_domain, tile, parts)
            for k in exact:
                error = _peak(ulps(got[k], exact[k], size[k], np.float64))
                if error > EXACT / np.finfo(np.float64).eps:
                    bad = Failure(case, k, "float64", tile, parts, error, data)
                    return Report(worst, unfused, runs, bad)
            if not single:
                continue
            got = fused(solution, axis, narrow, tile, parts)
            for k in exact:
                off = ulps(got[k], exact[k], size[k], np.float32)
                # Where the program as written overflows, the fused one may as well.
                error = _peak(np.where(np.isfinite(base[k]), off, 0.0))
                worst[k] = max(worst[k], error)
                if error > TIMES * _peak(base[k]) + SLACK:
                    bad = Failure(case, k, "float32", tile, parts, error, data)
                    return Report(worst, unfused, runs, bad)
    return Report(worst, unfused, runs, None)


def _peak(error: Array) -> float:
    finite = error[np.isfinite(error)]
    if np.isposinf(error).any():
        return float("inf")
    return float(finite.max()) if finite.size else 0.0


def ulps(got: Array, exact: Array, size: Array, kind: Any) -> Array:
    """Distance in units of the last place of `size`; inf where a finite value was missed."""
    with np.errstate(all="ignore"):
        info = np.finfo(kind)
        got, exact = np.broadcast_arrays(np.asarray(got, np.float64), np.asarray(exact, np.float64))
        error = np.abs(got - exact) / (info.eps * np.maximum(size, float(info.tiny)))
        error = np.where(got == exact, 0.0, error)
        missed = np.isfinite(exact) != np.isfinite(got)
        error = np.where(missed & (np.abs(exact) < float(info.max)), np.inf, error)
        return np.where(np.isnan(exact) | (size > float(info.max)), 0.0, error)


def _sizes(
    reductions: Sequence[Reduction], axis: int, domain: Domain, exact: dict[str, Array]
) -> dict[str, Array]:
    """What rounding is relative to: the sum of magnitudes, or the value itself."""
    found = {}
    finite = [np.abs(a[np.isfinite(a)]).max(initial=1.0) for a in domain.data.values()]
    noise = FLOOR * max(finite, default=1.0)
    with np.errstate(all="ignore"):
        for r in reductions:
            found[r.name] = np.abs(np.asarray(exact[r.name], np.float64))
            if r.combiner == "add" and is_float(r.body.dtype):
                value = np.abs(evaluate(r.body, domain, exact))
                folded = folded_axes(r, axis)
                total = fold("add", value, domain, folded, domain.extents[axis], axis)
                found[r.name] = np.maximum(found[r.name], np.nan_to_num(total, nan=0.0))
            found[r.name] = np.maximum(found[r.name], noise)
    return found
