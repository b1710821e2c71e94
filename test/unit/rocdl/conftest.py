# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the simulator, the shared tile programs and the fake drivers importable."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("nvvm", "pipelines", "runtime")]
sys.path.append(str(HERE.parents[1] / "gpu"))  # programs and inputs of tests on devices
