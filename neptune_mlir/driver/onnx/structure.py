# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compiler has to know of an ONNX model before it runs: axes, shapes and lengths. A model
may compute them from its data, and then its refusal says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto, NodeProto, defs, helper

from neptune_mlir.errors import InputError

# operators whose results are as long as their data say
_DATA_LONG = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}
# operators that take and give what is no tensor of numbers
_NO_NUMBERS = ("Optional", "String", "Regex", "TfIdf", "ImageDecoder")
# what inputs are called that decide axes, shapes and lengths
_DECIDING = {
    "axes", "axis", "block_shape", "depth", "dft_length", "delta", "ends", "frame_length",
    "frame_step", "image_shape", "k", "limit", "num_mel_bins", "output_shape", "pads", "repeats",
    "scales", "shape", "size", "sizes", "split", "start", "starts", "steps", "training_mode",
}  # fmt: skip
_OWN = {("ConstantOfShape", "input"), ("TopK", "K"), ("Loop", "M"), ("Loop", "cond"),
        ("Resize", "roi")}  # fmt: skip


def check(model: ModelProto) -> None:
    """Raises InputError for an operator that nothing can lower: one whose results have no shape
    that a compiler can know, or no lowering that is right.

    Args:
        model: its nodes are named by where they stand, and what is constant is computed.
    """
    used = {name for node in model.graph.node for name in node.input}
    used |= {x.name for x in model.graph.output}
    for node in model.graph.node:
        if node.domain or used.isdisjoint(node.output):
            continue
        if node.op_type in _DATA_LONG:
            raise InputError(
                f"the length of what '{node.op_type}' gives depends on its data", loc=node.name,
                hint="leave it out of the model: run it behind, or choose by a mask (Where)",
            )  # fmt: skip
        if node.op_type == "Det":  # torch-mlir gives NaN for [[0, 1], [2, 3]]
            raise InputError(
                "'Det' has no lowering that chooses pivots", loc=node.name,
                hint="compute determinants before the model and make them inputs",
            )  # fmt: skip
        if node.op_type.startswith(_NO_NUMBERS):
            raise InputError(
                f"'{node.op_type}' is no operator of tensors of numbers", loc=node.name,
                hint="leave it out of the model: run it before or behind",
            )  # fmt: skip


def with_versions(model: ModelProto, version: int) -> None:
    """Let a model that has other domains' operators alone name ONNX's own set, too: the importer
    asks for it."""
    if all(entry.domain not in ("", "ai.onnx") for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", version))


def deciding(node: NodeProto) -> Iterator[tuple[str, str]]:
    """The inputs of a node that decide a structure: what they are called, and their values."""
    if not defs.has(node.op_type, node.domain):
        return
    known = [given.name for given in defs.get_schema(node.op_type, node.domain).inputs]
    for name, value in zip(known, node.input, strict=False):
        if value and (name in _DECIDING or (node.op_type, name) in _OWN):
            yield name, value


def with_reason(problem: InputError, model: ModelProto) -> InputError:
    """The refusal of a model that says which of a node's inputs has to be a constant."""
    held = {x.name for x in model.graph.initializer}
    held |= {o for n in model.graph.node if n.op_type == "Constant" for o in n.output}
    given = {x.name for x in model.graph.input}
    for node in model.graph.node:
        if f"{node.name}:" not in str(problem):
            continue
        for name, value in deciding(node):
            if value in held:
                continue
            how = f"the model's input '{value}'" if value in given else "computed by the model"
            return InputError(
                problem.message, loc=problem.loc,
                hint=f"'{name}' of '{node.op_type}' is {how}: make it a constant (an initializer)",
            )  # fmt: skip
    return problem
