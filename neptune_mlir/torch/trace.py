# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlexAttention's modifiers as graphs of ATen operations on single elements.

    trace(mod, with_score=True) -> Trace(graph, tensors)

A modifier is called once on 0-d tensors, as FlexAttention itself does, so it means here what it
means there (`recorder.py`). Traces are kept by what a modifier is made of: its code, and the
numbers, functions and tensors (by dtype and shape) that its closure, defaults and globals hold. A
modifier that is defined anew in every step is therefore traced once.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from neptune_mlir.errors import InputError
from neptune_mlir.torch.recorder import record

POSITIONS = ("b", "h", "q", "kv")
_LIMIT = 256  # traces that are kept
_VALUES = (int, float, str, bytes, complex, type(None), torch.dtype, torch.device, torch.layout)
_OPERATOR = torch.ops.aten.add  # any one, for its type and that of its overloads
_NAMED = (
    types.ModuleType, types.BuiltinFunctionType, type, type(_OPERATOR), type(_OPERATOR.Tensor),
)  # fmt: skip

_traces: dict[Any, tuple[torch.fx.GraphModule, dict[str, int]]] = {}


@dataclass(frozen=True)
class Trace:
    """A modifier: `graph.graph` has the placeholders `[score,] b, h, q, kv`, and one output.

    `tensors[name]` is the captured tensor that the graph reads as attribute `name`.
    """

    graph: torch.fx.GraphModule
    tensors: dict[str, torch.Tensor]


class _Opaque(Exception):
    """A modifier holds an object that this module cannot look into."""


class _Parts:
    """What a function is made of: `key` without its tensors, and the tensors in order; `functions`
    it and those that it holds, and whether all else that they hold is `fixed`."""

    def __init__(self, function: Any):
        self.tensors: list[torch.Tensor] = []
        self.functions: list[types.FunctionType] = []
        self.fixed = True
        self._positions: dict[int, int] = {}  # of tensors, by identity
        self._functions: dict[int, int] = {}
        self.key = self._of(function)

    def _of(self, x: Any) -> Any:
        kind = type(x)
        if kind in (bool, *_VALUES):
            return kind, x
        if isinstance(x, torch.Tensor):
            return self._tensor(x)
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if kind in (tuple, torch.Size):
            return kind, *map(self._of, x)
        if isinstance(x, _NAMED):
            return x
        self.fixed = False  # elements and attributes may be others tomorrow
        if kind is list:
            return kind, *map(self._of, x)
        if kind is dict:
            return kind, *((self._of(k), self._of(v)) for k, v in x.items())
        if kind is types.MethodType:
            return kind, self._of(x.__func__), self._of(x.__self__)
        if kind is functools.partial:
            return kind, self._of(x.func), self._of(x.args), self._of(x.keywords)
        raise _Opaque

    def _tensor(self, x: torch.Tensor) -> Any:
        at = self._positions.setdefault(id(x), len(self.tensors))
        if at == len(self.tensors):
            self.tensors.append(x)
        return torch.Tensor, at, x.dtype, tuple(x.shape), x.device.type

    def _function(self, f: types.FunctionType) -> Any:
        if id(f) in self._functions:  # it calls itself
            return types.FunctionType, self._functions[id(f)]
        self._functions[id(f)] = len(self._functions)
        self.functions.append(f)
        cells = tuple(self._of(c.cell_contents) for c in f.__closure__ or ())
        values = f.__globals__
        named = tuple((n, self._of(values[n])) for n in _names(f.__code__) if n in values)
        return f.__code__, cells, named, self._of(f.__defaults__), self._of(f.__kwdefaults__)


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The names that code may look up in its globals, its inner functions' included."""
    inner = [n for c in code.co_consts if isinstance(c, types.CodeType) for n in _names(c)]
    return tuple(sorted({*code.co_names, *inner}))


_MISSING = object()


class Recent:
    """A trace of a function, as long as the function and those that it holds have what they had.

    Nothing here keeps a function or a tensor alive.
    """

    def __init__(self, parts: _Parts, graph: torch.fx.GraphModule, places: dict[str, int]):
        self.graph, self._names = graph, tuple(places)
        captured = [parts.tensors[n] for n in places.values()]
        self._references = [weakref.ref(x) for x in captured]
        self._like = [(x.dtype, x.shape, x.device) for x in captured]
        self._others = [
            (weakref.ref(x), x.dtype, x.shape, x.device)
            for n, x in enumerate(parts.tensors) if n not in places.values()
        ]  # fmt: skip
        self._functions = [
            (
                weakref.ref(f), f.__code__, f.__defaults__, f.__kwdefaults__,
                [_weak(c.cell_contents) for c in f.__closure__ or ()],
                [(n, _weak(f.__globals__.get(n, _MISSING))) for n in _names(f.__code__)],
            )
            for f in parts.functions
        ]  # fmt: skip

    def captured(self) -> list[torch.Tensor] | None:
        """The tensors that the graph reads, in its order; None where the function has something
        else now. Their types and shapes may have changed (`trace` looks)."""
        for function, code, defaults, named, cells, values in self._functions:
            f = function()
            if f is None or f.__code__ is not code:
                return None
            if f.__defaults__ is not defaults or f.__kwdefaults__ is not named:
                return None
            if cells:
                for had, cell in zip(cells, f.__closure__ or (), strict=True):
                    x = cell.cell_contents
                    if had is not x and not (type(had) is weakref.ref and had() is x):
                        return None
            if values:
                found = f.__globals__
                for name, had in values:
                    x = found.get(name, _MISSING)
                    if had is not x and not (type(had) is weakref.ref and had() is x):
                        return None
        tensors = []
        for of in self._references:
            x = of()
            if x is None:
                return None
            tensors.append(x)
        return tensors

    def trace(self) -> Trace | None:
        """The trace, or None where the function has something else now."""
        tensors = self.captured()
        if tensors is None or [(x.dtype, x.shape, x.device) for x in tensors] != self._like:
            return None
        for of, dtype, shape, device in self._others:
            x = of()
            if x is None or x.dtype is not dtype or x.shape != shape or x.device != device:
                return None
        return Trace(self.graph, dict(zip(self._names, tensors, strict=True)))


def _weak(held: Any) -> Any:
    """An object itself, but a tensor or a function by a weak reference."""
    return weakref.ref(held) if isinstance(held, (torch.Tensor, types.FunctionType)) else held


_recent: weakref.WeakKeyDictionary[Any, dict[Any, Recent]] = weakref.WeakKeyDictionary()


def recent(mod: Any, score: torch.dtype | None, device: torch.device | str) -> Recent | None:
    """What is kept of the last trace of a function."""
    of = _recent.get(mod) if type(mod) is types.FunctionType else None
    return of.get((score, device)) if of else None


def trace(
    mod: Callable[..., Any], score: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Trace:  # fmt: skip
    """The graph of a modifier.

    Args:
        mod: `score_mod(score, b, h, q, kv)` or `mask_mod(b, h, q, kv)`.
        score: the dtype of the score, f32 or f64; None for a `mask_mod`.
        device: where the elements are.

    Raises:
        InputError: it cannot be called on single elements, or what it returns is no 0-d tensor.
    """
    known = recent(mod, score, device)
    found = known.trace() if known else None
    if found is not None:
        return found
    try:
        parts = _Parts(mod)
    except _Opaque:
        graph = _graph(mod, score, device)
        return Trace(graph, _captured(graph))
    key = parts.key, score, str(device)
    if key not in _traces:
        graph = _graph(mod, score, device)
        captured = _captured(graph)
        at = {id(x): n for n, x in enumerate(parts.tensors)}
        if any(id(x) not in at for x in captured.values()):
            return Trace(graph, captured)  # a tensor that the next closure may not share
        if len(_traces) >= _LIMIT:
            _traces.clear()
        # the graph must not keep the tensors of the closure that was traced first
        for name in captured:
            delattr(graph, name)
        _traces[key] = graph, {name: at[id(x)] for name, x in captured.items()}
    graph, places = _traces[key]
    if parts.fixed and type(mod) is types.FunctionType:
        _recent.setdefault(mod, {})[score, device] = Recent(parts, graph, places)
    return Trace(graph, {name: parts.tensors[n] for name, n in places.items()})


def _captured(graph: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    names = {n.target: None for n in graph.graph.nodes if n.op == "get_attr"}
    return {name: getattr(graph, name) for name in names}


def _graph(
    mod: Callable[..., Any], score: torch.dtype | None, device: torch.device | str
) -> torch.fx.GraphModule:
    names = POSITIONS if score is None else ("score", *POSITIONS)
    dtypes = [torch.int32 for _ in POSITIONS]
    if score is not None:
        dtypes.insert(0, score)
    name = getattr(mod, "__name__", type(mod).__name__)

    def call(*elements: torch.Tensor) -> torch.Tensor:
        made = mod(*elements)
        if isinstance(made, bool | int | float):
            made = torch.full((), made, dtype=score or torch.bool)
        return made

    try:
        graph = record(call, dtypes, device)
    except Exception as error:  # whatever user code and torch raise: the modifier is at fault
        lines = str(error).strip().splitlines()
        raise InputError(
            f"'{name}' cannot be traced: {type(error).__name__}: {lines[0] if lines else ''}",
            loc=_place(mod),
            hint=f"it is called as {name}({', '.join(names)}) on 0-d tensors: "
            "write choices as torch.where, not as `if`",
        ) from error
    graph.neptune_name = name
    _check_result(graph, score, mod)
    return graph


def _check_result(graph: torch.fx.GraphModule, score: torch.dtype | None, mod: Any) -> None:
    (result,) = graph.graph.output_node().args
    value = result.meta["val"] if isinstance(result, torch.fx.Node) else None
    if value is None or value.ndim or (score is None and value.dtype is not torch.bool):
        found = "no tensor" if value is None else f"{value.dtype} {list(value.shape)}"
        raise InputError(
            f"'{graph.neptune_name}' returns {found}, not "
            + ("a condition" if score is None else "a score"),
            loc=_place(mod),
            hint="return one 0-d tensor" + (" of dtype bool" if score is None else ""),
        )


def _place(mod: Any) -> str | None:
    code = getattr(mod, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}:1" if code else None
