# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The house rules that a machine can check."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHON_FILES = sorted(p for top in ("neptune_mlir", "test") for p in (ROOT / top).rglob("*.py"))


def tool(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff():
    tool("ruff", "check", "--no-cache", ".")


def test_types():
    tool("mypy")  # its cache is in the checkout: the second run takes a second


def test_file_skeletons():
    for path in PYTHON_FILES:
        lines = path.read_text().splitlines()
        assert lines[0] == "# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception", path
        code = [line for line in lines if not line.startswith("#")]
        assert code[0].startswith('"""'), f"{path}: a module docstring comes first"
        assert len(lines) <= 600, path


def test_only_bindings_names_the_mlir_package():
    naming = re.compile(r"^\s*(?:import|from) (?:torch_mlir|mlir)\b|[\"']torch_mlir[.\"']", re.M)
    for path in PYTHON_FILES:
        if path.name != "bindings.py" and path.is_relative_to(ROOT / "neptune_mlir"):
            found = naming.search(path.read_text())
            assert found is None, f"{path}: {found[0] if found else ''}"
