# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One native function that runs all launches of a plan, so that a call is one call through ctypes.

What it works on is a record of 64-bit words, made per set of shapes: MLIR's memref descriptors of
all arrays, then for each launch its number of programs, its scalars and its grid. The function
copies the record to its stack, fills in the addresses of this call, and runs each launch, alone or
with the helpers of `workers`. It is LLVM IR, made from the plan and compiled when a bundle loads.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from typing import Any

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.loader import compile_text
from neptune_mlir.runtime.plan import NUMBERS, Launch, Plan

# scalars that are no integers: the type for LLVM, and that of C
_SCALARS: dict[str, tuple[str, Any]] = {
    "f32": ("float", ctypes.c_float), "f64": ("double", ctypes.c_double),
}  # fmt: skip


def word(dtype: str, value: Any) -> int:
    """A scalar as a word of the record. Raises ArgumentError."""
    if dtype not in NUMBERS:
        raise ArgumentError(f"scalars of type {dtype} cannot be passed", hint="use f32")
    if dtype in _SCALARS:
        held = bytes(_SCALARS[dtype][1](value))  # a larger number is infinite, as in a kernel
        return int.from_bytes(held.ljust(8, b"\0"), "little", signed=True)
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


class CallRecord:
    """Where the words of a plan's record stand.

    Attributes:
        arrays: the first word of each array's descriptor, by reference: allocated and aligned
            address, offset, extents, strides.
        launches: the first word of each launch: its programs, its values and grid.
        words: how many there are.
    """

    def __init__(self, plan: Plan):
        self.arrays: dict[tuple[str, int], int] = {}
        self.words = 0
        tables: dict[str, Sequence[Any]] = {
            "argument": plan.arguments, "constant": plan.constants, "buffer": plan.buffers
        }  # fmt: skip
        for kind, table in tables.items():
            for k, one in enumerate(table):
                if getattr(one, "kind", "tensor") == "tensor":
                    self.arrays[kind, k] = self._take(3 + 2 * len(one.shape))
        self.launches = [
            self._take(1 + sum(o[0] == "value" for o in launch.operands) + len(launch.grid))
            for launch in plan.launches
        ]

    def _take(self, words: int) -> int:
        self.words += words
        return self.words - words


class NativeEntry:
    """The native function of a plan; `order` are the arrays whose addresses it takes. `at` is the
    address of the same function of an array of these.

    Args:
        kernels: addresses of the kernels, by name.
        clock: the address of `clock_gettime`: the function then takes one more address, and writes
            there the time before the first launch and behind each (seconds and nanoseconds).
    """

    def __init__(self, plan: Plan, kernels: Mapping[str, int], clock: int | None = None):
        self.record = CallRecord(plan)
        self.order = [ref for ref in self.record.arrays if ref[0] != "constant"]
        text = "\n".join([
            *(_task(k, launch, self.record, kernels) for k, launch in enumerate(plan.launches)),
            _enter(self.record, self.order, clock),
            _enter_at(len(self.order)) if clock is None else "",
        ])  # fmt: skip
        names = ["enter"] if clock is not None else ["enter", "enter_at"]
        self._engine, (address, *at) = compile_text(text, names)
        self.at: int = at[0] if at else 0
        count = 6 + len(self.order) + (clock is not None)
        self.call: Any = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)(address)


def _task(number: int, launch: Launch, record: CallRecord, kernels: Mapping[str, int]) -> str:
    """A launch as a worker runs it: takes programs until none is left."""
    lines, passed = [], []
    at = record.launches[number] + 1

    def word_at(name: str, index: int) -> str:
        lines.append(f"  %{name} = getelementptr i64, ptr %record, i64 {index}")
        return f"ptr %{name}"

    for k, operand in enumerate(launch.operands):
        if operand[0] == "value":
            kind = _SCALARS.get(operand[1], ("i64",))[0]
            lines.append(f"  %v{k} = load {kind}, {word_at(f'p{k}', at)}")
            passed.append(f"{kind} %v{k}")
            at += 1
        else:
            passed.append(word_at(f"p{k}", record.arrays[operand[0], operand[1]]))
    for k in range(len(launch.grid)):
        lines.append(f"  %g{k} = load i64, {word_at(f'q{k}', at + k)}")
        passed.append(f"i64 %g{k}")
    address = f"inttoptr (i64 {kernels[launch.kernel]} to ptr)"
    return "\n".join([
        f"define internal void @task{number}"
        "(ptr %record, ptr %counter, ptr %scratch, i64 %size) {",
        *_bytes_descriptor("taken", "%counter", "1"),
        *_bytes_descriptor("memory", "%scratch", "%size"),
        *lines,
        f"  call void {address}({', '.join([*passed, 'ptr %taken', 'ptr %memory'])})",
        "  ret void",
        "}",
    ])  # fmt: skip


def _bytes_descriptor(name: str, address: str, extent: str) -> list[str]:
    """A descriptor of one dimension on the stack."""
    lines = [f"  %{name} = alloca [5 x i64]", f"  %{name}.a = ptrtoint ptr {address} to i64"]
    for k, value in enumerate((f"%{name}.a", f"%{name}.a", "0", extent, "1")):
        lines.append(f"  %{name}.{k} = getelementptr i64, ptr %{name}, i64 {k}")
        lines.append(f"  store i64 {value}, ptr %{name}.{k}")
    return lines


def _stamp(number: int, clock: int | None) -> list[str]:
    """Writes the time: seconds and nanoseconds."""
    if clock is None:
        return []
    return [
        f"  %t{number} = getelementptr [2 x i64], ptr %stamps, i64 {number}",
        f"  call i32 inttoptr (i64 {clock} to ptr)(i32 {time.CLOCK_MONOTONIC}, ptr %t{number})",
    ]


def _enter(
    record: CallRecord, order: Sequence[tuple[str, int]], clock: int | None = None
) -> str:  # fmt: skip
    """The function itself. It takes the record, how many threads may work, the helpers' state and
    their function (`workers.Helpers`), scratch memory and its bytes, and the addresses."""
    given = "ptr %given, i64 %workers, ptr %helpers, ptr %share, ptr %scratch, i64 %size"
    given += "".join(f", i64 %a{k}" for k in range(len(order)))
    given += ", ptr %stamps" if clock is not None else ""
    lines = [
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        f"define void @enter({given}) {{",
        f"  %record = alloca [{record.words} x i64], align 16",
        "  %counter = alloca i64, align 64",
        "  call void @llvm.memcpy.p0.p0.i64"
        f"(ptr %record, ptr %given, i64 {8 * record.words}, i1 0)",
    ]
    for k, reference in enumerate(order):
        for half in range(2):
            at = record.arrays[reference] + half
            lines.append(f"  %a{k}.{half} = getelementptr i64, ptr %record, i64 {at}")
            lines.append(f"  store i64 %a{k}, ptr %a{k}.{half}")
    lines.append("  br label %launch0")
    for k, at in enumerate(record.launches):
        lines += [
            f"launch{k}:",
            *_stamp(k, clock),
            f"  %n{k}.at = getelementptr i64, ptr %record, i64 {at}",
            f"  %n{k} = load i64, ptr %n{k}.at",
            f"  %some{k} = icmp sgt i64 %n{k}, 0",
            f"  br i1 %some{k}, label %run{k}, label %launch{k + 1}",
            f"run{k}:",
            "  store i64 0, ptr %counter",
            f"  %fewer{k} = icmp slt i64 %n{k}, %workers",
            f"  %most{k} = select i1 %fewer{k}, i64 %n{k}, i64 %workers",
            f"  %alone{k} = icmp sle i64 %most{k}, 1",
            f"  br i1 %alone{k}, label %alone{k}.run, label %shared{k}.run",
            f"alone{k}.run:",
            f"  call void @task{k}(ptr %record, ptr %counter, ptr %scratch, i64 %size)",
            f"  br label %launch{k + 1}",
            f"shared{k}.run:",
            f"  call void %share(ptr %helpers, ptr @task{k}, ptr %record, ptr %counter,"
            f" ptr %scratch, i64 %size, i64 %most{k})",
            f"  br label %launch{k + 1}",
        ]
    last = len(record.launches)
    return "\n".join([*lines, f"launch{last}:", *_stamp(last, clock), "  ret void", "}"])


def _enter_at(count: int) -> str:
    """The function with an array of addresses for its last arguments."""
    given = "ptr %given, i64 %workers, ptr %helpers, ptr %share, ptr %scratch, i64 %size"
    lines = [f"define void @enter_at({given}, ptr %addresses) {{"]
    for k in range(count):
        lines.append(f"  %a{k}.at = getelementptr i64, ptr %addresses, i64 {k}")
        lines.append(f"  %a{k} = load i64, ptr %a{k}.at")
    passed = given + "".join(f", i64 %a{k}" for k in range(count))
    return "\n".join([*lines, f"  call void @enter({passed})", "  ret void", "}"])
