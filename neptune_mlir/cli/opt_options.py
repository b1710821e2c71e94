# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of `neptune-opt`: those of `mlir-opt`, spelled as there.

One or two dashes, `--name=value` or `--name value`; a flag also takes `=true` and `=false`.
Whatever is no option here is a pass. Options of `mlir-opt` that MLIR's Python bindings cannot
serve are refused with the reason (UNSUPPORTED).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from neptune_mlir.errors import UsageError, did_you_mean

DESCRIPTION = "Apply passes to MLIR: the options and passes of mlir-opt, and our passes."
EPILOG = """\
Every pass is an option, `--<pass>[=key=value,...]`, and they run in the order given; passes of
this project and upstream's may alternate. --help lists them all behind these options, and
--help-hidden also the options of mlir-opt that cannot work here.
Exit codes: 0 done, 1 the input or a pass failed, 2 wrong usage.
"""

_NO_API = "MLIR's Python bindings have no access to it"
_NO_PLUGINS = "MLIR's Python bindings load no plug-ins; packages add passes by entry points"
UNSUPPORTED = {
    "color": "diagnostics have no colours",
    "debug": "the bindings' MLIR is built without debug output",
    "debug-only": "the bindings' MLIR is built without debug output",
    "emit-bytecode-producer": _NO_API,
    "elide-resource-data-from-bytecode": _NO_API,
    "list-passes-json": "use --list-passes",
    "load-dialect-plugin": _NO_PLUGINS + "; --irdl-file loads a dialect as data",
    "load-pass-plugin": _NO_PLUGINS,
    "log-actions-to": _NO_API,
    "log-mlir-actions-filter": _NO_API,
    "mlir-debug-counter": _NO_API,
    "mlir-enable-debugger-hook": _NO_API,
    "mlir-output-format": "the bindings print reports as text",
    "mlir-pass-pipeline-local-reproducer": "the reproducer holds the whole pipeline",
    "mlir-print-debug-counter": _NO_API,
    "mlir-print-elementsattrs-with-hex-if-larger": _NO_API,
    "mlir-print-stacktrace-on-diagnostic": "NEPTUNE_TRACEBACK=1 shows where an error came from",
    "mlir-print-unique-ssa-ids": _NO_API,
    "mlir-print-value-users": _NO_API,
    "mlir-very-unsafe-disable-verifier-on-parsing": "the bindings always verify what they parse",
    "profile-actions-to": _NO_API,
    "remark-format": _NO_API,
    "remark-policy": _NO_API,
    "remarks-filter": _NO_API,
    "remarks-filter-analyse": _NO_API,
    "remarks-filter-failed": _NO_API,
    "remarks-filter-missed": _NO_API,
    "remarks-filter-passed": _NO_API,
    "remarks-output-file": _NO_API,
}


def _flag(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"'{text}' is not true or false")
    return known[text.lower()]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _size(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number")
    return int(text)


def _tree(text: str) -> str:
    if text != "tree":
        raise argparse.ArgumentTypeError(f"'{text}' is refused: the bindings print times as a tree")
    return text


class _AddStep(argparse.Action):
    """Appends to one list, so that passes, pipelines and schedules keep their order."""

    def __call__(self, parser, namespace, value, option_string=None):
        namespace.steps = [*(namespace.steps or []), (self.dest, value)]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours, and which knows the spellings of `mlir-opt`."""

    def __init__(self) -> None:
        super().__init__(
            prog="neptune-opt", usage="neptune-opt [options] [passes] [input]", epilog=EPILOG,
            description=DESCRIPTION, allow_abbrev=False, add_help=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, max_help_position=44, width=120
            ),
        )  # fmt: skip
        self.group = self.add_argument_group("input and output")

    def option(self, *names: str, **keywords: Any) -> None:
        """An option with a value."""
        self.group.add_argument(*[f"{'-' * min(len(n), 2)}{n}" for n in names], **keywords)

    def flag(self, *names: str, help: str) -> None:
        """An option that is on or off."""
        self.option(*names, help=help, nargs="?", const=True, metavar="BOOL", type=_flag)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint="neptune-opt --help")

    def options(self) -> dict[str, argparse.Action]:
        """The options by name, without dashes."""
        spellings = self._option_string_actions.items()
        return {text.lstrip("-"): action for text, action in spellings if text != "--pass"}

    def spelled(self, arguments: Sequence[str]) -> list[str]:
        """Arguments as argparse wants them: `-cse` and `--cse` as `--pass=cse`, and every other
        option with its value behind `=`.

        Raises:
            UsageError: an option of `mlir-opt` that cannot work here.
        """
        known = self.options()
        spelled, rest = [], list(arguments)
        while rest:
            argument = rest.pop(0)
            match = re.fullmatch(r"--?([A-Za-z][\w.-]*)(=.*)?", argument, re.DOTALL)
            if not match:
                spelled.append(argument)
                continue
            name, value = match[1], match[2]
            action = known.get(name)
            if action is None:
                if name in UNSUPPORTED:
                    raise UsageError(f"option --{name} cannot work here: {UNSUPPORTED[name]}")
                spelled.append(f"--pass={name}{value or ''}")
                continue
            if value is None and action.nargs == "?":
                value = f"={action.const}"
            elif value is None and rest:
                value = f"={rest.pop(0)}"
            spelled.append(f"{action.option_strings[0]}{value or ''}")
        return spelled


def make_parser() -> Parser:
    """The parser of `neptune-opt`."""
    parser = Parser()
    parser.add_argument("input", nargs="?", default="-", help="an .mlir file, or - for stdin")
    parser.option("o", dest="output", default="-", metavar="OUT", help="default: stdout")
    _add_input(parser)
    _add_pipeline(parser)
    _add_printing(parser)
    _add_instruments(parser)
    _add_diagnostics(parser)
    _add_questions(parser)
    parser.set_defaults(steps=[])
    return parser


def _add_input(parser: Parser) -> None:
    parser.flag("allow-unregistered-dialect", help="take ops of dialects that nobody registered")
    parser.flag("no-implicit-module", help="the top-level op is the input's own")
    parser.option("irdl-file", metavar="FILE", help="register the dialects of an IRDL file first")
    parser.option(
        "split-input-file", nargs="?", const="// -----", metavar="MARK",
        help="process the pieces between '// -----' lines (or MARK) one by one",
    )  # fmt: skip
    parser.option("output-split-marker", default="// -----", metavar="MARK",
                  help="the line between the pieces of the output")  # fmt: skip
    parser.flag("emit-bytecode", help="write bytecode (it is read without an option)")
    parser.option("emit-bytecode-version", type=_size, metavar="N", help="of the bytecode")
    parser.flag("verify-roundtrip", help="print and parse the input again, as text and bytecode")


def _add_pipeline(parser: Parser) -> None:
    parser.group = parser.add_argument_group("pipelines")
    step: dict[str, Any] = {"action": _AddStep, "default": argparse.SUPPRESS}
    parser.option("pass", dest="pass", metavar="PASS[=OPTS]", help=argparse.SUPPRESS, **step)
    parser.option("pass-pipeline", "p", dest="pipeline", metavar="TEXT", **step,
                  help="e.g. 'builtin.module(rolling-update,canonicalize)'")  # fmt: skip
    parser.option("schedule", dest="schedule", metavar="S.mlir", **step,
                  help="apply a transform-dialect script, or a shipped one by name")  # fmt: skip
    parser.option("stop-after", metavar="PASS", help="leave out the passes behind PASS")
    parser.flag("verify-each", help="verify the IR after every pass (default: true)")
    parser.flag("dump-pass-pipeline", help="print the pipeline that will run, to stderr")
    parser.option("mlir-pass-pipeline-crash-reproducer", metavar="FILE",
                  help="where a pass fails, write the input with its pipeline")  # fmt: skip
    parser.option("mlir-generate-reproducer", metavar="FILE",
                  help="write the input with its pipeline")  # fmt: skip
    parser.flag("run-reproducer", help="run the pipeline that the input holds")
    parser.flag("mlir-disable-threading", help="run every pass in one thread")


def _add_printing(parser: Parser) -> None:
    parser.group = parser.add_argument_group("how IR is printed")
    parser.flag("mlir-print-op-generic", help="the generic form of ops")
    parser.flag("mlir-print-debuginfo", help="with locations")
    parser.flag("mlir-pretty-debuginfo", help="locations for people (cannot be parsed)")
    parser.flag("mlir-print-local-scope", help="without aliases of attributes, types, locations")
    parser.flag("mlir-print-skip-regions", help="without regions")
    parser.flag("mlir-print-assume-verified", help="do not verify before printing")
    parser.flag("mlir-use-nameloc-as-prefix", help="values named after their locations")
    parser.option("mlir-elide-elementsattrs-if-larger", type=_size, metavar="N",
                  help="'...' for attributes of more than N elements")  # fmt: skip
    parser.option("mlir-elide-resource-strings-if-larger", type=_size, metavar="N",
                  help="'...' for resources of more than N characters")  # fmt: skip


def _add_instruments(parser: Parser) -> None:
    parser.group = parser.add_argument_group("what passes do, on stderr")
    names: dict[str, Any] = {"action": "extend", "type": _names, "default": [], "metavar": "PASS"}
    parser.option("mlir-print-ir-before", help="print the IR before these passes", **names)
    parser.option("mlir-print-ir-after", help="print the IR after these passes", **names)
    parser.flag("mlir-print-ir-before-all", help="print the IR before every pass")
    parser.flag("mlir-print-ir-after-all", help="print the IR after every pass")
    parser.flag("mlir-print-ir-after-change", help="only where the pass changed it")
    parser.flag("mlir-print-ir-after-failure", help="only where the pass failed")
    parser.flag("mlir-print-ir-module-scope", help="always print the whole module")
    parser.option("mlir-print-ir-tree-dir", metavar="DIR", help="into files, not to stderr")
    parser.flag("mlir-timing", help="how long each pass took")
    parser.option("mlir-timing-display", type=_tree, metavar="tree", help="how to show them")
    parser.flag("mlir-pass-statistics", help="the statistics of passes")
    parser.option("mlir-pass-statistics-display", choices=("list", "pipeline"),
                  default="pipeline", help="how to show them")  # fmt: skip


def _add_diagnostics(parser: Parser) -> None:
    parser.group = parser.add_argument_group("diagnostics")
    parser.option(
        "verify-diagnostics", nargs="?", const="all", choices=("all", "only-expected"),
        help="check diagnostics against '// expected-error {{...}}' comments",
    )  # fmt: skip
    parser.option("mlir-diagnostic-verbosity-level", choices=("errors", "warnings", "remarks"),
                  default="remarks", help="which diagnostics to show")  # fmt: skip
    parser.flag("mlir-disable-diagnostic-notes", help="show no notes")
    parser.flag("mlir-print-op-on-diagnostic", help="show the op of an error (default: true)")


def _add_questions(parser: Parser) -> None:
    parser.group = parser.add_argument_group("questions")
    parser.flag("help", "h", help="these options and every pass")
    parser.flag("help-hidden", help="and the options of mlir-opt that cannot work here")
    parser.flag("help-list", help="the same as --help")
    parser.flag("version", help="of this package and of the MLIR bindings")
    parser.flag("list-passes", help="every pass")
    parser.flag("show-dialects", help="every dialect")


def unknown(name: str, hint_from: Sequence[str]) -> UsageError:
    """The error for what is neither an option nor a pass."""
    near = did_you_mean(name, hint_from, "neptune-opt --help lists both")
    return UsageError(f"unknown option or pass '--{name}'", hint=near)
