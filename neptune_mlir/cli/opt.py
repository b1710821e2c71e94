# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune-opt`: IR in, passes in the order given, IR out, like `mlir-opt`.

What it takes is in `opt_options.py`, what it says of itself in `opt_help.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from neptune_mlir.cli import diagnostics, opt_help, reproducer
from neptune_mlir.cli.diagnostics import Diagnostic
from neptune_mlir.cli.opt_options import make_parser, unknown
from neptune_mlir.cli.streams import lost_output, make_ready
from neptune_mlir.driver.garbage import collected_rarely, left_at_the_end
from neptune_mlir.errors import InputError, NeptuneError, UsageError

BYTECODE = b"ML\xefR"  # how it begins


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
            steps.append(Step(name, options.removeprefix("{").removesuffix("}")))
    return steps


def _chunks(text: str, mark: str | None) -> Iterator[str]:
    """The pieces to process, each padded so that its line numbers are those of the file."""
    if mark is None:
        yield text
        return
    start = 0
    for match in [*re.finditer(rf"^{re.escape(mark)}.*\n?", text, re.MULTILINE), None]:
        end = match.start() if match else len(text)
        yield "\n" * text.count("\n", 0, start) + text[start:end]
        start = match.end() if match else end


def _instruments(options: argparse.Namespace) -> Any:
    """What upstream's pass manager is to show of the run."""
    from neptune_mlir.ir.bindings import passmanager
    from neptune_mlir.pipelines.runner import ALL, Instruments, UnknownPass, known_passes

    printing = {
        "print_after_change": bool(options.mlir_print_ir_after_change),
        "print_after_failure": bool(options.mlir_print_ir_after_failure),
        "print_module_scope": bool(options.mlir_print_ir_module_scope),
        "large_elements_limit": options.mlir_elide_elementsattrs_if_larger,
        "large_resource_limit": options.mlir_elide_resource_strings_if_larger,
        "enable_debug_info": bool(options.mlir_print_debuginfo),
        "print_generic_op_form": bool(options.mlir_print_op_generic),
    }
    if options.mlir_print_ir_tree_dir:
        printing["tree_printing_dir_path"] = options.mlir_print_ir_tree_dir
    for name in (*options.mlir_print_ir_before, *options.mlir_print_ir_after):
        if name not in known_passes():
            raise UnknownPass(name)
    statistics = None
    if options.mlir_pass_statistics:
        modes = passmanager.PassDisplayMode
        statistics = getattr(modes, options.mlir_pass_statistics_display.upper())
    return Instruments(
        verify=options.verify_each is not False,
        before=[*options.mlir_print_ir_before, *([ALL] * bool(options.mlir_print_ir_before_all))],
        after=[*options.mlir_print_ir_after, *([ALL] * bool(options.mlir_print_ir_after_all))],
        printing=printing,
        timing=bool(options.mlir_timing),
        statistics=statistics,
    )


class _Session:
    """Processes one piece of input and collects what it says."""

    def __init__(self, options: argparse.Namespace, steps: list[Any], source: str):
        self.options, self.steps, self.source = options, steps, source
        whole = source == options.input and not options.split_input_file
        self.path = source if whole else None
        self.instruments = _instruments(options)
        self.entries: list[Diagnostic] = []

    def process(self, text: str | bytes) -> str | bytes | None:
        """The resulting IR as text or bytecode, or None after an error."""
        from neptune_mlir.ir import bindings
        from neptune_mlir.transforms import registry

        with bindings.source_name(self.source), registry.collect_remarks() as remarks:
            try:
                with self._context() as context:
                    return self._process(text, context)
            except UsageError:
                raise
            except Exception as error:
                if os.environ.get("NEPTUNE_TRACEBACK"):
                    raise
                self.entries += diagnostics.of_exception(error, self.source)
                return None
            finally:
                self.entries += [Diagnostic(r.kind, r.loc, r.message) for r in remarks]

    @contextlib.contextmanager
    def _context(self) -> Iterator[Any]:
        """A context as the options want it, entered; its diagnostics are collected."""
        from neptune_mlir.dialects.context import make_context

        context = make_context()
        context.allow_unregistered_dialects = bool(self.options.allow_unregistered_dialect)
        # printing shows passes in their order, and a whole module only while nobody changes it
        printing = self.instruments.before or self.instruments.after
        if self.options.mlir_disable_threading or printing:
            context.enable_multithreading(False)
        handler = context.attach_diagnostic_handler(self._collect)
        try:
            with context:
                if self.options.irdl_file:
                    _load_irdl(self.options.irdl_file)
                yield context
        finally:
            handler.detach()

    def _process(self, text: str | bytes, context: Any) -> str | bytes:
        from neptune_mlir.pipelines import runner

        steps = runner.until(self.steps, self.options.stop_after)
        if self.options.run_reproducer:
            steps += runner.parse_pipeline(reproducer.pipeline_of(text))
        if not self.options.no_implicit_module:
            runner.Pipeline(steps, context)  # wrong usage is said before wrong input
        module = self._parse(text, self.path)
        if self.options.verify_roundtrip:
            self._verify_roundtrip(module)
        if self.options.dump_pass_pipeline:
            top = module.operation.name
            whole = runner.Pipeline(steps, context, top=top, whole=True)
            for _, manager in whole.managers:
                count = f"{whole.elements} passes"
                print(f"Pass Manager with {count}:\n{manager}\n", file=sys.stderr)
        always = self.options.mlir_generate_reproducer
        crashed = self.options.mlir_pass_pipeline_crash_reproducer
        before = reproducer.text_of(module, steps) if always or crashed else ""
        if always:
            _write(always, before)
        try:
            runner.run(module, steps, instruments=self.instruments)
        except Exception:
            if crashed:
                _write(crashed, before)
            raise
        return self._printed(module)

    def _parse(self, text: str | bytes, path: str | None = None) -> Any:
        """The module; of a whole file at `path`, so that its locations name it."""
        from neptune_mlir.dialects.context import load_dialects_of
        from neptune_mlir.ir.bindings import ir

        load_dialects_of(text, ir.Context.current)
        if self.options.no_implicit_module:
            return ir.Operation.parse(text, source_name=path or "")
        return ir.Module.parseFile(path) if path else ir.Module.parse(text)

    def _verify_roundtrip(self, module: Any) -> None:
        """Print and parse a module again, as text and as bytecode: it must stay the same."""
        reference = _text(module, debug=True)
        for kind, printed in (("text", reference), ("bytecode", self._bytecode(module))):
            with self._context():  # the names of resources are taken in the context of the module
                again = _text(self._parse(printed), debug=True)
            if again != reference:
                raise InputError(
                    f"the input as {kind} is another module when it is read again", loc=self.source
                )

    def _collect(self, diagnostic: Any) -> bool:
        if not (self.options.run_reproducer and reproducer.is_unread(diagnostic.message)):
            self.entries += diagnostics.of_diagnostic(diagnostic)
        return True

    def _printed(self, module: Any) -> str | bytes:
        options = self.options
        if options.emit_bytecode:
            return self._bytecode(module)
        return str(
            module.operation.get_asm(
                enable_debug_info=bool(options.mlir_print_debuginfo)
                or bool(options.mlir_pretty_debuginfo),
                pretty_debug_info=bool(options.mlir_pretty_debuginfo),
                print_generic_op_form=bool(options.mlir_print_op_generic),
                use_local_scope=bool(options.mlir_print_local_scope),
                use_name_loc_as_prefix=bool(options.mlir_use_nameloc_as_prefix),
                assume_verified=bool(options.mlir_print_assume_verified),
                skip_regions=bool(options.mlir_print_skip_regions),
                large_elements_limit=options.mlir_elide_elementsattrs_if_larger,
                large_resource_limit=options.mlir_elide_resource_strings_if_larger,
            )
        ).rstrip("\n")

    def _bytecode(self, module: Any) -> bytes:
        file = io.BytesIO()
        try:
            module.operation.write_bytecode(file, self.options.emit_bytecode_version)
        except ValueError as error:
            raise UsageError(f"cannot write bytecode: {error}") from None
        return file.getvalue()


def _text(module: Any, debug: bool = False) -> str:
    return str(module.operation.get_asm(enable_debug_info=debug))


def _load_irdl(path: str) -> None:
    """Register the dialects of an IRDL file. Raises InputError where it is none, or where a
    dialect is there already."""
    from neptune_mlir.ir.bindings import ir, irdl, known_dialects

    _read(path)  # says what MLIR does not: why a file cannot be read
    try:
        module = ir.Module.parseFile(path)
        known = known_dialects()
        for op in module.body.operations:
            name = getattr(op, "sym_name", None)
            if op.operation.name == "irdl.dialect" and name.value in known:
                # MLIR would end the process
                raise InputError(f"'{path}' defines the dialect '{name.value}', which is there")
        irdl.load_dialects(module)
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot load the dialects of '{path}'") from error


def _read(path: str) -> str | bytes:
    """A file, or what comes on stdin for "-": text, or bytecode as bytes. Raises InputError."""
    from neptune_mlir.driver.inputs import read_stdin

    try:
        data = read_stdin() if path == "-" else Path(path).read_bytes()
        return data if data.startswith(BYTECODE) else data.decode()
    except OSError as error:
        raise InputError(f"cannot open input file '{path}': {error.strerror}") from None
    except UnicodeDecodeError:
        from neptune_mlir.driver.foreign import decoded

        return decoded(data, path)  # raises


def _answer(parser: Any, options: argparse.Namespace) -> str | None:
    """What was asked for in place of a run."""
    if options.help or options.help_hidden or options.help_list:
        return opt_help.help_text(parser, bool(options.help_hidden))
    if options.version:
        return opt_help.version_text()
    if options.list_passes:
        return opt_help.list_passes()
    return opt_help.show_dialects() if options.show_dialects else None


def _run(options: argparse.Namespace) -> int:
    source = "<stdin>" if options.input == "-" else options.input
    text = _read(options.input)
    if options.split_input_file and (options.emit_bytecode or isinstance(text, bytes)):
        raise UsageError("--split-input-file works on text only")
    steps = _steps(options.steps)
    printed: list[str | bytes] = []
    failed = False
    chunks = [text] if isinstance(text, bytes) else _chunks(text, options.split_input_file)
    for chunk in chunks:
        session = _Session(options, steps, source)
        result = session.process(chunk)
        if options.verify_diagnostics:
            problems = diagnostics.check_expected(
                chunk if isinstance(chunk, str) else "",
                [e for e in session.entries if not _shows_op(e)], source,
                every=options.verify_diagnostics == "all",
            )  # fmt: skip
            diagnostics.show(problems, chunk, source)
            failed |= bool(problems)
        else:
            diagnostics.show(_wanted(session.entries, options), chunk, source)
            failed |= result is None
        printed.append("" if result is None else result)
    if any(printed) and not (failed and options.output != "-"):  # as upstream: no file of a failure
        mark = f"\n{options.output_split_marker}\n"
        whole = printed[0] if isinstance(printed[0], bytes) else mark.join(map(str, printed)) + "\n"
        _write(options.output, whole)
    return 1 if failed else 0


def _wanted(entries: Sequence[Diagnostic], options: argparse.Namespace) -> list[Diagnostic]:
    """The diagnostics that are to be shown."""
    levels = ("error", "warning", "remark")
    shown = {*levels[: 1 + levels.index(options.mlir_diagnostic_verbosity_level[:-1])]}
    if not options.mlir_disable_diagnostic_notes:
        shown.add("note")
    ops = options.mlir_print_op_on_diagnostic is not False
    return [
        e for e in entries
        if e.kind in shown and (ops or not _shows_op(e))
    ]  # fmt: skip


def _shows_op(entry: Diagnostic) -> bool:
    """Whether it is MLIR's note with the op that a diagnostic is about."""
    return entry.kind == "note" and entry.message.startswith("see current operation")


def _write(path: str, data: str | bytes) -> None:
    raw = data.encode() if isinstance(data, str) else data
    if path != "-":
        try:
            Path(path).write_bytes(raw)
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror}") from None
        return
    if isinstance(data, str):
        sys.stdout.write(data)
    else:
        sys.stdout.buffer.write(data)


def _from_files(arguments: Sequence[str]) -> list[str]:
    """Arguments, those of the file in place of each `@FILE` (LLVM's response files)."""
    found: list[str] = []
    for argument in arguments:
        path = Path(argument[1:])
        if argument.startswith("@") and path.is_file():
            found += _from_files(shlex.split(path.read_text(), comments=False))
        else:
            found.append(argument)
    return found


@collected_rarely()
def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    make_ready()
    left_at_the_end()
    parser, given = make_parser(), list(sys.argv[1:] if argv is None else argv)
    try:
        given = _from_files(given)
        options = parser.parse_args(parser.spelled(given))
        answer = _answer(parser, options)
        if answer is not None:
            _write("-", answer + "\n")
            return lost_output("neptune-opt") or 0
        return max(_run(options), lost_output("neptune-opt") or 0)
    except OSError as error:
        lost = lost_output("neptune-opt", error)
        if lost is None:
            raise
        return lost
    except NeptuneError as error:
        for entry in diagnostics.of_exception(_named(error, parser, given)):
            print(f"neptune-opt: {entry}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _named(error: NeptuneError, parser: Any, given: Sequence[str]) -> NeptuneError:
    """The error, an unknown pass that was typed as an option as what it may be as well: an unknown
    option. (A pipeline names passes alone.)"""
    from neptune_mlir.pipelines.runner import UnknownPass, known_passes

    if isinstance(error, UnknownPass) and any(
        argument.lstrip("-").partition("=")[0] == error.name for argument in given
    ):
        return unknown(error.name, [*parser.options(), *known_passes()])
    return error


if __name__ == "__main__":
    sys.exit(main())
