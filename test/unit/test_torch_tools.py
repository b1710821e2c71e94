# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tools that try whole PyTorch programs: smaller problems, processes that die, comparisons."""

import os
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import torch_children  # noqa: E402
import torch_problems  # noqa: E402

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.norm = torch.nn.GroupNorm(groups, width)
        self.kept = 1000

    def forward(self, x):
        return self.norm(x)

batch_size, width = 512, 768
batch_size = 512
groups = 8

def get_inputs():
    return [torch.rand(batch_size, width, 4096)]

def get_init_inputs():
    return [width, groups]
"""


def test_children_that_die_or_hang_cost_their_task_only(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(torch_children, "PRELOADED", [])
    tasks = [
        ("a", os.abort, ()), ("b", time.sleep, (60,)), ("c", int, ("no",)),
        ("d", dict, ([("status", "right")],)),
    ]  # fmt: skip
    rows = torch_children.report(torch_children.run_all(tasks, 3), tmp_path / "rows")
    assert [row["status"] for row in rows] == ["died", "timeout", "failed", "right"]
    assert len((tmp_path / "rows").read_text().splitlines()) == 4
    assert "ValueError: invalid" in capfd.readouterr().out


def test_problems_get_smaller_until_torch_takes_them(tmp_path):
    """768 becomes 12 of 16 at most, which 8 does not divide; 24 of 32 it does."""
    path = tmp_path / "norm.py"
    path.write_text(PROBLEM)
    model, inputs, largest = torch_problems.load(path, 16)
    assert largest == 32 and model.kept == 1000 and not model.training
    assert [tuple(x.shape) for x in inputs] == [(4, 24, 32)]


def test_differences():
    nan, inf = torch.nan, torch.inf
    wanted = torch.tensor([1.0, nan, inf], dtype=torch.float64)
    assert torch_problems.difference(wanted.float(), wanted) is None
    assert "shape" in torch_problems.difference(torch.zeros(2), wanted)
    assert "NaN" in torch_problems.difference(torch.tensor([1.0, nan, nan]), wanted)
    assert "1.00e-01" in torch_problems.difference(torch.tensor([1.1, nan, inf]), wanted)
    assert torch_problems.difference(torch.tensor([2]), torch.tensor([3])) == "other integers"
