# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of a program that is judged as a whole (`whole`): nests as written, and fused loops."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neptune_mlir.algebra.chain import Solution
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.numerics.evaluation import (
    Array,
    Domain,
    evaluate,
    fold,
    fused,
    overflown,
)
from neptune_mlir.algebra.numerics.kept import added_in_pairs, is_row, one_by_one, with_digits
from neptune_mlir.algebra.numerics.orders import HALVES, PARTS, SIGNS, block_of, way_of
from neptune_mlir.algebra.terms import Term, leaves

IN_ORDER = 0  # elements are added one by one; instead of chunks, the number of an order (`orders`)
IN_PAIRS = 8  # NumPy adds rows that are shorter from their start, however they lie


@dataclass(frozen=True)
class NestStep:
    """A map, or a reduction over the axes that its result lacks."""

    key: str
    combiner: str | None
    body: Term
    extents: tuple[int, ...]
    axes: tuple[int, ...]  # of the result

    @property
    def content(self) -> Any:
        """All that its values depend on, beside what it reads."""
        return self

    @property
    def makes(self) -> tuple[str, ...]:
        return (self.key,)

    @property
    def terms(self) -> list[Term]:
        return [self.body]

    @property
    def tensors(self) -> set[str]:
        return _read(self.terms)

    @property
    def folded(self) -> set[int]:
        return {k for k in range(len(self.extents)) if k not in self.axes}

    def run(self, domain: Domain, plan: tuple[int, int]) -> dict[str, Array]:
        value = evaluate(self.body, domain, {})
        folded = [k for k in range(len(self.extents)) if k not in self.axes]
        if folded and self.combiner == "add" and plan[0] == IN_ORDER:
            value = _added_in_order(
                value, domain, folded, plan[1], zlib.crc32(self.key.encode()) % 97
            )
        elif folded and self.combiner is not None:
            lengths = [n for k, n in enumerate(self.extents) if k in folded and n > 1]
            short = self.combiner == "add" and len(lengths) <= 1 and sum(lengths) < IN_PAIRS
            rounds = lookup(self.combiner).accumulates  # else any order makes the same number
            if folded[-1] == len(self.extents) - 1 and rounds and not short:  # pairs, as they lie
                last = len(self.extents)
                alone = self.combiner == "add" and lengths == [value.shape[last]]
                if alone and is_row(value, last):
                    value = overflown(added_in_pairs(value, last), domain)
                    return {self.key: _laid_out(value, domain, self.axes)}
                value = np.ascontiguousarray(value)
            value = fold(self.combiner, value, domain, folded, self.extents[folded[0]], folded[0])
        return {self.key: _laid_out(value, domain, self.axes)}


@dataclass(frozen=True)
class StreamStep:
    """A fused loop; its outputs are terms over `ref` of its reductions, with their axes."""

    solution: Solution
    axis: int
    extents: tuple[int, ...]
    outputs: tuple[tuple[str, Term, tuple[int, ...]], ...]

    @property
    def content(self) -> Any:
        """All that its values depend on, beside what it reads: no proofs, nor how it was found."""
        repairs = [r.correction for r in self.solution.running]
        running = (
            [replace(r, correction=None) for r in self.solution.running],
            [c and (c.h, c.references) for c in repairs],
        )
        return "stream", running, self.solution.finals, self.axis, self.extents, self.outputs

    @property
    def makes(self) -> tuple[str, ...]:
        return tuple(key for key, _, _ in self.outputs)

    @property
    def terms(self) -> list[Term]:
        terms = [r.body for r in self.solution.running]
        terms += [r.correction.h for r in self.solution.running if r.correction]
        return [*terms, *self.solution.finals.values(), *(t for _, t, _ in self.outputs)]

    @property
    def tensors(self) -> set[str]:
        return _read(self.terms)

    @property
    def folded(self) -> set[int]:
        return {self.axis, *(k for r in self.solution.running for k in r.folded)}

    def run(self, domain: Domain, plan: tuple[int, int]) -> dict[str, Array]:
        finals = fused(self.solution, self.axis, domain, *plan)
        return {
            key: _laid_out(evaluate(term, domain, finals), domain, axes)
            for key, term, axes in self.outputs
        }


Step = NestStep | StreamStep


def _read(terms: Sequence[Term]) -> set[str]:
    return {n.attr for t in terms for n in leaves(t, "read")}


def apart(steps: Sequence[Step], inputs: Collection[str]) -> dict[str, list[int]]:
    """The dimensions of inputs along which each step does the same with every element: all that it
    reads varies along the loop, and nothing is folded there. They may lie next to each other in
    memory, as inputs of a batch do."""
    alike: dict[str, set[int]] = {}
    for step in steps:
        reads = {n for t in step.terms for n in leaves(t, "read") if n.args}
        loops = [[i.attr for i in n.args if i.op == "index"] for n in reads]
        common = {k for k in range(len(step.extents)) if all(of.count(k) == 1 for of in loops)}
        common -= step.folded
        for n in reads:
            dims = {d for d, i in enumerate(n.args) if i.op == "index" and i.attr in common}
            alike[n.attr] = alike.get(n.attr, dims) & dims
    return {key: sorted(alike.get(key, ())) for key in inputs}


def _added_in_order(
    value: Array, domain: Domain, folded: Sequence[int], order: int, number: int
) -> Array:
    """A sum over some axes, one element after the other, as the unfused program has it.

    `order`, and the `number` of the sum: see `orders`."""
    (start, back), block = way_of(number, order), block_of(order)
    places = [1 + k for k in folded]
    shape = [domain.extents[k - 1] if k in places else n for k, n in enumerate(value.shape)]
    value = np.moveaxis(np.broadcast_to(value, shape), places, range(-len(places), 0))
    value = value.reshape(*value.shape[: -len(places)], -1)
    value = np.roll(value, -(value.shape[-1] * start // PARTS), axis=-1) if start else value
    value = value[..., ::-1] if back else value
    if order == SIGNS or (order == HALVES and value.shape[-1] > 1):
        parts = value[..., ::2], value[..., 1::2]
        parts = (np.maximum(value, 0), np.minimum(value, 0)) if order == SIGNS else parts
        first, second = (one_by_one(part, domain.digits) for part in parts)
        total = first + second
        total = with_digits(total, domain.digits) if domain.digits else total
        return overflown(np.expand_dims(total, places), domain)
    if block > 1:
        value = np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, -value.shape[-1] % block)])
        value = value.reshape(*value.shape[:-1], -1, block)
        value = one_by_one(value, domain.digits)
    return overflown(np.expand_dims(one_by_one(value, domain.digits), places), domain)


def _laid_out(value: Array, domain: Domain, axes: Sequence[int]) -> Array:
    """A value over the axes of a domain as a tensor with some of them for dimensions."""
    shape = [1 + a for a in axes]
    sizes = [domain.extents[a] for a in axes]
    whole = list(value.shape)
    for place, size in zip(shape, sizes, strict=True):
        whole[place] = size
    rest = [k for k in range(1, len(whole)) if k not in shape]
    value = value if whole == list(value.shape) else np.broadcast_to(value, whole)
    return value.transpose(0, *shape, *rest).reshape(value.shape[0], *sizes)
