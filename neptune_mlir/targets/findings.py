# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Knobs that a search found best for one program on one chip: part of the tuning table.

    {"chip": "cpu", "program": "1f0a...", "asked": "", "schedule": "streamed",
     "knobs": "rows:64;stream:256", "measured": {...}}

A program is known by its text without comments, locations and white space; a schedule of the
user's by its text. No MLIR.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_INSIDE = r"""(?:[^()"]|"[^"]*")"""
_LOCATION = re.compile(rf"(?m)^#loc.*$|(?:(?<!\s)\s+)?\bloc\((?:{_INSIDE}|\({_INSIDE}*\))*\)")
_COMMENT = re.compile(r"(?m)//[^\"\n]*$")


def program_digest(text: str) -> str:
    """What a program is known by."""
    bare = _LOCATION.sub("", _COMMENT.sub("", text))
    return hashlib.sha256(" ".join(bare.split()).encode()).hexdigest()


def schedule_digest(text: str) -> str:
    """What a schedule is known by."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ProgramFinding:
    """One entry.

    Attributes:
        chip: a target's name.
        program: see `program_digest`.
        asked: "" where the compiler chooses the schedule, else the digest of the one it is given.
        schedule: that which the knobs are of: a shipped one by name; as given where one is asked.
        knobs: as `library.knob_text` writes them.
        measured: where that is from (JSON data).
    """

    chip: str
    program: str
    asked: str
    schedule: str
    knobs: str
    measured: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.chip, self.program, self.asked

    def as_json(self) -> dict[str, Any]:
        made = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**made, "measured": dict(self.measured)}

    def __str__(self) -> str:
        knobs = ", ".join(knob.replace(":", " ") for knob in self.knobs.split(";"))
        gain = self.measured.get("gain")
        return knobs + (f" (+{gain:.0%} when measured)" if isinstance(gain, float) else "")

    @staticmethod
    def from_json(data: Any) -> ProgramFinding:
        """Raises ValueError for anything that `as_json` does not make."""
        names = [f.name for f in fields(ProgramFinding)]
        if not isinstance(data, dict) or set(data) != set(names):
            raise ValueError(f"a finding has {', '.join(names)}")
        if not all(isinstance(data[name], str) for name in names[:-1]):
            raise ValueError(f"{', '.join(names[:-1])} are strings")
        knobs = filter(None, data["knobs"].split(";"))
        if not all(re.fullmatch(r"\w+:-?\d+", knob) for knob in knobs):
            raise ValueError(f"'knobs' is '{data['knobs']}', not NAME:NUMBER;...")
        if not isinstance(data["measured"], dict):
            raise ValueError("'measured' is an object")
        return ProgramFinding(**data)
