# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NVIDIA's instructions: `ldmatrix`, `mma.sync`, shuffles, `cp.async`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.analysis.layouts import CHUNK
from neptune_mlir.analysis.tiles import Window, element_bytes
from neptune_mlir.codegen.gpu.access.guarded import GuardedAccess
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import Threads, under
from neptune_mlir.codegen.gpu.chip import Chip, Operand
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.scalars import Index, Scalars
from neptune_mlir.codegen.gpu.tile_forms import words_of
from neptune_mlir.codegen.nvidia import guarded
from neptune_mlir.codegen.nvidia.hopper import asm, every_lane, polls, unknown
from neptune_mlir.ir.bindings import ir, llvm
from neptune_mlir.targets.gpu import MatrixInstruction
from neptune_mlir.targets.nvidia import NvidiaTarget

SMEM = "neptune_shared"  # dynamic shared memory: the launch says how much

# two bytes of a 16-bit register as two f16 numbers
_FROM_E4M3 = "cvt.rn.f16x2.e4m3x2 $0, $1;"
_FROM_INT8 = (
    "{ .reg .b32 t, u; cvt.u32.u16 t, $1; xor.b32 t, t, 0x8080; mov.b32 u, 0x64646464; "
    "prmt.b32 t, t, u, 0x4140; mov.b32 u, 0x64806480; sub.rn.f16x2 $0, t, u; }"
)


def _of_word(text: str, upper: int) -> str:
    """The same on the lower or upper half of a word."""
    inner = text.replace("$1", "gh"[upper])
    return f"{{ .reg .b16 g, h; mov.b32 {{g, h}}, $1; {inner} }}"


class Nvidia(Chip):
    columns = 2  # one ldmatrix brings 4 pieces of 8x8: two of B
    copies_ahead = True
    guards = True
    sinks_loads = True
    meets = True

    def shared_symbol(self, kernel: str) -> str:
        return SMEM

    def declare_module(self) -> None:
        llvm.global_array("!llvm.array<0 x i8>", SMEM, "external", addr_space=3, alignment=1024)

    def annotate(self, function: Any, blocks: int) -> None:
        if blocks:
            i32 = ir.IntegerType.get_signless(32)
            function.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(i32, blocks)

    def barrier(self) -> None:
        scope = ir.Attribute.parse("#gpu.barrier_scope<workgroup>")
        ir.Operation.create("gpu.barrier", attributes={"scope": scope})

    @property
    def brings_rows(self) -> bool:  # type: ignore[override]
        target = self.target
        return isinstance(target, NvidiaTarget) and target.capability >= (9, 0)

    def bring(self, s: Scalars, thread: Any, row: Any, pointer: Any, count: Any) -> None:
        asm(
            "{\n.reg .pred p, q;\nsetp.ge.s32 q, $1, 0;\nsetp.eq.and.s32 p, $0, 0, q;\n"
            "@p cp.async.bulk.prefetch.L2.global [$2], $3;\n}",
            "r,r,l,r", [s.value(thread, s.i32), row, pointer, count],
        )  # fmt: skip

    @property
    def adds(self) -> int:  # type: ignore[override]
        return 2 if self.brings_rows else 1  # from sm_90 on

    def add_in_memory(self, values: Sequence[Any], pointer: Any) -> None:
        if len(values) == 1:
            super().add_in_memory(values, pointer)
        else:
            count = len(values)
            added = ", ".join(f"${1 + k}" for k in range(count))
            text = f"red.global.add.v{count}.f32 [$0], {{{added}}};"
            asm(text, ",".join(["l"] + ["f"] * count), [pointer, *values])

    def load_guarded(self, s: Scalars, access: GuardedAccess, size: int, vector: int) -> list[Any]:
        return guarded.load(s, access, size, vector)

    def store_guarded(
        self, s: Scalars, access: GuardedAccess, size: int, vector: int, words: Sequence[Any]
    ) -> None:
        guarded.store(access, size, vector, words)

    def count(self, address: Any) -> Any:
        i32 = ir.IntegerType.get_signless(32)
        return asm("ld.relaxed.sys.global.b32 $0, [$1];", "=r,l,~{memory}", [address], i32)

    def give(self, address: Any, distance: int, values: Sequence[Any], flag: Any) -> None:
        for k, value in enumerate(values):
            asm(
                "{\n.reg .b64 d;\nmov.b64 d, {$1, $2};\n"
                f"st.relaxed.sys.global.b64 [$0+{k * distance}], d;\n}}",
                "l,r,r,~{memory}", [address, value, flag],
            )  # fmt: skip

    def take(self, address: Any, distance: int, count: int, flag: Any, timeout: Any) -> list[Any]:
        # all words in one loop, so that they are under way together
        names = [f"d{k}" for k in range(count)]
        loads = "".join(f"ld.relaxed.sys.global.b64 {d}, [${count}+{k * distance}];\n"
                        for k, d in enumerate(names))  # fmt: skip
        flags = "".join(
            f"mov.b64 {{${k}, f}}, {d};\nxor.b32 f, f, ${count + 1};\nor.b32 g, g, f;\n"
            for k, d in enumerate(names)
        )
        poll = f"{loads}mov.b32 g, 0;\n{flags}setp.eq.b32 p, g, 0;\n"
        text = (
            f"{{\n.reg .pred p;\n.reg .b32 f, g;\n.reg .b64 {', '.join(names)};\n"
            + polls(poll, f"${count + 2}") + "}"
        )  # fmt: skip
        i32 = ir.IntegerType.get_signless(32)
        kind = i32 if count == 1 else ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * count)})>")
        given = ",".join([*["=&r"] * count, "l", "r", "r", "~{memory}"])
        made = asm(text, given, [address, flag, timeout], kind)
        if count == 1:
            return [made]
        return [
            ir.Operation.create(
                "llvm.extractvalue", results=[i32], operands=[made],
                attributes={"position": ir.DenseI64ArrayAttr.get([k])},
            ).results[0]
            for k in range(count)
        ]  # fmt: skip

    def let_next_start(self) -> None:
        asm("griddepcontrol.launch_dependents;", "")

    def wait_for_last(self) -> None:
        asm("griddepcontrol.wait;", "~{memory}")  # the intrinsic lets loads move in front of it

    def await_told(self, address: Any, wanted: Any) -> None:
        asm(
            "{\n.reg .pred p;\n.reg .b32 v;\nLATE_${:uid}:\nld.acquire.gpu.global.b32 v, [$0];\n"
            "setp.ne.b32 p, v, $1;\n@p bra LATE_${:uid};\n}",
            "l,r,~{memory}", [address, wanted],
        )  # fmt: skip

    def see_what_is_over(self) -> None:
        asm("fence.acq_rel.gpu;", "~{memory}")

    # ---- copies

    def fetch(self, memory: Memory, array: Array, window: Window, tile: SharedTile) -> None:
        self.start_copy(memory, array, window, tile)
        self.commit()

    def arrive(self) -> None:
        self.wait(0)

    def start_copy(self, memory: Memory, array: Array, window: Window, tile: SharedTile) -> None:
        if memory.can_copy(array, window):
            _copy_async(memory, array, window, tile)
        else:
            memory.store_staged(array, window, tile, memory.load_staged(array, window))

    def copy_chunk(self, memory: Memory, target: Index, source: Any, inside: Any) -> None:
        _copy_chunk(memory, target, source, inside)

    def commit(self) -> None:
        ir.Operation.create("nvvm.cp.async.commit.group")

    def wait(self, pending: int) -> None:
        i32 = ir.IntegerType.get_signless(32)
        ir.Operation.create(
            "nvvm.cp.async.wait.group", attributes={"n": ir.IntegerAttr.get(i32, pending)}
        )

    # ---- scalars

    def again(self, threads: Threads) -> Threads:
        s = threads.s
        bound = 1 << (threads.count - 1).bit_length()  # told again: narrow sums are cheaper
        number = s.mod(s.value(unknown(s.value(threads.id, s.i32))), bound)
        return Threads(s, threads.lanes, threads.warps, number)

    def exp2(self, s: Scalars, x: Any) -> Any:
        return s.op("nvvm.ex2", [x], x.type, ftz=ir.BoolAttr.get(True))

    def log2(self, s: Scalars, x: Any) -> Any:
        make = partial(asm, "lg2.approx.f32 $0, $1;", "=f,f", [x], s.f32, side_effects=False)
        return s.remember(("lg2", x), make)

    def inverse_root(self, s: Scalars, x: Any) -> Any:
        make = partial(asm, "rsqrt.approx.f32 $0, $1;", "=f,f", [x], s.f32, side_effects=False)
        return s.remember(("rsqrt", x), make)

    def reciprocal(self, s: Scalars, x: Any) -> Any:
        return s.op("nvvm.rcp.approx.ftz.f", [x], s.f32)

    def widened(self, memory: Memory, kind: str, values: Sequence[Any], wanted: Any) -> Any:
        """To f16 two at a time: e4m3 by the instruction for that. Of integers the bits of
        1024 + (x + 128) are known, and 1152 is taken off."""
        s = memory.s
        text = _FROM_INT8 if kind == "i8" else _FROM_E4M3
        known = kind == "i8" or (kind == FLOAT8 and self._has_float8())
        if not known or len(values) % 2 or not isinstance(wanted, ir.F16Type):
            return None
        i16 = ir.IntegerType.get_signless(16)
        found: list[Any] = []
        for pair in zip(values[::2], values[1::2], strict=True):
            both = self._in_word(memory, *pair)
            if both is not None:
                said, given, kinds = _of_word(text, both[1]), [both[0]], "=r,r"
            else:
                word = s.op("llvm.bitcast", [memory.pack(pair)], i16)
                said, given, kinds = text, [word], "=r,h"
            make = partial(asm, said, kinds, given, s.i32, side_effects=False)
            wide = s.remember((said, *given), make)
            floats = s.op("llvm.bitcast", [wide], ir.VectorType.get([2], wanted))
            found += memory.unpack(floats, 2, wanted)
        return found

    def _in_word(self, memory: Memory, low: Any, high: Any) -> tuple[Any, int] | None:
        """A word that has two bytes in one of its halves, and which. Of bytes of two words it is
        made, with their neighbours in the other half."""
        s, places = memory.s, (memory.byte_of.get(low), memory.byte_of.get(high))
        if None in places:
            return None
        (one, x), (two, y) = (p for p in places if p)
        if one == two and (x, y) in ((0, 1), (2, 3)):
            return one, x // 2
        half = x % 2 if x % 2 == y % 2 else 0
        first, second = x - half, y - half  # each byte of the one beside one of the other
        order = (first, 4 + second, (first + 1) % 4, 4 + (second + 1) % 4)
        chosen = sum(byte << 4 * k for k, byte in enumerate(order))
        said = f"prmt.b32 $0, $1, $2, {chosen};"
        make = partial(asm, said, "=r,r,r", [one, two], s.i32, side_effects=False)
        return s.remember((said, one, two), make), half

    def narrowed(self, memory: Memory, kind: str, values: Sequence[Any]) -> Any:
        """To e4m3 two at a time."""
        if kind != FLOAT8 or len(values) % 2 or not self._has_float8():
            return None
        s = memory.s
        i8, i16 = (ir.IntegerType.get_signless(n) for n in (8, 16))
        found: list[Any] = []
        for low, high in zip(values[::2], values[1::2], strict=True):
            if low.type != s.f32:
                return None
            rounded = "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;"
            pair = asm(rounded, "=h,f,f", [low, high], i16, side_effects=False)
            moved = s.op("arith.shrui", [pair, s.constant(8, i16)], i16)
            both = [s.op("arith.trunci", [x], i8) for x in (pair, moved)]
            memory.pair_of[tuple(both)] = pair
            found += both
        return found

    def _has_float8(self) -> bool:
        target = self.target
        return isinstance(target, NvidiaTarget) and target.capability >= (8, 9)

    def exchange(self, s: Scalars, word: Any, distance: int) -> Any:
        everyone, width = s.constant(-1, s.i32), s.constant(31, s.i32)
        operands = [everyone, word, s.constant(distance, s.i32), width]
        return ir.Operation.create(
            "nvvm.shfl.sync", results=[word.type], operands=operands,
            attributes={"kind": ir.Attribute.parse("#nvvm<shfl_kind bfly>")},
        ).results[0]  # fmt: skip

    def in_all_lanes(self, s: Scalars, condition: Any) -> Any:
        word = s.op("arith.extui", [condition], s.i32)
        return s.op("arith.trunci", [every_lane(word)], s.i1)

    # ---- matrix products

    def fragment(self, memory: Memory, values: Sequence[Any], together: int = 1) -> list[Any]:
        s = memory.s
        if values[0].type == s.f32:
            rounded = "cvt.rna.tf32.f32 $0, $1;"
            return [asm(rounded, "=r,f", [v], s.i32, side_effects=False) for v in values]
        if values[0].type == ir.IntegerType.get_signless(8):
            return words_of(memory, values)
        return [memory.narrow(list(values[j : j + 2])) for j in range(0, len(values), 2)]

    def accumulator(self, memory: Memory, values: list[Any], together: int = 1) -> list[Any]:
        return values

    def elements(self, memory: Memory, accumulator: Any, count: int) -> list[Any]:
        return list(accumulator)

    def multiply(self, s: Scalars, i: MatrixInstruction, a: Any, b: Any, c: Any) -> list[Any]:
        if i.operand == FLOAT8:
            return self._multiply_bytes(s, i, a, b, c)
        attributes = {
            "shape": ir.Attribute.parse(f"#nvvm.shape<m = {i.m}, n = {i.n}, k = {i.k}>"),
            "layoutA": ir.Attribute.parse("#nvvm.mma_layout<row>"),
            "layoutB": ir.Attribute.parse("#nvvm.mma_layout<col>"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(a), len(b), len(c)]),
        }
        for name in ("multiplicandAPtxType", "multiplicandBPtxType"):
            attributes[name] = ir.Attribute.parse(f"#nvvm.mma_type<{i.precision or i.operand}>")
        if i.operand == "bf16":  # the op takes pairs of bfloats as words
            a, b = ([s.op("llvm.bitcast", [v], s.i32) for v in vs] for vs in (a, b))
        result = ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")
        made = ir.Operation.create(
            "nvvm.mma.sync", results=[result], operands=[*a, *b, *c], attributes=attributes
        ).results[0]
        return [
            s.op("llvm.extractvalue", [made], s.f32, position=ir.DenseI64ArrayAttr.get([k]))
            for k in range(4)
        ]

    def _multiply_bytes(
        self, s: Scalars, i: MatrixInstruction, a: Any, b: Any, c: Any
    ) -> list[Any]:
        """As two products of f16, for what is seldom computed again: a word has neighbours of two
        pieces of 8 along the sum, as the instruction for 16 takes them. (That for e4m3 needs a
        newer PTX than all else here.)"""
        half = next(m for m in self.target.matrix if m.operand == "f16")
        assert 2 * half.k == i.k

        def widened(word: Any) -> list[Any]:
            i16 = ir.IntegerType.get_signless(16)
            moved = s.op("arith.shrui", [word, s.constant(16, s.i32)], s.i32)
            halves = [s.op("arith.trunci", [w], i16) for w in (word, moved)]
            wide = [asm(_FROM_E4M3, "=r,h", [h], s.i32, side_effects=False) for h in halves]
            pair = ir.VectorType.get([2], ir.F16Type.get())
            return [s.op("llvm.bitcast", [w], pair) for w in wide]

        for k in (0, 1):
            (upper, upper_8), (lower, lower_8) = (widened(w) for w in a[2 * k : 2 * k + 2])
            left = [upper, lower, upper_8, lower_8]
            c = self.multiply(s, half, left, widened(b[k]), c)
        return list(c)

    def operand_from_shared(
        self, threads: Threads, memory: Memory, tile: SharedTile, operand: Operand
    ) -> Callable[[int, int, int], list[Any]]:
        """`ldmatrix` of 8x8 pieces; lanes 8i to 8i+7 give the rows of piece i. (16-bit elements;
        plain loads for others.)"""
        if tile.layout.element != 2 or operand.instruction.runs > 1:
            return super().operand_from_shared(threads, memory, tile, operand)
        s = memory.s
        which, free, deep, grid = operand.which, operand.free, operand.deep, operand.grid
        warp_step = tile.layout.shape[free] // (grid.m if which == "a" else grid.n)
        row_in_piece = s.mod(threads.lane, 8)
        low, high = s.mod(s.div(threads.lane, 8), 2), s.div(threads.lane, 16)
        # piece 1 and piece 2 stand 8 further along these dimensions
        first, second = (free, deep) if which == "a" else (deep, free)
        kind = ir.Type.parse(f"vector<2x{tile.dtype}>")
        number = threads.warp if which == "b" else s.mod(threads.warp, grid.m)
        if which == "b":
            number = s.mod(s.div(threads.warp, grid.m), grid.n)
        split = (grid.m if which == "a" else grid.n) > 1
        words = 4 if which == "a" else 2  # of a fragment
        extent = tile.layout.shape[free]

        def fragments(row: int, depth: int, count: int) -> list[Any]:
            pieces = words * count
            lane_part: list[Index] = [0, 0]
            lane_part[0] = row_in_piece
            lane_part[first] = s.add(lane_part[first], s.mul(low, 8))
            if which == "a" and extent < 16:  # rows of padding repeat one that exists
                last = extent - 1 if free == 0 else (extent - 1) // 8 * 8
                lane_part[free] = s.minimum(lane_part[free], last)
            if pieces == 4:
                lane_part[second] = s.add(lane_part[second], s.mul(high, 8))
            constant = [0, 0]
            constant[free] = row * operand.step
            constant[deep] = depth * operand.instruction.k
            if split:
                lane_part[free] = s.add(lane_part[free], s.mul(number, warp_step))
            step = warp_step if split and free == 1 else 0
            offset = piece_offset(memory, tile, lane_part, constant, step)
            found = _ldmatrix(memory, offset, pieces, trans=deep == 0, kind=kind)
            return [found[j : j + words] for j in range(0, pieces, words)]

        return fragments


def piece_offset(
    memory: Memory, tile: SharedTile, lane_part: Sequence[Index], constant: Sequence[int],
    column_step: int,
) -> Index:  # fmt: skip
    """Byte offset of the row that this lane gives, `constant` away from `lane_part`.

    Rows move by multiples of 8, so they keep their swizzle. Columns move by whole chunks: in
    the swizzled bits by exclusive or, where the lane's part leaves them free (but for the
    lowest, it does when warps stand whole swizzles, `column_step`, apart), above them by
    addition. So few addresses need a register; the rest is in the instruction.
    """
    s, layout = memory.s, tile.layout
    start = memory.shared_offset
    chunk = constant[1] * layout.element // CHUNK
    swizzled = chunk & layout.mask
    apart = column_step * layout.element // CHUNK % (layout.mask + 1) == 0
    if layout.mask and (swizzled % 2 or not apart):
        moved = start(layout, [lane_part[0], s.add(lane_part[1], constant[1])])
        fixed = 0
    else:
        moved = s.xor(start(layout, list(lane_part)), swizzled * CHUNK)
        fixed = (chunk - swizzled) * CHUNK
    return s.add(s.add(moved, tile.offset), fixed + constant[0] * layout.pitch)


def _ldmatrix(memory: Memory, offset: Index, count: int, trans: bool, kind: Any) -> list[Any]:
    s = memory.s
    order = "col" if trans else "row"
    words = ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * count)})>")
    loaded = ir.Operation.create(
        "nvvm.ldmatrix", results=[words], operands=[memory.shared_pointer(offset)],
        attributes={
            "num": ir.IntegerAttr.get(s.i32, count),
            "layout": ir.Attribute.parse(f"#nvvm.mma_layout<{order}>"),
            "eltType": ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
            "shape": ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        },
    ).results[0]  # fmt: skip
    found = []
    for k in range(count):
        position = ir.DenseI64ArrayAttr.get([k])
        word = s.op("llvm.extractvalue", [loaded], s.i32, position=position)
        found.append(s.op("llvm.bitcast", [word], kind))
    return found


def store_pieces(memory: Memory, offset: Index, pairs: Sequence[Any], turned: bool) -> None:
    """Write 4 pieces of 8x8, of which each thread has a pair of neighbours (`stmatrix`); `offset`:
    of the row that this lane gives, as for `ldmatrix`."""
    s = memory.s
    words = [s.op("llvm.bitcast", [pair], s.i32) for pair in pairs]
    ir.Operation.create(
        "nvvm.stmatrix", operands=[memory.shared_pointer(offset), *words],
        attributes={
            "layout": ir.Attribute.parse(f"#nvvm.mma_layout<{'col' if turned else 'row'}>"),
            "eltType": ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
            "shape": ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        },
    )  # fmt: skip


def moves_along(window: Window, row: int, count: int) -> int | None:
    """The dimension of the tensor along which `count` rows of a window from `row` on stand behind
    those before; None where they may stand in another page."""
    pages = window.pages
    if pages is None:
        return window.dims[0]
    together = math.gcd(pages.multiple, pages.size)  # rows in one page, of each so many
    if window.dims[0] != pages.dim:
        return None
    if together % count or row % together == 0:
        return None
    return pages.slot


def _copy_async(memory: Memory, array: Array, window: Window, tile: SharedTile) -> None:
    """Start copying a window to shared memory; rows that do not exist become 0.

    The block copies some whole rows a round. From round to round a thread's addresses move by
    constants (in shared memory: once the swizzle comes round; in pages: as far as one reaches), so
    few of them need registers.
    """
    s, threads, layout, size = memory.s, memory.threads, tile.layout, element_bytes(array.dtype)
    memory.needs(array, CHUNK)
    per_row = window.shape[-1] * size // CHUNK
    rows = max(1, threads.count // per_row)  # a round
    first, chunk = s.div(threads.id, per_row), s.mod(threads.id, per_row)
    idle = threads.count - rows * per_row
    working = s.less(threads.id, rows * per_row) if idle > 0 else None
    period = max(1, (layout.mask + 1 << layout.shift) // rows) if layout.mask else 1
    sources: list[Any] = []
    targets: list[Index] = []
    elements: list[list[Index]] = []

    def copy(r: int) -> None:
        past_end = (r + 1) * rows > layout.rows
        exists = s.less(s.add(first, r * rows), layout.rows) if past_end else None
        with under(s, s.both(working, exists)):
            inside = memory.in_bounds(elements[r], window.valid)
            _copy_chunk(memory, targets[r], sources[r], inside)

    for r in range(-(-layout.rows // rows)):
        row = s.add(first, r * rows)
        position = memory.unflatten(row, window.shape[:-1])
        element = [*position, s.mul(chunk, CHUNK // size)]
        dim = moves_along(window, r * rows, rows) if r and len(window.shape) == 2 else None
        if dim is not None:
            stride = array.strides[dim]
            step = s.op("arith.muli", [stride, s.constant(rows * size, s.i64)], s.i64)
            sources.append(memory.offset_pointer(sources[-1], step, array.pointer.type))
        else:
            sources.append(memory.address(array, window, element))
        if r < period:
            targets.append(s.add(memory.shared_offset(layout, element), tile.offset))
        else:
            targets.append(s.add(targets[r - period], period * rows * layout.pitch))
        elements.append(element)
        if window.pages is None:
            copy(r)
    for r in range(len(elements) if window.pages is not None else 0):
        copy(r)  # all rows are looked up before the first copy


def _copy_chunk(memory: Memory, target: Index, source: Any, inside: Any) -> None:
    """Copy 16 bytes, or write zeros where `inside` is false."""
    s = memory.s
    operands = [memory.shared_pointer(target), source]
    if inside is not None:
        operands.append(s.select(inside, s.constant(CHUNK, s.i32), s.constant(0, s.i32)))
    ir.Operation.create(
        "nvvm.cp.async.shared.global", operands=operands,
        attributes={
            "size": ir.IntegerAttr.get(s.i32, CHUNK),
            "modifier": ir.Attribute.parse("#nvvm<load_cache_modifier cg>"),
        },
    )  # fmt: skip
