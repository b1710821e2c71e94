# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom calls of XLA that run Python functions on memory in place, by XLA's C interface.

`jax.pure_callback` copies arrays of a GPU to the host and back, and waits for the stream. A handler
of XLA's foreign function interface gets the addresses and the stream instead. The records below
are those of `xla/ffi/api/c_api.h` (version 0.x; each begins with its size, and grows at its end).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from typing import Any

MAJOR = 0  # of the interface that the records describe
_METADATA = 1  # kind of the extension by which XLA asks a handler for its version
_INTERNAL = 13  # error code
_ALIGNED = 16  # bytes: XLA aligns memory to as much, where it is asked, and to no more

# XLA_FFI_DataType -> MLIR element type
_TYPES = {1: "i1", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "ui8", 7: "ui16", 8: "ui32",
          9: "ui64", 10: "f16", 11: "f32", 12: "f64", 16: "bf16", 20: "f8E4M3FN"}  # fmt: skip


def _record(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


_HEAD = (("size", c_size_t), ("extension", c_void_p))
_Version = _record("_Version", *_HEAD, ("major", c_int), ("minor", c_int))
_Extension = _record(
    "_Extension", ("size", c_size_t), ("kind", c_int), ("next", c_void_p), ("metadata", c_void_p)
)
_Metadata = _record(
    "_Metadata", ("size", c_size_t), ("version", _Version), ("traits", c_uint32),
    ("state", c_int64),
)  # fmt: skip
_Many = _record("_Many", *_HEAD, ("count", c_int64), ("kinds", c_void_p), ("items", c_void_p))
_Span = _record("_Span", ("text", c_void_p), ("length", c_size_t))
_Scalar = _record("_Scalar", ("dtype", c_int), ("value", c_void_p))
_Attributes = _record(
    "_Attributes", *_HEAD, ("count", c_int64), ("kinds", POINTER(c_int)),
    ("names", POINTER(POINTER(_Span))), ("items", POINTER(c_void_p)),
)  # fmt: skip
_Frame = _record(
    "_Frame", *_HEAD, ("api", c_void_p), ("context", c_void_p), ("stage", c_int),
    ("arguments", _Many), ("results", _Many), ("attributes", _Attributes),
)  # fmt: skip
_FUNCTIONS = ("error", "message", "destroy", "register", "stream", "type", "get", "set_state",
              "get_state", "allocate", "free")  # fmt: skip
_Api = _record(
    "_Api", *_HEAD, ("version", _Version), ("internal", c_void_p),
    *((name, c_void_p) for name in _FUNCTIONS),
)  # fmt: skip
_NewError = _record("_NewError", *_HEAD, ("text", c_char_p), ("code", c_int))
_Stream = _record("_Stream", *_HEAD, ("context", c_void_p), ("stream", c_void_p))
_Memory = _record(
    "_Memory", *_HEAD, ("context", c_void_p), ("bytes", c_size_t), ("alignment", c_size_t),
    ("data", c_void_p),
)  # fmt: skip
_Freed = _record(
    "_Freed", *_HEAD, ("context", c_void_p), ("bytes", c_size_t), ("data", c_void_p)
)
_Message = _record("_Message", *_HEAD, ("error", c_void_p), ("text", c_char_p))
_Destroyed = _record("_Destroyed", *_HEAD, ("error", c_void_p))
_call = ctypes.CFUNCTYPE(c_void_p, c_void_p)


@dataclass(frozen=True)
class CallMemory:
    """An operand or a result of a call: contiguous elements at an address."""

    address: int
    dtype: str
    shape: tuple[int, ...]


class CallFrame:
    """One execution of a custom call. It is valid until the handler returns."""

    def __init__(self, frame: Any, api: Any):
        self._frame, self._api = frame, api
        self.operands = _memories(frame.arguments)
        self.results = _memories(frame.results)
        self._allocated: list[tuple[int, int]] = []  # sizes and addresses

    @property
    def site(self) -> int:
        """The number of the call site: the one attribute of the call."""
        attribute = ctypes.cast(self._frame.attributes.items[0], POINTER(_Scalar))
        return c_int64.from_address(attribute.contents.value).value

    def stream(self) -> int:
        """The stream of a GPU that the call belongs to."""
        record = _Stream(ctypes.sizeof(_Stream), None, self._frame.context, None)
        self._ask(self._api.stream, record)
        return record.stream or 0

    def allocate(self, size: int, alignment: int) -> int:
        """Memory of the device until `release`."""
        least = min(alignment, _ALIGNED)
        size += alignment - least
        record = _Memory(ctypes.sizeof(_Memory), None, self._frame.context, size, least, None)
        self._ask(self._api.allocate, record)
        address = record.data or 0
        self._allocated.append((size, address))
        return address + -address % alignment

    def release(self) -> None:
        """Give back what was allocated, when all work that uses it is enqueued: whoever gets it
        next comes behind that in the order of the stream."""
        while self._allocated:
            size, address = self._allocated.pop()
            record = _Freed(ctypes.sizeof(_Freed), None, self._frame.context, size, address)
            self._ask(self._api.free, record)

    def _ask(self, function: int, record: Any) -> None:
        error = _call(function)(ctypes.addressof(record))
        if error:
            said = _Message(ctypes.sizeof(_Message), None, error, None)
            _call(self._api.message)(ctypes.addressof(said))
            text = (said.text or b"no reason").decode(errors="replace")
            gone = _Destroyed(ctypes.sizeof(_Destroyed), None, error)
            _call(self._api.destroy)(ctypes.addressof(gone))
            raise MemoryError(f"XLA refused memory or a stream to a call of neptune: {text}")


def _words(address: int, count: int) -> list[int]:
    """Words of memory, at once: a field of a record at a time takes several times as long."""
    return (c_int64 * count).from_address(address)[:] if count else []


def _memories(many: Any) -> list[CallMemory]:
    return [_memory(pointer) for pointer in _words(many.items, many.count)]


def _memory(pointer: int) -> CallMemory:
    """Of an XLA_FFI_Buffer: size, extension, type (and padding), address, rank, extents."""
    _, _, dtype, address, rank, extents = _words(pointer, 6)
    shape = tuple(_words(extents, rank))
    return CallMemory(address, _TYPES.get(dtype & 0xFFFFFFFF, "?"), shape)


def handler(run: Callable[[CallFrame], None]) -> Any:
    """A capsule for `jax.ffi.register_ffi_target` that calls `run`. What it raises is an error of
    the computation, with its text. Keep the capsule as long as the process lives."""

    def execute(address: int) -> int | None:
        frame = _Frame.from_address(address)
        api = _Api.from_address(frame.api)
        if frame.extension and _Extension.from_address(frame.extension).kind == _METADATA:
            _answer(frame.extension, api)
            return None
        try:
            call = CallFrame(frame, api)
            try:
                run(call)
            finally:
                call.release()
        except BaseException as error:  # nothing may pass through XLA's frames
            text = f"{type(error).__name__}: {error}".encode()
            record = _NewError(ctypes.sizeof(_NewError), None, text, _INTERNAL)
            made: int | None = _call(api.error)(ctypes.addressof(record))
            return made
        return None

    function = _call(execute)
    _kept.append(function)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
    return new(ctypes.cast(function, c_void_p), None, None)


_kept: list[Any] = []  # what XLA holds addresses of


def _answer(extension: int, api: Any) -> None:
    """Tell XLA which version of the interface the handler is for: XLA's own within `MAJOR`."""
    metadata = _Metadata.from_address(_Extension.from_address(extension).metadata)
    metadata.version.major = MAJOR
    metadata.version.minor = api.version.minor if api.version.major == MAJOR else 0
    metadata.traits, metadata.state = 0, 0
