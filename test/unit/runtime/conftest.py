# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bundle of `support/chips/axpy.py` on the fake driver of each maker."""

from __future__ import annotations

import sys

import pytest

from neptune_mlir.runtime.gpu import GpuExecutable
from support.chips.axpy import CHIPS, DEVICES, KERNELS, OWN_SHARED, bundle_for
from support.chips.fake_drivers import FakeGpu
from support.chips.fake_gpu import FakeArray


@pytest.fixture
def no_libraries(monkeypatch):
    """Neither torch nor CuPy is imported, and no array is left over."""
    for name in ("torch", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    FakeArray.living.clear()


@pytest.fixture(params=CHIPS)
def maker(request):
    return request.param


@pytest.fixture
def gpu(maker):
    made = FakeGpu(KERNELS, maker, DEVICES[maker], OWN_SHARED[maker])
    yield made
    assert not made.failures and not made.inside and not made.events


@pytest.fixture
def run(gpu, maker):
    return GpuExecutable(bundle_for(*CHIPS[maker]).to_bytes(), gpu.driver)
