# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names of upstream's passes and their options, for help, completion and "did you mean".

MLIR's Python bindings cannot list what is registered. The table `upstream_passes.json` is made
from the bindings' library by `tools/gen_upstream_passes.py`; a pass that it lacks still runs.
"""

from __future__ import annotations

import functools
import json
from importlib import resources


@functools.cache
def passes() -> dict[str, str]:
    """Options of each pass, by its name, as the bindings print them: `top-down=true ...`."""
    table = resources.files("neptune_mlir.pipelines") / "upstream_passes.json"
    return dict(json.loads(table.read_text()))
