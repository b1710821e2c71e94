# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The notes of an HSACO: what AMD's loader is told of each kernel.

An HSACO is an ELF shared object; the note named AMDGPU of type 32 is a MessagePack map.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.errors import ToolError

_NOTE_SECTION, _METADATA = 7, 32  # SHT_NOTE, NT_AMDGPU_METADATA


@dataclass(frozen=True)
class KernelNotes:
    """What the notes say of a kernel; sizes in bytes.

    Attributes:
        arguments: offset, size and kind ("global_buffer" or "by_value") of each.
        registers: vector registers of a thread, accumulation registers included.
        scalars: scalar registers of a wave.
        shared: local memory of a block.
        scratch: private memory of a thread: not 0 where registers spill.
        threads: of a block.
        wave: lanes of a wave.
    """

    name: str
    arguments: tuple[tuple[int, int, str], ...]
    kernarg: int
    registers: int
    scalars: int
    spills: int
    shared: int
    scratch: int
    threads: int
    wave: int


def read_notes(code: bytes) -> tuple[str, dict[str, KernelNotes]]:
    """The target that an HSACO is for (`amdgcn-amd-amdhsa--gfx942`), and its kernels by name.

    Raises:
        ToolError: not an HSACO.
    """
    try:
        metadata = _metadata(code)
        kernels = [_kernel(k) for k in metadata["amdhsa.kernels"]]
        return str(metadata["amdhsa.target"]), {k.name: k for k in kernels}
    except (struct.error, IndexError, KeyError, StopIteration, UnicodeDecodeError) as error:
        raise ToolError(f"not an HSACO: {type(error).__name__} {error}") from None


def check(
    notes: KernelNotes, sizes: Sequence[int], *, threads: int, shared: int, wave: int
) -> None:
    """Compare a kernel's notes with what the bundle will launch.

    Args:
        sizes: bytes of each argument, in order; each is aligned to its size.

    Raises:
        ToolError: they differ: launched so, the kernel would read other arguments or memory.
    """
    expected, offset = [], 0
    for size in sizes:
        offset = -(-offset // size) * size
        expected.append((offset, size))
        offset += size
    found = [(start, size) for start, size, _ in notes.arguments]
    for what, have, want in (
        ("arguments (offset, size)", found, expected),
        ("threads of a block", notes.threads, threads),
        ("shared memory", notes.shared, shared),
        ("lanes of a wave", notes.wave, wave),
    ):
        if have != want:
            raise ToolError(
                f"kernel '{notes.name}': its notes say {have} for {what}, the bundle {want}"
            )


def _kernel(entry: dict[str, Any]) -> KernelNotes:
    arguments = tuple(
        (a[".offset"], a[".size"], a[".value_kind"])
        for a in entry.get(".args", [])
        if not a[".value_kind"].startswith("hidden_")
    )
    spills = 4 * (entry[".vgpr_spill_count"] + entry[".sgpr_spill_count"])
    return KernelNotes(
        entry[".name"], arguments, entry[".kernarg_segment_size"], entry[".vgpr_count"],
        entry[".sgpr_count"], spills, entry[".group_segment_fixed_size"],
        entry[".private_segment_fixed_size"], entry[".max_flat_workgroup_size"],
        entry[".wavefront_size"],
    )  # fmt: skip


def _metadata(code: bytes) -> dict[str, Any]:
    if code[:6] != b"\x7fELF\x02\x01":
        raise ToolError("not an HSACO: no 64-bit ELF file")
    (sections,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    for k in range(count):
        header = struct.unpack_from("<IIQQQQIIQQ", code, sections + k * size)
        kind, start, length = header[1], header[4], header[5]
        at = start
        while kind == _NOTE_SECTION and at < start + length:
            name_size, note_size, note = struct.unpack_from("<III", code, at)
            name = code[at + 12 : at + 12 + name_size].rstrip(b"\0")
            body = at + 12 + -(-name_size // 4) * 4
            if name == b"AMDGPU" and note == _METADATA:
                return dict(_MessagePack(code[body : body + note_size]).value())
            at = body + -(-note_size // 4) * 4
    raise ToolError("not an HSACO: it has no AMDGPU note")


class _MessagePack:
    """MessagePack, as much of it as notes use."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise IndexError("the note ends early")
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self) -> Any:
        head = self.take(1)[0]
        if head < 0x80:
            return head
        if head >= 0xE0:
            return head - 256
        if head < 0x90:
            return self.map(head & 15)
        if head < 0xA0:
            return self.array(head & 15)
        if head < 0xC0:
            return self.text(head & 31)
        if head in _CONSTANTS:
            return _CONSTANTS[head]
        if head in _NUMBERS:
            return self.number(_NUMBERS[head])
        length = self.number(_LENGTHS[head])
        if head <= 0xDB:
            return self.text(length)
        return self.array(length) if head <= 0xDD else self.map(length)

    def text(self, length: int) -> str:
        return self.take(length).decode()

    def array(self, length: int) -> list[Any]:
        return [self.value() for _ in range(length)]

    def map(self, length: int) -> dict[Any, Any]:
        return {self.value(): self.value() for _ in range(length)}


_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
            0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}  # fmt: skip
_LENGTHS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
