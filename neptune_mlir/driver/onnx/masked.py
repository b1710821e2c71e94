# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of ONNX tensors that one value replaces where a condition holds, as a selection.

Exporters write `x[x < 0] = 0` as a scatter to the positions where the condition is not zero, of as
many copies of the value as there are. The number of these depends on data; a selection's does not.
"""

from __future__ import annotations

from math import prod

from onnx import ModelProto, NodeProto, TensorProto, helper

Shapes = dict[str, tuple[int, list[int | None]]]  # element types and extents (None: not known)


def selected(model: ModelProto, types: Shapes) -> ModelProto:
    """The model with such scatters as selections, and without what these made alone."""
    makers = {output: node for node in model.graph.node for output in node.output}
    nodes, changed = list[NodeProto](), False
    for node in model.graph.node:
        chosen = _selection(node, makers, types) if node.op_type == "ScatterND" else []
        changed |= bool(chosen)
        nodes += chosen or [node]
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(_needed(nodes, {x.name for x in model.graph.output}))
    return model


def _selection(node: NodeProto, makers: dict[str, NodeProto], types: Shapes) -> list[NodeProto]:
    """The nodes of a selection in place of a scatter; none where it is another one."""
    data, positions, updates = node.input
    condition = _condition(positions, makers)
    if any(a.name == "reduction" and a.s != b"none" for a in node.attribute):
        return []
    if condition not in types or data not in types:
        return []
    kind, where = types[condition]
    free = len(types[data][1]) - len(where)  # dimensions of what one position says
    value = _value(updates, makers, types, free)
    if value is None or not where:
        return []
    made, chosen = list[NodeProto](), condition

    def op(name: str, *inputs: str, **attributes: object) -> str:
        result = f"{node.output[0]}:{name}"
        made.append(helper.make_node(name, inputs, [result], node.name, **attributes))
        return result

    if kind != TensorProto.BOOL:
        chosen = op("Cast", chosen, to=TensorProto.BOOL)
    if free:
        last = range(len(where), len(where) + free)
        axes = helper.make_tensor("", TensorProto.INT64, [free], last)
        chosen = op("Unsqueeze", chosen, op("Constant", value=axes))
    made.append(helper.make_node("Where", [chosen, value, data], node.output, node.name))
    return made


def _condition(positions: str, makers: dict[str, NodeProto]) -> str:
    """The condition that holds at these positions, and nowhere else; "" of others."""
    turned = makers.get(positions)
    if turned is None or turned.op_type != "Transpose":
        return ""
    order = [list(a.ints) for a in turned.attribute if a.name == "perm"]
    found = makers.get(turned.input[0])
    known = order in ([], [[1, 0]]) and found is not None and found.op_type == "NonZero"
    return found.input[0] if known and found is not None else ""


def _value(updates: str, makers: dict[str, NodeProto], types: Shapes, free: int) -> str | None:
    """What each position gets, where it is the same: the value that copies were made of."""
    name = updates
    while (node := makers.get(name)) is not None and node.op_type in ("Expand", "Reshape"):
        directly = name == updates and node.op_type == "Expand"
        name = node.input[0]
        shape = types[name][1] if name in types else [None]
        if None in shape:
            continue
        if prod(n or 0 for n in shape) == 1:
            return name if len(shape) <= free + 1 else None
        if directly and (len(shape) <= free or (len(shape) == free + 1 and shape[0] == 1)):
            return name
    return None


def _needed(nodes: list[NodeProto], wanted: set[str]) -> list[NodeProto]:
    """Those of the nodes that something needs. (The copies of a value assert how many they are.)"""
    kept: list[NodeProto] = []
    for node in reversed(nodes):
        if wanted & set(node.output):
            wanted |= set(node.input) | _read_inside(node)
            kept.insert(0, node)
    return kept


def _read_inside(node: NodeProto) -> set[str]:
    """The values that a node's subgraphs read."""
    graphs = [g for a in node.attribute for g in (a.g, *a.graphs)]
    inner = [n for g in graphs for n in g.node]
    own = {x.name for g in graphs for x in g.output}
    return own | {name for n in inner for name in (*n.input, *_read_inside(n))}
