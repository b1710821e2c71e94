# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes of an ONNX model as the functions that ONNX itself defines them by."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from onnx import FunctionProto, ModelProto, NodeProto, defs, helper, inliner

from neptune_mlir.driver.onnx.folding import renamed

Name = tuple[str, str]  # of an operator: its domain, what it is called there


def having_one(model: ModelProto, names: Collection[str]) -> list[Name]:
    """The model's operators of these names, of any name where none is given, that ONNX defines."""
    present = {(n.domain, n.op_type) for n in model.graph.node}
    return [name for name in present if (not names or name[1] in names) and _is_defined(name)]


def _is_defined(name: Name) -> bool:
    known = defs.has(name[1], name[0]) and defs.get_schema(name[1], name[0])
    return bool(known) and (known.has_function or known.has_context_dependent_function)


def expanded(model: ModelProto, wanted: Collection[Name]) -> ModelProto | None:
    """The model with nodes of these operators as what defines them, each of which says where the
    node stood; None where ONNX's inliner stops. `model` is typed."""
    # The inliner asks for the type of every input, of initializers, too.
    typed = {x.name for x in (*model.graph.input, *model.graph.value_info)}
    model.graph.value_info.extend(
        helper.make_tensor_value_info(x.name, x.data_type, list(x.dims))
        for x in model.graph.initializer
        if x.name not in typed
    )
    versions = {o.domain: o.version for o in model.opset_import}
    for node in model.graph.node:  # nor does it know defaults of attributes
        if (node.domain, node.op_type) in wanted:
            given = {a.name for a in node.attribute}
            known = defs.get_schema(node.op_type, node.domain).attributes
            defaults = (a.default_value for a in known.values() if a.name not in given)
            node.attribute.extend(d for d in defaults if d.type)
    places = {output: n.name for n in model.graph.node for output in n.output}
    model = _with_gaps(model, wanted, versions)
    try:
        made = inliner.inline_selected_functions(model, [*wanted], False, True)
    except Exception:  # an operator of a set that it does not know
        return None
    place = "?"
    for node in reversed(made.graph.node):  # a definition's nodes come before its results
        place = next((places[o] for o in node.output if o in places), place)
        node.name = place
    return made


def _with_gaps(
    model: ModelProto, wanted: Collection[Name], versions: dict[str, int]
) -> ModelProto:  # fmt: skip
    """The model with those nodes replaced that leave out an input before another, at which ONNX's
    inliner stops, though the definition knows which inputs there are."""
    types = {x.name: x.type for x in (*model.graph.input, *model.graph.value_info)}
    nodes = list[NodeProto]()
    for node in model.graph.node:
        gaps = (node.domain, node.op_type) in wanted and "" in node.input
        known = all(name in types for name in node.input if name)
        nodes += (gaps and known and _of_inputs(node, types, versions)) or [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _of_inputs(
    node: NodeProto, types: dict[str, Any], versions: dict[str, int]
) -> list[NodeProto]:  # fmt: skip
    """A node's definition for the inputs that it has, under names of its own."""
    version = versions.get(node.domain, 1)
    schema = defs.get_schema(node.op_type, version, node.domain)
    if not schema.has_context_dependent_function:
        return []
    given = [types[name].SerializeToString() if name else b"" for name in node.input]
    body = FunctionProto.FromString(
        schema.get_context_dependent_function(node.SerializeToString(), given)
    )
    prefix = f"{next(filter(None, node.output))}:"
    names = {o: prefix + o for n in body.node for o in n.output if o}
    names |= {x: "" for x in body.input} | dict(zip(body.input, node.input, strict=False))
    names |= {x: y for x, y in zip(body.output, node.output, strict=False) if y}
    for inner in body.node:
        renamed(inner, names)
    return list(body.node)
