# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A graph of the ATen operations that a function of single elements calls.

    graph = record(call, [torch.int32] * 4, "cpu")

The function is called once on elements without values. Below autograd, torch's dispatcher hands
each operation to `_Recorder`, which writes it down, and runs it on zeros of the same shapes for the
shapes and dtypes of its results. That is done on the CPU, and takes no memory for large tensors.
torch has a tracer of its own (`make_fx`), and kernels that compute shapes alone (meta). The first
use of either imports dynamo and sympy, hundreds of modules, which would be most of a first call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten
_OWN = ("aten", "prim", "prims")  # torch's operations, which modifiers are made of
_EXPLICIT = torch._C.DispatchKey.CompositeExplicitAutograd
_CONSTANTS = (aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default)


class _Element(torch.Tensor):
    """A tensor without values. `node` is its place in the graph, `like` are zeros like it."""

    node: torch.fx.Node
    like: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, node: torch.fx.Node, like: torch.Tensor, device: torch.device) -> _Element:
        made: _Element = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, like.stride(), like.storage_offset(), dtype=like.dtype, device=device
        )
        made.node, made.like = node, like
        node.meta["val"] = like
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} of an element, after the modifier was traced")


class _Recorder(TorchDispatchMode):
    """Writes operations into `graph`; tensors that come from outside are attributes of `root`."""

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.root = torch.fx.Graph(), torch.nn.Module()
        self._outside: dict[int, _Element] = {}  # by identity, of tensors that `root` holds

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports dynamo at the first operation, to keep it away from here

    def input(self, name: str, dtype: torch.dtype, device: torch.device) -> _Element:
        return _Element(self.graph.placeholder(name), _zeros((), dtype), device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return args[0].device
        if func is aten.dot.default:
            with self:
                return (args[0] * args[1]).sum()
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:  # without autograd nothing has taken it apart
                return func.decompose(*args, **kwargs)
        if func.namespace not in _OWN and func.has_kernel_for_dispatch_key(_EXPLICIT):
            with self:  # somebody's operation, written in others
                return func._op_dk(_EXPLICIT, *args, **kwargs)
        if func in _CONSTANTS and type(args[0]) is not _Element and not args[0].ndim:
            (x,) = args  # `torch.tensor(0.5)` is part of the modifier's text
            return self._record(
                aten.scalar_tensor.default, (x.item(),), {"dtype": x.dtype, "device": x.device}
            )
        if _asks_for_values(func, args):
            raise TypeError(f"{func.overloadpacket} depends on an element's value")
        return self._record(func, args, kwargs)

    def _record(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        found: list[_Element] = []

        def element(x: torch.Tensor) -> _Element:
            found.append(x if isinstance(x, _Element) else self._captured(x))
            return found[-1]

        args, kwargs = tree_map_only(torch.Tensor, element, (args, kwargs))
        device = kwargs.get("device") or next((x.device for x in found if x.ndim), None)
        if device is None:
            device = found[0].device if found else torch.device("cpu")
        results, written = _results(func, args, kwargs), None
        if func._schema.is_mutable and results is found[0].like:
            func, written = _not_in_place(func), found[0]
        nodes = tree_map_only(_Element, lambda x: x.node, (args, kwargs))
        node = self.graph.call_function(func, *nodes)
        node.meta["val"] = results
        if written is not None:
            written.node = node  # whoever reads it now, reads this
            return written
        if isinstance(results, torch.Tensor):
            return _Element(node, results, device)
        return type(results)(
            _Element(self.graph.call_function(operator.getitem, (node, k)), x, device)
            if isinstance(x, torch.Tensor) else x
            for k, x in enumerate(results)
        )  # fmt: skip

    def _captured(self, x: torch.Tensor) -> _Element:
        if id(x) not in self._outside:
            name = f"_tensor_constant{len(self._outside)}"
            # an attribute as it is: a module would look at a parameter as its own
            object.__setattr__(self.root, name, x)
            node = self.graph.create_node("get_attr", name)
            self._outside[id(x)] = _Element(node, _zeros(x.shape, x.dtype), x.device)
        return self._outside[id(x)]


def _not_in_place(func: Any) -> Any:
    """`add` for `add_`: the same operation, whose result is a new tensor."""
    named = getattr(aten, func._schema.name.removeprefix("aten::").removesuffix("_"), None)
    return getattr(named, func._overloadname, func)


def _asks_for_values(func: Any, args: Any) -> bool:
    """Whether the results' shapes, or numbers that Python gets, depend on what an element is."""
    if func is aten.index.Tensor:
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return not tags.isdisjoint(func.tags)


def _zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros((), dtype=dtype).expand(shape)


def _results(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operation gives, as zeros or whatever it makes of zeros."""
    makes = any(a.name == "device" for a in func._schema.arguments)

    def run(device: str) -> Any:
        given, named = tree_map_only(_Element, lambda x: x.like.to(device), (args, kwargs))
        return func(*given, **{**named, "device": device} if makes else named)

    try:
        return run("cpu")
    except RuntimeError as error:
        try:  # integers divide by zero
            return tree_map_only(torch.Tensor, lambda x: _zeros(x.shape, x.dtype), run("meta"))
        except (RuntimeError, NotImplementedError):
            raise error from None


class _Subscripts(TorchFunctionMode):
    """Reads `x[i, 0, j]` at 0-d tensors as the operation that it is: torch would ask a 0-d tensor
    for its value, which a trace does not have."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), named: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            x, at = args
            at = at if isinstance(at, tuple) else (at,)
            if all(_plain_index(i) for i in at) and any(isinstance(i, torch.Tensor) for i in at):
                return _subscript(x, at)
        return func(*args, **(named or {}))


def _plain_index(i: Any) -> bool:
    if isinstance(i, torch.Tensor):
        return i.ndim == 0 and i.dtype is not torch.bool
    return type(i) is int or (isinstance(i, slice) and i == slice(None))


def _subscript(x: torch.Tensor, at: tuple[Any, ...]) -> torch.Tensor:
    for dim in reversed(range(len(at))):
        if type(at[dim]) is int:
            x = x.select(dim, at[dim])
    left = [i if isinstance(i, torch.Tensor) else None for i in at if type(i) is not int]
    return aten.index.Tensor(x, left)


def record(
    function: Callable[..., Any], dtypes: Sequence[torch.dtype], device: torch.device | str
) -> torch.fx.GraphModule:
    """The graph of a function of 0-d tensors: a placeholder for each of `dtypes`, one output.

    Each node's `meta["val"]` is a tensor of the shape and dtype of its value. Tensors that the
    function captures are attributes of the result. What the function returns may be no tensor.
    """
    recorder = _Recorder()
    elements = [recorder.input(f"arg{k}", t, torch.device(device)) for k, t in enumerate(dtypes)]
    with torch.no_grad(), recorder, _Subscripts():
        made = function(*elements)
        if isinstance(made, torch.Tensor) and not isinstance(made, _Element):
            made = recorder._captured(made)
    recorder.graph.output(made.node if isinstance(made, _Element) else made)
    graph = torch.fx.GraphModule(recorder.root, recorder.graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph
