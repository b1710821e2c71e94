# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The floors of the tree: an import goes down or stays on its floor, and none goes in a circle.

Imports inside of functions count. Imports for type checkers alone (`if TYPE_CHECKING:`) do not: a
helper may name the class that owns it.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "neptune_mlir"

# bottom to top; a module belongs to the longest name that it starts with
FLOORS = (
    "errors", "version", "plugins", "child", "algebra", "targets", "runtime.drivers", "runtime",
    "ir", "dialects", "analysis", "transforms.registry", "transforms.fast_paths",
    "transforms.patterns", "transforms.math", "transforms.linalg",
    "transforms.fusion", "transforms.schedule", "transforms.tiling", "transforms.cpu",
    "transforms.gpu", "transforms.hopper", "transforms",
    "codegen.llvm_text", "codegen.llvm_child", "codegen.cpu", "codegen.gpu", "codegen.nvidia",
    "codegen.amd", "codegen.triton", "codegen",
    "pipelines", "passes", "driver", "frontend", "ops", "", "torch", "vllm", "jax", "zoo", "bench",
    "tune", "cli",
)  # fmt: skip

# Imports that still go up. The list can only shrink.
UPWARD: set[tuple[str, str]] = set()


def short(path: Path) -> str:
    """The module of a file, without the package's name."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix("__init__").removesuffix(".")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file (two seconds of work for all: not for whoever collects)."""
    return ast.parse(path.read_text())


FILES = {short(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}


def floor_of(module: str) -> int:
    fitting = [f for f in FLOORS if module == f or module.startswith(f + ".")]
    assert fitting, f"{module} is on no floor: say in FLOORS where it stands"
    return FLOORS.index(max(fitting, key=len))


STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """What a file's statements are: an import is in no expression, and most nodes are in one.
    (Without what type checkers alone read.)"""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, STATEMENTS):
            yield node
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                for other in node.orelse:
                    yield from (other, *statements(other))
            else:
                yield from statements(node)


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports."""
    for node in statements(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name == PACKAGE or name.startswith(PACKAGE + "."):
                inside = name[len(PACKAGE) + 1 :]
                yield inside if inside in FILES else inside.rpartition(".")[0]


@functools.cache
def edges() -> dict[str, list[str]]:
    """What each module imports of the others."""
    return {module: sorted(set(imports(path)) - {module}) for module, path in FILES.items()}


def test_imports_go_down():
    up = {(a, b) for a, found in edges().items() for b in found if floor_of(b) > floor_of(a)}
    assert not up - UPWARD, "these imports go up"
    assert not UPWARD - up, "these go up no longer: take them off the list"


# what runs pipelines of its users' making, or lists the passes that there are
RUNS_PIPELINES = {"cli.opt", "cli.opt_help", "cli.completion", "cli.doctor"}


def test_the_driver_is_the_only_door_to_pipelines():
    """Whatever compiles above the driver asks it: nobody else assembles passes or schedules."""
    inside = ("pipelines", "transforms.registry", "transforms.schedule.scripts")
    around = {
        a for a, found in edges().items() if floor_of(a) > floor_of("driver")
        for b in found if b.startswith(inside)
    }  # fmt: skip
    assert around == RUNS_PIPELINES


def test_no_circles():
    """Modules are taken away when all that they import is; what stays is in a circle or above."""
    left = dict(edges())
    while free := [m for m, found in left.items() if not any(b in left for b in found)]:
        for module in free:
            del left[module]
    assert not left, "these modules import each other, or others that do"


def test_folders_can_be_surveyed():
    for folder in {path.parent for path in FILES.values()}:
        files = list(folder.glob("*.py"))
        lines = sum(len(path.read_text().splitlines()) for path in files)
        assert len(files) <= 25 and lines <= 5000, f"{folder.name}: {len(files)}, {lines}"


@pytest.mark.parametrize("text", ["from neptune_mlir.cli import main", "import neptune_mlir.cli"])
def test_imports_are_seen_wherever_they_stand(tmp_path, text):
    path = tmp_path / "a.py"
    path.write_text(f"def f():\n    if True:\n        {text}\n")
    assert next(imports(path)).startswith("cli")
