# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code for AArch64, made on any machine: the encodings of relocations, and (where a cross compiler
and an emulator are installed) programs that the C runtime runs there."""

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest

from neptune_mlir.driver import compiler
from neptune_mlir.driver.inputs import random_inputs, to_float64
from neptune_mlir.driver.kernel import Kernel, Source
from neptune_mlir.errors import ToolError, UsageError
from neptune_mlir.runtime.cpu import CpuExecutable
from neptune_mlir.targets import cpu
from support import c_runtime

ROOT = Path(__file__).parents[3]
TOOLS = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
emulated = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
EM_AARCH64, BAD_FILE = 183, 1


@pytest.fixture
def arm(monkeypatch):
    monkeypatch.setenv("NEPTUNE_CPU", "armv8-a")
    cpu.host.cache_clear()
    yield cpu.host()
    cpu.host.cache_clear()


def compiled(name):
    text = (ROOT / "test" / "inputs" / f"{name}.mlir").read_text()
    return compiler.compile_text(text, f"{name}.mlir", "cpu", None, None)


# ---- what is known of the target


def test_targets():
    base = cpu.describe("generic", {"neon": True}, "aarch64-unknown-linux-gnu")
    assert (base.vector_bits, base.vector_registers, base.fma, base.lanes) == (128, 32, True, 4)
    assert cpu.describe("apple-m1", {}, "arm64-apple-darwin23").is_arm
    old = cpu.describe("x86-64", {"sse2": True}, "x86_64-unknown-linux-gnu")
    assert (old.vector_bits, old.vector_registers, old.fma) == (128, 16, False)


def test_names(monkeypatch, arm):
    assert arm.triple.startswith("aarch64") and arm.needs()["features"] == ["fp-armv8", "neon"]
    monkeypatch.setenv("NEPTUNE_CPU", "m68k")
    cpu.host.cache_clear()
    with pytest.raises(UsageError, match="NEPTUNE_CPU is 'm68k'"):
        cpu.host()


def test_compiled_here_refused_here(arm, tmp_path):
    """A bundle for another machine can be made, and saved, but not called."""
    bundle = compiled("logsumexp_keepdim")
    assert struct.unpack_from("<H", bundle.code, 18) == (EM_AARCH64,)
    kernel = Kernel(Source("", "x"), "cpu", None, bundle)
    kernel.save(tmp_path / "x.bundle")
    if not cpu.is_arm(llvmlite.binding.get_process_triple()):
        with pytest.raises(ToolError, match="compiled for aarch64"):
            kernel(np.zeros((2, 3), np.float32))


# ---- relocations


class Relocation(ctypes.Structure):
    """np_relocation"""

    _fields_ = (
        ("type", ctypes.c_uint32), ("at", ctypes.c_void_p), ("room", ctypes.c_size_t),
        ("target", ctypes.c_uint64), ("slot", ctypes.c_uint64), ("stub", ctypes.c_uint64),
        ("outside", ctypes.c_bool), ("addend", ctypes.c_int64),
    )  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if c_runtime.compiler() is None:
        pytest.skip("there is no C compiler")
    return ctypes.CDLL(str(c_runtime.build(tmp_path_factory.mktemp("c"))))


@pytest.fixture(scope="module")
def place():
    """Memory whose first byte begins a page, and its address."""
    room = ctypes.create_string_buffer(8192)
    start = -ctypes.addressof(room) % 4096
    return (ctypes.c_char * 4096).from_buffer(room, start), ctypes.addressof(room) + start


ADRP, ADD, LDR_X, LDR_Q, LDRB = 0x90000000, 0x91000000, 0xF9400000, 0x3DC00000, 0x39400000
CASES = {  # type, instruction, distance to the symbol, what comes of it (by an assembler)
    "adrp, next page": (275, ADRP, 0x1FFC, 0xB0000000),
    "adrp, third page": (275, ADRP, 0x3000, 0xF0000000),
    "adrp, page before": (275, ADRP, -8, 0xF0FFFFE0),
    "add": (277, ADD, 0x123, 0x91048C00),
    "ldr of 8 bytes": (286, LDR_X, 0x128, 0xF9409400),
    "ldr of 16 bytes": (299, LDR_Q, 0x120, 0x3DC04800),
    "ldrb": (278, LDRB, 0x7, 0x39401C00),
    "bl forward": (283, 0x94000000, 8, 0x94000002),
    "bl back": (283, 0x94000000, -4, 0x97FFFFFF),
    "b": (282, 0x14000000, 0x1000, 0x14000400),
}


@pytest.mark.parametrize("case", CASES)
def test_fields_of_instructions(library, place, case):
    kind, before, distance, after = CASES[case]
    memory, address = place
    memory[:4] = struct.pack("<I", before)
    r = Relocation(kind, address, 4, address + distance - 16, addend=16)
    assert library.np_relocate(EM_AARCH64, ctypes.byref(r)) == 0
    assert struct.unpack("<I", memory[:4])[0] == after


@pytest.mark.parametrize(
    ("kind", "distance", "room", "said"),
    [
        (275, 1 << 33, 4, "more than 4 gigabytes"), (283, 1 << 28, 4, "too far"),
        (286, 0x124, 4, "not aligned"), (277, 0, 3, "leaves its section"),
        (257, 0, 7, "leaves its section"), (261, 1 << 32, 4, "does not fit"),
        (9999, 0, 8, "type 9999"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(library, place, kind, distance, room, said):
    _, address = place
    library.neptune_error.restype = ctypes.c_char_p
    r = Relocation(kind, address, room, address + distance)
    assert library.np_relocate(EM_AARCH64, ctypes.byref(r)) == BAD_FILE
    assert said in library.neptune_error().decode()


def test_calls_of_libraries_go_by_a_jump(library, place):
    memory, address = place
    memory[:4] = struct.pack("<I", 0x94000000)
    r = Relocation(283, address, 4, 1 << 60, stub=address + 64, outside=True)
    assert library.np_relocate(EM_AARCH64, ctypes.byref(r)) == 0
    assert struct.unpack("<I", memory[:4])[0] == 0x94000010
    slot = address + 0x808
    library.np_make_stub(EM_AARCH64, ctypes.c_void_p(address), ctypes.c_void_p(slot))
    adrp, load, jump = struct.unpack("<3I", memory[:12])
    assert (adrp, load, jump) == (0x90000010, 0xF9440610, 0xD61F0200)  # x16, in this page


# ---- on an emulated machine


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """The C runtime and c/test/run.c for AArch64."""
    folder = tmp_path_factory.mktemp("arm")
    sources = sorted((ROOT / "c" / "src").glob("*.c"))
    command = [TOOLS[0], *c_runtime.FLAGS, *sources, "c/test/run.c", "-o", folder / "run", "-lm",
               "-ldl", "-lpthread"]  # fmt: skip
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def words(*values):
    return struct.pack(f"<{len(values)}q", *values)


def packed(value):
    """An argument as c/test/run.c reads it."""
    if isinstance(value, np.ndarray | np.generic):
        raw = np.asarray(value).tobytes()
        return words(np.ndim(value), *np.shape(value), len(raw)) + raw
    return words(-2) + struct.pack("<d", value) if isinstance(value, float) else words(-1, value)


# a product with its softmax, a join of chunks, integers and constants, sums, conversions of bf16
PROGRAMS = ("decode_gqa", "logsumexp_keepdim", "cross_entropy_gather")
OTHERS = sorted({p.stem for p in (ROOT / "test" / "inputs").glob("*.mlir")} - {*PROGRAMS})


@emulated
@pytest.mark.parametrize(
    "name", [*PROGRAMS, *(pytest.param(n, marks=pytest.mark.nightly) for n in OTHERS)]
)
def test_programs_run_there(arm, runner, name):
    bundle = compiled(name)
    cpu.host.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NEPTUNE_CPU")
        here = compiled(name)
    arguments = random_inputs(bundle.plan, 37, seed=1)
    (runner / "b").write_bytes(bundle.to_bytes())
    (runner / "in").write_bytes(b"".join(map(packed, arguments)))
    command = [TOOLS[1], "-L", "/usr/aarch64-linux-gnu", runner / "run", runner / "b",
               runner / "in", runner / "out"]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = CpuExecutable(here)(*arguments)
    raw = (runner / "out").read_bytes()
    for k, wanted in enumerate(found if isinstance(found, tuple) else (found,)):
        dtype = here.plan.array(here.plan.results[k]).dtype
        got = np.frombuffer(raw[: wanted.nbytes], wanted.dtype).reshape(wanted.shape)
        raw = raw[wanted.nbytes :]
        # other tiles, so sums in another order: of f32, or what is left of them in 16 bits
        tolerance = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}.get(dtype, 0)
        np.testing.assert_allclose(to_float64(got, dtype), to_float64(wanted, dtype),
                                   rtol=tolerance, atol=tolerance)  # fmt: skip
    assert not raw
