# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the fake drivers importable."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "runtime")]
