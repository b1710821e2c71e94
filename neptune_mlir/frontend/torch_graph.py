# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What happens to an exported graph of torch before torch-mlir gets it: what its own lowering
refuses, gets wrong, dies of or never ends with becomes something else.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any

from neptune_mlir.errors import InputError
from neptune_mlir.frontend import (
    torch_branches,
    torch_complex,
    torch_integers,
    torch_narrow,
    torch_scatters,
)
from neptune_mlir.frontend.torch_ops import decompositions

_WRAPPER = "neptune_mlir/frontend/from_torch.py"  # whose module calls what is imported
_OTHER_RANK = {"aten::unsqueeze", "aten::squeeze"}  # a dimension of theirs names no loop


def prepare(torch: Any, exported: Any) -> Any:
    """An exported program in operations that torch-mlir lowers well."""
    torch_branches.compute_both(torch, exported)
    exported = torch_complex.take_apart(torch, exported)
    _refuse_complex_ends(torch, exported)
    exported = exported.run_decompositions(decompositions(torch))
    _list_results_alone(torch, exported)
    for graph in graphs(torch, exported):
        _refuse_random(torch, graph)
        _refuse_shapes_of_data(torch, graph)
        _refuse_determinants(graph)
        torch_narrow.saturate(torch, graph, line_of_node)
        torch_integers.compute_wide(torch, graph)
        _compare_with_itself(torch, graph)
        _compute_no_empty(torch, graph)
        _give_dimensions(torch, graph)
        _count_from_first(torch, graph)
        torch_scatters.count_from_first(torch, graph)
        _Uniform(torch, graph).fold()
        _keep_one_line(graph)
    _hold_all_buffers(exported)
    return exported


def graphs(torch: Any, exported: Any) -> list[Any]:
    """The graph of a program, and those of its loops."""
    modules = exported.graph_module.modules()
    return [m.graph for m in modules if isinstance(m, torch.fx.GraphModule)]


def _hold_all_buffers(exported: Any) -> None:
    """Buffers that are not persistent are among the constants, where torch-mlir does not look."""
    for name in exported.graph_signature.inputs_to_buffers.values():
        if name not in exported.state_dict:
            exported.state_dict[name] = exported.constants[name]


def _keep_one_line(graph: Any) -> None:
    """Of the frames that called an operation one is its location, that of the program."""
    for node in graph.nodes:
        file, _, number = (line_of_node(node) or "").rpartition(":")
        node.meta["stack_trace"] = f'File "{file}", line {number}, in forward' if file else None


def _refuse_complex_ends(torch: Any, exported: Any) -> None:
    """Raises InputError for arguments and results of complex numbers."""
    graph, given = exported.graph, exported.graph_signature.user_inputs
    ends = [n for n in graph.nodes if n.op == "placeholder" and n.name in given]
    for node in (*ends, *graph.output_node().all_input_nodes):
        if getattr(node.meta.get("val"), "dtype", torch.float32).is_complex:
            what = f"argument '{node.name}'" if node in ends else f"result of '{_name_of(node)}'"
            raise InputError(
                f"the {what} has complex numbers, and arrays of kernels have none",
                loc=line_of_node(node),
                hint="pass torch.view_as_real(x) and return torch.view_as_real(y)",
            )


def _refuse_random(torch: Any, graph: Any) -> None:
    """Raises InputError where a graph draws random numbers, with the function that was called."""
    for node in graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded not in tags:
            continue
        called = node.meta.get("torch_fn", ("", str(node.target)))[1]
        raise InputError(
            f"'{called.removeprefix('function.').removeprefix('builtin_function_or_method.')}' "
            f"draws random numbers ('{node.target}'), and a kernel has none",
            loc=line_of_node(node),
            hint="call eval() on a module with dropout; pass other random numbers as arguments",
        )


def _refuse_shapes_of_data(torch: Any, graph: Any) -> None:
    """Raises InputError where the elements of a tensor say how large another one is: torch-mlir
    does not end with that."""
    unknown = torch.fx.experimental.symbolic_shapes.free_unbacked_symbols
    for node in graph.nodes:
        value = node.meta.get("val")
        chosen = node.target is getattr(torch, "sym_ite", None) and unknown(value)
        if chosen or (isinstance(value, torch.Tensor) and unknown(value.shape)):
            maker = node.args[0] if node.target is operator.getitem else node
            raise InputError(
                f"the shape of what '{_name_of(maker)}' makes depends on data, and a kernel's "
                "results have shapes that follow from those of its arguments",
                loc=line_of_node(node),
                hint="keep all elements and choose by torch.where or masked_fill, or compute the "
                "positions before the program",
            )


def _refuse_determinants(graph: Any) -> None:
    """Raises InputError for determinants: torch-mlir eliminates without choosing pivots, and gives
    NaN for [[0, 1], [2, 3]]."""
    known = {"aten.linalg_det", "aten._linalg_det", "aten.linalg_slogdet", "aten._linalg_slogdet"}
    for node in graph.nodes:
        if str(node.target).removesuffix(".default") in known:
            raise InputError(
                f"'{_name_of(node)}' has no lowering that chooses pivots", loc=line_of_node(node),
                hint="compute determinants before the program and pass them",
            )  # fmt: skip


def line_of(graph: Any, operation: str) -> str | None:
    """The line of the program that called an operation of torch, as torch-mlir calls it, first."""
    for node in graph.nodes:
        if _name_of(node) == operation:
            return line_of_node(node)
    return None


def _name_of(node: Any) -> str:
    """An operation as torch-mlir calls it."""
    target = getattr(node.target, "__name__", "") if callable(node.target) else node.target
    known = str(node.target) if hasattr(node.target, "overloadpacket") else target
    return f"torch.{known}".removesuffix(".default")


def complex_numbers(torch: Any, graph: Any) -> tuple[str, str | None] | None:
    """The first operation of a graph that makes complex numbers, and its line."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype.is_complex:
            return _name_of(node), line_of_node(node)
    return None


def line_of_node(node: Any) -> str | None:
    """The line of the program that a node of a graph comes from."""
    lines = re.findall(r'File "(.*)", line (\d+), in', node.meta.get("stack_trace") or "")
    lines = [line for line in lines if not line[0].endswith(_WRAPPER)] or lines
    return ":".join(lines[-1]) if lines else None


def _compare_with_itself(torch: Any, graph: Any) -> None:
    """A tensor is equal to itself where it is not NaN: torch-mlir takes that for everywhere."""
    aten = torch.ops.aten
    same = (aten.clone.default, aten.alias.default, aten.detach.default)

    def source(node: Any) -> Any:
        while getattr(node, "target", None) in same:
            node = node.args[0]
        return node

    for node in list(graph.nodes):
        if node.target is not aten.eq.Tensor or source(node.args[0]) is not source(node.args[1]):
            continue
        with graph.inserting_after(node):
            equal = graph.call_function(aten.logical_not.default, (node,))
        equal.meta = dict(node.meta)
        node.target = aten.ne.Tensor
        node.replace_all_uses_with(equal, delete_user_cb=lambda user, e=equal: user is not e)


def _compute_no_empty(torch: Any, graph: Any) -> None:
    """A tensor without elements comes from nothing: torch-mlir divides by its extents."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        if all(isinstance(extent, int) for extent in value.shape) and 0 in value.shape:
            node.target = torch.ops.aten.full.default
            node.args = (list(value.shape), 0)
            node.kwargs = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    graph.eliminate_dead_code()


def _give_dimensions(torch: Any, graph: Any) -> None:
    """An operation along a dimension of a tensor that has none gets one of one element: torch-mlir
    refuses such a scan or extremum, and does not end with such a softmax."""
    for node in list(graph.nodes):
        if not _has_dimension(node):
            continue
        sources = [a for a in node.args if isinstance(a, torch.fx.Node) and _is_number(torch, a)]
        if sources and sources[0] is node.args[0]:
            _along_one(torch, graph, node, sources)
    graph.lint()


def _count_from_first(torch: Any, graph: Any) -> None:
    """Dimensions are counted from the first: torch-mlir dies of a scatter along dimension -1."""
    for node in graph.nodes:
        if not _has_dimension(node) or not isinstance(node.args[0], torch.fx.Node):
            continue
        value = node.args[0].meta.get("val")
        for k, argument in enumerate(node.target._schema.arguments[: len(node.args)]):
            dim = node.args[k]
            if argument.name == "dim" and type(dim) is int and dim < 0:
                if isinstance(value, torch.Tensor) and value.dim():
                    node.update_arg(k, dim + value.dim())


def _list_results_alone(torch: Any, exported: Any) -> None:
    """Parameters and buffers of the module that stand in a list come from an operation: torch-mlir
    refuses a list that has tensors of another kind than results."""
    signature = exported.graph_signature
    held = {*signature.inputs_to_parameters, *signature.inputs_to_buffers,
            *signature.inputs_to_lifted_tensor_constants}  # fmt: skip
    graph = exported.graph
    for node in list(graph.nodes):
        for k, listed in enumerate(node.args if node.op == "call_function" else ()):
            if not isinstance(listed, (tuple, list)):
                continue
            own = [x for x in listed if isinstance(x, torch.fx.Node) and x.name in held]
            with graph.inserting_before(node):
                made = {x: graph.call_function(torch.ops.aten.clone.default, (x,)) for x in own}
            for x, copy in made.items():
                copy.meta.update(x.meta)
            if own:
                node.update_arg(k, [made.get(x, x) for x in listed])


def _is_number(torch: Any, node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dim()


def _has_dimension(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or schema.name in _OTHER_RANK:
        return False
    return any(a.name == "dim" and "int" in str(a.type) for a in schema.arguments)


def _along_one(torch: Any, graph: Any, node: Any, sources: Sequence[Any]) -> None:
    aten = torch.ops.aten
    given = {}
    with graph.inserting_before(node):
        for source in dict.fromkeys(sources):
            given[source] = graph.call_function(aten.unsqueeze.default, (source, 0))
            given[source].meta = {"val": source.meta["val"].unsqueeze(0)}
    node.args = tuple(given.get(a, a) if isinstance(a, torch.fx.Node) else a for a in node.args)
    values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args]
    with values[0].fake_mode:
        made = node.target(*values, **node.kwargs)
    results = [(node, made)]
    if isinstance(made, tuple):
        gets = [user for user in node.users if user.target is operator.getitem]
        results = [(get, made[get.args[1]]) for get in gets]
    for result, value in results:
        old = result.meta["val"]
        _has_value(result, value)
        if value.dim() == old.dim():
            continue
        with graph.inserting_after(result):
            shorter = graph.call_function(aten.squeeze.dim, (result, 0))
        shorter.meta = {"val": old}
        result.replace_all_uses_with(shorter, delete_user_cb=lambda user, s=shorter: user is not s)
    _has_value(node, made)


def _has_value(node: Any, value: Any) -> None:
    node.meta["val"] = value
    node.meta.pop("tensor_meta", None)  # which the importer would believe


class _Uniform:
    """Tensors whose elements are one number, and what is computed of such alone. torch-mlir would
    fold that, and its folding takes negative integers for unsigned, compares bits of numbers of two
    kinds, and dies of a few."""

    def __init__(self, torch: Any, graph: Any):
        self.torch, self.graph, self.aten = torch, graph, torch.ops.aten
        self.numbers: dict[Any, Any] = {}  # of a node
        names = ("expand", "view", "reshape", "unsqueeze", "squeeze", "permute", "transpose",
                 "clone", "alias", "t", "slice", "select", "detach")  # fmt: skip
        self._moves = {getattr(self.aten, name) for name in names}

    def fold(self) -> None:
        for node in list(self.graph.nodes):
            if node.op != "call_function":
                continue
            found = self._number(node)
            if found is not None:
                self.numbers[node] = found
                self._fill(node, found)
        self.graph.eliminate_dead_code()

    def _number(self, node: Any) -> Any:
        """What each element of a node is, None where that is not known to be one number."""
        value, packet = node.meta.get("val"), getattr(node.target, "overloadpacket", None)
        if not isinstance(value, self.torch.Tensor) or value.dtype.is_complex:
            return None
        if packet in (self.aten.full, self.aten.full_like):
            return node.args[1] if isinstance(node.args[1], (bool, int, float)) else None
        sources = [a for a in node.all_input_nodes if a is not None]
        if not sources or any(a not in self.numbers for a in sources):
            return None
        if packet in self._moves:
            return self.numbers[node.args[0]]
        pointwise = self.torch.Tag.pointwise in node.target.tags
        if not pointwise and packet is not self.aten._to_copy:
            return None
        arguments = self.torch.fx.node.map_arg((node.args, node.kwargs), self._sample)
        result = node.target(*arguments[0], **arguments[1])
        return result.item() if result.dtype == value.dtype else None

    def _sample(self, node: Any) -> Any:
        """A tensor like a node with one element."""
        value = node.meta["val"]
        return self.torch.full([1] * value.dim(), self.numbers[node], dtype=value.dtype)

    def _fill(self, node: Any, number: Any) -> None:
        """Make a node a tensor of one number."""
        value = node.meta["val"]
        if not all(isinstance(extent, int) for extent in value.shape):
            return
        node.target = self.aten.full.default
        node.args = (list(value.shape), number)
        node.kwargs = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
