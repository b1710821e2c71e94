# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call asks XLA for, by records of XLA's interface that are filled here."""

import ctypes
from types import SimpleNamespace

import pytest

pytest.importorskip("jax")
from neptune_mlir.jax import xla_ffi

START, LARGEST, ERROR = (1 << 20) + 16, 10_000, 7


@pytest.fixture
def said():
    return []


@pytest.fixture
def frame(said):
    """A call whose memory begins at START; XLA aligns to 16 bytes at most, and has LARGEST."""

    def allocate(address):
        asked = xla_ffi._Memory.from_address(address)
        said.append(("allocate", asked.bytes))
        if asked.alignment > 16 or asked.bytes > LARGEST:
            return ERROR
        asked.data = START
        return None

    def free(address):
        gone = xla_ffi._Freed.from_address(address)
        said.append(("free", gone.bytes, gone.data))

    def message(address):
        record = xla_ffi._Message.from_address(address)
        assert record.error == ERROR
        record.text = b"out of memory"

    def destroy(address):
        said.append(("destroy", xla_ffi._Destroyed.from_address(address).error))

    functions = {f.__name__: xla_ffi._call(f) for f in (allocate, free, message, destroy)}
    addresses = {n: ctypes.cast(f, ctypes.c_void_p).value for n, f in functions.items()}
    none = xla_ffi._Many()
    made = xla_ffi.CallFrame(
        SimpleNamespace(arguments=none, results=none, context=None), SimpleNamespace(**addresses)
    )
    made.kept = functions
    return made


def test_memory_is_aligned_further_than_xla_does_and_given_back(frame, said):
    address = frame.allocate(1000, 256)
    (_, size), = said  # fmt: skip
    assert address % 256 == 0 and START <= address and address + 1000 <= START + size
    frame.release()
    assert said[1:] == [("free", size, START)]
    frame.release()
    assert len(said) == 2


def test_what_xla_refuses_is_said(frame, said):
    with pytest.raises(MemoryError, match="out of memory"):
        frame.allocate(LARGEST, 256)
    frame.release()
    assert said[1:] == [("destroy", ERROR)]
