# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What to try next: random points of the space first, then those from which a surrogate expects
most. Pure and deterministic: nothing here compiles or measures.

The space is a number of scripts with knobs of their own. After the random start, points come from
evolution: the best ones are mutated (a knob moves to a neighbouring option, or anywhere; a knob of
alternatives switches a rewrite), crossed (each loop nest comes from either, as do knobs that belong
to none), and moved to another script with the knobs that it shares. The next point is the one of
these with the largest expected improvement (Jones, Schonlau and Welch 1998) under a Gaussian
process on the logarithm of the time. Its kernel is Matern 5/2, with the likeliest of several length
scales.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Space = Mapping[str, Mapping[str, Sequence[int]]]  # options by knob, by script
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

START = 8  # random points, and as many as there are knobs
PARENTS = 5  # of the best that are mutated and crossed
CHILDREN = 90  # from which the surrogate chooses
_SCALES = (0.15, 0.3, 0.6, 1.2)  # length scales, of a unit cube
_NOISE = 1e-3  # of the logarithm of a time, beside a variance of 1


@dataclass(frozen=True, order=True)
class Point:
    """A script, and the numbers that its knobs are bound to, by name."""

    script: str
    knobs: tuple[tuple[str, int], ...]

    @staticmethod
    def of(script: str, knobs: Mapping[str, int]) -> Point:
        return Point(script, tuple(sorted(knobs.items())))

    def __str__(self) -> str:
        return ", ".join([self.script, *(f"{name} {n}" for name, n in self.knobs)])


class Search:
    """Proposes points of a space, each at most once, and hears what they cost.

    Args:
        seed: of what is random.
        first: points that are to be tried before all others.
    """

    def __init__(self, space: Space, seed: int = 0, first: Sequence[Point] = ()):
        self._space = {s: {k: sorted(set(o)) for k, o in ks.items()} for s, ks in space.items()}
        self._random = np.random.default_rng(seed)
        self._first = list(first)
        self._costs: dict[Point, float] = {}  # infinite: it failed
        self._proposed: set[Point] = set()
        self.start = START + max(map(len, self._space.values()))

    @property
    def size(self) -> int:
        """How many points there are."""
        return sum(math.prod(map(len, knobs.values())) for knobs in self._space.values())

    def propose(self) -> Point | None:
        """A point to try; None when there is none left."""
        found = None
        while self._first and found is None:
            found = self._new([self._first.pop(0)])
        if found is None and len(self._proposed) < self.start:
            found = self._new(self._anywhere() for _ in range(CHILDREN))
        if found is None:
            found = self._new(self._by_surrogate())
        if found is None:
            found = self._new(self._all())
        if found is not None:
            self._proposed.add(found)
        return found

    def tell(self, point: Point, cost: float | None) -> None:
        """What a point costs (a time, in any unit); None where it does not work."""
        self._costs[point] = math.inf if cost is None else cost

    def best(self, count: int = 1) -> list[Point]:
        """Those that cost least, the best first."""
        working = [p for p, cost in self._costs.items() if math.isfinite(cost)]
        return sorted(working, key=lambda p: (self._costs[p], p))[:count]

    # ---- points

    def _new(self, points: Iterable[Point]) -> Point | None:
        return next((p for p in points if p not in self._proposed), None)

    def _all(self) -> list[Point]:
        """What is left of a space that is nearly used up; nothing of a larger one."""
        if self.size > len(self._proposed) + 4 * CHILDREN:
            return []
        found: list[Point] = []
        for script, knobs in self._space.items():
            rows: list[dict[str, int]] = [{}]
            for name, options in knobs.items():
                rows = [{**row, name: n} for row in rows for n in options]
            found += [Point.of(script, row) for row in rows]
        return found

    def _anywhere(self, script: str = "") -> Point:
        script = script or list(self._space)[self._random.integers(len(self._space))]
        knobs = self._space[script]
        return Point.of(script, {name: self._one(options) for name, options in knobs.items()})

    def _one(self, options: Sequence[int]) -> int:
        return options[int(self._random.integers(len(options)))]

    def _children(self) -> list[Point]:
        parents = self.best(PARENTS)
        found = [self._anywhere() for _ in range(CHILDREN // 4)]
        while parents and len(found) < CHILDREN:
            parent = parents[int(self._random.integers(len(parents)))]
            other = parents[int(self._random.integers(len(parents)))]
            move = self._random.random()
            if move < 0.5:
                found.append(self._mutated(parent))
            elif move < 0.8:
                found.append(self._crossed(parent, other))
            else:
                found.append(self._moved(parent))
        return sorted({p for p in found if p not in self._proposed})

    def _mutated(self, point: Point) -> Point:
        knobs, options = dict(point.knobs), self._space[point.script]
        names = [name for name in knobs if len(options[name]) > 1]
        for _ in range(1 + int(self._random.random() < 0.3)):
            if names:
                name = names[int(self._random.integers(len(names)))]
                knobs[name] = self._moved_knob(options[name], knobs[name])
        return Point.of(point.script, knobs)

    def _moved_knob(self, options: Sequence[int], value: int) -> int:
        if self._random.random() < 0.3:
            return self._one(options)
        at = options.index(value) + (1 if self._random.random() < 0.5 else -1)
        return options[min(max(at, 0), len(options) - 1)]

    def _crossed(self, one: Point, other: Point) -> Point:
        theirs, options = dict(other.knobs), self._space[one.script]
        parts = sorted(set(map(nest_of, options)))
        taken = {part: self._random.random() < 0.5 for part in parts}
        return Point.of(one.script, {
            name: theirs[name] if taken[nest_of(name)] and theirs.get(name) in options[name] else n
            for name, n in one.knobs
        })  # fmt: skip

    def _moved(self, point: Point) -> Point:
        made, known = self._anywhere(), dict(point.knobs)
        options = self._space[made.script]
        return Point.of(made.script, {
            name: known[name] if known.get(name) in options[name] else n for name, n in made.knobs
        })  # fmt: skip

    # ---- the surrogate

    def _by_surrogate(self) -> list[Point]:
        """Children, the largest expected improvement first."""
        children = self._children()
        working = [cost for cost in self._costs.values() if math.isfinite(cost)]
        if not children or len(working) < 2:
            return children
        worst = 2 * max(working)  # what fails is to be avoided, and has no time
        known = list(self._costs)
        y = np.log([min(self._costs[p], worst) for p in known])
        mean, scale = float(y.mean()), float(y.std()) or 1.0
        at, spread = posterior(self._features(known), (y - mean) / scale, self._features(children))
        gain = expected_improvement((math.log(min(working)) - mean) / scale, at, spread)
        return [children[k] for k in np.argsort(-gain, kind="stable")]

    def _features(self, points: Sequence[Point]) -> Matrix:
        """A row for each: which script it is, and where each knob's option is among the others."""
        scripts = list(self._space)
        names = sorted({name for knobs in self._space.values() for name in knobs})
        rows = np.full((len(points), len(scripts) + len(names)), 0.5)
        for row, point in zip(rows, points, strict=True):
            row[: len(scripts)] = [float(s == point.script) for s in scripts]
            for name, n in point.knobs:
                options = self._space[point.script][name]
                row[len(scripts) + names.index(name)] = options.index(n) / max(len(options) - 1, 1)
        return rows


def nest_of(knob: str) -> str:
    """The loop nest that a knob is of by its name, `_2` of `rows_2`; else the name."""
    return found[0] if (found := re.search(r"_\d+$", knob)) else knob


def posterior(x: Matrix, y: Vector, at: Matrix) -> tuple[Vector, Vector]:
    """Mean and standard deviation of a Gaussian process of variance 1 at the rows of `at`, that has
    the values `y` (of mean 0) at the rows of `x`; the length scale is the likeliest of _SCALES."""
    best: tuple[float, Vector, Vector] | None = None
    for scale in _SCALES:
        k = matern(x, x, scale) + _NOISE * np.eye(len(x))
        lower = np.linalg.cholesky(k)
        half = np.linalg.solve(lower, y)
        likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(lower)).sum())
        if best is None or likelihood > best[0]:
            between = np.linalg.solve(lower, matern(x, at, scale))
            variance = np.maximum(1 + _NOISE - (between**2).sum(axis=0), 1e-12)
            best = likelihood, between.T @ half, np.sqrt(variance)
    assert best is not None
    return best[1], best[2]


def matern(a: Matrix, b: Matrix, scale: float) -> Matrix:
    """The Matern 5/2 kernel between rows."""
    r = np.sqrt(5 * ((a[:, None] - b[None]) ** 2).sum(axis=2)) / scale
    found: Matrix = (1 + r + r**2 / 3) * np.exp(-r)
    return found


def expected_improvement(best: float, mean: Vector, spread: Vector) -> Vector:
    """By how much a value is expected to fall below the best one."""
    z = (best - mean) / spread
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in z]))
    found: Vector = spread * (z * below + density)
    return found
