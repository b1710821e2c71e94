# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs TTIR text with NumPy, to test that it means the right thing.

Floats of every type are float64 and nothing rounds, so what a kernel computes can be compared
with its definition to nearly the last digit. A load or store beyond its array is an error, and
new buffers hold NaN.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.codegen.gpu.host import GpuHost
from neptune_mlir.codegen.triton.ttir import TritonOptions, kernel_text
from neptune_mlir.codegen.triton.ttir_scalars import _CMPF, _CMPI
from neptune_mlir.ir.bindings import ir
from neptune_mlir.runtime.plan import Plan, evaluate
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from support.chips import scalar_ops

_INTEGERS = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}


@dataclass
class Pointer:
    memory: Any  # a flat array
    offset: Any  # of elements

    def at(self, mask: Any) -> Any:
        """Where to read or write; masked elements may be anywhere."""
        offset, mask = np.broadcast_arrays(self.offset, mask)
        if np.any(mask & ((offset < 0) | (offset >= self.memory.size))):
            raise IndexError("an access beyond its array")
        return np.where(mask, offset, 0), mask


def run(module: Any, arguments: Sequence[Any], options: TritonOptions | None = None) -> list[Any]:
    """Call the one function of a tile-level module, which is consumed; returns its results."""
    with module.context, ir.Location.unknown():
        host = GpuHost.find(module, "")
        texts = {s.name: kernel_text(s, options) for s in host.read()}
        plan: Plan = host.finish(module)
    arrays = [_flat(a) if wanted.kind == "tensor" else None
              for a, wanted in zip(arguments, plan.arguments, strict=True)]  # fmt: skip
    shapes = [np.shape(a) for a in arguments]
    scalars = list(arguments)
    buffers = []
    for buffer in plan.buffers:
        shape = tuple(int(evaluate(e, shapes, scalars, MULTIPROCESSORS)) for e in buffer.shape)
        if buffer.of is not None:  # another shape of the same memory
            kept, number = buffer.of
            memory, _, _ = (buffers if kept == "buffer" else arrays)[number]
            buffers.append((memory, _steps(shape), shape))
            continue
        kind = _INTEGERS.get(buffer.dtype, np.int64 if buffer.dtype == "index" else np.float64)
        fill = math.nan if kind is np.float64 else 77 if kind is not np.bool_ else True
        buffers.append(_flat(np.full(shape, fill, kind)))
    for launch in plan.launches:
        operands: list[Any] = []
        for operand in launch.operands:
            if operand[0] == "value":
                operands.append(evaluate(operand[2], shapes, scalars, MULTIPROCESSORS))
            else:
                memory, strides, _ = (buffers if operand[0] == "buffer" else arrays)[operand[1]]
                operands += [Pointer(memory, np.int64(0)), *strides[:-1]]
        count = math.prod(int(evaluate(e, shapes, scalars, MULTIPROCESSORS)) for e in launch.grid)
        kernel = Kernel(texts[launch.kernel])
        for program in range(count):
            kernel.run(operands, program)
    found = [(buffers if kind == "buffer" else arrays)[k] for kind, k in plan.results]
    return [memory[: math.prod(shape)].reshape(shape) for memory, _, shape in found]


def _steps(shape: Sequence[int]) -> list[int]:
    """Strides, in elements, of a contiguous array."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]


def _flat(array: Any) -> tuple[Any, list[int], tuple[int, ...]]:
    """The memory of an array with rows further apart than their length (contiguous: no gap)."""
    array = np.asarray(array)
    if np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    return array.reshape(-1).copy(), _steps(array.shape), array.shape


_TYPE = re.compile(r"tensor<((?:\d+x)+)(.*)>$")


@functools.lru_cache(1024)
def _shape(text: str) -> tuple[int, ...]:
    match = _TYPE.match(text.strip())
    return tuple(int(n) for n in match[1].split("x")[:-1]) if match else ()


def _element(text: str) -> str:
    match = _TYPE.match(text.strip())
    return match[2] if match else text.strip()


def _number(text: str, dtype: str) -> Any:
    if text in ("true", "false"):
        return np.bool_(text == "true")
    if dtype in _INTEGERS:
        return _INTEGERS[dtype](int(text))
    if text.startswith("0x"):
        code = {"f16": "<f2", "f32": "<f4", "f64": "<f8"}.get(dtype)
        bits = int(text, 16)
        if code is None:
            return np.float64(np.array(bits << 16, "<u4").view("<f4"))
        return np.float64(np.array(bits, code.replace("f", "u")).view(code))
    return np.float64(text)


class Kernel:
    def __init__(self, text: str):
        self.lines = [line.strip() for line in text.splitlines()]
        head = next(line for line in self.lines if line.startswith("tt.func"))
        self.parameters = re.findall(r"(%arg\d+): (\S+?)(?: \{[^}]*\})?[,)]", head)
        self.start = self.lines.index(head) + 1
        self.ends = self._blocks()

    def _blocks(self) -> dict[int, int]:
        ends, open_ = {}, []
        for k, line in enumerate(self.lines):
            if line.startswith("}") and open_:
                ends[open_.pop()] = k
            if line.endswith("{"):
                open_.append(k)
        return ends

    def run(self, operands: Sequence[Any], program: int) -> None:
        self.table: dict[str, Any] = {}
        self.program = program
        for (name, kind), value in zip(self.parameters, operands, strict=True):
            if kind in _INTEGERS:
                value = _INTEGERS[kind](value)
            self.table[name] = value
        with np.errstate(all="ignore"):
            self.block(self.start)

    def block(self, at: int) -> list[Any]:
        """Run from a line to the end of its block; the values that it yields."""
        while True:
            line = self.lines[at]
            if line.startswith(("scf.yield", "tt.reduce.return")):
                return [self.table[n] for n in re.findall(r"%[\w#]+", line.split(" : ")[0])]
            if line.startswith(("tt.return", "}")):
                return []
            if line.startswith("^bb0"):
                at += 1
                continue
            at = self.step(line, at)

    def step(self, line: str, at: int) -> int:
        if "scf.for" in line:
            self.loop(line, at)
            return self.ends[at] + 1
        if '"tt.reduce"' in line:
            self.reduce(line, at)
            return self.ends[at] + 1
        if line.startswith("tt.store"):
            self.store(line)
            return at + 1
        name, text = line.split(" = ", 1)
        self.table[name] = self.value(text)
        return at + 1

    def loop(self, line: str, at: int) -> None:
        position, low, high, step = re.search(
            r"scf\.for (%\w+) = (\S+) to (\S+) step (\S+)", line
        ).groups()  # type: ignore[union-attr]
        carried = re.findall(r"(%\w+) = (%[\w#]+)", line.split("iter_args")[1]) if (
            "iter_args" in line) else []  # fmt: skip
        values = [self.table[start] for _, start in carried]
        for i in range(int(self.table[low]), int(self.table[high]), int(self.table[step])):
            self.table[position] = np.int32(i)
            self.table.update((n, v) for (n, _), v in zip(carried, values, strict=True))
            values = self.block(at + 1) if carried else (self.block(at + 1), [])[1]
        if carried:
            name = line.split(":")[0]
            self.table.update((f"{name}#{k}", v) for k, v in enumerate(values))

    def reduce(self, line: str, at: int) -> None:
        name, source, axis = re.match(
            r'(%\w+) = "tt.reduce"\((\S+)\) <\{axis = (\d+)', line
        ).groups()  # type: ignore[union-attr]
        parts = np.moveaxis(self.table[source], int(axis), 0)
        a, b = re.findall(r"(%\w+):", self.lines[at + 1])
        while len(parts) > 1:  # pairwise, as no order is promised
            half = len(parts) // 2
            self.table[a], self.table[b] = parts[:half], parts[half:]
            (parts,) = self.block(at + 2)
        self.table[name] = parts[0]

    def store(self, line: str) -> None:
        names = re.findall(r"%[\w#]+", line.split(" : ")[0])
        pointer, value = self.table[names[0]], self.table[names[1]]
        where, mask = pointer.at(self.table[names[2]] if len(names) > 2 else np.bool_(True))
        pointer.memory[where[mask]] = np.broadcast_to(value, where.shape)[mask]

    def value(self, text: str) -> Any:
        head, rest, names, kinds, to = _parts(text)
        operands = [self.table[n] for n in names]
        if head == "arith.constant":
            return _constant(rest, kinds)
        if head == "tt.get_program_id":
            return np.int32(self.program)
        if head == "tt.make_range":
            return np.arange(int(re.search(r"end = (\d+)", rest)[1]), dtype=np.int32)
        if head in ("tt.splat", "tt.broadcast"):
            (x,) = operands
            if isinstance(x, Pointer):
                return Pointer(x.memory, np.broadcast_to(x.offset, _shape(to)))
            return np.broadcast_to(x, _shape(to))
        if head == "tt.expand_dims":
            return np.expand_dims(operands[0], int(re.search(r"axis = (\d+)", rest)[1]))
        if head == "tt.trans":
            order = re.search(r"array<i32: ([\d, ]+)>", rest)[1]
            return np.transpose(operands[0], [int(k) for k in order.split(",")])
        if head == "tt.reshape":
            return np.reshape(operands[0], _shape(to))
        if head == "tt.addptr":
            pointer, offset = operands
            return Pointer(pointer.memory, pointer.offset + offset)
        if head == "tt.load":
            pointer = operands[0]
            where, mask = pointer.at(operands[1] if len(operands) > 1 else np.bool_(True))
            other = operands[2] if len(operands) > 2 else 0
            return np.where(mask, pointer.memory[where], other)
        if head == "tt.dot":
            a, b, acc = operands
            return acc + a @ b
        if head == "tt.extern_elementwise":
            symbol = re.search(r'symbol = "__(?:nv|ocml)_([a-z0-9]+?)(?:_f32|_f64|f)?"', rest)[1]
            return _LIBRARY[symbol](*operands)
        if head == "arith.select":
            return np.where(*operands)
        if head in ("arith.cmpi", "arith.cmpf"):
            return _compare(head, rest.split(",")[0], *operands)
        name = head.split(".")[1]
        if name in scalar_ops.CASTS:
            return _cast(name, operands[0], _element(to))
        if name in scalar_ops.SIGNED or name in scalar_ops.UNSIGNED:
            arrays = [np.asarray(x) for x in operands]
            return scalar_ops.apply(name, arrays, [_kind(x) for x in arrays], _kind(arrays[0]))
        return _OPS[head](*operands)


@functools.lru_cache(8192)  # of lines that loops and programs of a grid repeat
def _parts(text: str) -> tuple[str, str, list[str], str, str]:
    """The name of an op, what follows it, the names of its operands, its types, and the last."""
    head, _, rest = text.partition(" ")
    body, _, kinds = rest.rpartition(" : ")
    names = re.findall(r"%[\w#]+", body or rest)
    return head, rest, names, kinds, re.split(r" -> | to ", kinds)[-1]


@functools.lru_cache(1024)
def _constant(rest: str, kinds: str) -> Any:
    """What an `arith.constant` is; nobody writes into it."""
    literal = rest.split(" : ")[0]
    dtype = _element(kinds) if kinds else "i1"
    inner = re.match(r"dense<(.*)>$", literal)
    number = _number(inner[1] if inner else literal, dtype)
    return np.full(_shape(kinds), number) if inner else number


def _kind(x: Any) -> str:
    dtype = np.asarray(x).dtype
    return _KINDS.get(dtype.type, "f64")


def _cast(name: str, x: Any, dtype: str) -> Any:
    """Floats of all types are float64 here."""
    target = dtype if dtype in _INTEGERS else "f64"
    return scalar_ops.cast(name, np.asarray(x), _kind(x), target)


def _compare(head: str, predicate: str, a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    if head == "arith.cmpi":
        return scalar_ops.compare_integers(_CMPI.index(predicate), a, b, _kind(a))
    return scalar_ops.compare_floats(_CMPF.index(predicate), a, b)


_KINDS = {kind: name for name, kind in _INTEGERS.items()}
_LIBRARY = {"tanh": np.tanh, "expm1": np.expm1, "log1p": np.log1p, "pow": np.power,
            "fmod": np.fmod, "rint": np.rint}  # fmt: skip
_OPS: dict[str, Any] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply,
    "arith.divf": np.divide, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin,
    "math.exp": np.exp, "math.exp2": np.exp2, "math.log": np.log, "math.log2": np.log2,
    "math.sin": np.sin, "math.cos": np.cos, "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x), "math.absf": np.abs, "math.floor": np.floor,
    "math.ceil": np.ceil, "math.fma": lambda a, b, c: a * b + c,
    "math.erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip
