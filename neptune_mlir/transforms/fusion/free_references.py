# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `free-references`: running maxima whose exact value no result of a stream depends on.

Softmax subtracts the maximum to keep exponentials in range; any other number gives the same
weights. Formally: corrections re-base the accumulators from one reference m to another m', so a
result F of a stream does not depend on the reference if

    F(m', h(a, m, m'), ...) = F(m, a, ...)    for all m, m'

where every accumulator a that refers to it is re-based by its own correction h. The proof is an
`Obligation` like those of `verify-corrections`, read back from the IR. The accumulation of such
a reference gets `neptune.free`: lowerings may keep an older value of it as long as nothing
leaves the range of its type (`keep-references`).
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.proofs.proof import PROVED, Obligation, discharge, outcomes
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import FREE
from neptune_mlir.dialects.nests import read_nest
from neptune_mlir.dialects.op_names import PREFIX
from neptune_mlir.dialects.program import streams
from neptune_mlir.transforms.fusion.verify_corrections import StreamAlgebra, unguarded
from neptune_mlir.transforms.registry import register


@register("free-references", "find running maxima whose exact value no result depends on")
def free_references(module: Any) -> None:
    for stream in streams(module):
        for op in _found(stream):
            FREE.set(op.operation)


def _found(stream: Any) -> list[Any]:
    """The accumulations of free references."""
    algebra = StreamAlgebra(stream)
    results = _results(stream, algebra)
    if results is None:
        return []
    facts = Facts(frozenset({stream.axis.value}))
    for k, nest in enumerate(algebra.accumulations):
        facts.learn(f"r{k}", nest.combiner or "", unguarded(algebra.body(k), facts))
    found = []
    for k, nest in enumerate(algebra.accumulations):
        if nest.combiner == "max" and algebra.correction(k)[1] is None and any(
            f"r{k}" in _references(algebra, j) for j in range(len(algebra.accumulations))
        ):  # fmt: skip
            if all(_is_independent(algebra, k, unguarded(r, facts), facts) for r in results):
                found.append(nest.op)
    return found


def _is_independent(algebra: StreamAlgebra, k: int, result: Term, facts: Facts) -> bool:
    """Whether a result is proved to be the same for any value of reference k, or to be made of
    values that are: parts of two streams are, what joins them is too much for one equation."""
    known: dict[Term, bool] = {}
    others = range(len(algebra.accumulations))
    moving = {f"r{k}", *(f"r{j}" for j in others if f"r{k}" in _references(algebra, j))}

    def independent(t: Term) -> bool:
        if t not in known:
            if not any(n.attr in moving for n in T.leaves(t, "ref")):
                known[t] = True
            else:
                o = None if t.is_leaf else _obligation(algebra, k, t, facts)
                proved = o is not None and o.status == PROVED
                known[t] = proved or (not t.is_leaf and all(map(independent, t.args)))
        return known[t]

    return independent(result)


def _references(algebra: StreamAlgebra, k: int) -> set[str]:
    """What the correction of running value k repairs the movement of."""
    h, _ = algebra.correction(k)
    return {n.attr[1] for n in T.leaves(h, "ref") if n.attr[0] == "new"}


def _results(stream: Any, algebra: StreamAlgebra) -> list[Term] | None:
    """What the stream gives, over final values `r<k>` (without positions); None if that takes
    more than maps that read each value at one position: the proof is about single elements."""
    values, block = algebra.values, stream.operation.regions[1].blocks[0]
    finals = {values.key(a): f"r{k}" for k, a in enumerate(block.arguments)}
    places: dict[str, tuple[Term, ...]] = {}
    made: dict[str, Term] = {}

    def resolved(node: Term) -> Term | None:
        if node.op != "read":
            return None
        if node.attr in finals:
            return T.ref(finals[node.attr], dtype=node.dtype)
        return made.get(node.attr)

    *inner, end = [op.operation for op in block.operations]
    for op in inner:
        if not isinstance(op.opview, N.MapOp):
            if op.name.startswith(PREFIX):
                return None
            continue
        nest = read_nest(op.opview, values)
        assert nest.axes is not None
        body = T.rename_axes(nest.body, {k: T.index(a) for k, a in enumerate(nest.axes)})
        for read in T.leaves(body, "read"):
            inside = read.attr in finals or read.attr in made
            if inside and places.setdefault(read.attr, read.args) != read.args:
                return None
        key = values.key(op.results[0])
        places[key] = tuple(T.index(nest.axes[k]) for k in nest.result_axes)
        made[key] = T.rewrite(body, resolved)
    given = []
    for value in end.operands:
        key = values.key(value)
        if key not in made and key not in finals:
            return None
        given.append(made[key] if key in made else T.ref(finals[key]))
    return given


def _obligation(algebra: StreamAlgebra, k: int, before: Term, facts: Facts) -> Obligation | None:
    """That a value is the same for any value of reference k; None where an accumulator's
    correction repairs the movement of others as well."""
    name = f"r{k}"
    at = next((n for n in T.walk(before) if n.op == "ref" and n.attr == name), T.ref(name))
    there = T.ref(("new", name), dtype=at.dtype)
    table: dict[Term, Term] = {at: there}
    scales: set[Term] = set()
    for j in range(len(algebra.accumulations)):
        references = _references(algebra, j)
        if name not in references:
            continue
        if references != {name}:
            return None
        h = unguarded(algebra.correction(j)[0], facts)
        moves = {("acc", f"r{j}"): T.ref(f"r{j}"), ("old", name): at, ("new", name): there}

        def moved(n: Term, moves: Any = moves) -> Term | None:
            return moves.get(n.attr) if n.op == "ref" and isinstance(n.attr, tuple) else None

        h = T.rewrite(h, moved)
        for n in T.walk(before):
            if n.op == "ref" and n.attr == f"r{j}":
                table[n] = h
                scales |= _scales(h, n)
    normal = Normaliser(facts, reals=True)
    normal.dtype = before.dtype
    alike = _alike_zeros(before, table, scales, normal)
    after = T.substitute(T.substitute(before, table), alike)
    obligation = None
    for value, other in outcomes(before, after):
        obligation = discharge(Obligation("free", name, other, value), normal)
        if obligation.status != PROVED:
            return obligation
    return obligation


def _scales(h: Term, a: Term) -> set[Term]:
    """The exponential that h is `a` times, if it is."""
    pairs = (h.args, h.args[::-1]) if h.op == "mul" else ()
    return {y for x, y in pairs if x is T.ref(a.attr, dtype=x.dtype) and y.op in ("exp", "exp2")}


def _alike_zeros(
    t: Term, table: dict[Term, Term], scales: set[Term], normal: Normaliser
) -> dict[Term, Term]:
    """Comparisons with zero of what stands for values of `t` by a table, and those of the values:
    of a value that becomes itself times an exponential, one is zero where the other is."""
    found: dict[Term, Term] = {}
    for n in T.walk(t):
        if n.op != "eq" or not n.args[1].is_const or n.args[1].value != 0:
            continue
        value, zero = n.args
        moved = T.substitute(value, table)
        for scale in scales if moved is not value else ():
            scaled = Obligation("free", "zero", moved, T.make("mul", value, scale))
            if discharge(scaled, normal).status == PROVED:
                found[T.make("eq", moved, zero)] = n
    return found
