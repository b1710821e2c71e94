# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `partition-warps`: a marked program as a producer and consumers that share rings of tiles.

`specialize-warps` has marked the program, `assign-layouts` has said which tiles lie in shared
memory. Each load of such a tile gets a ring (`neptune.aref_create`): of the loop's
`neptune.stages` slots, and where it is outside of any loop of two slots, if blocks are resident and
there is memory for them, so that the tile of the next program is under way while this one still
runs. Where memory holds one slot for the tiles of a loop, a tile that two products read has a
second one if there is room: the last product of an iteration may run beside the first one of the
next. Loops with equal loads share their rings, for they run one after another.

The program then falls in two. A `neptune.producer` repeats the loops for their loads alone, with
the index computations that these need, and puts each tile. What is left is the consumers': a
load has become `neptune.aref_get`, in a loop as late as its first reader, with
`neptune.aref_release` behind its last one. `split-matmuls` takes it from here.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.analysis.tiles import (
    foralls,
    is_inside,
    nested,
    read_contraction,
    read_generic,
    tuned,
)
from neptune_mlir.dialects.aref import ArefType
from neptune_mlir.dialects.attributes import TARGET, WARPS
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, LAYOUT, RESIDENT, STAGES
from neptune_mlir.dialects.op_names import CREATE, GET, PAGED, PRODUCER, PUT, RELEASE
from neptune_mlir.dialects.verify_aref import LOADS
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text, scf
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets import group_tiles
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.tuned import ALL_LATE
from neptune_mlir.targets.warp_groups import STAGED
from neptune_mlir.transforms.gpu.layout_stages import added_panels, exchanged_bytes
from neptune_mlir.transforms.hopper.specialize_warps import (
    GROUP,
    Load,
    Unshared,
    check,
    loads_of,
    loops_around,
)
from neptune_mlir.transforms.hopper.vector_loads import places_of_warps, staged_vectors
from neptune_mlir.transforms.registry import register
from neptune_mlir.transforms.tiling.host_plan import captured, nested_in


@register("partition-warps", "split marked programs in a producer and consumers, with rings")
def partition_warps(module: Any) -> None:
    for forall in foralls(module):
        if CONSUMERS.on(forall) and not _producers(forall):
            with module.context, forall.location:
                _Partition(forall).run()


def producer_of(forall: Any) -> Any:
    """The producer of a marked program. Raises LoweringError where there is none yet."""
    found = _producers(forall)
    if not found:
        raise LoweringError(
            "a program for specialised warps has no producer",
            loc=location_text(forall.location), hint="run partition-warps first",
        )  # fmt: skip
    return found[0]


def _producers(forall: Any) -> list[Any]:
    return [op for op in nested(forall.regions[0].blocks[0]) if op.name == PRODUCER]


def check_rings(forall: Any) -> None:
    """Raises LoweringError where the consumers of a marked program could get other tiles than its
    producer puts: each loop of the producer feeds one of the consumers', ring by ring."""
    body, producer = forall.regions[0].blocks[0], producer_of(forall).regions[0].blocks[0]
    puts, gets = (_places(block, name) for block, name in ((producer, PUT), (body, GET)))
    partner: dict[Any, Any] = {}  # loop of the producer -> of the consumers
    for ring, loops in gets.items():
        pairs = zip(puts[ring], loops, strict=False)
        paired = all(
            len(put) == len(got)
            and all(partner.setdefault(a, b) == b for a, b in zip(put, got, strict=True))
            for put, got in pairs
        )
        if not paired or not len(puts[ring]) == len(loops) == len(set(loops)):
            raise LoweringError(
                "rings that a loop uses together are not put and got in the same loops",
                loc=location_text(defining_op(ring).location),
                hint="each loop of the producer feeds one of the consumers'",
            )


def _places(block: Any, name: str) -> dict[Any, list[tuple[Any, ...]]]:
    """By ring, the loops around each op of a name that uses it, in order."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for op in nested(block):
        if op.name == name:
            found.setdefault(op.operands[0], []).append(loops_around(op, block))
    return found


class _Partition:
    """Splits one program."""

    def __init__(self, forall: Any):
        self.forall = forall
        self.body = forall.regions[0].blocks[0]
        if not WARPS.on(forall):
            raise LoweringError(
                "tile values have no layouts", loc=location_text(forall.location),
                hint="run assign-layouts first",
            )  # fmt: skip
        self.warps = WARPS.of(forall)
        self.target = gpu_target(TARGET.of(forall))
        try:
            check(forall, self.warps // GROUP)
        except Unshared as reason:
            raise LoweringError(
                f"a program marked for specialised warps does not suit them: {reason}",
                loc=location_text(forall.location), hint="specialize-warps marks those that do",
            ) from None  # fmt: skip
        self.loads = loads_of(forall)
        self.got: dict[Load, Any] = {}  # what the consumers have in place of a load

    def run(self) -> None:
        rings = self._create_rings()
        self._write_producer(rings)
        for load in self.loads:
            self._get(load, rings[load.value])
        for load in reversed(self.loads):  # so that those behind one reader stand in order
            self._release(load)
        self._erase_dead()

    # ---- rings

    def _create_rings(self) -> dict[Any, Any]:
        """The ring of every load."""
        loops: dict[Any, list[Load]] = {}
        for load in self.loads:
            loops.setdefault(load.loop, []).append(load)
        keys = {loop: (_stages(loop), *(x.value.type for x in found))
                for loop, found in loops.items()}  # fmt: skip
        first: dict[Any, list[Load]] = {}  # loads of the first loop with that key
        for loop, found in loops.items():
            first.setdefault(keys[loop], found)
        once = self._once_slots(first)
        second = self._second_slots(first, once)
        with ir.InsertionPoint.at_block_begin(self.body):
            made = {
                key: [
                    _create(load.value.type, (key[0] or once) + (load in second))
                    for load in found
                ]
                for key, found in first.items()
            }
        return {
            load.value: ring
            for loop, found in loops.items()
            for load, ring in zip(found, made[keys[loop]], strict=True)
        }

    def _once_slots(self, first: dict[Any, list[Load]]) -> int:
        """Slots of the loads outside of loops: two where memory allows, so that those of the next
        program are on their way while this one still runs, beside what groups give each other,
        what they add to other programs' sums, and the vectors that each iteration reads."""
        panels = max(1, added_panels(self.forall))
        beside = self._beside_rings() + self.warps * (panels - 1) * STAGED
        rings = sum(x.bytes * (key[0] or 2) for key, loads in first.items() for x in loads)
        blocks, resident = tuned(self.forall, "blocks", 1), RESIDENT.on(self.forall)
        return group_tiles.once_slots(self.target, blocks, self.warps, rings + beside, resident)

    def _beside_rings(self) -> int:
        """Bytes of the factors that groups give each other, and of vectors that warps read."""
        vectors = staged_vectors(self.forall, self.target.wave)
        each = sum(size for _, size in places_of_warps(vectors))
        return exchanged_bytes(self.forall) + self.warps * each

    def _second_slots(self, first: dict[Any, list[Load]], once: int) -> set[Load]:
        """Of loops whose tiles have one slot, those tiles that have another: what several products
        read, if one of these may run an iteration late, while there is room."""
        forall, taken = self.forall, self._beside_rings()
        taken += sum(x.bytes * (key[0] or once) for key, loads in first.items() for x in loads)
        found: set[Load] = set()
        if not tuned(forall, "late", ALL_LATE):
            return found
        blocks = tuned(forall, "blocks", 1)
        for load in (x for key, loads in first.items() if key[0] == 1 for x in loads):
            there = group_tiles.has_room(self.target, blocks, taken + load.bytes)
            if there and _products_of(load.value) > 1:
                found.add(load)
                taken += load.bytes
        return found

    # ---- the producer

    def _write_producer(self, rings: dict[Any, Any]) -> None:
        operations = [op.operation for op in self.body.operations]
        behind = next(op for op in operations if op.name != CREATE)
        with ir.InsertionPoint(behind):
            producer = ir.Operation.create(PRODUCER, regions=1)
        with ir.InsertionPoint(producer.regions[0].blocks.append()):
            self._produce(operations, rings, {})

    def _produce(self, operations: Any, rings: dict[Any, Any], copies: dict[Any, Any]) -> None:
        """The loads of some ops, and the loops that have any. `copies`: values of the program, and
        what stands for them here."""
        for op in operations:
            for load in self.loads:
                if defining_op(load.value) == op:
                    self._put(load, rings, copies)
            if any(op in load.loops for load in self.loads):
                loop = scf.ForOp(*(self._copy(v, copies) for v in list(op.operands)[:3]))
                body = op.regions[0].blocks[0]
                inside = {**copies, body.arguments[0]: loop.induction_variable}
                with ir.InsertionPoint(loop.body):
                    self._produce([x.operation for x in body.operations], rings, inside)
                    scf.YieldOp([])

    def _put(self, load: Load, rings: dict[Any, Any], copies: dict[Any, Any]) -> None:
        tile = self._copy(load.value, copies)
        LAYOUT.drop(defining_op(tile))  # that of TMA, not of a program's threads
        ir.Operation.create(PUT, operands=[rings[load.value], tile])

    def _copy(self, value: Any, copies: dict[Any, Any]) -> Any:
        """A value of the program in the producer, with what it is made from."""
        if value in copies:
            return copies[value]
        if isinstance(value, ir.BlockArgument) or not is_inside(value, self.forall):
            return value
        op = defining_op(value)
        for operand in captured([op]):
            copies[operand] = self._copy(operand, copies)
        copy = op.clone()
        for inner in [copy, *nested_in(copy)]:
            for k, operand in enumerate(inner.operands):
                inner.operands[k] = copies.get(operand, operand)
        copies.update(zip(op.results, copy.results, strict=True))
        return copies[value]

    # ---- the consumers

    def _get(self, load: Load, ring: Any) -> None:
        made = defining_op(load.value)
        if load.loop is not None:  # as late as it is needed
            made = _readers(load.value, made.block)[0]
        with ir.InsertionPoint(made):
            got = ir.Operation.create(GET, results=[load.value.type], operands=[ring])
        load.value.replace_all_uses_with(got.results[0])
        self.got[load] = got.results[0]

    def _release(self, load: Load) -> None:
        tile = self.got[load]
        last = _readers(tile, defining_op(tile).block)[-1]
        operations = [op.operation for op in last.block.operations]
        with ir.InsertionPoint(operations[operations.index(last) + 1]):
            ir.Operation.create(RELEASE, operands=[tile])

    def _erase_dead(self) -> None:
        """Loads that only the producer still does, and what only these needed."""
        for op in reversed(list(nested(self.body))):
            pure = op.name in (*LOADS, PAGED) or op.name.startswith(("arith.", "affine."))
            if pure and not any(True for v in op.results for _ in v.uses):
                op.erase()


def _stages(loop: Any) -> int:
    """Slots of the loads of a loop; 0 for no loop: its loads have what there is room for."""
    return 0 if loop is None else STAGES.of(loop)


def _products_of(tile: Any) -> int:
    """How many products read a tile."""
    generics = {use.owner.operation for use in tile.uses if use.owner.name == "linalg.generic"}
    return sum(read_contraction(read_generic(op)) is not None for op in generics)


def _create(tile: Any, slots: int) -> Any:
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), slots)
    return ir.Operation.create(CREATE, results=[ArefType.get(tile, count)]).results[0]


def _readers(value: Any, block: Any) -> list[Any]:
    """The ops of a block that read a value, themselves or within, in order."""
    readers = set()
    for use in value.uses:
        op = use.owner.operation
        while op.block != block:
            op = op.parent
        readers.add(op)
    return [op.operation for op in block.operations if op.operation in readers]


__all__ = ["check_rings", "partition_warps", "producer_of"]
