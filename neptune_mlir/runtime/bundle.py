# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle: machine code, its launch plan and facts about the compilation, as one file.

bytes 0..16       "neptune-bundle-1\\n": the format of this list
17..48            SHA-256 of all that follows
49..56            length of the header, little-endian
then              the header, JSON: abi, target, plan, facts, and where data lies behind it
then              code; images of a fat bundle by offset and size (facts, "images"); for a CPU one
                  object file, then those for some calls alone by size (facts, "variants")
then              data of the plan's constants, each once and at a multiple of 64 bytes of this part
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from neptune_mlir.errors import InputError, ToolError
from neptune_mlir.runtime.plan import Plan

_MAGIC = b"neptune-bundle-1\n"
_DIGEST = 32

# What code and runtime agree on beyond the format: what a kernel receives and in which order,
# the operands of a plan's launches, its expressions. docs/runtime.md describes it.
ABI = 3

_DATA_ALIGNMENT = 64


@dataclass(frozen=True)
class Bundle:
    """`target` says what runs `code`; `facts` is JSON data about how it was made; `data` holds the
    elements of the constants of all plans by their SHA-256."""

    target: str
    plan: Plan
    code: bytes
    facts: dict[str, Any] = field(default_factory=dict)
    data: dict[str, bytes] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        payload = self._payload()
        return _MAGIC + hashlib.sha256(payload).digest() + payload

    def _payload(self) -> bytes:
        places, parts, end = {}, [], 0
        for digest, raw in sorted(self.data.items()):
            places[digest] = [end, len(raw)]
            parts.append(raw + bytes(-len(raw) % _DATA_ALIGNMENT))
            end += len(parts[-1])
        header = {"abi": ABI, "target": self.target, "plan": self.plan.to_json(),
                  "facts": self.facts, "code": len(self.code), "data": places}  # fmt: skip
        text = json.dumps(header, sort_keys=True).encode()
        return b"".join((len(text).to_bytes(8, "little"), text, self.code, *parts))

    @property
    def digest(self) -> str:
        """The hash of the content that its file carries, in hexadecimal."""
        return hashlib.sha256(self._payload()).hexdigest()

    def plan_of(self, image: dict[str, Any]) -> Plan:
        """The launch plan of one image: its own where it differs from that of the others."""
        return Plan.from_json(image["plan"]) if "plan" in image else self.plan

    def with_data(self, data: Mapping[str, bytes]) -> Bundle:
        """The same, with those of these data that its plans name.

        Raises:
            InputError: one is missing (a program that was quoted without its data).
        """
        images = (*self.facts.get("images", ()), *self.facts.get("variants", ()))
        plans = [self.plan, *map(self.plan_of, images)]
        wanted = {constant.sha256 for plan in plans for constant in plan.constants}
        if not wanted <= set(data):
            raise InputError(
                "the data of the program's constants is not in the program",
                hint="compile what it was made from",
            )
        return replace(self, data={digest: data[digest] for digest in sorted(wanted)})

    def adding(self, variant: Bundle, condition: Any) -> Bundle:
        """The bundle with the images of a variant of its program, each for calls that meet the
        condition (an expression of the launch plan; None: any call), and its own if it has one; of
        several images that serve a call the last one counts."""
        code, data = self.code + variant.code, {**self.data, **variant.data}
        if "images" not in self.facts:
            made = {"when": condition, "plan": variant.plan.to_json(), "size": len(variant.code)}
            facts = {**self.facts, "variants": [*self.facts.get("variants", ()), made]}
            return replace(self, code=code, facts=facts, data=data)
        own: dict[str, Any] = {}  # where it differs
        if variant.plan != self.plan:
            own["plan"] = variant.plan.to_json()
        if variant.facts["alignment"] != self.facts["alignment"]:
            own["alignment"] = variant.facts["alignment"]
        images = []
        for image in variant.facts["images"]:
            when = [x for x in (condition, image.get("when")) if x is not None]
            both = {"when": ["and", *when] if len(when) == 2 else when[0]} if when else {}
            images.append({**own, **image, "offset": image["offset"] + len(self.code), **both})
        facts = {**self.facts, "images": [*self.facts["images"], *images]}
        return replace(self, code=code, facts=facts, data=data)

    @staticmethod
    def begins(data: bytes) -> bool:
        """Is this (the beginning of) what `to_bytes` made?"""
        return data.startswith(_MAGIC)

    @staticmethod
    def from_bytes(data: bytes) -> Bundle:
        """Raises ToolError for anything but what `to_bytes` made, for this runtime's ABI."""
        start = len(_MAGIC) + _DIGEST
        digest, payload = data[len(_MAGIC) : start], data[start:]
        if not data.startswith(_MAGIC) or hashlib.sha256(payload).digest() != digest:
            raise ToolError("not a compiled bundle, or a damaged one", hint="compile it again")
        size = int.from_bytes(payload[:8], "little")
        header = json.loads(payload[8 : 8 + size])
        abi = header.get("abi", 1)  # bundles of the first ABI did not always say so
        if abi != ABI:
            raise ToolError(
                f"the bundle was made for ABI {abi} of the runtime, which has {ABI}",
                hint="compile it again with this version, or install the version that made it",
            )
        plan = Plan.from_json(header["plan"])
        code = 8 + size
        end = code + header["code"]
        found = {
            digest: payload[end + offset : end + offset + length]
            for digest, (offset, length) in header["data"].items()
        }
        return Bundle(header["target"], plan, payload[code:end], header["facts"], found)


class Growing(Protocol):
    """A bundle that gets images when calls take them: nothing that it has ever moves."""

    @property
    def bundle(self) -> Bundle:
        """What there is of it."""

    def whole(self) -> Bundle:
        """All of it."""

    def grow(
        self, code: int | None, shapes: Sequence[Any], scalars: Sequence[Any], processors: int
    ) -> None:
        """Add an image for a call with these shapes and numbers on so many processors, if there is
        one that counts more than the image whose code begins at `code` (None: no image that there
        is serves the call).

        Raises:
            NeptuneError: the image cannot be compiled.
        """
