# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `neptune-opt` says of itself: its passes, dialects and version."""

from __future__ import annotations

from typing import Any

from neptune_mlir.errors import UsageError

_WIDTH = 26


def help_text(parser: Any, hidden: bool) -> str:
    """The options and every pass; with `hidden` also the options that cannot work."""
    from neptune_mlir.cli.opt_options import UNSUPPORTED

    parts = [parser.format_help(), list_passes()]
    if hidden:
        rows = [_row(name, reason) for name, reason in sorted(UNSUPPORTED.items())]
        parts.append("\n".join(["options of mlir-opt that are refused:", *rows]))
    return "\n".join(parts)


def _row(name: str, text: str, dashes: str = "--") -> str:
    return f"  {dashes}{name:{_WIDTH}} {text}".rstrip()


def list_passes() -> str:
    """Every pass, a line each: summary and options of ours, names and defaults of upstream's."""
    from neptune_mlir.pipelines import upstream
    from neptune_mlir.transforms import registry
    from neptune_mlir.transforms.patterns import language

    rows = ["passes of this project and of installed packages:"]
    for name in registry.names():
        try:
            spec = registry.lookup(name)
        except UsageError as error:
            rows.append(_row(name, f"(cannot be loaded: {error.message})"))
            continue
        options = " ".join(
            f"{key.replace('_', '-')}={kind.__name__}" for key, kind in spec.options.items()
        )
        rows.append(_row(name, f"{spec.summary}{f' [{options}]' if options else ''}"))
    rows.append("patterns that --apply-patterns applies (only=NAME: one of them):")
    for name in language.names():
        try:
            rows.append(_row(name, language.lookup(name).summary, ""))
        except UsageError as error:
            rows.append(_row(name, f"(cannot be loaded: {error.message})", ""))
    rows.append("passes of upstream, with the defaults of their options:")
    rows += [_row(name, options) for name, options in upstream.passes().items()]
    return "\n".join(rows)


def show_dialects() -> str:
    """The names of all dialects, as `mlir-opt --show-dialects` prints them."""
    from neptune_mlir.dialects.context import make_context
    from neptune_mlir.ir.bindings import known_dialects

    with make_context():
        return f"Available Dialects: {','.join(known_dialects())}"


def version_text() -> str:
    """The versions of this package and of the bindings."""
    from importlib.metadata import PackageNotFoundError, version

    from neptune_mlir import __version__
    from neptune_mlir.ir.bindings import PACKAGE, REFUSED

    try:
        found = version(PACKAGE.replace("_", "-"))
    except PackageNotFoundError:
        found = "of unknown version"
    refused = [f"not used: {why}" for why in REFUSED.values()]
    return "\n".join([f"neptune-mlir {__version__}", f"MLIR bindings: {PACKAGE} {found}", *refused])
