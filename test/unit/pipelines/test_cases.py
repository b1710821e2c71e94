# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images for some calls: what they carry of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neptune_mlir.pipelines import cases
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Argument, Launch, Plan

PLAN = Plan("f", (Argument("tensor", "f16", (None,), "x"),), (), (), (Launch("f_0", (8,), ()),), ())
OTHER = replace(PLAN, launches=(Launch("f_0", (16,), ()),))
LONG = ["le", 100, ["dim", 0, 0]]


def bundle(code, plan=PLAN, unit=16):
    image = {"target": "sm_90a", "offset": 0, "size": len(code), "kernels": {}}
    return Bundle("sm_90a", plan, code, {"images": [image], "alignment": [["argument", 0, unit]]})


@pytest.mark.parametrize(
    ("plan", "unit", "own"),
    [
        (PLAN, 16, set()),
        (OTHER, 16, {"plan"}),
        (PLAN, 8, {"alignment"}),
        (OTHER, 8, {"plan", "alignment"}),
    ],
)
def test_an_image_has_what_differs(plan, unit, own):
    base = bundle(b"base")
    joined = Bundle.from_bytes(cases.add(base, bundle(b"variant", plan, unit), LONG).to_bytes())
    first, second = joined.facts["images"]
    assert first == base.facts["images"][0]
    assert set(second) == {*first, "when", *own}
    assert (second["when"], joined.plan_of(second)) == (LONG, plan)
    assert second.get("alignment", joined.facts["alignment"]) == [["argument", 0, unit]]
    start = second["offset"]
    assert joined.code[start : start + second["size"]] == b"variant"
