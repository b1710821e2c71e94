# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One exception tree. A message says what was asked, why it cannot be, and what to do.

Every exception a user can meet derives from `NeptuneError`, so the command line turns
each into a diagnostic (`file:line:col: error: ...`) and never into a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NeptuneError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what was asked and why it cannot be.
        loc: where, as `file:line:col`, when known.
        hint: the smallest change that would help.
    """

    def __init__(self, message: str, *, loc: str | None = None, hint: str | None = None):
        self.message = message
        self.loc = loc
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        where = f"{self.loc}: " if self.loc else ""
        tail = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{where}{self.message}{tail}"


class InputError(NeptuneError):
    """The program text or a Python program is malformed."""


class ArgumentError(NeptuneError, ValueError):
    """A kernel was called with arguments that it cannot take (raised before any work)."""


class FusionError(NeptuneError):
    """A requested fusion has no proved correction."""


class ScheduleError(NeptuneError):
    """A schedule asks for something that the program or the target cannot do."""


class LoweringError(NeptuneError):
    """A program that verifies cannot be lowered to the requested level."""


class OutOfMemory(LoweringError):
    """A kernel's tiles take more memory than a block has."""


class ToolError(NeptuneError):
    """An external tool (code generator, assembler, linker) is missing or failed."""


class Refused(ToolError):
    """The assembler rejected or serialised a kernel at its tile sizes; others may do better."""


class PeerError(NeptuneError):
    """Another process of a group died, or did not answer within the group's time-out."""


class UsageError(NeptuneError):
    """The command line or an API option was used wrongly (exit code 2)."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """A hint that names what `word` probably stands for; `otherwise` where nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=2)
    return f"did you mean {' or '.join(repr(name) for name in near)}?" if near else otherwise
