# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Head dims and groups that no instruction was made for: right on the simulator, on each chip
with the tiles that its shared memory allows."""

from __future__ import annotations

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.driver.kernel import Source
from neptune_mlir.zoo import relative_error
from support.chips.run_kernels import Simulated
from support.often import nightly_if

# head dims of q k and of v, query heads a key head, queries, keys, further options
CASES = {
    "192 and 128": (192, 128, 1, 20, 40, {"causal": True}),
    "64 and 256": (64, 256, 1, 20, 40, {}),
    "40 and 72, padded": (40, 72, 1, 70, 90, {"causal": True}),
    "20, less than a chunk": (20, 20, 1, 20, 70, {}),
    "7, odd": (7, 9, 1, 20, 30, {"causal": True}),
    "512": (512, 512, 1, 20, 40, {"causal": True}),
    "384, warps share rows": (384, 384, 1, 20, 40, {}),
    "groups of 3": (64, 64, 3, 20, 40, {"causal": True}),
    "groups of 7": (32, 32, 7, 10, 40, {}),
    "decode, groups of 5": (64, 64, 5, 1, 150, {}),
    "decode, groups of 3, 40 and 72": (40, 72, 3, 1, 100, {}),
    "decode, 512": (512, 512, 1, 1, 50, {}),
}  # fmt: skip


LIKE_OTHERS = (
    "64 and 256", "20, less than a chunk", "512", "groups of 7", "decode, groups of 5",
    "decode, groups of 3, 40 and 72",
)  # fmt: skip


@pytest.mark.parametrize("name", nightly_if(lambda name: name in LIKE_OTHERS, CASES))
def test_any_head_dim_and_group(name):
    depth, width, group, queries, keys, options = CASES[name]
    target = "sm_89" if depth == 512 else "sm_80"
    program = ops.attention(
        head_dim=depth, v_dim=width, group=group, dtype="f16",
        q_len=1 if queries == 1 else None, **options,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    shapes = (group, queries, depth), (1, keys, depth), (1, keys, width)
    arrays = [rng.standard_normal((1, *s)).astype(np.float16) for s in shapes]
    module, _ = lower_text(Source.of(program).text, name, target, None, "tile")
    got = Simulated(module, target=target)(*arrays)
    assert relative_error(got, program.reference(*arrays)) < 1e-3
