# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts object files into this process.

What an object file needs from outside (the C library's math, conversions of narrow floats that
old CPUs lack) is looked up here by name first, and who lacks one is told where it comes from.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import itertools
import os
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neptune_mlir.errors import ToolError
from neptune_mlir.targets.cpu import host_features

# of all that llvmlite does in this process: its global context takes one thread at a time
llvm_lock = threading.Lock()
_LIBRARIES = ("libm.so.6", "libgcc_s.so.1", "libSystem.dylib")


def load(code: bytes, names: Sequence[str]) -> tuple[Any, list[int]]:
    """Load an object file: what keeps it in memory, and the addresses of the functions.

    Raises:
        ToolError: it lacks one of the functions, or needs one that this machine does not have.
    """
    import llvmlite.binding as llvm

    with llvm_lock:
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in undefined_symbols(code):
            library.import_symbol(name, _address(name))
        mapped = functions(code) if os.environ.get("NEPTUNE_PERF_MAP") else {}
        for name in (*names, *mapped):
            library.export_symbol(name)
        try:
            linked = library.link(_linker(), f"object {next(_numbers)}")
        except RuntimeError as error:
            raise ToolError(f"the compiled code has not what its plan names: {error}") from None
        if mapped:
            write_perf_map((linked[name], size, name) for name, size in mapped.items())
        return linked, [linked[name] for name in names]


def check_machine(needs: Mapping[str, Any]) -> None:
    """Refuse code for another machine than this one: its first such instruction would end the
    process. `needs` is what a bundle says (`CpuTarget.needs`); {} from before bundles said it.

    Raises:
        ToolError: another architecture, or instructions that this CPU lacks.
    """
    triple, have = _machine()
    wanted = str(needs.get("triple", triple))
    if wanted.partition("-")[0] != triple.partition("-")[0]:
        raise ToolError(
            f"the bundle was compiled for {wanted}, and this machine is {triple}",
            hint="compile it again here",
        )
    missing = [feature for feature in needs.get("features", ()) if not have.get(feature)]
    if missing:
        raise ToolError(
            f"the bundle was compiled for a CPU with {', '.join(missing)}, which this one lacks",
            hint="compile it here, or with NEPTUNE_CPU=x86-64-v3 for most machines",
        )


@functools.cache
def _machine() -> tuple[str, dict[str, bool]]:
    import llvmlite.binding as llvm

    return llvm.get_process_triple(), host_features()


@functools.cache
def has_compiler() -> bool:
    """Whether llvmlite is there: a machine that only runs kernels on GPUs may lack it."""
    return importlib.util.find_spec("llvmlite") is not None


def compile_text(text: str, names: Sequence[str]) -> tuple[Any, list[int]]:
    """Compile LLVM IR that calls the C library at most: what keeps it in memory, and the
    addresses of the functions."""
    import llvmlite.binding as llvm

    with llvm_lock:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), _target_machine())
        engine.finalize_object()
        return engine, [engine.get_function_address(name) for name in names]


@functools.cache
def _linker() -> Any:
    """LLVM's JIT linker. It takes one piece of memory for all of an object: code reaches its
    constants over 2 GiB at most. (The loader of `compile_text` takes one for each kind of section,
    wherever one is free, and needs code of the large model.)"""
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(_target_machine(), use_jit_link=True)


_numbers = itertools.count()  # names of libraries


def _target_machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(opt=1, jit=True)


def _address(name: str) -> int:
    for library in _libraries():
        try:
            return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
        except AttributeError:
            continue
    raise ToolError(
        f"the compiled code calls '{name}', which no library of this machine has",
        hint="install the GCC runtime library (libgcc_s) of GCC 12 or later",
    )


@functools.cache
def _libraries() -> tuple[Any, ...]:
    found = [ctypes.CDLL(None)]
    for name in _LIBRARIES:
        try:
            found.append(ctypes.CDLL(name))
        except OSError:
            continue
    return tuple(found)


def undefined_symbols(code: bytes) -> list[str]:
    """Names that an object refers to and does not define (see `_symbols`)."""
    return [name for name, _, section, _ in _symbols(code) if section == 0]  # SHN_UNDEF


def functions(code: bytes) -> dict[str, int]:
    """The functions of an object that others may call, and their sizes."""
    return {name: size for name, kind, section, size in _symbols(code) if kind == 2 and section}


def write_perf_map(found: Iterable[tuple[int, int, str]]) -> None:
    """Tell `perf` what loaded functions are called (addresses, sizes, names): it reads
    /tmp/perf-PID.map."""
    with open(f"/tmp/perf-{os.getpid()}.map", "a") as file:
        file.writelines(f"{address:x} {size:x} {name}\n" for address, size, name in found)


def _symbols(code: bytes) -> list[tuple[str, int, int, int]]:
    """Name, kind, section and size of each symbol of a 64-bit little-endian ELF object that is not
    its own alone (none of another format: its loader resolves them itself)."""
    if code[:6] != b"\x7fELF\x02\x01":
        return []
    (sections,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", code, sections + k * size) for k in range(count)]
    found = []
    for _, kind, _, _, offset, length, link, _, _, entry in headers:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = headers[link][4]
        for at in range(offset + entry, offset + length, entry):
            name, info, _, section, _, extent = struct.unpack_from("<IBBHQQ", code, at)
            start = strings + name
            text = code[start : code.index(b"\0", start)].decode()
            if info >> 4:  # STB_LOCAL is 0
                found.append((text, info & 0xF, section, extent))
    return [symbol for symbol in found if symbol[0]]
