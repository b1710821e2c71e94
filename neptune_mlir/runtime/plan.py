# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The launch plan of a compiled function: what its host code did, as data (JSON).

A plan says, from the arguments alone, which buffers to make and which kernels to launch with
which grid, in order. Sizes and scalars are expressions, small prefix lists:

    7                        itself (also a float)
    ["dim", 0, 2]            extent 2 of argument 0
    ["argument", 3]          the scalar argument 3
    ["multiprocessors"]      multiprocessors (compute units) of the device, workers of a CPU
    ["ceildiv", E, E]        and add sub mul div floordiv mod min max, lt le eq ne and or,
                             select (condition, then, else), neg, int, float, exp, log, sqrt

so `["ceildiv", ["dim", 0, 2], 64]` is ceil(extent 2 of argument 0 / 64). Expressions are graphs: of
a plan for decoding 9000 nodes are 100 that differ. In JSON what several share is written once, in a
list of the plan, and `["shared", 3]` is entry 3 of it; an entry names only those before it.
"""

from __future__ import annotations

import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Expression = Any  # int | float | list

# The types of numbers that kernels take from their host, and those that GPUs' kernels take.
NUMBERS = ("index", "i1", "i8", "i16", "i32", "i64", "f32", "f64")
GPU_NUMBERS = (*NUMBERS, "f16")


@dataclass(frozen=True)
class Argument:
    """`kind` is "tensor" or "scalar"; an extent of None is known at run time only."""

    kind: str
    dtype: str
    shape: tuple[int | None, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Buffer:
    """An array that a call makes: an intermediate, or a result.

    `of` names an earlier array of as many elements (a reference as in `Launch.operands`) that
    this one is under another shape; None for memory of its own. Rows begin at multiples of `pitch`
    elements (left out of the JSON where that is 1).
    """

    dtype: str
    shape: tuple[Expression, ...]
    of: Any = None
    pitch: int = 1


@dataclass(frozen=True)
class Constant:
    """An array that comes with the program; `sha256` names its elements in the bundle's data."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    name: str = ""


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `operands`: ["argument", k], ["constant", k] and ["buffer", k] name
    arrays, ["value", dtype, expression] is a scalar. `of_mask`: it only finds what a mask is made
    of, so that others skip tiles (left out of the JSON where it is false). `narrow`: where this is
    not 0, the second-level cache fetches 128 bytes at once of what boxes bring, not 256 (left out
    where it is always 0)."""

    kernel: str
    grid: tuple[Expression, ...]
    operands: tuple[Any, ...]
    of_mask: bool = False
    narrow: Expression = 0


@dataclass(frozen=True)
class Plan:
    """See the module's text. `equal` holds pairs of expressions that a call must make equal;
    `results` are references as in `Launch.operands`; `scratch` is bytes per worker. `in_place` has
    pairs of a result and an argument whose memory it may take, where both are one array, some with
    an expression that then has to be even (left out of the JSON where there are none)."""

    entry: str
    arguments: tuple[Argument, ...]
    equal: tuple[tuple[Expression, Expression], ...]
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    results: tuple[Any, ...]
    scratch: int = 0
    constants: tuple[Constant, ...] = ()
    in_place: tuple[tuple[Any, ...], ...] = ()

    def array(self, reference: Any) -> Argument | Buffer | Constant:
        """What a reference names."""
        kind, number = reference
        tables = {"argument": self.arguments, "buffer": self.buffers, "constant": self.constants}
        return tables[kind][number]

    def to_json(self) -> str:
        data = {**vars(self), "arguments": [vars(a) for a in self.arguments],
                "constants": [vars(c) for c in self.constants]}  # fmt: skip
        if not self.constants:
            del data["constants"]
        if not self.in_place:
            del data["in_place"]
        data["buffers"] = [dict(vars(b)) for b in self.buffers]
        for buffer in data["buffers"]:
            if buffer["pitch"] == 1:
                del buffer["pitch"]
        data["launches"] = [dict(vars(x)) for x in self.launches]
        for launch in data["launches"]:
            for name in ("of_mask", "narrow"):
                if not launch[name]:
                    del launch[name]
        data, shared = _with_references(data)
        return json.dumps({**data, "shared": shared} if shared else data, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan:
        data = _with_objects(json.loads(text))
        return Plan(
            entry=data["entry"],
            arguments=tuple(
                Argument(a["kind"], a["dtype"], tuple(a["shape"]), a["name"])
                for a in data["arguments"]
            ),
            equal=tuple((a, b) for a, b in data["equal"]),
            buffers=tuple(
                Buffer(b["dtype"], tuple(b["shape"]), b["of"], b.get("pitch", 1))
                for b in data["buffers"]
            ),
            launches=tuple(
                Launch(
                    x["kernel"], tuple(x["grid"]), tuple(x["operands"]), x.get("of_mask", False),
                    x.get("narrow", 0),
                )
                for x in data["launches"]
            ),
            results=tuple(data["results"]),
            scratch=data["scratch"],
            constants=tuple(
                Constant(c["dtype"], tuple(c["shape"]), c["sha256"], c["name"])
                for c in data.get("constants", ())
            ),
            in_place=tuple(tuple(entry) for entry in data.get("in_place", ())),
        )


def _toward_zero(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": operator.mod,
    "quotient": lambda a, b: _toward_zero(a, b),
    "remainder": lambda a, b: a - b * _toward_zero(a, b),
    "min": min,
    "max": max,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "select": lambda c, a, b: a if c else b,
    "neg": operator.neg,
    "int": int,
    "float": float,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
}
_HEADS = [[head] for head in _OPERATIONS]


def _with_references(data: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The data of a plan without what expressions share, and a list of that."""
    alike: dict[Any, list[Any]] = {}  # by what they are made of: lists, each once
    known: dict[int, tuple[Any, list[Any]]] = {}

    def joined(item: Any) -> Any:
        if isinstance(item, dict):
            return {name: joined(value) for name, value in item.items()}
        if not isinstance(item, (list, tuple)):
            return item
        if id(item) not in known:
            parts = [joined(part) for part in item]
            key = tuple(id(p) if isinstance(p, (list, dict)) else (type(p), p) for p in parts)
            known[id(item)] = item, alike.setdefault(key, parts)
        return known[id(item)][1]

    graph = joined(data)
    users = Counter(id(p) for item in alike.values() for p in item if isinstance(p, list))
    shared: list[Any] = []
    places: dict[int, int] = {}

    def written(item: Any) -> Any:
        if isinstance(item, dict):
            return {name: written(value) for name, value in item.items()}
        if not isinstance(item, list):
            return item
        if users[id(item)] < 2 or item[:1] not in _HEADS:
            return [written(part) for part in item]
        if id(item) not in places:
            parts = [written(part) for part in item]
            places[id(item)] = len(shared)
            shared.append(parts)
        return ["shared", places[id(item)]]

    return written(graph), shared


def _with_objects(data: dict[str, Any]) -> dict[str, Any]:
    """The data of a plan in which a shared expression is one object."""
    shared: list[Any] = []

    def read(item: Any) -> Any:
        if isinstance(item, dict):
            return {name: read(value) for name, value in item.items()}
        if not isinstance(item, list):
            return item
        return shared[item[1]] if item[:1] == ["shared"] else [read(part) for part in item]

    for expression in data.pop("shared", ()):
        shared.append(read(expression))
    return read(data)


class Evaluation:
    """Values of expressions for one call. What many of them are made of (the number of chunks of a
    stream is in grids, shapes and conditions) is computed once, where it is one object."""

    def __init__(
        self, shapes: Sequence[Any], scalars: Sequence[Any], multiprocessors: int | None = None
    ):
        """`shapes[k]` and `scalars[k]` belong to argument k, `multiprocessors` to the device."""
        self._shapes, self._scalars, self._multiprocessors = shapes, scalars, multiprocessors
        self._known: dict[int, tuple[Expression, Any]] = {}  # by id; the expression keeps its own

    def of(self, expression: Expression) -> Any:
        """The value of an expression."""
        if not isinstance(expression, (list, tuple)):
            return expression
        found = self._known.get(id(expression))
        if found is None:
            value = self._compute(*expression)
            found = self._known[id(expression)] = expression, value
        return found[1]

    def _compute(self, head: str, *rest: Any) -> Any:
        if head == "dim":
            return self._shapes[rest[0]][rest[1]]
        if head == "argument":
            return self._scalars[rest[0]]
        if head == "multiprocessors":
            return self._multiprocessors
        return _OPERATIONS[head](*map(self.of, rest))


def evaluate(
    expression: Expression, shapes: Sequence[Any], scalars: Sequence[Any],
    multiprocessors: int | None = None,
) -> Any:  # fmt: skip
    """The value of one expression (see `Evaluation`)."""
    return Evaluation(shapes, scalars, multiprocessors).of(expression)


def describe(expression: Expression, names: Sequence[str]) -> str:
    """An expression as a person would write it, for messages."""
    if not isinstance(expression, (list, tuple)):
        return str(expression)
    head, *rest = expression
    if head == "dim":
        return f"{names[rest[0]]}.shape[{rest[1]}]"
    if head == "argument":
        return names[rest[0]]
    if head == "multiprocessors":
        return head
    infix = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "le": "<="}
    texts = [describe(e, names) for e in rest]
    if head in infix:
        return f"({texts[0]} {infix[head]} {texts[1]})"
    return f"{head}({', '.join(texts)})"
