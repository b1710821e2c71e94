# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `hoist-broadcasts`: compute each elementary function at its own rank.

In `y[i, e] = x[i, e] * exp(a[i] - b[i])` the exponential does not depend on e. It moves to a
`linalg.generic` over i alone, which a target computes once per row and with whole vectors:

    t[i] = exp(a[i] - b[i])          y[i, e] = x[i, e] * t[i]
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.bindings import ir, linalg, tensor
from neptune_mlir.transforms.registry import register


@register("hoist-broadcasts", "compute elementary functions over the loops they depend on only")
def hoist_broadcasts(module: Any) -> None:
    generics: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "linalg.generic" and all(
            isinstance(r.type, ir.RankedTensorType) and r.type.has_static_shape for r in op.results
        ):
            generics.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in generics:
        if len(op.results):
            _Split(op).run()


class _Split:
    def __init__(self, op: Any):
        self.op = op
        self.block = op.regions[0].blocks[0]
        self.maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        self.rank = self.maps[0].n_dims
        self.outputs = len(op.results)
        self.inputs = len(op.operands) - self.outputs
        self.loops: dict[Any, frozenset[int]] = {}  # value of the body -> loops it depends on
        self.costly: set[Any] = set()  # values that an elementary function went into

    def run(self) -> None:
        every = frozenset(range(self.rank))
        for k, argument in enumerate(self.block.arguments):
            output = k >= self.inputs
            self.loops[argument] = every if output else _dims(self.maps[k].results)
        moved: list[Any] = []
        for op in self.block.operations:
            op = op.operation
            if len(op.regions):
                return
            if op.name == "linalg.index":
                own = frozenset([int(ir.IntegerAttr(op.attributes["dim"]).value)])
            else:
                own = frozenset().union(*(self.loops.get(v, frozenset()) for v in op.operands))
            leaves = op.name == "linalg.yield" or own == every
            for value in op.operands if leaves else ():
                narrow = self.loops.get(value, every)
                if value in self.costly and 0 < len(narrow) < self.rank and value not in moved:
                    moved.append(value)
            for result in op.results:
                self.loops[result] = own
                if op.name.startswith("math.") or any(v in self.costly for v in op.operands):
                    self.costly.add(result)
        hoisted = [(value, *made) for value in moved if (made := self._hoist(value))]
        if hoisted:
            self._rebuild(hoisted)

    def _extent(self, loop: int) -> int | None:
        for value, indexing in zip(self.op.operands, self.maps, strict=True):
            for k, e in enumerate(indexing.results):
                if isinstance(e, ir.AffineDimExpr) and e.position == loop:
                    return int(value.type.shape[k])
        return None

    def _hoist(self, value: Any) -> tuple[Any, Any] | None:
        """A generic that computes `value` over its own loops: its result, and how to read it."""
        loops = sorted(self.loops[value])
        shape = [self._extent(d) for d in loops]
        if None in shape:
            return None
        place = {d: k for k, d in enumerate(loops)}
        needed: list[Any] = []
        _backward(value, self.block, needed)
        read = [k for k in range(self.inputs) if self._uses_argument(k, needed)]
        rename = ir.AffineMap.get(
            len(loops), 0, [ir.AffineExpr.get_dim(place.get(d, 0)) for d in range(self.rank)]
        )
        maps = [
            ir.AffineMap.get(len(loops), 0, [e.compose(rename) for e in self.maps[k].results])
            for k in read
        ]
        maps.append(ir.AffineMap.get_identity(len(loops)))
        with ir.InsertionPoint(self.op), self.op.location:
            empty = tensor.EmptyOp(shape, value.type).result
            made = linalg.GenericOp(
                [empty.type],
                [self.op.operands[k] for k in read],
                [empty],
                ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
                ir.ArrayAttr.get([_parallel()] * len(loops)),
            )
            kinds = [self.block.arguments[k].type for k in read] + [value.type]
            body = made.regions[0].blocks.append(*kinds)
        env = {
            self.block.arguments[k]: new
            for k, new in zip(read, list(body.arguments)[:-1], strict=True)
        }
        with ir.InsertionPoint(body), self.op.location:
            for op in needed:
                clone = op.clone()
                if op.name == "linalg.index":
                    dim = int(ir.IntegerAttr(op.attributes["dim"]).value)
                    clone.attributes["dim"] = ir.IntegerAttr.get(
                        ir.IntegerType.get_signless(64), place[dim]
                    )
                for k, operand in enumerate(op.operands):
                    clone.operands[k] = env.get(operand, operand)
                env.update(zip(op.results, clone.results, strict=True))
            linalg.YieldOp([env[value]])
        reading = ir.AffineMap.get(self.rank, 0, [ir.AffineExpr.get_dim(d) for d in loops])
        return made.results[0], reading

    def _uses_argument(self, k: int, needed: list[Any]) -> bool:
        argument = self.block.arguments[k]
        return any(operand == argument for op in needed for operand in op.operands)

    def _rebuild(self, hoisted: list[tuple[Any, Any, Any]]) -> None:
        """The op again, reading what was hoisted as more inputs."""
        op, inputs = self.op, self.inputs
        operands = list(op.operands)
        tensors = [t for _, t, _ in hoisted]
        maps = self.maps[:inputs] + [m for _, _, m in hoisted] + self.maps[inputs:]
        with ir.InsertionPoint(op), op.location:
            made = linalg.GenericOp(
                [r.type for r in op.results],
                operands[:inputs] + tensors,
                operands[inputs:],
                ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
                op.attributes["iterator_types"],
            )
        kinds = [a.type for a in self.block.arguments]
        values = [v for v, _, _ in hoisted]
        kinds = kinds[:inputs] + [v.type for v in values] + kinds[inputs:]
        with op.location:
            body = made.regions[0].blocks.append(*kinds)
        new = list(body.arguments)
        for k, argument in enumerate(self.block.arguments):
            argument.replace_all_uses_with(new[k if k < inputs else k + len(values)])
        for k, value in enumerate(values):
            value.replace_all_uses_with(new[inputs + k])
        for inner in list(self.block.operations):
            body.append(inner.operation)
        for old, result in zip(op.results, made.results, strict=True):
            old.replace_all_uses_with(result)
        op.erase()


def _parallel() -> Any:
    return ir.Attribute.parse("#linalg.iterator_type<parallel>")


def _dims(expressions: Any) -> frozenset[int]:
    found: set[int] = set()
    for e in expressions:
        if isinstance(e, ir.AffineDimExpr):
            found.add(e.position)
        elif not isinstance(e, ir.AffineConstantExpr):
            found |= _dims([e.lhs, e.rhs])
    return frozenset(found)


def _backward(value: Any, block: Any, needed: list[Any]) -> None:
    """The ops of `block` that `value` is computed by, in order."""
    if isinstance(value, ir.BlockArgument) or value.owner.operation.block != block:
        return
    op = value.owner.operation
    if op in needed:
        return
    for operand in op.operands:
        _backward(operand, block, needed)
    needed.append(op)
