# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of torch whose lengths calls know, lowered with views that merge such dimensions in two
steps.

torch-mlir takes a view of ?x?x32 as ?x32 to have a 1 among its first dimensions, and of ?x?x4x8 as
?x32, too. So it sees such dimensions as one already, which is a view that it knows.
"""

from __future__ import annotations

import re

from neptune_mlir.driver import torch_mlir_opt
from neptune_mlir.errors import InputError

TO_LINALG = "torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true}"
_TYPE = r"!torch\.vtensor<\[([^\]]*)\],(\w+)>"
_LEFT = re.compile(r'^\s*%[^=]* = "?(torch\.[\w.]+)', re.M)
_VIEW = re.compile(
    rf"^( *)(%\S+) = torch\.aten\.view (%\S+), (%\S+) : {_TYPE}, !torch\.list<int> -> {_TYPE}", re.M
)


def to_linalg(
    program: str | bytes, to_torch: str, name: str, *, lengths: bool, calls: bool = False
) -> str:  # fmt: skip
    """A module of torch or ONNX as text of linalg on tensors. Raises as `torch_mlir_opt.lower`.

    Args:
        to_torch: the passes that make the dialect `torch` of it.
        lengths: whether calls know some of its extents.
        calls: whether functions of it call others, and are to do so as linalg.
    """
    last = torch_mlir_opt.unverified(TO_LINALG) if calls else TO_LINALG
    if not lengths:
        text = torch_mlir_opt.lower(program, f"{to_torch},{last}", name, located=True)
    else:
        text = torch_mlir_opt.lower(program, to_torch, name, located=True)
        text = torch_mlir_opt.lower(_VIEW.sub(_in_steps, text), last, name, located=True)
    if calls and (left := _LEFT.search(text)):
        raise InputError(f"torch-mlir cannot lower '{left[1]}' as it is used here")
    return text


def _in_steps(view: re.Match[str]) -> str:
    indent, result, source, sizes, given, kind, made, _ = view.groups()
    extents = given.split(",")
    dynamic = [k for k, extent in enumerate(extents) if extent == "?"]
    if not 0 < made.split(",").count("?") < len(dynamic):
        return view[0]
    first, last = dynamic[0], dynamic[-1]
    merged = ",".join([*extents[:first], "?", *extents[last + 1 :]])
    old, one, new = (f"!torch.vtensor<[{shape}],{kind}>" for shape in (given, merged, made))
    value = f"%merged_{result[1:]}"
    return "\n".join(
        indent + line for line in (
            f"{value}_first = torch.constant.int {first}",
            f"{value}_last = torch.constant.int {last}",
            f"{value} = torch.aten.flatten.using_ints {source}, {value}_first, {value}_last : "
            f"{old}, !torch.int, !torch.int -> {one}",
            f"{result} = torch.aten.view {value}, {sizes} : {one}, !torch.list<int> -> {new}",
        )
    )  # fmt: skip
