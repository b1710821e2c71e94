# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes that exporters compute in an ONNX model, where its inputs' shapes say what they are.

    Shape(x), Gather, Mul, Concat, Reshape(x, ...)     ->     Reshape(x, constant)
    If(constant) {...} {...}                           ->     the nodes of a branch

Without that a Reshape has a result of unknown rank, and so has all that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

MOST = 16  # elements of a folded result: a shape, never a table of positions or weights
ROUNDS = 8  # of folding and inference: what one finds is what the other starts from
_SAME_SIZE = {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Div", "Equal", "Flatten", "Floor", "Gather",
    "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul",
    "Neg", "Not", "Or", "Pow", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape",
    "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
_OF_SHAPE = {"ConstantOfShape", "Expand"}  # whose last input says how large the result is


def folded(model: ModelProto) -> ModelProto:
    """A typed model with its shapes as constants; consumed."""
    for _ in range(ROUNDS):
        constants = {x.name: x for x in model.graph.initializer}
        if not _fold(model, constants):
            break
        model = shape_inference.infer_shapes(model, data_prop=True)
    return model


def _fold(model: ModelProto, constants: dict[str, Any]) -> bool:
    """One pass over the nodes; whether anything was folded."""
    graph = model.graph
    shapes = {x.name: x.type.tensor_type for x in (*graph.input, *graph.value_info)}
    kept: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "If" and node.input[0] in constants:
            chosen = _branch(node, bool(_array(constants, node.input[0]).item()))
            if not _produced(chosen) & _produced(graph.node) - set(node.output):
                kept.extend(chosen)
                continue
        result = _value(model, node, constants, shapes)
        if result is None:
            kept.append(node)
            continue
        made = numpy_helper.from_array(np.array(result, order="C"), node.output[0])
        graph.initializer.append(made)
        constants[made.name] = made
    changed = [n.output[:] for n in kept] != [n.output[:] for n in graph.node]
    del graph.node[:]
    graph.node.extend(kept)
    return changed


def _value(
    model: ModelProto, node: NodeProto, constants: dict[str, Any], shapes: dict[str, Any]
) -> Any:
    """What a node computes, None where it is unknown or large."""
    results = {x.name for x in model.graph.output}
    if node.domain or len(node.output) != 1 or node.output[0] in results:
        return None
    if node.op_type in ("Shape", "Size"):
        dims = _dims(shapes.get(node.input[0]), constants.get(node.input[0]))
        if dims is None:
            return None
        given = {a.name: a.i for a in node.attribute}
        whole = np.asarray(dims, np.int64)
        return whole[given.get("start", 0) : given.get("end")] if node.op_type == "Shape" else (
            np.asarray(np.prod(whole), np.int64)
        )  # fmt: skip
    if node.op_type not in _SAME_SIZE | _OF_SHAPE:
        return None
    given_names = [name for name in node.input if name]
    if any(name not in constants for name in given_names):
        return None
    values = {name: _array(constants, name) for name in given_names}
    if any(value.size > MOST for value in values.values()):
        return None
    if node.op_type in _OF_SHAPE and np.prod(values[node.input[-1]].astype(np.float64)) > MOST:
        return None
    inputs = [helper.make_tensor_value_info(n, constants[n].data_type, None) for n in values]
    result = helper.make_empty_tensor_value_info(node.output[0])
    alone = helper.make_model(
        helper.make_graph([node], "one", inputs, [result]), opset_imports=model.opset_import
    )
    try:
        (made,) = ReferenceEvaluator(alone).run(None, values)
    except Exception:  # the evaluator has no such case: the node stays
        return None
    return made if np.asarray(made).size <= MOST else None


def _dims(kind: Any, constant: Any) -> list[int] | None:
    if constant is not None:
        return list(constant.dims)
    if kind is None or not kind.HasField("shape"):
        return None
    dims = kind.shape.dim
    return [d.dim_value for d in dims] if all(d.HasField("dim_value") for d in dims) else None


def _array(constants: dict[str, Any], name: str) -> Any:
    return numpy_helper.to_array(constants[name])


def _produced(nodes: Any) -> set[str]:
    return {name for node in nodes for name in node.output}


def _branch(node: NodeProto, taken: bool) -> list[NodeProto]:
    """The nodes of a branch, whose results have the names of the node's."""
    wanted = "then_branch" if taken else "else_branch"
    (graph,) = (a.g for a in node.attribute if a.name == wanted)
    names = dict(zip((o.name for o in graph.output), node.output, strict=True))
    return list(_renamed(graph, names, node.name))


def _renamed(graph: GraphProto, names: dict[str, str], place: str) -> Iterator[NodeProto]:
    inner = _produced(graph.node)
    for x in graph.initializer:
        yield helper.make_node("Constant", [], [names.get(x.name, x.name)], place, value=x)
    for node in graph.node:
        made = NodeProto()
        made.CopyFrom(node)
        made.name = place
        for listed in (made.input, made.output):
            changed = [names.get(name, name) if name in inner else name for name in listed]
            del listed[:]
            listed.extend(changed)
        yield made
    held = inner | {x.name for x in graph.initializer}
    for old, new in names.items():
        if old not in held:  # a value of the graph around it
            yield helper.make_node("Identity", [old], [new], place)
