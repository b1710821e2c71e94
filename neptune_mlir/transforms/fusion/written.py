# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chains as they were before factors moved behind their reductions, for the stress test.

    o' = Σ_j p_j v_j,  o = o' / l        is tested as         o = Σ_j (p_j / l) v_j

The first may overflow where the second does not, so a fused form of the first has to be compared
with the second (`accept.Definition`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Reduction
from neptune_mlir.algebra.numerics.accept import Definition, TestedChain
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import Nest
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.transforms.fusion.groups import Group

# Nodes of what was written up to which it is tested. In a long chain of norms each would be tested
# with the factors of all before it.
MOST = 512
SPELLED = 64  # maps that it spells out, each some nodes: more are not even spelled


class _TooLong(Exception):
    """What was written takes more than a test is to evaluate."""


@dataclass
class Written:
    """What the nests of a program were.

    Attributes:
        before: the body of every nest, before anything moved, over the keys of `moved`.
        rests: for each reduction that became a map behind another one, the key of the latter.
        moved: the program's nests afterwards, by the keys that they had then.
        keys: the keys in the program now of those of `moved` that are left, of tensors and numbers.
        refused: reductions from which nothing may move; whoever tests a chain adds to it.
        long: those of them whose definition is too long to be tested.
        passed: those that were as exact as before in some chain.
        tested: the chains that passed, by content (`alike.digest`).
        unknown: reductions in chains whose definition is not known as a whole.
    """

    before: Mapping[str, Term]
    rests: Mapping[str, str]
    moved: Mapping[str, Nest]
    keys: Mapping[str, str]
    refused: set[str] = field(default_factory=set)
    long: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    tested: dict[str, TestedChain] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._was = {now: key for key, now in self.keys.items()}
        self._of_rest = {self.keys[r]: k for k, r in self.rests.items() if r in self.keys}

    def was(self, key: str) -> str:
        """What a nest was called, or the reduction that it is what is left of."""
        return self._of_rest.get(key) or self._was[key]

    def moved_in(self, group: Group) -> dict[str, str]:
        """The reductions of a group of which a factor moved, and what they were called."""
        return {key: self._of_rest[key] for key in group.running if key in self._of_rest}

    def note(
        self, group: Group, content: str, definition: Definition | None, verdict: TestedChain
    ) -> None:
        """A chain passed, compared with its definition, or with itself where that is not known."""
        moved = self.moved_in(group)
        if moved and definition is not None:
            self.tested[content] = verdict
        elif moved:
            self.unknown |= set(moved.values())

    def definition(
        self, program: NestProgram, group: Group, form: Definition
    ) -> Definition | None:
        """What a group computes, as written; None where nothing in it moved, or where it now reads
        tensors that it did not read then (they would be other data), or needed then what is no
        part of it or comes behind it, or where it is so long that nothing may move.

        `form`: what it computes now.
        """
        moved = self.moved_in(group)
        if not moved:
            return None
        try:
            return self._definition(program, group, form, moved)
        except _TooLong:
            self.long |= set(moved.values())
            self.refused |= self.long
            return None

    def _definition(
        self, program: NestProgram, group: Group, form: Definition, moved: Mapping[str, str]
    ) -> Definition | None:
        results = [(key, self._result(program, group, moved, key)) for key, _ in form.outputs]
        as_written = self._chain(program, group, moved)
        # what is left of a reduction, where something else reads it as that
        terms = [t for _, t in results] + [r.body for r in as_written]
        read = {n.attr for t in terms for n in T.leaves(t, "ref")}
        chain = []
        for reduction in as_written:
            chain.append(reduction)
            rest = next((k for k, was in moved.items() if _alias(was) == reduction.name), None)
            if rest in read:
                nest, loops = program.nests[rest], group.running[rest]
                body = self._over_refs(group, group.term(nest, loops))
                chain.append(Reduction(rest, nest.combiner, body, nest.dtype, reduction.axes))
        found = Definition(tuple(chain), tuple(results))
        if found.nodes > MOST:
            raise _TooLong
        return found if found.is_complete and form.tensors <= found.tensors else None

    def _chain(
        self, program: NestProgram, group: Group, moved: Mapping[str, str]
    ) -> list[Reduction]:
        """The reductions of a group as they were written."""
        found = []
        for key in (k for k in program.nests if k in group.running):
            nest, loops = program.nests[key], group.running[key]
            axes = tuple(sorted(group.result_axes(nest, loops)))
            was = moved.get(key, self._was[key])
            name = _alias(was) if key in moved else key
            body = self._term(group, was, nest, loops)
            found.append(Reduction(name, nest.combiner, body, nest.dtype, axes))
        return found

    def _result(
        self, program: NestProgram, group: Group, moved: Mapping[str, str], key: str
    ) -> Term:
        """A result of a group as it was written."""
        nest, was = program.nests[key], self._was[key]
        if key in group.running:
            return T.ref(key, dtype=nest.dtype)
        if was in moved.values():
            return T.ref(_alias(was), dtype=nest.dtype)
        if was in self.rests:  # what is left of it is summed elsewhere
            return self._over_refs(group, group.term(nest, group.finish[key]))
        return self._term(group, was, nest, group.finish[key])

    def _term(self, group: Group, was: str, nest: Nest, loops: tuple[int, ...]) -> Term:
        """The body that a nest had, over the axes and the reductions of a group."""
        present = {r.attr for r in T.reads(nest.body)}
        body = self._now(group, self.before[was], present, {})
        return self._over_refs(group, group.term(replace(nest, body=body), loops))

    def _now(
        self, group: Group, body: Term, present: Collection[str], known: dict[Term, Term]
    ) -> Term:
        """A body over keys of before, over those of now; what a group does not compute as it was
        written is what it has become, read or spelled out as in the body of now, which reads what
        is `present`.

        `known`: what reads are, so far. Each map of a chain reads the ones before it: as a tree,
        their spelling doubles with each.
        """

        def rule(node: Term) -> Term | None:
            if node.op == "sym":
                return T.sym(self.keys.get(node.attr, _alias(node.attr)), node.dtype)
            if node.op != "read":
                return None
            if node not in known:
                known[node] = node  # it counts from now on: `read` goes on to those before it
                known[node] = read(node)
            return known[node]

        def read(node: Term) -> Term:
            key = node.attr
            if key in self.rests and self.keys.get(self.rests[key]) in group.running:
                return T.term("read", node.args, _alias(key), node.dtype)
            became = self.moved.get(key)
            is_map = became is not None and became.kind == "map"
            if key in self.keys and (not is_map or self.keys[key] in present):
                return T.term("read", node.args, self.keys[key], node.dtype)
            assert became is not None
            if len(known) > SPELLED:
                raise _TooLong
            at = {loop: node.args[dim] for dim, loop in enumerate(became.result_axes)}
            return self._now(group, T.rename_axes(became.body, at), present, known)

        return T.rewrite(body, rule)

    def _over_refs(self, group: Group, term: Term) -> Term:
        running = {*group.running, *(_alias(k) for k in self.moved_in(group).values())}

        def rule(node: Term) -> Term | None:
            if node.op == "read" and node.attr in running:
                return T.ref(node.attr, *node.args, dtype=node.dtype)
            return None

        return T.rewrite(term, rule)


def _alias(key: str) -> str:
    """The name of a reduction as it was written, beside what is left of it."""
    return f"{key} as written"
