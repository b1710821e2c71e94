# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts of types."""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir.bindings import ir

_TEXTS: dict[Any, str] = {}  # of classes that have one type: floats, index


def type_text(kind: Any) -> str:
    """The text of a type.

    Bodies of loops ask it of the type of each op and read, thousands of times a program. MLIR
    writes a text in the time of ten calls, so what most ops have is known by its class.
    """
    made = type(kind)
    text = _TEXTS.get(made)
    if text is None:
        if made is ir.IntegerType and kind.is_signless:
            return f"i{kind.width}"
        text = str(kind)
        if issubclass(made, (ir.FloatType, ir.IndexType)):
            _TEXTS[made] = text
    return text
