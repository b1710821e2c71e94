# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `keep-references`: skip rescaling while the running maximum stays usable (GPUs).

A streamed softmax takes the maximum of every tile, moves its reference there and corrects what
it has summed so far:

    for i:  m' = max(m, rowmax x);  c = exp(m - m');  l = c l + rowsum p;  acc = c acc + p V
            where p = exp(x - m')

but a free reference (`free-references`) may be any number that keeps p in range, and after the
first tile the old one nearly always does. So an iteration tries p = exp(x - m) first, without
looking for a maximum. Every p is positive, so the sum of a row bounds its elements: where all
sums of a warp's rows stay under a bound, m' = m, c = 1, and the corrections are skipped; else the
warp forgets p, computes x again, and does what is written. Where tiles keep moving the reference
(scores that grow along the stream), it stops trying until one does not. Scores that are made of
positions move in every tile: such loops qualify only where the stream begins at the tiles with a
mask (`lower-to-tiles`), where a bias that falls with the distance is largest.

The numbers in range are as exact as with the maximum: floating-point numbers have the same
relative error everywhere. The pass marks the loops of a chain (`neptune.keeps`), all or none:
those of specialised warps whose weights take the registers of the scores, and portable ones whose
rows are those of one warp and whose weights stay in its registers. Loops of specialised warps are
to try whose first matmul is marked (`neptune.again`): all, unless a mask has loops at both ends of
a stream, which run for a tile or two and are not worth the code. `lazy-rescaling` rewrites these
loops, `distribute-tiles` writes portable ones.

Tries are by references that are small (`codegen.gpu.exponentials`). In chains with free references,
kept or not, whose weights are exponentials of a difference from one, the ops that make weights and
factors are marked as well (`neptune.measured`): these may be measured from what rounding makes of
the reference. Where somebody reads the reference behind the loops, sums are taken back there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra.numerics.floats import LARGEST
from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.analysis.layouts import iteration_of
from neptune_mlir.analysis.tiles import foralls, is_blank, nested, read_generic, tuned
from neptune_mlir.dialects.attributes import FREE, NARROWS, WIDENS
from neptune_mlir.dialects.gpu_attributes import (
    AGAIN,
    CONSUMERS,
    KEEPS,
    LAYOUT,
    MEASURED,
    REFERENCES,
    STAGES,
    VIA,
)
from neptune_mlir.dialects.op_names import RELEASE
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.fast_paths import KEPT, missed
from neptune_mlir.transforms.gpu.copies import Copies
from neptune_mlir.transforms.gpu.streams import (
    Accumulation,
    Unfit,
    chain_of,
    is_product,
    multiplies,
    read_accumulation,
)
from neptune_mlir.transforms.registry import register

LARGEST_SUM = 2.0**14  # a sum of weights that is in range, so that each is an f16 number
LARGEST_BYTE = LARGEST[FLOAT8]  # where they are rounded to e4m3
LITTLE = 0.9  # factors of references that hardly move
SMALL = 2.0**20  # references under it lose at most 2^-4 when their product with log2 e is rounded


def largest_sum(weights: Any) -> float:
    """A sum of weights (a tile) that is in range for all that reads them."""
    readers = (use.owner.operation for use in weights.uses)
    return LARGEST_BYTE if any(map(NARROWS.on, readers)) else LARGEST_SUM


@register("keep-references", "look for new references only where weights leave their range")
def keep_references(module: Any) -> None:
    for forall in foralls(module):
        specialised = CONSUMERS.on(forall)
        seen: list[Any] = []
        for op in nested(forall.regions[0].blocks[0]):
            if op.name != "scf.for" or not STAGES.on(op) or op in seen:
                continue
            chain = chain_of(op)
            seen += chain
            if not all(map(_multiplies, chain)) or not any(map(_free, chain)):
                continue
            try:
                _measure(chain)
            except Unfit:
                pass  # exponentials take an operation more
            if not tuned(forall, "keeps", 1):
                continue
            try:
                _keep(chain, specialised)
            except Unfit as reason:
                missed(op.location, KEPT, str(reason))


def _measure(chain: list[Any]) -> None:
    """Mark ops of a chain, if weights may be measured from rounded references in all of its loops.
    Raises Unfit."""
    parts_of = [read_accumulation(loop) for loop in chain]
    guesses = [read_guess(*pair) for pair in zip(chain, parts_of, strict=True)]
    if any(g.carried != guesses[0].carried or g.exponent is None for g in guesses):
        return
    for guess in guesses:
        new, old = guess.moved.results[0], guess.reference
        _mark(guess.weighing, [new], "rows")
        _mark(guess.factor, [old, new], "rows")
        _delay_factor(guess)
    _take_back(chain[-1], guesses[-1], parts_of[-1])


def _mark(op: Any, references: list[Any], mode: str) -> None:
    numbers = [list(op.operands).index(value) for value in references]
    REFERENCES.set(op, numbers)
    MEASURED.set(op, mode)


def _delay_factor(guess: Guess) -> None:
    """Put the factor, and what it goes into, behind the weights: these take longer, and must not
    wait until the references of all rows are known."""
    operations = [op.operation for op in guess.weighing.block.operations]
    waiting: dict[Any, None] = {}
    for op in operations[: operations.index(guess.weighing)]:
        if op == guess.factor or any(defining_op(v) in waiting for v in op.operands):
            waiting[op] = None
    for op in reversed(waiting):
        op.move_after(guess.weighing)


def _take_back(loop: Any, guess: Guess, parts: Accumulation) -> None:
    """Behind the last loop of a chain, where somebody reads its reference: make sums relative to
    the reference itself."""
    at, total = guess.carried
    readers = [use.owner.operation for use in loop.results[at].uses]
    if not readers:
        return
    body, results = loop.regions[0].blocks[0], list(loop.results)
    given = dict(zip(list(body.arguments)[1:], results, strict=True))
    given[guess.moved.results[0]] = results[at]
    users = {k: [use.owner.operation for use in results[k].uses] for k in (total, parts.carried)}
    operations = [op.operation for op in loop.block.operations]
    behind = (op for op in operations[operations.index(loop) + 1 :] if op.name != RELEASE)
    with loop.context, loop.location, ir.InsertionPoint(next(behind)):
        copies = Copies(body, given)
        back = copies.write(guess.factor)  # from the reference to itself: 1 but for rounding
        MEASURED.set(back, "back")
        for op in (guess.scaled, *parts.corrections):
            copies.write(op)
    made = {total: guess.scaled.results[0], parts.carried: read_generic(parts.delayed).init}
    for k, value in made.items():
        for user in users[k]:
            for n, operand in enumerate(user.operands):
                if operand == results[k]:
                    user.operands[n] = copies.values[value]


def _keep(chain: list[Any], specialised: bool) -> None:
    """Mark the loops of a chain. Raises Unfit."""
    parts_of = [read_accumulation(loop) for loop in chain]
    for loop, parts in zip(chain, parts_of, strict=True):
        if not specialised or any(op.operation.name == "linalg.copy" for op in _body_of(loop)):
            _check_stays_in_warp(loop, parts)
    guesses = [read_guess(*pair) for pair in zip(chain, parts_of, strict=True)]
    for parts, guess in zip(parts_of, guesses, strict=True):
        if specialised and not _takes_registers(parts, guess):
            raise Unfit("its weights do not take the registers of its scores")
    if not _is_masked(chain[0]) and any(map(_moves_with_position, chain)):
        raise Unfit("its scores depend on their place in the stream, which no mask ends")
    if any(guess.carried != guesses[0].carried for guess in guesses):
        raise Unfit("the next one carries reference and sum in another order")
    masked = [loop for loop in chain if _is_masked(loop)]
    for guess in guesses:
        for op in (guess.weighing, guess.factor):
            if MEASURED.on(op):  # new references are rare: few registers count for more
                MEASURED.set(op, "warp")
    for loop, parts in zip(chain, parts_of, strict=True):
        KEEPS.set(loop)
        if specialised and (len(masked) < 2 or loop not in masked):
            AGAIN.set(parts.leading)


@dataclass(frozen=True)
class Guess:
    """What moves a reference in a loop.

    Attributes:
        reference: the old reference, an argument of the loop's body.
        moved: the op that makes the new one.
        factor: the op that makes the correction's factor, 1 where the reference stays.
        scaled: the op that corrects the running sum.
        total: the op that adds to it; what it reduces are the weights.
        carried: the numbers of reference and sum among what the loop carries.
    """

    reference: Any
    moved: Any
    factor: Any
    scaled: Any
    total: Any
    carried: tuple[int, int]

    @property
    def weights(self) -> Any:
        return self.total.operands[0]

    @property
    def weighing(self) -> Any:
        """The op that makes the weights."""
        return defining_op(self.weights)

    @property
    def exponent(self) -> Any:
        """The scalar op in `weighing` that takes the reference from a value: where weights are
        exponentials of just that, and the factor one of two references' difference. Else None."""
        found = exponent_of(self.weighing)
        moved = exponent_of(self.factor)
        if found is None or moved is None:
            return None
        old, new = (_source(v, self.factor) for v in moved.operands)
        if (old, new) != (self.reference, self.moved.results[0]):
            return None
        return found if _source(_guarded(found.operands[1]), self.weighing) == new else None

    @property
    def outputs(self) -> list[Any]:
        """What the rest of the iteration reads: reference, sum, weights."""
        return [self.moved.results[0], self.total.results[0], self.weights]


def read_guess(loop: Any, parts: Accumulation) -> Guess:
    """Raises Unfit when the loop has another shape."""
    body = loop.regions[0].blocks[0]
    *inner, end = [op.operation for op in body.operations]
    if parts.leading is None:
        raise Unfit("nothing to try again")
    moved = _moved(loop, list(end.operands))
    factor = _factor(parts, read_generic(moved).init, moved.results[0])
    scaled, total = _sum(factor, parts, body, list(end.operands))
    guess = Guess(
        read_generic(moved).init, moved, factor, scaled, total,
        _carried(body, moved, scaled, total),
    )  # fmt: skip
    _check_readers(guess, parts, end)
    theirs = (
        moved, factor, scaled, total, guess.weighing, parts.delayed, *parts.late,
        *parts.corrections,
    )  # fmt: skip
    for op in inner[inner.index(parts.leading) + 1 :]:
        if op.name != "linalg.generic" or op in theirs:
            continue
        if any(reader in (*parts.late, end) for reader in _readers(op.results[0])):
            raise Unfit("the last product reads more than its exponentials")
    return guess


def _moved(loop: Any, yielded: Sequence[Any]) -> Any:
    """The op that makes the new reference of a loop, which is carried. Raises Unfit."""
    free = _free(loop)
    if len(free) != 1:
        raise Unfit(f"{len(free)} references, not 1")
    (moved,) = free
    arguments = list(loop.regions[0].blocks[0].arguments)
    if read_generic(moved).init not in arguments or moved.results[0] not in yielded:
        raise Unfit("its reference is not carried")
    return moved


def _factor(parts: Accumulation, reference: Any, new: Any) -> Any:
    """The op that makes the factor of corrections. Raises Unfit."""
    if not parts.scales or len(parts.handed) != 1:
        raise Unfit("its corrections do more than scale by one factor")
    factor = defining_op(parts.handed[0])
    if not _is_one_for_equals(factor, reference, new):
        raise Unfit("its factor is not known to be 1 where the reference stays")
    return factor


def _sum(factor: Any, parts: Accumulation, body: Any, yielded: Sequence[Any]) -> tuple[Any, Any]:
    """The op that corrects the running sum and the one that adds to it. Raises Unfit."""
    readers = [op for op in _readers(factor.results[0]) if op not in parts.corrections]
    if len(readers) != 1 or not _scales(readers[0], body, factor.results[0]):
        raise Unfit("its factor scales more than one sum")
    (scaled,) = readers
    totals = _readers(scaled.results[0])
    if len(totals) != 1 or not _sums(totals[0]) or totals[0].results[0] not in yielded:
        raise Unfit("its factor scales more than a sum")
    (total,) = totals
    weights = defining_op(total.operands[0])
    if weights is None or weights.block != body or not _is_exponential(weights):
        raise Unfit("what it sums are not exponentials")
    return scaled, total


def _carried(body: Any, moved: Any, scaled: Any, total: Any) -> tuple[int, int]:
    """The numbers of reference and sum among what a loop carries. Raises Unfit."""
    arguments = list(body.arguments)
    *_, end = body.operations
    yielded = list(end.operation.operands)
    sums = scaled.operands[0] if scaled.operands[0] in arguments else scaled.operands[1]
    carried = arguments.index(read_generic(moved).init) - 1, arguments.index(sums) - 1
    if (yielded.index(moved.results[0]), yielded.index(total.results[0])) != carried:
        raise Unfit("it carries reference and sum on in another order")
    return carried


def _check_readers(guess: Guess, parts: Accumulation, end: Any) -> None:
    """Raises Unfit where ops of the body read what only those of the guess may."""
    for op in _readers(guess.moved.results[0]):
        if op not in (end, guess.factor, guess.weighing):
            raise Unfit("its reference is read by more than exponentials")
    for op in _readers(guess.weighing.results[0]):
        if op not in (guess.total, parts.delayed, *parts.late):
            raise Unfit("its exponentials are read by more than a sum and a product")
    if any(op not in (guess.moved, guess.factor) for op in _readers(guess.reference)):
        raise Unfit("its old reference is read by more than the factor")


def _multiplies(loop: Any) -> bool:
    """Whether a loop has products by matrix instructions, which others compute beside."""
    return any(is_product(op.operation) for op in loop.regions[0].blocks[0].operations)


def _body_of(loop: Any) -> Any:
    return loop.regions[0].blocks[0].operations


def _check_stays_in_warp(loop: Any, parts: Accumulation) -> None:
    """Raises Unfit when warps cannot decide on their own: they share rows, or tiles that they
    try lie in shared memory, or come there in the iteration."""
    if parts.leading is None:
        raise Unfit("nothing to try again")
    if STAGES.of(loop) < 2:
        raise Unfit("its tiles are not brought ahead")
    *inner, _ = [op.operation for op in loop.regions[0].blocks[0].operations]
    for op in inner[inner.index(parts.leading) + 1 :]:
        if op.name == "linalg.copy":
            raise Unfit("its weights move between threads")
        if op.name != "linalg.generic" or op == parts.delayed:
            continue
        g = read_generic(op)
        if VIA.of(op) != "registers":
            raise Unfit("its scores are read by more than elementwise ops and reductions")
        layout = iteration_of(op, g.extents)
        if layout.digits_along(g.reduced, "warp"):
            raise Unfit("its rows are those of several warps")


def _takes_registers(parts: Accumulation, guess: Guess) -> bool:
    """Whether weights and scores, and sums and references, are tiles of one type and layout."""
    pairs = ((parts.leading, guess.weighing), (guess.moved, guess.total))
    return all(
        one.results[0].type == other.results[0].type and LAYOUT.of(one) == LAYOUT.of(other)
        for one, other in pairs
    )


def _is_masked(loop: Any) -> bool:
    return _computes(loop, "arith.cmpi")


def _moves_with_position(loop: Any) -> bool:
    """Whether scores are made of numbers of positions, so that they move tile by tile."""
    return _computes(loop, "arith.sitofp")


def _computes(loop: Any, name: str) -> bool:
    """Whether a tile op of a loop does; what only changes a type compares bits as well."""
    inner = (op.operation for op in loop.regions[0].blocks[0].operations)
    return any(
        x.operation.name == name
        for op in inner
        if op.name == "linalg.generic" and not NARROWS.on(op) and not WIDENS.on(op)
        for x in op.regions[0].blocks[0].operations
    )  # fmt: skip


def _free(loop: Any) -> list[Any]:
    """The ops of a loop that make free references."""
    inner = (op.operation for op in loop.regions[0].blocks[0].operations)
    return [op for op in inner if FREE.on(op)]


def _readers(value: Any) -> list[Any]:
    found = [use.owner.operation for use in value.uses]
    return [op for k, op in enumerate(found) if op.name != RELEASE and op not in found[:k]]


def _is_one_for_equals(op: Any, a: Any, b: Any) -> bool:
    """Whether a tile op of two values gives 1 where they are equal, by a select that says so, and
    whatever else it reads."""
    inputs = list(op.operands)[:-1] if op is not None and op.name == "linalg.generic" else []
    if inputs.count(a) != 1 or inputs.count(b) != 1:
        return False
    block, chosen = op.regions[0].blocks[0], _last(op)
    if chosen is None or chosen.name != "arith.select":
        return False
    condition, one = defining_op(chosen.operands[0]), defining_op(chosen.operands[1])
    equal = (
        condition is not None and condition.name == "arith.cmpf"
        and ir.IntegerAttr(condition.attributes["predicate"]).value == 1  # ordered, equal
        and {*condition.operands} == {block.arguments[inputs.index(v)] for v in (a, b)}
    )  # fmt: skip
    return (
        equal and one is not None and one.name == "arith.constant"
        and ir.FloatAttr(one.attributes["value"]).value == 1.0
    )  # fmt: skip


def _scales(op: Any, body: Any, factor: Any) -> bool:
    """Whether it multiplies a carried value by the factor."""
    return op.name == "linalg.generic" and multiplies(op, set(body.arguments), {factor})


def _sums(op: Any) -> bool:
    """Whether it adds up a tile, into what it starts with."""
    if op.name != "linalg.generic" or len(list(op.operands)) != 2:
        return False
    inside = [x.operation.name for x in op.regions[0].blocks[0].operations]
    return inside == ["arith.addf", "linalg.yield"] and not is_blank(op.operands[1])


def _is_exponential(op: Any) -> bool:
    """Whether a tile op gives exponentials, or 0 where it masks them: nothing negative."""
    last = _last(op)
    if last is not None and last.name == "arith.select":
        _, value, zero = map(defining_op, last.operands)
        if zero is None or zero.name != "arith.constant":
            return False
        last = value if ir.FloatAttr(zero.attributes["value"]).value == 0.0 else None
    return last is not None and last.name == "math.exp"


def exponent_of(op: Any) -> Any:
    """The difference whose exponential a tile op gives, if it is in its body and read once."""
    last = _last(op)
    candidates = last.operands if last.name == "arith.select" else last.results
    found = [v for v in map(defining_op, candidates) if v is not None and v.name == "math.exp"]
    difference = defining_op(found[0].operands[0]) if len(found) == 1 else None
    if difference is None or difference.name != "arith.subf" or difference.block != last.block:
        return None
    if not isinstance(difference.results[0].type, ir.F32Type):
        return None
    return difference if len(list(difference.results[0].uses)) == 1 else None


def condition_of(op: Any) -> Any:
    """What weights are 0 without, in the body of the op that makes them; None if there is
    nothing."""
    last = _last(op)
    return last.operands[0] if last.name == "arith.select" else None


def _guarded(value: Any) -> Any:
    """What a guard reads: where(value == -inf, 0, value)."""
    op = defining_op(value)
    return op.operands[2] if op is not None and op.name == "arith.select" else value


def _source(value: Any, op: Any) -> Any:
    """The tile that an argument of a tile op's body stands for."""
    arguments = list(op.regions[0].blocks[0].arguments)
    return op.operands[arguments.index(value)] if value in arguments else None


def _last(op: Any) -> Any:
    """The scalar op that makes the result of a tile op."""
    if op.name != "linalg.generic":
        return None
    *_, end = [inside.operation for inside in op.regions[0].blocks[0].operations]
    return defining_op(end.operands[0])
