# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels ask for their code before they do anything else."""

from __future__ import annotations

import re
import struct

import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.codegen.ptx import code_ahead
from neptune_mlir.codegen.ptx.text import parts_of
from neptune_mlir.driver import compiler
from neptune_mlir.errors import ToolError
from neptune_mlir.pipelines import nvvm
from neptune_mlir.targets.nvidia import nvidia


def kernel(name: str, threads: int, statements: int, *more: str) -> str:
    body = "".join(f"\tadd.u32 \t%r1, %r1, {k};\n" for k in range(statements))
    return (
        f".visible .entry {name}(\n\t.param .u64 {name}_param_0\n)\n.maxntid {threads}, 1, 1\n"
        f"{{\n\t.reg .b32 \t%r<3>;\n\n{''.join(more)}\tmov.u32 \t%r1, %tid.x;\n{body}\tret;\n}}\n"
    )


HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n\n"
EMPTY = ".visible .entry empty()\n{\n\t.reg .b32 \t%r<2>;\n\n\tret;\n}\n"
INLINE = "\t// begin inline asm\n\t{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n}\n\t// end inline asm\n"
PTX = HEAD + kernel("first", 64, 300, INLINE) + "\n" + kernel("then", 128, 30)


def asked(text: str) -> dict[str, dict[str, int]]:
    """The kernels that each kernel asks for, and how many lines of each."""
    return {
        part.kernel: {
            name: int(count)
            for count, name in re.findall(
                r"setp\.lt\.u32 %code_there, %code_line, (\d+);\s+mov\.u64 %code_at, (\w+);",
                "\n".join(part.lines),
            )
        }
        for part in parts_of(text)
        if part.kernel
    }


def test_a_kernel_asks_for_itself_and_for_those_behind_it() -> None:
    text = code_ahead.ask_for_code(PTX, nvidia("sm_90a"))
    assert asked(text) == {"first": {"first": 48, "then": 5}, "then": {"then": 5}}
    assert text.count("prefetch.global.L2") == 3
    # each block has the lines behind those of the one before
    assert "mad.lo.u32 %code_line, %code_line, 64, %code_thread;" in text
    assert "mad.lo.u32 %code_line, %code_line, 128, %code_thread;" in text
    assert text.index("%code_at, then") < text.index(INLINE)  # before anything else
    try:
        made = ptxas.assemble(text, nvidia("sm_90a"))
    except ToolError as error:
        pytest.skip(str(error))
    assert set(made.figures) == {"first", "then"} and not made.warnings


def test_kernels_without_parameters_and_declarations() -> None:
    text = code_ahead.ask_for_code(HEAD + kernel("first", 32, 1) + EMPTY, nvidia("sm_90a"))
    assert asked(text) == {"first": {"first": 1, "empty": 1}, "empty": {"empty": 1}}
    assert ".visible .entry empty();\n" in text
    assert [part.kernel for part in parts_of(text) if part.kernel] == ["first", "empty"]


def test_older_targets_do_not_ask() -> None:
    assert code_ahead.ask_for_code(PTX, nvidia("sm_80")) == PTX


def code_sizes(cubin: bytes) -> dict[str, int]:
    """Bytes of each kernel: sections of an ELF file whose names say so."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + k * size) for k in range(count)]
    text = sections[names][4]
    found = {}
    for name, _, _, _, _, length in sections:
        label = cubin[text + name : cubin.index(b"\0", text + name)].decode()
        if label.startswith(".text."):
            found[label.removeprefix(".text.")] = length
    return found


def test_lines_cover_the_code() -> None:
    """Those that a kernel asks for are all that the assembler makes of it."""
    module, _ = compiler.lower_text(
        ops.softmax(rows=8, cols=1024).to_mlir(), "test", "sm_90a", None, "tile", ""
    )
    text = nvvm.emit_tiles(module, "ptx", target="sm_90a")
    try:
        sizes = code_sizes(ptxas.assemble(text, nvidia("sm_90a")).code)
    except ToolError as error:
        pytest.skip(str(error))
    assert sizes
    for name, size in sizes.items():
        lines = asked(text)[name][name]
        assert size <= lines * code_ahead.LINE <= 2 * size
