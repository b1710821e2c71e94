# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What rolling update will fuse: groups of reductions, each with a solved chain.

Which reductions can share a loop is `groups.py`; whether there is a correction, and
which, is `algebra.solver`. A reduction that the solver refuses is kept out of the group, and
the rest is tried again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.contractions import contraction_operands
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.numerics.accept import (
    Definition,
    TestedChain,
    accept,
    length_of,
    worse_result,
)
from neptune_mlir.algebra.numerics.alike import digest
from neptune_mlir.algebra.numerics.stress import Report
from neptune_mlir.algebra.shared_differences import TOGETHER, keep_apart, taken_along
from neptune_mlir.algebra.solver import Reduction, Solution, Unsolvable
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import APART, TESTED
from neptune_mlir.dialects.neptune import MAX_VALUES
from neptune_mlir.dialects.nests import DYNAMIC, Nest
from neptune_mlir.dialects.program import NestProgram, precision_of, top_level_op
from neptune_mlir.transforms.fast_paths import FUSED, missed
from neptune_mlir.transforms.fusion.common_roundings import refuse_seen_rounded
from neptune_mlir.transforms.fusion.groups import Group, Grouping
from neptune_mlir.transforms.fusion.written import Written
from neptune_mlir.transforms.registry import remark

# Reductions of a chain that does not fuse up to which what moved in it is tested: the others are
# tested in the shorter chains that are tried after it.
AT_MOST = 4
LONG_STREAM = 1024  # reduced elements per result from which a cut can pay for its join


@dataclass(frozen=True)
class Fusion:
    """One stream to be: its members, the chain that they form, and the chain's solution."""

    group: Group
    chain: tuple[Reduction, ...]
    solution: Solution
    last: Any  # the op of the block behind which nothing of the group comes
    location: Any
    outputs: dict[str, Term]  # what the stream gives, over its reductions
    nonneg: frozenset[str]  # what it reads that is never negative
    report: Report | None  # of the stress test, where that was asked
    content: str  # what chains that are alike have in common (`alike.digest`)
    definition: Definition  # what it was compared with, where that is known


def chain_of(program: NestProgram, group: Group) -> list[Reduction]:
    """The group's running members as the solver sees them: reads of each other are refs."""
    chain = []
    for key in program.nests:
        if key in group.running:
            nest = program.nests[key]
            body = _over_refs(group, group.term(nest, group.running[key]))
            axes = group.result_axes(nest, group.running[key])
            chain.append(Reduction(key, nest.combiner, body, nest.dtype, tuple(sorted(axes))))
    return chain


def _over_refs(group: Group, term: Term) -> Term:
    def rule(node: Term) -> Term | None:
        if node.op == "read" and node.attr in group.running:
            return T.ref(node.attr, *node.args, dtype=node.dtype)
        return None

    return T.rewrite(term, rule)


def outputs_of(program: NestProgram, group: Group) -> list[str]:
    """Keys of what a stream must give: absorbed maps, and members used elsewhere."""
    block = program.block
    members = (*group.finish, *group.running, *group.inner)
    inside = {program.nests[k].op.operation for k in members}
    outputs = []
    for key in program.nests:
        if key in group.finish:
            outputs.append(key)
        elif key in group.running:
            users = [top_level_op(use.owner, block) for use in program.values[key].uses]
            if any(user not in inside for user in users):
                outputs.append(key)
    return outputs


def _results_of(program: NestProgram, group: Group) -> dict[str, Term]:
    """What a stream gives, over its reductions."""
    found = {}
    for key in outputs_of(program, group):
        nest = program.nests[key]
        if key in group.running:
            found[key] = T.ref(key, dtype=nest.dtype)
        else:
            found[key] = _over_refs(group, group.term(nest, group.finish[key]))
    return found


def _nonneg(program: NestProgram) -> set[str]:
    """Reductions of what is never negative, which others read."""
    facts = Facts(frozenset())
    return {
        key for key, nest in program.nests.items()
        if nest.kind == "reduce" and T.is_float(nest.dtype) and facts.sign(nest.body) == 1
    }  # fmt: skip


def _too_many(chain: Sequence[Reduction], solution: Solution) -> tuple[str, str]:
    """The reduction with which a stream carries more than it can, and why; or nothing."""
    count, last = len(solution.running), chain[-1].name
    if len(chain) == 1 or count <= MAX_VALUES:
        return "", ""
    return last, f"with '{last}' the stream has {count} running values, and can have {MAX_VALUES}"


def plan_fusions(
    program: NestProgram, numerics: str = "default", written: Written | None = None,
    alone: bool = False,
) -> list[Fusion]:  # fmt: skip
    """Every fusion of a program, those of most reductions first, among equals consumers first.

    So a projection that follows attention does not take the last reduction of it away. Changes
    nothing; remarks on what cannot fuse.

    Args:
        numerics: one of `algebra.rules.MODES`.
        written: what the program was before factors moved behind reductions, to compare with;
            reductions whose factors cost too many digits are added to its `refused`.
        alone: also streams of one reduction of LONG_STREAM elements and more.
    """
    stored: set[str] = set()
    while True:
        plan = _plan(program, numerics, stored, written, alone)
        again = _stored_anyway(program, plan)
        if not again:
            return plan
        stored |= again


def _stored_anyway(program: NestProgram, plan: list[Fusion]) -> set[str]:
    """Reductions of which streams have copies, and that something else reads from memory."""
    inside = {
        program.nests[k].op.operation: f.group for f in plan
        for k in (*f.group.running, *f.group.finish)
    }  # fmt: skip
    found = set()
    for key in {k for f in plan for k in f.group.copied}:
        users = {top_level_op(use.owner, program.block) for use in program.values[key].uses}
        groups = [inside.get(user) for user in users]
        if any(g is None or key not in g.inner for g in groups):
            found.add(key)
    return found


@dataclass(frozen=True)
class _Planned:
    """A group as `accept` sees it: what it computes, what it computed before factors moved, where
    that is known, and what chains that are alike have in common."""

    group: Group
    nonneg: frozenset[str]
    form: Definition
    before: Definition | None
    content: str
    length: int


def _planned(
    program: NestProgram, group: Group, nonneg: frozenset[str], written: Written | None
) -> _Planned:
    chain, outputs = chain_of(program, group), _results_of(program, group)
    form = Definition(tuple(chain), tuple(outputs.items()))
    before = written.definition(program, group, form) if written else None
    content = digest(chain, group.stream, outputs, nonneg)
    length = length_of(chain, outputs, group.axes[group.stream].size)
    return _Planned(group, nonneg, form, before, content, length)


def _accept(
    program: NestProgram, planned: _Planned, numerics: str, tested: Mapping[str, TestedChain],
    written: Written | None,
) -> tuple[Solution, Report | None]:  # fmt: skip
    """The form of a chain; what was said of it is noted in `written`. Raises Unsolvable."""
    if numerics != "fast":
        refuse_seen_rounded(program, planned.group)
    solution, report = accept(
        planned.form.chain, planned.group.stream, dict(planned.form.outputs),
        nonneg=planned.nonneg, numerics=numerics, written=planned.before,
        passed=tested.get(planned.content), length=planned.length,
    )  # fmt: skip
    if written and report:
        said = TestedChain(solution.empty_rows, report.runs)
        written.note(planned.group, planned.content, planned.before, said)
    return solution, report


def _blame(written: Written, planned: _Planned, reason: Unsolvable) -> None:
    """Refuse what moved in a group that is not as exact as it was: fused, or, where nothing fuses
    it for another reason, as it stands."""
    group, form, before = planned.group, planned.form, planned.before
    assert before is not None
    moved = written.moved_in(group)
    culprit = reason.reduction
    if reason.obligation != "accuracy":
        if len(form.chain) > AT_MOST or written.passed.issuperset(moved.values()):
            return
        worse = worse_result(
            form, before, group.stream, planned.nonneg, planned.length
        )
        if worse is None:
            written.passed.update(moved.values())
            return
        culprit = worse
    one = moved.get(culprit)
    written.refused.update([one] if one else moved.values())


def tested_in(function: Any) -> dict[str, TestedChain]:
    """What `defer` heard of chains whose definition is not in the program any more."""
    found = (text.split(maxsplit=1) for text in TESTED.find(function.operation, ()))
    return {content: TestedChain.of(said) for content, said in found}


def _keep_apart(program: NestProgram, grouping: Grouping) -> None:
    """Exclude what `defer` found to be wrong with the program fused: each such reduction from
    those that it needs, and that need it."""
    for key, nest in program.nests.items():
        reason = APART.find(nest.op.operation)
        if reason is None:
            continue
        missed(nest.location, FUSED, str(reason))
        related = grouping.needs.names(grouping.needs.of(key) | grouping.needs.on(key))
        keep_apart(grouping.excluded, {key}, related)


def _is_long(nest: Nest) -> bool:
    """Whether a reduction, of no product of matrices, is worth cutting into chunks."""
    if nest.combiner == "add" and contraction_operands(nest.body):
        return False
    reduced = [nest.domain[k] for k in nest.reduced_axes]
    return DYNAMIC in reduced or math.prod(reduced) >= LONG_STREAM


def _plan(
    program: NestProgram, numerics: str, stored: set[str], written: Written | None, alone: bool
) -> list[Fusion]:
    nonneg = frozenset(_nonneg(program))
    tested = tested_in(program.function)
    excluded: dict[str, set[str]] = {}
    plan: list[Fusion] = []
    grouping = Grouping(program, excluded, stored)
    _keep_apart(program, grouping)
    place = {op.operation: k for k, op in enumerate(program.block.operations)}
    seeds = [k for k, nest in program.nests.items() if nest.kind == "reduce"]
    seeds.sort(key=lambda k: (
        not grouping.meant_inside(k), len(group.running) if (group := grouping.best(k)) else 0
    ))  # fmt: skip
    while seeds:
        seed = seeds.pop()
        if seed in grouping.taken:
            continue
        group = grouping.best(seed)
        if group is None:
            continue
        nest = program.nests[seed]
        shares = len(group.running) + len(group.inner) + len(group.finish) > 1
        if not shares and not (alone and _is_long(nest)) and not _streams_alone(program, nest):
            continue
        planned = _planned(program, group, nonneg, written)
        try:
            solution, report = _accept(program, planned, numerics, tested, written)
            refused, why = _too_many(planned.form.chain, solution)
        except Unsolvable as reason:
            if written and planned.before:
                _blame(written, planned, reason)
            advice = f" ({reason.hint})" if reason.hint else ""
            refused, why = reason.reduction, f"{reason.message}{advice}"
        if refused:
            missed(program.nests[refused].location, FUSED, why)
            along = taken_along(planned.form.chain, refused, group.stream)
            for key in sorted(along):
                missed(program.nests[key].location, FUSED, f"'{key}': {TOGETHER} '{refused}'")
            if others := group.running.keys() - along - {refused}:
                keep_apart(excluded, along | {refused}, others)
                seeds.append(seed)
            continue
        members = [*group.running, *group.finish]
        last = max((program.nests[k].op for k in members), key=lambda op: place[op.operation])
        location = program.nests[seed].location
        form = planned.form
        plan.append(Fusion(
            group, form.chain, solution, last, location, dict(form.outputs), nonneg, report,
            planned.content, planned.before or form,
        ))  # fmt: skip
        grouping.fuse(group)
        for key, times in group.heavy.items():
            remark(
                program.nests[key].location,
                f"'{key}' is not fused with '{seed}': in one pass they would do {times:.1f} times "
                "the work",
            )
    return plan


def _streams_alone(program: NestProgram, nest: Nest) -> bool:
    """Whether a reduction that nothing shares a loop with is a stream all the same, so that its sum
    may be cut into chunks: a product of two matrices of f32 that is allowed matrix instructions,
    and all that a program reduces."""
    if not precision_of(program.function) or nest.combiner != "add" or nest.body.op != "mul":
        return False
    if sum(other.kind == "reduce" for other in program.nests.values()) > 1:
        return False
    factors = nest.body.args
    if any(f.op != "read" or f.dtype != "f32" for f in factors):
        return False
    left, right = map(T.axes_of, factors)
    return bool(left - right and right - left)
