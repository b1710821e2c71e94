# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The standard streams of commands, where a shell closed one, filled it up or reads it no more."""

from __future__ import annotations

import errno
import os
import sys

# files that a user names are written by `outputs.write`, which says their names
OF_STREAMS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def make_ready() -> None:
    """Let a command print: to nowhere what a shell closed, escaped what a stream cannot encode."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # for as long as the process runs
    reconfigure = getattr(sys.stdout, "reconfigure", None)  # (a test's stream has none)
    if reconfigure is not None and sys.stdout.errors == "strict":
        reconfigure(errors="backslashreplace")


def lost_output(name: str, error: OSError | None = None) -> int | None:
    """The exit code where standard output takes no more of what the command `name` printed; None
    where it took all of it.

    Args:
        error: what ended the command. A stream without a buffer fails once: its flush says nothing.
    """
    if error is None or error.filename is not None or error.errno not in OF_STREAMS:
        try:
            sys.stdout.flush()
            return None
        except OSError as met:
            error = met
    # what is left would fail again when the process ends
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader of a pipe had enough
        return 0
    reason = f"cannot write to standard output: {error.strerror}"
    print(f"{name}: error: {reason}", file=sys.stderr)
    return 1
