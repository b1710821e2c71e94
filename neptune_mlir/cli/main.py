# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune`: compile, run, explain and examine programs.

Each subcommand is a module of this package with `add_arguments(parser)` and
`execute(options) -> int`, and perhaps `complete(arguments)`, what a short form stands for; only the
one asked for is imported, so start-up stays fast.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

from neptune_mlir.cli import diagnostics
from neptune_mlir.errors import UsageError

COMMANDS = {
    "compile": "compile a program for a target, or show a level of it",
    "inspect": "what a bundle holds: launches, registers, spills, where it comes from",
    "run": "compile a program and run it, with --check its error beside the unfused one's",
    "explain": "show the fused loop nest as pseudo-code, with every correction",
    "verify": "stress-test the corrections of a program",
    "zoo": "the example programs: reductions, kernels, corrections, proofs, errors",
    "bench": "measure operators against their peers",
    "tune": "search the knobs of a schedule",
    "doctor": "what is installed, which devices, what is missing and how to get it",
}


def _overview() -> str:
    rows = "\n".join(f"  {name:9} {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: neptune COMMAND ...\n\nCommands (neptune COMMAND --help says more):\n"
        f"{rows}\n\nExit codes: 0 done, 1 the input or the check failed, 2 wrong usage."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"neptune-mlir {version('neptune-mlir')}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        print(f"neptune: error: no command '{command}'\n{_overview()}", file=sys.stderr)
        return 2
    name = f"neptune_mlir.cli.{command}"
    if importlib.util.find_spec(name) is None:
        print(f"neptune {command}: error: not built yet in this version", file=sys.stderr)
        return 1
    implementation = importlib.import_module(name)
    parser = argparse.ArgumentParser(
        prog=f"neptune {command}", description=COMMANDS[command], allow_abbrev=False
    )
    implementation.add_arguments(parser)
    complete = getattr(implementation, "complete", list)
    options = parser.parse_args(complete(rest))
    try:
        return implementation.execute(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("NEPTUNE_TRACEBACK"):
            raise
        for entry in diagnostics.of_exception(error):
            prefix = "" if entry.loc else f"neptune {command}: "
            print(f"{prefix}{entry}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
