# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code generators and assemblers as tools/golden.py sees them: what they are given, and results
that are no failures kept by content.

A compiler of any commit calls them through `subprocess.run` (ptxas, LLVM in a child of Python, a
linker) or `llvmlite`. These two are replaced while a program compiles: no module of the compiler
is named here, so none has to stay where it is. But for one: a compiler whose LLVM runs in forks of
another process (`neptune_mlir.child`) runs it as a command here.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import io
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

JOIN = 600  # seconds to wait for code generators that nobody waited for
_PARSING = threading.Lock()  # CPython 3.11 fails where two threads make syntax trees at once


def default_folder() -> Path:
    chosen = os.environ.get("NEPTUNE_CACHE_DIR")
    if chosen:
        return Path(chosen) / "golden"
    import platformdirs

    return Path(platformdirs.user_cache_dir("neptune-mlir")) / "golden"


class Tools:
    """`folder`: where results are kept. `tree`: the checkout that is imported."""

    def __init__(self, folder: Path, tree: Path):
        self.folder, self.tree = folder, tree
        self._given: list[bytes] = []
        self._before: set[threading.Thread] = set()

    def begin(self) -> None:
        """Forget what was given, and note which threads run."""
        self._given.clear()
        self._before = set(threading.enumerate())

    def end(self) -> list[bytes]:
        """What code generators and assemblers were given as text since `begin`, in no order.

        A compilation that ends with an error leaves threads that still generate code. What these
        are given counts, and it is to count in each run.
        """
        for thread in set(threading.enumerate()) - self._before:
            thread.join(JOIN)
        return list(self._given)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        import llvmlite.binding as llvm

        run, parse = subprocess.run, llvm.parse_assembly

        def parse_and_note(text: str, *more: Any, **named: Any) -> Any:
            self._given.append(text.encode())
            return parse(text, *more, **named)

        def run_or_find(command: Sequence[Any], *more: Any, **named: Any) -> Any:
            call = Call.of(command, named) if not more else None
            if call is None:
                return run(command, *more, **named)
            self._given += [text for text in call.texts if _is_text(text)]
            return self._cached(call, lambda: run(command, **named))

        subprocess.run, llvm.parse_assembly = run_or_find, parse_and_note  # type: ignore
        try:
            with _forks_as_commands():
                yield
        finally:
            subprocess.run, llvm.parse_assembly = run, parse

    def _cached(self, call: Call, run: Any) -> Any:
        path = self.folder / call.key(self.tree)
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            return call.replay(pickle.loads(path.read_bytes()))
        done = run()
        if done.returncode:  # perhaps the machine's fault, or that of a tree mended since
            return done
        result = pickle.dumps(call.result(done))
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(result)
            os.replace(temporary, path)
        return done


@contextlib.contextmanager
def _forks_as_commands() -> Iterator[None]:
    try:
        from neptune_mlir import child

        forked, start = child.forked, child.start
    except (ImportError, AttributeError):  # a compiler that has none
        yield
        return
    child.start = lambda module: None
    child.forked = lambda module, arguments, *more: child.run(
        [sys.executable, "-m", module, *arguments], *more
    )
    try:
        yield
    finally:
        child.forked, child.start = forked, start


class Call:
    """A command that makes a file (`-o FILE`) or standard output from files or standard input.

    Attributes:
        command: its words; files are replaced by the hash of what is in them.
        texts: what is in them.
        output: the file that it writes, if any.
        stream: the open file that takes its standard output, if any.
    """

    def __init__(self, words: Sequence[str], named: dict[str, Any]):
        self.texts: list[bytes] = []
        self.output = Path(words[words.index("-o") + 1]) if "-o" in words else None
        self.stream = named.get("stdout") if hasattr(named.get("stdout"), "read") else None
        self.command = [words[0], *map(self._word, words[1:])]
        self.tool = words
        self.form = bool(named.get("text"))
        given = named.get("stdin")
        if hasattr(given, "read"):
            self.texts.append(given.read())
            given.seek(0)

    @staticmethod
    def of(command: Sequence[Any], named: dict[str, Any]) -> Call | None:
        """The call, or None for one that makes nothing from content (`--version`)."""
        if isinstance(command, str) or named.get("input") is not None:
            return None
        call = Call([os.fspath(word) for word in command], named)
        return call if call.texts and (call.output or call.stream) else None

    def _word(self, word: str) -> str:
        if self.output and word == str(self.output):
            return "OUTPUT"
        if not os.path.isfile(word):
            return word
        self.texts.append(Path(word).read_bytes())
        return "FILE"

    def key(self, tree: Path) -> str:
        found = hashlib.sha256(repr((self.command, self.form, _identity(self.tool, tree))).encode())
        for text in self.texts:
            found.update(hashlib.sha256(text).digest())
        return found.hexdigest()

    def result(self, done: Any) -> tuple[Any, ...]:
        written = self.output.read_bytes() if self.output and self.output.exists() else None
        streamed = None
        if self.stream:
            self.stream.seek(0)
            streamed = self.stream.read()
        return done.returncode, done.stdout, done.stderr, written, streamed

    def replay(self, result: tuple[Any, ...]) -> Any:
        code, stdout, stderr, written, streamed = result
        if written is not None and self.output:
            self.output.write_bytes(written)
        if streamed is not None and self.stream:
            self.stream.write(streamed)
            self.stream.flush()
        return subprocess.CompletedProcess(self.tool, code, stdout, stderr)


def _is_text(data: bytes) -> bool:
    """Whether a file is LLVM IR or PTX, and no object file."""
    return b"\0" not in data


def _identity(words: Sequence[str], tree: Path) -> Any:
    """What the result of a command depends on besides its words and what it is given."""
    if "-m" not in words or Path(words[0]).name != Path(sys.executable).name:
        stat = os.stat(words[0])
        return words[0], stat.st_size, stat.st_mtime_ns
    module = words[words.index("-m") + 1]
    versions = [sys.version]
    for name in ("llvmlite", module.partition(".")[0]):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(metadata.version(name))
    with _PARSING:
        return tuple(versions), sources(module, tree)


@functools.cache
def sources(module: str, tree: Path) -> str:
    """A hash of a module's file and of those that it imports, as far as they are in `tree`."""
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        stem = tree.joinpath(*name.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if name in found or not path.is_file():
                continue
            found[name] = path.read_bytes()
            waiting += _imports(found[name])
    listed = io.BytesIO()
    for name in sorted(found):
        listed.write(f"{name} {len(found[name])}\n".encode() + found[name])
    return hashlib.sha256(listed.getvalue()).hexdigest()


def _imports(source: bytes) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found
