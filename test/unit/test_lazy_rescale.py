# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lazy rescale: references lag, results are exact, also joined from chunks."""

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.errors import ScheduleError
from neptune_mlir.pipelines import common, cpu, runner
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.runtime.cpu import CpuExecutable

PROGRAMS = {
    "attention": lambda: ops.attention(head_dim=16, causal=True, return_lse=True),
    "logsumexp": ops.logsumexp,
    "softmax": ops.softmax,
}


def compiled(program, chunks):
    module = program.module()
    split = [Step("privatize", f"chunks={chunks}")] if chunks else []
    steps = [
        Step("rolling-update", "rescale-bound=8"), Step("verify-corrections"), *split,
        Step("prune-masks"), Step("tile"), *common.TO_TILES,
    ]  # fmt: skip
    runner.run(module, tuple(steps))
    return CpuExecutable(cpu.compile_tiles(module, entry=None, facts={}))


@pytest.mark.parametrize("chunks", [0, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_exact_in_the_end(name, chunks):
    program = PROGRAMS[name]()
    rng = np.random.default_rng(0)
    if name == "attention":  # the first five queries see no key
        arrays = [rng.standard_normal((1, 2, n, 16)) * s for n, s in ((70, 9), (65, 1), (65, 1))]
    else:
        arrays = [50 * rng.standard_normal((9, 300))]
    arrays = [a.astype(np.float32) for a in arrays]
    got, wanted = compiled(program, chunks)(*arrays), program.reference(*arrays)
    pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
    for result, reference in pairs:
        # scores of size 100 carry an absolute error of about 100 ulp into the exponent
        np.testing.assert_allclose(result, reference, rtol=3e-5, atol=3e-5)


def test_negative_bound():
    with pytest.raises(ScheduleError, match="rescale bound"):
        runner.run(ops.softmax().module(), (Step("rolling-update", "rescale-bound=-1"),))
