# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call on a GPU that is like an earlier one but for where its arrays lie: only addresses are
filled in. What depends on them (alignment, overlaps) is checked again.

One native function does so, and launches: such a call is one call through ctypes.

    again(table, addresses, stream) -> OK, REFUSED, ELSEWHERE, or an error of the driver

What it does stands in the table of a call (`_Table`): which alignment an address needs, which
arrays may not overlap, where in the parameters of kernels addresses go, which tensor maps hold one,
and what is launched. It is LLVM IR with the addresses of the driver's functions, compiled once for
a driver. A table belongs to one thread: the function writes parameters in place.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from neptune_mlir.runtime.arrays import ArrayView
from neptune_mlir.runtime.drivers.boxes import PANEL, is_narrow, map_shape
from neptune_mlir.runtime.drivers.cuda import map_room
from neptune_mlir.runtime.drivers.driver import (
    ELSEWHERE,
    FOUND,
    OK,
    REFUSED,
    SEEN,
    Driver,
    PreparedLaunch,
)
from neptune_mlir.runtime.gpu_arrays import SIZES
from neptune_mlir.runtime.images import LoadedImage
from neptune_mlir.runtime.libraries import Library
from neptune_mlir.runtime.loader import compile_text, has_compiler
from neptune_mlir.runtime.memory import WORKSPACE, Place, SizedLaunch, Sizes, root
from neptune_mlir.runtime.parameters import in_memory, in_two
from neptune_mlir.runtime.shards.in_two import BEHIND, OPERAND, UNIT, WORD

_ENTERING = 1 << 32  # added to an error of the driver that came before the first launch

# Rows of a table lie behind its head (`driver.SEEN` and so on, then how many of each kind there
# are), in this order, each of so many words.
_WIDTHS = {
    "base": 1,  # bits of an address that have to be 0
    "pair": 6,  # two bases, first and last byte of each from its address: no byte in common
    "pointer": 3,  # where an address goes, its base, bytes behind it
    "map": 12,  # the same, the address that is encoded, then what `Driver.map_words` says
    "launch": 5,  # see `Driver.launch_words`
}
_COUNTS = 3
_HEAD = _COUNTS + len(_WIDTHS)


@dataclass(frozen=True)
class Bound:
    """A checked call: the image, the numbers, all arrays by reference (`memory.WORKSPACE` among
    them where there is one), and the launches."""

    image: LoadedImage
    sizes: Sizes
    arrays: Mapping[Place, ArrayView]
    launches: Sequence[PreparedLaunch]


class CallAgain:
    """The launches of a call, for one thread's calls that are like it.

    Args:
        outs: how many arrays for results the caller passes.
        workspace: whether the caller passes one.
        library: what makes those that the caller does not pass.
    """

    def __init__(
        self, bound: Bound, driver: Driver, library: Library, outs: int, workspace: bool
    ):
        plan, needs = bound.image.plan, bound.sizes.requirements
        bases: list[Place] = [("argument", k) for k, a in enumerate(plan.arguments)
                              if a.kind == "tensor"]  # fmt: skip
        own = self._made = len(bases) + outs  # from here on arrays are made
        bases += [root(plan, r) for r in plan.results]
        if needs.workspace:
            bases.append(WORKSPACE)
        self.image, self._bases = bound.image, bases
        self._driver, self._library = driver, library
        device = bound.image.device
        make, self._needs = library.maker, needs.results
        self._results = [] if outs else self.makers([])
        own_workspace = bool(needs.workspace) and not workspace
        self._workspace = make((needs.workspace,), "i8", device) if own_workspace else None
        self._scratch = needs.workspace
        self._ignored = workspace and not needs.workspace  # which nothing reads or writes
        self._counters: list[tuple[Any, int]] = []
        # of those in two arrays the second one and the word come behind all bases
        self._in_two = [base for base in bases if bound.arrays[base].behind]
        count = len(bases) + 2 * len(self._in_two)
        self._given: Any = (ctypes.c_int64 * count)()
        self._pack = struct.Struct(f"{count}Q").pack_into
        self._given_address = ctypes.addressof(self._given)
        given = range(own - outs, own) if outs else ()
        written = [*given, *([len(bases) - 1] if workspace and needs.workspace else [])]
        self._table = self._table_of(bound, written)
        self._enter = _function_of(driver)

    @staticmethod
    def is_possible(bound: Bound) -> bool:
        """Whether every result is memory of its own, under the shape of the result, no better image
        may come, and there is what compiles the entry."""
        places = [(kind, number) for kind, number in bound.image.plan.results]
        buffers = bound.image.plan.buffers
        own = all(kind == "buffer" and buffers[number].of is None for kind, number in places)
        return own and len(set(places)) == len(places) and has_compiler()

    def makers(self, orders: Sequence[Sequence[int]]) -> list[Callable[[int | None], Any]]:
        """What makes results, whose dimensions `run` hands out in these orders (others as they
        are)."""
        device, make = self.image.device, self._library.maker
        listed = zip_longest(self._needs, orders[: len(self._needs)])
        return [make(shape, dtype, device, order) for (shape, dtype), order in listed]

    def repeat(
        self, order: Sequence[int], orders: Sequence[Sequence[int]]
    ) -> Callable[[Sequence[Any]], Any]:
        """`run` as a function of arrays, on the stream that their library works on: with as little
        as can be between the caller and the driver.

        Args:
            order: which of the arrays the arguments are.
            orders: as those of `makers`.
        """
        library, device, table = self._library, self.image.device, self._table
        address, makers = library.address, self.makers(orders)

        def whole(arrays: Sequence[Any]) -> Any:
            return self.run(None, [address(arrays[k]) for k in order], (), makers)

        listed = [*zip_longest(self._needs, orders[: len(self._needs)])]
        if self._workspace is not None:
            listed.append((((self._scratch,), "i8"), None))
        quick: list[Any] = [library.quick_maker(of, kind, own) for (of, kind), own in listed]
        if None in quick or self._in_two:
            return whole
        stream, where, enter = library.current_stream, library.current_device, self._enter
        pack, given, place = self._pack, self._given, self._given_address
        count = len(self._needs)

        def again(arrays: Sequence[Any]) -> Any:
            if where() != device:
                return whole(arrays)
            made = [make() for make in quick]
            pack(given, 0, *[address(arrays[k]) for k in order], *map(address, made))
            handle = stream(device)
            if self._counters:
                self._count(handle)
            if enter(table.address, place, handle) != OK:
                return whole(arrays)
            return made if len(made) == count else made[:count]

        return again

    def _count(self, handle: int) -> None:
        """Give each counter the call's number."""
        kept = self._driver.is_capturing(handle)
        for value, limit in self._counters:
            value.value = self.image.numbers.take(limit, kept)

    def run(
        self, handle: int | None, addresses: list[int], outs: Sequence[Any] = (),
        makers: Sequence[Callable[[int | None], Any]] = (),
    ) -> Any:  # fmt: skip
        """Enqueue the kernels on a stream; returns the results: `outs`, or what is made. None where
        addresses, or where the thread is, need a whole check.

        Args:
            handle: the stream; None: the one that the library of the arrays works on now.
            addresses: of the arrays that the caller passes: arguments, results, the workspace; then
                of each argument in two arrays the second one, and its word.
            makers: of the results, in place of what makes them as they lie.
        """
        stream, behind = handle, ()
        if handle is None:
            handle = self._library.current_stream(self.image.device)
        if self._in_two:
            behind = addresses[-2 * len(self._in_two) :]
            addresses = addresses[: -len(behind)]
        if self._ignored:
            addresses = addresses[:-1]
        if self._results:
            outs = [make(stream) for make in makers or self._results]
            made = map(self._library.address, outs)
            at = self._made
            addresses = [*addresses[:at], *made, *addresses[at:]]
        if self._workspace is not None:
            scratch = self._workspace(stream)
            addresses.append(self._library.address(scratch))
        self._pack(self._given, 0, *addresses, *behind)
        if self._counters:
            self._count(handle)
        table = self._table
        error = self._enter(table.address, self._given_address, handle)
        if error == ELSEWHERE:
            if self._driver.context(self.image.device) != self.image.context:
                return None
            table.words[SEEN] = table.words[FOUND]
            error = self._enter(table.address, self._given_address, handle)
        if error == OK:
            return outs
        if error < 0:
            return None
        if error >= _ENTERING:
            self._driver.fail(error - _ENTERING, "entering a device")
        return self._driver.fail(error, "a kernel launch")

    # ---- what the native entry works on

    def _table_of(self, bound: Bound, written: Sequence[int]) -> _Table:
        """`written`: bases that come from the caller, and that kernels write."""
        views = [bound.arrays[base] for base in self._bases]
        spans = [(v.span()[0] - v.address, v.span()[1] - v.address) for v in views]
        rows: dict[str, list[Sequence[int]]] = {kind: [] for kind in _WIDTHS}
        units = [1] * len(self._bases)
        for place in bound.sizes.used:
            number = self._base(place)
            if number is not None:
                units[number] = max(units[number], bound.image.alignment.get(place, 1))
        units += [UNIT, WORD] * len(self._in_two)
        rows["base"] = [(unit - 1,) for unit in units]  # powers of 2
        rows["pair"] = [
            (k, n, *spans[k], *spans[n]) for k in written for n in range(len(views)) if n != k
        ]
        keep: list[Any] = []
        for sized, launch in zip(bound.sizes.launches, bound.launches, strict=True):
            own = self._own(launch, sized, bound, views, rows, keep)
            words, kept = self._driver.launch_words(own)
            rows["launch"].append(words)
            keep.append(kept)
        return _Table(bound.image.context, rows, keep)

    def _base(self, place: Place) -> int | None:
        """The number of the base that an array lies in; None for a constant."""
        kind, number = root(self.image.plan, place)
        if kind == "constant":
            return None
        found = (kind, number) if (kind, number) in self._bases else WORKSPACE
        return self._bases.index(found)

    def _behind(self, place: Place) -> int:
        """The number of the second array of an argument in two."""
        return len(self._bases) + 2 * self._in_two.index(place)

    def _own(
        self, launch: PreparedLaunch, sized: SizedLaunch, bound: Bound,
        views: Sequence[ArrayView], rows: dict[str, list[Sequence[int]]], keep: list[Any],
    ) -> PreparedLaunch:  # fmt: skip
        """A launch with parameters of its own where they change from call to call, of which `rows`
        say how."""
        values, at = list(launch.values), 0
        for operand in sized.launch.operands:
            width = 1
            if operand[0] == "counter":
                values[at] = type(values[at])()
                self._counters.append((values[at], operand[1]))
            elif operand[0] == OPERAND:
                place = operand[1], operand[2]
                width = len(in_two(bound.arrays[place], operand[3]))
                if place in self._in_two:
                    values[at] = ctypes.c_void_p()
                    word = ctypes.addressof(values[at]), self._behind(place) + 1, 0
                    rows["pointer"].append(word)
            elif operand[0] != "value":
                is_map = operand[0] in ("map", BEHIND)
                place = (operand[1], operand[2]) if is_map else (operand[0], operand[1])
                array, base = bound.arrays[place], self._base(place)
                width = 1 if is_map else 1 + len(array.strides[:-1])
                if base is not None:
                    offset = array.address - views[base].address
                    if operand[0] == BEHIND and place in self._in_two:
                        base, offset = self._behind(place), 0
                    if is_map:
                        array = in_memory(array, operand[0])
                    values[at] = map_room() if is_map else ctypes.c_void_p()
                    row = [ctypes.addressof(values[at]), base, offset]
                    if not is_map:
                        rows["pointer"].append(row)
                    elif 0 not in array.shape:
                        panel = operand[6] if len(operand) > 6 else PANEL
                        narrow = is_narrow(array, panel, sized.narrow)
                        shape = map_shape(array, SIZES[array.dtype], *operand[3:])
                        words, kept = self._driver.map_words(*shape, narrow=narrow)
                        rows["map"].append([*row, -1, *words])  # no address is encoded yet
                        keep.append(kept)
            at += width
        return PreparedLaunch(
            launch.function, launch.programs, launch.threads, launch.shared, values, launch.early
        )


class _Table:
    """What the function reads.

    Args:
        rows: by kind.
        keep: what the words have addresses of.
    """

    def __init__(self, context: int, rows: dict[str, list[Sequence[int]]], keep: Any):
        words = [-1, 0, context, *(len(rows[kind]) for kind in _WIDTHS)]
        for kind, width in _WIDTHS.items():
            for row in rows[kind]:
                words += [*row, *[0] * (width - len(row))]
        self.words = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self.words)
        self._keep = keep


def _function_of(driver: Driver) -> Any:
    """The function for a driver, which keeps it."""
    found = driver.__dict__.get("_again")
    if found is None:
        engine, (address,) = compile_text(_text(driver), ["again"])
        found = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(address)
        driver.__dict__["_again"], driver.__dict__["_again_engine"] = found, engine
    return found


def _text(driver: Driver) -> str:
    lines = [
        driver.native_text(),
        "define i64 @again(ptr %table, ptr %given, i64 %stream) {",
        "  %before = alloca i64",
        f"  %start = getelementptr i64, ptr %table, i64 {_HEAD}",
        "  %mine = call i64 @is_mine(ptr %table)",
        f"  %is_mine = icmp eq i64 %mine, {OK}",
        "  br i1 %is_mine, label %base.begin, label %elsewhere",
        "elsewhere:",
        f"  ret i64 {ELSEWHERE}",
        "refused:",
        f"  ret i64 {REFUSED}",
        *_loop("base", "%start", "pair.begin", _ALIGNED),
        *_loop("pair", "%base.end", "pointer.begin", _APART),
        *_loop("pointer", "%pair.end", "enter", _FILLED),
        "enter:",  # maps are encoded in a context, too: a new thread is in none
        "  %entering = call i32 @enter(ptr %table, ptr %before)",
        "  %inside = icmp eq i32 %entering, 0",
        "  br i1 %inside, label %map.begin, label %outside",
        "outside:",
        "  %outside.error = zext i32 %entering to i64",
        f"  %outside.marked = or i64 %outside.error, {_ENTERING}",
        "  ret i64 %outside.marked",
        *_loop("map", "%pointer.end", "launch.begin", _ENCODED),
        "unmade:",
        "  call void @leave(ptr %table, ptr %before)",
        f"  ret i64 {REFUSED}",
        *_loop("launch", "%map.end", "leave", _LAUNCHED),
        "failed:",
        "  call void @leave(ptr %table, ptr %before)",
        "  %failed.error = zext i32 %launch.error to i64",
        "  ret i64 %failed.error",
        "leave:",
        "  call void @leave(ptr %table, ptr %before)",
        f"  ret i64 {OK}",
        "}",
    ]
    return "\n".join(lines)


def _loop(kind: str, start: str, behind: str, body: Sequence[str]) -> list[str]:
    """The rows of a kind, from `start` on; the body ends with a branch to `kind.step`."""
    count = _COUNTS + list(_WIDTHS).index(kind)
    return [
        f"{kind}.begin:",
        f"  %{kind}.count.at = getelementptr i64, ptr %table, i64 {count}",
        f"  %{kind}.count = load i64, ptr %{kind}.count.at",
        f"  %{kind}.words = mul i64 %{kind}.count, {_WIDTHS[kind]}",
        f"  %{kind}.end = getelementptr i64, ptr {start}, i64 %{kind}.words",
        f"  br label %{kind}.head",
        f"{kind}.head:",
        f"  %{kind}.row = phi ptr [ {start}, %{kind}.begin ], [ %{kind}.next, %{kind}.step ]",
        f"  %{kind}.done = icmp eq ptr %{kind}.row, %{kind}.end",
        f"  br i1 %{kind}.done, label %{behind}, label %{kind}.body",
        f"{kind}.body:",
        *(f"  {line}" for line in body),
        f"{kind}.step:",
        f"  %{kind}.next = getelementptr i64, ptr %{kind}.row, i64 {_WIDTHS[kind]}",
        f"  br label %{kind}.head",
    ]


def _words(kind: str, *names: str) -> list[str]:
    """The first words of a row, by name."""
    return [
        line for k, name in enumerate(names) for line in (
            f"%{kind}.{name}.at = getelementptr i64, ptr %{kind}.row, i64 {k}",
            f"%{kind}.{name} = load i64, ptr %{kind}.{name}.at",
        )
    ]  # fmt: skip


def _address(kind: str, base: str) -> list[str]:
    """The address that the caller gives for a base."""
    return [
        f"%{kind}.{base}.given = getelementptr i64, ptr %given, i64 %{kind}.{base}",
        f"%{kind}.{base}.address = load i64, ptr %{kind}.{base}.given",
    ]


# What is done with a row of each kind.
_ALIGNED = (
    "%base.byte = ptrtoint ptr %base.row to i64",
    "%base.from = ptrtoint ptr %start to i64",
    "%base.number = sub i64 %base.byte, %base.from",
    "%base.at = getelementptr i8, ptr %given, i64 %base.number",
    "%base.address = load i64, ptr %base.at",
    *_words("base", "mask"),
    "%base.low = and i64 %base.address, %base.mask",
    "%base.fits = icmp eq i64 %base.low, 0",
    "br i1 %base.fits, label %base.step, label %refused",
)  # fmt: skip
_APART = (
    *_words("pair", "one", "other", "low", "high", "first", "last"),
    *_address("pair", "one"), *_address("pair", "other"),
    "%pair.a = add i64 %pair.one.address, %pair.low",
    "%pair.b = add i64 %pair.one.address, %pair.high",
    "%pair.c = add i64 %pair.other.address, %pair.first",
    "%pair.d = add i64 %pair.other.address, %pair.last",
    "%pair.before = icmp ult i64 %pair.a, %pair.d",
    "%pair.behind = icmp ult i64 %pair.c, %pair.b",
    "%pair.meet = and i1 %pair.before, %pair.behind",
    "br i1 %pair.meet, label %refused, label %pair.step",
)  # fmt: skip
_FILLED = (
    *_words("pointer", "to", "base", "offset"), *_address("pointer", "base"),
    "%pointer.value = add i64 %pointer.base.address, %pointer.offset",
    "%pointer.place = inttoptr i64 %pointer.to to ptr",
    "store i64 %pointer.value, ptr %pointer.place",
    "br label %pointer.step",
)  # fmt: skip
_ENCODED = (
    *_words("map", "to", "base", "offset", "bound"), *_address("map", "base"),
    "%map.value = add i64 %map.base.address, %map.offset",
    "%map.is_bound = icmp eq i64 %map.value, %map.bound",
    "br i1 %map.is_bound, label %map.step, label %map.make",
    "map.make:",
    "%map.what = getelementptr i64, ptr %map.row, i64 4",
    "%map.error = call i32 @encode(i64 %map.to, i64 %map.value, ptr %map.what)",
    "%map.made = icmp eq i32 %map.error, 0",
    "br i1 %map.made, label %map.keep, label %unmade",
    "map.keep:",
    "store i64 %map.value, ptr %map.bound.at",
    "br label %map.step",
)  # fmt: skip
_LAUNCHED = (
    "%launch.error = call i32 @launch(ptr %launch.row, i64 %stream)",
    "%launch.good = icmp eq i32 %launch.error, 0",
    "br i1 %launch.good, label %launch.step, label %failed",
)  # fmt: skip
