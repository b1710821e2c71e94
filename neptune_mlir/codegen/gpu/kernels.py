# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One kernel of tile IR as the code of one thread of a block.

The program's block runs through once: index and scalar ops are copied, tile ops become scalar
code on the elements that the thread holds (`compute.py`), loads and stores become accesses to
memory (`memory.py`), `scf.for` stays a loop whose carried tiles are spread into scalars. A loop
that loads to shared memory is pipelined: while one iteration computes, the copies of the next
ones are under way (`neptune.stages` buffers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout, Shared, blocked, iteration_of, layout_of
from neptune_mlir.analysis.tiles import (
    Window,
    chooses_scalars,
    element_of,
    element_type,
    is_inside,
    is_tensor,
    is_view,
    load_window,
    nested,
    read_contraction,
    read_generic,
    row_multiple,
    shape_of,
    slice_parts,
    tuned,
    view_source,
)
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.compute import Compute
from neptune_mlir.codegen.gpu.frame import KernelFrame
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.gpu.in_loops import reduce_in_loops
from neptune_mlir.codegen.gpu.kept import KeptLoop
from neptune_mlir.codegen.gpu.measured import MeasuredOp
from neptune_mlir.codegen.gpu.meeting import Meeting
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.pipeline import pipeline_of
from neptune_mlir.codegen.gpu.rows.ahead import bring_rows
from neptune_mlir.codegen.gpu.rows.early_loads import load_early, reads_kernels
from neptune_mlir.codegen.gpu.rows.stashed import stash
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.gpu.sums import add_slice, await_sums, end_behind_others
from neptune_mlir.codegen.gpu.tile_forms import Held, Pending, ResultView, Splat, Tile
from neptune_mlir.dialects.gpu_attributes import (
    INTERLEAVED,
    KEEPS,
    LAYOUT,
    LAYOUTS,
    MEASURED,
    SWAPPED,
    VIA,
)
from neptune_mlir.dialects.op_names import ADD_SLICE, AWAIT_SUMS, JOIN, PAGED
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import gpu, ir, location_text, scf
from neptune_mlir.ir.values import defining_op

LOOPS = "scf.for", "scf.while"
Emitter = Callable[[Any, Any], None]  # of a writer and an op


class KernelWriter(KernelFrame):
    """Writes one kernel. `emitters` is what writes each op of tiles, by its name."""

    def __init__(
        self, signature: KernelSignature, chip: Chip, emitters: Mapping[str, Emitter] | None = None
    ):
        super().__init__(signature, chip)
        self.emitters = EMITTERS if emitters is None else emitters
        self.tiles: dict[Any, Tile] = {}
        self.slices: dict[Any, Any] = {}  # the valid part of a tile -> the tile
        self.going_on: dict[Any, Any] = {}  # loops whose copies the loop before started
        self.landing: set[Any] = set()  # tiles that are on their way to shared memory
        self.meeting = Meeting()

    # ---- the function

    def write(self) -> None:
        s = self.s = Scalars(self.chip)
        self.meeting, types = Meeting.of(self), self.argument_types()
        kind = ir.FunctionType.get([*types, *self.meeting.types], [])
        function = gpu.GPUFuncOp(
            kind, self.signature.name, kernel=True,
            known_block_size=[self.warps * self.target.wave, 1, 1],
        )  # fmt: skip
        block = function.add_entry_block()
        with self.forall.location, s.scope(block):
            self.place_arguments(block)
            self.threads = Threads(s, self.target.wave, self.warps)
            self._program(block)
            self.end()
        self.finish(function.operation)

    def _program(self, block: Any) -> None:
        """The code behind the arguments."""
        s = self.s
        symbol = ir.FlatSymbolRefAttr.get(self.chip.shared_symbol(self.signature.name))
        smem = s.op("llvm.mlir.addressof", [], ir.Type.parse("!llvm.ptr<3>"), global_name=symbol)
        self.memory = Memory(s, self.threads, smem)
        loops = any(op.name in LOOPS for op in nested(self.body))
        self.memory.once = not loops and not reads_kernels(self)
        self.memory.passing = bool(tuned(self.forall, "once", 0))
        self.compute = Compute(s, self.threads, self.memory, self.scalar)
        self.program_position(block)
        given = len(self.meeting.types)
        self.meeting.write(self, list(block.arguments)[len(block.arguments) - given :])
        await_sums(self)
        bring_rows(self)
        early = load_early(self)
        for op in self.body.operations:
            if op.operation not in early:
                self.write_op(op.operation)

    def end(self) -> None:
        """The end of the function. (Who waits for this kernel waits for those before it.)"""
        if self.signature.independent:
            end_behind_others(self)
        gpu.ReturnOp([])

    def takes_turns(self, array: Array) -> bool:
        """Whether what programs add to an array can be added in turns."""
        return False

    def write_extract(self, op: Any, local: dict[Any, Any] | None = None) -> Any:
        """An element of a tensor that the kernel takes, or of a tile that has but one."""
        tensor, *position = op.operands
        if tensor in self.tiles and not position:
            tile = self.tile(tensor)
            layout = tile.layout if isinstance(tile, Held) else self.any_layout(())
            return self.compute.registers(tile, layout)[0]
        if tensor not in self.arrays:
            raise LoweringError(
                "a read of a single element of a tile has no GPU lowering",
                loc=location_text(op.location),
            )
        return self.memory.load_one(self.arrays[tensor], [self.scalar(i, local) for i in position])

    # ---- ops

    def write_op(self, op: Any) -> None:
        if op.name in self.emitters:
            self.emitters[op.name](self, op)
        elif op.name == "tensor.extract":
            self.scalars[op.results[0]] = self.write_extract(op)
        elif op.name == "scf.if" and chooses_scalars(op):
            self.scalars.update(zip(op.results, self.choose(op), strict=True))
        elif any(is_tensor(v) for v in [*op.operands, *op.results]):
            raise LoweringError(
                f"'{op.name}' on tiles has no GPU lowering", loc=location_text(op.location)
            )
        # scalar ops are copied where they are used

    def tile(self, value: Any) -> Tile:
        source = defining_op(value)
        if source is not None and source.name == "tensor.empty":  # perhaps outside the kernel
            return Splat(None)
        if value not in self.tiles:
            raise LoweringError(
                "a tile that this kernel does not make", loc=location_text(self.forall.location)
            )
        if value in self.landing:
            self.chip.arrive()
            self.memory.barrier()
            self.landing.clear()
        return self.tiles[value]

    def _fill(self, op: Any) -> None:
        self.tiles[op.results[0]] = Splat(self.scalar(op.operands[0]))

    def write_slice(self, op: Any) -> None:
        value = op.results[0]
        if is_view(value, self.forall):
            offsets, _, dims = slice_parts(op)
            self.views[value] = self.inside(self.views[op.operands[0]], offsets, dims)
        elif load_window(value, self.forall) is None:
            self.slices[value] = op.operands[0]  # the valid part of a tile, for a store
        elif ir.RankedTensorType(value.type).has_static_shape:
            self._load(op)

    def inside(self, view: ResultView, offsets: Sequence[Any], dims: Sequence[int]) -> ResultView:
        """The part of a view at `offsets`, of which the dimensions `dims` are kept."""
        start = list(view.offsets)
        for d, offset in zip(view.dims, offsets, strict=True):
            here = offset if isinstance(offset, int) else self.scalar(offset)
            start[d] = self.s.add(start[d], here)
        return ResultView(view.array, tuple(start), tuple(view.dims[d] for d in dims))

    def _load(self, op: Any) -> None:
        """A load becomes a copy to shared memory now, or loads to registers where it is used."""
        value = op.results[0]
        found = load_window(value, self.forall)
        if found is None:
            raise LoweringError("a pad of a computed tile", loc=location_text(op.location))
        array = self.arrays[found.tensor]
        if value in self.meeting.found:
            self.tiles[value] = self.meeting.found[value]
            return
        if not LAYOUT.on(op):
            window = self.window(found)
            pending = Pending(partial(self.memory.load_each, array, window))
            self.tiles[value] = stash(self, op, array, window) or pending
            return
        if value in self.tiles:  # staged by the loop around it
            return
        layout = layout_of(op, found.shape)
        if not isinstance(layout, Shared):
            loaded = self.memory.load_global(array, self.window(found), layout)
            self.tiles[value] = Held(layout, loaded)
            return
        tile = SharedTile(layout, self.memory.take(layout.bytes), array.dtype)
        self.memory.settle()
        self.chip.fetch(self.memory, array, self.window(found), tile)
        self.landing.add(value)
        self.tiles[value] = tile

    def _generic(self, op: Any) -> None:
        if MEASURED.on(op):
            MeasuredOp(self, op).write()
        else:
            self.write_generic(op)

    def write_generic(self, op: Any) -> None:
        """The code of a tile op as its body has it."""
        g = read_generic(op)
        via, tiles = VIA.of(op), self.operands(g)
        if via == "registers":
            made = self.compute.generic(g, tiles, iteration_of(op, g.extents))
        elif via == "mma":
            layout = iteration_of(op, shape_of(g.result))
            made = self.compute.matrix(g, self.oriented(g), tiles, layout)
        else:
            made = reduce_in_loops(self.compute, g, tiles, iteration_of(op, shape_of(g.result)))
        self.tiles[g.result] = made

    def operands(self, g: Any) -> list[Tile]:
        """The tiles that a tile op reads: its inputs, then the init."""
        tiles = [self.tile(v) if g.is_read(k) else Splat(None) for k, v in enumerate(g.inputs)]
        return [*tiles, self.tile(g.init)]

    def oriented(self, g: Any) -> Any:
        product = read_contraction(g)
        return product.swapped() if SWAPPED.on(g.op) else product

    def _copy(self, op: Any) -> None:
        """A conversion that assign-layouts asked for."""
        value, result, tile = op.operands[0], op.results[0], self.tile(op.operands[0])
        needed, dtype = layout_of(op, shape_of(value)), element_of(value)
        if not isinstance(tile, Held):
            self.tiles[result] = tile
        elif isinstance(needed, Shared):
            self.tiles[result] = self.compute.to_shared(tile.values, tile.layout, dtype)
        else:
            moved = self.compute.convert(tile.values, tile.layout, needed, dtype)
            self.tiles[result] = Held(needed, moved)

    def in_parallel(self, op: Any) -> None:
        for insert in op.regions[0].blocks[0].operations:
            if not is_view(insert.operation.operands[0], self.forall):  # else it is written already
                self._store(insert.operation)

    def _insert(self, op: Any) -> None:
        self._store(op)
        self.views[op.results[0]] = self.views[op.operands[1]]

    def _store(self, op: Any) -> None:
        """Write (the valid part of) a tile into a result: an insert slice op."""
        source, target = op.operands[0], op.operands[1]
        source = self.slices.get(source, source)
        offsets, sizes, dims = slice_parts(op)
        shape = shape_of(source)
        view = self.inside(self.views[target], offsets, dims)
        valid = tuple(
            None
            if isinstance(sizes[d], int) and sizes[d] >= n
            else sizes[d]
            if isinstance(sizes[d], int)
            else self.scalar(sizes[d])
            for d, n in zip(dims, shape, strict=True)
        )
        whole = self.signature.tensors[view.array.number]
        multiple = row_multiple(whole, view.offsets, view.dims, [sizes[d] for d in dims])
        window = Window(None, view.offsets, view.dims, shape, valid, multiple)
        tile = self.tile(source)
        layout = tile.layout if isinstance(tile, Held) else self.any_layout(shape)
        values = tile.values if isinstance(tile, Held) else self.compute.registers(tile, layout)
        self.write_tile(op, view.array, window, layout, values)

    def write_tile(
        self, op: Any, array: Array, window: Window, layout: Layout, values: Sequence[Any]
    ) -> None:
        write = self.memory.add_global if op.name == ADD_SLICE else self.memory.store_global
        if INTERLEAVED.on(op):
            values = [values[k] for k in L.interleaved(layout)]
        write(array, window, layout, values)

    def any_layout(self, shape: Sequence[int]) -> Layout:
        return blocked(shape, self.threads.lanes, self.threads.warps)

    # ---- loops

    def _for(self, op: Any) -> None:
        s = self.s
        low, high, step = (self.scalar(v) for v in list(op.operands)[:3])
        starts = list(op.operands)[3:]
        body = op.regions[0].blocks[0]
        layouts = self.carried_layouts(op, starts)
        carried = self.spread(starts, layouts)
        top, landing = self.memory.top, set(self.landing)
        pipeline = pipeline_of(self, op)
        pipeline.start(low, high, step)
        loaded = self.elements_of([op])
        kept = KeptLoop(self, op, layouts) if KEEPS.on(op) else None
        tries = [kept.first(starts)] if kept else []
        loop = scf.ForOp(low, high, step, [*carried, *pipeline.carried(), *tries])
        with s.scope(loop.body), self.instead(loaded):
            self.scalars[body.arguments[0]] = loop.induction_variable
            arguments = list(loop.inner_iter_args)
            self.bind(body.arguments[1:], layouts, arguments)
            self.memory.unsafe = True  # slower threads may still be in the iteration before
            ahead = pipeline.advance(loop.induction_variable, high, step, arguments)
            *inner, end = body.operations
            if kept:
                tries = [kept.write(loop.inner_iter_args[-1])]
            else:
                for operation in inner:
                    self.write_op(operation.operation)
            yielded = self.spread(end.operation.operands, layouts)
            scf.YieldOp([*yielded, *ahead, *tries])
        pipeline.finish(list(loop.results)[len(carried):], top)
        self.landing = landing  # a loop may run no iteration
        self.bind(op.results, layouts, list(loop.results))

    def elements_of(self, loops: Sequence[Any]) -> dict[Any, Tile]:
        """Single elements that loops read, loaded before them and not in each iteration."""
        found: dict[Any, Tile] = {}
        for value, tile in self.tiles.items():
            if not isinstance(tile, Pending) or shape_of(value):
                continue
            made = [v for use in value.uses for v in use.owner.operation.results]
            if any(is_inside(v, loop) for v in made for loop in loops):
                (element,) = tile.load(Layout((), (), (), ()))
                found[value] = Splat(element)
        return found

    @contextmanager
    def instead(self, tiles: dict[Any, Tile]) -> Iterator[None]:
        """Other tiles for some values, in a part of the code."""
        before = {value: self.tiles[value] for value in tiles}
        self.tiles |= tiles
        yield
        self.tiles |= before

    def _join(self, op: Any) -> None:
        """What threads left apart in partial sums (`defer-joins`), together."""
        tile = self.tile(op.operands[0])
        distances, warps = (list(op.attributes[name]) for name in ("distances", "warps"))
        along = list(zip(warps[::2], warps[1::2], strict=True))
        joined = self.compute.join(tile, element_of(op.results[0]), distances, along)
        self.tiles[op.results[0]] = joined

    def carried_layouts(self, op: Any, starts: Sequence[Any]) -> list[Layout | ResultView | None]:
        """Of each value that a loop carries: None for a scalar; a view is carried by name."""
        layouts: list[Layout | ResultView | None] = []
        for text, value, start in zip(LAYOUTS.of(op), op.results, starts, strict=True):
            if is_view(value, self.forall):
                while start not in self.views:
                    start = view_source(start)
                layouts.append(self.views[start])
            else:
                layouts.append(L.parse(text, shape_of(value)) if text else None)
        return layouts

    def spread(self, values: Any, layouts: Sequence[Layout | ResultView | None]) -> list[Any]:
        """Carried values as scalars."""
        scalars: list[Any] = []
        for value, layout in zip(values, layouts, strict=True):
            if layout is None:
                scalars.append(self.scalar(value))
            elif isinstance(layout, Layout):
                scalars += self.compute.carry(self.tile(value), element_type(value), layout)
        return scalars

    def bind(
        self, values: Any, layouts: Sequence[Layout | ResultView | None], scalars: list[Any]
    ) -> None:
        """The inverse of `_spread`: takes from the front of `scalars`."""
        for value, layout in zip(values, layouts, strict=True):
            if layout is None:
                self.scalars[value] = scalars.pop(0)
            elif isinstance(layout, ResultView):
                self.views[value] = layout
            else:
                self.tiles[value] = self.compute.carried(scalars, element_type(value), layout)


# what writes an op; a kernel with other ops, or that writes some otherwise, has a table of its own
EMITTERS: dict[str, Emitter] = {
    "tensor.empty": lambda writer, op: writer.tiles.update({op.results[0]: Splat(None)}),
    "linalg.fill": KernelWriter._fill,
    "linalg.generic": KernelWriter._generic,
    "linalg.copy": KernelWriter._copy,
    "tensor.extract_slice": KernelWriter.write_slice,
    "tensor.pad": KernelWriter._load,
    "scf.for": KernelWriter._for,
    JOIN: KernelWriter._join,
    PAGED: lambda _writer, _op: None,  # its slices are loads
    "scf.forall.in_parallel": KernelWriter.in_parallel,
    "tensor.insert_slice": KernelWriter._insert,
    ADD_SLICE: lambda writer, op: add_slice(writer, op),
    AWAIT_SUMS: lambda _writer, _op: None,  # in front of all else
}
