# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of old operator sets in a newer one, where ONNX's converter of versions forgets what some
operators meant."""

from __future__ import annotations

from typing import Any

from onnx import ModelProto, NodeProto, helper, numpy_helper, version_converter

from neptune_mlir.errors import InputError

_PLACES = 11  # the operator set from which `Resize` says where samples lie


def converted(model: ModelProto, old: int, new: int) -> ModelProto:
    """A model of the operator set `old` in `new`. Raises InputError."""
    model = version_converter.convert_version(_of_rows(model), new)
    if old < _PLACES:
        held = {x.name: numpy_helper.to_array(x) for x in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                held[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            if node.op_type == "Resize":
                _say_places(node, held)
    return model


def _say_places(node: NodeProto, held: dict[str, Any]) -> None:
    """A `Resize` whose samples lie at multiples of the steps, as they all did: the nearest one is
    that before, of a larger image, or that behind, of a smaller one."""
    mode = next((a.s for a in node.attribute if a.name == "mode"), b"nearest")
    node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    if mode != b"nearest":
        return
    scales = held.get(node.input[2])
    larger = scales is not None and bool((scales >= 1).all())
    if not larger and (scales is None or (scales > 1).any()):
        raise InputError(
            "'Resize' to the nearest element, of an old operator set, by scales that are not known "
            "or are above and below 1", loc=node.name or node.output[0],
            hint="convert the model to operator set 11 or later",
        )  # fmt: skip
    node.attribute.append(helper.make_attribute("nearest_mode", "floor" if larger else "ceil"))


def _of_rows(model: ModelProto) -> ModelProto:
    """A model of an old operator set whose `Hardmax` are of two dimensions: of more, it took all
    from its axis on as one, and the converter of versions knows that of `Softmax` alone."""
    found = ModelProto()
    found.CopyFrom(model)
    nodes = list(found.graph.node)
    del found.graph.node[:]
    for k, node in enumerate(nodes):
        if node.op_type != "Hardmax" or node.domain not in ("", "ai.onnx"):
            found.graph.node.append(node)
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        (x,), (y,), own = node.input, node.output, f"hardmax{k}"
        for made in (
            helper.make_node("Shape", [x], [f"{own}.shape"], node.name),
            helper.make_node("Flatten", [x], [f"{own}.rows"], node.name, axis=axis),
            helper.make_node("Hardmax", [f"{own}.rows"], [f"{own}.hits"], node.name, axis=1),
            helper.make_node("Reshape", [f"{own}.hits", f"{own}.shape"], [y], node.name),
        ):
            found.graph.node.append(made)
    return found
