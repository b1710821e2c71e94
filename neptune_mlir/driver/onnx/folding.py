# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes that exporters compute in an ONNX model, where its inputs' shapes say what they are.

    Shape(x), Gather, Mul, Concat, Reshape(x, ...)     ->     Reshape(x, constant)
    If(constant) {...} {...}                           ->     the nodes of a branch
    If(data) {...} {...}                               ->     both, and Where
    Loop(constant, ...) {...}, Scan {...}              ->     the nodes of each step

Without the first a Reshape has a result of unknown rank, and so has all that follows. Regions have
no conversion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

MOST = 16  # elements of a folded result: a shape, never a table of positions or weights
MOST_STEPS, MOST_NODES = 256, 10_000  # of a loop that is written out
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


# ---- regions -------------------------------------------------------------------------------------


def straightened(model: ModelProto) -> ModelProto:
    """A typed and folded model with branches selected and loops of known steps written out, where
    that can be; consumed."""
    for turn in range(ROUNDS):  # for what stands in one another
        writer = _Straight(model, turn)
        for node in model.graph.node:
            known = not node.domain and node.op_type in _REGIONS
            if not (known and _REGIONS[node.op_type](writer, node)):
                writer.nodes.append(node)
        if not writer.changed:
            break
        del model.graph.node[:]
        model.graph.node.extend(writer.nodes)
        model = folded(shape_inference.infer_shapes(model, data_prop=True))
    return model


class _Straight:
    """New nodes, and what a model's constants and shapes are."""

    def __init__(self, model: ModelProto, turn: int):
        graph = model.graph
        self.constants = {x.name: x for x in graph.initializer}
        self.shapes = {x.name: x.type.tensor_type for x in (*graph.input, *graph.value_info)}
        self.opset = model.opset_import
        self.nodes: list[NodeProto] = []
        self.changed = False
        self._turn, self._count = turn, 0

    def _name(self, place: str) -> str:
        self._count += 1
        return f"{place}/{self._turn}.{self._count}"

    def op(self, kind: str, inputs: Any, place: str, result: str = "", **attributes: Any) -> str:
        result = result or self._name(place)
        self.nodes.append(helper.make_node(kind, inputs, [result], place, **attributes))
        return result

    def constant(self, value: Any, dtype: Any, place: str) -> str:
        held = numpy_helper.from_array(np.asarray(value, dtype))
        return self.op("Constant", [], place, value=held)

    def inline(self, graph: GraphProto, given: list[str], node: NodeProto) -> list[str]:
        """The nodes of a region, under names of their own; names of its results."""
        prefix = f"{self._name(node.name)}:"
        names = dict(zip((x.name for x in graph.input), given, strict=False))
        held = [x.name for x in graph.initializer]
        names |= {n: prefix + n for n in (*held, *_produced(graph.node)) if n}
        for x in graph.initializer:
            self.op("Constant", [], node.name, names[x.name], value=x)
        for inner in graph.node:
            made = NodeProto()
            made.CopyFrom(inner)
            made.name = node.name
            renamed(made, names)
            self.nodes.append(made)
        self.changed = True
        return [names.get(x.name, x.name) for x in graph.output]

    def same_shape(self, first: GraphProto, second: GraphProto) -> bool:
        """Whether two regions give tensors of the same extents, as far as they say."""
        for a, b in zip(first.output, second.output, strict=True):
            kinds = [x.type.tensor_type for x in (a, b)]
            if not all(k.HasField("shape") for k in kinds):
                return False
            dims = [[d.dim_value or d.dim_param or None for d in k.shape.dim] for k in kinds]
            if dims[0] != dims[1] or None in dims[0]:
                return False
        return True

    def number(self, name: str) -> Any:
        """What a constant of one element is, None for what is none."""
        if name not in self.constants:
            return None
        held = _array(self.constants, name)
        return held.item() if held.size == 1 else None


def renamed(node: NodeProto, names: dict[str, str]) -> None:
    """A node reads and gives values of other names, within its subgraphs, too."""
    for listed in (node.input, node.output):
        changed = [names.get(name, name) for name in listed]
        del listed[:]
        listed.extend(changed)
    for a in node.attribute:
        if a.HasField("g"):
            hidden = {x.name for x in (*a.g.input, *a.g.initializer)} | _produced(a.g.node)
            own = {old: new for old, new in names.items() if old not in hidden}
            for inner in a.g.node:
                renamed(inner, own)
            for x in a.g.output:
                x.name = own.get(x.name, x.name)


def _graph(node: NodeProto, name: str) -> GraphProto:
    return next(a.g for a in node.attribute if a.name == name)


def _both(w: _Straight, node: NodeProto) -> bool:
    """Both branches, and a choice of their results. Not where these have other extents."""
    first, second = _graph(node, "then_branch"), _graph(node, "else_branch")
    if node.input[0] in w.constants or not w.same_shape(first, second):
        return False
    results = [w.inline(g, [], node) for g in (first, second)]
    shape = w.constant([], np.int64, node.name)
    test = w.op("Reshape", [node.input[0], shape], node.name)
    for name, a, b in zip(node.output, *results, strict=True):
        if name:
            w.op("Where", [test, a, b], node.name, name)
    return True


def _loop(w: _Straight, node: NodeProto) -> bool:
    """Each step of a known number; behind one whose condition does not hold values stay. Not where
    data say how many steps collect something."""
    body, place = _graph(node, "body"), node.name
    steps = w.number(node.input[0]) if node.input[0] else None
    carried, going = list(node.input[2:]), node.input[1] if len(node.input) > 1 else ""
    count = len(carried)
    if steps is None or not 0 < steps <= MOST_STEPS or steps * len(body.node) > MOST_NODES:
        return False
    always = _stays_true(body) and (not going or w.number(going) is True)
    if not always and len(body.output) > count + 1:
        return False
    going = going or w.constant(True, np.bool_, place)
    collected: list[list[str]] = [[] for _ in body.output[count + 1 :]]
    for step in range(steps):
        number = w.constant(step, np.int64, place)
        test, *made = w.inline(body, [number, going, *carried], node)
        if always:
            carried = made[:count]
        else:
            carried = [w.op("Where", [going, new, old], place)
                       for new, old in zip(made[:count], carried, strict=True)]  # fmt: skip
            going = w.op("And", [going, test], place)
        for parts, part in zip(collected, made[count:], strict=True):
            parts.append(w.op("Unsqueeze", [part, w.constant([0], np.int64, place)], place))
    _hand_out(w, node, carried, collected, [0] * len(collected))
    return True


def _stays_true(body: GraphProto) -> bool:
    """Whether a loop goes on behind each step: its condition is what it was, or a constant."""
    test = body.output[0].name
    for node in body.node:
        if test in node.output:
            if node.op_type == "Identity":
                test = node.input[0]
                break
            held = node.op_type == "Constant" and helper.get_attribute_value(node.attribute[0])
            return bool(held) and bool(numpy_helper.to_array(held).all())
    constants = {x.name: x for x in body.initializer}
    return test == body.input[1].name or (
        test in constants and bool(_array(constants, test).all())
    )


def _scan(w: _Straight, node: NodeProto) -> bool:
    """Each step along inputs of known length."""
    a = {x.name: helper.get_attribute_value(x) for x in node.attribute}
    body, place, given = a["body"], node.name, a["num_scan_inputs"]
    carried, scanned = list(node.input[:-given]), list(node.input[-given:])
    results = len(body.output) - len(carried)
    axes = list(a.get("scan_input_axes", [0] * given))
    ways = list(a.get("scan_input_directions", [0] * given))
    dims = _dims(w.shapes.get(scanned[0]), w.constants.get(scanned[0]))
    steps = dims[axes[0]] if dims else 0
    if not 0 < steps <= MOST_STEPS or steps * len(body.node) > MOST_NODES:
        return False
    collected: list[list[str]] = [[] for _ in range(results)]
    out_axes = list(a.get("scan_output_axes", [0] * results))
    for step in range(steps):
        here = [w.op("Gather", [x, w.constant(steps - 1 - step if back else step, np.int64, place)],
                     place, axis=axis)
                for x, axis, back in zip(scanned, axes, ways, strict=True)]  # fmt: skip
        made = w.inline(body, [*carried, *here], node)
        carried = made[: len(carried)]
        for parts, part, axis in zip(collected, made[len(carried) :], out_axes, strict=True):
            parts.append(w.op("Unsqueeze", [part, w.constant([axis], np.int64, place)], place))
    for parts, back in zip(collected, a.get("scan_output_directions", [0] * results), strict=True):
        if back:
            parts.reverse()
    _hand_out(w, node, carried, collected, out_axes)
    return True


def _hand_out(
    w: _Straight, node: NodeProto, carried: list[str], collected: list[list[str]], axes: list[int]
) -> None:  # fmt: skip
    """What a loop carried, and what it collected along axes, under the names of its results."""
    for name, value in zip(node.output, carried, strict=False):
        if name:
            w.op("Identity", [value], node.name, name)
    for name, parts, axis in zip(node.output[len(carried) :], collected, axes, strict=False):
        if name:
            w.op("Concat", parts, node.name, name, axis=axis)


_REGIONS = {"If": _both, "Loop": _loop, "Scan": _scan}
