# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reproducers: a module and the pipeline that ran on it in one file, in `mlir-opt`'s format."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from neptune_mlir.errors import InputError

_NAME = "mlir_reproducer"
_RESOURCE = """
{{-#
  external_resources: {{
    {name}: {{
      pipeline: {pipeline},
      disable_threading: true,
      verify_each: true
    }}
  }}
#-}}
"""


def text_of(module: Any, steps: Sequence[Any]) -> str:
    """The module with its pipeline. (Locations are kept, resources of its own are not.)"""
    top = module.operation.name
    pipeline = json.dumps(f"{top}({','.join(map(str, steps))})")
    text = module.operation.get_asm(enable_debug_info=True, large_resource_limit=0)
    return str(text).rstrip("\n") + _RESOURCE.format(name=_NAME, pipeline=pipeline)


def pipeline_of(text: str | bytes) -> str:
    """The pipeline that a reproducer holds. Raises InputError where there is none."""
    given = text if isinstance(text, str) else ""
    found = re.search(_NAME + r':\s*\{[^{}]*?pipeline:\s*("(?:[^"\\]|\\.)*")', given, re.DOTALL)
    if found is None:
        raise InputError(f"the input holds no {_NAME}", hint="leave out --run-reproducer")
    return str(json.loads(found[1]))


def is_unread(message: str) -> bool:
    """Whether it is the parser's warning that it does not read what `pipeline_of` reads."""
    return message == f"ignoring unknown external resources for '{_NAME}'"
