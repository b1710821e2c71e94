# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is built for the benchmark, and that running it needs no MLIR."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neptune_mlir.bench.build import parse_variant
from neptune_mlir.cli.main import main
from neptune_mlir.errors import UsageError


def test_variants() -> None:
    assert parse_variant("wide=chunks:32;stages:3") == ("wide", {"chunks": "32", "stages": "3"})
    for text in ("wide", "=chunks:3", "wide=chunks"):
        with pytest.raises(UsageError, match="variant"):
            parse_variant(text)


def test_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    assert main(["bench", "build", folder, "--suite", "everything"]) == 2
    assert main(["bench", "run", folder]) == 2
    assert main(["bench", "run", folder, "--peers", "rival"]) == 2
    assert main(["bench", "run", folder, "--lengths", "many"]) == 2
    assert main(["bench", "run", folder, "--batches", "2,x"]) == 2
    assert main(["bench", "run", folder, "--rounds", "0"]) == 2
    assert main(["bench", "show", f"{folder}/nothing.json"]) == 1
    said = capsys.readouterr().err
    assert "no suite 'everything'" in said and "has no bundles" in said
    assert "no peer 'rival'" in said and "--lengths is 'many'" in said and "cannot read" in said
    assert "--batches is '2,x'" in said


def test_runs_without_mlir() -> None:
    code = """
import importlib.abc, importlib, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch_mlir", "mlir"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
for name in ("check", "clocks", "figures", "plot", "problem", "process", "report", "results", "run",
             "worker"):
    importlib.import_module(f"neptune_mlir.bench.{name}")
from neptune_mlir.cli.main import main
sys.exit(main(["bench", "run", "/nonexistent"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 2 and "has no bundles" in done.stderr
    assert "Traceback" not in done.stderr
