# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The correction solver: how a chain of dependent reductions runs in one pass.

    solve_chain([max of x, sum of exp(x - m), sum of exp(x - m) / l * v], axis)

gives the accumulators that the fused loop carries, how each is repaired when what it read
moved, the results in terms of them, the derivation, and a proof. See `rules.FORMS`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neptune_mlir.algebra.chain import (
    Chain,
    Correction,
    Reduction,
    Running,
    Solution,
    Unsolvable,
)
from neptune_mlir.algebra.corrections.eager import solve_eager
from neptune_mlir.algebra.corrections.empty import exact_when_empty
from neptune_mlir.algebra.deferral import defer
from neptune_mlir.algebra.extrema import solve_extremum
from neptune_mlir.algebra.facts import Facts, has_ref
from neptune_mlir.algebra.growth import Ranges
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.poly import TooComplex
from neptune_mlir.algebra.proofs.proof import (
    REFUTED,
    Proof,
    acc,
    finish_obligations,
    is_acc,
    new,
    obligations,
    old,
    references,
)
from neptune_mlir.algebra.sums import solve_product, solve_sum
from neptune_mlir.algebra.terms import Term, is_float, ref, rewrite, show, substitute, term
from neptune_mlir.errors import InputError

__all__ = [
    "Correction",
    "Proof",
    "Reduction",
    "Running",
    "Solution",
    "Unsolvable",
    "acc",
    "defer",
    "new",
    "old",
    "prove",
    "solve_chain",
]


def solve_chain(
    reductions: Sequence[Reduction],
    axis: int,
    *,
    deferral: bool = True,
    numerics: str = "default",
    empty_rows: bool = False,
    visible: Collection[str] = (),
) -> Solution:
    """Find running values and corrections for reductions over `axis`, in program order.

    Args:
        deferral: False corrects inside the loop where possible instead of moving factors
            behind it; every accumulator then holds its reduction as it stands.
        numerics: "default" and "strict" keep every value in the range that the program as written
            needs (`growth`), "fast" asks for equality over the reals only.
        empty_rows: whether rows in which a maximum saw nothing but -inf give the NaN of the
            program as written, at the cost of a comparison a row, behind the loop.
        visible: the reductions that others than this chain read, with what rounding made of them.

    Raises:
        Unsolvable: a reduction has no correction; says which obligation fails, and where.
        InputError: a body reads a reduction that does not come before it.
    """
    wide = any(r.dtype == "f64" for r in reductions)
    ranges = None if numerics == "fast" else Ranges(numerics == "strict")
    chain = Chain(axis, "f64" if wide else "f32", ranges, frozenset(visible))
    for reduction in reductions:
        if ranges is not None:
            ranges.allow(reduction.body)
            ranges.learn(reduction.name, reduction.body)
        chain.begin(reduction)
        body = _inline(chain, reduction)
        final = None
        if not deferral and has_ref(body):
            final = solve_eager(chain, reduction.name, reduction.combiner, body)
        if final is None:
            final = _solve(chain, reduction, body)
        if not is_acc(final) or (has_ref(body) and chain.raw(final.attr[1]) is not body):
            made = {r.name: (r.combiner, chain.raw(r.name)) for r in chain.running}
            found = finish_obligations(
                chain.proof, reduction.name, reduction.combiner, body, final, made, chain.relations
            )
            used = [o for n, o in chain.related.items() if n in references(final)]
            chain.proofs[reduction.name] = Proof((*used, *found.obligations))
        chain.require_range(final)
        written = substitute(body, chain.own_guards)
        shown = exact_when_empty(chain, reduction, written, final, empty_rows)
        chain.conclude(_read(final), _read(shown))
        _refuse_refuted(chain, reduction)
    return Solution(
        tuple(chain.running), chain.results, tuple(chain.steps), chain.proofs, chain.facts,
        empty_rows,
    )


def _read(final: Term) -> Term:
    """Accumulators as what later terms read."""
    return rewrite(final, lambda n: ref(n.attr[1], dtype=n.dtype) if is_acc(n) else None)


def _refuse_refuted(chain: Chain, reduction: Reduction) -> None:
    """The last line of defence: nothing runs that is known to be wrong."""
    corrections = [r.correction for r in chain.running if r.source == reduction.name]
    proofs = [c.proof for c in corrections if c] + [chain.proofs.get(reduction.name, Proof())]
    for obligation in (o for proof in proofs for o in proof.obligations):
        if obligation.status == REFUTED:
            hint = "no correction is known for it"
            raise chain.fail(obligation.kind, reduction.body, obligation.by, hint)


def prove(running: Sequence[Running]) -> dict[str, Proof]:
    """The proof of each correction, from the running values alone.

    Nothing of how they were found is used, so it checks corrections read back from a file too.
    """
    facts = Facts(frozenset(a for r in running for a in r.folded))
    normal = Normaliser(facts, reals=True)
    if any(r.dtype == "f64" for r in running):
        normal.dtype = "f64"
    bodies = {r.name: r.body for r in running}
    hs = {r.name: r.correction.h if r.correction else acc(r.name, r.dtype) for r in running}
    found = {}
    for r in running:
        facts.learn(r.name, r.combiner, r.body)
        if r.correction is not None:
            found[r.name] = obligations(normal, r.name, r.combiner, bodies, hs)
    return found


def _solve(chain: Chain, reduction: Reduction, body: Term) -> Term:
    try:
        return _attempt(chain, reduction, body)
    except TooComplex:
        raise chain.fail(
            "re-basing", body, "its normal form is too large", "split the reduction in simpler ones"
        ) from None


def _attempt(chain: Chain, reduction: Reduction, body: Term) -> Term:
    name, combiner = reduction.name, reduction.combiner
    if not has_ref(body):
        chain.step(f"{combiner} of {show(body)}: reads no earlier reduction")
        return acc(chain.emit(name, combiner, body), chain.dtype(body))
    if combiner == "add" and is_float(body.dtype):
        return solve_sum(chain, name, body)
    if combiner == "mul" and is_float(body.dtype):
        return solve_product(chain, name, body)
    if combiner in ("max", "min", "and", "or"):
        return solve_extremum(chain, name, combiner, body)
    raise chain.fail("homomorphism", body, f"no rule for {combiner} over {body.dtype}")


def _inline(chain: Chain, reduction: Reduction) -> Term:
    """References to final values, spelled as running values at the reference's position."""

    def rule(n: Term) -> Term | None:
        if n.op != "ref":
            return None
        if n.attr not in chain.finals:
            raise InputError(
                f"reduction '{reduction.name}' reads '{n.attr}', which is not an earlier reduction"
            )
        for i in n.args:
            if i.op != "index" or i.attr in chain.facts.folded:
                raise chain.fail(
                    "re-basing",
                    n,
                    "it reads the reduction at another position than its own",
                    "read it at the position of the result, or split the loop here",
                )
        return _at(chain.finals[n.attr], n.args)

    body, own = chain.clean(reduction.body)
    read = {rewrite(r, rule): r for r in own}
    chain.own_guards = {
        r: substitute(own[first], {first: r}) for r, first in read.items()
        if r.op == "ref" or first.op != "ref"
    }  # fmt: skip
    return rewrite(body, rule)


def _at(final: Term, position: tuple[Term, ...]) -> Term:
    def rule(n: Term) -> Term | None:
        return term("ref", position, n.attr, n.dtype) if n.op == "ref" and not n.args else None

    return rewrite(final, rule)
