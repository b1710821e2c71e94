# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands that stand in the pages as indented lines: the parsers know all that they say. (Blocks
in fences run in test_tutorial.py.)"""

import re
import shlex
from pathlib import Path

import pytest

from neptune_mlir.cli import main
from neptune_mlir.cli.opt_options import make_parser
from neptune_mlir.transforms import registry

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md")),
         ROOT / "README.md", ROOT / "CONTRIBUTING.md"]  # fmt: skip
LINE = re.compile(r"^ {4,}((?:neptune|neptune-opt) .*(?:\n.*)*?(?<!\\))$", re.M)
OURS = {"whole-powers"}  # passes of examples/plugin


def commands(page):
    """The commands of a page without what explains them: text behind several blanks, or a #."""
    for found in LINE.findall(page.read_text()):
        line = re.sub(r"\\\n\s*", "", found)
        if re.search(r"[;=]|\) \{", line.split(" ")[1]):  # a declaration in C
            continue
        yield re.split(r" {3,}| # | >", line)[0]


def test_there_are_commands():
    found = {page.name: list(commands(page)) for page in PAGES}
    assert "neptune inspect attention.bundle" in found["runtime.md"]
    assert sum(map(len, found.values())) > 30


@pytest.mark.parametrize("page", [p for p in PAGES if any(commands(p))],
                         ids=lambda p: f"{p.parent.name}-{p.stem}")  # fmt: skip
def test_parsers_know_what_is_said(page):
    for line in commands(page):
        tool, *arguments = shlex.split(line)
        if tool == "neptune-opt":
            _, unknown = make_parser().parse_known_args(arguments)
            names = {name.lstrip("-").partition("=")[0] for name in unknown if name[:2] == "--"}
            assert names <= {*registry.names(), *OURS}, line
            continue
        command, *rest = arguments
        parser = main.parser_of(command)
        complete = getattr(main.importlib.import_module(f"neptune_mlir.cli.{command}"),
                           "complete", list)  # fmt: skip
        try:
            _, unknown = parser.parse_known_args(complete(rest))
        except SystemExit:
            pytest.fail(line)
        assert not unknown, line
