# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rolling-update`: fuse dependent reductions over one axis into a `neptune.stream`.

Each later reduction reads the *running* value of the earlier ones, and what it accumulated
under an old value is repaired by `neptune.correct` (paper, Algorithm 1):

    m = reduce max [i, j] x[i, j]                 stream over j:
    l = reduce add [i, j] exp(x[i, j] - m[i])       m  = accumulate max x            from m0
                                            ->      lc = correct l0 (m0 -> m): a * exp(m0 - m)
                                                    l  = accumulate add exp(x - m)   from lc

The pass first brings the program into the form that fusion starts from (`PREPARE`). What
fuses is `fusion_plan`; here the streams are written. A chain without a correction stays
apart, with a remark that says why.
"""

from __future__ import annotations

import re
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.contractions import contraction_operands, inside_casts
from neptune_mlir.algebra.corrections.lazy import lazily
from neptune_mlir.algebra.numerics.stress import Report
from neptune_mlir.algebra.operators import COSTLY
from neptune_mlir.algebra.proofs.proof import PROVED, REFUTED, UNPROVED
from neptune_mlir.algebra.solver import (
    Running,
    Solution,
    acc,
    new,
    old,
)
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import DERIVATION, INNER, PROOF, RUNNING, TESTED
from neptune_mlir.dialects.nests import DYNAMIC, reference
from neptune_mlir.dialects.op_names import STREAM
from neptune_mlir.dialects.program import (
    NestProgram,
    cast,
    erase_dead,
    fold_dims,
    functions,
    numerics_of,
    sort_block,
)
from neptune_mlir.errors import ScheduleError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.fusion.factors_ahead import store_factors, take_ahead
from neptune_mlir.transforms.fusion.groups import Group
from neptune_mlir.transforms.fusion.plan import outputs_of, plan_fusions
from neptune_mlir.transforms.fusion.region import (
    FusedRegion,
    produce,
)
from neptune_mlir.transforms.fusion.sums_in_parts import sum_in_parts
from neptune_mlir.transforms.registry import register, remark


def shared_terms(solution: Solution) -> set[Term]:
    """Subterms worth a tensor of their own inside the stream.

    The operands of contractions (so that a matrix instruction can take them), whole
    reduction bodies that another reduction computes as well, and in the operands of contractions
    what takes a division or a function of tensors from outside and varies along fewer axes.
    """
    wanted: set[Term] = set()
    for running in solution.running:
        operands = contraction_operands(running.body) if running.combiner == "add" else None
        for operand in operands or ():
            stored = inside_casts(operand)
            if stored.op != "read":
                wanted.add(stored)
                wanted |= _fewer_times(stored)
    bodies = [r.body for r in solution.running if not inside_casts(r.body).is_leaf]
    for body in bodies:
        uses = sum(body in set(T.walk(r.body)) for r in solution.running)
        if uses > 1:
            wanted.add(body)
    return wanted


def _fewer_times(operand: Term) -> set[Term]:
    """The largest subterms with a costly operator, over no running value, that a term over more
    axes reads."""
    found = set()
    costly: set[Term] = set()
    for n in T.walk(operand):
        by_number = n.op == "div" and n.args[1].is_const
        if not n.has_ref and (
            (n.op in COSTLY and not by_number) or any(a in costly for a in n.args)
        ):
            costly.add(n)
        found |= {a for a in n.args if a in costly and a.axes < n.axes and T.is_float(a.dtype)}
    return found


def proof_status(solution: Solution) -> str:
    """"proved", or what stands in the way: "unproved" or "refuted"."""
    statuses = {o.status for o in solution.obligations}
    return REFUTED if REFUTED in statuses else UNPROVED if UNPROVED in statuses else PROVED


def derivation(
    solution: Solution, names: list[str], report: Report | None, scalars: dict[str, str]
) -> list[str]:
    """How the corrections were found, each obligation and how it was discharged, and what the
    stress test said (errors are left out: their last digits are the machine's).

    `names` are the axes', which the algebra knows by number; `scalars` what people call some
    scalars.
    """
    tested = "no stress test: numerics=fast"
    if report is not None:
        tested = (
            f"right in floats on {report.runs} inputs that hurt: at most twice the error of the "
            "program as written, NaN and infinities where it has them"
        )
    lines = [*solution.steps, *(str(o) for o in solution.obligations), tested]
    # an axis is written i0, i1, ...; a conversion i32(...)
    lines = [re.sub(r"\bi(\d+)\b(?!\()", lambda m: names[int(m[1])], line) for line in lines]
    return [re.sub(r"\bv\d+\b", lambda m: scalars.get(m[0], m[0]), line) for line in lines]


def extents_read(program: NestProgram, solution: Solution) -> dict[str, str]:
    """The extents of arguments that obligations speak of, as people write them."""
    found = {}
    sides = [side for o in solution.obligations for side in (o.left, o.right)]
    for sym in {leaf.attr for side in sides for leaf in T.leaves(side, "sym")}:
        owner = program.values[sym].owner if sym in program.values else None
        if getattr(owner, "name", None) != "tensor.dim":
            continue
        tensor, dim = owner.operands
        if getattr(dim.owner, "name", None) == "arith.constant":
            number = dim.owner.attributes["value"].value
            found[sym] = f"{program.values.key(tensor)}.shape[{number}]"
    return found


class StreamBuilder:
    """Writes one `neptune.stream` for a group and its solution, before `anchor`."""

    def __init__(
        self,
        program: NestProgram,
        group: Group,
        solution: Solution,
        report: Report | None,
        anchor: Any,
    ):
        self.program = program
        self.values = program.values
        self.group = group
        self.solution = solution
        self.report = report
        self.anchor = anchor
        self.result_axes = {r.name: self._result_axes(r) for r in solution.running}
        self.reduced = {r.name: self._reduced(r) for r in solution.running}

    def _result_axes(self, running: Running) -> tuple[int, ...]:
        loops = self.group.running.get(running.name)
        if loops is None:  # an accumulator that the solver added
            return running.axes
        return self.group.result_axes(self.program.nests[running.name], loops)

    def _reduced(self, running: Running) -> tuple[int, ...]:
        loops = self.group.running.get(running.name)
        if loops is None:
            return running.folded
        return tuple(loops[k] for k in self.program.nests[running.name].reduced_axes)

    def build(self) -> None:
        group, program = self.group, self.program
        outputs = outputs_of(program, group)
        dynamic = [a.extent for a in group.axes if a.size == DYNAMIC]
        names = _axis_names(group)
        scalars = extents_read(program, self.solution)
        location = program.values[next(reversed(group.running))].owner.location
        with ir.InsertionPoint(self.anchor), location:
            # A member may know less of an extent than the axis that it became.
            types = [self._type(key) for key in outputs]
            stream = ir.Operation.create(
                STREAM,
                results=types,
                operands=dynamic,
                attributes={
                    "domain": ir.DenseI64ArrayAttr.get([a.size for a in group.axes]),
                    "axis_names": ir.ArrayAttr.get([ir.StringAttr.get(n) for n in names]),
                    "axis": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), group.stream),
                    "resultSegmentSizes": ir.DenseI32ArrayAttr.get(
                        N.segment_sizes(len(types))
                    ),
                    **PROOF.entry(proof_status(self.solution)),
                    **DERIVATION.entry(derivation(self.solution, names, self.report, scalars)),
                    **RUNNING.entry([r.name for r in self.solution.running]),
                },
                regions=3,
            )
            running_types = [
                FusedRegion(self.values, group.axes).type(self.result_axes[r.name], r.dtype)
                for r in self.solution.running
            ]
            locations = [location] * len(running_types)
            body = stream.regions[0].blocks.append(*running_types, arg_locs=locations)
            with ir.InsertionPoint(body):
                self._write_body(stream, list(body.arguments))
            finish = stream.regions[1].blocks.append(*running_types, arg_locs=locations)
            with ir.InsertionPoint(finish):
                self._write_finish(list(finish.arguments), outputs)
            for key, result in zip(outputs, stream.results, strict=True):
                member = program.values[key]
                member.replace_all_uses_with(cast(result, member.type))
                program.values.rebind(key, result)  # what later streams read

    def _type(self, key: str) -> Any:
        nest = self.program.nests[key]
        axes = self.group.result_axes(nest, self.group.loops(key))
        return FusedRegion(self.values, self.group.axes).type(axes, nest.dtype)

    def _inner_nests(self, region: FusedRegion, needed: set[str]) -> dict[str, Term]:
        """Compute the inner members that `needed` names (and what they need), once each."""
        for key in reversed(self.program.nests):
            if key in needed and key in self.group.inner:
                needed |= {r.attr for r in self.program.reads_of(key)}
        made: dict[str, Term] = {}
        for key, loops in ((k, self.group.inner[k]) for k in self.program.nests
                           if k in self.group.inner and k in needed):
            nest = self.program.nests[key]
            body = self._reading(self.group.term(nest, loops), made)
            region._wanted |= _contraction_wants(nest.combiner, body)
            body = region.materialised(body, nest.location)
            axes = self.group.result_axes(nest, loops)
            reduced = [loops[k] for k in nest.reduced_axes]
            value = region.reduce(nest.combiner, body, axes, reduced=reduced, loc=nest.location)
            made[key] = region.read(value, axes, nest.dtype, hint=key)
        return made

    def _reading(self, term: Term, made: dict[str, Term]) -> Term:
        """Reads of inner members become reads of the tensors made in this region."""

        def rule(node: Term) -> Term | None:
            if node.op == "read" and node.attr in made:
                return T.term("read", node.args, made[node.attr].attr, node.dtype)
            return None

        return T.rewrite(term, rule)

    def _write_body(self, stream: Any, arguments: list[Any]) -> None:
        bodies = [r.body for r in self.solution.running]
        region = FusedRegion(self.values, self.group.axes, ())
        inner = self._inner_nests(
            region, {r.attr for b in bodies for r in T.leaves(b, "read")} & set(self.group.inner)
        )
        INNER.set(stream, list(inner))
        before: dict[str, Term] = {}
        for running, argument in zip(self.solution.running, arguments, strict=True):
            axes = self.result_axes[running.name]
            before[running.name] = region.read(argument, axes, running.dtype, hint="old")
        # Later bodies read the new running values; their keys are chosen now so that equal
        # subterms of different bodies stay equal.
        after: dict[str, Term] = {}
        for running in self.solution.running:
            key = f"new.{before[running.name].attr}"
            after[running.name] = T.read(key, *before[running.name].args, dtype=running.dtype)

        def running_value(node: Term) -> Term | None:
            if node.op == "ref" and node.attr in after:
                return after[node.attr]
            return None

        region._wanted |= {
            T.rewrite(self._reading(t, inner), running_value)
            for t in shared_terms(self.solution)
        }
        results = []
        for running, argument in zip(self.solution.running, arguments, strict=True):
            nest = self.program.nests.get(running.name)
            loc = nest.location if nest else None
            body = T.rewrite(self._reading(running.body, inner), running_value)
            body = region.materialised(body, loc)
            init = argument
            if running.correction is not None:
                init = self._corrected(region, running, before, after, loc)
            value = region.reduce(
                running.combiner, body, self.result_axes[running.name],
                reduced=self.reduced[running.name], init=init, loc=loc,
            )  # fmt: skip
            self.values.bind(after[running.name].attr, value)
            results.append(value)
        produce(results)

    def _corrected(
        self, region: FusedRegion, running: Running, before: dict[str, Term],
        after: dict[str, Term], loc: Any,
    ) -> Any:  # fmt: skip
        correction = running.correction
        assert correction is not None
        table: dict[Term, Term] = {}
        accumulators = [before[running.name]]
        for name in before:
            table[acc(name, dtype=before[name].dtype)] = before[name]
            table[old(name, dtype=before[name].dtype)] = reference("old", before[name])
            table[new(name, dtype=before[name].dtype)] = reference("new", after[name])
        used = set(T.walk(correction.h))
        accumulators += [
            before[name] for name in before
            if name != running.name and acc(name, dtype=before[name].dtype) in used
        ]
        references = list(correction.references)
        return region.correct(
            T.substitute(correction.h, table),
            accumulators,
            [reference("old", before[name]) for name in references],
            [reference("new", after[name]) for name in references],
            correction.form,
            self.result_axes[running.name],
            loc,
        )

    def _write_finish(self, arguments: list[Any], outputs: list[str]) -> None:
        region = FusedRegion(self.values, self.group.axes, ())
        final = {
            r.name: region.read(a, self.result_axes[r.name], r.dtype, hint="final")
            for r, a in zip(self.solution.running, arguments, strict=True)
        }

        def value_of(key: str, idx: tuple[Term, ...]) -> Term:
            """The finished member `key` at `idx` (axes of the group), from the running values."""
            nest = self.program.nests[key]
            own = self.group.result_axes(nest, self.group.running[key])
            moved = {a: i for a, i in zip(own, idx, strict=True)}
            finished = T.rewrite(
                self.solution.finals[key],
                lambda n: final[n.attr] if n.op == "ref" else None,
            )
            return T.rename_axes(finished, moved)

        terms: dict[str, tuple[Term, tuple[int, ...]]] = {}
        for key in outputs:
            nest = self.program.nests[key]
            loops = self.group.loops(key)
            axes = self.group.result_axes(nest, loops)
            if key in self.group.running:
                terms[key] = value_of(key, tuple(T.index(a) for a in axes)), axes
            else:
                terms[key] = T.rewrite(
                    self.group.term(nest, loops),
                    lambda n: value_of(n.attr, n.args)
                    if n.op == "read" and n.attr in self.group.running else None,
                ), axes  # fmt: skip
        needed = {r.attr for t, _ in terms.values() for r in T.leaves(t, "read")}
        inner = self._inner_nests(region, needed & set(self.group.inner))
        results = []
        for key in outputs:
            term, axes = terms[key]
            term = self._reading(term, inner)
            if term.op == "read" and term.args == tuple(T.index(a) for a in axes):
                results.append(self.values[term.attr])
            else:
                results.append(region.map(term, axes, self.program.nests[key].location))
        produce(results)


def _contraction_wants(combiner: str | None, body: Term) -> set[Term]:
    operands = contraction_operands(body) if combiner == "add" else None
    return {s for o in operands or () if (s := inside_casts(o)).op != "read"}


def _axis_names(group: Group) -> list[str]:
    """The program's names where it gives them, letters in axis order otherwise; all distinct."""
    names: list[str] = []
    fresh = (c for c in "ijklmnopqrstuvwxyzabcdefgh")
    for axis in group.axes:
        name = axis.name if axis.name and axis.name not in names else None
        while name is None or name in names:
            name = next(fresh)
        names.append(name)
    return names


def fuse_function(
    function: Any, rescale_bound: float = 0.0, ahead: bool = False, alone: bool = False
) -> None:
    fold_dims(function.regions[0].blocks[0])
    erase_dead(function.regions[0].blocks[0])  # nests of which only the extents were read
    program = NestProgram(function)
    if ahead:
        take_ahead(program)
        program = NestProgram(function)
    if sum_in_parts(program):
        program = NestProgram(function)
    plan = plan_fusions(program, numerics_of(function), alone=alone)
    if store_factors(program, {key for fusion in plan for key in fusion.group.inner}):
        sort_block(program.block)
        erase_dead(program.block)
        program = NestProgram(function)
        plan = plan_fusions(program, numerics_of(function), alone=alone)
    for fusion in plan:
        group, solution = fusion.group, fusion.solution
        if rescale_bound:
            solution = lazily(solution, rescale_bound)
        StreamBuilder(program, group, solution, fusion.report, fusion.last).build()
        remark(fusion.location, _summary(group, solution))
    if TESTED.on(function.operation):
        TESTED.drop(function.operation)
    sort_block(program.block)
    erase_dead(program.block)


def _summary(group: Group, solution: Solution) -> str:
    parts = []
    for running in solution.running:
        how = f" corrected ({running.correction.form})" if running.correction else ""
        added = "" if running.name in group.running else ", added by the solver"
        parts.append(f"{running.combiner}{how}{added}")
    name = _axis_names(group)[group.stream]
    return f"fused {len(group.running)} reductions into one pass over '{name}': {'; '.join(parts)}"


@register(
    "rolling-update", "fuse dependent reductions into streams, with corrections",
    after=("raise-linalg", "widen-sums", "inline-maps", "defer"),
)  # fmt: skip
def rolling_update(
    module: Any, *, rescale_bound: float = 0.0, ahead: bool = False, alone: bool = False
) -> None:
    """
    Args:
        rescale_bound: over 0, references of exponentials may lag by less than this, so that
            most corrections are the identity (`algebra.corrections.lazy`); results stay exact.
        alone: also make streams of long reductions that share a loop with nothing, for schedules
            that cut streams into chunks.
    """
    if rescale_bound < 0:
        raise ScheduleError(f"the rescale bound is {rescale_bound:g}", hint="0 or more")
    for function in functions(module):
        fuse_function(function, rescale_bound, ahead, alone)
