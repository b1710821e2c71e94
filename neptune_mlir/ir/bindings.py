# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The only module that knows which MLIR Python package is in use.

An installed `mlir` package wins where it offers what this project needs (`REFUSED` says why not);
else `torch_mlir`, whose wheel carries the whole upstream binding set. Everything else in this
project imports MLIR names from here:

    from neptune_mlir.ir.bindings import ir, arith, func, linalg, ...

It also wraps the calls that can kill the process (see `check_translatable`).
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from neptune_mlir.errors import ToolError
from neptune_mlir.ir.structured import dialect_of, meet_by_name

# What a package has to offer. Others are called `mlir` too, and old bindings have no Python passes.
_NEEDED = {
    "ir": ("Context", "Module", "MLIRError", "WalkResult"),
    "passmanager": ("PassManager", "ExternalPass"),
    "dialects.ext": ("Dialect", "Operand", "Result"),
}

# packages that are installed and not used: why
REFUSED: dict[str, str] = {}


def _lack(package: str) -> str | None:
    """Why a package cannot serve; None where it can."""
    for name, needed in _NEEDED.items():
        try:
            found = importlib.import_module(f"{package}.{name}")
        except Exception as error:  # whatever a stranger's package does when it is imported
            return f"{package}.{name} cannot be imported ({type(error).__name__}: {error})"
        missing = [what for what in needed if not hasattr(found, what)]
        if missing:
            return f"{package}.{name} has no {missing[0]}"
    return None


def _is_installed(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None


TORCH_MLIR = "torch_mlir"  # the package that has importers and a tool of its own as well


def choose_package(candidates: Sequence[str] = ("mlir", TORCH_MLIR)) -> str:
    """The first candidate that offers what is needed. Raises ToolError where none does."""
    for package in candidates:
        if _is_installed(package):
            lack = _lack(package)
            if lack is None:
                return package
            REFUSED[package] = lack
    raise ToolError(
        "no MLIR Python bindings are usable: " + "; ".join(REFUSED.values())
        if REFUSED
        else "no MLIR Python bindings are installed",
        hint="pip install torch-mlir  (or the 'mlir' wheel of llvm/eudsl)",
    )


PACKAGE: str = choose_package()


def module(name: str) -> ModuleType:
    """Import `name` of the bindings package, e.g. `module("dialects.gpu")`."""
    return importlib.import_module(f"{PACKAGE}.{name}")


ir = module("ir")
passmanager = module("passmanager")
ext = module("dialects.ext")
func = module("dialects.func")
arith = module("dialects.arith")
meet_by_name(PACKAGE)

_LAZY = {
    "math", "scf", "tensor", "affine", "memref", "vector", "bufferization",
    "transform", "builtin", "gpu", "nvvm", "rocdl", "nvgpu", "amdgpu", "cf",
    "index", "irdl",
}  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    # Dialect modules load on first use, so that `import neptune_mlir` stays fast.
    if name == "linalg":
        return dialect_of(PACKAGE)
    if name == "llvm":
        return importlib.import_module("neptune_mlir.ir.llvm")
    if name in _LAZY:
        return module(f"dialects.{name}")
    if name in ("rewrite", "execution_engine"):
        return module(name)
    raise AttributeError(f"module 'neptune_mlir.ir.bindings' has no attribute '{name}'")


# The bindings keep tables for the whole process (op classes, type casters), and a Python-defined
# dialect holds the module of the context that loaded it last. Whoever loads dialects or compiles
# holds this lock; the interpreter's own lock would serialise the work anyway.
lock = threading.RLock()


def exclusive(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the function runs under `lock`."""

    @functools.wraps(function)
    def locked(*arguments: Any, **named: Any) -> Any:
        with lock:
            return function(*arguments, **named)

    return locked


def load_dialect(dialect: Any, context: Any) -> bool:
    """Load a Python-defined dialect into the current context; False where it is there already.

    For every op of a dialect the bindings look for a module of its name in their own package,
    and look again when there was none: 50 us each. So the module that defines it stands there.
    """
    name = dialect.DIALECT_NAMESPACE
    if context.is_dialect_loaded(name):
        return False
    sys.modules.setdefault(f"{PACKAGE}.dialects.{name}", sys.modules[dialect.__module__])
    dialect.load()
    return True


_source_name: contextvars.ContextVar[str | None] = contextvars.ContextVar("source", default=None)


@contextlib.contextmanager
def source_name(name: str) -> Iterator[None]:
    """Inside the `with` block, locations in parsed text are reported as in file `name`.

    MLIR calls every parsed string "-"; the command line knows where the text came from.
    """
    token = _source_name.set(name)
    try:
        yield
    finally:
        _source_name.reset(token)


def source_of_now() -> str | None:
    """What `source_name` said last."""
    return _source_name.get()


_IN_FILE = re.compile(r'"[^"]*":\d+:\d+')


def location_text(loc, source: str | None = None) -> str:
    """`file:line:col` of an MLIR location, or its own text when it has no file."""
    source = source or _source_name.get()
    try:
        if isinstance(loc, ir.FileLineColLoc):
            name = source if source and loc.filename in ("-", "<string>") else loc.filename
            return f"{name}:{loc.start_line}:{loc.start_col}"
        if isinstance(loc, ir.NameLoc) and loc.child_loc == ir.Location.unknown(loc.context):
            return str(loc.name_str)  # a place in a program of another kind
        if isinstance(loc, ir.FusedLoc):
            known = [x for x in loc.locations if x != ir.Location.unknown(loc.context)]
            return location_text((known or loc.locations)[0], source)
    except AttributeError:
        pass
    text = str(loc)
    if text.startswith("loc(") and text.endswith(")"):
        text = text[4:-1]
    if text.startswith("callsite(") and (place := _IN_FILE.search(text)):
        text = place[0]  # where it was written, not from where it was called
    if text.startswith('"-":') and source:
        text = source + text[3:]
    return text.replace('"', "")


def diagnostic_lines(error, source: str | None = None) -> list[str]:
    """Every diagnostic of an `MLIRError`, notes included, one per line."""
    lines = []
    for diagnostic in error.error_diagnostics:
        lines.append(f"{location_text(diagnostic.location, source)}: error: {diagnostic.message}")
        for note in diagnostic.notes:
            lines.append(f"{location_text(note.location, source)}: note: {note.message}")
    return lines or [str(error)]


def known_dialects() -> list[str]:
    """The names of the dialects that the current context has or could load, in order."""
    try:
        # the bindings have no list of dialects, but this error has
        ir.Module.parse("no_such_dialect.op")
    except ir.MLIRError as error:
        notes = [note.message for found in error.error_diagnostics for note in found.notes]
    listed = "".join(notes).partition("dialects: ")[2].partition("(* ")[0].partition(";")[0]
    return sorted(re.findall(r"[\w.]+", listed))
