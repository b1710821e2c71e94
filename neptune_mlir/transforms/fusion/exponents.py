# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What exponents are made of: there people have masks of the smallest float, and nowhere else.

Exponents are made of what their terms read, other than through a sum: of products of queries and
keys they are, of the queries they are not. There is one more: what is summed with weights that are
made of itself, through whatever sums, and that are hidden by a number, as in
softmax(where(m, x xᵀ, -1e9)) x. Hidden rows of x hold anything, the smallest float too. Their
weights are 0 in the end, but 1 until a fused loop has seen something that is not hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.numerics.stress_inputs import scores_of
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.moved import Moved, moved
from neptune_mlir.dialects.op_names import VIEWS
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.ir.bindings import ir

HIDDEN = -1e4  # people write this and less where nothing is to be seen


def exponents_of(program: NestProgram) -> frozenset[str] | None:
    """The tensors that no nest makes and that exponents are made of, as nests read them, and the
    arguments that these are under another shape or in another order. None where something that
    nobody can look through comes between."""
    flow = _Flow(program)
    scores = set().union(*(scores_of([n.body]) for n in program.nests.values()))
    reached = flow.roots(scores)
    if reached is None:
        return None
    reached = reached.union(*summed_with_own_weights(program).values())
    return frozenset(reached - flow.made)


def summed_with_own_weights(program: NestProgram) -> dict[str, set[str]]:
    """The sums of what their weights, exponentials of what a number hides, are made of, and the
    tensors that these are; where an op comes between that nobody can look through, all that it
    takes counts."""
    flow = _Flow(program)
    exponentials = {k: scores_of([n.body]) for k, n in program.nests.items()}
    found: dict[str, set[str]] = {}
    for key, nest in program.nests.items():
        if nest.combiner != "add":
            continue
        behind = flow.behind({key})
        scores = set().union(*(exponentials[k] for k in behind if k in exponentials))
        weights = flow.behind(scores)
        if not any(_hides(program.nests[k].body) for k in weights & program.nests.keys()):
            continue
        summed = flow.roots(_read_outside(nest.body), look_inside=False) or set()
        if both := summed & weights - flow.made:
            found[key] = both
    return found


def _hides(body: Term) -> bool:
    """Whether a term has a number that is used for what is not to be seen."""
    return any(n.is_const and T.is_float(n.dtype) and -math.inf < n.value <= HIDDEN
               for n in T.walk(body))  # fmt: skip


def _read_outside(body: Term) -> set[str]:
    """What a term reads, but for what it does to make exponentials."""
    outside = T.walk_outside(body, ("exp", "exp2", "read"))
    return {n.attr for n in outside if n.op == "read"}


class _Flow:
    """Which tensors others are made of; `made`: those that nests make, or what can be looked
    through."""

    def __init__(self, program: NestProgram):
        self.program = program
        self._moved: dict[str, Moved] = moved(program)
        self._nests = program.nests
        self.made = program.nests.keys() | self._moved.keys()

    def roots(self, keys: set[str], look_inside: bool = True) -> set[str] | None:
        """These, and all that they are made of other than through a sum; None where an op comes
        between that nobody can look through. `look_inside`: exponentials too; if not, such an op
        is made of what it takes."""

        def sources(key: str) -> set[str] | None:
            if key in self._nests:
                nest = self._nests[key]
                if nest.combiner == "add":
                    return set()
                return self._read(key) if look_inside else _read_outside(nest.body)
            return self._taken(key, known=look_inside)

        return _closure(keys, sources)

    def behind(self, keys: set[str]) -> set[str]:
        """These, and all that they are made of."""
        found = _closure(keys, lambda k: self._read(k) if k in self._nests else self._taken(k))
        assert found is not None
        return found

    def _read(self, key: str) -> set[str]:
        return {r.attr for r in T.reads(self._nests[key].body)}

    def _taken(self, key: str, known: bool = False) -> set[str] | None:
        """The tensors that an op takes which is no nest. `known`: None where nobody can look
        through it."""
        values = self.program.values
        owner = values[key].owner
        if isinstance(owner, ir.Block):
            return set()
        if key in self._moved:
            return self._moved[key].sources
        if known and owner.name not in VIEWS:
            return None
        return {values.key(v) for v in owner.operands if isinstance(v.type, ir.RankedTensorType)}


def _closure(
    keys: set[str], sources: Callable[[str], set[str] | None]
) -> set[str] | None:
    seen: set[str] = set()
    pending = set(keys)
    while pending:
        key = pending.pop()
        seen.add(key)
        more = sources(key)
        if more is None:
            return None
        pending |= more - seen
    return seen
