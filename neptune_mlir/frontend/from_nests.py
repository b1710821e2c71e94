# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that came as MLIR, in index notation: what `neptune.grad` differentiates.

The module is brought to nests by the passes that every pipeline begins with. Each reduction becomes
one of the program, each map is written where it is read. Loops of different nests become one axis
where an access says that they are: a loop that indexes a dimension runs over all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.nests import DYNAMIC, Nest
from neptune_mlir.dialects.program import NestProgram, functions
from neptune_mlir.dialects.scalars import NoTermForm, op_to_term
from neptune_mlir.driver.compiler import nests_of
from neptune_mlir.driver.explain import written_name
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import InputError
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.program import Program, Tensor
from neptune_mlir.ir import bindings
from neptune_mlir.ir.bindings import ir

Place = tuple[str, int]  # a tensor argument and its dimension, or a nest and its loop


@bindings.exclusive
def program_of(program: Any) -> Program:
    """MLIR text, a path to some, or a module with one function, in index notation.

    Raises:
        UsageError: something else.
        InputError: an op that no nest models stands between the arguments and the results.
    """
    source = Source.of(program)
    module, _ = nests_of(source.text, source.name)
    with bindings.source_name(source.name), module.context, ir.Location.unknown():
        found = list(functions(module))
        if len(found) != 1:
            raise InputError(f"{source.name} has {len(found)} functions", hint="one is wanted")
        return _NestReader(found[0], source.text).read()


class _Axes:
    """Which loops and dimensions are one axis (union-find); those of one nest or tensor differ."""

    def __init__(self) -> None:
        self._parent: dict[Place, Place] = {}
        self._owners: dict[Place, set[str]] = {}
        self.static: dict[Place, int | None] = {}
        self.name: dict[Place, str | None] = {}

    def add(self, place: Place, static: int | None, name: str | None) -> None:
        self._parent[place] = place
        self._owners[place] = {place[0]}
        self.static[place] = static
        self.name[place] = name

    def find(self, place: Place) -> Place:
        while self._parent[place] != place:
            place = self._parent[place]
        return place

    def join(self, a: Place, b: Place) -> None:
        """Make them one, unless that gives a nest or a tensor an axis twice."""
        a, b = self.find(a), self.find(b)
        sizes = {self.static[a], self.static[b]} - {None}
        if a == b or self._owners[a] & self._owners[b] or len(sizes) > 1:
            return
        self._parent[b] = a
        self._owners[a] |= self._owners[b]
        self.static[a] = sizes.pop() if sizes else None
        self.name[a] = self.name[a] or self.name[b]


class _NestReader:
    def __init__(self, function: Any, text: str):
        self.function = function
        self.nests = NestProgram(function)
        self.made = Program(function.name.value)
        self.axes = _Axes()
        self.axis_of: dict[Place, Any] = {}
        self.values: dict[str, tuple[Term, tuple[int, ...]]] = {}  # of nests: over these axes
        self.arguments: dict[str, str] = {}  # key in `nests`: name in `made`
        for k, argument in enumerate(self.nests.block.arguments):
            key = self.nests.values.key(argument)
            self.arguments[key] = written_name(argument, text) or f"arg{k}"

    def read(self) -> Program:
        self._find_axes()
        for key, name in self.arguments.items():
            kind = self.nests.values[key].type
            if isinstance(kind, ir.RankedTensorType):
                shape = [self.axis_of[self.axes.find((key, d))] for d in range(kind.rank)]
                self.made.input(name, *shape, dtype=str(kind.element_type))
            else:
                self.made.scalar(name, str(kind))
        for key, nest in self.nests.nests.items():
            self._nest(key, nest)
        end = self.nests.block.operations[len(self.nests.block.operations) - 1]
        for value in end.operands:
            term, axes = self._tensor(value)
            own = [self.made.axis_list[a] for a in axes]
            self.made.output(Expr(term, self.made), *own)
        return self.made

    # ---- axes

    def _find_axes(self) -> None:
        for key in self.arguments:
            kind = self.nests.values[key].type
            if isinstance(kind, ir.RankedTensorType):
                for d, size in enumerate(kind.shape):
                    self.axes.add((key, d), None if size == DYNAMIC else size, None)
        for key, nest in self.nests.nests.items():
            for loop, size in enumerate(nest.domain):
                name = nest.names[loop] if nest.names else None
                self.axes.add((key, loop), None if size == DYNAMIC else size, name)
        for key, nest in self.nests.nests.items():
            for loop, place in self._accesses(nest):
                self.axes.join(place, (key, loop))
        taken: set[str] = set(self.arguments.values())
        for place in self.axes.static:
            root = self.axes.find(place)
            if root not in self.axis_of:
                name = _free_name(self.axes.name[root], taken)
                self.axis_of[root] = self.made.axis(name, self.axes.static[root])

    def _accesses(self, nest: Nest) -> Iterator[tuple[int, Place]]:
        """The loops that index a dimension, and what they run over there."""
        for read in T.reads(nest.body):
            for d, i in enumerate(read.args):
                place = self._place(read.attr, d)
                if i.op == "index" and place is not None:
                    yield i.attr, place
        dynamic = iter(nest.extents)
        for loop, size in enumerate(nest.domain):
            extent = next(dynamic) if size == DYNAMIC else None
            if extent is not None and (place := self._dimension(extent)):
                yield loop, place

    def _place(self, key: str, dim: int) -> Place | None:
        if key in self.nests.nests:
            return key, self.nests.nests[key].result_axes[dim]
        return (key, dim) if key in self.arguments else None

    def _dimension(self, value: Any) -> Place | None:
        """The dimension that an extent is, if it is one of a known tensor."""
        if isinstance(value.owner, ir.Block) or value.owner.name != "tensor.dim":
            return None
        tensor, dim = value.owner.operands
        if isinstance(dim.owner, ir.Block) or dim.owner.name != "arith.constant":
            return None
        return self._place(self.nests.values.key(tensor), dim.owner.attributes["value"].value)

    # ---- values

    def _nest(self, key: str, nest: Nest) -> None:
        numbers = [self.axis_of[self.axes.find((key, k))].number for k in range(len(nest.domain))]
        body = T.rename_axes(nest.body, {k: T.index(a) for k, a in enumerate(numbers)})
        body = T.rewrite(body, self._leaf)
        if nest.kind == "reduce":
            along = tuple(self.made.axis_list[numbers[k]] for k in nest.reduced_axes)
            value = Expr(body, self.made)
            body = self.made.reduction(str(nest.combiner), value, along).term
        self.values[key] = body, tuple(numbers[k] for k in nest.result_axes)

    def _leaf(self, n: Term) -> Term | None:
        if n.op == "sym" and n.attr in self.nests.values:
            return self._scalar(self.nests.values[n.attr])
        if n.op != "read":
            return None
        if n.attr in self.values:
            term, axes = self.values[n.attr]
            return T.rename_axes(term, dict(zip(axes, n.args, strict=True)))
        if n.attr in self.arguments:
            return T.read(self.arguments[n.attr], *n.args, dtype=n.dtype)
        raise self._refused(self.nests.values[n.attr])

    def _scalar(self, value: Any) -> Term:
        """A number from outside of nests: an argument, an extent, or made of these."""
        if isinstance(value.owner, ir.Block):
            return T.sym(self.arguments[self.nests.values.key(value)], str(value.type))
        place = self._dimension(value)
        if place is not None:
            size: Term = self.axis_of[self.axes.find(place)].size.term
            return size
        op = value.owner.opview
        if value.owner.name in ("tensor.dim", "tensor.extract"):
            raise self._refused(value)
        try:
            return op_to_term(op, [self._scalar(v) for v in op.operation.operands])
        except NoTermForm:
            raise self._refused(value) from None

    def _tensor(self, value: Any) -> tuple[Term, tuple[int, ...]]:
        """A result of the function, over its axes."""
        while not isinstance(value.owner, ir.Block) and value.owner.name == "tensor.cast":
            value = value.owner.operands[0]
        key = self.nests.values.key(value)
        if key in self.values:
            return self.values[key]
        if key not in self.arguments:
            raise self._refused(value)
        tensor = self.made.inputs[self.arguments[key]]
        assert isinstance(tensor, Tensor)  # a function at program level returns tensors
        return tensor[tensor.shape].term, tuple(a.number for a in tensor.shape)

    def _refused(self, value: Any) -> InputError:
        op = value.owner
        return InputError(
            f"'{op.name}' has no gradient: no nest models it",
            loc=bindings.location_text(op.location),
            hint="write it as maps and reductions (`neptune-opt --raise-linalg` shows what is one)",
        )


def _free_name(wanted: str | None, taken: set[str]) -> str:
    """A name that no axis and no argument has yet; recorded as taken."""
    letters: Sequence[str] = "ijklmnpqrstuvwxyzabcdefgh"
    choices = [wanted] if wanted else list(letters)
    number = 0
    while all(c in taken for c in choices):
        number += 1
        choices = [f"{wanted or 'i'}{number}"]
    name = next(c for c in choices if c not in taken)
    taken.add(name)
    return name
