# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dialects of this project. `DIALECTS` lists what a context must load."""

from neptune_mlir.dialects import aref  # noqa: F401  (its ops belong to the dialect)
from neptune_mlir.dialects.neptune import Neptune

DIALECTS = (Neptune,)
