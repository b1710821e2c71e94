# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The inputs of the stress test: all arrays of a chain in every form that hurts (`hostile`).

Each floating-point input takes each form of its role in turn while the others stay ordinary; then
all take the same one; inputs far from zero also meet others that are weights, and conditions and
counts meet both. All inputs of a chain are one batch (`numeric.Domain.batched`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.algebra.numeric import Array, Domain, evaluate
from neptune_mlir.algebra.numerics import hostile
from neptune_mlir.algebra.numerics.accuracy import rounded
from neptune_mlir.algebra.terms import Term, axes_of, is_float, walk

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
_SPARED = ("columns", "every other row", "all but the")  # little that others lack
_WEIGHTS = ("weights 0 or 1", "weights 0 at the start", "weights 0 at the end", "weights sum to 1")
_MEAN, _SMALL, _LARGE = "mean 1e+03", "magnitude 1e-20", "magnitude 1e+20"


@dataclass(frozen=True)
class StressInput:
    """An input: its shape, which dimension runs along the stream, and what it may hold."""

    shape: tuple[int, ...]
    along: int | None
    dtype: str
    role: str

    @property
    def forms(self) -> dict[str, hostile.Form]:
        found = hostile.forms(self._turned, self.dtype, self.role)
        found = {n: f for n, f in found.items() if not any(s in n for s in _SPARED)}
        return PLAIN | found if is_float(self.dtype) else found

    @property
    def _turned(self) -> tuple[int, ...]:
        """The shape with the streamed dimension last, where `hostile` has it."""
        if self.along is None:
            return (*self.shape, 1)
        others = (n for k, n in enumerate(self.shape) if k != self.along)
        return (*others, self.shape[self.along])

    def made(self, form: hostile.Form, generator: Any) -> Array:
        if not is_float(self.dtype):
            found = np.asarray(form(generator, self._turned), np.int64)
        else:
            found = rounded(form(generator, self._turned), self.dtype)
        if self.along is None:
            return np.asarray(found.reshape(self.shape))
        return np.moveaxis(found, -1, self.along)

    def plain(self, generator: Any) -> Array:
        if is_float(self.dtype):
            return self.made(PLAIN["normal"], generator)
        high = 2 if self.dtype in ("i1", "i8") else 3
        return np.asarray(generator.integers(0, high, self.shape))


def _cases(tensors: dict[Any, StressInput]) -> Iterator[tuple[str, dict[Any, str]]]:
    """Names, and the form of each input that does not stay ordinary."""
    floats = [key for key, t in tensors.items() if is_float(t.dtype)]
    conditions = [key for key, t in tensors.items() if t.dtype in ("i1", "i8")]
    alone = len(floats) == 1
    forms = {key: list(tensors[key].forms) for key in (*floats, *conditions)}
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


def inputs(
    terms: Sequence[Term], axis: int, extents: tuple[int, ...], seed: int,
    only: Sequence[str] | None = None,
) -> tuple[list[str], dict[Any, Array]]:  # fmt: skip
    """Names of the inputs, and for every tensor that the terms read its arrays, stacked.

    `only`: the names of those that are wanted (all when None).
    """
    tensors = _tensors(terms, axis, extents)
    generator = np.random.default_rng(seed)
    names: list[str] = []
    stacks: dict[Any, list[Array]] = {key: [] for key in tensors}
    forms = {key: tensor.forms for key, tensor in tensors.items()}
    for name, chosen in _cases(tensors):
        if only is not None and name not in only:
            continue
        names.append(name)
        for key, tensor in tensors.items():
            form = forms[key][chosen[key]] if key in chosen else None
            made = tensor.made(form, generator) if form else tensor.plain(generator)
            stacks[key].append(made)
    return names, {key: np.stack(arrays) for key, arrays in stacks.items()}


def scores_of(terms: Sequence[Term]) -> set[Any]:
    """The inputs that exponents are made of: these may hold a mask of the smallest float."""
    calls = [n for t in terms for n in walk(t) if n.op in ("exp", "exp2")]
    return {n.attr for call in calls for n in walk(call) if n.op == "read"}


def _tensors(terms: Sequence[Term], axis: int, extents: tuple[int, ...]) -> dict[Any, StressInput]:
    domain, scores = Domain(extents, {}, {}), scores_of(terms)
    found: dict[Any, StressInput] = {}
    for n in dict.fromkeys(n for t in terms for n in walk(t) if n.op == "read"):
        shape = tuple(int(evaluate(i, domain, {}).max()) + 1 for i in n.args)
        along = next((k for k, i in enumerate(n.args) if axis in axes_of(i)), None)
        if n.attr in found:
            before = found[n.attr]
            shape = tuple(max(a, b) for a, b in zip(shape, before.shape, strict=True))
            along = before.along if along is None else along
        role = "score" if n.attr in scores else "value"
        found[n.attr] = StressInput(shape, along, n.dtype, role)
    return found
