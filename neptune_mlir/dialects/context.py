# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contexts with the dialects of this project, and modules parsed in them."""

from __future__ import annotations

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


def parse(text: str, *, source: str = "<string>", context=None):
    """Parse and verify an MLIR module.

    Raises:
        InputError: the text does not parse or verify; the message lists every diagnostic
            as `file:line:col: message`.
    """
    context = context or make_context()
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
