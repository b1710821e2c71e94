# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of every command that compiles: which schedule, and its numbers."""

from __future__ import annotations

import argparse

from neptune_mlir.transforms.schedule import library


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schedule", help="a schedule script, or one by name")
    parser.add_argument(
        "--knob", action="append", default=[], metavar="NAME=NUMBER,...",
        help="set numbers of the schedule",
    )  # fmt: skip


def knobs_of(options: argparse.Namespace) -> dict[str, int]:
    """The knobs that were given. Raises UsageError for what is no number."""
    return library.knob_arguments(options.knob)
