# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One kernel of tile IR as Triton IR (TTIR) text.

Tile values stay tiles; extents are rounded up to powers of two. What lies beyond the extents of
the tile program is masked in loads (it reads 0), stores, reductions and contractions, and is
anything elsewhere. Slices of outside tensors become pointer arithmetic: a 64-bit scalar base
and a tile of offsets that does not depend on loops.

The function takes what `GpuHost` lists: for each tensor its address and the strides of all but
the innermost dimension (i64), then scalars, then the extents of the grid (i32). One program is
one block of a one-dimensional launch; the last dimension of the grid runs fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.tiles import (
    Window,
    element_bytes,
    element_of,
    is_tensor,
    load_window,
    read_generic,
    shape_of,
    slice_parts,
)
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.triton.ttir_generic import Generics
from neptune_mlir.codegen.triton.ttir_scalars import TritonScalars, element_type
from neptune_mlir.codegen.triton.ttir_text import Text, Value, power_of_two
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.ir.values import defining_op


@dataclass(frozen=True)
class TritonOptions:
    """How to print: `library` is "nv" or "ocml"; `precision` is of f32 products ("ieee", "tf32",
    "tf32x3"); with `narrow` an f32 factor is rounded to the 16-bit type of the other."""

    library: str = "nv"
    precision: str = "ieee"
    narrow: bool = True


@dataclass(frozen=True)
class OutsideArray:
    """An outside tensor: pointer, and strides where an int is known."""

    pointer: Value
    strides: tuple[Any, ...]
    dtype: str


@dataclass(frozen=True)
class Strip:
    """A part of a result that a sweep fills: the tensor, where it starts, its dimensions."""

    tensor: Any
    offsets: tuple[Any, ...]
    dims: tuple[int, ...]


def kernel_text(signature: KernelSignature, options: TritonOptions | None = None) -> str:
    """A module with the one function that a kernel is.

    Raises:
        LoweringError: the kernel has something that Triton cannot express.
    """
    return _Kernel(signature, options or TritonOptions()).write()


def alignments(signature: KernelSignature) -> dict[tuple[str, int], int]:
    """Bytes that each array's address and strides must be multiples of, by its reference."""
    units: dict[tuple[str, int], int] = {}
    for tensor, place in zip(signature.tensors, signature.places, strict=True):
        kind, number = place
        units[kind, number] = max(units.get((kind, number), 1), _unit(tensor))
    return units


def _unit(tensor: Any) -> int:
    """16 bytes, or what the rows of a contiguous array are certain to keep."""
    kind = ir.RankedTensorType(tensor.type)
    size = _memory_bytes(str(kind.element_type))
    if kind.rank == 0 or kind.is_dynamic_dim(kind.rank - 1):
        return size
    return math.gcd(16, kind.shape[-1] * size) or size


def _memory_type(dtype: str) -> str:
    return {"i1": "i8", "index": "i64"}.get(dtype, dtype)


def _memory_bytes(dtype: str) -> int:
    return element_bytes(_memory_type(dtype))


class _Kernel:
    def __init__(self, signature: KernelSignature, options: TritonOptions):
        self.signature, self.forall = signature, signature.forall
        self.body = self.forall.regions[0].blocks[0]
        self.text = Text()
        self.emit = TritonScalars(self.text, options.library)
        self.generics = Generics(self.text, self.emit, self.scalar, options)
        self.scalars: dict[Any, Value] = {}  # scalar of the tile program -> value here
        self.tiles: dict[Any, Value] = {}
        self.arrays: dict[Any, OutsideArray] = {}
        self.strips: dict[Any, Strip] = {}
        self.parts: dict[Any, Any] = {}  # the valid part of a tile -> the tile

    # ---- the function

    def write(self) -> str:
        parameters = self._parameters()
        self._program_position()
        for op in self.body.operations:
            self._op(op.operation)
        self.text.line("tt.return")
        head = f"  tt.func public @{self.signature.name}({', '.join(parameters)}) "
        return "\n".join(
            ["module {", head + "attributes {noinline = false} {", *self.text.lines, "  }", "}", ""]
        )

    def _parameters(self) -> list[str]:
        texts: list[str] = []

        def take(dtype: str, multiple: int = 1) -> Value:
            value = Value(f"%arg{len(texts)}", dtype)
            hint = f" {{tt.divisibility = {multiple} : i32}}" if multiple > 1 else ""
            texts.append(f"{value.name}: {dtype}{hint}")
            return value

        given: list[OutsideArray] = []
        for tensor in self.signature.tensors:
            kind = ir.RankedTensorType(tensor.type)
            dtype = str(kind.element_type)
            unit = _unit(tensor)
            pointer = take(f"!tt.ptr<{_memory_type(dtype)}>", unit)
            steps = [
                take("i64", unit // _memory_bytes(dtype)) for _ in range(max(0, kind.rank - 1))
            ]
            given.append(OutsideArray(pointer, (*steps, 1)[: kind.rank], dtype))
        count = len(given) - self.signature.outputs
        self.arrays.update(zip(self.signature.tensors[:count], given[:count], strict=True))
        outputs = list(self.body.arguments)[len(self.signature.bounds) :]
        self.arrays.update(zip(outputs, given[count:], strict=True))
        for scalar in self.signature.scalars:
            self.scalars[scalar] = take(element_type(str(scalar.type)))
        self._bounds = [take("i32") for _ in self.signature.bounds]
        return texts

    def _program_position(self) -> None:
        t, rank = self.text, len(self._bounds)
        number = t.op("tt.get_program_id x : i32", "i32")
        for k in reversed(range(rank)):
            here = number
            if k:
                here = t.same("arith.remui", number, self._bounds[k])
                number = t.same("arith.divui", number, self._bounds[k])
            self.scalars[self.body.arguments[k]] = here

    # ---- values

    def scalar(self, value: Any) -> Value:
        """The value here of a scalar of the tile program; constants from outside are copied."""
        if value in self.scalars:
            return self.scalars[value]
        op = defining_op(value)
        if op is None or op.name == "tensor.dim":
            raise self._error(op, "a scalar that the kernel is not given")
        return self.emit.op(op, [self.scalar(v) for v in op.operands])

    def tile(self, value: Any) -> Value:
        """A tile; tiles without dimensions are scalars. An outside tensor that an op reads whole
        is loaded where it is read: nothing keeps it in registers until then."""
        if value in self.arrays:
            return self._whole(value)
        if value not in self.tiles:
            raise self._error(defining_op(value), "a tile that this kernel does not make")
        return self.tiles[value]

    def _error(self, op: Any, message: str) -> LoweringError:
        at = self.forall if op is None else op
        return LoweringError(message, loc=location_text(at.location))

    # ---- ops

    def _op(self, op: Any) -> None:
        handler = _HANDLERS.get(op.name)
        if handler is not None:
            handler(self, op)
        elif any(is_tensor(v) for v in [*op.operands, *op.results]):
            raise self._error(op, f"'{op.name}' on tiles has no form in Triton")
        else:
            value = self.emit.op(op, [self.scalar(v) for v in op.operands])
            self.scalars[op.results[0]] = value

    def _empty(self, op: Any) -> None:
        """Only its shape counts; if something reads it all the same, it reads 0."""
        kind = op.results[0]
        if not ir.RankedTensorType(kind.type).has_static_shape:
            return
        self._splat(kind, self.text.constant(0, element_type(element_of(kind))))
        self.generics.note_fill(self.tiles[kind], None)

    def _fill(self, op: Any) -> None:
        source = op.operands[0]
        made = defining_op(source)
        constant = made is not None and made.name == "arith.constant"
        self._splat(op.results[0], self.scalar(source))
        if constant:
            self.generics.note_fill(self.tiles[op.results[0]], made.attributes["value"].value)

    def _splat(self, result: Any, value: Value) -> None:
        shape = tuple(map(power_of_two, shape_of(result)))
        self.tiles[result] = self.text.broadcast(value, shape) if shape else value

    def _generic(self, op: Any) -> None:
        g = read_generic(op)
        values = [self.tile(v) if g.is_read(k) else None for k, v in enumerate(g.inputs)]
        init = self.tile(g.init) if g.reduced or g.reads_init else None
        self.tiles[g.result] = self.generics.emit(g, values, init)

    def _copy(self, op: Any) -> None:
        self.tiles[op.results[0]] = self.tile(op.operands[0])

    def _cast(self, op: Any) -> None:
        source, result = op.operands[0], op.results[0]
        tables: tuple[dict[Any, Any], ...] = (self.tiles, self.arrays, self.strips, self.parts)
        for table in tables:
            if source in table:
                table[result] = table[source]

    # ---- memory

    def _slice(self, op: Any) -> None:
        value, source = op.results[0], op.operands[0]
        if source in self.strips or source in list(self.body.arguments):
            self._open_strip(op)
        elif source in self.arrays:
            if ir.RankedTensorType(value.type).has_static_shape:
                self._load(op)
        else:
            offsets, _, _ = slice_parts(op)
            if any(o != 0 for o in offsets):
                raise self._error(op, "a part of a tile that does not start at 0")
            self.parts[value] = source

    def _open_strip(self, op: Any) -> None:
        offsets, _, dims = slice_parts(op)
        source = op.operands[0]
        if source in self.strips:
            outer = self.strips[source]
            offsets, dims = self._within(outer, offsets), tuple(outer.dims[d] for d in dims)
            source = outer.tensor
        self.strips[op.results[0]] = Strip(source, offsets, dims)

    def _within(self, strip: Strip, offsets: Sequence[Any]) -> tuple[Any, ...]:
        """Offsets in a strip as offsets in its tensor."""
        found = list(strip.offsets)
        for d, offset in zip(strip.dims, offsets, strict=True):
            if found[d] == 0:
                found[d] = offset
            elif offset != 0:
                a, b = self._position(found[d]), self._position(offset)
                found[d] = self.text.same("arith.addi", a, b)
        return tuple(found)

    def _position(self, entry: Any) -> Value:
        if isinstance(entry, Value):
            return entry
        return self.text.constant(entry, "i32") if isinstance(entry, int) else self.scalar(entry)

    def _load(self, op: Any) -> None:
        value = op.results[0]
        window = load_window(value, self.forall)
        if window is None:
            raise self._error(op, "a pad of a computed tile")
        self.tiles[value] = self._read(window)

    def _whole(self, tensor: Any) -> Value:
        if not ir.RankedTensorType(tensor.type).has_static_shape:
            raise self._error(defining_op(tensor), "a tile as large as a tensor of unknown size")
        shape = shape_of(tensor)
        zeros, dims = (0,) * len(shape), tuple(range(len(shape)))
        return self._read(Window(tensor, zeros, dims, shape, (None,) * len(shape)))

    def _read(self, window: Window) -> Value:
        array = self.arrays[window.tensor]
        pointer, mask = self._pointers(array, window)
        loaded = self.text.load(pointer, mask, _memory_type(array.dtype))
        made = self._from_memory(loaded, array.dtype)
        self.generics.note_zero_padded(made)
        return made

    def _extract(self, op: Any) -> None:
        """One element of an outside tensor, or of a tile that has but one."""
        if op.operands[0] in self.tiles:
            self.scalars[op.results[0]] = self.tiles[op.operands[0]]
            return
        array = self.arrays[op.operands[0]]
        position = [self.scalar(v) for v in list(op.operands)[1:]]
        pointer = self._base(array, position)
        loaded = self.text.load(pointer, None, _memory_type(array.dtype))
        self.scalars[op.results[0]] = self._from_memory(loaded, array.dtype)

    def _from_memory(self, loaded: Value, dtype: str) -> Value:
        t = self.text
        if dtype == "i1":
            return t.compare("arith.cmpi", "ne", loaded, t.number(0, loaded))
        return self.emit.resize(loaded, "i32") if dtype == "index" else loaded

    def _base(self, array: OutsideArray, offsets: Sequence[Any]) -> Value:
        t, pointer = self.text, array.pointer
        total = None
        for offset, stride in zip(offsets, array.strides, strict=True):
            if isinstance(offset, int) and offset == 0:
                continue
            step = self.emit.resize(self._position(offset), "i64")
            if isinstance(stride, Value):
                step = t.same("arith.muli", step, stride)
            total = step if total is None else t.same("arith.addi", total, step)
        return pointer if total is None else t.pointer_plus(pointer, total)

    def _pointers(self, array: OutsideArray, window: Window) -> tuple[Value, Value | None]:
        """The addresses of a window's elements, and which of them exist (None: all)."""
        t, rank = self.text, len(window.shape)
        offset = mask = None
        for k, (d, extent, valid) in enumerate(
            zip(window.dims, window.shape, window.valid, strict=True)
        ):
            padded = power_of_two(extent)
            place = t.along(t.range(padded), k, rank)
            if valid is not None or padded > extent:
                limit = self._position(extent if valid is None else valid)
                inside = t.compare("arith.cmpi", "slt", place, limit)
                mask = inside if mask is None else t.same("arith.andi", mask, inside)
            step = self.emit.resize(place, "i64")
            stride = array.strides[d]
            if isinstance(stride, Value):
                step = t.same("arith.muli", step, stride)
            offset = step if offset is None else t.same("arith.addi", offset, step)
        base = self._base(array, window.offsets)
        return (base if offset is None else t.pointer_plus(base, offset)), mask

    def _store_tile(
        self, part: Any, tensor: Any, offsets: Sequence[Any], sizes: Sequence[Any],
        dims: Sequence[int],
    ) -> None:  # fmt: skip
        """Write the valid part of a tile: dimension k of it runs along `dims[k]` of `tensor`."""
        source = self.parts.get(part, part)
        shape = shape_of(source)
        valid = tuple(
            None if isinstance(n, int) and n >= extent else n
            for n, extent in zip(sizes, shape, strict=True)
        )
        array = self.arrays[tensor]
        window = Window(tensor, tuple(offsets), tuple(dims), shape, valid)
        pointer, mask = self._pointers(array, window)
        value = self.tile(source)
        if array.dtype == "i1":
            value = self.text.cast("arith.extui", value, "i8")
        elif array.dtype == "index":
            value = self.emit.resize(value, "i64")
        self.text.store(pointer, value, mask)

    def _insert(self, op: Any) -> None:
        """`tensor.insert_slice` into a strip of a result."""
        part, into = op.operands[0], op.operands[1]
        if into not in self.strips:
            raise self._error(op, "a write into a tile")
        strip = self.strips[into]
        offsets, sizes, kept = slice_parts(op)
        dims = tuple(strip.dims[k] for k in kept)
        within = self._within(strip, offsets)
        self._store_tile(part, strip.tensor, within, [sizes[k] for k in kept], dims)
        self.strips[op.results[0]] = strip

    def _store(self, op: Any) -> None:
        """`scf.forall.in_parallel`: write the results; strips are written already."""
        for insert in op.regions[0].blocks[0].operations:
            operation = insert.operation
            part, tensor = operation.operands[0], operation.operands[1]
            if part in self.strips:
                continue
            offsets, sizes, dims = slice_parts(operation)
            self._store_tile(part, tensor, offsets, [sizes[d] for d in dims], dims)

    # ---- loops

    def _for(self, op: Any) -> None:
        t, block = self.text, op.regions[0].blocks[0]
        low, high, step = (self.scalar(v) for v in list(op.operands)[:3])
        starts, arguments = list(op.operands)[3:], list(block.arguments)[1:]
        kept = [k for k, v in enumerate(starts) if v not in self.strips]
        for k, v in enumerate(starts):
            if v in self.strips:
                self.strips[arguments[k]] = self.strips[op.results[k]] = self.strips[v]
        values = [self._value(starts[k]) for k in kept]
        position = Value(t.name(), low.dtype)
        inner = [Value(t.name(), v.dtype, v.shape) for v in values]
        self.scalars[block.arguments[0]] = position
        for k, v in zip(kept, inner, strict=True):
            self._bind(arguments[k], v)
        head = f"scf.for {position.name} = {low.name} to {high.name} step {step.name}"
        made: list[Value] = []
        if values:
            name = t.name()
            pairs = ", ".join(f"{a.name} = {v.name}" for a, v in zip(inner, values, strict=True))
            types = ", ".join(v.type for v in values)
            head = f"{name}:{len(values)} = {head} iter_args({pairs}) -> ({types})"
            made = [Value(f"{name}#{k}", v.dtype, v.shape) for k, v in enumerate(values)]
        with t.block(f"{head}  : {low.dtype} {{"):
            *ops, end = block.operations
            for inside in ops:
                self._op(inside.operation)
            if values:
                results = [self._value(end.operation.operands[k]) for k in kept]
                names = ", ".join(v.name for v in results)
                t.line(f"scf.yield {names} : {', '.join(v.type for v in results)}")
        for k, v in zip(kept, made, strict=True):
            self._bind(op.results[k], v)

    def _value(self, value: Any) -> Value:
        return self.tile(value) if is_tensor(value) else self.scalar(value)

    def _bind(self, value: Any, here: Value) -> None:
        (self.tiles if is_tensor(value) else self.scalars)[value] = here


_HANDLERS: dict[str, Any] = {
    "tensor.empty": _Kernel._empty,
    "linalg.fill": _Kernel._fill,
    "linalg.generic": _Kernel._generic,
    "linalg.copy": _Kernel._copy,
    "tensor.cast": _Kernel._cast,
    "tensor.extract": _Kernel._extract,
    "tensor.extract_slice": _Kernel._slice,
    "tensor.insert_slice": _Kernel._insert,
    "tensor.pad": _Kernel._load,
    "scf.for": _Kernel._for,
    "scf.forall.in_parallel": _Kernel._store,
}
