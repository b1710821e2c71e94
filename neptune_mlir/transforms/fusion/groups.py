# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which reductions can share one loop nest, and how their loops line up.

A group grows from one reduction (the seed) and one of its reduced loops, the *stream*:

* a reduction whose finished value a member reads joins as a *running* member, when one of
  its own reduced loops has the stream's extent;
* a reduction that a member reads element by element along the stream (attention's scores)
  joins as an *inner* member, computed per tile, when that repeats no work and saves a tensor
  larger than what it is made of; where other groups read it too, each may compute it again
  (a backward pass reads the scores in three streams);
* a reduction that reads the same inner member or the same tensor along the stream, or that an
  elementwise nest reads together with a member, joins as a running member too;
* an elementwise nest over the results joins the *finish*.

Nothing may leave the group and come back (convexity): then the nests would need each other. What
would multiply the work of the group stays apart (`work.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import lookups
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.dependencies import Dependencies
from neptune_mlir.dialects.neptune import MAX_VALUES
from neptune_mlir.dialects.nests import DYNAMIC, Nest
from neptune_mlir.dialects.program import ExtentClasses, NestProgram, top_level_op
from neptune_mlir.transforms.fusion.work import MOST, Work, pieces, repetition, stacked

# Terms of a sum that each stream which reads it may compute again. The stream's own product does as
# much for every element: a store and loads of the elements cost less time, and memory without end.
MAX_REPEATED = 512


@dataclass
class FusedAxis:
    """One axis of a fused domain: static size or DYNAMIC with its extent value."""

    size: int
    extent: Any | None
    name: str | None = None


@dataclass
class Group:
    """Members by key, each with the fused axis of each of its loops."""

    axes: list[FusedAxis]
    stream: int
    running: dict[str, tuple[int, ...]] = field(default_factory=dict)
    inner: dict[str, tuple[int, ...]] = field(default_factory=dict)
    finish: dict[str, tuple[int, ...]] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)  # axes that separate programs, for some member
    folded: set[int] = field(default_factory=set)  # that members reduce, but for the stream
    copied: set[str] = field(default_factory=set)  # inner ones that others read as well
    members: int = 0  # those but for the finish, the nests that they need, and those that need
    before: int = 0  # some of them: sets (see `Dependencies`)
    after: int = 0
    near: int = 0  # nests that may join for what they read
    heavy: dict[str, float] = field(default_factory=dict)  # stayed apart: times the work otherwise

    def know(self, axis: int, size: int) -> None:
        """A loop that became this axis has this size: what one member knows all do."""
        if self.axes[axis].size == DYNAMIC and size != DYNAMIC:
            self.axes[axis] = FusedAxis(size, None, self.axes[axis].name)

    def __contains__(self, key: str) -> bool:
        return key in self.running or key in self.inner

    def loops(self, key: str) -> tuple[int, ...]:
        return self.running.get(key) or self.inner.get(key) or self.finish.get(key) or ()

    def term(self, nest: Nest, loops: tuple[int, ...]) -> Term:
        """The nest's body over the fused axes."""
        return T.rename_axes(nest.body, {k: T.index(a) for k, a in enumerate(loops)})

    def result_axes(self, nest: Nest, loops: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(loops[k] for k in nest.result_axes)


class Grouping:
    """Grows groups over the nests of one program.

    Args:
        excluded: pairs that the solver refused to fuse; the caller adds to it.
        stored: reductions that go through memory anyway, so that no stream computes them again.
    """

    def __init__(
        self, program: NestProgram, excluded: dict[str, set[str]], stored: Collection[str] = ()
    ):
        self.program = program
        self.stored = stored
        self.taken: set[str] = set()  # nests that already belong to a fused op
        self._without_copy: dict[str, set[Any]] = {}  # ops that read one of which there are copies
        self.excluded = excluded
        self.classes = ExtentClasses(program)
        self.needs = Dependencies(program)
        self.reads = {key: program.reads_of(key) for key in program.nests}
        # A position has to be known before a tile is loaded: who makes them stays outside.
        self._looked_up = {r.attr for n in program.nests.values() for r in lookups(n.body)}
        self._maps = {n.op.operation for n in program.nests.values() if n.kind == "map"}
        self.readers: dict[str, list[str]] = {}  # of any tensor, in program order
        for key, nest in program.nests.items():
            for tensor in dict.fromkeys(r.attr for r in T.reads(nest.body)):
                self.readers.setdefault(tensor, []).append(key)

        reading = {tensor: self.needs.set_of(keys) for tensor, keys in self.readers.items()}
        self._alike: dict[str, int] = {}  # nests that read what a nest reads
        for key, nest in program.nests.items():
            found = 0
            for read in T.reads(nest.body):
                found |= reading[read.attr]
            self._alike[key] = found
        self._reductions = self.needs.set_of(
            key for key, nest in program.nests.items() if nest.kind == "reduce"
        )

    def fuse(self, group: Group) -> None:
        """The members are one op from now on, which has copies of those that others read."""
        members = {*group.running, *group.inner, *group.finish} - group.copied
        self.taken |= members
        inside = {self.program.nests[k].op.operation for k in [*group.running, *group.inner]}
        for key in group.copied:
            left = self._without_copy.setdefault(key, self._users(key) - self._maps)
            left -= inside
            if not left:
                self.taken.add(key)  # nobody reads it from memory
        self.needs.join(members)

    def best(self, seed: str) -> Group | None:
        """The group with the most members that grows from `seed`; of several, of most pieces."""
        nest, made = self.program.nests[seed], self.program.nests
        groups = [(self.grow(seed, loop), pieces(nest, loop, made)) for loop in nest.reduced_axes]
        ranks = [(len(g.running) + len(g.inner), n) for g, n in groups]
        return groups[ranks.index(max(ranks))][0] if groups else None

    def grow(self, seed: str, loop: int) -> Group:
        """The group of a seed and the loop that is its stream."""
        apart: set[str] = set()
        while True:
            group = self._grown(seed, loop, apart)
            shared = self._shared_inner(group)
            if not shared:
                self._absorb_maps(group)
                return group
            apart |= shared

    def _grown(self, seed: str, loop: int, apart: set[str]) -> Group:
        """`apart`: nests that are no inner members."""
        nest = self.program.nests[seed]
        group = Group([self._axis(nest, k) for k in range(len(nest.domain))], loop)
        group.running[seed] = tuple(range(len(nest.domain)))
        self._count_in(group, seed, inner=False)
        self._seed = (seed, loop)
        self._grid, self._apart = self._cut_axes(nest), apart
        while len(group.running) < MAX_VALUES and self._add_one(group):
            pass
        return group

    def _axis(self, nest: Nest, loop: int) -> FusedAxis:
        dynamic = [k for k, size in enumerate(nest.domain) if size == DYNAMIC]
        extent = nest.extents[dynamic.index(loop)] if loop in dynamic else None
        return FusedAxis(nest.domain[loop], extent, nest.names[loop] if nest.names else None)

    def _add_one(self, group: Group) -> bool:
        for reader in [*group.running, *group.inner]:
            for read in self.reads[reader]:
                if self._may_join(read.attr, group) and self._join_producer(group, reader, read):
                    return True
        siblings = group.near & self._reductions & ~group.members
        return any(
            self._may_join(key, group)
            and not self.meant_inside(key)
            and self._join_sibling(group, key)
            for key in self.needs.names(siblings)
        )

    def _near(self, member: str, inner: bool) -> int:
        """Nests that read what a member reads, or it itself if it is an inner one, or what a nest
        reads that reads a running member."""
        found = self._alike[member]
        if inner:
            return found | self.needs.set_of(self.readers.get(member, ()))
        for consumer in self.readers.get(member, ()):
            found |= self.needs.set_of(r.attr for r in self.reads[consumer])
        return found

    def _may_join(self, key: str, group: Group) -> bool:
        nest = self.program.nests[key]
        refused = self.excluded.get(key, set())
        return (
            nest.kind == "reduce"
            and key not in self._looked_up
            and key not in group
            and key not in self.taken
            and not any(member in refused for member in group.running)
        )

    def _join_producer(self, group: Group, reader: str, read: Term) -> bool:
        at = _axes_read(read, group.loops(reader))
        if at is None:
            return False
        nest = self.program.nests[read.attr]
        if group.stream in at:
            # Computing it for every tile of an axis that it does not carry would repeat work.
            known = dict(zip(nest.result_axes, at, strict=True))
            worthwhile = self._grid <= set(at) and _expands(nest) and read.attr not in self._apart
            worthwhile = worthwhile and not self._sums_what_streams_make(read.attr)
            return worthwhile and self._place(group, read.attr, known, inner=True)
        if reader in group.inner:
            return False
        known = dict(zip(nest.result_axes, at, strict=True))
        return self._place_running(group, read.attr, known)

    def _cut_axes(self, nest: Nest) -> set[int]:
        """Result axes of the seed that a schedule cuts into separate programs.

        All but the columns of a contraction (attention's value dimension): the factor that
        reads another reduction does not vary along them, so it is computed once for all.
        """
        axes, nests = set(nest.result_axes), self.program.nests
        dependent = [
            T.axes_of(f) for f in T.factors(nest.body)
            if self.needs.on_all(r.attr for r in T.reads(f) if r.attr in nests) & self._reductions
        ]  # fmt: skip
        return axes & set().union(*dependent) if dependent else axes

    def _join_sibling(self, group: Group, key: str) -> bool:
        nest = self.program.nests[key]
        for member in [*group.running, *group.inner]:
            # Both read the same tensor (or inner member) along the stream.
            known = self._shared_reads(group, member, nest)
            if known and group.stream in known.values():
                streamed = [k for k, a in known.items() if a == group.stream]
                if all(k in nest.reduced_axes for k in streamed) and self._place(
                    group, key, known, inner=False
                ):
                    return True
        for consumer in self.readers.get(key, ()):
            # An elementwise nest reads both.
            if self.program.nests[consumer].kind != "map":
                continue
            mine = [r for r in self.reads[consumer] if r.attr in group.running]
            other = [r for r in self.reads[consumer] if r.attr == key]
            if not mine:
                continue
            loops = self._loops_by_members(group, mine)
            if loops is None or any(i.op != "index" for i in other[0].args):
                continue
            known = {
                loop: loops[i.attr]
                for loop, i in zip(nest.result_axes, other[0].args, strict=True)
                if i.attr in loops
            }
            if self._place_running(group, key, known):
                return True
        return False

    def _shared_reads(self, group: Group, member: str, nest: Nest) -> dict[int, int] | None:
        """Loops of `nest` that read what `member` reads, by fused axis; None on conflict."""
        loops = group.loops(member)
        known: dict[int, int] = {}
        for mine in T.reads(self.program.nests[member].body):
            for other in T.reads(nest.body):
                if mine.attr != other.attr:
                    continue
                for a, b in zip(mine.args, other.args, strict=True):
                    if a.op == "index" and b.op == "index":
                        if known.setdefault(b.attr, loops[a.attr]) != loops[a.attr]:
                            return None
        # ... or the inner member itself
        if member in group.inner:
            result = group.result_axes(self.program.nests[member], loops)
            for other in T.reads(nest.body):
                if other.attr == member:
                    for b, axis in zip(other.args, result, strict=True):
                        if b.op == "index" and known.setdefault(b.attr, axis) != axis:
                            return None
        return known if len(set(known.values())) == len(known) else None

    def _loops_by_members(self, group: Group, reads: list[Term]) -> dict[int, int] | None:
        loops: dict[int, int] = {}
        for read in reads:
            nest = self.program.nests[read.attr]
            result = group.result_axes(nest, group.loops(read.attr))
            for i, axis in zip(read.args, result, strict=True):
                if i.op != "index" or loops.setdefault(i.attr, axis) != axis:
                    return None
        return loops if len(set(loops.values())) == len(loops) else None

    def _place_running(self, group: Group, key: str, known: dict[int, int]) -> bool:
        nest = self.program.nests[key]
        if group.stream in known.values():
            return False
        for loop in nest.reduced_axes:
            if loop not in known and self.classes.same((key, loop), self._seed):
                return self._place(group, key, {**known, loop: group.stream}, inner=False)
        return False

    def _place(self, group: Group, key: str, known: dict[int, int], *, inner: bool) -> bool:
        """Add `key` with its remaining loops as new axes, unless that breaks convexity.

        A new axis that is cut into programs is refused too: for each of its tiles all that the
        group has already would be computed again.
        """
        nest = self.program.nests[key]
        known = self._aligned(group, key, known)
        cut = set() if inner else self._cut_axes(nest)
        if known is None or not cut <= set(known) or not self._agree(group, nest, known):
            return False
        # Programs that each have some of an axis cannot reduce it.
        if {known[k] for k in cut} & group.folded or group.cut & {
            known[k] for k in nest.reduced_axes if k in known
        }:
            return False
        # A tensor computed inside the stream must not need the running values.
        if inner and self.needs.of(key) & self.needs.set_of(group.running):
            return False
        if not inner and any(self.needs.of(i) & self.needs.bit(key) for i in group.inner):
            return False
        if not self._convex(group, key, inner) or self._repeats(group, key, known, inner):
            return False
        loops = []
        for loop in range(len(nest.domain)):
            if loop in known:
                group.know(known[loop], nest.domain[loop])
                loops.append(known[loop])
            else:
                loops.append(len(group.axes))
                group.axes.append(self._axis(nest, loop))
        group.heavy.pop(key, None)
        (group.inner if inner else group.running)[key] = tuple(loops)
        self._count_in(group, key, inner)
        return True

    def _repeats(self, group: Group, key: str, known: dict[int, int], inner: bool) -> bool:
        """Whether the group would do too much more work with `key` in it, or without tiles."""
        nest, fresh = self.program.nests[key], len(group.axes)
        sizes = {a: axis.size for a, axis in enumerate(group.axes)}
        loops = tuple(known.get(k, fresh + k) for k in range(len(nest.domain)))
        sizes |= {a: n for a, n in zip(loops, nest.domain, strict=True) if a >= fresh}
        members = {True: dict(group.inner), False: dict(group.running)}
        members[inner][key] = loops

        def work(of: dict[str, tuple[int, ...]]) -> list[Work]:
            nests = self.program.nests
            return [Work(frozenset(at), frozenset(group.result_axes(nests[k], at)),
                         frozenset(at[i] for i in _numbering(nests[k])))
                    for k, at in of.items()]  # fmt: skip

        running, products = work(members[False]), work(members[True])
        if stacked([*running, *products], products, sizes, group.stream):
            return True
        times = repetition(running, products, sizes, group.stream)
        if times > MOST:
            group.heavy[key] = times
        return times > MOST

    def _count_in(self, group: Group, key: str, inner: bool) -> None:
        nest, loops = self.program.nests[key], group.loops(key)
        group.folded |= {loops[k] for k in nest.reduced_axes} - {group.stream}
        group.cut |= set() if inner else {loops[k] for k in self._cut_axes(nest)}
        group.near |= self._near(key, inner)
        group.members |= self.needs.bit(key)
        group.before |= self.needs.of(key)
        group.after |= 0 if inner else self.needs.on(key)  # others have it from elsewhere

    def _convex(self, group: Group, key: str, inner: bool) -> bool:
        """Whether nothing leaves the group and comes back, with `key` in it."""
        before = group.before | self.needs.of(key)
        after = group.after | (0 if inner else self.needs.on(key))
        return not before & after & ~(group.members | self.needs.bit(key))

    def _aligned(self, group: Group, key: str, known: dict[int, int]) -> dict[int, int] | None:
        """`known` with the loops at which `key` and members read each other; None on conflict."""
        nest, known = self.program.nests[key], dict(known)
        pairs = []  # loops of `key` and the fused axes that they have to be
        for read in self.reads[key]:
            if read.attr in group:
                member = self.program.nests[read.attr]
                axes = group.result_axes(member, group.loops(read.attr))
                if _reads_elsewhere(read, member):
                    return None
                pairs += [(i.attr, a) for i, a in zip(read.args, axes, strict=True) if _is_loop(i)]
        for name in (k for k in self.readers.get(key, ()) if k in group):
            loops = group.loops(name)
            for read in self.reads[name]:
                if read.attr == key:
                    if _reads_elsewhere(read, nest):
                        return None
                    places = zip(nest.result_axes, read.args, strict=True)
                    pairs += [(loop, loops[i.attr]) for loop, i in places if _is_loop(i)]
        if any(known.setdefault(loop, axis) != axis for loop, axis in pairs):
            return None
        return known if len(set(known.values())) == len(known) else None

    def _shared_inner(self, group: Group) -> set[str]:
        """Inner members that something outside, or a second pass (of a result along the stream),
        needs, and that are too much to be computed again. The others outside become `copied`."""
        nests = self.program.nests
        inside = {nests[k].op.operation for k in [*group.running, *group.inner]}
        cheap = set(filter(self._worth_repeating, group.inner))
        users = {k: self._users(k) - inside for k in group.inner}
        shared = {k for k in users if users[k] - self._maps}
        group.copied.clear()
        group.copied.update(shared & cheap)
        return {k for k in users if k in shared or (users[k] and nests[k].kind == "reduce")} - cheap

    def _users(self, key: str) -> set[Any]:
        """The ops of the block that read a nest's result."""
        uses = self.program.values[key].uses
        return {top_level_op(use.owner, self.program.block) for use in uses}

    def meant_inside(self, key: str) -> bool:
        """Whether streams that read a nest would rather compute it than read it from memory, as
        they would if it shared a loop of its own: it needs no other reduction."""
        nest = self.program.nests[key]
        if any(self.program.nests[r.attr].kind == "reduce" for r in self.reads[key]):
            return False
        ops = {self.program.nests[k].op.operation for k in self.readers.get(key, ())}
        reductions = any(self.program.nests[k].kind == "reduce" for k in self.readers.get(key, ()))
        return (
            reductions and self._users(key) <= ops and _expands(nest) and self._worth_repeating(key)
        )

    def _sums_what_streams_make(self, key: str) -> bool:
        """Whether a reduction reads, at all of its loops, what is meant to be inside of streams: it
        joins one of those, and would read it from memory elsewhere."""
        loops = set(range(len(self.program.nests[key].domain)))
        made = (r for r in self.reads[key] if r.attr in self.program.nests)
        return any(T.axes_of(r) == loops and self.meant_inside(r.attr) for r in made)

    def _worth_repeating(self, key: str) -> bool:
        nest = self.program.nests[key]
        sizes = [nest.domain[k] for k in nest.reduced_axes]
        return key not in self.stored and DYNAMIC not in sizes and prod(sizes) <= MAX_REPEATED

    def _reads_inner_at(self, group: Group, key: str, loops: dict[int, int]) -> bool:
        """Whether `key` reads inner members only where a program has them: at its own axes."""
        for read in self.reads[key]:
            if read.attr in group.inner:
                nest = self.program.nests[read.attr]
                axes = group.result_axes(nest, group.inner[read.attr])
                if any(not _is_loop(i) or loops.get(i.attr) != a
                       for i, a in zip(read.args, axes, strict=True)):  # fmt: skip
                    return False
        return True

    def _agree(self, group: Group, nest: Nest, loops: Mapping[int, int]) -> bool:
        """Whether loops have as many points as the axes that they become, where both are known: who
        reads a part of a row (a gate of a recurrent layer) has fewer than who makes the row."""
        pairs = ((nest.domain[k], group.axes[a].size) for k, a in loops.items())
        return all(n == m or DYNAMIC in (n, m) for n, m in pairs)

    def _absorb_maps(self, group: Group) -> None:
        inside = [*group.running, *group.inner]
        after = 0
        for key in group.running:
            after |= self.needs.on(key)
        members = self.needs.set_of(inside)
        candidates = {k for member in group.running for k in self.readers.get(member, ())}
        for key in sorted(candidates, key=self.needs.number):
            nest = self.program.nests[key]
            if nest.kind != "map" or key in self.taken:
                continue
            if len(group.running) + len(group.finish) >= MAX_VALUES:
                return
            reads = [r for r in self.reads[key] if r.attr in group.running]
            if any(r.attr in group for r in lookups(nest.body)):
                continue
            # Something outside comes between, or an absorbed map, whose result the stream gives.
            if self.needs.of(key) & after & ~members:
                continue
            loops = self._loops_by_members(group, reads)
            if loops is None:
                continue
            for member in inside:
                for loop, axis in (self._shared_reads(group, member, nest) or {}).items():
                    loops.setdefault(loop, axis)
            if not self._reads_inner_at(group, key, loops):
                continue
            missing = [k for k in range(len(nest.domain)) if k not in loops]
            complete = all(nest.domain[k] == 1 for k in missing)
            apart = len(set(loops.values())) == len(loops)
            if complete and apart and self._agree(group, nest, loops):
                for loop, axis in loops.items():
                    group.know(axis, nest.domain[loop])
                for loop in missing:  # a result that keeps a reduced dimension
                    loops[loop] = len(group.axes)
                    group.axes.append(self._axis(nest, loop))
                group.finish[key] = tuple(loops[k] for k in range(len(nest.domain)))


def _expands(nest: Nest) -> bool:
    """Is the result larger than some tensor it is made of (a product of two, as scores are)? It is
    not worth a trip through memory. One that every operand covers (a row sum) is small."""
    result = set(nest.result_axes)
    reads = T.reads(nest.body)
    return not reads or not all(result <= T.axes_of(r) for r in reads)


def _numbering(nest: Nest) -> set[int]:
    """The axes that number products: of the result, and all operands have them."""
    return set(nest.result_axes).intersection(*(T.axes_of(r) for r in T.reads(nest.body)))


def _is_loop(position: Term) -> bool:
    return position.op == "index"


def _reads_elsewhere(read: Term, nest: Nest) -> bool:
    """Whether a result is read at a place that a program with another tile of it lacks (the last
    sum of a scan, beside that of each element)."""
    sizes = (nest.domain[k] for k in nest.result_axes)
    return any(i.is_const and n != 1 for i, n in zip(read.args, sizes, strict=True))


def _axes_read(read: Term, loops: tuple[int, ...]) -> tuple[int, ...] | None:
    """The fused axes that index a read, or None if it is not indexed by distinct axes."""
    if any(i.op != "index" for i in read.args):
        return None
    at = tuple(loops[i.attr] for i in read.args)
    return at if len(set(at)) == len(at) else None
