# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs that hurt, for the stress test of a chain of reductions.

Each floating-point input of a chain takes each *form* in turn while the others stay ordinary, then
all take the same one; inputs far from zero also meet others that are masks. Conditions and counts
have forms of their own. All inputs of one chain are one batch (`numeric.Domain.batched`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from neptune_mlir.algebra.numeric import Array, Domain, evaluate, rounded
from neptune_mlir.algebra.terms import Term, axes_of, is_float, walk

LOWEST = {
    "f16": -65504.0, "bf16": -3.3895313892515355e38, "f32": -3.4028234663852886e38,
    "f64": -1.7976931348623157e308,
}  # fmt: skip
# The part of the range of f32 that moving factors may cost: what is larger than the largest
# number over this, or smaller than the smallest number times this, may overflow or vanish.
HEADROOM = 2.0**40


class Rows:
    """Makes one array: `steps` is each element's place along the stream, from 0 to 1."""

    def __init__(
        self, rng: Any, shape: tuple[int, ...], along: int | None, dtype: str, score: bool
    ):
        self.rng, self.shape, self.dtype, self.score = rng, shape, dtype, score
        length = shape[along] if along is not None else 1
        steps = (np.arange(length) + 0.5) / length
        self.steps = np.broadcast_to(
            steps.reshape([-1 if k == along else 1 for k in range(len(shape))]), shape
        )
        self.along = along

    @property
    def normal(self) -> Array:
        return self.rng.normal(size=self.shape)

    @property
    def lowest(self) -> float:
        """What masks are made of; that part of the range belongs to them (see HEADROOM)."""
        lowest = LOWEST.get(self.dtype, LOWEST["f32"])
        return lowest if self.score else lowest / HEADROOM if self.dtype != "f16" else lowest / 64

    def left(self, value: float) -> Array:
        return np.where(self.steps < 0.6, value, self.normal)

    def right(self, value: float) -> Array:
        return np.where(self.steps > 0.4, value, self.normal)

    def every(self, value: float) -> Array:
        return np.full(self.shape, value)

    def some(self, value: float, share: float = 0.4) -> Array:
        return np.where(self.rng.random(self.shape) < share, value, self.normal)

    def one(self, value: float) -> Array:
        found = self.normal
        found.reshape(-1)[self.rng.integers(found.size)] = value
        return found

    def sorted(self, sign: float) -> Array:
        if self.along is None:
            return self.normal
        return sign * np.sort(sign * self.normal * 6, axis=self.along)

    def share(self) -> Array:
        """Positive weights that sum to 1 along the stream."""
        found = np.exp(self.normal)
        return found if self.along is None else found / found.sum(self.along, keepdims=True)

    def live(self, share: float = 0.7) -> Array:
        return (self.rng.random(self.shape) < share) * 1.0


Form = Callable[[Rows], Array]

PLAIN: dict[str, Form] = {
    "normal": lambda r: r.normal,
    "positive": lambda r: r.rng.random(r.shape) + 0.1,
    "ties": lambda r: r.rng.integers(-2, 3, r.shape) * 1.0,
    "all equal": lambda r: r.every(0.75),
    "rising": lambda r: r.sorted(1.0),
    "falling": lambda r: r.sorted(-1.0),
    "zero": lambda r: r.every(0.0),
}

HOSTILE: dict[str, Form] = {
    "huge": lambda r: r.normal * 1e4,
    "tiny": lambda r: r.normal * 1e-6,
    "1e20": lambda r: r.normal * 1e20,
    "1e-20": lambda r: r.normal * 1e-20,
    "1e30": lambda r: r.normal * 1e30,
    "1e-30": lambda r: r.normal * 1e-30,
    "mean 1e2": lambda r: r.normal + 1e2,
    "far from zero": lambda r: r.normal + 1e3,
    "mean 1e4": lambda r: r.normal + 1e4,
    "mean -1e6": lambda r: r.normal - 1e6,
    "jumps": lambda r: r.normal + 1e4 * np.round(2 * np.sin(9 * r.steps)),
    "some -inf": lambda r: r.some(-np.inf),
    "all -inf": lambda r: r.every(-np.inf),
    "one +inf": lambda r: r.one(np.inf),
    "one NaN": lambda r: r.one(np.nan),
    "-inf on the left": lambda r: r.left(-np.inf),
    "lowest on the left": lambda r: r.left(r.lowest),
    "lowest on the right": lambda r: r.right(r.lowest),
    "lowest everywhere": lambda r: r.every(r.lowest),
    "-1e9 added on the left": lambda r: r.left(0.0) + np.where(r.steps < 0.6, -1e9, 0.0),
    "-1e9 added everywhere": lambda r: r.normal - 1e9,
    "-1e4 added on the right": lambda r: r.normal - np.where(r.steps > 0.4, 1e4, 0.0),
}

# Where a definition in float64 is not finite on these, the program itself has overflowed.
LARGE = frozenset({
    "huge", "1e20", "1e30", "1e-20", "1e-30", "jumps", "lowest on the left", "lowest on the right",
    "lowest everywhere", "-1e9 added on the left", "-1e9 added everywhere",
})  # fmt: skip

NONFINITE = frozenset(
    {"some -inf", "all -inf", "one +inf", "one NaN", "-inf on the left"}
)

WEIGHTS: dict[str, Form] = {
    "a mask": lambda r: r.live(),
    "no weight on the left": lambda r: np.where(r.steps < 0.6, 0.0, r.live()),
    "no weight on the right": lambda r: np.where(r.steps > 0.4, 0.0, r.live()),
    "shares": lambda r: r.share(),
}

LOGICAL: dict[str, Form] = {
    "normal": lambda r: r.live(),
    "none": lambda r: r.every(0.0),
    "all": lambda r: r.every(1.0),
    "none on the left": lambda r: np.where(r.steps < 0.6, 0.0, r.live()),
    "none on the right": lambda r: np.where(r.steps > 0.4, 0.0, r.live()),
    "one": lambda r: (np.arange(int(np.prod(r.shape))).reshape(r.shape) == 0) * 1.0,
}


def _cases(floats: Sequence[Any], logical: Sequence[Any]) -> Iterator[tuple[str, dict[Any, str]]]:
    """Names, and the form of each input; the entry of None is that of all others."""
    for form in (*PLAIN, *HOSTILE, *WEIGHTS):
        for key in floats if len(floats) > 1 and form != "normal" else ():
            yield f"{form} ({key})", {key: form}
        if form not in LARGE | NONFINITE or len(floats) == 1:
            yield form, {None: form}
    for key in floats if len(floats) > 1 else ():
        for weight in WEIGHTS:
            for form in ("far from zero", "1e20", "1e-20"):
                yield f"{form} ({key}), {weight}", {None: weight, key: form}
    for form in LOGICAL if logical else ():
        for data in ("normal", "far from zero", "1e20", "lowest on the left"):
            yield f"{data}, {form}", {None: data, **dict.fromkeys(logical, form)}


def inputs(
    terms: Sequence[Term], axis: int, extents: tuple[int, ...], seed: int
) -> tuple[list[str], dict[Any, Array]]:
    """Names of the inputs, and for every tensor that the terms read its arrays, stacked."""
    shapes = _shapes(terms, axis, extents)
    rng = np.random.default_rng(seed)
    floats = [key for key, (_, _, dtype) in shapes.items() if is_float(dtype)]
    logical = [key for key, (_, _, dtype) in shapes.items() if dtype in ("i1", "i8")]
    names: list[str] = []
    stacks: dict[Any, list[Array]] = {key: [] for key in shapes}
    scores = scores_of(terms)
    for name, forms in _cases(floats, logical):
        names.append(name)
        for key, (shape, along, dtype) in shapes.items():
            rows = Rows(rng, shape, along, dtype, key in scores)
            form = forms.get(key, forms.get(None, "normal"))
            stacks[key].append(_made(rows, form, dtype))
    return names, {key: np.stack(arrays) for key, arrays in stacks.items()}


def _made(rows: Rows, form: str, dtype: str) -> Array:
    if not is_float(dtype):
        if dtype in ("i1", "i8"):
            return LOGICAL.get(form, LOGICAL["normal"])(rows).astype(np.int64)
        return rows.rng.integers(0, 3, rows.shape)
    found = (PLAIN | HOSTILE | WEIGHTS).get(form, PLAIN["normal"])(rows)
    if dtype == "f64":
        return found
    with np.errstate(over="ignore"):
        return rounded(found.astype(np.float32), dtype)


def scores_of(terms: Sequence[Term]) -> set[Any]:
    """The inputs that exponents are made of: these may hold a mask of the smallest float."""
    calls = [n for t in terms for n in walk(t) if n.op in ("exp", "exp2")]
    return {n.attr for call in calls for n in walk(call) if n.op == "read"}


def _shapes(
    terms: Sequence[Term], axis: int, extents: tuple[int, ...]
) -> dict[Any, tuple[tuple[int, ...], int | None, str]]:
    """Of each tensor its shape, which of its dimensions runs along the stream, and its type."""
    domain = Domain(extents, {}, {})
    found: dict[Any, tuple[tuple[int, ...], int | None, str]] = {}
    for n in dict.fromkeys(n for t in terms for n in walk(t) if n.op == "read"):
        shape = tuple(int(evaluate(i, domain, {}).max()) + 1 for i in n.args)
        along = next((k for k, i in enumerate(n.args) if axis in axes_of(i)), None)
        if n.attr in found:
            before, streamed, _ = found[n.attr]
            shape = tuple(max(a, b) for a, b in zip(shape, before, strict=True))
            along = streamed if along is None else along
        found[n.attr] = shape, along, n.dtype
    return found
