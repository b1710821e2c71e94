# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contexts with the dialects of this project, and modules parsed in them."""

from __future__ import annotations

from neptune_mlir.dialects import aref, matmul, warps  # noqa: F401  (their ops belong to the dialect)
from neptune_mlir.dialects.neptune import Neptune
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import diagnostic_lines, ir, load_dialect, lock

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
    with context:
        try:
            return ir.Module.parse(text)
        except ir.MLIRError as error:
            raise InputError("\n".join(diagnostic_lines(error, source))) from None
