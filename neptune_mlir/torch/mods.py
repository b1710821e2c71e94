# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A traced modifier in index notation.

    plan = Plan(trace)                       # what is an input, and what the kernel computes
    said = plan.say(score, b, h, q, kv)      # the modifier as an expression; declares the inputs
    plan.inputs(trace.tensors, sizes)        # the tensors for them, in order

A value is an expression at one point of the loops, and for a row of a captured tensor the axes of
that row; what torch does with rows (`dot`, `any`, a selected element) is then a reduction over an
axis, or a constant in its place. What the notation cannot say (a lookup at a computed position, bit
operations) and what does not depend on the score becomes a table: torch computes it for all
positions that it depends on, before the kernel runs.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from neptune_mlir.algebra import terms as T
from neptune_mlir.errors import InputError
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.notation import Axis, Program, Tensor, cast
from neptune_mlir.torch.aten import CONSTANTS, COPIES, ELEMENTWISE, REDUCTIONS, Unsaid
from neptune_mlir.torch.trace import POSITIONS, Trace

aten = torch.ops.aten
DTYPES = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64",
    torch.bool: "i1", torch.int8: "i8", torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
_WIDER = {torch.uint8: torch.int32, torch.int16: torch.int32}  # dtypes that no kernel takes
_OPTIONS = ("alpha", "rounding_mode", "approximate", "value")  # that change what is computed
_LARGE = 1 << 20  # elements of a table over queries and keys that are worth a warning


@dataclass(frozen=True)
class ModValue:
    """An expression, or a Python number; `rows`: the axes that are dimensions of the tensor that
    torch has here, outermost first."""

    at: Any
    rows: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class InputSource:
    """Where an input comes from: a captured tensor by the attribute's name, or a table of a node.

    `axes`: where each dimension is read: at b, h, q or kv divided by a number (mostly 1), or all
    along (None, for a row).
    """

    of: str | Node
    axes: tuple[tuple[str, int] | None, ...]


Keep = Callable[[torch.Tensor], torch.Tensor]


class ModPlan:
    """How a modifier is said; made once for all calls with traces of one structure."""

    def __init__(self, trace: Trace):
        self.graph = trace.graph
        self.name: str = trace.graph.neptune_name
        nodes = list(trace.graph.graph.nodes)
        self.placeholders = [n for n in nodes if n.op == "placeholder"]
        self.depends = _dependences(nodes, len(self.placeholders) > len(POSITIONS))
        (self.result,) = trace.graph.graph.output_node().args
        self.shapes = {n: (x.dtype, tuple(x.shape)) for n, x in trace.tensors.items()}
        self.tables: set[Node] = set()
        self.sources: list[InputSource] = []
        self._kept: tuple[Any, list[torch.Tensor], Any] | None = None  # tables of the last call
        self._rehearse(planning=True)  # finds what has to be a table
        inputs = self._rehearse(planning=False)
        declared = [(t.dtype, *(a.static for a in t.shape)) for t in inputs]
        # modifiers of one key have one kernel; dimensions that calls bring are not part of it
        self.key = repr((self.name, self.graph.code, declared))

    def _rehearse(self, planning: bool) -> list[Tensor]:
        """The inputs that the modifier declares in a program that nobody runs."""
        program = Program("rehearsal")
        axes = [program.axis(n) for n in POSITIONS]
        score = [program.input("score", *axes)[tuple(axes)]] if self.takes_score else []
        self._read(_Reader(self, program, [*score, *axes], "x", planning))
        return [t for t in program.inputs.values() if isinstance(t, Tensor)][len(score) :]

    @property
    def takes_score(self) -> bool:
        return len(self.placeholders) > len(POSITIONS)

    def say(self, *elements: Any, prefix: str) -> Any:
        """The modifier of expressions `[score,] b, h, q, kv`; names of inputs start by `prefix`."""
        return self._read(
            _Reader(self, elements[-1].program, list(elements), prefix, planning=False)
        )

    def _read(self, reader: _Reader) -> Any:
        said = reader.value(self.result).at
        self.sources = reader.sources
        return reader.program.constant(said, "i1") if isinstance(said, bool) else said

    def inputs(
        self, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int], device: torch.device
    ) -> list[torch.Tensor]:
        """The tensors for the inputs that `say` declared, in its order.

        Args:
            tensors: the captured ones, by attribute.
            sizes: extents of b, h, q and kv in this call.
            device: of the call.

        Raises:
            InputError: a captured tensor is too small for the positions that it is read at.
        """
        # what layers of a model share is made once
        state = [(id(x), None if x.is_inference() else x._version) for x in tensors.values()]
        kept = self.tables and (sizes, device, state)
        if kept and self._kept and self._kept[0] == kept and (None not in dict(state).values()):
            return self._kept[1]
        with torch.no_grad():
            found = [self._value(s, tensors, sizes, device).detach() for s in self.sources]
        found = [x.to(_WIDER[x.dtype]) if x.dtype in _WIDER else x for x in found]
        # the tensors are held, so that none of another content comes to have their identity
        self._kept = (kept, found, list(tensors.values())) if kept else None
        return found

    def reads(self, source: InputSource) -> set[str]:
        """The captured tensors that an input is made of."""
        pending, found = [source.of], set()
        while pending:
            node = pending.pop()
            if isinstance(node, str) or node.op == "get_attr":
                found.add(node if isinstance(node, str) else node.target)
            else:
                pending += node.all_input_nodes
        return found

    def pull(
        self, tensors: Mapping[str, torch.Tensor], needs: Mapping[str, bool],
        adjoints: Mapping[int, torch.Tensor], sizes: Mapping[str, int], device: torch.device,
    ) -> list[torch.Tensor | None]:  # fmt: skip
        """The adjoints of the captured tensors that are needed.

        Args:
            adjoints: of inputs, by their number.
        """
        leaves = {n: x.detach().requires_grad_() for n, x in tensors.items() if needs[n]}
        if not leaves or not adjoints:
            return [None for _ in tensors]
        given = {**tensors, **leaves}
        with torch.enable_grad():
            made = [self._value(self.sources[k], given, sizes, device) for k in adjoints]
        found = torch.autograd.grad(
            made, list(leaves.values()), list(adjoints.values()), allow_unused=True
        )
        by_name = dict(zip(leaves, found, strict=True))
        return [by_name.get(n) for n in tensors]

    def _value(
        self, source: InputSource, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int],
        device: torch.device,
    ) -> torch.Tensor:  # fmt: skip
        """An input, as a function of the captured tensors."""
        if isinstance(source.of, str):
            return self._captured(source, tensors[source.of], sizes, device)
        return self._table(source, tensors, sizes, device)

    def _captured(
        self, source: InputSource, x: torch.Tensor, sizes: Mapping[str, int], device: torch.device
    ) -> torch.Tensor:
        for dim, place in enumerate(source.axes):
            if place is None:
                continue
            axis, divisor = place
            reached, rest = divmod(sizes[axis], divisor)
            if rest or x.shape[dim] < reached:
                raise InputError(
                    f"'{self.name}' reads dimension {dim} of a captured tensor of shape "
                    f"{list(x.shape)} at '{axis}{f' // {divisor}' * (divisor > 1)}', "
                    f"and '{axis}' has {sizes[axis]} positions",
                    hint=f"{sizes[axis]} is no multiple of {divisor}" if rest else None,
                )
            if x.shape[dim] > reached:
                x = x.narrow(dim, 0, reached)
        return x if x.device == device or x.ndim else x.to(device)

    def _table(
        self, source: InputSource, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int],
        device: torch.device,
    ) -> torch.Tensor:  # fmt: skip
        node, axes = source.of, [a for a, _ in source.axes]
        places = {a: torch.arange(sizes[a], device=device, dtype=torch.int32) for a in axes}
        found = self.over(node, tensors, places, axes)
        if {"q", "kv"} <= set(axes) and found.numel() > _LARGE:
            warnings.warn(
                f"'{self.name}' reads '{_called(node)}' at queries and keys together, which no "
                f"kernel does yet: a table of {found.numel()} elements was computed",
                stacklevel=2,
            )
        return found

    def over(
        self, node: Node, tensors: Mapping[str, torch.Tensor],
        places: Mapping[str, torch.Tensor], axes: list[str],
        score: torch.Tensor | None = None, keep: Keep | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """A node's value by torch for all points of `axes`: a tensor with these dimensions.

        Args:
            places: the positions along each axis, 1-d, integers.
            score: [axes], where the node depends on the score.
            keep: what is done with values at queries and keys that all heads share.
        """
        names = [*(["score"] if self.takes_score else []), *POSITIONS]
        at = dict(zip(names, self.placeholders, strict=True))
        shared = self._shared(node) if keep else []
        along = [[a for a in axes if a in self.depends[n]] for n in shared]
        values = [self.over(n, tensors, places, a) for n, a in zip(shared, along, strict=True)]
        values = [keep(x) for x in values] if keep else []

        def element(*given: torch.Tensor) -> torch.Tensor:
            made = {at[a]: x for a, x in zip(axes, given, strict=False)}
            for n, x in zip(shared, given[len(axes) :], strict=False):
                made[n] = x != 0 if n.meta["val"].dtype is torch.bool else x
            if score is not None:
                made[at["score"]] = given[-1]
            return _run(node, made, tensors)

        call: Callable[..., torch.Tensor] = element
        for k, axis in reversed([*enumerate(axes)]):
            mapped = [0 if j == k else None for j in range(len(axes))]
            mapped += [0 if axis in a else None for a in along]
            call = torch.vmap(call, tuple(mapped if score is None else (*mapped, 0)))
        return call(*(places[a] for a in axes), *values, *(() if score is None else (score,)))

    def _shared(self, result: Node) -> list[Node]:
        """The last nodes before a result, or it, that depend on queries and keys, and neither on
        the score nor on heads."""
        found: dict[Node, None] = {}
        pending = [result]
        while pending:
            node = pending.pop()
            value, depends = node.meta.get("val"), self.depends[node]
            alone = isinstance(value, torch.Tensor) and not value.ndim and node.op != "placeholder"
            if alone and {"q", "kv"} <= depends and not depends & {"score", "h"}:
                found[node] = None
            else:
                pending += node.all_input_nodes
        return list(found)


def _run(node: Node, made: dict[Node, Any], tensors: Mapping[str, torch.Tensor]) -> Any:
    if node not in made:
        if node.op == "get_attr":
            made[node] = tensors[node.target]
        elif node.op == "placeholder":  # read for its dtype only
            made[node] = torch.zeros((), dtype=node.meta["val"].dtype)
        else:
            given, named = torch.fx.map_arg(
                (node.args, node.kwargs), lambda n: _run(n, made, tensors)
            )
            made[node] = node.target(*given, **named)
    return made[node]


def _dependences(nodes: list[Node], with_score: bool) -> dict[Node, frozenset[str]]:
    """Of each node, which of `score`, b, h, q and kv its value depends on."""
    names = [*(["score"] if with_score else []), *POSITIONS]
    found: dict[Node, frozenset[str]] = {}
    for node in nodes:
        if node.op == "placeholder":
            found[node] = frozenset({names[len(found)]})
        elif getattr(node.target, "overloadpacket", None) in CONSTANTS:
            found[node] = frozenset()
        else:
            found[node] = frozenset().union(*(found[a] for a in node.all_input_nodes))
    return found


class _Reader:
    """Says one modifier in one program, from its result backwards."""

    def __init__(
        self, plan: ModPlan, program: Program, elements: list[Any], prefix: str, planning: bool
    ):
        self.plan, self.program, self.prefix = plan, program, prefix
        self.planning = planning
        self.made = {n: ModValue(x) for n, x in zip(plan.placeholders, elements, strict=True)}
        self.axes = dict(zip(POSITIONS, elements[-len(POSITIONS) :], strict=True))
        self.sources: list[InputSource] = []
        self.read: dict[Any, ModValue] = {}  # captured tensors, by name and place

    def value(self, node: Node) -> ModValue:
        if node not in self.made:
            self.made[node] = self._said_or_table(node)
        return self.made[node]

    def _said_or_table(self, node: Node) -> ModValue:
        if node in self.plan.tables:
            return self._table(node)
        try:
            return self._checked(node, self._say(node))
        except (Unsaid, InputError):
            if not self.planning:
                raise
        self._refuse_score(node)
        if not isinstance(value := node.meta["val"], torch.Tensor) or value.ndim:
            raise Unsaid  # whoever reads an element of it may be a table
        self.plan.tables.add(node)
        return self._table(node)

    def _refuse_score(self, node: Node) -> None:
        if "score" in self.plan.depends[node]:
            raise InputError(
                f"'{self.plan.name}' applies '{_called(node)}' to the score, which has no form "
                "in a kernel",
                hint="use arithmetic, comparisons, torch.where, torch.tanh, exp, log, abs, clamp",
            )

    def _input(
        self, source: InputSource, shape: tuple[int | None, ...], dtype: torch.dtype
    ) -> ModValue:
        """A new input, read at the positions of `source.axes`."""
        dtype = _WIDER.get(dtype, dtype)
        if dtype not in DTYPES:
            raise InputError(f"'{self.plan.name}' reads a tensor of {dtype}")
        number = len(self.sources)
        self.sources.append(source)
        name = f"{self.prefix}{number}"
        own = [self.program.axis(f"{name}_{d}", size) for d, size in enumerate(shape)]
        tensor = self.program.input(name, *own, dtype=DTYPES[dtype])
        return ModValue(tensor[tuple(own)], tuple(own))

    def _table(self, node: Node) -> ModValue:
        axes = [a for a in POSITIONS if a in self.plan.depends[node]]
        source = InputSource(node, tuple((a, 1) for a in axes))
        value = self._input(source, (None,) * len(axes), node.meta["val"].dtype)
        for axis in axes:
            value = self._at(value, 0, self.axes[axis])
        return value

    def _checked(self, node: Node, value: ModValue) -> ModValue:
        """The value, if it is of the kind that torch has here; narrow floats compute in f32."""
        wanted = node.meta["val"]
        if not isinstance(wanted, torch.Tensor):
            return value
        kind = DTYPES.get(wanted.dtype, "?")
        if isinstance(value.at, Expr) and _kind(value.at.dtype) != _kind(kind):
            raise Unsaid
        return value

    def _say(self, node: Node) -> ModValue:
        if node.op == "get_attr":
            return self._captured(node.target, ())
        target = node.target
        packet = getattr(target, "overloadpacket", target)
        if packet in CONSTANTS:
            return self._constant(node, packet)
        if packet in COPIES:
            return self._copy(node)
        if packet is aten.index:
            return self._index(*node.args)
        if target is operator.getitem and node.args[0].target is aten.unbind.int:
            source, dim = (*node.args[0].args, 0)[:2]
            value = self.value(source)
            return self._at(value, dim % len(value.rows), node.args[1])
        if packet is aten.select:
            value = self.value(node.args[0])
            return self._at(value, node.args[1] % len(value.rows), node.args[2])
        if packet in REDUCTIONS:
            return self._reduce(node, REDUCTIONS[packet])
        if packet in ELEMENTWISE:
            return self._elementwise(node, ELEMENTWISE[packet])
        raise Unsaid

    def _captured(self, name: str, positions: Any) -> ModValue:
        """A captured tensor for a reader at `positions`: one that reads it elsewhere has an input
        of its own, since the extents of both places may differ."""
        dtype, shape = self.plan.shapes[name]
        places = [*positions, *(None for _ in shape)][: len(shape)]
        axes = tuple(None if p is None else self._place(self.value(p)) for p in places)
        if (name, axes) not in self.read:
            dims = tuple(n if a is None else None for n, a in zip(shape, axes, strict=True))
            self.read[name, axes] = self._input(InputSource(name, axes), dims, dtype)
        return self.read[name, axes]

    def _constant(self, node: Node, packet: Any) -> ModValue:
        if node.meta["val"].ndim:
            raise Unsaid
        value = CONSTANTS[packet](*node.args)
        kind = _kind(DTYPES.get(node.meta["val"].dtype, "?"))
        return ModValue({"i1": bool, "i": int, "f": float}[kind](value))

    def _copy(self, node: Node) -> ModValue:
        (source, *_) = node.args
        value, dtype = self.value(source), DTYPES.get(node.meta["val"].dtype)
        if dtype is None:
            raise Unsaid
        if not isinstance(value.at, Expr):
            return value
        if _kind(dtype) == "i1" != _kind(value.at.dtype):
            return replace(value, at=value.at != 0)
        if _kind(dtype) == "i" and _kind(value.at.dtype) == "f":
            raise Unsaid  # torch rounds towards 0
        return replace(value, at=cast(value.at, dtype))

    def _index(self, source: Node, positions: Any) -> ModValue:
        if source.op == "get_attr":
            value = self._captured(source.target, positions)
        else:
            value = self.value(source)
        at = 0
        for position in positions:
            if position is None:
                at += 1
                continue
            found = self.value(position)
            if found.rows:
                raise Unsaid
            value = self._at(value, at, found.at)
        return value

    def _at(self, value: ModValue, row: int, position: Any) -> ModValue:
        """One element along a row: at an axis, a head's or batch's share of one, or a number."""
        axis = value.rows[row]
        if isinstance(position, int) and axis.static is not None:
            position = position + axis.static if position < 0 else position
            term = T.const(position, "index")
        elif self._place(ModValue(position)):
            term = position.term
        else:
            raise Unsaid
        moved = T.rename_axes(value.at.term, {axis.number: term})
        rows = tuple(a for k, a in enumerate(value.rows) if k != row)
        return ModValue(Expr(moved, self.program), rows)

    def _place(self, value: ModValue) -> tuple[str, int] | None:
        """The axis and the divisor where a value is a position that tensors can be read at."""
        if not isinstance(value.at, Expr) or value.rows:
            return None
        names = {a.term: n for n, a in self.axes.items()}
        term = value.at.term
        if term in names:
            return names[term], 1
        # queries and keys are cut into tiles, whose positions must be consecutive
        if term.op == "floordiv" and names.get(term.args[0]) in ("b", "h"):
            divisor = term.args[1]
            if divisor.is_const and divisor.value > 0:
                return names[term.args[0]], int(divisor.value)
        return None

    def _elementwise(self, node: Node, function: Callable[..., Any]) -> ModValue:
        named = {k: v for k, v in node.kwargs.items() if k in _OPTIONS}
        values = [self.value(a) if isinstance(a, Node) else ModValue(a) for a in node.args]
        rows: tuple[Axis, ...] = max((v.rows for v in values), key=len)
        given = [self._along(v, rows) for v in values]
        if not any(isinstance(x, Expr) for x in given):
            given[0] = self.program.constant(given[0], _constant_type(given[0]))
        return ModValue(function(*given, **named), rows)

    def _along(self, value: ModValue, rows: tuple[Axis, ...]) -> Any:
        """A value under the rows of another one, as torch broadcasts."""
        if not value.rows:
            return value.at
        moved = {}
        for mine, other in zip(reversed(value.rows), reversed(rows), strict=False):
            if mine.static is None or mine.static != other.static:
                raise Unsaid
            moved[mine.number] = other.term
        return Expr(T.rename_axes(value.at.term, moved), self.program)

    def _reduce(self, node: Node, function: Callable[..., Any]) -> ModValue:
        (source, *more) = node.args
        if any(isinstance(a, Node) for a in more) or not isinstance(node.meta["val"], torch.Tensor):
            raise Unsaid
        value = self.value(source)
        if any(more[1:]) or node.kwargs.get("keepdim"):
            raise Unsaid
        dims = more[0] if more and more[0] is not None else range(len(value.rows))
        dims = [dims] if isinstance(dims, int) else dims
        gone = {d % len(value.rows) for d in dims} if value.rows else set()
        if not gone:
            return value
        kept = tuple(a for k, a in enumerate(value.rows) if k not in gone)
        return ModValue(function(value.at, *(value.rows[k] for k in sorted(gone))), kept)


def _kind(dtype: str) -> str:
    return "i1" if dtype == "i1" else "i" if dtype[0] == "i" else "f"


def _constant_type(value: Any) -> str:
    return {bool: "i1", int: "i64", float: "f32"}[type(value)]


def _called(node: Node) -> str:
    return str(getattr(node.target, "overloadpacket", node.target)).removeprefix("aten.")
