# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts of types are MLIR's, and written by it once for each class that has one type."""

import pytest

from neptune_mlir.ir import types
from neptune_mlir.ir.bindings import ir

KINDS = [
    "f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2", "index", "i1", "i8", "i64", "si8", "ui32",
    "none", "tensor<4x?xf32>", "vector<4xi1>", "complex<f32>", "memref<3xindex>",
]  # fmt: skip


@pytest.mark.parametrize("text", KINDS)
def test_texts_are_those_of_mlir(text):
    for _ in range(2):  # the second time by what is known
        with ir.Context():
            assert types.type_text(ir.Type.parse(text)) == text


def test_a_text_is_written_once(monkeypatch):
    written = []
    write = ir.Type.__str__
    monkeypatch.setattr(types, "_TEXTS", {})
    monkeypatch.setattr(ir.Type, "__str__", lambda kind: written.append(kind) or write(kind))
    with ir.Context():
        for text in ("f32", "f32", "index", "i1", "i64", "index", "f16"):
            types.type_text(ir.Type.parse(text))
        assert [write(kind) for kind in written] == ["f32", "index", "f16"]
