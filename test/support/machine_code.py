# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the machine code of an attention operator has to have on NVIDIA chips, and must not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from neptune_mlir.codegen.nvidia import ptxas

LOCAL = re.compile(r"\b(LDL|STL)\b")


def disassembly(bundle: Any, folder: Path) -> dict[str, str]:
    """Machine code by target, of all kernels for it."""
    tool = ptxas.find_ptxas().parent / "nvdisasm"
    if not tool.exists():
        pytest.skip("no nvdisasm here")
    found: dict[str, str] = {}
    for image in bundle.facts["images"]:
        path = folder / f"{image['target']}.cubin"
        path.write_bytes(bundle.code[image["offset"] : image["offset"] + image["size"]])
        done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True)
        found[image["target"]] = found.get(image["target"], "") + done.stdout
    return found


def check_operator(bundle: Any, folder: Path) -> None:
    """The instructions that matter, and nothing kept in local memory."""
    chunks = any("privatized into chunks" in remark for remark in bundle.facts["remarks"])
    moved = [remark for remark in bundle.facts["remarks"] if "moves its reference" in remark]
    assert not moved
    for target, code in disassembly(bundle, folder).items():
        assert not LOCAL.search(code), target
        if "HGMMA" in code:  # specialised warps: test_hopper.py has more
            assert target == "sm_90a" and "UTMALDG" in code
            # warps that keep their reference multiply alone when they cannot
            assert "VOTE.ALL" in code and "HMMA.16816.F32" in code
            continue
        assert chunks or "VOTE.ALL" in code, target  # of references; chunks of few rows have none
        for instruction in ("HMMA.16816.F32", "LDSM.16.M88", "LDSM.16.MT88", "LDGSTS"):
            assert instruction in code, (target, instruction)
