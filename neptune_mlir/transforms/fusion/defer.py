# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`defer`: move factors that do not vary along a reduction behind it.

    o[i, e] = Σ_j p[i, j] / l[i] * v[j, e]     ->     o'[i, e] = Σ_j p[i, j] * v[j, e]
                                                      o[i, e]  = o'[i, e] / l[i]

The reduction no longer depends on `l`, so fusing it needs no correction for `l`
(FlashAttention-2's form). Maps made here are inlined into later nests at once.

A factor may be what keeps a sum in range, or exact. So the fusions that are to come are planned on
a copy first, and compared with the program as it was (`plan_fusions`): reductions of which one is
worse keep their factors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.deferral import defer as defer_term
from neptune_mlir.algebra.growth import Ranges
from neptune_mlir.algebra.numerics.accept import Definition, TestedChain
from neptune_mlir.algebra.solver import Reduction
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.moved import moved
from neptune_mlir.dialects.attributes import APART, SCALED, TESTED
from neptune_mlir.dialects.nests import DYNAMIC, build_map, build_reduce, read_nest
from neptune_mlir.dialects.program import NestProgram, as_apart, erase_dead, functions, numerics_of
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.common_roundings import seen_rounded
from neptune_mlir.transforms.fusion.exponents import summed_with_own_weights
from neptune_mlir.transforms.fusion.inline_maps import inlined, kept_maps
from neptune_mlir.transforms.fusion.plan import plan_fusions
from neptune_mlir.transforms.fusion.whole import RefusedForm, is_small, wrong_in
from neptune_mlir.transforms.fusion.written import Written
from neptune_mlir.transforms.registry import collect_remarks, register, remark

KEPT = 64  # decisions that are remembered
# of sums that overflow where those of the program do not
UNSEEN = "fused with what it reads, it may leave the range of its type, and no test would see it"
ROUNDS = 3  # plans that are made, each with fewer factors that move,
MORE_ROUNDS = 16  # and, of programs that are judged as a whole, with fewer fusions


def _defer_nest(
    program: NestProgram, key: str, numerics: str, producers: Ranges, whole: Collection[Term]
) -> str | None:
    """Move what can move out of a reduction, but for the terms that stay `whole`; the key of what
    is left of it, if anything moved."""
    nest = program.nests[key]
    reduced = set(nest.reduced_axes)
    found = defer_term(
        Reduction(key, nest.combiner, nest.body, nest.dtype),
        min(reduced),
        lambda t: not (T.axes_of(t) & reduced),
        numerics=numerics,
        producers=producers.refs,
        whole=whole,
    )
    if found is None:
        return None
    rest, finish = found
    with ir.InsertionPoint(nest.op), nest.location:
        partial = build_reduce(
            program.values, nest.combiner, rest.body, nest.domain, nest.extents,
            nest.result_axes, names=nest.names,
        )  # fmt: skip
        as_apart(nest, partial)
        name = program.values.key(partial, hint=f"{key}.rest")
        read = T.read(name, *[T.index(k) for k in nest.result_axes], dtype=nest.dtype)
        body = T.rewrite(finish, lambda n: read if n.op == "ref" else None)
        kept, dynamic = list(nest.result_axes), iter(nest.extents)
        extents = [next(dynamic) if size == DYNAMIC else None for size in nest.domain]
        loops = sorted(kept)
        result = build_map(
            program.values,
            T.rename_axes(body, {loop: T.index(loops.index(loop)) for loop in kept}),
            [nest.domain[k] for k in loops],
            [extents[k] for k in loops if extents[k] is not None],
            result_axes=[loops.index(k) for k in kept],
            names=[nest.names[k] for k in loops] if nest.names else None,
        )
    producers.learn(name, rest.body)
    remark(nest.location, f"deferred behind the reduction: {_shown(finish)}")
    program.replace(key, result)
    program.nests = {
        **{k: n for k, n in program.nests.items() if k != key},
        name: read_nest(partial.owner, program.values),
        key: read_nest(result.owner, program.values),
    }
    return name


def _shown(finish: Term) -> str:
    return T.show(finish, lambda leaf: "sum" if leaf.op == "ref" else str(leaf.attr))


def _defer_all(program: NestProgram, numerics: str, apart: Collection[str]) -> dict[str, str]:
    """Defer in every reduction that is not `apart`; what is left of each, by its key."""
    producers, rests = Ranges(), {}
    kept = kept_maps(program)
    asked = [k for k, nest in program.nests.items() if nest.combiner == "add"]
    whole = {k: tuple(seen_rounded(program, k)) for k in asked if numerics != "fast"}
    for key in list(program.nests):
        program.put_body(key, inlined(program, program.nests[key].body, kept))
        if program.nests[key].kind == "reduce":
            producers.learn(key, program.nests[key].body)
            rest = (None if key in apart or SCALED.on(program.nests[key].op.operation) else
                    _defer_nest(program, key, numerics, producers, whole.get(key, ())))  # fmt: skip
            if rest:
                rests[key] = rest
    program.write()
    return rests


@dataclass
class Decision:
    """What a function must not do, for it to be exact: move factors out of the reductions `kept`
    (by their keys), and fuse those `apart` (by the keys that they have behind it), and why; what
    was said of chains that fuse (`Written.tested`), and the reductions whose definition is
    `unknown` or too `long` there; and what each chain was compared with, by its content."""

    kept: set[str] = field(default_factory=set)
    long: set[str] = field(default_factory=set)
    apart: dict[str, str] = field(default_factory=dict)
    tested: dict[str, TestedChain] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    definitions: dict[str, Definition] = field(default_factory=dict)


_decided: OrderedDict[tuple[str, str, str], Decision] = OrderedDict()  # the last ones


def decide(function: Any, numerics: str) -> Decision:
    """Plan the fusions that are to come on a copy, until what they give is right.

    One program is often compiled several times, for other targets, calls and shapes; what it must
    not do is worked out once.
    """
    if numerics == "fast":
        return Decision()
    # all of the module: a combiner of the program's own stands beside the function
    text = function.operation.parent.get_asm(enable_debug_info=True)
    asked = text, function.name.value, numerics
    found = _decided.pop(asked, None) or _decide(function, numerics)
    _decided[asked] = found
    if len(_decided) > KEPT:
        _decided.popitem(last=False)
    return found


def forget() -> None:
    """Forget what was decided of the last programs."""
    _decided.clear()


def _decide(function: Any, numerics: str) -> Decision:
    decision, last = Decision(), RefusedForm()
    whole = is_small(NestProgram(function))
    unseen = set() if whole else set(summed_with_own_weights(NestProgram(function)))
    for round in range(ROUNDS + bool(unseen) + whole * MORE_ROUNDS):
        trial = function.operation.clone()
        program = NestProgram(trial)
        before = {key: nest.body for key, nest in program.nests.items()}
        rests = _defer_all(program, numerics, decision.kept)
        if not rests and not whole and not unseen:
            return decision
        if rests.keys() & unseen:
            decision.kept |= rests.keys() & unseen
            continue
        alive = program.needed()
        erase_dead(program.block)
        sources = {key for made in moved(program, alive).values() for key in made.sources}
        now = NestProgram(trial)
        given = {r.attr for body in before.values() for r in T.reads(body)} | sources
        given -= set(before)
        left = [program.nests[key].body for key in alive if key in program.nests]
        given |= {n.attr for body in left for n in T.leaves(body, "sym")}
        keys = {key: now.values.key(program.values[key]) for key in (*alive, *given)}
        written = Written(before, rests, program.nests, keys)
        decision.apart |= {keys[k]: UNSEEN for k in unseen if k in keys}
        _mark(now, decision)
        plan = plan_fusions(now, numerics, written)
        decision.tested, decision.unknown = written.tested, written.unknown
        decision.long |= written.long
        decision.definitions = {f.content: f.definition for f in plan}
        if written.refused:
            decision.kept |= written.refused if round < ROUNDS else set(rests)
            continue
        wrong = (
            wrong_in(NestProgram(function), now, plan, written, last) if whole else None
        )  # fmt: skip
        if wrong is None:
            return decision
        decision.kept |= wrong.factors
        for key in wrong.apart:
            decision.apart[key] = f"fused with what it reads, {wrong.text}"
    decision.kept |= set(rests)  # nothing moves
    decision.tested, decision.unknown = {}, set()
    return decision


def _mark(program: NestProgram, decision: Decision) -> None:
    for key, reason in decision.apart.items():
        APART.set(program.nests[key].op.operation, reason)


@register("defer", "move loop-invariant factors behind reductions")
def defer(module: Any) -> None:
    for function in functions(module):
        numerics = numerics_of(function)
        with collect_remarks():  # the plan's own come from whoever fuses
            decision = decide(function, numerics)
        program = NestProgram(function)
        for key in sorted(decision.kept):
            why = (
                "what it was before they moved is too long to be tested" if key in decision.long
                else "fused without them it would lose digits, or leave the range of its type"
            )  # fmt: skip
            remark(program.nests[key].location, f"'{key}' keeps its factors: {why}")
        for key in sorted(decision.unknown):
            remark(program.nests[key].location, f"what '{key}' is fused with is compared with the "
                   "program as it is when factors have moved: what it was before takes more than "
                   "is fused")  # fmt: skip
        _defer_all(program, numerics, decision.kept)
        erase_dead(program.block)
        _mark(NestProgram(function), decision)
        if decision.tested:
            TESTED.set(function.operation, [f"{k} {v}" for k, v in sorted(decision.tested.items())])
