# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Child processes that files feed.

What LLVM and the passes of other projects cannot handle ends their process, so they run in one of
their own. Files feed it, not pipes: who waits for it is often a thread, and to feed a pipe would
have to interrupt the one that compiles the next kernel again and again.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from neptune_mlir.errors import ToolError


@dataclass(frozen=True)
class Ended:
    """How a child ended: what it wrote, what it said on standard error, and its exit status (as
    `subprocess` has it: less than 0 for a signal)."""

    made: bytes
    said: str
    status: int

    @property
    def signal(self) -> str:
        """The name of the signal that it died of, "" where it ended by itself."""
        return signal.Signals(-self.status).name if self.status < 0 else ""


def run(command: Sequence[str], given: bytes, timeout: float, late: str) -> Ended:
    """Run a command that reads standard input and writes standard output.

    Args:
        given: its standard input.
        timeout: seconds.
        late: the message where it takes longer.

    Raises:
        ToolError: it took longer.
    """
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as made:
        source.write(given)
        source.seek(0)
        try:
            done = subprocess.run(
                command, stdin=source, stdout=made, stderr=subprocess.PIPE, timeout=timeout,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ToolError(late) from None
        made.seek(0)
        return Ended(made.read(), done.stderr.decode(errors="replace"), done.returncode)
