# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores and rows that are hard on exponentials, on an NVIDIA GPU (run with -m gpu)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from neptune_mlir.runtime.gpu import GpuExecutable
from support import gpu_hostile as hostile
from support.gpu_programs import bundle

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
TILE = 128  # about as many keys as kernels take at a time


@cache
def kernel(name):
    return GpuExecutable(bundle(name))


def on_device(array):
    return torch.from_numpy(array).cuda()


@pytest.mark.parametrize("heads", [1, 16])  # launches of few and of many programs
@pytest.mark.parametrize(("rows", "keys"), [(33, 129), (512, 512), (300, 1100)])
@pytest.mark.parametrize("name", ["f16-64", "f16-64-causal", "f16-128", "f32-64"])
def test_masks_that_are_added(name, rows, keys, heads):
    dtype, head, *causal = name.split("-")
    kind = np.float16 if dtype == "f16" else np.float32
    masks = hostile.masks(rows, keys, TILE)
    rng = np.random.default_rng(rows)
    shape = (heads, rows, int(head)), *[(heads, keys, int(head))] * 2
    for what, mask in masks.items():
        q, k, v = (rng.standard_normal((1, *s)).astype(kind) for s in shape)
        given = [on_device(np.ascontiguousarray(x)) for x in (q, k, v, mask[None])]
        found = [x.cpu().numpy()[0, :2] for x in kernel(f"mask-{name}")(*given)]
        with np.errstate(all="ignore"):
            want, unfused = (
                hostile.attention_unfused(q[0, :2], k[0, :2], v[0, :2], mask, t, bool(causal))
                for t in (np.float64, np.float32)
            )
        units = (hostile.UNITS[dtype], hostile.UNITS["f32"])
        for x, y, z, unit in zip(found, want, unfused, units, strict=True):
            hostile.check(x, y, z, unit, what)


@pytest.mark.parametrize("columns", [200, 1000, 20000])
@pytest.mark.parametrize("name", hostile.UNFUSED)
def test_rows(name, columns):
    for kind, x in hostile.rows(64, columns, TILE).items():
        if name == "sum_of_exponentials" and kind in ("-inf all", "-inf some rows"):
            continue  # a row that sees nothing sums to 0 (docs/numerics.md)
        found = kernel(name)(on_device(x)).cpu().numpy()
        with np.errstate(all="ignore"):
            want, unfused = (hostile.UNFUSED[name](x.astype(t)) for t in (np.float64, np.float32))
        hostile.check(found, want, unfused, hostile.UNITS["f32"], kind)
