# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`verify-corrections`: prove every correction from the IR alone.

For each `neptune.stream` the pass reads back what is written there, whoever wrote it: the body
of each accumulation (f) and its correction (h), and discharges the obligations of
`algebra.proofs.proof`: re-basing, homomorphism, identity, composition. An accumulation without a
correction must not depend on a running value, or h = a must prove.

    option solver: "normal" compares normal forms; "z3" also asks z3 (extra `verify`) about what
    they leave open; "auto" (default) asks z3 when it is installed.

An obligation that is not proved stops the compilation with a located error. Nothing changes
in the IR.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.proofs.proof import PROVED, Obligation, acc, new, obligations, old
from neptune_mlir.algebra.proofs.smtlib import decide
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import Nest, Values, read_nest, tensor_key
from neptune_mlir.dialects.program import streams
from neptune_mlir.errors import FusionError, UsageError
from neptune_mlir.ir.bindings import location_text
from neptune_mlir.transforms.registry import register, remark


class StreamAlgebra:
    """The bodies and corrections of one stream as terms over its axes.

    Running value k is called `r<k>`; a body's references to running values are to the new ones.
    """

    def __init__(self, stream: Any):
        self.values = Values()
        block = stream.operation.regions[0].blocks[0]
        self.nests: dict[str, Nest] = {}
        for op in block.operations:
            if isinstance(op, N.NESTS):
                self.nests[self.values.key(op.operation.results[0])] = read_nest(op, self.values)
        produced = list(list(block.operations)[-1].operation.operands)
        self.accumulations = [self.nests[self.values.key(v)] for v in produced]
        self.new_of = {self.values.key(v): f"r{k}" for k, v in enumerate(produced)}
        self.old_of = {self.values.key(a): f"r{k}" for k, a in enumerate(block.arguments)}

    def body(self, index: int) -> Term:
        nest = self.accumulations[index]
        return self._over_axes(nest, nest.body)

    def _over_axes(self, nest: Nest, term: Term) -> Term:
        assert nest.axes is not None
        term = T.rename_axes(term, {k: T.index(a) for k, a in enumerate(nest.axes)})
        return T.rewrite(term, self._resolved)

    def _resolved(self, node: Term) -> Term | None:
        """Reads of running values become refs; reads of maps become what they compute."""
        if node.op != "read":
            return None
        if node.attr in self.new_of:
            return T.ref(self.new_of[node.attr], *node.args, dtype=node.dtype)
        nest = self.nests.get(node.attr)
        if nest is None or nest.kind != "map":
            return None
        assert nest.axes is not None
        at = {nest.axes[loop]: node.args[dim] for dim, loop in enumerate(nest.result_axes)}
        return T.rename_axes(self._over_axes(nest, nest.body), at)

    def correction(self, index: int) -> tuple[Term, Nest | None]:
        """h over `acc`, `old` and `new`; h = a where the stream repairs nothing."""
        nest = self.accumulations[index]
        name, init = f"r{index}", nest.init
        if init in self.old_of:
            return acc(name, nest.dtype), None
        found = self.nests[init or ""]
        # other reads are data that the stream does not change
        running = [r for r in found.accumulators if r.attr in self.old_of]
        table = {r: acc(self.old_of[r.attr], r.dtype) for r in running}
        table |= {r: old(self.old_of[tensor_key(r)], r.dtype) for r in found.old}
        table |= {r: new(self.new_of[tensor_key(r)], r.dtype) for r in found.new}
        return T.substitute(found.body, table), found

    def folded(self, index: int) -> frozenset[int]:
        nest = self.accumulations[index]
        assert nest.axes is not None
        return frozenset(nest.axes[k] for k in nest.reduced_axes)


def unguarded(term: Term, facts: Facts) -> Term:
    """Drop guards of references that have not moved from their identity yet.

    Until then nothing was accumulated, so both sides of every obligation are the identity
    whatever the guard puts in.
    """

    def rule(n: Term) -> Term | None:
        if n.op != "select" or n.args[0].op != "eq":
            return None
        left, right = n.args[0].args
        guarded = right.is_const and _is_unmoved(left, right.value, facts)
        return n.args[2] if guarded else None

    return T.rewrite(term, rule)


def _is_unmoved(t: Term, value: Any, facts: Facts) -> bool:
    """Whether a term has a value only where a reference in it still is its identity: the reference,
    or the larger of it and anything else, where nothing is less than the identity."""
    if t.op == "ref":
        return bool(facts.identity(t) == value)
    extreme = {"max": -math.inf, "min": math.inf}.get(t.op)
    return extreme == value and any(_is_unmoved(a, value, facts) for a in t.args)


def stream_obligations(stream: Any) -> list[tuple[Any, Obligation, Facts]]:
    """Every obligation of a stream, attempted by normal forms, with the op it is about."""
    algebra = StreamAlgebra(stream)
    count = len(algebra.accumulations)
    facts = Facts(frozenset({stream.axis.value}))
    bodies: dict[str, Term] = {}
    hs: dict[str, Term] = {}
    blame: dict[str, Any] = {}
    for k in range(count):
        nest = algebra.accumulations[k]
        body = unguarded(algebra.body(k), facts)
        h, correction = algebra.correction(k)
        facts.learn(f"r{k}", nest.combiner or "", body)
        bodies[f"r{k}"], hs[f"r{k}"] = body, h
        blame[f"r{k}"] = (correction or nest).op
    found = []
    for k in range(count):
        name = f"r{k}"
        hs[name] = unguarded(hs[name], facts)
        own = Facts(algebra.folded(k), facts.combiner, facts.nonneg, facts.bounded_below,
                    facts.growing)  # fmt: skip
        if not T.leaves(bodies[name], "ref") and hs[name].op == "ref":
            continue  # an ordinary reduction
        normal = Normaliser(own, reals=True)
        normal.dtype = bodies[name].dtype
        combiner = algebra.accumulations[k].combiner or ""
        proof = obligations(normal, name, combiner, bodies, hs)
        found += [(blame[name], o, own) for o in proof.obligations]
    return found


def verify_stream(stream: Any, ask_z3: bool) -> int:
    """Prove all obligations of a stream; returns how many. Raises FusionError."""
    found = stream_obligations(stream)
    for op, obligation, facts in found:
        why = obligation.by
        if obligation.status != PROVED and ask_z3:
            verdict = decide(obligation, facts)
            if verdict.status == PROVED:
                continue
            why = verdict.model or why
        if obligation.status != PROVED:
            raise FusionError(
                f"correction not proved: {obligation}" + (f"; {why}" if why else ""),
                loc=location_text(op.operation.location),
                hint="this correction would give wrong results; take it out or mend its region",
            )
    return len(found)


@register("verify-corrections", "prove every correction from the IR, or stop")
def verify_corrections(module: Any, *, solver: str = "auto") -> None:
    if solver not in ("auto", "normal", "z3"):
        raise UsageError(f"no solver '{solver}'", hint="auto, normal or z3")
    installed = importlib.util.find_spec("z3") is not None
    ask_z3 = solver == "z3" or (solver == "auto" and installed)
    for stream in streams(module):
        count = verify_stream(stream, ask_z3)
        remark(stream.operation.location, f"{count} obligations proved")
