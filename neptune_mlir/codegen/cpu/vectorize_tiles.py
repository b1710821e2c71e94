# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `vectorize-tiles`: kernels over static tiles become loops over vectors.

Runs on outlined, bufferized kernels. Every `memref.alloc` of a tile becomes a place in the
worker's scratch memory, with a layout that its readers like; every `linalg.generic` and
`memref.copy` becomes vector code (`neptune_mlir/codegen/tile_*.py`). Ops that only compute
scalars stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from neptune_mlir.codegen.cpu import (
    tile_bands,
    tile_contract,
    tile_copy,
    tile_direct,
    tile_generic,
    tile_groups,
    tile_ops,
    tile_strips,
    tile_views,
)
from neptune_mlir.codegen.cpu.emit import BIG, Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.pairs import tile_pairs
from neptune_mlir.codegen.cpu.scratch import Scratch, Slot
from neptune_mlir.codegen.cpu.tile_direct import DirectTile, touches_nothing
from neptune_mlir.codegen.cpu.tile_generic import TileLowering
from neptune_mlir.codegen.cpu.tile_groups import StripGroup
from neptune_mlir.codegen.cpu.tile_live import LiveSizes
from neptune_mlir.codegen.cpu.tile_ops import (
    TileGeneric,
    TileOperand,
    as_copy,
    copied_places,
    filled_with,
    only_filled,
    overwrites,
    same_output,
)
from neptune_mlir.dialects.attributes import GRID_KERNEL, PLAN
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text, memref
from neptune_mlir.runtime.plan import Plan
from neptune_mlir.targets import cpu
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import nested_in


@register("vectorize-tiles", "lower tiles of outlined kernels to vector code")
def vectorize_tiles(
    module: Any, *, vector_bits: int = 0, vector_registers: int = 0, fma: str = "true",
    pairs: str = "none",
) -> None:
    host = None if vector_bits and vector_registers else cpu.host()
    lanes = (vector_bits or host.vector_bits) // 32  # type: ignore[union-attr]
    registers = vector_registers or host.vector_registers  # type: ignore[union-attr]
    scratch = 0
    for op in list(module.body.operations):
        if GRID_KERNEL.on(op.operation):
            scratch = max(scratch, _GridKernel(op, lanes, registers, fma == "true", pairs).run())
    if PLAN.on(module.operation):
        plan = replace(Plan.from_json(PLAN.of(module.operation)), scratch=scratch)
        PLAN.set(module.operation, plan.to_json())


class _GridKernel:
    def __init__(self, function: Any, lanes: int, registers: int, fma: bool, pairs: str):
        self.function = function
        self.entry = function.regions[0].blocks[0]
        self.em = VectorEmitter(lanes, registers, self.entry, fma)
        self.pairs = tile_pairs.PairProducts(self.em, pairs)
        self.views: dict[Any, MemoryView] = {}
        self.strips: dict[Slot, MemoryView] = {}
        self.live: LiveSizes | None = None
        self.buffers: dict[Any, MemoryView] = {}
        self.fetched: list[Any] = []
        self.dead: list[Any] = []

    def run(self) -> int:
        with self.function.location:
            arguments = list(self.entry.arguments)
            self._booleans_as_bytes(arguments)
            self.scratch = Scratch(self.em, arguments[-1])
            body = list(self.entry.operations)
            with ir.InsertionPoint(body[0]):
                for argument in arguments[:-2]:  # the last two: counter and scratch
                    if isinstance(argument.type, ir.MemRefType):
                        self.views[argument] = self._argument(argument)
            self._plan_layouts()
            assert self.live is not None
            self.direct = tile_direct.find(
                self.function.operation, self._known, self.live, self._vector_loop,
                self._may_be_alike,
            )
            self.useless = {op for tile in self.direct.values() for op in tile.fills}
            self._operations(body)
            self.pairs.finish(body[0], body[-1], self.scratch)
            for op in reversed(self.dead):
                op.erase()
        return self.scratch.size

    # --- memory

    def _booleans_as_bytes(self, arguments: list[Any]) -> None:
        """i1 arrays are bytes in memory; vectors of i1 would be bits."""
        byte = ir.IntegerType.get_signless(8)
        self.kinds = {}
        for argument in arguments:
            if isinstance(argument.type, ir.MemRefType):
                self.kinds[argument] = argument.type.element_type
                if argument.type.element_type == self.em.i1:
                    kind = argument.type
                    argument.set_type(ir.MemRefType.get(kind.shape, byte, kind.layout))
        inputs = [a.type for a in arguments]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))

    def _argument(self, argument: Any) -> MemoryView:
        kind = argument.type
        rank = kind.rank
        data = memref.ExtractStridedMetadataOp(argument).results
        flat = ir.MemRefType.get([BIG], kind.element_type)
        base = memref.reinterpret_cast(flat, data[0], [], [], [], [0], [BIG], [1])
        strides, offset = kind.get_strides_and_offset()
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        return MemoryView(
            base,
            self.kinds[argument],
            data[1] if offset == dynamic else int(offset),
            tuple(data[2 + d] if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(rank)),
            tuple(
                data[2 + rank + d] if strides[d] == dynamic else int(strides[d])
                for d in range(rank)
            ),
            argument,
        )

    def _slot_of(self, op: Any) -> Slot:
        kind = op.results[0].type
        if not kind.has_static_shape:
            raise self._refuse(op, "a tile of dynamic shape")
        return Slot(kind.element_type, tuple(kind.shape), max(kind.rank - 1, 0))

    def _plan_layouts(self) -> None:
        """Give every tile a place, with the dimension contiguous that a contraction wants."""
        generics = self._views_of_tiles()
        wishes, rows = self._wishes(generics)
        self._widen(generics)
        self.live = LiveSizes(self.em, self.function.operation, rows.get)
        for value, view in list(self.views.items()):
            wish = wishes.get(view.slot, set()) if isinstance(view.slot, Slot) else set()
            if len(wish) == 1 and None not in wish:
                (view.slot.inner,) = wish
            if isinstance(view.slot, Slot):
                self.views[value] = view.slot.view(self.em, self.scratch.place(view.slot))

    def _views_of_tiles(self) -> list[Any]:
        """Note a view of each tile, that has no place yet; the tile ops."""
        generics: list[Any] = []
        tiles: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name == "memref.alloc":
                tiles.append(op)
            elif op.name == "linalg.generic":
                generics.append(op)
            return ir.WalkResult.ADVANCE

        self.function.operation.walk(visit)  # whose function must not raise
        for op in tiles:
            self.views[op.results[0]] = self._slot_of(op).view(self.em, None)
        return generics

    def _wishes(
        self, generics: list[Any]
    ) -> tuple[dict[Slot, set[int | None]], dict[Any, list[int]]]:
        """Which dimension of each tile its readers want contiguous (None: the last one), and the
        rows that contractions have in blocks."""
        wishes: dict[Slot, set[int | None]] = {}
        rows: dict[Any, list[int]] = {}
        for op in generics:
            known = [v for v in op.operands if v in self.views]
            if (generic := self._known(op)) is None:
                continue
            contraction = tile_contract.match(generic)
            wished = None
            if (found := self._contraction(generic)) is not None:
                rows[op] = found.blocked_rows
            if packed := self.pairs.takes(found):  # both factors as they are
                self.pairs.note(found)
            if contraction is not None and contraction.b.view is not None and not packed:
                wished = tile_contract.wanted_layout(contraction)
            for value in known:
                slot = self.views[value].slot
                if not isinstance(slot, Slot):
                    continue
                if contraction is not None and self.views[value] is contraction.b.view:
                    wishes.setdefault(slot, set()).add(wished)
                elif packed and self.views[value] is found.a.view:
                    wishes.setdefault(slot, set()).add(None)
                elif contraction is not None and self.views[value] is contraction.a.view:
                    pass  # read as scalars: any layout will do
                elif copied_places(generic) is not None:
                    pass  # a copy transposes well
                elif any(o.view for o in generic.inputs):
                    wishes.setdefault(slot, set()).add(None)
        return wishes, rows

    def _widen(self, generics: list[Any]) -> None:
        """Tiles of 16-bit numbers that products alone read are held as what products sum in:
        each number is widened once, not for each row that it is multiplied with."""
        read: dict[Any, list[Any]] = {}  # tiles -> types that products sum in; None: other readers
        for op in generics:
            generic = self._known(op)
            found = None if generic is None else self._contraction(generic)
            found = None if self.pairs.takes(found) else found
            for k, value in enumerate(op.operands):
                written = generic is not None and k >= len(generic.inputs)
                if not written or list(op.regions[0].blocks[0].arguments[k].uses):
                    read.setdefault(value, []).append(found and not written and found.kind)
        f32 = ir.F32Type.get()
        for value, kinds in read.items():
            slot = self.views[value].slot if value in self.views else None
            narrow = isinstance(slot, Slot) and isinstance(slot.kind, (ir.BF16Type, ir.F16Type))
            if narrow and all(kind == f32 for kind in kinds) and only_filled(value):
                slot.kind = f32

    def _known(self, op: Any) -> TileGeneric | None:
        """An op on whole tiles."""
        found = all(v in self.views for v in op.operands if _is_memref(v))
        return self._generic(op) if found else None

    def _vector_loop(self, op: Any, tile: Any, within: tuple[Index | None, ...]) -> int | None:
        """The loop that an op is vectorised along if a tile lies in an array; None where that
        would not do."""
        kept = self.views[tile]
        slot = kept.slot
        self.views[tile] = replace(kept, strides=self._unknown(slot), padded=None, within=within)
        generic = self._generic(op)
        self.views[tile] = kept
        contraction = self._contraction(generic)
        if contraction is not None and contraction.many_rows:
            return None  # what is read often had better lie in one piece
        if contraction is not None:
            whole = contraction.b.view is not None and contraction.b.view.slot is slot
            found = contraction.v if whole and not any(n is not None for n in within) else None
        else:
            found = TileLowering(self.em, generic).v
        place = next(o for o in generic.operands if o.view and o.view.slot is slot)
        loops = [d for d in range(len(generic.extents)) if place.position_of(d) == slot.inner]
        return found if found is not None and [found] == loops else None

    def _may_be_alike(self, tile: Any, array: Any) -> bool:
        """Whether a tile has an array's type, and rows of whole vectors: what lies behind a row of
        the array is another one."""
        slot, last = self.views[tile].slot, len(tile.type.shape) - 1
        whole = slot.inner == last and not slot.shape[last] % self.em.lanes
        plain = isinstance(slot.kind, (ir.F32Type, ir.F64Type))
        return bool(whole and plain and slot.kind == self.views[array].kind)

    def _unknown(self, slot: Slot) -> tuple[Index, ...]:
        """Strides that are known where a tile is contiguous alone."""
        any_value = self.function.arguments[0]
        return tuple(1 if d == slot.inner else any_value for d in range(len(slot.shape)))

    # --- ops

    def _operations(self, operations: list[Any]) -> None:
        """Lower the ops of a block; computations that follow each other are lowered together."""
        run: list[Any] = []
        stores: list[DirectTile] = []
        for op in operations:
            op = op.operation
            if op in self.useless:
                self.dead.append(op)
            elif op in self.direct:
                self.dead.append(op)
                if self.direct[op].loads:
                    self._load_directly(self.direct[op])
                else:
                    stores.append(self.direct[op])
            elif op.name == "linalg.generic":
                run.append(op)
            elif not touches_nothing(op):
                filled = self._fill_before_copy(run, op)
                self._run(run, stores, op)
                run, stores = [], []
                self._op(op, filled)
            else:
                self._op(op)
        self._run(run, stores, operations[-1])

    def _load_directly(self, direct: DirectTile) -> None:
        """Readers of a tile find it where the array lies, if that is contiguous."""
        op = direct.copy
        with ir.InsertionPoint(op), op.location:
            source = self.views[op.operands[0]]
            target = self.views[op.operands[1]]
            ahead = None if direct.alike else self._ahead(op.operands[0])
            unit = self._choose_place(direct, source, ahead)
            apart = self.em.negation(unit)
            self.em.branch(apart, lambda: tile_copy.copy(self.em, source, target))

    def _store_directly(self, direct: DirectTile) -> Callable[[], None]:
        """Who makes a tile writes the array, if that is contiguous; what is to be done behind."""
        source, target = (self.views[v] for v in direct.copy.operands)
        past = tile_direct.fills_lines(self.em, target) if direct.may_go_past else None
        apart = self.em.negation(self._choose_place(direct, target, past=past))

        def behind() -> None:
            self.em.branch(apart, lambda: tile_copy.copy(self.em, source, target))
            self.em.branch(False if past is None else past, self.em.fence)

        return behind

    def _ahead(self, part: Any) -> Index | None:
        """How far behind the elements of a part of an array those of the next one lie, where the
        part goes with the steps of the loop around it."""
        moving = tile_direct.moved_by_loop(part)
        if moving is None:
            return None
        dim, step = moving
        return self.em.value(self.em.mul(step, self.views[part.owner.operands[0]].strides[dim]))

    def _choose_place(
        self, direct: DirectTile, outside: MemoryView, ahead: Index | None = None, past: Any = None
    ) -> Any:
        unit, tile = tile_direct.place(self.em, self.views[direct.tile], direct, outside)
        self.views[direct.tile] = replace(tile, ahead=ahead, past=past)
        return unit

    def _op(self, op: Any, filled: TileGeneric | None = None) -> None:
        name = op.name
        with ir.InsertionPoint(op), op.location:
            if name == "memref.alloc":
                pass
            elif name == "memref.subview":
                self.views[op.results[0]] = tile_views.part(self.em, self.views[op.operands[0]], op)
            elif name in tile_views.RESHAPES and op.operands[0] in self.views:
                view = tile_views.reshaped(self.em, self.views[op.operands[0]], op)
                if view is None:
                    raise self._refuse(op, f"'{name}' of an array with gaps")
                self.views[op.results[0]] = view
            elif name == "memref.cast":
                self.views[op.results[0]] = self.views[op.operands[0]]
            elif name == "memref.dim" and op.operands[0] in self.views:
                self._dim(op)
            elif name == "memref.copy":
                self._copy(op, filled)
            elif name == "memref.load" and op.operands[0] in self.views:
                value = self.em.load(self.views[op.operands[0]], list(op.operands)[1:])
                op.results[0].replace_all_uses_with(value)
            elif name == "memref.store" and op.operands[1] in self.views:
                self.em.store(self.views[op.operands[1]], list(op.operands)[2:], op.operands[0])
            elif name.startswith("scf."):
                if any(_is_memref(v) for v in [*op.operands, *op.results]):
                    raise self._refuse(op, f"an array carried by '{name}'")
                for region in op.regions:
                    for block in region.blocks:
                        self._operations(list(block.operations))
                return
            elif any(_is_memref(v) and v in self.views for v in op.operands):
                raise self._refuse(op, f"'{name}' on an array")
            else:
                return
        self.dead.append(op)

    def _refuse(self, op: Any, what: str) -> LoweringError:
        return LoweringError(
            f"{what} in a kernel has no lowering for the CPU", loc=location_text(op.location)
        )

    def _dim(self, op: Any) -> None:
        owner = op.operands[1].owner
        if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
            raise self._refuse(op, "'memref.dim' of a dimension that is not constant")
        dim = ir.IntegerAttr(owner.operation.attributes["value"]).value
        size = self.views[op.operands[0]].sizes[dim]
        op.results[0].replace_all_uses_with(self.em.value(size))

    def _generic(self, op: Any) -> TileGeneric:
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        kinds = [str(a) for a in op.attributes["iterator_types"]]
        operands = []
        extents: list[Any] = [None] * maps[0].n_dims
        for value, indexing in zip(op.operands, maps, strict=True):
            index = list(indexing.results)
            view = self.views.get(value)
            operands.append(TileOperand(view, value, index))
            for k, e in enumerate(index):
                if isinstance(e, ir.AffineDimExpr) and not isinstance(extents[e.position], int):
                    assert view is not None
                    extents[e.position] = view.sizes[k]
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        count = int(segments[0])
        return TileGeneric(
            op, operands[:count], operands[count:], extents,
            ["reduction" in kind for kind in kinds], [0] * len(extents), self._loaded(op),
            self.live.of(op) if self.live else [],
        )  # fmt: skip

    def _loaded(self, op: Any) -> dict[Any, MemoryView]:
        """The arrays that the body of an op loads single elements from."""
        arrays = [v for inner in nested_in(op) for v in inner.operands if _is_memref(v)]
        return {array: self.views[array] for array in arrays if array in self.views}

    # --- computations

    def _run(self, run: list[Any], stores: list[DirectTile], end: Any) -> None:
        """Lower computations, and the stores of what they make, in front of `end`."""
        if not run:
            return
        self.dead += run
        with ir.InsertionPoint(end), run[-1].location:
            copies = [self._store_directly(store) for store in stores]
            for group in tile_groups.group([self._generic(op) for op in run], self._columns):
                self._group(group)
            for copy in copies:
                copy()

    def _group(self, group: StripGroup) -> None:
        products = [c for m in group.members if (c := self._contraction(m)) is not None]
        wanted = self.pairs.pack(products, group.written, self.scratch)
        lanes = self.em.lanes
        size = tile_groups.strip_size(group.extent, lanes, wanted) if group.extent else 0
        local = self._local(group) if len(group.members) > 1 else set()
        rows: Index = size
        whole = size == group.extent
        if whole and len(group.members) > 1:
            contracts = any(self._contraction(member) for member in group.members)
            if not contracts and tile_strips.may_cut(self.em, group, local):
                rows = tile_strips.rows_near(self.em, group)
        if len(group.members) == 1 or (whole and rows == size):
            for member, start in self._starts(group.members):
                self._compute(member, start)
            return
        bounds = {m.live[d] for m, d in zip(group.members, group.strip, strict=True)}
        known = len(bounds) == 1 and None not in bounds
        end = self.em.minimum(group.extent, bounds.pop()) if known else group.extent

        def strip(low: Index, _: list[Any]) -> list[Any]:
            parts = {
                id(member): self._restricted(group, member, low, size, local)
                for member in group.members
            }
            if whole:
                tile_strips.end_early(self.em, group, parts, self.em.add(low, rows), end, rows)
            for member, start in self._starts(group.members):
                self._compute(parts[id(member)], start)
            return []

        self.em.loop(0, end, rows, strip)

    def _local(self, group: StripGroup) -> set[Slot]:
        """Tiles that no op outside of the group touches, and that it writes before it reads."""
        members = [m.op for m in group.members]
        found = set()
        for slot, place in group.place.items():
            if not isinstance(slot, Slot) or place is None:
                continue
            users = [
                use.owner.operation
                for value, view in self.views.items()
                if view.slot is slot
                for use in value.uses
            ]
            first = next(m for m in group.members if any(o.view and o.view.slot is slot
                                                         for o in m.operands))  # fmt: skip
            if all(user in members for user in users) and overwrites(first, slot):
                found.add(slot)
        return found

    def _restricted(
        self, group: StripGroup, member: TileGeneric, low: Index, size: int, local: set[Slot]
    ) -> TileGeneric:
        """The part of an op in the strip that starts at `low`."""
        d = next(s for m, s in zip(group.members, group.strip, strict=True) if m is member)

        def narrow(o: TileOperand) -> TileOperand:
            if o.view is None or o.view.slot not in local:
                return o
            place = group.place[o.view.slot]
            assert place is not None
            view = self._strip_view(o.view.slot, place, size)
            return replace(
                o, view=replace(view, offset=self.em.mul(low, -int(view.strides[place])))
            )

        return replace(
            member,
            inputs=[narrow(o) for o in member.inputs],
            outputs=[narrow(o) for o in member.outputs],
            extents=[size if k == d else n for k, n in enumerate(member.extents)],
            lows=[low if k == d else 0 for k in range(len(member.extents))],
        )

    def _strip_view(self, slot: Slot, place: int, size: int) -> MemoryView:
        if slot not in self.strips:
            shape = tuple(size if k == place else n for k, n in enumerate(slot.shape))
            self.strips[slot] = self.scratch.allocate(slot.kind, shape, slot.inner)
        return self.strips[slot]

    def _starts(self, members: list[TileGeneric]) -> list[tuple[TileGeneric, Any]]:
        """Pairs of an op and the scalar that its output starts from: a fill right before a
        contraction is not carried out."""
        found: list[tuple[TileGeneric, Any]] = []
        for k, member in enumerate(members):
            value = filled_with(member)
            if value is not None and k + 1 < len(members):
                after = members[k + 1]
                if self._contraction(after) and same_output(member, after):
                    continue
            before = members[k - 1] if k else None
            start = None
            if before and self._contraction(member) and same_output(before, member):
                start = filled_with(before)
            found.append((member, start))
        return found

    def _columns(self, generic: TileGeneric) -> int | None:
        """The loop of a product that its vectors run along."""
        found = self._contraction(generic)
        return None if found is None else found.v

    def _contraction(self, generic: TileGeneric) -> Any:
        if not all(isinstance(n, int) for n in generic.extents):
            return None
        found = tile_contract.match(generic)
        return found if found is not None and tile_contract.worthwhile(found) else None

    def _compute(self, generic: TileGeneric, start: Any = None) -> None:
        generic = tile_ops.fetched_once(generic, self.fetched)
        moved = as_copy(self.em, generic)
        if moved is not None:
            tile_copy.copy(self.em, *moved)
            self.pairs.loaded(moved[1], self.scratch)
            return
        contraction = self._contraction(generic)
        if contraction is not None:
            bands = tile_bands.bands_of(generic.op, start is not None)
            within = tuple((band, band.most(self.em)) for band in bands)
            banded = replace(contraction, bands=within)
            wide = partial(tile_contract.lower_contraction, self.em, banded,
                           self.scratch.allocate, start)  # fmt: skip
            self.pairs.multiply(contraction, start, self.scratch, wide)
        else:
            tile_generic.lower_generic(self.em, generic, self._buffer)

    def _buffer(self, kind: Any, shape: tuple[int, ...], inner: int) -> MemoryView:
        """Scratch memory for one computation: the next may have the same."""
        key = (str(kind), shape, inner)
        if key not in self.buffers:
            self.buffers[key] = self.scratch.allocate(kind, shape, inner)
        return self.buffers[key]

    def _fill_before_copy(self, run: list[Any], op: Any) -> TileGeneric | None:
        """Take the fill of a tile off the run when the next op copies (part of) that tile in:
        a whole copy makes it useless."""
        if op.name != "memref.copy" or not run:
            return None
        last = self._generic(run[-1])
        target = self.views[op.operands[1]]
        if filled_with(last) is None or last.outputs[0].view.slot is not target.slot:
            return None
        self.dead.append(run.pop())
        return last

    def _copy(self, op: Any, filled: TileGeneric | None) -> None:
        source, target = (self.views[v] for v in op.operands)
        tile = None
        for view in (target, source):
            if isinstance(view.slot, Slot) and len(view.slot.shape) == len(view.sizes):
                tile = view.slot.shape
                break
        fill = (lambda: tile_generic.lower_generic(self.em, filled)) if filled else None
        if filled and (tile is None or target.slot is not view.slot):
            tile_generic.lower_generic(self.em, filled)
            fill = None
        tile_copy.copy(self.em, source, target, tile, fill)
        self.pairs.loaded(target, self.scratch)


def _is_memref(value: Any) -> bool:
    return isinstance(value.type, ir.MemRefType)
