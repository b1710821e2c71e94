# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The inputs of the stress test: all arrays of a chain in every form that hurts (`hostile`).

Each floating-point input takes each form of its role in turn while the others stay ordinary; then
all take the same one; inputs far from zero also meet others that are weights, and conditions and
counts meet both. Where a sum is measured from a weighted mean, exponents rise, or one of the data,
while all others have any size. All inputs of a chain are one batch (`evaluation.Domain.batched`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.numerics import hostile
from neptune_mlir.algebra.numerics.evaluation import Array, Domain, evaluate
from neptune_mlir.algebra.numerics.floats import rounded
from neptune_mlir.algebra.terms import Term, axes_of, is_float, leaves, walk

# Where a definition in float64 is not finite on these, the program itself has overflowed.
LARGE = ("magnitude", "moves", "smallest float", "-1e9")
NONFINITE = ("-inf", "+inf", "NaN")

PLAIN: dict[str, hostile.Form] = {
    "normal": lambda g, s: g.standard_normal(s),
    "rising": lambda g, s: np.sort(g.standard_normal(s) * 6, axis=-1),
    "falling": lambda g, s: -np.sort(g.standard_normal(s) * 6, axis=-1),
    "wide": lambda g, s: g.standard_normal(s) * 60,  # exponents beyond each other's references
    "ties": lambda g, s: g.integers(-2, 3, s) * 1.0,
}
# The next exponential is all that is left, so a mean that these weight is each element in turn, of
# any size: large, and small again. What was measured from it on the way, by sums without weights,
# has digits of the large one only.
TURNING, DRAWS = "any size while exponents rise", 4
STEEP, DECADES = 60.0, 7.0  # to both sides of 1: products of four stay in range
# A mean that data of any size weigh turns a few times within a row. What is lost then shows where
# what is summed up meanwhile has grown, or where the weights grow: in few draws, if rows share it.
ANY_SIZE, SORTED, DRAWN = "any size", "any size while it rises", 32
_SPARED = ("columns", "every other row", "all but the")  # little that others lack
_WEIGHTS = ("weights 0 or 1", "weights 0 at the start", "weights 0 at the end", "weights sum to 1")
_MEAN, _SMALL, _LARGE = "mean 1e+03", "magnitude 1e-20", "magnitude 1e+20"


# Constants further from 1 make of all forms alike nothing, or one element, that an exponent sees.
_USUAL = 2.0**20


def _times(form: hostile.Form, unit: float) -> hostile.Form:
    return lambda g, s: form(g, s) * unit


@dataclass(frozen=True)
class StressInput:
    """An input: its shape, which dimension runs along the stream, and what it may hold."""

    shape: tuple[int, ...]
    along: int | None
    dtype: str
    role: str
    unit: float = 1.0  # what an exponent counts as 1
    rises: bool | None = None  # see `measured_from_weighted`; None where nothing does

    @property
    def forms(self) -> dict[str, hostile.Form]:
        found = hostile.forms(self._turned, self.dtype, self.role)
        found = {n: f for n, f in found.items() if not any(s in n for s in _SPARED)}
        if self.unit != 1.0:
            found |= {f"{n}, in units of the exponent": _times(f, self.unit)
                      for n, f in PLAIN.items()}  # fmt: skip
        return PLAIN | found if is_float(self.dtype) else found

    @property
    def names(self) -> tuple[str, ...]:
        return _names_of(self)

    @property
    def turning(self) -> dict[str, hostile.Form]:
        """The forms of an input where each other one has its own, too (TURNING)."""
        if not is_float(self.dtype):
            return {}
        ends = np.log10([hostile.MAGNITUDES[self.dtype][k] for k in (0, -1)])
        low, high = np.clip(ends, -DECADES, DECADES)

        def form(generator: Any, shape: Any) -> Array:
            found = generator.standard_normal(shape)
            if self.role == "score":
                return np.sort(found * STEEP * self.unit, axis=-1)
            return np.asarray(found * 10.0 ** generator.uniform(low, high, shape))

        def risen(generator: Any, shape: Any) -> Array:
            found = np.asarray(form(generator, shape))
            return np.take_along_axis(found, np.argsort(np.abs(found), axis=-1), axis=-1)

        named: dict[str, hostile.Form] = {f"{TURNING} {k}": form for k in range(DRAWS)}
        if self.role != "score" and self.rises is not None:
            named |= {f"{ANY_SIZE} {k}": form for k in range(DRAWN)}
            named |= {f"{SORTED} {k}": risen for k in range(DRAWN) if self.rises}
        return named

    @property
    def _turned(self) -> tuple[int, ...]:
        """The shape with the streamed dimension last, where `hostile` has it."""
        if self.along is None:
            return (*self.shape, 1)
        others = (n for k, n in enumerate(self.shape) if k != self.along)
        return (*others, self.shape[self.along])

    def made(self, form: hostile.Form, generator: Any) -> Array:
        found = np.asarray(form(generator, self._turned))
        return found.reshape(self.shape) if self.along is None else np.moveaxis(
            found, -1, self.along)  # fmt: skip

    def stack(self, names: Sequence[str | None], numbers: Sequence[int]) -> Array:
        """An array for each name of a form, ordinary ones for None, from these seeds."""
        generator, shape = np.random.default_rng(numbers), (len(names), *self.shape)
        if is_float(self.dtype):
            found = generator.standard_normal(shape)
        else:
            found = generator.integers(0, 2 if self.dtype in ("i1", "i8") else 3, shape)
        special = _special(self, tuple(numbers))
        for k, name in enumerate(names):
            if name is not None:
                found[k] = special[name]
        return rounded(found, self.dtype) if is_float(self.dtype) else found


@lru_cache(maxsize=512)
def _names_of(tensor: StressInput) -> tuple[str, ...]:
    return tuple(tensor.forms)


@lru_cache(maxsize=512)
def _special(tensor: StressInput, numbers: tuple[int, ...]) -> dict[str, Array]:
    """An array of every form that an input may have."""
    generator = np.random.default_rng([*numbers, 1])
    forms = tensor.forms | tensor.turning
    return {name: tensor.made(form, generator) for name, form in forms.items()}


def _cases(tensors: dict[Any, StressInput]) -> Iterator[tuple[str, dict[Any, str]]]:
    """Names, and the form of each input that does not stay ordinary."""
    floats = [key for key, t in tensors.items() if is_float(t.dtype)]
    conditions = [key for key, t in tensors.items() if t.dtype in ("i1", "i8")]
    alone = len(floats) == 1
    forms = {key: tensors[key].names for key in (*floats, *conditions)}
    if not forms:
        yield "normal", {}
    for key in floats:
        for form in forms[key]:
            yield (form if alone else f"{form} ({key})"), {key: form}
    shared = forms[floats[0]] if len(floats) > 1 else []
    for form in shared:
        if not any(word in form for word in (*LARGE, *NONFINITE)):
            yield form, {key: form for key in floats if form in forms[key]}
    for key in floats if len(floats) > 1 else ():
        for weight in _WEIGHTS:
            for form in (_MEAN, _SMALL, _LARGE):
                if form in forms[key]:
                    others = {k: weight for k in floats if weight in forms[k]}
                    yield f"{form} ({key}), {weight}", {**others, key: form}
    for key in conditions:
        for form in forms[key]:
            for data in ("normal", _MEAN, _LARGE, "mask the smallest float start"):
                chosen = {k: data for k in floats if data in forms[k]}
                yield f"{data}, {form}", {**chosen, key: form}
    yield from _turning({key: tensors[key] for key in floats})


def _turning(floats: dict[Any, StressInput]) -> Iterator[tuple[str, dict[Any, str]]]:
    """Weighted means that turn: all floats have any size, while exponents or one of them rise."""
    data = [key for key, tensor in floats.items() if tensor.role != "score"]
    if len(floats) > 1 and len(data) < len(floats):
        for name in (f"{TURNING} {k}" for k in range(DRAWS)):
            yield name, dict.fromkeys(floats, name)
    for key in (key for key in data if floats[key].rises and floats[key].along is not None):
        for k in range(DRAWN):
            chosen = dict.fromkeys(data, f"{ANY_SIZE} {k}") | {key: f"{SORTED} {k}"}
            yield f"{SORTED} {k} ({key})" if len(floats) > 1 else f"{SORTED} {k}", chosen


def inputs(
    terms: Sequence[Term], axis: int, extents: tuple[int, ...], seed: int,
    only: Sequence[str] | None = None, rising: Collection[Any] = (),
) -> tuple[list[str], dict[Any, Array]]:  # fmt: skip
    """Names of the inputs, and for every tensor that the terms read its arrays, stacked.

    `only`: the names of those that are wanted (all when None); `rising`: those that rise while
    others have any size (`measured_from_weighted`).
    """
    tensors = _tensors(terms, axis, extents, rising)
    cases = [c for c in _cases(tensors) if only is None or c[0] in only]
    stacks = {
        key: tensor.stack([chosen.get(key) for _, chosen in cases], (seed, number))
        for number, (key, tensor) in enumerate(tensors.items())
    }
    return [name for name, _ in cases], stacks


def scores_of(terms: Sequence[Term]) -> set[Any]:
    """The inputs that exponents are made of: these may hold a mask of the smallest float."""
    calls = [n for t in terms for n in walk(t) if n.op in ("exp", "exp2")]
    return {n.attr for call in calls for n in walk(call) if n.op == "read"}


def measured_from_weighted(
    reductions: Sequence[Reduction], outputs: Mapping[str, Term]
) -> set[Any]:
    """The inputs of sums that read a mean which data weigh: a sum of products with the weights,
    that the sum of the weights divides. A mean without weights counts its elements."""
    terms = [(r.body, r.name) for r in reductions] + [(t, None) for t in outputs.values()]
    lines = _lines([t for t, _ in terms])
    data = {
        r.name: {n.attr for n in lines[r.body][0] if n.op == "read" and is_float(n.dtype)}
        for r in reductions if r.combiner == "add"
    }  # fmt: skip
    means: set[str] = set()
    for t, own in terms:
        for n in walk(t):
            above, below = ({a.attr for a in side if a.op == "ref"} for side in lines[n])
            divided = {*above, own} if n is t else above  # the sum of w / l x is one
            for weights in below & data.keys():
                means |= {k for k in divided & data.keys() if data[k] & data[weights]} - {weights}
    bodies = [r.body for r in reductions if r.combiner == "add"]
    measured = [t for t in bodies if any(n.attr in means for n in leaves(t, "ref"))]
    return {n.attr for t in measured for n in leaves(t, "read")}


def _lines(terms: Sequence[Term]) -> dict[Term, tuple[frozenset[Term], frozenset[Term]]]:
    """The factors that are read or referred to, above and below the line of each term."""
    found: dict[Term, tuple[frozenset[Term], frozenset[Term]]] = {}
    nothing: frozenset[Term] = frozenset()
    for n in (n for t in terms for n in walk(t)):
        parts = [found[a] for a in n.args]
        if n.op == "div":
            parts[1] = parts[1][::-1]
        elif n.op == "select":
            del parts[0]
        elif n.op not in ("mul", "cast", "neg", "abs", "max", "min") and not (
            n.op in ("add", "sub") and any(a.is_const for a in n.args)  # so that it is not 0
        ):
            parts = []
        own = frozenset([n]) if n.op in ("read", "ref") else nothing
        found[n] = own.union(*(a for a, _ in parts)), nothing.union(*(b for _, b in parts))
    return found


def _units(terms: Sequence[Term]) -> dict[Any, float]:
    """The inputs that exponents multiply by constants far from 1, and what makes 1 of them."""
    found: dict[Any, float] = {}
    seen: set[tuple[Term, float]] = set()

    def visit(t: Term, factor: float) -> None:
        if factor == 0 or (t, factor) in seen:
            return
        seen.add((t, factor))
        if t.op == "read" and not 1 / _USUAL < factor < _USUAL:
            found[t.attr] = 1 / factor
        elif t.op == "mul" and (known := [a for a in t.args if a.op == "const"]):
            for a in t.args:
                visit(a, factor * abs(known[0].value))
        elif t.op == "div" and t.args[1].op == "const":
            visit(t.args[0], factor / abs(t.args[1].value) if t.args[1].value else 0.0)
        elif t.op in ("add", "sub", "neg", "abs", "max", "min", "select", "cast"):
            for a in t.args:
                visit(a, factor)

    for call in (n for t in terms for n in walk(t) if n.op in ("exp", "exp2")):
        visit(call.args[0], 1.0)
    return {key: unit for key, unit in found.items() if np.isfinite(unit)}


def _tensors(
    terms: Sequence[Term], axis: int, extents: tuple[int, ...], rising: Collection[Any]
) -> dict[Any, StressInput]:
    domain, scores, units = Domain(extents, {}, {}), scores_of(terms), _units(terms)
    found: dict[Any, StressInput] = {}
    for n in dict.fromkeys(n for t in terms for n in walk(t) if n.op == "read"):
        shape = tuple(int(evaluate(i, domain, {}).max()) + 1 for i in n.args)
        along = next((k for k, i in enumerate(n.args) if axis in axes_of(i)), None)
        if n.attr in found:
            before = found[n.attr]
            shape = tuple(max(a, b) for a, b in zip(shape, before.shape, strict=True))
            along = before.along if along is None else along
        role = "score" if n.attr in scores else "value"
        rises = n.attr in rising if rising else None
        found[n.attr] = StressInput(
            shape, along, n.dtype, role, units.get(n.attr, 1.0), rises
        )  # fmt: skip
    return found
