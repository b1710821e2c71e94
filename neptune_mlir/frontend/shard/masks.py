# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The conditions on positions without which a split program adds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.masks import Linear, conjuncts, constraints
from neptune_mlir.analysis.neutral import OddValues, settle
from neptune_mlir.runtime.shards.layout import Form, Masks
from neptune_mlir.runtime.shards.plan import START

if TYPE_CHECKING:
    from neptune_mlir.frontend.shard.split import ShardSplit


def masks_of(split: ShardSplit) -> Masks:
    """The affine conditions on positions without which nothing is added to any part."""
    sharded = _sharded(split)
    needed = conditions_of(split)
    forms = tuple(_form(split, f, sharded) for own in needed.values() for f in own)
    return Masks(forms, is_movable(split, list(needed)))


def conditions_of(split: ShardSplit) -> dict[Term, list[Linear]]:
    """These conditions, as terms of the program on pieces, and what each says: forms >= 0."""
    sharded, found = _sharded(split), dict[Term, list[Linear]]()
    for _, body in _bodies(split):
        for node in T.walk(body):
            if node.op == "select" and _positional(node.args[0], sharded):
                parts = [constraints(c) for c in conjuncts(node.args[0])]
                if all(p is not None for p in parts):
                    found[node.args[0]] = [f for p in parts for f in p or ()]
    return {c: forms for c, forms in found.items() if _is_needed(split, c)}


def _sharded(split: ShardSplit) -> dict[int, str]:
    numbers = {a.name: a.number for a in split.program.axis_list}
    return {numbers[name]: name for name in split.axes}


def _bodies(split: ShardSplit) -> Iterator[tuple[str, Term]]:
    for found in split.partials.values():
        for step in found.steps:
            yield step.combiner, step.body


def _positional(condition: Term, sharded: dict[int, str]) -> bool:
    kinds = {n.op for n in T.walk(condition) if n.is_leaf}
    return kinds <= {"index", "sym", "const"} and condition.axes <= sharded.keys()


def _is_needed(split: ShardSplit, condition: Term) -> bool:
    """Whether every body is the identity of its combiner where the condition fails."""
    fixed = {condition: T.const(False, "i1")}
    for combiner, body in _bodies(split):
        value = settle(body, fixed, OddValues(()))
        if not value.is_const or value.value != lookup(combiner).identity_on(value.dtype):
            return False
    return True


def is_movable(split: ShardSplit, conditions: list[Term]) -> bool:
    """Whether positions matter to nothing but these conditions."""
    fixed = {c: T.const(True, "i1") for c in conditions}
    starts = {p.name for p in split.positions if p.kind == START}
    local = split.local
    terms = [*(s.body for s in local.steps), *(o.term for o in local.outputs)]
    left = (T.rewrite(t, fixed.get) for t in terms)
    return not any(n.op == "sym" and n.attr in starts for t in left for n in T.walk(t))


def _form(split: ShardSplit, form: Linear, sharded: dict[int, str]) -> Form:
    positions = {p.name: p for p in split.positions}
    of_axis: dict[str, int] = {}
    of_start: dict[str, int] = {}
    of_size: dict[str, int] = {}
    known = True
    for atom, c in form.ordered():
        if atom.op == "index":
            of_axis[sharded[atom.attr]] = c
        elif atom.op == "sym" and atom.attr in positions:
            p = positions[atom.attr]
            (of_start if p.kind == START else of_size)[p.axis] = c
        else:
            known = False
    return Form(form.constant, of_axis, of_start, of_size, known)
