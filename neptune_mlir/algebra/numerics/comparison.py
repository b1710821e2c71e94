# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One result of a fused program beside the program as written, by the rule of `accuracy`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.accuracy import (
    ALIKE,
    COARSER,
    FURTHEST,
    GARBAGE,
    LOST,
    MANY,
    NO_DIGITS,
    NOISE,
    OFF,
    OVERFLOWN,
    SELDOM,
    SLACK,
    SMALL_PRODUCTS,
    TIMES,
    WORSE,
    bases,
    bound,
    ends,
)
from neptune_mlir.algebra.numerics.floats import EPSILON, SMALLEST, Array, rounded
from neptune_mlir.algebra.numerics.norms import frobenius, kinds, norm, spread


def _held(find: Callable[..., Array]) -> Callable[..., Array]:
    """A method whose result is kept until runs are added: verdicts ask for the same again and
    again. Nobody writes to it."""

    @functools.wraps(find)
    def kept(self: Comparison, *of: str) -> Array:
        key = find.__name__, *of
        if key not in self._known:
            self._known[key] = find(self, *of)
        return self._known[key]

    return kept


@dataclass
class Comparison:
    """One result of a fused and of an unfused program against float64, over one or more runs."""

    dtype: str
    slack: float | None = None  # instead of SLACK
    loose: bool = False  # an infinity will do where the program makes a NaN
    together: bool = False  # rows near the ends of the range are not compared
    beyond: bool = False  # the product of the arguments is past them: nothing is
    within: float = 1.0  # what part of the bound is asked for
    step: float = 0.0  # the part of themselves by which the arguments of further runs move
    beside: float | None = None  # the excess on inputs further away, where that decides
    reported: bool = False  # `frobenius_fused`, `frobenius_unfused` and `difference` are found
    in_orders: list[Array] = field(default_factory=list)  # `_unfused` of the first input
    runs: int = 0
    strangers: int = 0  # elements that are NaN or infinite, or finite, where they must not be
    example: str = ""
    overflows: int = 0  # elements where the unfused program leaves the range of its types
    frobenius_fused: float = 0.0
    frobenius_unfused: float = 0.0
    difference: float = 0.0  # the largest, of an element, fused and unfused
    _unknown: Array | None = None  # elements that float64 does not know
    _kinds: Array | None = None  # of the first run's elements, exact and unfused
    _loud: Array | None = None  # elements that the unfused program may make infinite, or NaN
    _made: Array | None = None  # by row, what a last place makes of equal inputs
    _lost: Array | None = None  # rows of which the unfused program makes a NaN or an infinity
    _fused: list[Array] = field(default_factory=list)  # norms of errors, by row
    _unfused: list[Array] = field(default_factory=list)
    _of_orders: list[Array] = field(default_factory=list)  # of each run, by order and row
    _ranged: list[Array] = field(default_factory=list)
    _sizes: list[Array] = field(default_factory=list)
    _exact: list[Array] = field(default_factory=list)
    _known: dict[tuple[str, ...], Array] = field(default_factory=dict)  # of these runs (`_held`)

    def add(self, fused: Any, unfused: Any, exact: Any) -> None:
        """One run."""
        one, two, three = (np.asarray(a)[None] for a in (fused, unfused, exact))
        self.add_runs(one, two, three)

    def add_runs(
        self, fused: Any, unfused: Any, exact: Any, near: Sequence[Any] = (),
        unequal: Sequence[Any] = (), others: Sequence[Any] = (), jittered: Sequence[Any] = (),
        hidden: Any = False, ranged: Any = None, ways: Sequence[Any] = (),
        moved: Sequence[Any] = (), limit: Any = None, otherwise: Sequence[Iterable[Any]] = (),
        every: bool = False,
    ) -> None:  # fmt: skip
        """Several runs, which the first dimension of results counts. Arrays are float64, `exact`
        before any rounding. Given once, for the first run and without that dimension: `near`,
        `exact` of inputs that differ in the last places of float64, and `unequal`,
        `exact` of inputs of which none equal each other any more; `jittered`, `unfused` with sums
        in other orders, and of inputs that differ in the last place; `moved`, `exact` of such
        inputs, constants as they are. `others`: `exact` with other
        numbers for the infinities and NaNs that sums are made of, where there are any. `hidden`:
        which elements are the same for any numbers in their place. `ranged`: `unfused` with more
        range, and `ways`: in other orders, where `unfused` leaves the range of its types, or may
        have. `limit`: `exact` with very large numbers for infinities, where there are any.
        `otherwise`: of each run the program as written with other roundings, asked where nothing
        else helps. `every`: whether what any of `ways` loses is lost, and all errors are kept."""
        fused, unfused, exact = map(np.asarray, (fused, unfused, exact))
        self.runs += len(fused)
        self._known.clear()
        if fused.shape != exact.shape:
            shapes = f"shape {fused.shape[1:]} instead of {exact.shape[1:]}"
            self._stranger(len(fused) * max(fused[0].size, 1), shapes)
            return
        if self.dtype not in EPSILON:
            wrong = (fused != unfused) & (fused != exact)
            self._count(wrong, fused, unfused)
            return
        with np.errstate(all="ignore"):
            if unequal:
                several = np.stack(unequal)
                finite = np.isfinite(exact) & np.isfinite(several)
                made = self._rows(np.where(finite, several - exact, 0.0))
                self._made = np.maximum.reduce(made)
            if near or self._unknown is None:
                self._unknown, self._loud = np.zeros((2, *exact.shape[1:]), bool)
            if near:
                self._unknown |= self._apart(exact, np.stack(near)).any(0)
            unknown = self._unknown | self._at_the_ends(exact) if self.together else self._unknown
            unknown = unknown | self.beyond | hidden
            both = np.stack([kinds(rounded(exact, self.dtype)), kinds(unfused)])
            self._kinds = both[:, :1] if self._kinds is None else self._kinds
            unknown = unknown | (both != self._kinds).any(0)
            if jittered:
                self._loud |= ~np.isfinite(np.stack(jittered)).all(0)
            anything = np.zeros(exact.shape, bool)
            for other in others:
                anything |= (exact != other) & ~(np.isnan(exact) & np.isnan(other))
            self._patterns(
                fused, unfused, exact, both, unknown, anything, ranged, [*ways, *moved], limit,
                otherwise,
            )  # fmt: skip
            self._errors(fused, unfused, exact, (both[0] == 0) & ~unknown, ranged, ways, every)
            if self.reported:
                self._report(fused, unfused, exact)

    def _report(self, fused: Array, unfused: Array, exact: Array) -> None:
        self.frobenius_fused = max(self.frobenius_fused, frobenius(fused, exact))
        self.frobenius_unfused = max(self.frobenius_unfused, frobenius(unfused, exact))
        both = np.isfinite(fused) & np.isfinite(unfused)
        apart = np.abs(np.where(both, fused - unfused, 0.0))
        self.difference = max(self.difference, float(apart.max(initial=0.0)))

    def _stranger(self, number: int, example: str) -> None:
        self.strangers += number
        self.example = self.example or example

    def _count(self, wrong: Array, fused: Array, unfused: Array) -> None:
        if wrong.any():
            at = tuple(int(k) for k in np.argwhere(wrong)[0])
            place = f"[{', '.join(map(str, at[1:]))}]"
            text = f"element {place} is {fused[at]:.6g}, unfused {unfused[at]:.6g}"
            self._stranger(int(wrong.sum()), text)

    def _apart(self, exact: Array, near: Array) -> Array:
        """Which elements are in rows that float64 does not know, beside each of some inputs."""
        if not exact.size:
            return np.zeros(near.shape, bool)
        here, there = rounded(exact, self.dtype), rounded(near, self.dtype)
        finite = np.isfinite(here) & np.isfinite(there)
        moved = self._rows(np.where(finite, exact - near, 0.0))
        size = self._rows(np.where(finite, exact, 0.0))
        if self._made is not None:  # noise beside that is a 0
            size = np.maximum(size, self._made)
        limit = EPSILON[self.dtype] / 4 * np.maximum(size, SMALLEST[self.dtype])
        if self.dtype == "f64":
            limit = self.bound_of(0.0) * EPSILON["f64"] * size
        return spread(moved > limit, near) | (kinds(here) != kinds(there))

    def _at_the_ends(self, exact: Array) -> Array:
        """Which elements are in rows that may overflow or vanish."""
        size = self._rows(np.where(np.isfinite(exact), exact, 0.0))
        low, high = ends(self.dtype)
        return spread(((size > 0) & (size < low)) | (size > high), exact)

    def _patterns(
        self, fused: Array, unfused: Array, exact: Array, both: Array, unknown: Array,
        anything: Array, ranged: Any, ways: Sequence[Any], limit: Any,
        otherwise: Sequence[Iterable[Any]],
    ) -> None:  # fmt: skip
        """`both`: the kinds of `exact`, rounded, and of `unfused`."""
        of_fused, (of_exact, of_unfused) = kinds(fused), both
        # The unfused program left the range of its types, or the result itself is out of it.
        left = ((of_unfused != of_exact) & (of_unfused != 0)) | (self._loud & (of_exact == 0))
        left |= np.isfinite(exact) & (of_exact != 0)
        left |= self._garbage(unfused, exact, of_exact == 0)
        if ranged is not None:
            left |= self._lacks_range(unfused, exact, np.asarray(ranged), of_exact == 0)
        if ranged is not None and self._made is not None:
            nothing = spread(self._nothing(self._rows(np.where(of_exact == 0, exact, 0.0))), exact)
            nothing = nothing & (of_exact == 0)
            left |= nothing & self._garbage(unfused, np.asarray(ranged), of_exact == 0)
            if (nothing & ((of_unfused != 0) | self._loud)).any():  # rows are draws as well
                left |= nothing
        right = (of_fused == of_unfused) | (of_fused == of_exact) | (left & (of_fused != 0))
        if ranged is not None:
            wide = np.asarray(ranged)
            near = SLACK[self.dtype] * EPSILON[self.dtype] * np.abs(wide)
            right |= left & (np.abs(fused - wide) <= near)
        if self.loose:
            right |= (of_exact == 3) & (of_unfused == 3) & (of_fused != 0)
        right |= anything & (of_fused != 0)
        if limit is not None:
            infinite = np.isinf(fused) & (fused == rounded(np.asarray(limit), self.dtype))
            right |= (of_exact == 3) & (of_unfused == 3) & infinite
        for way in ways:  # whether it is a NaN is luck
            right |= (of_exact == 3) & (of_unfused == 3) & np.isfinite(way)
        self.overflows = max(self.overflows, int(left.reshape(len(left), -1).sum(1).max()))
        right |= unknown
        for k, of_run in enumerate(otherwise):
            for rounded_so in of_run:
                if right[k].all():
                    break
                there = kinds(rounded(rounded_so, self.dtype))
                overflows = (there % 3 > 0) & (there != of_exact[k])
                right[k] |= (of_fused[k] == there) | ((of_fused[k] == 3) & overflows)
        self._count(~right, fused, unfused)

    def _garbage(self, unfused: Array, exact: Array, known: Array) -> Array:
        """Elements of rows that the unfused program gets wrong altogether, though it overflows to
        something finite (x * 0 for a variance that is infinite)."""
        off = self._rows(np.where(known, unfused - exact, 0.0))
        size = self._rows(np.where(known, exact, 0.0))
        return spread(~(off <= OVERFLOWN * size), exact)

    def _lacks_range(self, unfused: Array, exact: Array, ranged: Array, known: Array) -> Array:
        """Elements of rows of which the unfused program loses some digits, and with more range
        few of these: something overflowed on the way."""
        off, still = (self._rows(np.where(known, a - exact, 0.0)) for a in (unfused, ranged))
        size = self._rows(np.where(known, exact, 0.0))
        limit = min(OFF, GARBAGE * EPSILON[self.dtype])
        return spread((off > limit * size) & (still < SMALL_PRODUCTS * off), exact)

    def _rows(self, values: Array) -> Array:
        """The norms of the rows, by run."""
        width = values.shape[-1] if values.ndim > 2 else 1
        shape = (len(values), -1, width) if values.size else (len(values), 0, 1)
        return norm(values.reshape(shape), 2)

    def _errors(
        self, fused: Array, unfused: Array, exact: Array, compared: Array, ranged: Any,
        ways: Sequence[Any], every: bool,
    ) -> None:  # fmt: skip
        lost = ~np.isfinite([unfused, *(ways if every else ())]).all(0)
        near = (LOST if every else SLACK[self.dtype]) * EPSILON[self.dtype]

        def is_near(way: Array) -> Array:
            return np.asarray(np.abs(fused - way) <= near * np.abs(way))

        known = np.zeros(exact.shape, bool)
        if (lost & compared & np.isfinite(fused)).any():
            for way in (*ways, *([] if ranged is None else [ranged])):
                known |= lost & is_near(way)
        if every and ways:  # the last one has exact sums
            known |= self._garbage(ways[-1], exact, compared) & is_near(ways[-1])

        def errors(got: Array) -> Array:
            right = ~np.isfinite(got) | (lost & (got == 0)) | known
            return self._rows(np.where(compared & ~right, got - exact, 0.0))

        if ranged is not None:
            self._ranged += [*errors(np.asarray(ranged))]
        if ranged is None:
            rows = np.any(self._rows(compared & lost) > 0, 0)
            self._lost = rows if self._lost is None else self._lost | rows
        else:
            unfused, *ways = (np.where(np.isfinite(w), w, ranged) for w in (unfused, *ways))
        self._fused += [*errors(fused)]
        self._unfused += [*errors(unfused)]
        if every:
            self._of_orders += [*np.stack([errors(way) for way in (unfused, *ways)], 1)]
        exactly = np.where(compared, exact, 0.0)
        self._sizes += [*self._rows(exactly)]
        self._exact += [*exactly]

    def take_worst_order(self, more: Sequence[Array]) -> None:
        """From here on the errors of the unfused program are those in the order of its sums that is
        worst for a row; `every` order has been added, and `more` has the errors in others. (Of that
        order nobody knows how much of its error more range takes away.)"""
        self._known.clear()
        of_orders = np.asarray(self._of_orders)
        if more:
            of_orders = np.concatenate([of_orders, np.stack(more, 1)], 1)
        worst = norm(of_orders, 0).argmax(0)
        self._unfused = [*np.take_along_axis(of_orders, worst[None, None], 1)[:, 0]]
        self._ranged = []

    def errors_of(self, unfused: Any, exact: Any) -> Array:
        """What the program as written is off by in several runs, each by itself, by run and row."""
        unfused, exact = np.asarray(unfused), np.asarray(exact)
        if self.dtype not in EPSILON or unfused.shape != exact.shape:
            return np.zeros((len(unfused), 0))
        with np.errstate(all="ignore"):
            known = np.isfinite(rounded(exact, self.dtype)) & np.isfinite(unfused)
            return self._rows(np.where(known, unfused - exact, 0.0))

    @_held
    def _by_row(self, of: str) -> Array:
        """The errors `_fused`, `_unfused` or `_ranged` of each row, over runs."""
        errors: list[Array] = getattr(self, of)
        if not errors:
            return np.zeros(0)
        return np.asarray(norm(self._in_ulps(errors), 0) / np.sqrt(len(errors)))

    def _in_ulps(self, errors: Sequence[Array]) -> Array:
        """Of each run and row."""
        return np.asarray(np.asarray(errors) / self._unit())

    @_held
    def _unit(self) -> Array:
        """What an ulp of each run and row is."""
        sizes = np.asarray(self._sizes)
        if self.runs > 1:
            mean = np.asarray(norm(sizes)) / np.sqrt(max(sizes.size, 1))
            sizes = np.maximum(sizes, np.minimum(self._sensitivity(), mean))
        return np.asarray(EPSILON[self.dtype] * np.maximum(sizes, SMALLEST[self.dtype]))

    @_held
    def _movement(self) -> Array:
        """How far the last place of the inputs moves each row."""
        first, others = self._exact[0], self._exact[1:]
        if not first.size:
            return np.zeros(0)
        apart = np.stack(others) - first
        width = first.shape[-1] if first.ndim > 1 else 1
        rows = norm(apart.reshape(-1, width), 1).reshape(len(others), -1)
        return np.asarray(norm(rows, 0) / np.sqrt(len(others)))

    def _sensitivity(self) -> Array:
        """How far each row moves beside the inputs."""
        return np.asarray(self._movement() / max(EPSILON[self.dtype], self.step))

    def _slope(self) -> Array:
        """The same, for each part of themselves by which inputs move."""
        return np.asarray(self._movement() / (self.step or EPSILON[self.dtype]))

    def _nothing(self, size: Array) -> Array:
        """Rows of this size that are 0 because inputs are equal, or the rounding of that."""
        return np.asarray(size <= SLACK[self.dtype] * EPSILON[self.dtype] * self._made)

    @_held
    def _without_digits(self) -> Array:
        """Rows that the last place of the inputs decides, and whose errors are no larger; rows
        of which the unfused program has few digits, and the fused one not many fewer."""
        moved = self._movement()
        error = norm(np.asarray(self._fused), 0) / np.sqrt(self.runs)
        size = norm(np.asarray(self._sizes), 0) / np.sqrt(self.runs)
        found = (moved >= NO_DIGITS * size) & (error <= moved / NO_DIGITS)
        if self._made is not None:
            found |= self._nothing(size) & (error <= self._made / NO_DIGITS)
        unfused, fused = self._by_row("_unfused"), self._by_row("_fused")
        if self._lost is not None:
            found |= self._lost & (fused <= LOST)
        few = unfused > GARBAGE
        if len(self._ranged) == self.runs:
            few |= self._by_row("_ranged") < SMALL_PRODUCTS * unfused
        worse = np.maximum(self._times(unfused), WORSE)
        return np.asarray(found | (few & (fused <= worse * unfused)))

    def _times(self, unfused: Array) -> Array:
        """How many times the error of the unfused program the fused one may have in each row."""
        worse = np.where(unfused * EPSILON[self.dtype] > 1, NOISE, WORSE)
        return np.where(unfused > GARBAGE, worse, TIMES)

    @property
    def unknown(self) -> int:
        """The number of elements that float64 does not know."""
        return 0 if self._unknown is None else int(self._unknown.sum())

    @property
    def fused(self) -> float:
        """The error of the fused program in ulps, in the row that is nearest to its bound."""
        return self._of_worst(self._by_row("_fused"))

    @property
    def unfused(self) -> float:
        """What that error is compared with: of the program as written, there or in another row."""
        return self._of_worst(self._bases())

    @property
    def bound(self) -> float:
        """What the error of the fused program may be, in ulps."""
        return self.bound_of(self.unfused)

    def bound_of(self, unfused: Any) -> Any:
        if self.slack is not None:
            return TIMES * unfused + self.slack
        return bound(unfused, self.dtype) if self.dtype in SLACK else TIMES * unfused

    @_held
    def _bases(self) -> Array:
        by_row = self._by_row("_unfused")
        return bases(by_row, self.dtype) if self.dtype in EPSILON else by_row

    @_held
    def _over_bounds(self) -> Array:
        """The error of each row that counts, over its bound."""
        by_row, limit = self._judged_rows(), self.bound_of(self._bases())
        return np.asarray(np.divide(by_row, limit, out=np.zeros_like(by_row), where=by_row != 0))

    @property
    def rows_over(self) -> list[int]:
        """The rows that are over their bound, the worst one first."""
        over = self._over_bounds()
        return [int(k) for k in np.argsort(-over) if over[k] > self.within]

    @property
    def near(self) -> Array:
        """Of each element whether its row is within WORSE times its bound."""
        if self.strangers or self.dtype not in EPSILON:
            return np.asarray(not self.strangers)
        return spread(self._over_bounds()[None] <= WORSE, self._exact[0][None])[0]

    def _of_worst(self, by_row: Array) -> float:
        return float(by_row[np.argmax(self._over_bounds())]) if by_row.size else 0.0

    @property
    def excess(self) -> float:
        """The error of the fused program over its bound; infinite where its kinds are wrong."""
        if self.strangers:
            return float(np.inf)
        if self.beside is not None:
            return self.beside
        return float(max(self._over_bounds().max(initial=0.0), self.alone))

    @property
    def alone(self) -> float:
        """The excess of the first run, where no other of many has half of its error: what rounding
        makes on an input it makes beside it, too; an error of ties, or of zeros, is no luck."""
        if self.runs < MANY:
            return 0.0
        fused, unfused = self._in_ulps(self._fused), self._in_ulps(self._unfused)
        others = np.maximum(fused[1:].max(0), unfused.max(0))
        if self.in_orders:
            own = self._in_ulps(np.maximum.reduce(self.in_orders)[None])[0]
            others = np.maximum(others, own)
        others *= TIMES
        alone = (fused[0] > others) & ~self._without_digits()
        return float((fused[0] / self.bound_of(self._bases()))[alone].max(initial=0.0))

    def _judged_rows(self) -> Array:
        """The error of each row, where it counts."""
        by_row = self._by_row("_fused")
        alone = self.runs == 1 or self.dtype not in EPSILON
        return by_row if alone else np.where(self._without_digits(), 0.0, by_row)

    def further(self, away: Comparison, near: Comparison, turned: Comparison | None) -> Any:
        """The excess on inputs further `away`, of the rows that are over the bound here; None where
        those say nothing of this input (see above, roundings that stay). `near`: inputs that moved
        in the same way, by a last place. `turned`: this input, the program as written with other
        roundings; None where there are none (f64), and its errors on the other inputs count."""
        over = self._over_bounds() > self.within
        most = np.asarray((turned or away)._unfused).max(0, initial=0.0)
        if len(self._ranged) == self.runs:  # what range takes no rounding in its place shows
            taken = self._by_row("_ranged") < SMALL_PRODUCTS * self._by_row("_unfused")
            most = np.where(taken, np.maximum(most, np.max(away._unfused, 0, initial=0.0)), most)
        slack = self.bound_of(0.0) * EPSILON[self.dtype] * self._sizes[0]
        off = norm(np.asarray(self._fused), 0) / np.sqrt(self.runs)
        size = norm(np.asarray(away._sizes), 0) / np.sqrt(away.runs)
        still = away._movement() <= NO_DIGITS * EPSILON[self.dtype] * size  # noise of float64
        if turned is not None:  # rows that are noise: as much as another rounding makes of them
            own = norm(np.asarray(self._sizes), 0) / np.sqrt(self.runs)
            noise = (self._movement() >= NO_DIGITS * own) | (np.median(turned._unfused, 0) >= own)
            noise &= off <= TIMES * most + slack
            drawn = still & (away.step >= FURTHEST) & (not away.strangers)
            made = turned._by_row("_unfused") / np.where(drawn, 1.0, COARSER)
            limit = np.maximum(self.bound_of(made), np.where(made > GARBAGE, WORSE, 0.0) * made)
            unit = EPSILON[self.dtype] * np.maximum(self._sizes[0], SMALLEST[self.dtype])
            noise |= off <= limit * unit
            if not (over & ~noise).any():
                return 0.0
            over &= ~noise
        if away.strangers or not over.any():
            return None
        here, there = near._slope(), away._slope()
        alike = away._movement() <= NO_DIGITS * size
        alike &= still | ((here <= ALIKE * there) & (there <= ALIKE * here))
        fused, unfused = away._by_row("_fused"), away._by_row("_unfused")
        times = away._times(unfused)
        worse = np.where(times > TIMES, times * unfused, 0.0)
        bound = np.maximum(away.bound_of(away._bases()), worse)
        if self._made is not None:  # zeros: in what the program as written makes of others
            zeros = self._nothing(self._sizes[0]) & self._nothing(size)
            alike |= zeros
            bound = np.where(zeros, TIMES * unfused, bound)
            times = np.where(zeros, TIMES, times)
        beside = norm(np.asarray(near._unfused), 0) / np.sqrt(near.runs)
        alike &= off <= np.maximum(times * most, TIMES * beside) + slack
        if not alike[over].all():
            return None
        return float(np.max(fused[over] / np.maximum(bound[over], SMALLEST["f64"])))

    @property
    def ok(self) -> bool:
        return self.excess <= self.within

    @property
    def seldom(self) -> bool:
        """Whether few runs make the error: without the worst of them the bound holds."""
        most = np.sort(self._in_ulps(self._fused), axis=0)[: self.runs - self.runs // SELDOM]
        over = norm(most, 0) > np.sqrt(len(most)) * self.within * self.bound
        return not (over & ~self._without_digits()).any()

    @property
    def verdict(self) -> str:
        """What is wrong, for people."""
        return self.example or f"off by {self.fused:.3g} ulps, unfused {self.unfused:.3g}"
