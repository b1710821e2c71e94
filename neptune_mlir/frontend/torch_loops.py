# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of torch: recurrent layers as scans, and scans and `while_loop` in what torch-mlir imports.

torch-mlir has no scan, and takes a `while_loop` to never end. So both become calls of a function
without a body, whose name says what it stands for; `driver/stablehlo/tensor_loops.py` writes the
loops once all else is linalg.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.driver.stablehlo.tensor_loops import name_of
from neptune_mlir.ir.bindings import TORCH_MLIR

_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_GATES = {"lstm": 4, "gru": 3}


def functions(torch: Any) -> dict[Any, Callable[..., Any]]:
    """What recurrent layers become."""

    def layers(kind: str) -> Callable[..., Any]:
        def function(torch: Any, x: Any, first: Any, weights: Any, *options: Any) -> Any:
            packed = not isinstance(options[0], bool)  # sequences of lengths of their own
            return NotImplemented if packed else _layers(
                torch, kind, x, first, weights, *options)  # fmt: skip

        return function

    return {getattr(torch, kind): layers(kind) for kind in _KINDS}


def _layers(
    torch: Any, kind: str, x: Any, first: Any, weights: Sequence[Any], biased: bool, count: int,
    dropout: float, train: bool, both: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """All layers of a recurrence: the hidden states of the last one, and the last states."""
    states = [list(s.unbind(0)) for s in (first if kind == "lstm" else [first])]
    x = x.transpose(0, 1) if batch_first else x
    ways = 2 if both else 1
    one = len(weights) // (count * ways)
    lasts = []
    for layer in range(count):
        found = []
        for way in range(ways):
            k = layer * ways + way
            own = list(weights[k * one : (k + 1) * one])
            whole, last = _layer(torch, kind, x, [s[k] for s in states], own, biased, way == 1)
            found.append(whole)
            lasts.append(last)
        x = torch.cat(found, -1) if both else found[0]
        if dropout and train and layer < count - 1:
            x = torch.dropout(x, dropout, train)
    ends = [torch.stack(each) for each in zip(*lasts, strict=True)]
    return (x.transpose(0, 1) if batch_first else x, *ends)


def _layer(
    torch: Any, kind: str, x: Any, first: Sequence[Any], own: list[Any], biased: bool, back: bool
) -> tuple[Any, list[Any]]:
    """One direction of a layer. What steps read of the sequence is one product for all of them."""
    inner, outer = own[:2]
    biases = own[2:4] if biased else []
    late = kind == "gru" and biased  # whose second bias is inside of what a gate multiplies
    shown = torch.nn.functional.linear(x, inner, biases[0] if biases else None)
    shown = shown + biases[1] if biases and not late else shown
    held = [outer.t().contiguous()] + ([biases[1].clone()] if late else [])
    shape = own[-1].t().contiguous() if len(own) == len(biases) + 3 else None
    held += [] if shape is None else [shape]

    def step(*values: Any) -> list[Any]:
        states, here = values[: len(first)], values[len(first)]
        weights = values[len(first) + 1 :]
        product = states[0] @ weights[0]
        if late:
            product = product + weights[1]
        made = _CELLS.get(kind, _plain)(torch, kind, here, product, states)
        if shape is not None:
            made[0] = made[0] @ weights[-1]
        return [*made, made[0].clone()]

    scan = importlib.import_module("torch._higher_order_ops.scan").scan_op
    *states, whole = scan(step, list(first), [shown.flip(0) if back else shown], tuple(held))
    return whole.flip(0) if back else whole, states


def _plain(torch: Any, kind: str, here: Any, product: Any, states: Sequence[Any]) -> list[Any]:
    return [(torch.tanh if kind == "rnn_tanh" else torch.relu)(here + product)]


def _gru(torch: Any, kind: str, here: Any, product: Any, states: Sequence[Any]) -> list[Any]:
    (r, z, new), (r2, z2, new2) = here.chunk(3, -1), product.chunk(3, -1)
    new = torch.tanh(new + torch.sigmoid(r + r2) * new2)
    return [new + torch.sigmoid(z + z2) * (states[0] - new)]


def _lstm(torch: Any, kind: str, here: Any, product: Any, states: Sequence[Any]) -> list[Any]:
    i, f, new, o = (here + product).chunk(4, -1)
    cell = torch.sigmoid(f) * states[1] + torch.sigmoid(i) * torch.tanh(new)
    return [torch.sigmoid(o) * torch.tanh(cell), cell]


_CELLS: dict[str, Callable[..., list[Any]]] = {"gru": _gru, "lstm": _lstm}


# ---- what is imported ----------------------------------------------------------------------------


def importer() -> Any:
    """An importer of torch-mlir that knows loops."""
    known = importlib.import_module(f"{TORCH_MLIR}.extras.fx_importer")
    bindings = importlib.import_module(f"{TORCH_MLIR}.ir")
    dialect = importlib.import_module(f"{TORCH_MLIR}.dialects.torch")

    class Nodes(known.GraphNodeImporter):  # type: ignore[name-defined, misc]
        def _import_hop_scan(self, loc: Any, node: Any, hop: Any) -> None:
            body, first, given, held = node.args[:4]
            sizes = _sizes(node.meta["val"][len(first) :], [*first, *given, *held])
            spec = {"body": self._function(node, body), "carried": len(first),
                    "scanned": len(given), "sizes": sizes}  # fmt: skip
            self._call(loc, node, [*first, *given, *held], spec)

        def _import_hop_while_loop(self, loc: Any, node: Any, hop: Any) -> None:
            test, body, first, held = node.args
            spec = {"test": self._function(node, test), "body": self._function(node, body),
                    "carried": len(first)}  # fmt: skip
            self._call(loc, node, [*first, *held], spec)

        def _function(self, node: Any, part: Any) -> str:
            module = getattr(node.graph.owning_module, part.target)
            name = str(self.fx_importer._graph_module_to_func_name[id(module)])
            # nothing calls it that passes know of, and so they would erase a private one
            del self.fx_importer.symbol_table[name].attributes["sym_visibility"]
            return name

        def _call(self, loc: Any, node: Any, given: Sequence[Any], spec: dict[str, Any]) -> None:
            operands = [self._import_argument(loc, value) for value in given]
            results = [self._cc.value_info_to_type(value) for value in node.meta["val"]]
            with loc:
                kind = bindings.FunctionType.get([value.type for value in operands], results)
                named = name_of({**spec, "name": node.name})
                texts = {"sym_name": named, "sym_visibility": "private"}
                attributes = {name: bindings.StringAttr.get(text) for name, text in texts.items()}
                attributes["function_type"] = bindings.TypeAttr.get(kind)
                module = bindings.InsertionPoint(self.fx_importer.module.body)
                bindings.Operation.create(
                    "func.func", attributes=attributes, regions=1, ip=module
                )
                callee = bindings.FlatSymbolRefAttr.get(texts["sym_name"])
                call = bindings.Operation.create(
                    "func.call", results, operands, {"callee": callee}, loc=loc
                )
            self._multi_result_nodes.add(node)
            for k, value in enumerate(call.results):
                self.bind_node_value(node, value, k)

    context = bindings.Context()
    dialect.register_dialect(context)
    return known.FxImporter(context=context, graph_node_importer_cls=Nodes)


def _sizes(found: Sequence[Any], given: Sequence[Any]) -> list[int]:
    """Where the extents that only calls know of what a scan collects are found: an operand and its
    dimension, for each."""
    known: dict[str, tuple[int, int]] = {}
    for k, node in enumerate(given):
        for dim, extent in enumerate(node.meta["val"].shape):
            known.setdefault(str(extent), (k, dim))
    return [place for value in found for extent in value.shape
            if not isinstance(extent, int) for place in known[str(extent)]]  # fmt: skip
