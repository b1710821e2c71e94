# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions on an NVIDIA GPU: all values of 16-bit types, dense samples of f32, within
the bounds that docs/numerics.md states (run with -m gpu; -s shows the worst errors as a table)."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir.runtime.gpu import GpuExecutable
from support import math_functions
from support.gpu_programs import bundle

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_functions(kind):
    count = 400_000 if kind == "f32" else 0  # of samples; 16-bit types have all their values
    operands = math_functions.operands(kind, count)
    given = [torch.from_numpy(v).to("cuda", TYPES[kind]) for v in operands]
    results = GpuExecutable(bundle(f"math-{kind}"))(*given)
    wrong = []
    print(f"\n| function ({kind}) | worst, ulp | bound | at |\n|---|---|---|---|")
    for f, result in zip(math_functions.FUNCTIONS, results, strict=True):
        got = result.float().cpu().numpy()
        error = math_functions.errors(f, got, *operands, kind, flushes=f.flushes)
        k, bound = int(np.argmax(error)), math_functions.bound(f, kind, gpu=True)
        place = ", ".join(f"{v[k]:.9g}" for v in operands[: f.operands])
        print(f"| {f.name} | {error[k]:.3f} | {bound:.3g} | {place} |")
        if error[k] > bound:
            wrong.append(f"{f.name}({place}) = {got[k]:.9g}: {error[k]:.3g} ulp, over {bound:.3g}")
    assert not wrong, "\n".join(wrong)
