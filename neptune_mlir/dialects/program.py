# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A function at program level as data: its nests by key, and which extents are equal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.rules import MODES
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.attributes import APART, NUMERICS, PRECISION
from neptune_mlir.dialects.nests import DYNAMIC, Nest, Values, build_map, build_reduce, read_nest
from neptune_mlir.dialects.op_names import PRODUCE, STREAM, YIELD
from neptune_mlir.dialects.scalars import NoTermForm
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.ir.bindings import tensor as tensor_dialect
from neptune_mlir.ir.values import defining_op

Extent = int | Any  # a static extent, or an index value


def functions(module: Any) -> Iterator[Any]:
    """Every function of a module that has a body."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and len(op.regions[0].blocks):
            yield op


def numerics_of(function: Any) -> str:
    """Which fused forms are good enough for a function. Raises InputError for an unknown mode."""
    mode = NUMERICS.find(function.operation, "default")
    if mode not in MODES:
        raise InputError(f"no numerics mode '{mode}'", loc=location_text(function.location),
                         hint=f"one of: {', '.join(MODES)}")  # fmt: skip
    return mode


def streams(module: Any) -> list[Any]:
    """Every `neptune.stream` of a module's functions."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == STREAM:
            found.append(op.opview)
        return ir.WalkResult.ADVANCE

    for function in functions(module):
        function.operation.walk(visit)
    return found


class NestProgram:
    """The nests of one function's entry block, in program order.

    `nests[key]` is the nest that makes the tensor called `key` in `values`. Nests whose body
    has no term form are not listed: passes see their results as plain tensors.
    """

    def __init__(self, function: Any):
        self.function = function
        self.block = function.regions[0].blocks[0]
        self.values = Values()
        self.nests: dict[str, Nest] = {}
        self._pending: set[str] = set()  # nests whose ops have other bodies
        for argument in self.block.arguments:
            self.values.key(argument, _argument_name(argument))
        for op in self.block.operations:
            if isinstance(op, N.MapOp | N.ReduceOp):
                key = self.values.key(op.operation.results[0], _nest_name(op))
                try:
                    self.nests[key] = read_nest(op, self.values)
                except NoTermForm:
                    continue

    def reads_of(self, key: str) -> list[Term]:
        """The reads in a nest's body of results of other nests listed here."""
        return [r for r in T.reads(self.nests[key].body) if r.attr in self.nests]

    def maps_read(self, body: Term) -> list[Term]:
        """The reads in a body of results of maps listed here."""
        return [r for r in T.reads(body)
                if r.attr in self.nests and self.nests[r.attr].kind == "map"]  # fmt: skip

    def put_body(self, key: str, body: Term) -> None:
        """Another body for a nest; its op gets it in `write`, if something needs the nest then."""
        if body is not self.nests[key].body:
            self.nests[key] = replace(self.nests[key], body=body)
            self._pending.add(key)

    def write(self) -> None:
        """Rebuild the nests that are needed and have another body than their ops."""
        for key in self.needed():
            if key in self._pending:
                self.replace_body(key, self.nests[key].body)
        self._pending.clear()

    def needed(self) -> list[str]:
        """The nests that something needs once all have their bodies."""
        keys = {nest.op.operation: key for key, nest in self.nests.items()}
        sources: dict[str, set[str]] = {key: set() for key in self.nests}
        pending = []
        for key, nest in self.nests.items():
            for use in nest.result.uses:
                user = keys.get(top_level_op(use.owner, self.block))
                if user is None:
                    pending.append(key)
                else:
                    sources[user].add(key)
        for key in self._pending:
            sources[key] = {r.attr for r in self.reads_of(key)}
        needed: set[str] = set()
        while pending:
            key = pending.pop()
            if key not in needed:
                needed.add(key)
                pending += sources[key]
        return [key for key in self.nests if key in needed]

    def replace_body(self, key: str, body: Term) -> None:
        """Rebuild the nest of `key` in place with another body."""
        nest = self.nests[key]
        with ir.InsertionPoint(nest.op), nest.location:
            shape = (nest.domain, nest.extents)
            if nest.kind == "map":
                new = build_map(
                    self.values, body, *shape, result_axes=nest.result_axes, names=nest.names
                )
            else:
                new = build_reduce(
                    self.values, nest.combiner, body, *shape, nest.result_axes, names=nest.names
                )
        as_apart(nest, new)
        self.replace(key, new)
        self.nests[key] = read_nest(new.owner, self.values)

    def replace(self, key: str, new: Any) -> None:
        """All uses of the tensor `key` become `new`, which takes the key over."""
        self._pending.discard(key)
        old = self.values[key]
        old.replace_all_uses_with(new)
        old.owner.erase()
        self.values.rebind(key, new)


def as_apart(nest: Nest, made: Any) -> None:
    """Let what is made in place of a nest say why that is not fused with others, if it does."""
    if APART.on(nest.op.operation):
        APART.set(made.owner, APART.of(nest.op.operation))


def _argument_name(argument: Any) -> str | None:
    """What the front end called an argument (a name location), if it did."""
    named = re.match(r'loc\("([A-Za-z_]\w*)"(?!:)', str(argument.location))
    return named[1] if named else None


def _nest_name(op: Any) -> str:
    if isinstance(op, N.MapOp):
        return "map"
    combiner = op.combiner.value
    return combiner if combiner == "custom" else lookup(combiner).short or combiner


def cast(tensor: Any, kind: Any) -> Any:
    """The tensor with another type, which says more or less of its extents."""
    return tensor if tensor.type == kind else tensor_dialect.CastOp(kind, tensor).result


def top_level_op(op: Any, block: Any) -> Any:
    """The op of `block` that contains `op`."""
    operation = op.operation
    while operation.block != block:
        operation = operation.parent.operation
    return operation


def erase_dead(block: Any) -> None:
    """Erase value computations that nobody uses (one backward sweep)."""
    for op in reversed(list(block.operations)):
        operation = op.operation
        dialect = operation.name.partition(".")[0]
        removable = dialect in ("arith", "math", "affine", "tensor") or (
            dialect == "neptune" and operation.name not in (YIELD, PRODUCE)
        )
        if removable and operation.results and not any(list(r.uses) for r in operation.results):
            operation.erase()


def fold_dims(block: Any) -> None:
    """`tensor.dim` of a nest's result becomes the extent that the nest was given."""
    for op in list(block.operations):
        if op.operation.name != "tensor.dim":
            continue
        tensor, dim = op.operation.operands
        owner = tensor.owner
        if isinstance(owner, ir.Block) or not isinstance(owner.opview, N.MapOp | N.ReduceOp):
            continue
        if isinstance(dim.owner, ir.Block) or dim.owner.name != "arith.constant":
            continue
        nest = owner.opview
        loop = list(nest.result_axes)[dim.owner.attributes["value"].value]
        domain = list(nest.domain)
        if domain[loop] != DYNAMIC:
            continue  # canonicalize folds static dimensions
        before = sum(size == DYNAMIC for size in domain[:loop])
        op.operation.results[0].replace_all_uses_with(nest.extents[before])
        op.operation.erase()


def sort_block(block: Any) -> None:
    """Stable topological order: an op moves down just behind the last value it needs."""
    operations = [op.operation for op in block.operations]
    terminator = operations.pop()
    position = {op: k for k, op in enumerate(operations)}
    needs = [[position[v.owner.operation] for v in captured(op, block)] for op in operations]
    rounds = _rounds(needs)
    for k in sorted(range(len(operations)), key=lambda k: (rounds[k], k)):
        operations[k].move_before(terminator)


def _rounds(needs: list[list[int]]) -> list[int]:
    """For each op the sweep over all ops, in order, that finds what it needs placed."""
    rounds: list[int | None] = [None] * len(needs)
    for start in range(len(needs)):
        stack = [start]
        while stack:
            k = stack[-1]
            missing = [n for n in needs[k] if rounds[n] is None]
            if not missing:
                rounds[k] = max((rounds[n] + (n > k) for n in needs[k]), default=0)  # type: ignore[operator]
                stack.pop()
            elif missing[0] in stack:
                raise AssertionError("fusion made a cycle")
            else:
                stack.append(missing[0])
    return [r for r in rounds if r is not None]


def captured(operation: Any, block: Any) -> set[Any]:
    """Values defined in `block` that `operation` uses, nested uses included."""
    used = {v for v in operation.operands if (op := defining_op(v)) and op.block == block}
    for region in operation.regions:
        for inner_block in region.blocks:
            for op in inner_block.operations:
                used |= captured(op.operation, block)
    return used


class ExtentClasses:
    """Which loops and tensor dimensions have the same extent (union-find).

    A loop that indexes a dimension directly has that dimension's extent: a nest covers whole
    tensors. So two loops are equal when a chain of accesses, shared `extents` values or equal
    static sizes connects them.
    """

    def __init__(self, program: NestProgram):
        self._parent: dict[Any, Any] = {}
        self._static: dict[Any, int] = {}
        for key, nest in program.nests.items():
            dynamic = iter(nest.extents)
            for loop, size in enumerate(nest.domain):
                if size == DYNAMIC:
                    self._union((key, "loop", loop), self._value_node(next(dynamic), program))
                else:
                    self._set_static((key, "loop", loop), size)
            for dim, loop in enumerate(nest.result_axes):
                self._union((key, "dim", dim), (key, "loop", loop))
            for read in T.reads(nest.body):
                shape = ir.RankedTensorType(program.values[read.attr].type).shape
                for dim, idx in enumerate(read.args):
                    if shape[dim] != DYNAMIC:
                        self._set_static((read.attr, "dim", dim), shape[dim])
                    if idx.op == "index":
                        self._union((read.attr, "dim", dim), (key, "loop", idx.attr))

    def _value_node(self, value: Any, program: NestProgram) -> Any:
        """A `tensor.dim` of a known tensor is that dimension; other values stand for themselves."""
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.name == "tensor.dim":
            tensor, dim = owner.operands
            if dim.owner.name == "arith.constant":
                position = dim.owner.attributes["value"].value
                return (program.values.key(tensor), "dim", position)
        return ("value", program.values.key(value))

    def _find(self, node: Any) -> Any:
        while (parent := self._parent.setdefault(node, node)) != node:
            self._parent[node] = self._parent[parent]  # halve the way for whoever comes next
            node = parent
        return node

    def _union(self, a: Any, b: Any) -> None:
        a, b = self._find(a), self._find(b)
        if a != b:
            self._parent[b] = a
            if b in self._static:
                self._static[a] = self._static[b]

    def _set_static(self, node: Any, size: int) -> None:
        self._static[self._find(node)] = size

    def join(self, a: tuple[str, int], b: tuple[str, int]) -> None:
        """Dimensions `(tensor, dim)` a and b are of equal extent."""
        self._union((a[0], "dim", a[1]), (b[0], "dim", b[1]))

    def of_loop(self, key: str, loop: int) -> Any:
        """The class of a nest's loop: equal ones are of equal extent."""
        return self._find((key, "loop", loop))

    def of_dim(self, key: str, dim: int) -> Any:
        """The class of a dimension of a tensor."""
        return self._find((key, "dim", dim))

    def of_value(self, value: Any, program: NestProgram) -> Any:
        """The class of the extents that are this index value."""
        return self._find(self._value_node(value, program))

    def static(self, found: Any) -> int | None:
        """The extent of a class, where the program knows it."""
        return self._static.get(self._find(found))

    def same(self, a: tuple[str, int], b: tuple[str, int]) -> bool:
        """Are loops `(nest key, loop)` a and b of equal extent?"""
        x, y = self._find((a[0], "loop", a[1])), self._find((b[0], "loop", b[1]))
        if x == y:
            return True
        return x in self._static and self._static[x] == self._static.get(y)


def precision_of(function: Any) -> str:
    """What a function allows the operands of its products to be rounded to ("": nothing)."""
    return PRECISION.find(function.operation, "")
