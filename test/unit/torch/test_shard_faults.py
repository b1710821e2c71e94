# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that dies or is late is an error of the others, in time."""

import os
import time

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch has no torch.distributed", allow_module_level=True)

from neptune_mlir.errors import PeerError  # noqa: E402
from neptune_mlir.torch.distributed.exchange import Batch  # noqa: E402
from support.processes import run  # noqa: E402


def dies(group):
    if group.rank() == 1:
        os._exit(1)
    return _fails(group)


def late(group):
    if group.rank() == 1:
        time.sleep(2.5)
        return 0.0
    return _fails(group)


def _fails(group):
    begun = time.monotonic()
    with pytest.raises(PeerError, match="no answer from a process of the group of 2"):
        x = torch.zeros(3)
        Batch(group).post(1, [x], 1, [x.clone()]).wait()
    return time.monotonic() - begun


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", [dies, late])
def test_a_peer_that_does_not_answer_is_an_error_in_time(fault):
    (seconds, _) = run(2, [("fault", fault)], timeout=1)["fault"]
    assert isinstance(seconds, float) and seconds < 5, seconds
