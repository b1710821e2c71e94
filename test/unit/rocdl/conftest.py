# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the simulator and the shared tile programs importable."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "nvvm"), str(HERE.parent / "pipelines")]
sys.path.append(str(HERE.parents[1] / "gpu"))  # programs and inputs of tests on devices
