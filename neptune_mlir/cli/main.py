# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune`: compile, run, explain and examine programs.

Each subcommand is a module of this package with `add_arguments(parser)` and
`execute(options) -> int`, and perhaps `complete(arguments)`, what a short form stands for; only the
one asked for is imported, so start-up stays fast.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from neptune_mlir.cli import diagnostics
from neptune_mlir.cli.diagnostics import Diagnostic
from neptune_mlir.cli.streams import lost_output, make_ready
from neptune_mlir.driver.garbage import collected_rarely, left_at_the_end
from neptune_mlir.errors import UsageError, did_you_mean
from neptune_mlir.version import __version__

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
    "completion": "print a script that completes these commands in bash, zsh or fish",
}


def _overview() -> str:
    rows = "\n".join(f"  {name:10} {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: neptune COMMAND ...\n\nCommands (neptune COMMAND --help says more):\n"
        f"{rows}\n\nExit codes: 0 done, 1 the input or the check failed, 2 wrong usage.\n"
        "Where --json is asked for and a command fails, the last line of standard output is an "
        "object\nwith error, loc, hint, exit_code and diagnostics."
    )


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are errors like any other: one place says them."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise UsageError(message, hint=f"{self.prog} --help")


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a subcommand."""
    parser = _Parser(
        prog=f"neptune {command}", description=COMMANDS[command], allow_abbrev=False
    )
    importlib.import_module(f"neptune_mlir.cli.{command}").add_arguments(parser)
    return parser


def options_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The options of a parser and of its own subcommands, with their help."""
    found: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found |= options_of(inner)
        found |= dict.fromkeys(action.option_strings, action.help or "")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    make_ready()
    arguments = list(sys.argv[1:] if argv is None else argv)
    left_at_the_end()
    with collected_rarely(to_the_end=argv is None), _interrupts() as seen:
        return _reported(*arguments, seen=seen)


INTERRUPTED = 130  # what shells say of a command that Ctrl-C ended


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Notes each Ctrl-C. What it interrupts may say something else: a pass in Python makes an error
    of its own of it, as of every exception."""
    seen: list[int] = []

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    # elsewhere than in the main thread, and where Ctrl-C is another's, it stays as it is
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _reported(command: str = "", *rest: str, seen: list[int]) -> int:
    """The exit code of a command, with its errors on standard error."""
    name = f"neptune {command}" if command in COMMANDS else "neptune"
    try:
        code = _execute(command, rest)
        return max(code, lost_output(name) or 0)
    except KeyboardInterrupt:
        return _interrupted(command, rest)
    except SystemExit:  # argparse, which printed a help
        lost = lost_output(name)
        if lost is None:
            raise
        return lost
    except Exception as error:
        if seen:
            return _interrupted(command, rest)
        lost = lost_output(name, error) if isinstance(error, OSError) else None
        if lost is not None:
            return lost
        if os.environ.get("NEPTUNE_TRACEBACK"):
            raise
        entries = diagnostics.of_exception(error)
        for entry in entries:
            prefix = "" if entry.loc else f"{name}: "
            print(f"{prefix}{entry}", file=sys.stderr)
        return _failed(name, rest, entries, 2 if isinstance(error, UsageError) else 1)


def _interrupted(command: str, arguments: Sequence[str]) -> int:
    name = f"neptune {command}"
    print(f"{name}: interrupted", file=sys.stderr)
    return _failed(name, arguments, [Diagnostic("error", "", "interrupted")], INTERRUPTED)


def _failed(
    name: str, arguments: Sequence[str], entries: Sequence[Diagnostic], code: int
) -> int:
    """The exit code, behind an object for a program that asked for JSON, however far the command
    came (perhaps not to its options)."""
    if not any(argument.partition("=")[0] == "--json" for argument in arguments):
        return code
    print(json.dumps(diagnostics.as_object(entries) | {"exit_code": code}))
    lost_output(name)
    return code


def _execute(command: str, arguments: Sequence[str]) -> int:
    if command in ("", "-h", "--help"):
        print(_overview())
        return 0 if command else 2
    if command == "--version":
        print(f"neptune-mlir {__version__}")
        return 0
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS, f"one of: {', '.join(COMMANDS)}")
        raise UsageError(f"no command '{command}'", hint=hint)
    parser = parser_of(command)
    implementation = importlib.import_module(f"neptune_mlir.cli.{command}")
    complete = getattr(implementation, "complete", list)
    options, unknown = parser.parse_known_args(complete(arguments))
    if unknown:
        word, known = unknown[0].partition("=")[0], options_of(parser)
        near = did_you_mean(word, known, f"neptune {command} --help")
        if word in known:
            near = f"another action of it takes that: neptune {command} ACTION --help"
        raise UsageError(f"unknown argument '{unknown[0]}'", hint=near)
    return int(implementation.execute(options))


if __name__ == "__main__":
    sys.exit(main())
