# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pass never runs a pass: it names those that it starts from, and the runner runs them."""

import ast
from pathlib import Path

import pytest

from neptune_mlir.errors import UsageError
from neptune_mlir.pipelines.runner import Step, complete, parse_pipeline
from neptune_mlir.transforms import registry

ROOT = Path(__file__).parents[3] / "neptune_mlir"
FILES = sorted(p for top in ("transforms", "codegen") for p in (ROOT / top).rglob("*.py"))

# Those that run others all the same; the list can only shrink. A trial asks what layouts a clone
# gets; a schedule is an interpreter of passes.
RUN_OTHERS = {"specialize_warps.py", "transform_neptune.py"}


def functions_of_passes() -> set[str]:
    return {registry.lookup(name).run.__name__ for name in registry.built_in()}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_no_pass_runs_a_pass(path):
    tree = ast.parse(path.read_text())
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    found = called & (functions_of_passes() - defined)
    named = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} & {"PassManager"}
    runs = bool(found | named) and path.name != "registry.py"
    assert runs == (path.name in RUN_OTHERS), sorted(found | named)


def test_what_a_pass_starts_from_runs_once():
    names = [s.name for s in complete(parse_pipeline("raise-linalg,defer,privatize,privatize"))]
    assert names == [
        "apply-patterns", "convert-elementwise-to-linalg", "split-concats", "raise-linalg",
        "defer", "widen-sums", "inline-maps", "rolling-update", "privatize", "privatize",
    ]  # fmt: skip
    assert [s.name for s in complete([Step("privatize")], done=["rolling-update"])] == ["privatize"]


def test_unknown_passes_are_left_to_the_runner():
    assert complete([Step("no-such-pass")]) == [Step("no-such-pass")]
    with pytest.raises(UsageError):
        registry.lookup("no-such-pass")
