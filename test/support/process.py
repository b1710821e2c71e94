# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What this process has in memory."""

import sys


def is_mapped(address: int) -> bool:
    """Whether there is memory at an address (True where nobody can say)."""
    if sys.platform != "linux":
        return True
    with open("/proc/self/maps") as lines:
        ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
    return any(low <= address < high for low, high in ranges)
