# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the runtime asks of the driver of a GPU, whoever made the GPU, through ctypes.

`cuda.py` and `hip.py` are the two drivers. Most functions that they need take the same parameters
in both: `EntryPoints` names these, and `Driver` calls them. A maker's class has the rest.

Handles (contexts, modules, functions, streams) are integers here. Every method raises ToolError
when the driver reports an error, except `launch`, `push` and `pop`: these return its number, so
that a prepared call has as little as possible between itself and the driver.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from neptune_mlir.errors import ToolError

# numbers that cuda.h and hip_runtime_api.h share
_DEVICE_ORDINAL = 9  # of pointer attributes
_NO_TIMING = 2  # of event flags
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED, and HIP's
_NO_DEVICE = 100  # of errors
_STREAMS_LIMIT = 64  # streams whose arguments of launches are kept

# What the native entry answers (`gpu_again`), and the words that its tables begin with: where the
# thread was when the call was found to be one in this context, where it is now (which the entry
# writes), and the context.
OK, REFUSED, ELSEWHERE = 0, -1, -2
SEEN, FOUND, CONTEXT = 0, 1, 2


@dataclass(frozen=True)
class EntryPoints:
    """Names of functions with the same parameters in every driver.

    Attributes:
        init: flags.
        error_name, error_text: error, place of the text.
        count: place of the number of devices.
        handle: place of the device, its number.
        name: room for the text, bytes of it, device.
        attribute: place of the value, attribute, device.
        pointer: place of the value, attribute, address.
        allocate: place of the address, bytes.
        copy: address, bytes of this machine, how many.
        load: place of the module, code.
        function: place of the function, module, name.
        capturing: stream, place of the status (0: no).
        exchange: place of the thread's mode of capture, which gets the one before.
        event: place of the event, flags.
        record: event, stream.
        wait: stream, event, flags.
        destroy: event.
    """

    init: str
    error_name: str
    error_text: str
    count: str
    handle: str
    name: str
    attribute: str
    pointer: str
    allocate: str
    copy: str
    load: str
    function: str
    capturing: str
    exchange: str
    event: str
    record: str
    wait: str
    destroy: str


@dataclass(frozen=True)
class Maker:
    """What is known of a maker's GPUs without a driver.

    Attributes:
        name: as messages say it.
        prefix: of the names of its chips.
        library: what messages call the driver.
        get: how to get the driver.
        dlpack: kinds of device that its GPUs are in DLPack.
        default_stream: how DLPack spells the default stream, whose handle is 0.
        most_threads: that one launch can have, over all blocks.
    """

    name: str
    prefix: str
    library: str
    get: str
    dlpack: tuple[int, ...]
    default_stream: int
    most_threads: int


class PreparedLaunch:
    """One kernel with its parameters.

    Args:
        values: the parameters, ctypes objects.
        early: whether it starts while the kernel before it still runs, and waits for it by itself.
    """

    def __init__(
        self, function: ctypes.c_void_p, programs: int, threads: int, shared: int,
        values: list[Any], early: bool = False,
    ):  # fmt: skip
        self.function, self.values = function, values
        self.programs, self.threads, self.shared = programs, threads, shared
        self.early = early
        self.addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))


class Driver(ABC):
    """A driver of this machine, initialised.

    `launch(*call)` takes what `launch_call` makes, `push(context)` and `pop(place of a handle)`
    ctypes objects; the error number that they return is for `fail`.

    Args:
        library: the driver, instead of the one that `open_library` finds.
    """

    maker: ClassVar[Maker]
    entries: ClassVar[EntryPoints]
    multiprocessor_attribute: ClassVar[int]

    launch: Any
    push: Any
    pop: Any

    def __init__(self, library: Any = None) -> None:
        self.library = library or self.open_library()
        self.call(self.entries.init, 0)

    @classmethod
    @abstractmethod
    def open_library(cls) -> Any:
        """The driver's shared library. Raises ToolError where there is none."""

    @staticmethod
    def why_no_device() -> str:
        """What keeps this machine from having a device, and how to get one; "" if unknown."""
        return ""

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver by name, with ctypes objects and small integers."""
        function = getattr(self.library, name, None)
        if function is None:
            raise ToolError(f"the {self.maker.library} has no {name}", hint=self.maker.get)
        error = function(*arguments)
        if error:
            self.fail(error, name)

    def fail(self, error: int, what: str) -> None:
        """Raise ToolError for an error number of the driver."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        getattr(self.library, self.entries.error_name)(error, ctypes.byref(name))
        getattr(self.library, self.entries.error_text)(error, ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        raise ToolError(
            f"{what} failed: {(name.value or b'').decode()} ({error}), {reason}",
            hint=self.why_no_device() or None if error == _NO_DEVICE else None,
        )

    # ---- devices and contexts

    def device_names(self) -> list[str]:
        """The devices' names, by their number."""
        count = ctypes.c_int()
        self.call(self.entries.count, ctypes.byref(count))
        names = []
        for device in range(count.value):
            text = ctypes.create_string_buffer(256)
            self.call(self.entries.name, text, len(text), self.handle(device))
            names.append(text.value.decode())
        return names

    @abstractmethod
    def architecture(self, device: int) -> str:
        """What a device is, as targets are called: `sm_90`, `gfx942`."""

    def multiprocessors(self, device: int) -> int:
        """Multiprocessors (compute units) of a device."""
        return self.attribute(self.multiprocessor_attribute, device)

    def attribute(self, number: int, device: int) -> int:
        value = ctypes.c_int()
        self.call(self.entries.attribute, ctypes.byref(value), number, self.handle(device))
        return value.value

    def handle(self, device: int) -> int:
        handle = ctypes.c_int()
        self.call(self.entries.handle, ctypes.byref(handle), device)
        return handle.value

    @abstractmethod
    def context(self, device: int) -> int:
        """The context that this thread works in on a device."""

    def device_of(self, address: int) -> int:
        """The number of the device whose memory an address is in."""
        number = ctypes.c_int(-1)
        self.call(
            self.entries.pointer, ctypes.byref(number), _DEVICE_ORDINAL, ctypes.c_uint64(address)
        )
        return number.value

    def inside(self, context: int, name: str, *arguments: Any) -> None:
        with self.entered(context):
            self.call(name, *arguments)

    @contextmanager
    def entered(self, context: int) -> Iterator[None]:
        """In a context, whichever the thread is in: a new one is in none."""
        error = self.push(ctypes.c_void_p(context))
        if error:
            self.fail(error, "entering a device")
        try:
            yield
        finally:
            self.pop(ctypes.byref(ctypes.c_void_p()))

    # ---- code

    def load(self, context: int, code: bytes) -> int:
        """A module of machine code in a context, for the life of the process."""
        module = ctypes.c_void_p()
        self.inside(context, self.entries.load, ctypes.byref(module), code)
        return module.value or 0

    def store(self, context: int, data: bytes) -> int:
        """The address of new memory of the device that holds these bytes, for the life of the
        process."""
        address = ctypes.c_uint64()
        if data:  # drivers allocate no empty memory
            size = ctypes.c_size_t(len(data))
            self.inside(context, self.entries.allocate, ctypes.byref(address), size)
            self.inside(context, self.entries.copy, address, data, size)
        return address.value

    def function(self, context: int, module: int, name: str, shared: int) -> tuple[int, int]:
        """A kernel of a module, with nothing left to do for its first launch, which a graph may be
        capturing; and the bytes of dynamic shared memory that a launch is to ask for.

        Args:
            shared: bytes of shared memory that a block uses.
        """
        found, handle = ctypes.c_void_p(), ctypes.c_void_p(module)
        self.inside(context, self.entries.function, ctypes.byref(found), handle, name.encode())
        return found.value or 0, self._make_ready(context, found, shared)

    @abstractmethod
    def _make_ready(self, context: int, function: ctypes.c_void_p, shared: int) -> int:
        """What is left to do for a function's first launch; its dynamic shared memory."""

    @abstractmethod
    def launch_call(self, launch: PreparedLaunch, stream: int) -> tuple[Any, ...]:
        """The arguments of `launch` for a kernel on a stream."""

    @abstractmethod
    def launch_words(self, launch: PreparedLaunch) -> tuple[list[int], Any]:
        """A launch as the native entry takes it (`gpu_again`), but for the stream; and what has to
        stay in memory for it."""

    @abstractmethod
    def native_text(self) -> str:
        """LLVM IR of what the native entry asks of the driver: is_mine (whether the thread is where
        it was when the call was found to be for a context), enter and leave (that context), launch,
        and encode (a tensor map)."""

    # ---- order, and tensor maps

    def is_capturing(self, stream: int) -> bool:
        """Whether what a stream is given becomes part of a graph."""
        status = ctypes.c_int()
        if not stream:
            return False  # the default stream cannot be captured
        self.call(self.entries.capturing, ctypes.c_void_p(stream), ctypes.byref(status))
        return status.value != 0

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Code and memory may come while this thread captures a graph, though these are calls that
        no graph has."""
        mode = ctypes.c_int(_RELAXED)
        self.call(self.entries.exchange, ctypes.byref(mode))
        try:
            yield
        finally:
            self.call(self.entries.exchange, ctypes.byref(mode))

    def wait(self, context: int, stream: int, producer: int) -> None:
        """Let what `stream` does next wait for what `producer` has been given so far."""
        event, entries = ctypes.c_void_p(), self.entries
        self.inside(context, entries.event, ctypes.byref(event), _NO_TIMING)
        self.inside(context, entries.record, event, ctypes.c_void_p(producer))
        self.inside(context, entries.wait, ctypes.c_void_p(stream), event, 0)
        self.inside(context, entries.destroy, event)

    def tensor_map(
        self, dtype: str, address: int, extents: Sequence[int], strides: Sequence[int],
        box: Sequence[int], *, narrow: bool = False,
    ) -> Any:  # fmt: skip
        """128 bytes that tell a copy engine how to bring or write boxes of an array.

        Args:
            dtype: f16, bf16, f32, or tf32: f32 that is rounded to that where it is brought.
            extents, box: elements along each axis, innermost first; rows of a box are 128 or 64
                bytes and lie swizzled in shared memory; what is outside of the array comes as 0,
                and is never written.
            strides: bytes between neighbours along each axis but the innermost.
            narrow: whether the second-level cache fetches 128 bytes at once, not 256.
        """
        raise ToolError(f"{self.maker.name} GPUs have no tensor maps", hint="compile it again")

    def map_words(
        self, dtype: str, extents: Sequence[int], strides: Sequence[int], box: Sequence[int], *,
        narrow: bool = False,
    ) -> tuple[list[int], Any]:  # fmt: skip
        """A tensor map as the native entry takes it, but for its address; and what has to stay in
        memory for it."""
        raise ToolError(f"{self.maker.name} GPUs have no tensor maps", hint="compile it again")


class Launches:
    """Kernels with their parameters, to be enqueued in order in a context."""

    def __init__(self, driver: Driver, context: int, launches: Sequence[PreparedLaunch]):
        self.launches = launches
        self._driver, self._context = driver, ctypes.c_void_p(context)
        self._left = ctypes.byref(ctypes.c_void_p())  # takes what `pop` returns; never read
        self._ready: dict[int, list[tuple[Any, ...]]] = {}  # arguments of launch, by stream

    def enqueue(self, stream: int) -> None:
        """Enqueue the kernels. Raises ToolError where the driver reports an error."""
        ready = self._ready.get(stream) or self._make_ready(stream)
        driver = self._driver
        # the default stream is that of the current context, and a new thread has none
        error = driver.push(self._context)
        if error:
            driver.fail(error, "entering a device")
        try:
            for arguments in ready:
                error = driver.launch(*arguments)
                if error:
                    driver.fail(error, "a kernel launch")
        finally:
            driver.pop(self._left)

    def _make_ready(self, stream: int) -> list[tuple[Any, ...]]:
        if len(self._ready) >= _STREAMS_LIMIT:
            self._ready.clear()
        ready = self._ready[stream] = [
            self._driver.launch_call(launch, stream) for launch in self.launches
        ]
        return ready


def address_of(function: Any) -> int:
    """Where a function that ctypes found is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def open_first(paths: Sequence[str]) -> Any:
    """The first shared library of these that can be opened, or None."""
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None
