# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of numbers that others see rounded.

    s = Σ_j |y_j|          r = Σ_j (x_j + s)          o = Σ_j (x_j + s - r / n) y_j
    m = max_j |x_j|        r = Σ_j w_j (x_j / m)      o_j = x_j / m - r / Σ_j w_j
    t_j = x_j / m          b = Σ_j t_j y_j / Σ_j t_j t_j                o_j = y_j - b t_j

In one loop r is Σ x_j + n s, and with 1 / m behind the loop the sum of w_j x_j: those of numbers
which were not rounded. Whoever adds x_j and s itself, or divides by m, and subtracts what it makes
of r has the common rounding of these numbers left, as has a coefficient of them that scales them.
In the program as written both have it, and it cancels: nothing is left of an element that has all
of the weight. So nothing moves out of these numbers, and r is not fused with s or m, unless its
reader is in the loop, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Unsolvable
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.transforms.fusion.groups import Group

SUMS = ("add", "sub")
ROUNDED = (*SUMS, "mul", "div")


def refuse_seen_rounded(program: NestProgram, group: Group) -> None:
    """Raises Unsolvable for a sum of a group that a nest outside of the loop subtracts from what it
    adds up, rounded."""
    for key, loops in group.running.items():
        nest = program.nests[key]
        if nest.combiner != "add" or not T.is_float(nest.dtype):
            continue
        if not any(r.attr in group.running for r in T.reads(nest.body)):
            continue
        stream = loops.index(group.stream)
        seen = seen_rounded(program, key, lambda other: other not in group)
        for number, reader in seen.items():
            if stream in number.axes and any(r.attr in group.running for r in T.reads(number)):
                raise Unsolvable(
                    key, "rounding", nest.body,
                    f"'{reader}' subtracts it from what it adds up, as that is rounded: in one "
                    "pass it would be the sum of other numbers",
                    "numerics=fast fuses it for data on which that does not matter",
                )  # fmt: skip


def seen_rounded(
    program: NestProgram, key: str, by: Callable[[str], bool] = lambda other: True
) -> dict[Term, str]:
    """The numbers that a reduction adds up, and a nest, by which they are seen, that has them
    beside what is made of the reduction."""
    own: dict[Term, list[Term]] = {}
    for n in _added(program.nests[key].body):
        if n.op in ROUNDED:
            own.setdefault(_placed(n), []).append(n)
    found: dict[Term, str] = {}
    made = {key}
    for other, nest in program.nests.items() if own else ():
        sources = {r.attr for r in T.reads(nest.body)}
        if made.isdisjoint(sources):
            continue
        if nest.kind == "map":
            made.add(other)
        if by(other):
            for number in _beside(nest.body, made):
                found |= dict.fromkeys(own.get(number, ()), other)
    return found


def _beside(body: Term, made: set[str]) -> Iterator[Term]:
    """What something that is made of these tensors is subtracted from, and what it scales, as a
    coefficient that does not vary along with it, before it is subtracted; each as `_placed`."""
    found = body.memo.get("beside")
    if found is None:  # asked for each reduction of a program
        found = body.memo["beside"] = tuple(_pairs(body))
    for taken, numbers in found:
        if not made.isdisjoint(taken):
            yield from numbers


def _pairs(body: Term) -> Iterator[tuple[frozenset[str], tuple[Term, ...]]]:
    """The tensors that something is made of, and what stands beside it (see `_beside`)."""
    for n in (n for n in T.walk(body) if n.op in SUMS):
        for own, taken in (n.args, n.args[::-1]):
            yield _tensors(taken), tuple(map(_placed, _added(own)))
            if own.op == "mul":
                for scaled, by in (own.args, own.args[::-1]):
                    if by.axes < scaled.axes and _is_scaled(scaled):
                        yield _tensors(by), (_placed(scaled),)


def _tensors(t: Term) -> frozenset[str]:
    return frozenset(r.attr for r in T.reads(t))


def _is_scaled(t: Term) -> bool:
    """Whether a number is data times something, or over it, and no difference of data: those are
    measured from references of their own."""
    return t.op in ("mul", "div") and not any(m.op in SUMS and m.axes == t.axes for m in T.walk(t))


def _placed(t: Term) -> Term:
    """A term wherever it stands: nests have loops of their own."""
    found = t.memo.get("placed")
    if found is None:  # asked for by each sum that it is a part of
        found = t.memo["placed"] = T.rename_axes(t, {k: T.index(0) for k in t.axes})
    return found


def _added(t: Term) -> list[Term]:
    """The subterms that a term is a multiple of, or a sum of multiples, each once: a sum of sums
    may share its parts."""
    found: dict[Term, None] = {}
    todo = [t]
    while todo:
        n = todo.pop()
        if n in found:
            continue
        found[n] = None
        match n.op:
            case "mul" | "add" | "sub":
                todo += n.args[::-1]
            case "div" | "neg" | "cast":
                todo.append(n.args[0])
            case "select":
                todo += n.args[:0:-1]
    return list(found)
