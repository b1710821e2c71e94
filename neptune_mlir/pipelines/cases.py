# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for some calls beside those for any, chosen at launch.

* Long streams: the `tile` pass notes from which lengths on other sizes are better
  (`neptune.longer`), where the length is an extent of an argument.
* Few programs: where a launch would leave half of the chip idle, smaller tiles make more.

The program is made once more for each case, and the bundle holds these images with a condition
(`when`) that the runtime looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir import bindings
from neptune_mlir.analysis.tiles import owner
from neptune_mlir.dialects.nests import DYNAMIC
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Expression, Plan
from neptune_mlir.transforms.program import streams


@dataclass(frozen=True)
class Case:
    """Some calls of a program.

    Attributes:
        knob: of the schedule, for kernels that suit these calls.
        condition: which calls they are, an expression of the launch plan.
    """

    knob: str
    condition: Expression


def longer(module: Any) -> tuple[Case, ...]:
    """Calls with long streams, as the `tile` pass noted of a fused program that has one."""
    found = streams(module)
    if len(found) != 1 or "neptune.longer" not in found[0].operation.attributes:
        return ()
    (stream,) = found
    dynamic = [k for k, extent in enumerate(stream.domain) if extent == DYNAMIC]
    place = _argument_of(list(stream.extents)[dynamic.index(stream.axis.value)])
    if place is None:
        return ()
    lengths = bindings.ir.DenseI64ArrayAttr(stream.operation.attributes["neptune.longer"])
    return tuple(Case(f"length:{n}", ["le", n, ["dim", *place]]) for n in lengths)


def few(plan: Plan, knob: str, parallel: int) -> tuple[Case, ...]:
    """Calls whose one launch has programs for half of what runs in `parallel`, or fewer."""
    if not knob or len(plan.launches) != 1:
        return ()
    programs: Expression = 2
    for extent in plan.launches[0].grid:
        programs = ["mul", programs, extent]
    return (Case(knob, ["le", programs, parallel]),)


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
    own: dict[str, Any] = {}  # where it differs
    if variant.plan != bundle.plan:
        own["plan"] = variant.plan.to_json()
    if variant.facts["alignment"] != bundle.facts["alignment"]:
        own["alignment"] = variant.facts["alignment"]
    images = [
        {**own, **image, "when": condition, "offset": image["offset"] + len(bundle.code)}
        for image in variant.facts["images"]
    ]
    facts = {**bundle.facts, "images": [*bundle.facts["images"], *images]}
    return Bundle(bundle.target, bundle.plan, bundle.code + variant.code, facts)
