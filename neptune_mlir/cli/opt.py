# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune-opt`: IR in, passes in the order given, IR out, like `mlir-opt`."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from neptune_mlir.cli import diagnostics
from neptune_mlir.cli.diagnostics import Entry
from neptune_mlir.errors import InputError, NeptuneError, UsageError

_EPILOG = """\
Every pass is an option, `--<pass>[=key=value,...]`, and they run in the order given; upstream's
passes (--canonicalize, --cse, --convert-linalg-to-loops, ...) may stand between ours.
Exit codes: 0 done, 1 the input or a pass failed, 2 wrong usage.
"""


class _AddStep(argparse.Action):
    """Appends to one list, so that passes, pipelines and schedules keep their order."""

    def __call__(self, parser, namespace, value, option_string=None):
        namespace.steps = [*(namespace.steps or []), (self.dest, value)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="neptune-opt",
        description="Apply passes to MLIR.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("input", nargs="?", default="-", help="an .mlir file, or - for stdin")
    parser.add_argument("-o", dest="output", default="-", metavar="OUT", help="default: stdout")
    step: dict[str, Any] = {"action": _AddStep, "default": argparse.SUPPRESS}
    parser.add_argument(
        "--pass", dest="pass", metavar="PASS[=OPTS]", help=argparse.SUPPRESS, **step
    )
    parser.add_argument(
        "--pass-pipeline",
        dest="pipeline",
        metavar="TEXT",
        **step,
        help="e.g. 'builtin.module(rolling-update,canonicalize)'",
    )
    parser.add_argument(
        "--schedule",
        dest="schedule",
        metavar="S.mlir",
        **step,
        help="apply a transform-dialect script, or a shipped one by name",
    )
    parser.add_argument("--stop-after", metavar="PASS", help="leave out the passes behind PASS")
    parser.add_argument(
        "--split-input-file",
        action="store_true",
        help="process the pieces between '// -----' lines one by one",
    )
    parser.add_argument(
        "--verify-diagnostics",
        action="store_true",
        help="check diagnostics against '// expected-error {{...}}' comments",
    )
    parser.add_argument("--allow-unregistered-dialect", action="store_true")
    parser.add_argument(
        "--mlir-print-ir-after-all",
        action="store_true",
        help="print the IR after every pass, to stderr",
    )
    parser.add_argument("--mlir-print-op-generic", action="store_true")
    parser.add_argument("--mlir-print-debuginfo", action="store_true")
    parser.add_argument("--list-passes", action="store_true", help="name the passes and stop")
    parser.set_defaults(steps=[])
    return parser


def _spell_passes(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """`--cse` as `--pass=cse`: everything that looks like an option and is none is a pass."""
    known = set(parser._option_string_actions)
    spelled = []
    for argument in argv:
        match = re.fullmatch(r"--?([A-Za-z][\w.-]+)(=.*)?", argument, re.DOTALL)
        if not match:
            spelled.append(argument)
        elif f"--{match[1]}" in known:
            spelled.append(f"--{match[1]}{match[2] or ''}")  # mlir-opt takes one dash as well
        else:
            spelled.append(f"--pass={match[1]}{match[2] or ''}")
    return spelled


def _steps(given: list[tuple[str, str]]) -> list[Any]:
    from neptune_mlir.pipelines.runner import Step, parse_pipeline

    steps: list[Any] = []
    for kind, value in given:
        if kind == "pipeline":
            steps += parse_pipeline(value)
        elif kind == "schedule":
            steps.append(Step("apply-schedule", {"file": value}))
        else:
            name, _, options = value.partition("=")
            steps.append(Step(name, options.strip("{}")))
    return steps


def _list_passes() -> str:
    from neptune_mlir.pipelines.runner import upstream_passes
    from neptune_mlir.transforms import registry

    rows = []
    for name in registry.names():
        try:
            spec = registry.lookup(name)
        except ImportError as error:
            rows.append(f"  --{name:18} (not built: {error})")
            continue
        options = ", ".join(f"{key.replace('_', '-')}=" for key in spec.options)
        rows.append(f"  --{name:18} {spec.summary}{f' [{options}]' if options else ''}")
    return "\n".join(
        ["passes of this project:", *rows, "and every upstream pass, for example:"]
        + [f"  --{name}" for name in upstream_passes()]
    )


def _chunks(text: str, split: bool) -> Iterator[str]:
    """The pieces to process, each padded so that its line numbers are those of the file."""
    if not split:
        yield text
        return
    start = 0
    for mark in [*re.finditer(r"^// -----.*\n?", text, re.MULTILINE), None]:
        end = mark.start() if mark else len(text)
        yield "\n" * text.count("\n", 0, start) + text[start:end]
        start = mark.end() if mark else end


class _Session:
    """Processes one piece of input and collects what it says."""

    def __init__(self, options: argparse.Namespace, steps: list[Any], source: str):
        self.options, self.steps, self.source = options, steps, source
        self.entries: list[Entry] = []

    def process(self, text: str) -> str | None:
        """The resulting IR as text, or None after an error."""
        from neptune_mlir.dialects.context import make_context
        from neptune_mlir.ir import bindings
        from neptune_mlir.ir.bindings import ir
        from neptune_mlir.pipelines import runner
        from neptune_mlir.transforms import registry

        context = make_context()
        context.allow_unregistered_dialects = self.options.allow_unregistered_dialect
        handler = context.attach_diagnostic_handler(self._collect)
        with bindings.source_name(self.source), registry.collect_remarks() as remarks, context:
            try:
                runner.check(self.steps, context, self.options.stop_after)
                module = ir.Module.parse(text)
                runner.run(
                    module,
                    self.steps,
                    stop_after=self.options.stop_after,
                    observe=self._print_after if self.options.mlir_print_ir_after_all else None,
                )
                return self._print(module)
            except UsageError:
                raise
            except Exception as error:
                if os.environ.get("NEPTUNE_TRACEBACK"):
                    raise
                self.entries += diagnostics.of_exception(error, self.source)
                return None
            finally:
                self.entries += [Entry(r.kind, r.loc, r.message) for r in remarks]
                handler.detach()

    def _collect(self, diagnostic: Any) -> bool:
        self.entries += diagnostics.of_diagnostic(diagnostic)
        return True

    def _print_after(self, step: Any, module: Any) -> None:
        print(f"// -----// IR Dump After {step} //----- //", file=sys.stderr)
        print(self._print(module), file=sys.stderr)

    def _print(self, module: Any) -> str:
        return module.operation.get_asm(
            enable_debug_info=self.options.mlir_print_debuginfo,
            print_generic_op_form=self.options.mlir_print_op_generic,
        ).rstrip("\n")


def _run(options: argparse.Namespace) -> int:
    if options.list_passes:
        print(_list_passes())
        return 0
    source = "<stdin>" if options.input == "-" else options.input
    try:
        text = sys.stdin.read() if options.input == "-" else Path(options.input).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{options.input}': {error}") from None
    steps = _steps(options.steps)
    printed, failed = [], False
    for chunk in _chunks(text, options.split_input_file):
        session = _Session(options, steps, source)
        result = session.process(chunk)
        if options.verify_diagnostics:
            problems = diagnostics.check_expected(chunk, session.entries, source)
            print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
            failed |= bool(problems)
        else:
            diagnostics.show(session.entries, chunk)
            failed |= result is None
        if result is not None:
            printed.append(result)
    if not options.verify_diagnostics:
        _write(options.output, "\n// -----\n".join(printed) + "\n" if printed else "")
    return 1 if failed else 0


def _write(path: str, text: str) -> None:
    if path != "-":
        try:
            Path(path).write_text(text)
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error}") from None
        return
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(text)
        sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(_spell_passes(parser, sys.argv[1:] if argv is None else argv))
    try:
        return _run(options)
    except NeptuneError as error:
        for entry in diagnostics.of_exception(error):
            print(f"neptune-opt: {entry}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
