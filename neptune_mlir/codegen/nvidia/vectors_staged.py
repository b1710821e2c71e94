# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vectors that a loop reads, in shared memory an iteration ahead.

A number for each streamed point (a log-sum-exp, a sum over a row) is no tile of a product: all
consumers need it, each thread those of its columns. From global memory that is an access a number,
and the second level's latency in each iteration. So each warp copies the vector of the next
iteration to a place of its own (two, in turns), a number a lane, and reads its columns there when
its arithmetic comes to them: they take no registers meanwhile. Where a tile may end early, it
copies what exists of this iteration's, and waits when it reads them.

Without room there the numbers come from global memory to registers. Each iteration reads other
ones, so the first-level cache has none of them, and all warps wait for the second level. So an
iteration asks for the elements of the next one (`bring_next`): an instruction of each warp, which
reads nothing and never fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.layouts import Layout
from neptune_mlir.analysis.tiles import load_window, multiple_of, tuned
from neptune_mlir.codegen.gpu.access.threads import under
from neptune_mlir.codegen.gpu.tile_forms import Pending
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.warp_groups import RESERVED_BYTES, STAGED
from neptune_mlir.transforms.gpu.layout_stages import added_panels, step_of
from neptune_mlir.transforms.hopper.vector_loads import (
    NUMBER,
    PLACES,
    moves_with,
    place_bytes,
    places_of_warps,
    staged_vectors,
)

MANY = 2  # loops: masks at both ends of a stream make more, and theirs lack registers

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.groups.consumers import ConsumerWriter
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter


class StagedVectors:
    """The places of one kernel: of the k-th such load of each loop, one for each warp."""

    def __init__(self, kernel: SpecializedWriter):
        self.kernel = kernel
        self.places: dict[Any, int] = {}  # of a load: where those of the first warp are
        self.beside: dict[Any, int] = {}  # of a loop: how many it has

    def place(self) -> None:
        """Shared memory for all of them, or for none."""
        kernel = self.kernel
        found = staged_vectors(kernel.forall, kernel.target.wave)
        sizes = places_of_warps(found)
        each = sum(size for _, size in sizes) + STAGED * max(1, added_panels(kernel.forall))
        taken = kernel.warps * each + RESERVED_BYTES
        if kernel.memory.top + taken > kernel.target.shared_for(kernel.blocks):
            return  # results need a place, too
        for ops, size in sizes:
            self.places.update(dict.fromkeys(ops, kernel.memory.take(size * kernel.warps)))
        self.beside = {loop: len(ops) for loop, ops in found.items()}

    def load(self, op: Any) -> Pending:
        """Start the copy of the next iteration's vector, wait for this one's."""
        kernel, s, loop = self.kernel, self.kernel.s, op.parent
        found = load_window(op.results[0], kernel.forall)
        assert found is not None
        window, (at,), (size,) = kernel.window(found), found.dims, found.shape
        array, step = kernel.arrays[found.tensor], step_of(loop)
        assert step is not None
        variable = kernel.scalar(loop.regions[0].blocks[0].arguments[0])
        first, end = (kernel.scalar(loop.operands[k]) for k in (0, 1))
        done = s.div(s.sub(variable, first), step)
        warp = s.mul(kernel.uniform(s.value(kernel.threads.warp, s.i32)), place_bytes(op))
        base = s.add(s.op("arith.index_cast", [s.value(warp, s.i32)], s.index), self.places[op])
        parity = s.mod(done, PLACES)
        here = s.add(base, s.mul(parity, size * NUMBER))
        other = s.add(base, s.mul(s.sub(1, parity), size * NUMBER))

        def numbers(window: Any, place: Any) -> Iterator[tuple[Any, Any, Any]]:
            lanes, memory = kernel.target.wave, kernel.memory
            lane = kernel.threads.lane
            if kernel.adds and len(self.beside) > MANY:  # else addresses stay in registers there
                lane = s.op("arith.index_cast", [hopper.unknown(s.value(lane, s.i32))], s.index)
            start = memory.address(array, window, [lane])
            each = s.op("arith.muli", [array.strides[at], s.constant(NUMBER, s.i64)], s.i64)
            for k in range(0, size, lanes):  # an address, and distances from it
                n = s.add(lane, k)
                target = memory.shared_pointer(s.add(place, s.mul(n, NUMBER)))
                behind = s.op("arith.muli", [each, s.constant(k, s.i64)], s.i64)
                yield n, memory.offset_pointer(start, behind, start.type), target

        hopper.converge()
        if window.valid[0] is not None:  # what is left over: what exists of it, and no next one
            for n, source, target in numbers(window, here):
                whole, none = (s.constant(k, s.i32) for k in (NUMBER, 0))
                self._copy(source, target, s.select(s.less(n, window.valid[0]), whole, none))
            kernel.chip.commit()
            return Pending(lambda layout: self._read(layout, here, arrives=True))
        with under(s, s.less(variable, s.add(first, 1))):
            for _, source, target in numbers(window, here):
                value = kernel.memory.load_element(source, s.f32, NUMBER)
                kernel.memory.store_element(value, target, NUMBER)
        offsets = list(window.offsets)
        offsets[at] = s.add(offsets[at], step)
        with under(s, s.less(s.add(variable, step), end)):
            for _, source, target in numbers(replace(window, offsets=tuple(offsets)), other):
                self._copy(source, target)
        kernel.chip.commit()
        kernel.chip.wait(self.beside[loop])
        hopper.converge()
        return Pending(lambda layout: self._read(layout, here))

    def _copy(self, source: Any, target: Any, size: Any = None) -> None:
        """Start the copy of a number; `size`: bytes that exist of it, the rest is 0."""
        i32 = self.kernel.s.i32
        ir.Operation.create(
            "nvvm.cp.async.shared.global",
            operands=[target, source, *([] if size is None else [size])],
            attributes={
                "size": ir.IntegerAttr.get(i32, NUMBER),
                "modifier": ir.Attribute.parse("#nvvm<load_cache_modifier ca>"),
            },
        )  # fmt: skip

    def _read(self, layout: Layout, place: Any, arrives: bool = False) -> Iterator[Any]:
        """A thread's elements; `arrives`: of a copy that nothing has waited for."""
        kernel, s, memory = self.kernel, self.kernel.s, self.kernel.memory
        if arrives:
            kernel.chip.wait(0)
            hopper.converge()
        positions = kernel.threads.positions(layout)
        pairs = bool(layout.reg) and layout.reg[0].stride == 1 and layout.reg[0].size % 2 == 0
        count = 2 if pairs else 1
        for k in range(0, len(positions), count):
            pointer = memory.shared_pointer(s.add(place, s.mul(positions[k][0], NUMBER)))
            kind = s.f32 if count == 1 else ir.VectorType.get([2], s.f32)
            value = memory.load_element(pointer, kind, NUMBER * count)
            yield from [value] if count == 1 else memory.unpack(value, 2, s.f32)


def bring_next(writer: ConsumerWriter, op: Any) -> None:
    """Ask for what a load of a vector in a loop will load next, if it moves with the loop. (Loads
    in front of products, choice `early`, need no help.)"""
    loop, found = op.parent, load_window(op.results[0], writer.forall)
    if loop.name != "scf.for" or tuned(writer.forall, "early", 0):
        return
    if found is None or len(found.shape) != 1 or found.pages is not None:
        return
    step, (place,) = defining_op(loop.operands[2]), found.dims
    variable = loop.regions[0].blocks[0].arguments[0]
    known = step is not None and step.name == "arith.constant"
    if not known or not moves_with(found.offsets[place], variable):
        return
    s, window, size = writer.s, writer.window(found), found.shape[0]
    offsets = list(window.offsets)
    offsets[place] = s.add(offsets[place], multiple_of(loop.operands[2]))
    # (Left alone, the address stays in registers through the loop, and others are spilled.)
    lane = hopper.unknown(s.value(writer.threads.lane, s.i32))
    lanes = writer.target.wave
    mine = s.mul(s.op("arith.index_cast", [lane], s.index), -(-size // lanes))
    mine = mine if size % lanes == 0 else s.mod(mine, size)
    there = replace(window, offsets=tuple(offsets))
    hopper.bring_near(writer.memory.address(writer.arrays[found.tensor], there, [mine]))
