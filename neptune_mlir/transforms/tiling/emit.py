# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The body of one program: tile tensors, made on demand, each in the outermost loop that can.

A `Frame` is one loop level of the program: the grid program itself, the streamed loop, a loop
around one reduction, a sweep over results. `Program.tile_of` asks for the tile tensor of a
nest or a load; it is made once per frame, so loads are shared among nests and whatever does
not depend on a loop stands before it.

A tile tensor has one dimension per axis with a tile size over 1, in the order of the access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import elements
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import FusedNest, scalar_term
from neptune_mlir.analysis.masks import Linear, fold_conditions, is_remainder, linear, masked_load
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.attributes import COMBINE, FREE, IDENTITY
from neptune_mlir.dialects.op_names import INDEX, READ
from neptune_mlir.dialects.regions import clone_scalar_code
from neptune_mlir.dialects.scalars import (
    Emitter,
    cast,
    constant,
    emit_combined,
    identity_value,
    mlir_type,
)
from neptune_mlir.ir import affine as ix
from neptune_mlir.ir.affine import Index
from neptune_mlir.ir.bindings import arith, func, ir, linalg, scf, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.tiling.bodies import Bodies
from neptune_mlir.transforms.tiling.bounds import Range, tail_ranges
from neptune_mlir.transforms.tiling.host_plan import captured
from neptune_mlir.transforms.tiling.kernel import LOOPED, TileKernel
from neptune_mlir.transforms.tiling.loads import Loads
from neptune_mlir.transforms.tiling.slices import Tile

ACCUMULATOR = "accumulator"  # key of the running element in a reduction's scalar code


def ranged_type(read: Term) -> str:
    """The type that the smallest and the largest of integers are held in."""
    return read.dtype if read.dtype in ("index", "i64") else "i32"


class Frame:
    """One loop level: the axes it binds, and the tile tensors made in it so far."""

    def __init__(
        self,
        block: Any,
        tiles: dict[int, Tile],
        parent: Frame | None = None,
        known: Sequence[Linear] = (),
    ):
        self.block = block
        self.parent = parent
        self.known: list[Linear] = [*(parent.known if parent else ()), *known]
        self.tiles = tiles
        self.points: dict[int, Tile] = {}  # axes of one element, which stand there in any loop
        self.made: dict[Any, Any] = {}
        # whether it is in a loop of several iterations
        self.repeats: bool = parent is not None and parent.repeats
        self.open_loop: Any = None  # the loop being filled in this frame's block

    def tile(self, axis: int) -> Tile:
        if axis in self.tiles:
            return self.tiles[axis]
        if self.parent is None:
            if axis in self.points:
                return self.points[axis]
            raise KeyError(f"axis {axis} is bound by no loop here")
        return self.parent.tile(axis)

    def binds(self, axis: int) -> bool:
        return axis in self.tiles or (self.parent is not None and self.parent.binds(axis))

    def outermost(self, axes: frozenset[int]) -> Frame:
        """The outermost enclosing frame in which all of `axes` have a position."""
        frame = self
        while frame.parent is not None and all(frame.parent.binds(a) for a in axes):
            frame = frame.parent
        return frame

    def here(self) -> Any:
        """Insertion point: the end of the block, or before the loop being filled."""
        if self.open_loop is not None:
            return ir.InsertionPoint(self.open_loop)
        return ir.InsertionPoint(self.block)


class GridProgram:
    """Emits the tile tensors of one kernel inside its grid program."""

    def __init__(self, kernel: TileKernel, values: nests.Values, frame: Frame):
        self.kernel = kernel
        self.values = values
        self.root = frame
        frame.points = {k: Tile(1, 0, 1) for k, a in enumerate(kernel.axes) if a.extent == 1}
        self._needs: dict[str, frozenset[int]] = {}
        self.loads = Loads(kernel, values)
        self._bodies = Bodies(kernel, self.extent)
        self._looped = frozenset(k for k, a in enumerate(kernel.axes) if a.role in LOOPED)
        self._made_here = {*kernel.nests, *kernel.finish_keys, *(r.key for r in kernel.running)}

    # ---- what a value depends on

    def needs(self, key: str) -> frozenset[int]:
        """The looped axes that must have a position before the value `key` can be made."""
        if key not in self._needs:
            self._needs[key] = self._find_needs(key)
        return self._needs[key]

    def _find_needs(self, key: str) -> frozenset[int]:
        nest = self.kernel.nests.get(key)
        if nest is None:
            running = any(r.key == key for r in self.kernel.running)
            return frozenset([self.kernel.stream]) if running else frozenset()
        found = nest.used_axes & self._looped
        for read in nest.reads:
            found |= self.needs(read.attr)
        if nest.init is not None:
            found |= self.needs(nest.init)
        return found - self._loops_around(nest)

    def _loops_around(self, nest: FusedNest) -> frozenset[int]:
        """The looped axes that this nest reduces over in loops of its own."""
        own = frozenset(nest.reduced_axes) & self._looped
        return own - {self.kernel.stream} if nest.in_body else own

    # ---- tile tensors

    def tile_of(self, key: str, frame: Frame) -> Any:
        """The tile tensor of a nest's result or a running value, usable in `frame`."""
        home = frame.outermost(self.needs(key))
        if key not in home.made:
            nest = self.kernel.nests[key]
            with home.here(), nest.op.operation.location:
                home.made[key] = self._emit(nest, home)
        return home.made[key]

    def _operand(self, read: Term, frame: Frame) -> tuple[Any, list[int]]:
        """The tile tensor that `read` takes its elements from, and the axis of each dimension."""
        if read.attr not in self._made_here:  # a tensor from outside the kernel
            return self.loads.tile(read, frame, self._limits(read, frame))
        loaded = self._loaded(read, frame)
        if loaded is not None:
            return loaded
        made_over = self.kernel.result_axes(read.attr)
        axes = []
        for position, axis in zip(read.args, made_over, strict=True):
            if position.op == "index" and self._same_tile(position.attr, axis):
                axes.append(position.attr)
            elif not (position.is_const and self.kernel.axes[axis].extent == 1):
                raise self.kernel.error(
                    f"axis '{self.kernel.axes[axis].name}' of a value made in this kernel is read "
                    f"at {position}, which another program may hold"
                )
        return self.tile_of(read.attr, frame), [a for a in axes if self._extends(a)]

    def _limits(self, read: Term, frame: Frame) -> Sequence[Linear]:
        """Where a load ends because another nest's load of the same elements ends there: one tile
        then serves both. Points behind are not live, so what is read for them does not matter."""
        for nest in self.kernel.nests.values():
            if nest.combiner is not None or nest.body is None or nest.body.op != "select":
                continue
            found = masked_load(fold_conditions(nest.body, frame.known))
            if found is None or not found[1] or not self._same_elements(read, found[0]):
                continue
            if self.loads.may_limit(read, found[1], frame):
                return found[1]
        return ()

    def _same_elements(self, a: Term, b: Term) -> bool:
        """Whether two reads take the same tile of a tensor."""
        if a.attr != b.attr:
            return False
        return all(
            x is y
            or (x.op == y.op == "index" and self._same_tile(x.attr, y.attr))
            for x, y in zip(a.args, b.args, strict=True)
        )

    def _loaded(self, read: Term, frame: Frame) -> tuple[Any, list[int]] | None:
        """The tile of a map that only leaves out what does not exist: a load that ends there."""
        nest = self.kernel.nests.get(read.attr)
        if nest is None or nest.combiner is not None or nest.body is None:
            return None
        if read.args != tuple(map(T.index, nest.result_axes)):
            return None
        found = masked_load(fold_conditions(nest.body, frame.known))
        if found is None or found[0].attr in self._made_here:
            return None
        inner, forms = found
        if not self.loads.may_limit(inner, forms, frame):
            return None
        return self.loads.tile(inner, frame, forms)

    def _same_tile(self, a: int, b: int) -> bool:
        x, y = self.kernel.axes[a], self.kernel.axes[b]
        return a == b or (x.role == y.role == "whole" and (x.extent, x.size) == (y.extent, y.size))

    def _extends(self, axis: int) -> bool:
        return self.kernel.axes[axis].size > 1

    def span(self, atom: Term) -> tuple[Index, Index]:
        """The smallest and the largest value of an axis or a scalar in this program."""
        if atom.op == "index":
            axis = self.kernel.axes[atom.attr]
            if axis.role == "loop":
                return 0, ix.sub(axis.extent, 1)
            tile = self.root.tile(atom.attr)
            return tile.offset, ix.add(tile.offset, tile.size - 1)
        if is_remainder(atom):
            return 0, ix.sub(self.loads.scalar(atom.args[1], self.root), 1)
        if atom.op == "read" and not self.loads.are_known([atom], self.root):
            return self._extreme(atom, "min"), self._extreme(atom, "max")
        value = self.loads.scalar(atom, self.root)
        return value, value

    def bounds(self, form: Linear) -> bool:
        """Whether a program knows the range of all numbers that a form reads before it streams."""
        if not all(self.root.binds(a) for t in form.remainders for a in t.axes):
            return False
        return all(
            self.loads.are_known([read], self.root)
            or all(i.op == "index" and self.root.binds(i.attr) for i in read.args)
            for read in form.reads
        )

    def _extreme(self, read: Term, combiner: str) -> Any:
        """The smallest ("min") or the largest ("max") of the numbers that a program reads, as
        index."""
        found = tensor.ExtractOp(self.extreme(read, combiner), []).result
        held = ranged_type(read)
        return found if held == "index" else cast(found, held, "index")

    def extreme(self, read: Term, combiner: str) -> Any:
        """The same as a tensor of no dimensions (`ranged_type`); of booleans they are 0 and 1."""
        tile, axes = self.loads.tile(read, self.root)
        held = ranged_type(read)
        with self.root.here():
            neutral = constant(identity_value(combiner, held), held)
            start = linalg.fill(neutral, outs=[tensor.empty([], mlir_type(held))])
            maps = [_axes_map(axes, axes), _axes_map(axes, [])]
            op = _generic_op([tile], start, maps, ["reduction"] * len(axes))
            block = op.regions[0].blocks[0]
            with ir.InsertionPoint(block):
                here = block.arguments[0]
                here = here if held == read.dtype else cast(here, read.dtype, held)
                for dim, axis in enumerate(axes):
                    at = self.root.tile(axis)
                    if at.ragged:  # the rest is padding
                        less, number = arith.CmpIPredicate.slt, linalg.IndexOp(dim).result
                        inside = arith.CmpIOp(less, number, ix.value(at.counted))
                        here = arith.SelectOp(inside.result, here, neutral).result
                combine = {"min": arith.MinSIOp, "max": arith.MaxSIOp}[combiner]
                linalg.YieldOp([combine(block.arguments[1], here).result])
            return op.results[0]

    # ---- nests

    def _emit(self, nest: FusedNest, frame: Frame) -> Any:
        if nest.combiner is None:
            return self._generic(nest, frame, self._empty(nest, frame))
        start = self._start(nest, frame)
        return self._reduce(nest, frame, start, sorted(self._loops_around(nest)))

    def _empty(self, nest: FusedNest, frame: Frame) -> Any:
        shape = [frame.tile(a).size for a in nest.result_axes if self._extends(a)]
        return tensor.empty(shape, mlir_type(nest.dtype))

    def _start(self, nest: FusedNest, frame: Frame) -> Any:
        """The tile that a reduction accumulates into."""
        if nest.init is None or nest.spreads:
            return self.identity(nest, frame)
        return self.value_at(nest.init, nest, frame)

    def value_at(self, key: str, nest: FusedNest, frame: Frame) -> Any:
        """The tile of the tensor `key`, which has the dimensions of the result of `nest`."""
        access = T.read(key, *map(T.index, nest.result_axes), dtype=nest.dtype)
        return self._operand(access, frame)[0]

    def identity(self, nest: FusedNest, frame: Frame) -> Any:
        neutral = arith.ConstantOp(mlir_type(nest.dtype), nest.op.operation.attributes["identity"])
        return linalg.fill(neutral.result, outs=[self._empty(nest, frame)])

    def _reduce(self, nest: FusedNest, frame: Frame, start: Any, axes: list[int]) -> Any:
        """Accumulate into `start`, in one loop per axis of `axes`."""
        if not axes:
            return self._generic(nest, frame, start)
        axis, rest = axes[0], axes[1:]

        def step(inner: Frame, carried: Sequence[Any]) -> list[Any]:
            return [self._reduce(nest, inner, carried[0], rest)]

        return self.loop(frame, axis, self.whole_range(axis, split=not rest), [start], step)[0]

    def whole_range(self, axis: int, split: bool = True) -> list[Range]:
        """All of an axis; with `split` its ragged tail is a range of its own."""
        extent, size = self.kernel.axes[axis].extent, self.kernel.axes[axis].size
        if axis == self.kernel.stream and self.kernel.in_one_tile:
            return [Range(0, extent, False, single=True)]
        split = split and not self.kernel.is_clipped(axis)
        return tail_ranges(extent, size, split, self.exists(axis))

    def extent(self, axis: int) -> Term:
        """The extent of an axis as a term."""
        extent = self.kernel.axes[axis].extent
        if ix.is_static(extent):
            return T.const(extent, "index")
        return scalar_term(extent, self.values)

    def exists(self, axis: int) -> Linear:
        """The form that is >= 0 at the positions of `axis` that exist: extent - 1 - position."""
        last = linear(T.make("sub", self.extent(axis), T.const(1, "index")))
        position = linear(T.index(axis))
        assert last is not None and position is not None
        return last.plus(position, -1)

    def loop(
        self,
        frame: Frame,
        axis: int,
        ranges: Sequence[Range],
        carried: Sequence[Any],
        step: Callable[[Frame, Sequence[Any]], list[Any]],
        test: Callable[[Frame], Any] = lambda frame: None,
        backward: bool = False,
        begin: Index = 0,
    ) -> list[Any]:
        """One `scf.for` per range over tiles of `axis`, each continuing the values `carried`;
        `backward`: from the last tile of the last range to the first one; `begin`: ranges of whole
        tiles from 0 on are taken from this tile on, then those before it.

        Each tile is taken as often as `test` says, never or once; None: once.
        """
        size, extent = self.kernel.axes[axis].size, self.kernel.axes[axis].extent
        carried = list(carried)
        outer = frame.open_loop
        for part in reversed(ranges) if backward else ranges:
            low, high = (0, size) if part.single else (part.start, part.stop)  # one step folds
            with frame.here():
                ends = ix.add(low, part.last_tile(size)) if backward else None
                op = scf.ForOp(ix.value(low), ix.value(high), ix.value(size), carried)
            frame.open_loop = op
            offset = op.induction_variable
            with ir.InsertionPoint(op.body):
                if part.single:
                    offset = ix.add(part.start, offset)
                elif ends is not None:
                    offset = ix.sub(ends, offset)
                elif part.full and part.start == 0 and not (ix.is_static(begin) and begin == 0):
                    moved = ix.add(offset, ix.minimum(begin, part.stop))
                    offset = ix.where_less(moved, part.stop, moved, ix.sub(moved, part.stop))
                if part.full or self.kernel.axes[axis].divides:
                    valid = size
                else:  # a single step stands at its start
                    at = part.start if part.is_single_step(size) else offset
                    valid = ix.minimum(size, ix.sub(extent, at))
                tiles = {axis: Tile(size, offset, valid)}
                several = not (part.single or part.is_single_step(size))
                inner = Frame(op.body, tiles, frame, part.known)
                inner.repeats |= several
                times = test(inner)
                if times is None:
                    scf.YieldOp(step(inner, op.inner_iter_args))
                else:  # a loop, which bufferization does in place
                    once = scf.ForOp(ix.value(0), times, ix.value(1), op.inner_iter_args)
                    with ir.InsertionPoint(once.body):
                        inner = Frame(once.body, tiles, frame, part.known)
                        inner.repeats |= several
                        scf.YieldOp(step(inner, once.inner_iter_args))
                    scf.YieldOp(once.results)
            frame.open_loop = outer
            carried = list(op.results)
        return carried

    def _generic(self, nest: FusedNest, frame: Frame, out: Any) -> Any:
        """One `linalg.generic` over the tile at hand, into `out`."""
        if _counts(nest) and not frame.repeats:
            return self._count(nest, frame, out)
        loops = [a for a in nest.loops if self._extends(a)]
        ragged = [a for a in nest.loops if frame.tile(a).ragged]
        body = self._bodies.body(nest, ragged, frame.known)
        reads = nest.reads if body is None else elements(body)
        operands = [self._operand(read, frame) for read in reads]
        covered = {a for _, axes in operands for a in axes} | set(nest.result_axes)
        missing = [a for a in loops if a not in covered]
        if missing:  # a loop must be seen in the shape of some operand
            shape = [frame.tile(a).size for a in missing]
            operands.append((tensor.empty(shape, mlir_type(nest.dtype)), missing))
        result_axes = [a for a in nest.result_axes if a in loops]
        maps = [_axes_map(loops, axes) for axes in [*(a for _, a in operands), result_axes]]
        kinds = ["parallel" if a in nest.result_axes else "reduction" for a in loops]
        op = _generic_op([value for value, _ in operands], out, maps, kinds)
        block = op.regions[0].blocks[0]
        taken = dict(zip(reads, block.arguments, strict=False))
        with ir.InsertionPoint(block):
            linalg.YieldOp([self._scalar(nest, body, frame, loops, taken, block.arguments[-1])])
        if nest.combiner is not None:
            _note_combiner(op.operation, nest)
        if FREE.on(nest.op.operation):
            FREE.set(op.operation)
        return op.results[0]

    def _count(self, nest: FusedNest, frame: Frame, out: Any) -> Any:
        """A sum of ones is how many there are, with nothing to add up. (In a loop over tiles of
        long rows, 410x23424, LayerNorm took a tenth longer so.)"""
        loops = [a for a in nest.result_axes if self._extends(a)]
        number: Index = 1
        for axis in nest.reduced_axes:
            number = ix.mul(number, ix.maximum(frame.tile(axis).valid, 0))
        number = ix.value(number)
        op = _generic_op([], out, [_axes_map(loops, loops)], ["parallel"] * len(loops))
        block = op.regions[0].blocks[0]
        with ir.InsertionPoint(block):
            counted = cast(number, "index", nest.dtype)
            combine = {"f": arith.AddFOp, "i": arith.AddIOp}[nest.dtype[0]]
            linalg.YieldOp([combine(block.arguments[-1], counted).result])
        return op.results[0]

    def _scalar(
        self,
        nest: FusedNest,
        body: Term | None,
        frame: Frame,
        loops: list[int],
        elements: dict[Term, Any],
        accumulated: Any,
    ) -> Any:
        """The scalar code of one point: the body, combined with the accumulator."""

        def position(axis: int) -> Any:
            offset = ix.value(frame.tile(axis).offset)
            if axis not in loops:
                return offset
            return arith.AddIOp(offset, linalg.IndexOp(loops.index(axis)).result).result

        def leaf(t: Term) -> Any:
            if t.op == "index":
                return position(t.attr)
            if t.op == "sym":
                return self.values[t.attr]
            return accumulated if t.attr == ACCUMULATOR else elements[t]

        emitter = Emitter(leaf)
        if body is None:
            place = {loop: T.index(axis) for loop, axis in enumerate(nest.loops)}
            (value,) = clone_scalar_code(
                nest.op.operation.regions[0].blocks[0], {},
                {
                    READ: lambda o: elements[
                        T.rename_axes(nests.read_access(o, self.values), place)
                    ],
                    INDEX: lambda o: position(nest.loops[o.attributes["dim"].value]),
                },
            )  # fmt: skip
            body = T.read("element", dtype=nest.dtype)
            elements[body] = value
            for axis in nest.reduced_axes:
                if frame.tile(axis).ragged:
                    neutral = T.const(nest.identity or 0, nest.dtype)
                    body = T.make("select", self._bodies.inside(axis), body, neutral)
        if nest.combiner is None:
            return emitter.emit(body)
        if nest.combiner == "custom":
            combine = nest.op.combine.blocks[0]
            both = [accumulated, emitter.emit(body)]
            return clone_scalar_code(combine, dict(zip(combine.arguments, both, strict=True)))[0]
        before = T.read(ACCUMULATOR, dtype=nest.dtype)
        return emitter.emit(lookup(nest.combiner)(before, body))


def _counts(nest: FusedNest) -> bool:
    """Whether a nest sums up ones, in a type in which their number is exact."""
    one = nest.combiner == "add" and nest.body is not None and nest.body.op == "const"
    return bool(one and nest.body.attr == 1 and nest.dtype in ("f32", "f64", "i32", "i64"))


def _generic_op(
    inputs: Sequence[Any], out: Any, maps: Sequence[Any], kinds: Sequence[str]
) -> Any:
    """A `linalg.generic` into `out` whose body is still to be written."""
    op = linalg.GenericOp(
        [out.type],
        list(inputs),
        [out],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{k}>") for k in kinds]),
    )
    types = [ir.RankedTensorType(v.type).element_type for v in [*inputs, out]]
    op.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
    return op


def _note_combiner(op: Any, nest: FusedNest) -> None:
    """Keep a combiner that is no single op as text, if it needs nothing from outside but constants:
    the body of the reduction has it too, but no longer apart from what is combined."""
    if nest.combiner != "custom" and lookup(nest.combiner).is_plain:
        return
    kind = mlir_type(nest.dtype)
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("combine", ir.FunctionType.get([kind, kind], [kind]))
    entry = function.add_entry_block()
    with ir.InsertionPoint(entry):
        if nest.combiner != "custom":
            func.ReturnOp([emit_combined(nest.combiner, *entry.arguments)])
        elif not _copy_combiner(nest.op.combine.blocks[0], entry):
            return
    COMBINE.set(op, str(module))
    IDENTITY.set(op, nest.op.operation.attributes["identity"])


def _copy_combiner(block: Any, entry: Any) -> bool:
    """The region of a custom combiner as the body of a function; False if it needs more."""
    given = dict(zip(block.arguments, entry.arguments, strict=True))
    for value in captured(list(block.operations)):
        if value in given:
            continue
        source = defining_op(value)
        if source is None or source.name != "arith.constant":
            return False
        given[value] = source.clone().results[0]
    func.ReturnOp(clone_scalar_code(block, given))
    return True


def _axes_map(loops: Sequence[int], axes: Sequence[int]) -> Any:
    dims = [ir.AffineExpr.get_dim(loops.index(a)) for a in axes]
    return ir.AffineMap.get(len(loops), 0, dims)
