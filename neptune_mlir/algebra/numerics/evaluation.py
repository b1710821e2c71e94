# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Terms, chains and solutions on NumPy arrays: the definition and the fused loop, executed.

Every array has one dimension per axis of the stream (extent 1 where it does not vary), so
references need no index arithmetic: they broadcast. A domain may be a *batch* of inputs of the
same shapes: then the first dimension of every array counts these, and one evaluation serves all.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.algebra.chain import Reduction, Solution
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.numerics.floats import LARGEST, rounded
from neptune_mlir.algebra.numerics.kept import Kept, operated, read_at, read_plainly, with_digits
from neptune_mlir.algebra.terms import Term, is_float, reads, walk

Array = np.ndarray


@dataclass(frozen=True)
class Domain:
    """Extents of the axes, the inputs, and the float type to compute in.

    Attributes:
        floating: float64 takes every float as a real number; float32 computes f64 in f64 and the
            rest in f32, and rounds where the program converts to 16 bits.
        digits: float64 with so many bits in each result: the digits of a narrower type, without its
            range; 0 for all of them.
        batched: whether the first dimension of every input counts inputs, not positions.
        longer: float32 sums overflow where those of rows so many times longer would.
        kept: what is known of terms already; None where nobody asks again.
    """

    extents: tuple[int, ...]
    data: Mapping[Any, Array]
    scalars: Mapping[Any, float]
    floating: Any = np.float64
    batched: bool = False
    digits: int = 0
    longer: float = 1.0
    kept: Kept | None = None

    @property
    def lead(self) -> int:
        """How many dimensions come before the axes."""
        return int(self.batched)

    @property
    def unit(self) -> tuple[int, ...]:
        """The shape of a value that varies along no axis."""
        return (1,) * (self.lead + len(self.extents))

    def cast(self, dtype: str) -> Any:
        if is_float(dtype):
            return np.float64 if dtype == "f64" else self.floating
        return np.bool_ if dtype == "i1" else np.int64


def evaluate(
    t: Term, domain: Domain, refs: Mapping[Any, Array], axis: int = 0, lo: int = 0, hi: int = -1,
    known: Mapping[Term, Array] | None = None, done: dict[Term, Array] | None = None,
) -> Array:  # fmt: skip
    """The values of a term over the domain, with `axis` restricted to [lo, hi).

    `known`: the values of all operands of the term, which are not computed again. `done`: those of
    terms with the same references and the same restriction; more are added.
    """
    if known is not None:
        return _value(t, [known[a] for a in t.args], domain, refs, axis, lo, hi)
    done = {} if done is None else done
    kept, wanted, missing = domain.kept, {t}, list[Any]()
    for n in reversed([*walk(t)]):
        if n not in wanted or n in done:
            continue
        value, place = None, None
        if kept is not None and (place := kept.place(n, domain.extents, axis, lo, hi)):
            value = kept.found(n, place, len(domain.extents))
        if value is not None:
            done[n] = value
        else:
            missing.append((n, place))
            wanted.update(n.args)
    for n, place in reversed(missing):
        done[n] = _value(n, [done[a] for a in n.args], domain, refs, axis, lo, hi)
        if kept is not None and place is not None:
            kept.keep(n, place, done[n])
    return done[t]


def _value(
    n: Term, args: list[Array], domain: Domain, refs: Mapping[Any, Array], axis: int, lo: int,
    hi: int,
) -> Array:  # fmt: skip
    """The value of one node, given those of its operands."""
    kind = domain.cast(n.dtype)
    if n.op == "const":
        value = np.asarray(n.value, dtype=kind).reshape(domain.unit)
    elif n.op == "index":
        first, last = (lo, hi) if n.attr == axis and hi >= 0 else (0, domain.extents[n.attr])
        shape = [-1 if k == n.attr + domain.lead else 1 for k in range(len(domain.unit))]
        value = np.arange(first, last).reshape(shape)
    elif n.op == "read":
        data, plain = domain.data[n.attr], domain.batched
        value = read_plainly(n, data, domain.extents, axis, lo, hi) if plain else None
        if value is None:
            clipped = any(reads(i) for i in n.args)
            value = read_at(np.asarray(data), args, clipped, domain.batched, domain.unit)
        value = value.astype(kind, copy=False)
    elif n.op == "ref":
        value = refs[n.attr]
    elif n.op == "sym":
        value = np.asarray(domain.scalars[n.attr], dtype=kind).reshape(domain.unit)
    elif n.op == "cast":
        value = args[0].astype(kind)
        if domain.floating is np.float32 and n.dtype in ("f16", "bf16"):
            value = rounded(value, n.dtype)
    else:
        value = operated(n, args, domain.kept is not None)
    value = value if value.dtype == kind else value.astype(kind)
    return with_digits(value, domain.digits) if domain.digits and is_float(n.dtype) else value


def fold(
    combiner: str, value: Array, domain: Domain, folded: Sequence[int], length: int, axis: int
) -> Array:
    """Reduce over `folded`, of which `axis` has `length` points at hand."""
    shape = list(value.shape)
    for k in folded:
        shape[domain.lead + k] = length if k == axis else domain.extents[k]
    places = tuple(domain.lead + k for k in folded)
    if shape != list(value.shape):  # (a broadcast takes as long as adding up a small array)
        value = np.broadcast_to(value, shape)
    found = lookup(combiner).array.reduce(
        value, axis=places, keepdims=True, initial=_identity(combiner, value.dtype)
    )
    return overflown(found, domain) if combiner == "add" else found


def overflown(total: Array, domain: Domain) -> Array:
    """A sum, or the infinity that it is in rows that are `longer`."""
    if domain.longer == 1.0 or total.dtype != np.float32:
        return total
    limit = np.float32(LARGEST["f32"] / domain.longer)
    return np.where(np.abs(total) > limit, np.copysign(np.float32(np.inf), total), total)


def identity(combiner: str, dtype: str, domain: Domain) -> Array:
    kind = np.dtype(domain.cast(dtype))
    return np.asarray(_identity(combiner, kind), kind).reshape(domain.unit)


def _identity(combiner: str, kind: np.dtype[Any]) -> Any:
    if np.issubdtype(kind, np.integer):
        return lookup(combiner).identity_on(f"i{8 * kind.itemsize}")
    return lookup(combiner).identity


def define(
    reductions: Sequence[Reduction], axis: int, domain: Domain, tile: int = 0,
    values: dict[Term, Array] | None = None,
) -> dict[str, Array]:  # fmt: skip
    """The program as written: each reduction over the whole axis, one after the other.

    Args:
        tile: how many elements are combined at a time (0: all), which only rounding can tell.
        values: those of terms so far; more are added.
    """
    found: dict[str, Array] = {}
    length = domain.extents[axis]
    common, done = in_common(reductions), {} if values is None else values
    with np.errstate(all="ignore"):
        for r in reductions:
            value = evaluate(r.body, domain, found, done=done)
            if values is None:
                keep_only(common, done)
            folded = folded_axes(r, axis)
            if not tile or tile >= length:
                found[r.name] = fold(r.combiner, value, domain, folded, length, axis)
                continue
            place = domain.lead + axis
            shape = [length if k == place else n for k, n in enumerate(value.shape)]
            value = np.broadcast_to(value, shape)
            total = identity(r.combiner, r.dtype, domain).astype(value.dtype)
            for start in range(0, length, tile):
                stop = min(start + tile, length)
                part = np.take(value, range(start, stop), axis=place)
                part = fold(r.combiner, part, domain, folded, stop - start, axis)
                total = lookup(r.combiner).array(total, part)
            found[r.name] = total
    return found


def in_common(reductions: Sequence[Reduction]) -> frozenset[Term]:
    """What several reductions of a chain are made of: its value is the same in each of them."""
    seen: set[Term] = set()
    again: set[Term] = set()
    for r in reductions:
        nodes = {n for n in walk(r.body) if n.args} if len(reductions) > 1 else set()
        again |= nodes & seen
        seen |= nodes
    return frozenset(again)


def keep_only(common: frozenset[Term], *tables: dict[Term, Array]) -> None:
    """Drop the arrays of all other terms: a chain has many, and nobody asks for them again."""
    for table in tables:
        for n in [n for n in table if n not in common]:
            del table[n]


def folded_axes(r: Reduction, axis: int) -> tuple[int, ...]:
    if r.axes is None:
        return (axis,)
    used = {n.attr for n in walk(r.body) if n.op == "index"}
    return tuple(sorted((used - set(r.axes)) | {axis}))


def fused(
    solution: Solution, axis: int, domain: Domain, tile: int, chunks: int = 1
) -> dict[str, Array]:
    """The fused loop: `chunks` private streams in tiles, joined, then the final values."""
    length = domain.extents[axis]
    size = -(-length // chunks)
    with np.errstate(all="ignore"):
        states = [
            stream(solution, axis, domain, tile, min(c * size, length), min((c + 1) * size, length))
            for c in range(chunks)
        ]
        state = states[0] if chunks == 1 else join(solution, domain, states)
        return {name: evaluate(f, domain, state) for name, f in solution.finals.items()}


def stream(
    solution: Solution, axis: int, domain: Domain, tile: int, lo: int, hi: int
) -> dict[Any, Array]:
    state = {r.name: identity(r.combiner, r.dtype, domain) for r in solution.running}
    for start in range(lo, hi, tile):
        stop = min(start + tile, hi)
        after: dict[Any, Array] = {}
        done: dict[Term, Array] = {}
        moved: dict[Any, Array] = {}
        for r in solution.running:
            value = evaluate(r.body, domain, after, axis, start, stop, done=done)
            value = fold(r.combiner, value, domain, r.folded, stop - start, axis)
            carried = corrected(r, state, after, domain, moved)
            total = lookup(r.combiner).array(carried, value)
            after[r.name] = overflown(total, domain) if r.combiner == "add" else total
        state = after
    return state


def join(solution: Solution, domain: Domain, states: list[dict[Any, Array]]) -> dict[Any, Array]:
    """Each private value, re-based to the joined references, combined over the chunks."""
    joined: dict[Any, Array] = {}
    moved: list[dict[Any, Array]] = [{} for _ in states]
    for r in solution.running:
        total = identity(r.combiner, r.dtype, domain)
        for state, done in zip(states, moved, strict=True):
            total = lookup(r.combiner).array(total, corrected(r, state, joined, domain, done))
        joined[r.name] = overflown(total, domain) if r.combiner == "add" else total
    return joined


def corrected(
    r, before: Mapping[Any, Array], after: Mapping[Any, Array], domain: Domain,
    moved: dict[Any, Array],
) -> Array:  # fmt: skip
    """`correct`: h where a reference moved, the accumulator itself where none did. `moved`: what is
    known of the step from `before` to `after`; more is added."""
    if r.correction is None:
        return before[r.name]
    refs: dict[Any, Array] = {("acc", n): a for n, a in before.items()}
    refs |= {("old", n): a for n, a in before.items()}
    refs |= {("new", n): a for n, a in after.items()}
    still = moved.get(key := tuple(r.correction.references))
    if still is None:
        equal = [before[n] == after[n] for n in key]
        still = moved[key] = functools.reduce(np.logical_and, equal, np.asarray(True))
    return np.where(still, before[r.name], evaluate(r.correction.h, domain, refs, done=moved))
