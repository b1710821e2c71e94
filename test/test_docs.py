# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every pass has a lit test of its own and a place in the reference, which is up to date."""

import subprocess
import sys
from pathlib import Path

import pytest

from neptune_mlir.transforms import registry

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", registry.built_in())
def test_every_pass_has_a_lit_test(name):
    tests = [p for p in (ROOT / "test" / "lit").rglob(f"{name}.*") if p.parent.name != "Output"]
    assert tests, f"write test/lit/transforms/{name}.mlir"


def test_reference_is_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "gen_docs.py"), "--check"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
