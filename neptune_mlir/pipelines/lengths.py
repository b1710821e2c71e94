# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for long streams beside those for any length, chosen at launch.

The `tile` pass notes from which lengths on other sizes are better (`neptune.longer`). Where the
length is an extent of an argument, the program is made once more for each, and the bundle holds
these images with a condition (`when`) that the runtime looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir import bindings
from neptune_mlir.analysis.tiles import owner
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.runtime.bundle import Bundle


@dataclass(frozen=True)
class Longer:
    """Streams of at least `length` points: extent `dim` of argument `argument`."""

    argument: int
    dim: int
    length: int

    @property
    def knob(self) -> str:
        """What makes the `tile` pass choose sizes for them."""
        return f"length:{self.length}"

    @property
    def condition(self) -> list[Any]:
        """For a launch plan."""
        return ["le", self.length, ["dim", self.argument, self.dim]]


def longer(module: Any) -> tuple[Longer, ...]:
    """What the `tile` pass noted of a fused program, if it has one stream to note it of."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "neptune.stream":
            found.append(op)
        return bindings.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if len(found) != 1 or "neptune.longer" not in found[0].attributes:
        return ()
    stream = found[0].opview
    dynamic = [k for k, extent in enumerate(stream.domain) if extent == DYNAMIC]
    place = _argument_of(list(stream.extents)[dynamic.index(stream.axis.value)])
    if place is None:
        return ()
    lengths = bindings.ir.DenseI64ArrayAttr(found[0].attributes["neptune.longer"])
    return tuple(Longer(*place, length) for length in lengths)


def _argument_of(extent: Any) -> tuple[int, int] | None:
    """The argument and the dimension that a run-time extent is of."""
    made = owner(extent)
    if made is None or made.name != "tensor.dim":
        return None
    array, number = made.operands
    dim = owner(number)
    if owner(array) is not None or dim is None or dim.name != "arith.constant":
        return None
    return array.arg_number, bindings.ir.IntegerAttr(dim.attributes["value"]).value


def add(bundle: Bundle, variant: Bundle, condition: Any) -> Bundle:
    """The bundle with the images of a variant of its program, each for calls that meet the
    condition (an expression of the launch plan); of several that do, the last one counts."""
    images = [
        {"plan": variant.plan.to_json(), "alignment": variant.facts["alignment"], **image,
         "when": condition, "offset": image["offset"] + len(bundle.code)}
        for image in variant.facts["images"]
    ]  # fmt: skip
    facts = {**bundle.facts, "images": [*bundle.facts["images"], *images]}
    return Bundle(bundle.target, bundle.plan, bundle.code + variant.code, facts)
