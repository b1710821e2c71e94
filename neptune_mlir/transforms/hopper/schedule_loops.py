# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `schedule-loops`: which ops of a streamed loop run an iteration late, and in what order.

A loop whose matmuls are split (`split-matmuls`) is modulo-scheduled in two stages. The pass tries
every set of matmuls to run late (with all that reads their results, and with or without what only
they read), orders the ops of both stages in one list, and estimates the cycles of an iteration by
running the list on a model: matmuls on the matrix unit, one after another; everything else on the
other lanes, beside them (`targets.nvidia.Rates`). Which other ops run late with the same matmuls is
weighed against the words that are carried from stage to stage, for these may be spilled. Of sets of
matmuls the fastest wins, then the one that carries the fewest words, then the smallest. Where none
runs late, matmuls that do not need each other still run beside arithmetic of their own iteration. A
loop that gains nothing stays as it is.

The list is made from the front: matmuls start as early as they can, other ops follow by the
length of what depends on them, and a wait comes when nothing else is left. What is made for a
late matmul in registers is made behind the wait for the matmul that reads these registers now.
The choice `late` says how many matmuls do at most: what a late matmul reads takes registers, and
larger tiles may be worth more. By the choice `early`, loads of vectors come first of all: behind
the starts, which wait for tiles and for room at the matrix unit, the arithmetic that reads them
would wait for memory as well. Where programs add a product in memory, orders with that product
before others and behind them are compared, with what goes through shared memory; before them
where the model sees no difference, for the next iteration's start does not wait for the sums.

The result is two attributes on the ops of the body, `neptune.stage` and `neptune.order`, which a
script may write itself; `pipeline-loops` does what they say. Loops that carry on with each other's
results form a chain, whose ops of stage 1 are the same in each loop: one finishes what the one
before leaves. Where the loops are faster with schedules of their own, each has its own. (Modulo
scheduling: Rau, 1994. That the schedules of FlashAttention-3 and -4 are optimal solutions of this
problem: Twill, arXiv 2512.18134.)
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.layouts import parse
from neptune_mlir.analysis.tiles import (
    element_bytes,
    element_of,
    foralls,
    is_added,
    is_tensor,
    nested,
    read_generic,
    shape_of,
    tuned,
)
from neptune_mlir.dialects.attributes import TARGET
from neptune_mlir.dialects.gpu_attributes import (
    CONSUMERS,
    HANDED,
    LIKELY,
    ORDER,
    READER,
    RUNS_ON,
    STAGE,
)
from neptune_mlir.dialects.op_names import ADD_SLICE, GET, RELEASE, START, WAIT
from neptune_mlir.dialects.verify_aref import LOADS
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.nvidia import Rates, nvidia
from neptune_mlir.targets.tuned import ALL_LATE
from neptune_mlir.transforms.fast_paths import PIPELINED, missed
from neptune_mlir.transforms.gpu.copies import is_free
from neptune_mlir.transforms.gpu.streams import chains_of
from neptune_mlir.transforms.hopper.loop_graph import LoopGraph, Stages, layout_text
from neptune_mlir.transforms.hopper.tile_readers import join_gets, split_gets
from neptune_mlir.transforms.registry import register

SHARED = "shared"  # how layouts of tiles in shared memory begin
MOST = 6  # ops that may run late or not: all their sets are tried


@register("schedule-loops", "choose which matmuls of a loop run an iteration late, and an order")
def schedule_loops(module: Any) -> None:
    for forall in foralls(module):
        if not CONSUMERS.on(forall) or not tuned(forall, "skew", 1):
            continue
        rates = nvidia(TARGET.of(forall)).rates
        for chain in chains_of(forall, _has_products):
            split_gets(chain)
            early, late = bool(tuned(forall, "early", 0)), tuned(forall, "late", ALL_LATE)
            if any(HANDED.on(op) for loop in chain for op in nested(loop.regions[0].blocks[0])):
                late = 0  # what one group hands to others lies where it is, in one place
            _schedule_chain(chain, rates, early, late)
            join_gets(chain)


def _has_products(loop: Any) -> bool:
    """Whether a loop has products that may run late; those that run on are not waited for."""
    return bool(LoopGraph(loop).starts()) and not RUNS_ON.on(loop)


def _schedule_chain(chain: list[Any], rates: Rates, early: bool, most: int) -> None:
    graphs = [LoopGraph(loop) for loop in chain]
    if any(op.name == "scf.for" for graph in graphs for op in graph.nodes):
        missed(chain[0].location, PIPELINED, "there is a loop within it")
        return
    found = [_schedules(graph, rates, early, most) for graph in graphs]
    best = _best(found, rates)
    if len(chain) > 1 and not any(READER.on(op) for graph in graphs for op in graph.nodes):
        apart = [_best([schedules], rates)[0] for schedules in found]
        if sum(s.cycles for s in apart) < sum(s.cycles for s in best):
            for loop in chain:
                _schedule_chain([loop], rates, early, most)
            return
    late = any(best[0].stages.stage.values())
    if not late and all(s.cycles >= _as_written(s.stages.graph, rates) for s in best):
        missed(chain[0].location, PIPELINED, "nothing runs beside its matmuls")
        return
    for schedule in best:
        for k, op in enumerate(schedule.order):
            STAGE.set(op, schedule.stages.stage[op])
            ORDER.set(op, k)


def _as_written(graph: LoopGraph, rates: Rates) -> float:
    """Cycles of an iteration whose ops run in the order of the IR."""
    costs = {op: _cycles(op, rates) for op in graph.nodes}
    return _interval(graph, graph.nodes, costs, rates)


@dataclass(frozen=True)
class _Schedule:
    """One schedule of a loop: what it costs, and which of its matmuls are late."""

    stages: Stages
    order: tuple[Any, ...]
    cycles: float
    words: int

    @property
    def matmuls(self) -> tuple[int, ...]:
        return tuple(self.stages.stage[op] for op in self.stages.graph.starts())

    @property
    def late(self) -> int:
        return sum(self.stages.stage.values())

    @functools.cached_property
    def signature(self) -> Any:
        return late_signature(self.stages, self.order)


def _schedules(graph: LoopGraph, rates: Rates, early: bool, most: int) -> list[_Schedule]:
    """All schedules of a loop with so many late matmuls at most; in the first no op is late.
    `early`: loads of vectors come first."""
    costs = {op: _cycles(op, rates) for op in graph.nodes}
    first = {op for op in graph.nodes if early and _is_vector_load(op)}
    found = (_schedule(graph, late, costs, rates, first) for late in _late_sets(graph, most))
    return [schedule for schedule in found if schedule]


def _best(found: Sequence[Sequence[_Schedule]], rates: Rates) -> tuple[_Schedule, ...]:
    """A schedule for each loop of a chain, with the same late ops."""
    by_signature = [{s.signature: s for s in schedules} for schedules in found]
    together = [
        tuple(known[signature] for known in by_signature) for signature in by_signature[0]
        if all(signature in known for known in by_signature)
    ]  # fmt: skip

    def cost(chosen: tuple[_Schedule, ...], word: float) -> tuple[float, int, int]:
        cycles = sum(s.cycles + word * s.words for s in chosen)
        return cycles, sum(s.words for s in chosen), sum(s.late for s in chosen)

    best: dict[Any, tuple[_Schedule, ...]] = {}  # by what matmuls are late
    for chosen in sorted(together, key=lambda c: cost(c, rates.spill)):
        best.setdefault(tuple(s.matmuls for s in chosen), chosen)
    return min(best.values(), key=lambda c: cost(c, 0.0))


# ---- stages


def _late_sets(graph: LoopGraph, most: int) -> Iterator[set[Any]]:
    """Sets of ops that may run late together, so many matmuls at most; the first is empty."""
    yield set()
    starts = graph.starts()
    for count in range(1, min(most, len(starts)) + 1):
        for chosen in itertools.combinations(starts, count):
            late = _with_users(graph, set(chosen))
            if late & set(starts) == set(chosen):
                yield from _with_makers(graph, late)


def _with_users(graph: LoopGraph, late: set[Any]) -> set[Any]:
    """All that depends on late ops in their iteration, and the gets and releases of what only late
    ops read."""
    for op in graph.nodes:
        if graph.needs[op] & late and op.name != RELEASE:
            late.add(op)
    for op in graph.nodes:
        readers = [user for user in graph.users[op] if user.name != RELEASE]
        if op.name == GET and readers and all(reader in late for reader in readers):
            late.add(op)
    return late | {op for op in graph.nodes if op.name == RELEASE and graph.tile_of(op) in late}


def _with_makers(graph: LoopGraph, late: set[Any]) -> Iterator[set[Any]]:
    """`late`, and some of the ops that only late ops read."""
    able = set(late)
    for op in reversed(graph.nodes):
        users = graph.users[op]
        plain = op.name not in (GET, RELEASE, START, WAIT) and not graph.reads_position(op)
        yields = any(v in graph.yielded for v in op.results)
        if plain and users and not yields and all(user in able for user in users):
            able.add(op)
    makers = [op for op in reversed(graph.nodes) if op in able - late][:MOST]
    for count in range(len(makers) + 1):
        for chosen in itertools.combinations(makers, count):
            both = late | set(chosen)
            if all(user in both for op in chosen for user in graph.users[op]):
                yield both


def _schedule(
    graph: LoopGraph, late: set[Any], costs: dict[Any, float], rates: Rates, first: set[Any]
) -> _Schedule | None:
    """The schedule with these ops late, and those of `first` first, if there is one."""
    stages = Stages(graph, {op: int(op in late) for op in graph.nodes})
    if late and not _is_legal(stages):
        return None
    order = _order(stages, costs, first)
    if order is None:
        return None
    if any(op.name == ADD_SLICE for op in graph.nodes):
        other = _order(stages, costs, first, sums=True)
        through = costs | {op: _through_shared(op, rates) for op in graph.nodes if op not in late}
        if other and _interval(graph, other, through, rates) <= _interval(
            graph, order, through, rates
        ):
            order = other
    carried = [graph.arguments[k] for k in stages.read]
    # of a product that programs add up, the accumulators stand beside those of the next scores
    beside = [op.results[0] for op in late if op.name == WAIT and is_added(op.results[0])]
    words = sum(map(_words, [*stages.crossing, *carried, *beside]))
    return _Schedule(stages, tuple(order), _interval(graph, order, costs, rates), words)


def _is_legal(stages: Stages) -> bool:
    """Whether what crosses stages can be carried, and late ops can be."""
    graph = stages.graph
    late = {graph.arguments[k] for k in stages.late}
    for k, value in enumerate(graph.yielded):  # an argument that is handed on stays what it is
        if value in late and graph.arguments[k] != value:
            return False
    for value in stages.crossing:
        made = defining_op(value)
        if made is not None and made.name in (GET, START):
            return False
        held = layout_text(value).startswith(("reg", "lane", "warp"))
        if is_tensor(value) and not held and not _has_a_place(value, graph):
            return False
    late_ops = (op for op in graph.nodes if stages.stage[op] == 1)
    return not any(graph.reads_position(op) for op in late_ops if op.name != ADD_SLICE)


def _has_a_place(value: Any, graph: LoopGraph) -> bool:
    """Whether a tile lies in shared memory where each iteration makes it: the only such one."""
    copies = [op for op in graph.nodes if op.name == "linalg.copy"]
    return [defining_op(value)] == copies and layout_text(value).startswith(SHARED)


# ---- order


def _order(
    stages: Stages, costs: dict[Any, float], first: set[Any], sums: bool = False
) -> list[Any] | None:
    """The ops of both stages, as one iteration of the steady state runs them, those of `first`
    as early as can be; None if each waits for another. `sums`: of products that are as near, those
    that programs add in memory start first, so that this runs beside others."""
    nodes = stages.graph.nodes
    place = {op: k for k, op in enumerate(nodes)}  # from here on ops are numbers
    loop = _Numbered(
        [op.name for op in nodes], [costs[op] for op in nodes],
        [sorted(place[x] for x in stages.needs(op)) for op in nodes],
        {place[op] for op in nodes if sums and op.name == START and _is_added_up(op)},
    )  # fmt: skip
    users, name = _users(loop.needs), loop.names
    length = _lengths(users, loop.costs)
    missing = list(map(len, loop.needs))  # how many of its needs have no place
    order: list[int] = []
    left = dict.fromkeys(range(len(nodes)))

    def put(op: int) -> None:
        order.append(op)
        del left[op]
        for user in users[op]:
            missing[user] -= 1

    for op in range(len(nodes)):
        if nodes[op] in first and not missing[op]:
            put(op)
    while left:
        ready = [op for op in left if not missing[op]]
        if not ready:
            return None
        chosen = [op for op in _next_for_start(loop, left) or ready if not missing[op]]
        plain = [op for op in chosen if name[op] != WAIT]
        free = [op for op in ready if name[op] == RELEASE]
        if free or plain:
            put((free or sorted(plain, key=lambda x: -length[x]))[0])
        else:  # in the order of their starts
            begun = [nodes[op] for op in order if name[op] == START]
            put(min(chosen, key=lambda x: begun.index(defining_op(nodes[x].operands[0]))))
    return [nodes[op] for op in order]


@dataclass(frozen=True)
class _Numbered:
    """The ops of a loop by their numbers: names, cycles, what each needs, and the products that
    programs add in memory, where these start first."""

    names: list[str]
    costs: list[float]
    needs: list[list[int]]
    added: set[int]


def _is_added_up(start: Any) -> bool:
    """Whether programs add a product in memory."""
    return any(is_added(use.owner.operation.results[0]) for use in start.results[0].uses)


def _users(needs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Of each op those that need it."""
    found: list[list[int]] = [[] for _ in needs]
    for op, others in enumerate(needs):
        for other in others:
            found[other].append(op)
    return found


def _is_vector_load(op: Any) -> bool:
    """Whether an op loads a number for each streamed point to registers."""
    return op.name in LOADS and len(shape_of(op.results[0])) == 1


def _next_for_start(loop: _Numbered, left: Collection[int]) -> list[int]:
    """What is left of the ops up to the next start that needs no wait, itself included: of several
    the one that is the fewest cycles away."""
    found: list[tuple[float, bool, list[int]]] = []
    for start in left:
        if loop.names[start] != START:
            continue
        before: dict[int, None] = {}
        waiting = [start]
        while waiting:
            op = waiting.pop()
            before[op] = None
            waiting += [x for x in loop.needs[op] if x in left and x not in before]
        if not any(loop.names[op] == WAIT for op in before):
            cycles = sum(loop.costs[op] for op in before if op != start)
            found.append((cycles, start not in loop.added, [op for op in left if op in before]))
    return min(found, key=lambda choice: choice[:2])[-1] if found else []


def _lengths(users: Sequence[Sequence[int]], costs: Sequence[float]) -> list[float]:
    """The cycles of the longest path from each op to one that no other needs."""
    found: dict[int, float] = {}

    def length(op: int, above: frozenset[int]) -> float:
        if op in above:
            return math.inf
        if op not in found:
            rest = [length(user, above | {op}) for user in users[op]]
            found[op] = costs[op] + max(rest, default=0.0)
        return found[op]

    return [length(op, frozenset()) for op in range(len(users))]


# ---- the model


def _interval(
    graph: LoopGraph, order: Sequence[Any], costs: dict[Any, float], rates: Rates
) -> float:
    """Cycles from one iteration of the steady state to the next. The first op of a list that reads
    a tile of a ring brings it to registers."""
    now = free = 0.0  # of the lanes; when the matrix unit is free
    done: dict[Any, float] = {}
    ends = []
    for _ in range(3):
        read: set[Any] = set()
        for op in order:
            if op.name == START:
                free = done[op] = max(now, free) + costs[op]
            elif op.name == WAIT:
                now = max(now, done.get(defining_op(op.operands[0]), 0.0))
            else:
                now += costs[op]
                tiles = {v for v in graph.reads[op] if op.name == "linalg.generic"}
                now += sum(_bytes(v) for v in tiles - read) / rates.shared
                read |= tiles
        ends.append(now)
    return round(ends[-1] - ends[-2], 3)


def _cycles(op: Any, rates: Rates) -> float:
    """What an op takes of the unit that it runs on, alone."""
    if op.name == START:
        return math.prod(read_generic(op).extents) / rates.multiply_adds
    if op.name == "scf.if":
        sides = [
            sum(_cycles(inner.operation, rates) for inner in block.operations)
            for region in op.regions for block in region.blocks
        ]  # fmt: skip
        return sides[0] if LIKELY.on(op) else max(sides)
    if op.name != "linalg.generic":
        return 0.0
    *inside, _ = [x.operation.name for x in op.regions[0].blocks[0].operations]
    special = sum(name.startswith("math.") for name in inside)
    points = math.prod(read_generic(op).extents)
    return points * (len(inside) / rates.lanes + special / rates.special)


def _through_shared(op: Any, rates: Rates) -> float:
    """What an op takes, with the writes to shared memory of tiles that groups exchange or add."""
    if op.name in (ADD_SLICE, "linalg.copy"):
        tile = op.operands[0]
        size = element_bytes(element_of(tile))
        return math.prod(shape_of(tile)) * size / rates.shared
    return _cycles(op, rates)


def _bytes(value: Any) -> int:
    """Of a tile of a ring; 0 for another value."""
    made = defining_op(value)
    if made is None or made.name != GET:
        return 0
    return math.prod(shape_of(value)) * element_bytes(element_of(value))


def _words(value: Any) -> int:
    """32-bit words of a value in the registers of one thread."""
    text = layout_text(value)
    if text.startswith(SHARED):
        return 0
    if not is_tensor(value) or not text:
        return 1
    registers = parse(text, shape_of(value)).registers
    return -(-registers * element_bytes(element_of(value)) // 4)


# ---- chains


def late_signature(stages: Stages, order: Sequence[Any]) -> Any:
    """What the loops of a chain must have alike: types of what crosses stages, and the late ops,
    with what they read by its place."""
    graph = stages.graph
    names: dict[Any, Any] = {v: ("carried", k) for k, v in enumerate(graph.arguments)}
    names |= {v: ("crossing", k) for k, v in enumerate(stages.crossing)}

    def name(value: Any) -> Any:
        made = defining_op(value)
        if value in names or made is None or not is_free(made):
            return names.get(value, value)
        return made.name, _attributes(made), tuple(map(name, made.operands))

    def signature(op: Any, number: Any) -> Any:
        names.update({v: (number, n) for n, v in enumerate(op.results)})
        inside = []
        for region in op.regions:
            for block in region.blocks:
                names.update({v: (number, "argument", n) for n, v in enumerate(block.arguments)})
                for k, inner in enumerate(block.operations):
                    inside.append(signature(inner.operation, (number, k)))
        return op.name, _attributes(op), tuple(map(name, op.operands)), tuple(inside)

    late = [op for op in order if stages.stage[op] == 1]
    found = tuple(signature(op, k) for k, op in enumerate(late))
    carried = tuple((str(v.type), layout_text(v)) for v in stages.crossing)
    return carried, tuple(stages.late), found


def _attributes(op: Any) -> tuple[tuple[str, str], ...]:
    """The attributes of an op as text, but for its place in the schedule."""
    known = {name: str(op.attributes[name]) for name in op.attributes}
    return tuple(sorted(item for item in known.items() if item[0] not in (str(STAGE), str(ORDER))))
