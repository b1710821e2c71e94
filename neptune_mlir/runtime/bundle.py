# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle: machine code, its launch plan and facts about the compilation, as bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.errors import ToolError
from neptune_mlir.runtime.plan import Plan

_MAGIC = b"neptune-bundle-1\n"
_DIGEST = 32


@dataclass(frozen=True)
class Bundle:
    """`target` says what runs `code`; `facts` is JSON data about how it was made."""

    target: str
    plan: Plan
    code: bytes
    facts: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        header = {"target": self.target, "plan": self.plan.to_json(), "facts": self.facts}
        text = json.dumps(header, sort_keys=True).encode()
        payload = len(text).to_bytes(8, "little") + text + self.code
        return _MAGIC + hashlib.sha256(payload).digest() + payload

    @staticmethod
    def from_bytes(data: bytes) -> Bundle:
        """Raises ToolError for anything but what `to_bytes` made."""
        start = len(_MAGIC) + _DIGEST
        digest, payload = data[len(_MAGIC) : start], data[start:]
        if not data.startswith(_MAGIC) or hashlib.sha256(payload).digest() != digest:
            raise ToolError("not a compiled bundle, or a damaged one", hint="compile it again")
        size = int.from_bytes(payload[:8], "little")
        header = json.loads(payload[8 : 8 + size])
        plan = Plan.from_json(header["plan"])
        return Bundle(header["target"], plan, payload[8 + size :], header["facts"])
