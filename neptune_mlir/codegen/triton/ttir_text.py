# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes Triton IR (TTIR) as text, line by line.

A `Value` is a scalar (shape `()`) or a tile whose extents are powers of two. Operands of an
elementwise op are brought to a common shape here: dimensions of extent 1 are broadcast, scalars
are splat, so callers compute each value at the smallest shape that it varies over.
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Value:
    """An SSA value: its name, element type and shape. Pointers have types like `!tt.ptr<f32>`."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def type(self) -> str:
        return type_text(self.dtype, self.shape)


def type_text(dtype: str, shape: Sequence[int]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}>" if shape else dtype


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def literal(value: Any, dtype: str) -> str:
    """A number as MLIR spells it; floats by their bits where decimals would not do."""
    if dtype == "i1":
        return "true" if value else "false"
    if not dtype.startswith(("f", "bf")):
        return str(int(value))
    value = float(value)
    if math.isfinite(value):
        text = repr(value)
        return text if "." in text else re.sub("e", ".0e", text, count=1)
    if dtype == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    else:
        code, unsigned = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}[dtype]
        bits = struct.unpack(unsigned, struct.pack(code, value))[0]
    digits = {"f16": 4, "bf16": 4, "f32": 8, "f64": 16}[dtype]
    return f"0x{bits:0{digits}X}"


def common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that values of these shapes broadcast to (scalars fit all)."""
    tiles = [s for s in shapes if s]
    return tuple(max(extents) for extents in zip(*tiles, strict=True)) if tiles else ()


class Text:
    """The text of one function as it grows."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 2
        self._count = 0

    # ---- lines

    def name(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    @contextlib.contextmanager
    def block(self, head: str, end: str = "}") -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1
        self.line(end)

    def op(self, text: str, dtype: str, shape: Sequence[int] = ()) -> Value:
        """`%n = text`, a value of the given type."""
        made = Value(self.name(), dtype, tuple(shape))
        self.line(f"{made.name} = {text}")
        return made

    # ---- constants and shapes

    def constant(self, value: Any, dtype: str, shape: Sequence[int] = ()) -> Value:
        text = literal(value, dtype)
        kind = type_text(dtype, shape)
        if shape:
            return self.op(f"arith.constant dense<{text}> : {kind}", dtype, shape)
        typed = text if dtype == "i1" else f"{text} : {kind}"
        return self.op(f"arith.constant {typed}", dtype)

    def range(self, extent: int) -> Value:
        if extent == 1:
            return self.constant(0, "i32", (1,))
        return self.op(
            f"tt.make_range {{end = {extent} : i32, start = 0 : i32}} : "
            f"{type_text('i32', (extent,))}", "i32", (extent,),
        )  # fmt: skip

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` with a tile shape: splat, or broadcast along dimensions of extent 1."""
        shape = tuple(shape)
        if value.shape == shape:
            return value
        head = "tt.broadcast" if value.shape else "tt.splat"
        kind = type_text(value.dtype, shape)
        return self.op(f"{head} {value.name} : {value.type} -> {kind}", value.dtype, shape)

    def expand(self, value: Value, axis: int) -> Value:
        shape = (*value.shape[:axis], 1, *value.shape[axis:])
        kind = type_text(value.dtype, shape)
        return self.op(
            f"tt.expand_dims {value.name} {{axis = {axis} : i32}} : {value.type} -> {kind}",
            value.dtype, shape,
        )  # fmt: skip

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Dimension k of the result is dimension `order[k]` of `value`."""
        if list(order) == list(range(len(value.shape))):
            return value
        shape = tuple(value.shape[k] for k in order)
        text = ", ".join(map(str, order))
        return self.op(
            f"tt.trans {value.name} {{order = array<i32: {text}>}} : {value.type} -> "
            f"{type_text(value.dtype, shape)}", value.dtype, shape,
        )  # fmt: skip

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        if value.shape == shape:
            return value
        if not value.shape:
            return self.broadcast(value, shape)
        if not shape:  # a tile of one element: any reduction gives it
            flat = self.reshape(value, (math.prod(value.shape),))
            return self.reduce(flat, 0, "arith.ori" if is_integer(flat.dtype) else "arith.addf")
        kind = type_text(value.dtype, shape)
        return self.op(f"tt.reshape {value.name} : {value.type} -> {kind}", value.dtype, shape)

    def along(self, value: Value, axis: int, rank: int) -> Value:
        """A vector as a tile of `rank` dimensions that runs along `axis`."""
        shape = [1] * rank
        for k in range(rank):
            if k != axis:
                value = self.expand(value, k)
        shape[axis] = value.shape[axis]
        return value

    # ---- elementwise ops

    def alike(self, *values: Value) -> list[Value]:
        """The values at their common shape."""
        shape = common_shape([v.shape for v in values])
        return [self.broadcast(v, shape) for v in values]

    def same(self, head: str, *operands: Value) -> Value:
        """An op whose operands and result have one type."""
        values = self.alike(*operands)
        names = ", ".join(v.name for v in values)
        return self.op(f"{head} {names} : {values[0].type}", values[0].dtype, values[0].shape)

    def cast(self, head: str, value: Value, dtype: str) -> Value:
        kind = type_text(dtype, value.shape)
        return self.op(f"{head} {value.name} : {value.type} to {kind}", dtype, value.shape)

    def compare(self, head: str, predicate: str, a: Value, b: Value) -> Value:
        a, b = self.alike(a, b)
        return self.op(f"{head} {predicate}, {a.name}, {b.name} : {a.type}", "i1", a.shape)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        condition, a, b = self.alike(condition, a, b)
        types = f"{condition.type}, {a.type}" if a.shape else a.type
        text = f"arith.select {condition.name}, {a.name}, {b.name} : {types}"
        return self.op(text, a.dtype, a.shape)

    def number(self, value: Any, like: Value) -> Value:
        """A constant of the element type of `like`."""
        return self.constant(value, like.dtype)

    # ---- memory and matrices

    def pointer_plus(self, pointer: Value, offset: Value) -> Value:
        pointer, offset = self.alike(pointer, offset)
        return self.op(
            f"tt.addptr {pointer.name}, {offset.name} : {pointer.type}, {offset.type}",
            pointer.dtype, pointer.shape,
        )  # fmt: skip

    def load(self, pointer: Value, mask: Value | None, dtype: str) -> Value:
        """Elements at `pointer`; 0 where the mask is false."""
        operands = pointer.name
        if mask is not None:
            mask = self.broadcast(mask, pointer.shape)
            zero = self.constant(0, dtype, pointer.shape)
            operands += f", {mask.name}, {zero.name}"
        return self.op(f"tt.load {operands} : {pointer.type}", dtype, pointer.shape)

    def store(self, pointer: Value, value: Value, mask: Value | None) -> None:
        operands = f"{pointer.name}, {self.broadcast(value, pointer.shape).name}"
        if mask is not None:
            operands += f", {self.broadcast(mask, pointer.shape).name}"
        self.line(f"tt.store {operands} : {pointer.type}")

    def dot(self, a: Value, b: Value, acc: Value, precision: str) -> Value:
        return self.op(
            f"tt.dot {a.name}, {b.name}, {acc.name}, inputPrecision = {precision} : "
            f"{a.type} * {b.type} -> {acc.type}", acc.dtype, acc.shape,
        )  # fmt: skip

    def reduce(
        self, value: Value, axis: int, combine: str | Callable[[Value, Value], Value]
    ) -> Value:
        """Combine along `axis` with one associative and commutative op, or what emits several."""
        shape = value.shape[:axis] + value.shape[axis + 1 :]
        made = Value(self.name(), value.dtype, shape)
        head = f'{made.name} = "tt.reduce"({value.name}) <{{axis = {axis} : i32}}> ({{'
        end = f"}}) : ({value.type}) -> {made.type}"
        with self.block(head, end):
            a, b = (Value(self.name(), value.dtype) for _ in range(2))
            self.line(f"^bb0({a.name}: {a.dtype}, {b.name}: {b.dtype}):")
            both = self.same(combine, a, b) if isinstance(combine, str) else combine(a, b)
            self.line(f"tt.reduce.return {both.name} : {both.dtype}")
        return made


def is_integer(dtype: str) -> bool:
    return dtype[0] == "i"
