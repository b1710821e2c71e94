# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs that hurt: the numbers that people have and that tests of unit normals never see.

Masks at the start, at the end and everywhere; counts of 0 and 1; means far from 0; weights that
sum to 1 or are 0 for whole tiles; magnitudes near both ends of the range; an infinity or a NaN in
one element; jumps of 1e4. `forms` gives them by name for one array, `cases` for the arguments of a
program. Arrays are plain: floats are float64 and hold values of their type, integers are int64,
conditions bool. The role of an argument, where it is known, leaves out what nobody passes there:
masks of -inf to -1e4 hide what exponents are made of, and nothing else. The last dimension is taken
for the long one; a few forms go along the one before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics.floats import EPSILON, LARGEST, rounded
from neptune_mlir.algebra.terms import FLOAT8

Array = np.ndarray
Shape = tuple[int, ...]
Generator = np.random.Generator
Form = Callable[[Generator, Shape], Any]

# kinds of forms that make sense for what an argument is; "" is not known
ROLES: dict[str, tuple[str, ...]] = {
    "": (),
    "score": ("mask", "mean", "magnitude", "one", "moves", "weights"),  # in an exponent
    "value": ("weights", "mean", "magnitude", "one", "moves"),
}

FAR = (1e2, 1e3, 1e4, 1e6)  # means
JUMP = 1e4
VANISHING = 100.0  # exp(-100) is 26 times the least number of f32: a weight has hardly any digits
# magnitudes: so that squares and products of them leave the range, or nearly
MAGNITUDES = {
    "f8E4M3FN": (1e-2, 1e-1, 1e1, 1e2),
    "f16": (1e-6, 1e-3, 1e2, 1e4), "bf16": (1e-30, 1e-20, 1e20, 1e30),
    "f32": (1e-30, 1e-20, 1e20, 1e30), "f64": (1e-200, 1e-100, 1e100, 1e200),
}  # fmt: skip


@dataclass(frozen=True)
class HostileCall:
    """Arguments for one call."""

    name: str
    arguments: tuple[Any, ...]

    @property
    def kind(self) -> str:
        """The family of the form: mask, mean, magnitude, weights, one, moves, shows, ..."""
        return self.name.rpartition(": ")[2].split()[0]


def plain(generator: Generator, shape: Shape, dtype: str) -> Array:
    """What tests see otherwise: unit normals, coin flips, small positions."""
    if dtype in EPSILON:
        return rounded(generator.standard_normal(shape), dtype)
    if dtype == "i1":
        return generator.integers(0, 2, shape).astype(bool)
    return generator.integers(0, 8, shape)


def mask_values(dtype: str) -> dict[str, float]:
    """What people write where nothing is to be seen, where the type has it."""
    named = {"-inf": -np.inf, "the smallest float": -LARGEST[dtype], "-1e9": -1e9, "-1e4": -1e4}
    return {n: v for n, v in named.items() if v == -np.inf or abs(v) <= LARGEST[dtype]}


def forms(shape: Shape, dtype: str, role: str = "") -> dict[str, Form]:
    """What an argument of this type and role can be, by name; call a form for the array."""
    if dtype in EPSILON:
        found = _floats(shape, dtype) if shape else _numbers()
        if ROLES[role] and shape:
            found = {n: form for n, form in found.items() if n.split()[0] in ROLES[role]}
        if dtype == FLOAT8:  # has no infinity
            found = {name: form for name, form in found.items() if "inf" not in name}
        return {name: _rounding(form, dtype) for name, form in found.items()}
    if not shape:
        return {}
    found = _masks_of(_PLACES)
    if dtype == "i1":
        return found
    whole = {f"count all {value:g}": _always(value) for value in (0.0, 1.0)}
    return {name: _integral(form) for name, form in {**whole, **found}.items()}


def _rounding(form: Form, dtype: str) -> Form:
    return lambda generator, shape: rounded(form(generator, shape), dtype)


def _integral(form: Form) -> Form:
    return lambda generator, shape: np.asarray(form(generator, shape), np.int64)


@functools.lru_cache(maxsize=64)  # nobody may write to it: it is a view of fewer numbers
def _line(shape: Shape, axis: int = -1) -> Array:
    """Positions along a dimension from 0 to almost 1, to compare with."""
    axis %= len(shape)
    extent = shape[axis]
    aligned = [extent if k == axis else 1 for k in range(len(shape))]
    return np.broadcast_to((np.arange(extent) / max(extent, 1)).reshape(aligned), shape)


def _rows(shape: Shape) -> Array:
    """The number of the row (the last dimension) that an element is in."""
    numbers = np.arange(int(np.prod(shape[:-1], dtype=np.int64)))
    return np.broadcast_to(numbers.reshape(*shape[:-1], 1), shape)


def _last(shape: Shape) -> Array:
    return _line(shape) >= (shape[-1] - 1) / max(shape[-1], 1)


# Where something is hidden, or shown: conditions over the elements.
_PLACES: dict[str, Form] = {
    "start": lambda g, s: _line(s) < 0.55,
    "end": lambda g, s: _line(s) >= 0.45,
    "here and there": lambda g, s: g.random(s) < 0.5,
    "everywhere": lambda g, s: np.ones(s, bool),
    "everywhere in every other row": lambda g, s: _rows(s) % 2 == 0,
    "all but the first": lambda g, s: _line(s) > 0,
    "all but the last": lambda g, s: ~_last(s),
}


def _masks_of(places: dict[str, Form]) -> dict[str, Form]:
    """Conditions by what they show: all but what a place hides."""
    found: dict[str, Form] = {f"shows nothing {n}": _all_but(hide) for n, hide in places.items()}
    found["shows all"] = lambda g, s: np.ones(s, bool)
    return found


def _floats(shape: Shape, dtype: str) -> dict[str, Form]:
    found: dict[str, Form] = {}
    for value_name, value in mask_values(dtype).items():
        for place, hide in _PLACES.items():
            found[f"mask {value_name} {place}"] = _hiding(hide, value)
    for mean in (0.25 / EPSILON["bf16"], *FAR) if dtype == "bf16" else FAR:
        if mean * EPSILON[dtype] < 0.5:  # else nothing is left of the rest
            found[f"mean {mean:.0e}"] = _normal(1.0, mean)
    for size in MAGNITUDES[dtype]:
        found[f"magnitude {size:.0e}"] = _normal(size)
    low, high = (np.log10(MAGNITUDES[dtype][k]) for k in (0, -1))
    found["magnitude of any kind"] = lambda g, s: (
        g.standard_normal(s) * 10.0 ** g.uniform(low, high, s)
    )
    found |= _weights() | _lone() | _moves(dtype)
    if len(shape) > 1:
        turned: dict[str, Form] = {
            "weights 0 at the start": lambda g, s: np.where(_line(s, -2) < 0.55, 0.0, g.random(s)),
            "weights 0 at the end": lambda g, s: np.where(_line(s, -2) >= 0.45, 0.0, g.random(s)),
            "moves up at once": lambda g, s: g.standard_normal(s) + JUMP * (_line(s, -2) >= 0.5),
            "moves down at once": lambda g, s: g.standard_normal(s) + JUMP * (_line(s, -2) < 0.5),
        }
        found |= {f"{name} (columns)": form for name, form in turned.items()}
    return found


def _all_but(hide: Form) -> Form:
    return lambda g, s: ~hide(g, s)


def _normal(size: float, mean: float = 0.0) -> Form:
    return lambda g, s: g.standard_normal(s) * size + mean


def _always(value: float) -> Form:
    return lambda g, s: np.full(s, value)


def _hiding(hide: Form, value: float) -> Form:
    return lambda g, s: np.where(hide(g, s), value, g.standard_normal(s))


def _weights() -> dict[str, Form]:
    """Numbers that others are weighted with."""

    def shares(generator: Generator, shape: Shape) -> Array:
        weights = np.exp(generator.standard_normal(shape))
        return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)

    return {
        "weights sum to 1": shares,
        "weights 0 or 1": lambda g, s: (g.random(s) < 0.7) * 1.0,
        "weights 0 at the start": lambda g, s: np.where(_line(s) < 0.55, 0.0, g.random(s)),
        "weights 0 at the end": lambda g, s: np.where(_line(s) >= 0.45, 0.0, g.random(s)),
        "weights 0 but for the last": lambda g, s: _last(s) * 1.0,
        "weights all 0": lambda g, s: np.zeros(s),
        "weights all the same": lambda g, s: np.full(s, 0.75),
        "weights positive": lambda g, s: g.random(s) + 0.1,
    }


def _lone() -> dict[str, Form]:
    """One element that is special."""

    def with_one(value: float, at: float) -> Form:
        def form(generator: Generator, shape: Shape) -> Array:
            found = generator.standard_normal(shape)
            if found.size:
                found.reshape(-1, shape[-1])[0, int(at * shape[-1])] = value
            return found

        return form

    return {
        f"one {name}{where}": with_one(value, at)
        for name, value in (("+inf", np.inf), ("-inf", -np.inf), ("NaN", np.nan))
        for where, at in ((" near the start", 0.1), (" near the end", 0.9))
    }


def _moves(dtype: str) -> dict[str, Form]:
    """Rows whose size changes on the way."""
    jump = min(JUMP, LARGEST[dtype] / 4)
    return {
        "moves up at once": lambda g, s: g.standard_normal(s) + jump * (_line(s) >= 0.5),
        "moves down at once": lambda g, s: g.standard_normal(s) + jump * (_line(s) < 0.5),
        "moves up": lambda g, s: g.standard_normal(s) + jump * _line(s),
        "moves down": lambda g, s: g.standard_normal(s) - jump * _line(s),
        "moves widely": lambda g, s: g.standard_normal(s) * jump / 2,
    }


def _numbers() -> dict[str, Form]:
    """Scalars: an epsilon, a scale, a threshold."""
    return {f"number {value:g}": _always(value) for value in (0.0, 1e-6, 1e4, -1.0)}


# Forms that make sense for all floats at once. Magnitudes are smaller then: a product of two may
# be what a program is about.
_TOGETHER = ("mean", "weights", "moves")


def cases(
    arguments: Sequence[Any],
    dtypes: Sequence[str],
    names: Sequence[str] = (),
    roles: Sequence[str] = (),
    seed: int = 0,
    only: Collection[str] | None = None,
) -> Iterator[HostileCall]:
    """Hostile arguments of a program: each argument in every form while the others stay, all
    floats alike, and every condition with floats far from 0. The first case is `arguments`.
    `only`: the names of those that are wanted (all when None)."""
    given = [np.asarray(a) for a in arguments]
    labels = tuple(names) or tuple(f"argument {k}" for k in range(len(given)))
    roles = tuple(roles) or ("",) * len(given)
    generator = np.random.default_rng(seed)  # (of which each case sets the state)
    for name, changes in _changes(tuple(a.shape for a in given), tuple(dtypes), labels, roles):
        if only is None or name in only:
            generator.bit_generator.state = _beginning(seed, name)
            made = list(given)
            for k, form in changes.items():
                made[k] = form(generator, given[k].shape)
            yield HostileCall(name, tuple(made))


@functools.lru_cache(maxsize=1 << 13)  # it takes longer than most forms; setting it does not
def _beginning(seed: int, name: str) -> Any:
    """The state in which a generator begins a case."""
    numbers: Any = [seed, *name.encode()]
    if seed < 1 << 32:  # the same stream: NumPy turns each number of a list into an array
        numbers = np.array(numbers, np.uint32)
    return np.random.default_rng(numbers).bit_generator.state


@functools.lru_cache(maxsize=16)  # the same for each of many seeds
def _changes(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], labels: tuple[str, ...],
    roles: tuple[str, ...],
) -> tuple[tuple[str, dict[int, Form]], ...]:  # fmt: skip
    """The names of the cases, and the arguments that each changes."""
    return tuple(_each_change(shapes, dtypes, labels, roles))


def _each_change(
    shapes: Sequence[Shape], dtypes: Sequence[str], labels: Sequence[str], roles: Sequence[str]
) -> Iterator[tuple[str, dict[int, Form]]]:
    found = [forms(*of_one) for of_one in zip(shapes, dtypes, roles, strict=True)]
    yield "as given", {}
    for k, of_argument in enumerate(found):
        for name, form in of_argument.items():
            yield f"{labels[k]}: {name}", {k: form}
    floats = [k for k, d in enumerate(dtypes) if d in EPSILON and shapes[k]]
    others = [k for k, d in enumerate(dtypes) if d not in EPSILON]
    if len(floats) > 1:
        for name in found[floats[0]]:
            if name.startswith(_TOGETHER):
                alike = {k: found[k][name] for k in floats if name in found[k]}
                yield f"all floats: {name}", alike
        for size in MAGNITUDES[dtypes[floats[0]]]:
            each = {k: _rounding(_normal(size**0.5), dtypes[k]) for k in floats}
            yield f"all floats: magnitude {size**0.5:.0e}", each
    scores = [k for k in floats if roles[k] == "score"]
    for k in scores if len(scores) > 1 else ():
        for size in VANISHING, -VANISHING:
            alone = {other: _always(0.0) for other in scores}
            yield f"{labels[k]}: alone, {size:g}", {**alone, k: _always(size)}
    for k in others:
        for name, form in found[k].items():
            for mean in ("mean 1e+02", "mean 1e+04"):
                far = {f: found[f][mean] for f in floats if mean in found[f]}
                if far:
                    yield f"{labels[k]}: {name}; floats: {mean}", {k: form, **far}
