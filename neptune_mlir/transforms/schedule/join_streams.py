# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`join-streams`: two streams over the same tiles become one, with a sum that programs share.

    dk = stream over i: s = q k, t = f(s), accumulate t q       (one program has a tile of j)
    dq = stream over j: s = q k, t = f(s), accumulate t k       (one program has a tile of i)
    ->
    dk, dq = stream over i: s = q k, t = f(s), accumulate t q; to this tile of dq add t k

Both compute the same reductions of each pair of tiles. The joined stream computes them once. The
result of the second stream has the streamed axis and lacks the axis of the programs: each of these
adds its part to a tile of the result in memory (`neptune.accumulate` whose result has the streamed
axis). The sum over j then is taken in parts, in the order in which programs come, or in that of
their numbers (`ordered`). That is right because sums are commutative and associative, and starts
from 0: there is nothing else to prove. In floats the order shows in the last digits, as the size of
a tile does.

Streams are joined where the second has nothing but sums whose bodies read no running value, where
each reduction of a tile that it needs is one of the first stream's, and where both have the same
live points. What it computed from the final sums becomes nests of their own behind the stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest, read_live, read_region
from neptune_mlir.analysis.tile_axes import extents_of
from neptune_mlir.analysis.tiles import note_choices
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import DERIVATION, PROOF, RUNNING
from neptune_mlir.dialects.nests import DYNAMIC, Values, build_map
from neptune_mlir.dialects.op_names import CORRECT, STREAM
from neptune_mlir.dialects.program import functions, top_level_op
from neptune_mlir.ir.bindings import ir
from neptune_mlir.targets.tuned import IN_TURNS
from neptune_mlir.targets.warp_groups import ELEMENT, JOINED_FROM, JOINED_WIDTHS
from neptune_mlir.transforms.fusion.groups import FusedAxis
from neptune_mlir.transforms.fusion.region import FusedRegion, produce, write_live
from neptune_mlir.transforms.registry import register, remark
from neptune_mlir.transforms.schedule.group_sizes import shape_of

USUAL = 4  # groups of programs (batches, heads) of calls whose extents only they know


@register("join-streams", "compute what two streams share of each tile once")
def join_streams(module: Any, *, joined: int = 0, ordered: int = 0) -> None:
    """
    Args:
        joined: how many groups of programs the target runs at once, each of programs that add to
            the same results; 0: streams stay.
        ordered: 1 if GPU programs add in the order of their numbers (`in_turns`), so that results
            have the same bits in every run.
    """
    if not joined:
        return
    for function in functions(module):
        block = function.regions[0].blocks[0]
        while found := [match for match in _matches(block) if _keeps_busy(match, joined)]:
            _join(found[0], bool(ordered))


def are_faster_joined(module: Any) -> bool:
    """Whether a program has streams that `join-streams` makes one, and warp groups are faster with
    all of these joined (measured on an H200).

    What is computed once, not twice, pays for the sums in memory where each pair of tiles does the
    same: where masks leave most of a stream, and nothing but the factors is loaded for each tile.
    """
    found = [m for f in functions(module) for m in _matches(f.regions[0].blocks[0])]
    return bool(found) and all(map(_pays, found))


def _pays(match: _Match) -> bool:
    for side in (match.first, match.second):
        nests, stream = list(side.nests.values()), side.stream
        kept = [n for n in nests if n.init is not None]
        widths = {side.op.domain[n.result_axes[-1]] for n in kept}
        shape = shape_of(nests, list(side.op.domain), stream, None)
        if widths - {shape.depth} or shape.depth not in JOINED_WIDTHS or shape.size != ELEMENT:
            return False
        if shape.results != len(kept) or shape.scores != 2:
            return False
        if shape.band or shape.marks or shape.loads or shape.boxes:
            return False
        length = side.op.domain[stream]
        short = length != DYNAMIC and length < JOINED_FROM
        if shape.triangle and short and shape.depth == min(JOINED_WIDTHS):
            return False
    return True


def _matches(block: Any) -> Iterator[_Match]:
    """What can be joined in a block."""
    values = Values()
    for argument in block.arguments:
        values.key(argument)
    for first, second in _pairs(block):
        sides = _Side(first, values), _Side(second, values)
        if not all(side.is_plain for side in sides) or not _only_maps(second):
            continue
        match = _Match(*sides)
        reductions = [n for n in sides[1].nests.values() if n.combiner and n.init is None]
        if not reductions or not all(map(match.find, reductions)) or not _fits(match):
            continue
        if _may_move(*_in_order(first, second), block):
            yield match


def _in_order(first: Any, second: Any) -> tuple[Any, Any]:
    both = first.operation, second.operation
    return both if both[0].is_before_in_block(both[1]) else both[::-1]


def _pairs(block: Any) -> list[tuple[Any, Any]]:
    """Streams that might be joined: the first keeps its results, programs share the second's, of
    which there are fewer."""
    found = [op for op in block.operations if isinstance(op, N.StreamOp)]
    return [
        (first, second) for first in found for second in found
        if first is not second and len(_running(first)) > len(_running(second))
    ]  # fmt: skip


def _running(stream: Any) -> list[Any]:
    return list(stream.body.blocks[0].arguments)


@dataclass
class _Side:
    """One of the streams, as data."""

    op: Any
    values: Values
    nests: dict[str, FusedNest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found, _ = read_region(self.op.body.blocks[0], self.values, in_body=True, corrections=True)
        self.nests = {nest.key: nest for nest in found}
        self.extents = extents_of(self.op)
        self.stream = int(self.op.axis.value)
        self.live = read_live(self.op, self.values)

    @property
    def is_plain(self) -> bool:
        """Whether all that it accumulates are sums, and nothing reads them before its end."""
        running = {self.values.key(a) for a in _running(self.op)}
        sums = [nest for nest in self.nests.values() if nest.init is not None]
        return (
            all(nest.body is not None for nest in self.nests.values())
            and not any(nest.op.operation.name == CORRECT for nest in self.nests.values())
            and all(nest.combiner == "add" and nest.init in running for nest in sums)
            and not any(r.attr in running for nest in self.nests.values() for r in nest.reads)
            and not any(nest.spreads for nest in sums)
        )


class _Match:
    """Which axes and nests of the second stream are which of the first."""

    def __init__(self, first: _Side, second: _Side):
        self.first, self.second = first, second
        self.axes: dict[int, int] = {}
        self.nests: dict[str, str] = {}

    def _copy(self) -> _Match:
        made = _Match(self.first, self.second)
        made.axes, made.nests = dict(self.axes), dict(self.nests)
        return made

    def find(self, mine: FusedNest) -> bool:
        """Find a reduction of the first stream that is `mine`."""
        if mine.key in self.nests:
            return True
        for other in self.first.nests.values():
            trial = self._copy()
            if other.combiner and other.init is None and trial._nest(mine, other):
                self.axes, self.nests = trial.axes, trial.nests
                return True
        return False

    def _nest(self, mine: FusedNest, other: FusedNest) -> bool:
        if self.nests.get(mine.key, other.key) != other.key or mine.init or other.init:
            return False
        same = (mine.combiner, mine.dtype) == (other.combiner, other.dtype)
        if not same or len(mine.result_axes) != len(other.result_axes):
            return False
        self.nests[mine.key] = other.key
        return (
            all(map(self._axis, mine.result_axes, other.result_axes))
            and self._term(mine.body, other.body)
            and {self.axes.get(a) for a in mine.reduced_axes} == {*other.reduced_axes}
        )

    def _axis(self, mine: int, other: int) -> bool:
        if mine in self.axes or other in self.axes.values():
            return self.axes.get(mine) == other
        self.axes[mine] = other
        return bool(self.second.extents[mine] == self.first.extents[other])

    def _term(self, mine: Term, other: Term) -> bool:
        if mine.op == other.op == "index":
            return self._axis(mine.attr, other.attr)
        if mine.op == other.op == "read" and mine.attr in self.second.nests:
            if other.attr not in self.first.nests:
                return False
            if not self._nest(self.second.nests[mine.attr], self.first.nests[other.attr]):
                return False
        elif mine.attr != other.attr:
            return False
        same = (mine.op, mine.dtype, len(mine.args)) == (other.op, other.dtype, len(other.args))
        return same and all(map(self._term, mine.args, other.args))


def _join(match: _Match, ordered: bool) -> None:
    first, second = match.first.op.operation, match.second.op.operation
    _, last = _in_order(first, second)
    with ir.InsertionPoint(last), last.location:
        stream = _write(match)
    if ordered:
        note_choices(stream, {"adder": IN_TURNS})
    remark(
        first.location, "two streams are one: programs add their parts of a result in memory"
    )
    first.erase()
    second.erase()


def _keeps_busy(match: _Match, places: int) -> bool:
    """Whether groups of programs fill so many places: three quarters of them in the mean of the
    rounds, for what is saved is a quarter of the work or more."""
    first, rows = match.first, match.axes[match.second.stream]
    kept = [n for n in first.nests.values() if n.init is not None]
    shared = frozenset.intersection(*(frozenset(n.result_axes) for n in kept)) - {rows}
    extents = [first.extents[a] for a in shared]
    if not all(isinstance(n, int) for n in extents):
        return places <= USUAL
    groups = math.prod(extents)
    return 4 * groups >= 3 * places * -(-groups // places)


def _only_maps(stream: Any) -> bool:
    """Whether what a stream computes of its sums is element by element."""
    finish = list(stream.finish.blocks[0].operations)[:-1]
    return all(isinstance(op, N.MapOp) for op in finish)


def _fits(match: _Match) -> bool:
    """Whether a program of the first stream has the points that a part of each sum is over."""
    first, second = match.first, match.second
    rows = match.axes.get(second.stream)
    if rows is None or rows == first.stream:
        return False
    kept = [n for n in first.nests.values() if n.init is not None]
    sums = [n for n in second.nests.values() if n.init is not None]
    named = [{match.axes.get(a) for a in nest.result_axes} for nest in sums]
    alike = {a: T.index(b) for a, b in match.axes.items()}
    return (
        all(rows in nest.result_axes for nest in kept)
        and all(nest.reduced_axes == (second.stream,) for nest in sums)
        and all(first.stream in axes for axes in named)
        and T.axes_of(second.live) <= {*match.axes}
        and _conditions(T.rename_axes(second.live, alike)) == _conditions(first.live)
    )


def _conditions(live: Term) -> set[Term]:
    """What has to hold, all of it."""
    return set().union(*map(_conditions, live.args)) if live.op == "and" else {live}


def _may_move(op: Any, behind: Any, block: Any) -> bool:
    """Whether nothing in front of `behind`, or it, needs the results of `op`."""
    users = [top_level_op(use.owner, block) for r in op.results for use in r.uses]
    return all(user != behind and behind.is_before_in_block(user) for user in users)


def _write(match: _Match) -> Any:
    """The joined stream, and behind it what the second one computed of its sums."""
    first, second = match.first, match.second
    values = first.values
    domain, names = list(first.op.domain), [n.value for n in first.op.axis_names]
    extents = list(first.op.operation.operands)
    axes = dict(match.axes)
    for a, name in enumerate(n.value for n in second.op.axis_names):
        if a in axes:
            continue
        axes[a] = len(domain)
        domain.append(second.op.domain[a])
        extents += [second.extents[a]] if second.op.domain[a] == DYNAMIC else []
        names.append(next(n for k in range(len(names) + 1)
                          if (n := f"{name}{k or ''}") not in names))  # fmt: skip
    body, finish = (first.op.operation.regions[k].blocks[0] for k in (0, 1))
    types = [a.type for a in _running(second.op)]
    stream = ir.Operation.create(
        STREAM,
        results=[*(r.type for r in first.op.operation.results), *types],
        operands=extents,
        attributes=_attributes(match, domain, names, len(types)),
        regions=3,
    )
    locations = [second.op.operation.location] * len(types)
    added = [
        [block.add_argument(kind, loc) for kind, loc in zip(types, locations, strict=True)]
        for block in (body, finish)
    ]
    known = iter(extents)
    shared = [FusedAxis(n, next(known) if n == DYNAMIC else None) for n in domain]
    with _before_end(body) as ended:
        region = FusedRegion(values, shared)
        running = dict(zip(_running(second.op), added[0], strict=True))
        produce([*ended, *_nests(match, region, axes, running)])
    with _before_end(finish) as ended:
        produce([*ended, *added[1]])
    for k, block in enumerate((body, finish)):
        block.append_to(stream.regions[k])
    if not (first.live.is_const and first.live.value):
        write_live(stream.opview, first.live, values)
    results = list(stream.results)
    for old, new in zip(first.op.operation.results, results, strict=False):
        old.replace_all_uses_with(new)
    _finish(second, results[len(results) - len(types) :], values)
    return stream


class _before_end:
    """Replaces the end of a region: gives what it produced, and inserts in its place."""

    def __init__(self, block: Any):
        self.end = list(block.operations)[-1].operation
        self.point = ir.InsertionPoint(self.end)

    def __enter__(self) -> list[Any]:
        self.point.__enter__()
        return list(self.end.operands)

    def __exit__(self, *raised: Any) -> None:
        self.point.__exit__(*raised)
        self.end.erase()


def _nests(
    match: _Match, region: FusedRegion, axes: dict[int, int], running: dict[Any, Any]
) -> list[Any]:
    """Write the second stream's nests over the first one's axes, but for those that this has; what
    it accumulates."""
    first, second, values = match.first, match.second, match.first.values
    renamed = {a: T.index(b) for a, b in axes.items()}
    taken = dict(match.nests)
    maps: dict[str, tuple[Term, tuple[int, ...]]] = {}  # in full, and the axes of their elements

    def in_full(body: Term) -> Term:
        """A body with those of the maps that it reads."""

        def rule(node: Term) -> Term | None:
            if node.op != "read" or node.attr not in maps:
                return None
            inner, along = maps[node.attr]
            return T.rename_axes(inner, dict(zip(along, node.args, strict=True)))

        return T.rewrite(body, rule)

    known: dict[Any, str] = {}

    def note(key: str, body: Term, along: tuple[int, ...]) -> None:
        maps[key] = in_full(body), along
        known.setdefault(maps[key], key)

    for nest in first.nests.values():
        if nest.combiner is None and nest.body is not None:
            note(nest.key, nest.body, nest.result_axes)
    made: dict[str, Any] = {}
    by_key = {values.key(old): new for old, new in running.items()}

    def moved(node: Term) -> Term | None:
        if node.op == "read" and node.attr in taken:
            return T.read(taken[node.attr], *node.args, dtype=node.dtype)
        return None

    for nest in second.nests.values():
        if nest.key in taken:
            continue
        body = T.rename_axes(T.rewrite(nest.body, moved), renamed)
        results = tuple(axes[a] for a in nest.result_axes)
        location = nest.op.operation.location
        if nest.init is not None:
            reduced = [axes[a] for a in nest.reduced_axes]
            init = by_key[nest.init]
            made[nest.key] = region.reduce(
                "add", body, results, reduced=reduced, init=init, loc=location
            )
            continue
        found = in_full(body), results
        if found not in known:
            note(values.key(region.map(body, results, location)), body, results)
        taken[nest.key] = known[found]
    produced = list(second.op.body.blocks[0].operations)[-1].operation.operands
    return [made[values.key(value)] for value in produced]


def _finish(second: _Side, sums: Sequence[Any], values: Values) -> None:
    """What the second stream computed of its sums, as nests of their own."""
    block = second.op.finish.blocks[0]
    nests, produced = read_region(block, values)
    for argument, value in zip(block.arguments, sums, strict=True):
        values.rebind(values.key(argument), value)
    for nest in nests:
        assert nest.body is not None
        loops = {a: T.index(k) for k, a in enumerate(nest.loops)}
        domain = [second.op.domain[a] for a in nest.loops]
        made = build_map(
            values, T.rename_axes(nest.body, loops), domain,
            [second.extents[a] for a in nest.loops if second.op.domain[a] == DYNAMIC],
            result_axes=[nest.loops.index(a) for a in nest.result_axes],
            names=[second.op.axis_names[a].value for a in nest.loops],
            loc=nest.op.operation.location,
        )  # fmt: skip
        values.rebind(nest.key, made)
    for old, key in zip(second.op.operation.results, produced, strict=True):
        old.replace_all_uses_with(values[key])


def _attributes(
    match: _Match, domain: Sequence[int], names: Sequence[str], more: int
) -> dict[str, Any]:
    first, second = match.first.op.operation, match.second.op.operation
    known = {name: first.attributes[name] for name in first.attributes}
    known["domain"] = ir.DenseI64ArrayAttr.get(list(domain))
    known["axis_names"] = ir.ArrayAttr.get([ir.StringAttr.get(n) for n in names])
    sizes = N.segment_sizes(len(first.results) + more)
    known["resultSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
    for table in (RUNNING, DERIVATION):
        if table.on(first) and table.on(second):
            known |= table.entry([*table.of(first), *table.of(second)])
    if PROOF.find(first) != PROOF.find(second):
        known.pop(str(PROOF), None)
    return known
