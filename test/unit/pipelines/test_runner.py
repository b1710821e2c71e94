# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelines as text, and running them."""

import pytest

from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import UsageError
from neptune_mlir.pipelines.runner import Step, parse_pipeline, run


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        ("cse", [Step("cse")]),
        ("builtin.module(cse, canonicalize)", [Step("cse"), Step("canonicalize")]),
        ("privatize{chunks=4},cse", [Step("privatize", "chunks=4"), Step("cse")]),
        ("func.func(cse,canonicalize{top-down=false}),tile",
         [Step("func.func(cse,canonicalize{top-down=false})"), Step("tile")]),
    ],
)  # fmt: skip
def test_parse_pipeline(text, steps):
    assert parse_pipeline(text) == steps


@pytest.mark.parametrize("text", ["cse)", "func.func(cse", "tile{rows=4"])
def test_unbalanced_brackets(text):
    with pytest.raises(UsageError, match="brackets"):
        parse_pipeline(text)


def module():
    return parse("func.func @f(%x: i32) -> i32 {\n  return %x : i32\n}")


def test_observer_sees_every_step_until_the_stop():
    seen = []
    run(
        module(),
        parse_pipeline("cse,llvm-request-c-wrappers,canonicalize,symbol-dce"),
        stop_after="canonicalize",
        observe=lambda step, m: seen.append(str(step)),
    )
    assert seen == ["cse", "llvm-request-c-wrappers", "canonicalize"]


def test_nothing_runs_when_a_later_step_is_unknown():
    seen = []
    with pytest.raises(UsageError, match="unknown pass 'no-such'"):
        run(module(), parse_pipeline("cse,no-such"), observe=lambda s, m: seen.append(s))
    assert not seen
