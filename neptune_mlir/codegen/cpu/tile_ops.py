# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`linalg.generic` on tiles, with operands resolved to memory, and what can be told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from neptune_mlir.algebra.combiners import IDENTITIES
from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.scratch import Slot
from neptune_mlir.ir.bindings import ir

DIVISIONS = {"arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi",
              "arith.ceildivsi", "arith.ceildivui"}  # fmt: skip

# (type, shape, inner dimension) -> scratch memory
Allocate = Callable[[Any, tuple[int, ...], int], MemoryView]


@dataclass
class TileOperand:
    """One operand: a view read through affine `index` expressions, or a scalar. `casts`: of the
    factor of a product, the types that its numbers are cast to before they are multiplied."""

    view: MemoryView | None
    scalar: Any
    index: list[Any]
    casts: tuple[Any, ...] = ()

    def position_of(self, dim: int) -> int | None:
        """The dimension of the view that is exactly loop `dim`."""
        for k, e in enumerate(self.index):
            if isinstance(e, ir.AffineDimExpr) and e.position == dim:
                return k
        return None

    def lane_of(self, dim: int) -> int | None:
        """The dimension of the view along which neighbours of loop `dim` lie: read at the loop, or
        at the loop plus what other loops say, as a convolution reads."""
        found = [k for k, e in enumerate(self.index) if _mentions(e, dim)]
        exact = self.position_of(dim)
        if exact is not None or len(found) != 1 or self.view is None:
            return exact
        moved = _is_shifted(self.index[found[0]], dim) and self.view.padded != found[0]
        return found[0] if moved else None

    def uses(self, dim: int) -> bool:
        return any(_mentions(e, dim) for e in self.index)


@dataclass
class TileGeneric:
    """A `linalg.generic` with its operands resolved to views. `extents` are static.

    Attributes:
        loaded: the views of arrays that the body loads single elements from.
        live: where each loop may end before its extent (see `tile_live`); None: nowhere.
    """

    op: Any
    inputs: list[TileOperand]
    outputs: list[TileOperand]
    extents: list[int]
    reduced: list[bool]
    lows: list[Index]  # where each loop starts (a strip of the op's domain)
    loaded: dict[Any, MemoryView] = field(default_factory=dict)
    live: list[Any] = field(default_factory=list)

    @property
    def body(self) -> Any:
        return self.op.regions[0].blocks[0]

    @property
    def operands(self) -> list[TileOperand]:
        return [*self.inputs, *self.outputs]

    def end(self, em: VectorEmitter, d: int, extent: int) -> Index:
        """Where loop `d` ends that has so many points from its start on."""
        end = em.add(self.lows[d], extent)
        bound = self.live[d] if self.live else None
        return end if bound is None else em.minimum(end, bound)

    def spans(self, output: TileOperand) -> bool:
        """Whether the output is written at every point (no loop is reduced away)."""
        return all(output.uses(d) for d, r in enumerate(self.reduced) if r)


def _mentions(expression: Any, dim: int) -> bool:
    if isinstance(expression, ir.AffineDimExpr):
        return bool(expression.position == dim)
    if isinstance(expression, ir.AffineConstantExpr):
        return False
    return _mentions(expression.lhs, dim) or _mentions(expression.rhs, dim)


def _is_shifted(expression: Any, dim: int) -> bool:
    """Whether an expression is loop `dim` plus what does not depend on it."""
    if isinstance(expression, ir.AffineDimExpr):
        return bool(expression.position == dim)
    if not isinstance(expression, ir.AffineAddExpr):
        return False
    sides = (expression.lhs, expression.rhs)
    return sum(_mentions(e, dim) for e in sides) == 1 and any(_is_shifted(e, dim) for e in sides)


def combiner(generic: TileGeneric, position: int) -> str | None:
    """The op that combines output `position`, if the body is `yield op(acc, x)`."""
    block = generic.body
    acc = block.arguments[len(generic.inputs) + position]
    value = block.operations[len(block.operations) - 1].operands[position]
    uses = list(acc.uses)
    if isinstance(value, ir.BlockArgument) or len(uses) != 1:
        return None
    op = value.owner.operation
    if op.name not in IDENTITIES or uses[0].owner.operation != op:
        return None
    return str(op.name)


def copied_places(generic: TileGeneric) -> list[tuple[int, int]] | None:
    """For an op that only copies or transposes: the dimensions of source and target that each
    loop runs along."""
    if len(generic.inputs) != 1 or len(generic.outputs) != 1 or any(generic.reduced):
        return None
    (source,), (target,) = generic.inputs, generic.outputs
    (first, *others) = generic.body.operations
    if others or first.operands[0] != generic.body.arguments[0] or not source.view:
        return None
    loops = range(len(generic.extents))
    places = [(source.position_of(d), target.position_of(d)) for d in loops]
    plain = all(len(o.index) == len(loops) for o in (source, target))
    return places if plain and None not in [k for pair in places for k in pair] else None


def filled_with(generic: TileGeneric) -> Any:
    """The scalar that a fill writes, when the generic is one."""
    block = generic.body
    if len(generic.outputs) != 1 or len(block.operations) != 1 or any(generic.reduced):
        return None
    (value,) = block.operations[0].operands
    if not isinstance(value, ir.BlockArgument) or value.owner != block:
        return value
    number = value.arg_number
    if number < len(generic.inputs) and generic.inputs[number].view is None:
        return generic.inputs[number].scalar
    return None


def as_copy(em: VectorEmitter, generic: TileGeneric) -> tuple[MemoryView, MemoryView] | None:
    """Source and target, dimension by dimension, of an op that only copies or transposes."""
    places = copied_places(generic)
    if places is None:
        return None

    def seen(o: TileOperand, side: int) -> MemoryView:
        assert o.view is not None
        origin = em.shifted(o.view, [em.affine(e, generic.lows) for e in o.index])
        strides = tuple(origin.strides[pair[side]] for pair in places)
        return replace(origin, sizes=tuple(generic.extents), strides=strides, padded=None)

    return seen(generic.inputs[0], 0), seen(generic.outputs[0], 1)


def same_output(fill: TileGeneric, after: TileGeneric) -> bool:
    return fill.outputs[0].view == after.outputs[0].view and not any(
        o.view is not None and o.view.slot is fill.outputs[0].view.slot for o in after.inputs
    )


def overwrites(generic: TileGeneric, slot: Slot) -> bool:
    """Whether the op writes all of a tile and reads nothing of it."""
    block = generic.body
    inputs = len(generic.inputs)
    for k, o in enumerate(generic.operands):
        if o.view is None or o.view.slot is not slot:
            continue
        if list(block.arguments[k].uses):
            return False
        if k >= inputs and any(r and not o.uses(d) for d, r in enumerate(generic.reduced)):
            return False
    return True


def copied_once(tile: Any) -> bool:
    """Whether one op writes a tile, and copies it from elsewhere (fills do not count)."""
    copies, writers = 0, 0
    for value, use in _uses(tile):
        op = use.owner.operation
        if op.name == "memref.copy" and op.operands[1] == value:
            copies += 1
        elif op.name == "linalg.generic":
            count = int(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])[0])
            if use.operand_number >= count:
                plain = len(op.regions[0].blocks[0].operations) == 1
                arrays = [v for v in list(op.operands)[:count] if isinstance(v.type, ir.MemRefType)]
                copies += plain and len(arrays) == 1
                writers += not plain
    return copies == 1 and not writers


def _uses(value: Any) -> Iterator[tuple[Any, Any]]:
    """The uses of a tile and of its parts."""
    for use in value.uses:
        if use.owner.operation.name == "memref.subview":
            yield from _uses(use.owner.operation.results[0])
        else:
            yield value, use


def fetched_once(generic: TileGeneric, fetched: list[Any]) -> TileGeneric:
    """The next tile is fetched by the first that reads this one."""
    inputs = []
    for o in generic.inputs:
        if o.view is not None and o.view.ahead is not None:
            if o.view.ahead in fetched:
                o = replace(o, view=replace(o.view, ahead=None))
            else:
                fetched.append(o.view.ahead)
        inputs.append(o)
    return replace(generic, inputs=inputs)


def only_filled(tile: Any) -> bool:
    """Whether a tile is a whole operand of computations, and else only copied to."""
    for use in tile.uses:
        user = use.owner.operation
        copied = [user]
        if user.name == "memref.subview":
            copied = [u.owner.operation for u in user.results[0].uses]
            part = user.results[0]
        else:
            part = tile
        for op in copied:
            into = op.name == "memref.copy" and op.operands[1] == part != op.operands[0]
            whole = op.name == "linalg.generic" and part == tile
            if not into and not whole and op.name != "memref.dealloc":
                return False
    return True
