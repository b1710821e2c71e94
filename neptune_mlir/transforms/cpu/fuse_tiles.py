# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `fuse-tiles`: what is computed of the points of a tile is computed once, in one loop.

A program makes one op of each nest, and so each reads the tile again:

    %t = x - mean              %s, %q = sum x - mean, sum (x - mean) * (x - mean)
    %s = sum %t           ->
    %q = sum %t * %t           (%t is a result too where something else reads it)

* A function that a reduction has computed of each point (an exponential) is a result of it where a
  later op would compute it again. The reduction may read a maximum m as `where(m == -inf, 0, m)`
  where the later op reads m itself. If m is the maximum of the numbers u that it is taken off, then
  u - m is NaN where m is -inf, whatever the point, and so is the function: `where(m == -inf, nan,
  p)` takes its place.
* A function that an op has computed of each point, and that its result holds, is read from there by
  a later op. The result may hold it where a condition holds, and something else elsewhere, if the
  later op uses the function under that condition alone (the weights of a mask, in a gradient).
* Ops over the same points become one, if the second reads what the first makes of a point, or both
  read a tile, and one of them reduces, or both along the same axes. Products of matrices are alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.dialects.attributes import COMBINE
from neptune_mlir.ir.bindings import arith, ir, linalg, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import register

# functions that cost more than to load a number
_FUNCTIONS = {"math.exp", "math.exp2", "math.log", "math.tanh", "math.erf", "math.sin", "math.cos"}
_FLOATS = (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)


@register("fuse-tiles", "compute what ops on tiles share once: one loop over the same points")
def fuse_tiles(module: Any) -> None:
    blocks: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "scf.forall":
            blocks.extend(_blocks(op.regions[0].blocks[0]))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for block in blocks:
        _share(block)
        while _merge_one(block):
            pass


def _blocks(block: Any) -> Iterator[Any]:
    yield block
    for op in block.operations:
        if op.operation.name.startswith("scf."):
            for region in op.regions:
                for inner in region.blocks:
                    yield from _blocks(inner)


@dataclass(frozen=True)
class _TilePoints:
    """A tile op over static loops whose points a tile lies at: no product of matrices."""

    op: Any
    maps: tuple[Any, ...]
    kinds: tuple[str, ...]
    extents: tuple[int, ...]
    inputs: int

    @property
    def block(self) -> Any:
        return self.op.regions[0].blocks[0]

    @property
    def yielded(self) -> list[Any]:
        return list(self.block.operations[len(self.block.operations) - 1].operation.operands)

    @property
    def reduces(self) -> bool:
        return "reduction" in self.kinds

    def source(self, argument: Any) -> tuple[Any, Any]:
        """What an argument of the body stands for, and where that is read."""
        return self.op.operands[argument.arg_number], self.maps[argument.arg_number]

    def is_point(self, k: int) -> bool:
        """Whether operand k has an element for each point."""
        return bool(self.maps[k] == ir.AffineMap.get_identity(len(self.extents)))

    def tiles(self) -> set[Any]:
        """The inputs that have an element for each point."""
        return {self.op.operands[k] for k in range(self.inputs) if self.is_point(k)}


def _points_of(op: Any) -> _TilePoints | None:
    if op.name != "linalg.generic" or not len(op.results) or COMBINE.on(op):
        return None
    maps = tuple(ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"])
    kinds = tuple(str(a).split("<")[-1].rstrip(">") for a in op.attributes["iterator_types"])
    extents = [0] * len(kinds)
    for value, m in zip(op.operands, maps, strict=True):
        if not all(isinstance(e, ir.AffineDimExpr) for e in m.results):
            return None
        if len(m.results) and not value.type.has_static_shape:
            return None
        for d, e in enumerate(m.results):
            extents[ir.AffineDimExpr(e).position] = value.type.shape[d]
    found = _TilePoints(op, maps, kinds, tuple(extents), len(op.operands) - len(op.results))
    plain = all(not len(inner.operation.regions) for inner in found.block.operations)
    return found if plain and extents and found.tiles() else None


def _all(block: Any) -> list[_TilePoints]:
    found = (_points_of(op.operation) for op in block.operations)
    return [points for points in found if points is not None]


# --- functions that are computed again


def _share(block: Any) -> None:
    """Read what reductions have computed of each point."""
    ops = _all(block)
    for k, later in enumerate(ops):
        if later.reduces:
            continue
        for op in _functions_of_points(later):
            for earlier in ops[:k]:
                found = _found(earlier, later, op)
                if found is not None:
                    _read_again(later, op, *found)
                    return _share(block)


def _found(earlier: _TilePoints, later: _TilePoints, wanted: Any) -> tuple[Any, Any] | None:
    """A tile of what an op computes of each point, if a later op computes it again; and the operand
    of that op that it reads a guard of, or None."""
    if not earlier.reduces:
        tile = _held(earlier, later, wanted)
        return None if tile is None else (tile, None)
    found = _computed(earlier, later, wanted)
    return None if found is None else (_as_result(earlier, found[0]), found[1])


def _held(earlier: _TilePoints, later: _TilePoints, wanted: Any) -> Any:
    """The result that holds a function of each point, at least wherever `later` uses it."""
    if earlier.extents != later.extents:
        return None
    for k, value in enumerate(earlier.yielded):
        if not earlier.is_point(earlier.inputs + k):
            continue
        chosen, condition = defining_op(value), None
        if chosen is not None and chosen.name == "arith.select":
            condition, value, _ = chosen.operands
        made = defining_op(value)
        if made is None or made.name != wanted.name or made.block != earlier.block:
            continue
        same = _Sameness(earlier, later)
        if same.values(value, wanted.results[0]) and not same.guarded and (
            condition is None or _only_under(condition, earlier, later, wanted.results[0])
        ):
            return earlier.op.results[k]
    return None


def _only_under(condition: Any, earlier: _TilePoints, later: _TilePoints, value: Any) -> bool:
    """Whether nothing that `later` yields depends on a value of its body but where the condition
    holds, which is one of the body of `earlier`."""
    pending, seen = [value], {value}
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user.name == "linalg.yield":
                return False
            if user.name == "arith.select" and use.operand_number == 1:
                same = _Sameness(earlier, later)
                if same.values(condition, user.operands[0]) and not same.guarded:
                    continue
            pending += [v for v in user.results if v not in seen]
            seen.update(user.results)
    return True


def _functions_of_points(points: _TilePoints) -> list[Any]:
    """The functions in the body that depend on a point of a tile, in one walk: bodies are long."""
    given = points.block.arguments
    varying = {value for value in given if points.is_point(value.arg_number)}
    found = []
    for op in [o.operation for o in points.block.operations]:
        if any(value in varying for value in op.operands):
            varying.update(op.results)
            if op.name in _FUNCTIONS:
                found.append(op)
    return found


def _computed(earlier: _TilePoints, later: _TilePoints, wanted: Any) -> tuple[Any, Any] | None:
    """The value in a reduction that is a function of the same of each point; and the operand of
    `later` that it reads a guard of, or None."""
    if earlier.extents != later.extents:
        return None
    for op in [o.operation for o in earlier.block.operations]:
        if op.name != wanted.name:
            continue
        same = _Sameness(earlier, later)
        if same.values(op.results[0], wanted.results[0]):
            if not same.guarded:
                return op.results[0], None
            (guarded,) = {later.source(v)[0] for v in same.guarded} or {None}
            minuend = _minuend(later, wanted, guarded)
            if minuend is not None and _is_maximum(guarded, later, minuend):
                return op.results[0], same.guarded[0]
    return None


class _Sameness:
    """Whether values of two bodies are the same at each point, but for guards of what the second
    reads: these arguments are noted."""

    def __init__(self, first: _TilePoints, second: _TilePoints) -> None:
        self.first, self.second = first, second
        self.guarded: list[Any] = []

    def values(self, a: Any, b: Any) -> bool:
        """Each pair of values is compared once: bodies are long, and share what they repeat."""
        seen, pending = {(a, b)}, [(a, b)]
        while pending:
            operands = self._operands(*pending.pop())
            if operands is None:
                return False
            for pair in reversed(operands):
                if pair not in seen:
                    seen.add(pair)
                    pending.append(pair)
        return True

    def _operands(self, a: Any, b: Any) -> list[tuple[Any, Any]] | None:
        """The pairs that have to be the same for two values to be; None: these are not."""
        a_in, b_in = _argument(self.first, a), _argument(self.second, b)
        if a_in and b_in:
            return [] if self.first.source(a) == self.second.source(b) else None
        if b_in and (inner := _guard_of(a)) is not None and self.values(inner, b):
            self.guarded.append(b)
            return []
        one, other = defining_op(a), defining_op(b)
        inside = not (a_in or b_in or one is None or other is None)
        if not inside or one.block != self.first.block or other.block != self.second.block:
            return [] if a == b else None
        if one.name != other.name or _attributes(one) != _attributes(other):
            return None
        return list(zip(one.operands, other.operands, strict=True))


def _attributes(op: Any) -> dict[str, Any]:
    return {name: op.attributes[name] for name in op.attributes}


def _argument(points: _TilePoints, value: Any) -> bool:
    return isinstance(value, ir.BlockArgument) and bool(value.owner == points.block)


def _guard_of(value: Any) -> Any:
    """m, of `where(m == -inf, 0, m)`."""
    op = defining_op(value)
    if op is None or op.name != "arith.select":
        return None
    test, zero, m = op.operands
    compared = defining_op(test)
    if compared is None or compared.name != "arith.cmpf" or compared.operands[0] != m:
        return None
    equal = int(ir.IntegerAttr(compared.attributes["predicate"])) == 1  # oeq
    least, nothing = _number(compared.operands[1]), _number(zero)
    return m if equal and least == -math.inf and nothing == 0 else None


def _number(value: Any) -> float | None:
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or not isinstance(value.type, _FLOATS):
        return None
    return float(ir.FloatAttr(op.attributes["value"]).value)


def _minuend(points: _TilePoints, function: Any, m: Any) -> Any:
    """u, where a function is exp(u - m)."""
    taken = defining_op(function.operands[0])
    if not function.name.startswith("math.exp") or taken is None or taken.name != "arith.subf":
        return None
    u, other = taken.operands
    return u if _argument(points, other) and points.source(other)[0] == m else None


def _is_maximum(m: Any, later: _TilePoints, u: Any) -> bool:
    """Whether `m` is the maximum of the numbers `u` of each point, and no other start than -inf."""
    maker = defining_op(m)
    made = None if maker is None else _points_of(maker)
    if made is None or len(maker.results) != 1 or made.extents != later.extents:
        return False
    combined = defining_op(made.yielded[0])
    if combined is None or combined.name != "arith.maximumf":
        return False
    acc, value = combined.operands
    if acc != made.block.arguments[made.inputs]:
        return False
    chosen = defining_op(value)
    if chosen is not None and chosen.name == "arith.select" and (
        _number(chosen.operands[2]) == -math.inf
    ):
        value = chosen.operands[1]  # points that do not exist
    same = _Sameness(made, later)
    return same.values(value, u) and not same.guarded


def _as_result(points: _TilePoints, value: Any) -> Any:
    """A tile of a value of each point, which a reduction makes as well."""
    with ir.InsertionPoint(points.op), points.op.location:
        empty = tensor.empty(list(points.extents), value.type)
        made = _build(
            points.extents, points.kinds,
            [(v, m) for v, m in zip(points.op.operands, points.maps, strict=True)][: points.inputs],
            [*_outputs(points), (empty, ir.AffineMap.get_identity(len(points.extents)))],
        )  # fmt: skip
        body = made.regions[0].blocks[0]
        before = list(body.arguments)[:-1]
        with ir.InsertionPoint(body):
            env = _clone(points, before)
            linalg.YieldOp([env.get(v, v) for v in (*points.yielded, value)])
    for old, new in zip(points.op.results, made.results, strict=False):
        old.replace_all_uses_with(new)
    points.op.erase()
    return made.results[len(made.results) - 1]


def _read_again(later: _TilePoints, function: Any, tile: Any, guarded: Any) -> None:
    """Take a function of each point from a tile."""
    identity = ir.AffineMap.get_identity(len(later.extents))
    op = later.op
    kept = [
        (v, m) for k, (v, m) in enumerate(zip(op.operands, later.maps, strict=True))
        if k < later.inputs
    ]  # fmt: skip
    with ir.InsertionPoint(op), op.location:
        made = _build(later.extents, later.kinds, [*kept, (tile, identity)], _outputs(later))
        body = made.regions[0].blocks[0]
        arguments = list(body.arguments)
        old = [*arguments[: later.inputs], *arguments[later.inputs + 1 :]]
        value = arguments[later.inputs]
        with ir.InsertionPoint(body):
            if guarded is not None:
                m = old[guarded.arg_number]
                least, nan = (arith.constant(m.type, x) for x in (-math.inf, math.nan))
                none = arith.cmpf(arith.CmpFPredicate.OEQ, m, least)
                value = arith.select(none, nan, value)
            env = _clone(later, old, {function.results[0]: value})
            linalg.YieldOp([env.get(v, v) for v in later.yielded])
    for old_result, new in zip(op.results, made.results, strict=True):
        old_result.replace_all_uses_with(new)
    op.erase()
    _drop_unused(made)


# --- one loop


def _merge_one(block: Any) -> bool:
    ops = _all(block)
    order = {o.operation: k for k, o in enumerate(block.operations)}
    for k, later in enumerate(ops):
        for earlier in reversed(ops[:k]):
            if _suits(earlier, later, block, order):
                _merge(earlier, later)
                return True
    return False


def _suits(a: _TilePoints, b: _TilePoints, block: Any, order: dict[Any, int]) -> bool:
    """Whether `a` may be computed with `b`, behind it."""
    if a.extents != b.extents or not (a.reduces or b.reduces):
        return False
    if a.reduces and b.reduces and a.kinds != b.kinds:
        return False  # a loop that adds up for one of them separates results of the other
    reads = False
    for k, value in enumerate(b.op.operands):
        if value in a.op.results:
            result = list(a.op.results).index(value)
            if k >= b.inputs or not b.is_point(k) or not a.is_point(a.inputs + result):
                return False
            reads = True
    if not reads and not a.tiles() & b.tiles():
        return False
    return all(
        use.owner.operation == b.op or _position(use.owner.operation, block, order) > order[b.op]
        for result in a.op.results for use in result.uses
    )  # fmt: skip


def _position(op: Any, block: Any, order: dict[Any, int]) -> int:
    while op.block != block:
        op = op.parent.operation
    return order[op]


def _merge(a: _TilePoints, b: _TilePoints) -> None:
    def inputs_of(p: _TilePoints) -> list[tuple[Any, Any]]:
        pairs = zip(p.op.operands, p.maps, strict=True)
        return [pair for k, pair in enumerate(pairs) if k < p.inputs]

    mine = {r: k for k, r in enumerate(a.op.results)}
    inputs: list[tuple[Any, Any]] = []
    for pair in (*inputs_of(a), *inputs_of(b)):
        if pair[0] not in mine and pair not in inputs:
            inputs.append(pair)
    kept = [
        k for r, k in mine.items()
        if not a.is_point(a.inputs + k) or any(use.owner.operation != b.op for use in r.uses)
    ]  # fmt: skip
    kinds = tuple(
        "reduction" if "reduction" in pair else "parallel"
        for pair in zip(a.kinds, b.kinds, strict=True)
    )
    outs = [_outputs(a)[k] for k in kept] + _outputs(b)
    with ir.InsertionPoint(b.op), b.op.location:
        made = _build(a.extents, kinds, inputs, outs)
        body = made.regions[0].blocks[0]
        arguments = list(body.arguments)
        held = dict(zip(kept, arguments[len(inputs) :], strict=False))
        with ir.InsertionPoint(body):
            place = [arguments[inputs.index(pair)] for pair in inputs_of(a)]
            unread = [held.get(k) for k in range(len(a.op.results))]
            env = _clone(a, [*place, *unread])
            values = [env.get(v, v) for v in a.yielded]
            place = [
                values[mine[pair[0]]] if pair[0] in mine else arguments[inputs.index(pair)]
                for pair in inputs_of(b)
            ]
            env = _clone(b, [*place, *arguments[len(inputs) + len(kept) :]])
            linalg.YieldOp([*(values[k] for k in kept), *(env.get(v, v) for v in b.yielded)])
    for new, k in enumerate(kept):
        a.op.results[k].replace_all_uses_with(made.results[new])
    for old, new_result in zip(b.op.results, list(made.results)[len(kept) :], strict=True):
        old.replace_all_uses_with(new_result)
    b.op.erase()
    a.op.erase()


# --- building


def _outputs(points: _TilePoints) -> list[tuple[Any, Any]]:
    return list(zip(points.op.operands, points.maps, strict=True))[points.inputs :]


def _build(
    extents: Sequence[int], kinds: Sequence[str], inputs: Sequence[tuple[Any, Any]],
    outs: Sequence[tuple[Any, Any]],
) -> Any:  # fmt: skip
    """An op with an empty body."""
    made = linalg.GenericOp(
        [v.type for v, _ in outs], [v for v, _ in inputs], [v for v, _ in outs],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for _, m in (*inputs, *outs)]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{k}>") for k in kinds]),
    )  # fmt: skip
    elements = [getattr(v.type, "element_type", v.type) for v, _ in (*inputs, *outs)]
    made.regions[0].blocks.append(*elements, arg_locs=[ir.Location.current] * len(elements))
    return made.operation


def _clone(
    points: _TilePoints, arguments: Sequence[Any], known: dict[Any, Any] | None = None
) -> dict[Any, Any]:
    """Copy what a body needs to the insertion point; its values there. Arguments that are None are
    unread; `known` values need nothing."""
    env: dict[Any, Any] = dict(zip(points.block.arguments, arguments, strict=True))
    env.update(known or {})
    operations = [op.operation for op in points.block.operations][:-1]
    needed = set(points.yielded)
    for op in reversed(operations):
        if any(r in needed and r not in env for r in op.results):
            needed.update(op.operands)
    for op in operations:
        if not any(r in needed and r not in env for r in op.results):
            continue
        copy = op.clone()
        for k, value in enumerate(op.operands):
            if value in env:
                copy.operands[k] = env[value]
        env.update(zip(op.results, copy.results, strict=True))
    return env


def _drop_unused(op: Any) -> None:
    """The same op without the inputs that its body does not read."""
    points = _points_of(op)
    assert points is not None
    arguments = points.block.arguments
    read = [k for k in range(points.inputs) if list(arguments[k].uses)]
    pairs = list(zip(op.operands, points.maps, strict=True))
    with ir.InsertionPoint(op), op.location:
        made = _build(
            points.extents, points.kinds, [pairs[k] for k in read], pairs[points.inputs :]
        )
        body = made.regions[0].blocks[0]
        there = iter(body.arguments)
        given = [next(there) if k in read or k >= points.inputs else None
                 for k in range(len(arguments))]  # fmt: skip
        with ir.InsertionPoint(body):
            env = _clone(points, given)
            linalg.YieldOp([env.get(v, v) for v in points.yielded])
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
