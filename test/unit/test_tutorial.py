# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code blocks of the tutorials and the README run in order, and print what is shown.

    ```python             runs in one namespace for the whole document
    ```sh [nvidia]        commands of ours; `nvidia`: left out where there is no assembler
    ```mlir FILE          is written to FILE
    ```text               lines that the block before it has printed, in this order
"""

import re
import shlex
from pathlib import Path

import pytest

from neptune_mlir.cli import main, opt
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.errors import ToolError

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+) ?(.*)\n((?:(?!^```).*\n)*)```$", re.M)


def has_ptxas():
    try:
        ptxas.find_ptxas()
    except ToolError:
        return False
    return True


def run_commands(text, capsys):
    for line in text.splitlines():
        tool, *arguments = shlex.split(line)
        entry = {"neptune": main.main, "neptune-opt": opt.main}[tool]
        assert entry(arguments) == 0, (line, capsys.readouterr().err)


@pytest.mark.parametrize(
    "name",
    ["tutorial", "numerics", "embedding", "operators", "researchers",
     *(pytest.param(name, marks=pytest.mark.nightly)
       for name in ("pytorch", "serving", "gradients", "jax", "notation"))],
)  # fmt: skip
def test_every_block_runs(name, tmp_path, monkeypatch, capsys):
    if name in ("pytorch", "jax", "serving"):
        pytest.importorskip("jax" if name == "jax" else "torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    blocks = BLOCK.findall((DOCS / f"{name}.md").read_text())
    assert blocks
    namespace = {"__name__": name}
    printed, skipped = None, False
    for kind, info, text in blocks:
        if kind == "text" and skipped:
            continue
        skipped = info == "nvidia" and not has_ptxas()
        if skipped:
            continue
        if kind == "text":
            assert printed is not None, "nothing ran before this output"
            found = iter(printed.splitlines())
            for line in text.splitlines():
                assert any(line.rstrip() == other.rstrip() for other in found), (
                    f"{line!r} is not, or not there, in:\n{printed}"
                )
            continue
        if kind == "mlir":
            Path(info).write_text(text)
        elif kind == "python":
            exec(compile(text, f"{name}.md", "exec"), namespace)
        elif kind == "sh":
            run_commands(text, capsys)
        else:
            raise AssertionError(f"unknown block '{kind}'")
        printed = capsys.readouterr().out


def in_order(lines, output):
    """Is each line the start of a line of the output, all in order?"""
    found = iter(output.splitlines())
    return all(any(other.startswith(line) for other in found) for line in lines)


def test_readme_shows_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(DOCS.parent)
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    text = (DOCS.parent / "README.md").read_text()
    shown = re.search(r"^    function attention.*\n(?:    .*\n)+", text, re.M)[0]
    assert main.main(["explain", "examples/attention.mlir"]) == 0
    assert in_order([line[4:] for line in shown.splitlines()], capsys.readouterr().out)
    (code,) = (block for kind, _, block in BLOCK.findall(text) if kind == "python")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "repair:" in capsys.readouterr().out
