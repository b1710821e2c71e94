# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs suites of lit tests in this process, for `test_lit.py`.

A tool takes a second, most of it to import what a pass needs, and a process of its own for each
command costs more than what the command does: a fork of a process that has imported all that
copies thousands of pages. So lit runs here, once for a suite, and gets something else for the
processes of `neptune-opt` and `filecheck`: a call of what these run, with the arguments, files and
folder that lit gives. Commands of `neptune` and of Python, and all with an environment of their
own, are forks. Other programs are processes. `lit test/lit` does none of this.

    python -m support.lit_process      a line with SUITE and FOLDER for each suite

The answer is a line with an exit status; what was run and how it failed is in FOLDER/said.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = ("neptune_mlir.cli.opt", "filecheck")  # what commands run in this process
FORKED = ("neptune_mlir.cli.main", "-c")
STREAMS = (0, 1, 2)
NAMED = "LIT_CURRENT_TESTCASE"  # in the environment of each command


def preload() -> None:
    """Import what commands import."""
    import neptune_mlir

    apart = ("neptune_mlir.torch", "neptune_mlir.bench")
    for found in pkgutil.walk_packages(neptune_mlir.__path__, "neptune_mlir."):
        if found.name.startswith(apart) or found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:  # of a package that is not asked of everybody
            if str(error.name).startswith("neptune_mlir"):
                raise
    importlib.import_module("filecheck.main")
    importlib.import_module("neptune_mlir.codegen.llvm_child").start()  # one for all commands
    importlib.import_module("support.effort").begin()
    importlib.import_module("support.kept_code").install()
    gc.freeze()  # no command looks at what all have, which would give it pages of its own


class Command:
    """A command that has ended, as lit sees a process. What it wrote is in files in place of pipes,
    for nobody reads while it runs."""

    def __init__(
        self, args: list[str], stdin: Any, stdout: Any, stderr: Any, folder: str,
        environment: dict[str, str], forked: bool,
    ):  # fmt: skip
        self.args, self.pid = args, os.getpid()
        self.stdin = open(os.devnull) if stdin == subprocess.PIPE else None
        self.stdout, self.stderr = (
            tempfile.TemporaryFile("w+", errors="replace") if stream == subprocess.PIPE else None
            for stream in (stdout, stderr)
        )
        out = self.stdout or stdout
        err = out if stderr == subprocess.STDOUT else self.stderr or stderr
        files = [f.fileno() for f in (self.stdin or stdin, out, err)]
        main = partial(_within, args[1:], files, folder, environment)
        self.returncode = (_in_a_fork if forked else _and_back)(main)
        for file in filter(None, (self.stdout, self.stderr)):
            file.seek(0)

    def communicate(self) -> tuple[str | None, str | None]:
        """What it wrote to its standard output and error, where these are not files of lit's."""
        return self.stdout and self.stdout.read(), self.stderr and self.stderr.read()

    def wait(self) -> int:
        """Its exit status."""
        return self.returncode


def _in_a_fork(main: Callable[[], int]) -> int:
    """The exit status of a fork that calls `main`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = main()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _and_back(main: Callable[[], int]) -> int:
    """What `main` returns. Files, folder, environment and arguments are what they were then."""
    folder, environment, arguments = os.getcwd(), dict(os.environ), sys.argv
    streams, files = (sys.stdin, sys.stdout, sys.stderr), [os.dup(stream) for stream in STREAMS]
    try:
        return main()
    finally:
        for stream, file in zip(STREAMS, files, strict=True):
            os.dup2(file, stream)
            os.close(file)
        sys.argv, (sys.stdin, sys.stdout, sys.stderr) = arguments, streams
        os.chdir(folder)
        _set_environment(environment)


def _set_environment(environment: dict[str, str]) -> None:
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)


def _within(
    args: list[str], files: list[int], folder: str, environment: dict[str, str]
) -> int:  # fmt: skip
    """The exit status of Python with these arguments, files, folder and environment."""
    for stream, file in zip(STREAMS, files, strict=True):
        os.dup2(file, stream)
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", 1, closefd=False)
    os.chdir(folder)
    _set_environment(environment)
    try:
        # what a command sets for itself ends with it
        status: int = contextvars.copy_context().run(_main, *args)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what MLIR printed
    return status


def _main(option: str, name: str, *arguments: str) -> int:
    sys.argv = [name, *arguments]
    if option == "-c":
        exec(name, {"__name__": "__main__"})
        return 0
    main: Any = importlib.import_module("filecheck.main" if name == "filecheck" else name)
    return main.main() or 0


def processes(environment: dict[str, str]) -> Callable[..., Any]:
    """What lit calls for each command in place of `subprocess.Popen`.

    Args:
        environment: of commands that have none of their own.
    """

    def begin(args: list[str], **given: Any) -> Any:
        option = args[1] if len(args) > 2 else ""
        name = option if option == "-c" else args[2] if option == "-m" else ""
        if args[0] != sys.executable or name not in (*HERE, *FORKED):
            return subprocess.Popen(args, **given)
        streams = (given[k] for k in ("stdin", "stdout", "stderr"))
        own = {k: v for k, v in given["env"].items() if k != NAMED}
        forked = name in FORKED or own != environment
        return Command(args, *streams, given["cwd"], given["env"], forked)

    return begin


def run(suite: str, folder: str) -> int:
    """Run a suite; whether a test of it failed."""
    import lit.discovery
    import lit.TestRunner
    import lit.worker
    from lit.LitConfig import LitConfig

    os.environ["NEPTUNE_LIT_OUTPUT"] = folder
    config = LitConfig("lit", [], "note", False, False, [], False, False, False, "smart", {})
    tests = lit.discovery.find_tests_for_inputs(config, [suite])
    begin = processes(tests[0].config.environment)
    lit.TestRunner.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": begin})
    failed = 0
    with open(Path(folder) / "said", "w") as said:
        for test in tests:
            print(test.getFullName(), file=said, flush=True)  # where it dies, it was this one
            result = lit.worker._execute(test, config)
            if result.code.isFailure:
                failed = 1
                print(result.output, file=said, flush=True)
    return failed


def serve() -> None:
    """Run the suites that standard input names, each in a fork, until it ends."""
    preload()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = run(*line.split())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
