# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contexts with the dialects of this project, and modules parsed in them."""

from __future__ import annotations

import os
import threading
from typing import Any

from neptune_mlir.dialects import (  # noqa: F401  (their ops belong to the dialect)
    aref,
    matmul,
    paged,
    sums,
    warps,
)
from neptune_mlir.dialects.neptune import Neptune
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import (
    diagnostic_lines,
    ir,
    load_dialect,
    lock,
    module,
    passmanager,
)

DIALECTS = (Neptune,)
# What a context has seen (types, attributes, constants) stays in it to its end: one serves so many
# programs, and none whose text is as long as that of large constants.
PROGRAMS, LONG_TEXT = 32, 1 << 18


def load_dialects(context) -> None:
    """Load the dialects of this project into `context`; a second call does nothing.

    Safe from several threads: loading touches binding-wide tables, so it is serialised.
    """
    with lock, context, ir.Location.unknown():
        for dialect in DIALECTS:
            load_dialect(dialect, context)


def make_context():
    """A fresh MLIR context with every dialect of this project loaded."""
    context = ir.Context()
    load_dialects(context)
    return context


_kept = threading.local()  # another thread's diagnostics are not those of a program of this one


_inherited: list[Any] = []


def _after_fork() -> None:
    """A context may have threads, which the new process lacks: it has contexts of its own."""
    global _kept
    _inherited.append(_kept)
    _kept = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def usual_context():
    """A context for one program more: that of programs before it in this thread, or a fresh one.

    Making a context takes 10 ms, as long as a small program takes to its first level. Nobody may
    change what it allows; whoever wants to takes one from `make_context`.
    """
    left, context = getattr(_kept, "of_thread", (0, None))
    if not left:
        left, context = PROGRAMS, make_context()
    _kept.of_thread = left - 1, context
    return context


def parse(text: str, *, source: str = "<string>", context=None):
    """Parse and verify an MLIR module.

    Raises:
        InputError: the text does not parse or verify; the message lists every diagnostic
            as `file:line:col: message`.
    """
    if context is None:
        context = usual_context() if len(text) < LONG_TEXT else make_context()
    load_dialects_of(text, context)
    with context:
        try:
            return ir.Module.parse(text)
        except ir.MLIRError as error:
            raise InputError("\n".join(diagnostic_lines(error, source))) from None


# dialects of torch-mlir that no function of the bindings loads, and passes that make their ops
_LOADERS = {"tm_tensor": "convert-torch-to-tmtensor", "chlo": "convert-torch-to-stablehlo"}


def load_dialects_of(text: str | bytes, context: Any) -> None:
    """Load torch-mlir's dialects of scans and sorts, and of functions of StableHLO's clients, for a
    program that has their ops, if the bindings have them.

    No function of the bindings does. A pass that makes their ops does before it runs.
    """
    wanted = [
        loader for name, loader in _LOADERS.items()
        if (name.encode() in text if isinstance(text, bytes) else f"{name}." in text)
    ]  # fmt: skip
    if not wanted:
        return
    with lock, context, ir.Location.unknown():
        stub = ir.Module.parse("func.func private @stub()")
        try:
            module("dialects.torch")  # registers torch-mlir's passes
            passes = f"builtin.module(func.func({','.join(wanted)}))"
            passmanager.PassManager.parse(passes).run(stub.operation)
        except (ImportError, ValueError, ir.MLIRError):
            return  # other bindings: the parser says that it does not know the dialect
